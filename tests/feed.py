"""What others build from, against the one list, openwrt-package/package.toml: the Makefiles of the feed and of LuCI, and
cross.toml. Run by tests/packages.
"""

import json
import os
import re
import subprocess
import tomllib
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "openwrt-package"
LIST = tomllib.loads((PACKAGE / "package.toml").read_text())
CARGO = tomllib.loads((ROOT / "Cargo.toml").read_text())["package"]
NAME = LIST["package"]["name"]


def pack(*words, **env):
    command = [PACKAGE / "pack", *map(str, words)]
    done = subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Feed(unittest.TestCase):
    text = (PACKAGE / "Makefile").read_text()

    def variable(self, name):
        found = re.findall(rf"(?m)^\s*{name}:=(.*)$", self.text)
        self.assertEqual(len(found), 1, name)
        return found[0]

    def block(self, name):
        return re.search(rf"(?ms)^define {re.escape(name)}\n(.*?)^endef$", self.text)[1]

    def test_the_makefile_is_made_from_the_list(self):
        self.assertEqual(self.text, pack("makefile"), "run: openwrt-package/pack makefile >openwrt-package/Makefile")

    def test_what_a_feed_checks(self):
        self.assertEqual((self.variable("PKG_NAME"), self.variable("PKG_VERSION")), (NAME, CARGO["version"]))
        self.assertRegex(self.variable("PKG_VERSION"), r"^\d+(\.\d+)*(_rc\d+)?$")
        self.assertRegex(self.variable("PKG_RELEASE"), r"^[1-9]\d*$")
        self.assertTrue(self.variable("PKG_MAINTAINER"))
        self.assertEqual(self.variable("PKG_LICENSE"), CARGO["license"])
        self.assertTrue((ROOT / self.variable("PKG_LICENSE_FILES")).is_file())
        self.assertLessEqual(len(self.variable("TITLE")), 60)
        self.assertEqual(
            self.variable("DEPENDS"), "$(RUST_ARCH_DEPENDS) +sqm-scripts +tc +kmod-sched-cake +kmod-ifb")
        self.assertEqual(self.variable("PKG_BUILD_DEPENDS"), "rust/host")

    def test_the_makefile_installs_what_the_packages_have(self):
        modes = {"INSTALL_BIN": 0o755, "INSTALL_DATA": 0o644}
        found, directories = {}, set()
        for how, words in re.findall(r"\t\$\((\w+)\) (.*)", self.block(f"Package/{NAME}/install")):
            words = words.split()
            target = words[-1].removeprefix("$(1)")
            if how == "INSTALL_DIR":
                directories.add(target)
                continue
            self.assertIn(os.path.dirname(target), directories, "made before")
            found[target] = (modes[how], words[0])
        expected = {}
        for entry in LIST["file"]:
            sources = {"binary": f"$(PKG_INSTALL_DIR)/bin/{NAME}", "files": f"./files{entry['path']}"}
            expected[entry["path"]] = (entry["mode"], sources[entry["from"]])
        self.assertEqual(found, expected)
        conffiles = [entry["path"] for entry in LIST["file"] if entry.get("conffile")]
        self.assertEqual(self.block(f"Package/{NAME}/conffiles").split(), conffiles)

    def test_the_makefile_has_the_same_scripts(self):
        for what, path in LIST["scripts"].items():
            block = self.block(f"Package/{NAME}/{what}")
            self.assertNotRegex(block.replace("$$", ""), r"\$", "make would expand it")
            self.assertEqual(block.replace("$$", "$"), (PACKAGE / path).read_text())


class Page(unittest.TestCase):
    """luci-app as LuCI's own build takes it."""

    app = ROOT / "luci-app"
    text = (app / "Makefile").read_text()

    def test_the_makefile_is_made_from_the_list(self):
        self.assertEqual(self.text, pack("luci-makefile"), "run: openwrt-package/pack luci-makefile >luci-app/Makefile")

    def test_what_a_feed_checks(self):
        variable = lambda name: re.search(rf"(?m)^{name}:=(.*)$", self.text)[1]
        # LuCI takes the kind and the names of the translations from it.
        self.assertRegex(variable("LUCI_NAME"), "^luci-app-[a-z0-9-]+$")
        self.assertEqual(variable("PKG_VERSION"), CARGO["version"])
        self.assertEqual(variable("PKG_LICENSE"), CARGO["license"])
        self.assertEqual(variable("LUCI_DEPENDS"), "+luci-base +sqm-autotune")
        self.assertTrue(variable("LUCI_MAINTAINER") and variable("LUCI_TITLE"))
        self.assertLessEqual(len(variable("LUCI_TITLE")), 60)
        lines = [line for line in self.text.splitlines() if line]
        self.assertEqual(lines[-2:], ["include $(TOPDIR)/feeds/luci/luci.mk", "# call BuildPackage - OpenWrt buildroot signature"])
        self.assertNotIn("postinst", self.text, "LuCI has its own: it reloads rpcd")

    def test_the_page_has_what_luci_wants(self):
        name = f"{LIST['luci']['name']}.json"
        menu = json.loads((self.app / "root/usr/share/luci/menu.d" / name).read_text())
        groups = json.loads((self.app / "root/usr/share/rpcd/acl.d" / name).read_text())
        self.assertTrue((self.app / "po/templates/sqm-autotune.pot").is_file())
        for entry in menu.values():
            for group in entry.get("depends", {}).get("acl", []):
                self.assertIn(group, groups, "LuCI hides an entry whose group nobody defines")
        for group in groups.values():
            read, write = (set(group[kind].get("ubus", {}).get(NAME, [])) for kind in ("read", "write"))
            self.assertTrue(read and write and not read & write)
        plugin = self.app / "root/usr/libexec/rpcd/sqm-autotune"
        self.assertTrue(os.access(plugin, os.X_OK))
        self.assertEqual(plugin.read_text(), f"#!{LIST['file'][0]['path']} rpcd\n")


class Cross(unittest.TestCase):
    """cross.toml: cross itself needs Docker, so only its keys and what it shares with openwrt-package/build."""

    config = tomllib.loads((ROOT / "cross.toml").read_text())

    def test_only_documented_keys(self):
        # https://github.com/cross-rs/cross/blob/main/docs/config_file.md
        env = {"volumes", "passthrough"}
        common = {"build-std", "zig", "pre-build", "dockerfile", "env"}
        self.assertLessEqual(set(self.config), {"build", "target"})
        self.assertLessEqual(set(self.config["build"]), common | {"default-target"})
        self.assertLessEqual(set(self.config["build"]["env"]), env)
        for target in self.config["target"].values():
            self.assertLessEqual(set(target), common | {"image", "runner"})
            self.assertLessEqual(set(target["env"]), env)

    def test_the_same_targets_and_flags_as_the_build(self):
        suffix = lambda target: "musleabihf" if target == "armv7" else "musl"
        triples = {f"{target}-unknown-linux-{suffix(target)}" for target in LIST["architectures"]}
        self.assertEqual(set(self.config["target"]), triples)
        build = (PACKAGE / "build").read_text()
        # Start files are zig's business, and paths only matter for equal bytes.
        flags = " ".join(re.search(rf'(?m)^  {name}="(.*)"$', build)[1] for name in ("static", "small"))
        features = re.search(r"-Zbuild-std-features=(\S+)", build)[1]
        for triple, target in self.config["target"].items():
            variable = f"CARGO_TARGET_{triple.upper().replace('-', '_')}_RUSTFLAGS"
            self.assertEqual(target["env"]["passthrough"], [f"{variable}={flags}"])
        self.assertEqual(
            self.config["build"]["env"]["passthrough"], [f"CARGO_UNSTABLE_BUILD_STD_FEATURES={features}"])
