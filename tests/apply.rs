//! Writing `/etc/config/sqm` with the real `uci` program, in directories that look like a router.
#![cfg(feature = "sim")]

mod uci_program;

use serde_json::Value;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const OUTCOME: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/outcomes/vdsl2-pppoe.json");
/// What LuCI leaves, and a queue of another line with options that nobody knows.
const OWNERS: &str = "\nconfig queue 'eth1'\n\toption enabled '0'\n\toption interface 'eth1'\n\toption autorate '1'\n\
    \toption delay_thr_ms '30.0'\n\nconfig queue\n\toption interface 'pppoe-wan'\n\toption enabled '1'\n\
    \toption download '60000'\n\toption upload '15000'\n\toption qdisc 'cake'\n\toption script 'layer_cake.qos'\n\
    \toption linklayer 'none'\n\toption eqdisc_opts 'nat dual-srchost'\n\n";

/// What is there where nothing was written: two locks, and for the page how the last command ended.
const UNWRITTEN: [&str; 4] = [
    "etc/config/sqm",
    "var/run/sqm-autotune/job.json",
    "var/run/sqm-autotune/job.lock",
    "var/run/sqm-autotune/run.lock",
];

/// A router's files, gone with their owner.
struct Tree(PathBuf);

impl Tree {
    fn new(name: &str, sqm: Option<&str>) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("apply-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.join("etc/config")).unwrap();
        if let Some(text) = sqm {
            fs::write(path.join("etc/config/sqm"), text).unwrap();
        }
        Self(path)
    }

    fn file(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn sqm(&self) -> Option<Vec<u8>> {
        fs::read(self.0.join("etc/config/sqm")).ok()
    }

    fn text(&self) -> String {
        String::from_utf8(self.sqm().unwrap()).unwrap()
    }

    fn agent(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sqm-autotune"));
        command.args(words).arg("--root").arg(&self.0).env("PATH", uci_program::path()).stdin(Stdio::null());
        command
    }

    fn run(&self, words: &[&str]) -> (i32, String, String) {
        told(self.agent(words).output().unwrap())
    }

    fn apply(&self) -> (i32, String, String) {
        self.run(&["apply", OUTCOME])
    }

    /// All files below, so that a test sees what is left over.
    fn files(&self) -> Vec<String> {
        let (mut folders, mut files) = (vec![self.0.clone()], Vec::new());
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    files.push(path.strip_prefix(&self.0).unwrap().display().to_string());
                }
            }
        }
        files.sort();
        files
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn told(Output { status, stdout, stderr }: Output) -> (i32, String, String) {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code().unwrap_or(-1), text(stdout), text(stderr))
}

/// What the real program makes of a file by itself.
fn uci(sqm: &str, script: &str) -> String {
    let tree = Tree::new("uci", Some(sqm));
    let config = tree.0.join("etc/config");
    let mut child = Command::new(uci_program::directory().join("uci"))
        .arg("-c")
        .arg(&config)
        .arg("-t")
        .arg(tree.0.join("staged"))
        .arg("batch")
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    tree.text()
}

#[test]
fn only_our_options_of_our_queue_change_and_revert_brings_every_byte_back() {
    let tree = Tree::new("queue", Some(OWNERS));
    fs::set_permissions(tree.0.join("etc/config/sqm"), fs::Permissions::from_mode(0o640)).unwrap();
    let (code, stdout, stderr) = tree.apply();
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("  upload ") && stdout.contains("'15000' -> '17260'"), "{stdout}");
    let set = |name: &str, value: &str| format!("set sqm.@queue[1].{name}='{value}'\n");
    let script = [
        ("upload", "17260"),
        ("linklayer", "ethernet"),
        ("overhead", "38"),
        ("linklayer_advanced", "1"),
        ("tcMPU", "84"),
        ("linklayer_adaptation_mechanism", "default"),
    ];
    let script: String = script.iter().map(|(name, value)| set(name, value)).collect();
    assert_eq!(tree.text(), uci(OWNERS, &(script + "commit sqm\n")));
    assert!(tree.text().contains("option script 'layer_cake.qos'") && tree.text().contains("delay_thr_ms '30.0'"));
    let mode = fs::metadata(tree.0.join("etc/config/sqm")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640);

    let written = tree.text();
    let (code, stdout, _) = tree.apply();
    assert!(code == 0 && stdout.contains("nothing to change"), "{stdout}");
    assert_eq!(tree.text(), written, "the second time nothing is written");

    let (code, _, stderr) = tree.run(&["revert"]);
    assert_eq!((code, tree.text().as_str()), (0, OWNERS), "{stderr}");
    assert_eq!(tree.run(&["revert"]).0, 1, "there is nothing more to undo");
    assert_eq!(tree.files(), UNWRITTEN);
}

#[test]
fn a_router_without_a_queue_gets_one_and_without_a_file_a_file() {
    let tree = Tree::new("none", None);
    let (code, stdout, stderr) = tree.run(&["apply", OUTCOME, "--json"]);
    assert_eq!(code, 0, "{stderr}");
    let json: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((&json["section"], &json["new"], &json["written"]), (&"pppoe_wan".into(), &true.into(), &true.into()));
    assert!(
        tree.text().starts_with("\nconfig queue 'pppoe_wan'\n\toption enabled '1'\n\toption interface 'pppoe-wan'\n")
    );
    assert_eq!((tree.run(&["revert"]).0, tree.sqm()), (0, None));
}

#[test]
fn a_dry_run_shows_and_writes_nothing() {
    let tree = Tree::new("dry", Some(OWNERS));
    let (code, stdout, stderr) = tree.run(&["apply", OUTCOME, "--dry-run"]);
    assert!(code == 0 && stdout.contains("'15000' -> '17260'") && stderr.contains("nothing was written"), "{stderr}");
    assert_eq!(tree.text(), OWNERS);
    assert_eq!(tree.files(), ["etc/config/sqm", "var/run/sqm-autotune/run.lock"]);
}

#[test]
fn what_others_have_not_finished_is_not_committed_for_them() {
    for (path, text, needed) in [
        ("tmp/.uci/sqm", "sqm.eth1.enabled='1'\n", "uci changes sqm"),
        ("var/run/rpcd/snapshot-files/sqm", "", "LuCI"),
        ("var/run/uci/sqm", "config queue\n", "hides"),
    ] {
        let tree = Tree::new("foreign", Some(OWNERS));
        tree.file(path, text);
        let (code, _, stderr) = tree.apply();
        assert!(code == 4 && stderr.contains(needed) && stderr.lines().count() == 1, "{path}: {code} {stderr}");
        assert_eq!((tree.text().as_str(), tree.0.join(path).exists()), (OWNERS, true), "{path}");
        fs::remove_file(tree.0.join(path)).unwrap();
        // An empty file is what `uci` leaves after a commit.
        tree.file("tmp/.uci/sqm", "");
        assert_eq!(tree.apply().0, 0);
    }
}

#[test]
fn comments_go_with_a_warning_and_come_back() {
    let commented = format!("# mine\n{OWNERS}");
    let tree = Tree::new("comments", Some(&commented));
    let (_, stdout, _) = tree.apply();
    assert!(stdout.contains("keeps no comments") && !tree.text().contains('#'), "{stdout}");
    tree.run(&["revert"]);
    assert_eq!(tree.text(), commented);
}

#[test]
fn what_cannot_be_understood_or_trusted_is_left_alone() {
    for (sqm, needed) in [
        ("config queue\n\toption interface 'pppoe-wan\n", "no program on the router accepts"),
        ("config queue\n\toption interface 'pppoe-wan'\n\toption eqdisc_opts 'nat; reboot'\n", "eqdisc_opts"),
    ] {
        let tree = Tree::new("trust", Some(sqm));
        let (code, _, stderr) = tree.apply();
        assert!(code == 4 && stderr.contains(needed), "{code}: {stderr}");
        assert_eq!(tree.text(), sqm);
    }
    let tree = Tree::new("uneeded", Some(OWNERS));
    let mut outcome: Value = serde_json::from_str(&fs::read_to_string(OUTCOME).unwrap()).unwrap();
    outcome["outcome"] = "inconclusive".into();
    tree.file("o.json", &outcome.to_string());
    let (code, _, stderr) = tree.run(&["apply", tree.0.join("o.json").to_str().unwrap()]);
    assert!(code == 4 && stderr.contains("only a tuned line"), "{code}: {stderr}");
}

/// C25, and SQM's stale lock: what is written would do nothing.
#[test]
fn what_would_do_nothing_is_not_written() {
    for (path, text, needed) in [
        ("etc/config/firewall", "config defaults\n\toption flow_offloading_hw '1'\n", "flow_offloading_hw='0'"),
        ("var/run/sqm/sqm-run.lock/pid", "4711\n", "rm -r /var/run/sqm/sqm-run.lock"),
    ] {
        let tree = Tree::new("nothing", Some(OWNERS));
        tree.file("proc/1/comm", "procd\n");
        tree.file(path, text);
        let (code, stdout, stderr) = tree.apply();
        assert!(code == 4 && stderr.contains(needed) && stderr.lines().count() == 1, "{path}: {code} {stderr}");
        assert!(stdout.contains("'15000' -> '17260'"), "what it would be is shown: {stdout}");
        assert_eq!(tree.text(), OWNERS, "{path}");
        fs::remove_file(tree.0.join(path)).unwrap();
        assert_eq!(tree.apply().0, 0);
    }
}

#[test]
fn a_simulated_line_is_not_written_to_a_real_router() {
    for words in [&["apply", OUTCOME][..], &["apply", OUTCOME, "--root", "/"]] {
        let output = Command::new(env!("CARGO_BIN_EXE_sqm-autotune")).args(words).output().unwrap();
        let (code, _, stderr) = told(output);
        assert!(code == 4 && stderr.contains("simulated line"), "{code}: {stderr}");
    }
}

#[test]
fn without_uci_or_with_a_lying_one_nothing_is_written() {
    let tree = Tree::new("lying", Some(OWNERS));
    let mut agent = tree.agent(&["apply", OUTCOME]);
    let (code, _, stderr) = told(agent.env("PATH", "/nowhere").output().unwrap());
    assert!(code == 1 && stderr.contains("program uci cannot be run"), "{code}: {stderr}");
    for (script, needed) in [
        ("exit 0", "something else"),
        ("echo 'uci: I/O error' >&2; exit 1", "(uci: I/O error)"),
        ("echo 'config queue x' >>\"$2\"/sqm_autotune_copy", "something else"),
    ] {
        let bin = tree.0.join("bin");
        fs::create_dir_all(&bin).unwrap();
        fs::write(bin.join("uci"), format!("#!/bin/sh\ncat >/dev/null\n{script}\n")).unwrap();
        fs::set_permissions(bin.join("uci"), fs::Permissions::from_mode(0o755)).unwrap();
        let mut agent = tree.agent(&["apply", OUTCOME]);
        let (code, _, stderr) = told(agent.env("PATH", format!("{}:/bin:/usr/bin", bin.display())).output().unwrap());
        assert!(code == 1 && stderr.contains(needed), "{code}: {stderr}");
        assert_eq!(tree.text(), OWNERS);
        fs::remove_dir_all(&bin).unwrap();
    }
}

#[test]
fn killed_at_any_point_the_file_is_the_old_one_or_the_new_one() {
    let new = {
        let tree = Tree::new("new", Some(OWNERS));
        assert_eq!(tree.apply().0, 0);
        tree.text()
    };
    let mut seen = Vec::new();
    for at in 1.. {
        let tree = Tree::new("killed", Some(OWNERS));
        let (code, _, _) =
            told(tree.agent(&["apply", OUTCOME]).env("SQM_AUTOTUNE_KILL_AT", at.to_string()).output().unwrap());
        assert!([OWNERS, &new].contains(&tree.text().as_str()), "killed at {at}: {}", tree.text());
        let (restored, _, stderr) = tree.run(&["restore"]);
        assert_eq!(restored, 0, "killed at {at}: {stderr}");
        let text = tree.text();
        assert!([OWNERS, &new].contains(&text.as_str()), "restored after {at}: {text}");
        let mut left = [&UNWRITTEN[..1], &["etc/sqm-autotune/written.pppoe-wan.json"], &UNWRITTEN[1..]].concat();
        left.retain(|name| text == new || !name.contains("written"));
        assert_eq!(tree.files(), left, "killed at {at}");
        seen.push(text == new);
        if code == 0 {
            break;
        }
    }
    assert!(seen.len() > 10 && seen.last() == Some(&true) && !seen[0], "{seen:?}");
    // From where it was kept on, all is new; before, all is old.
    assert!(seen.is_sorted(), "{seen:?}");
}

#[test]
fn a_full_disk_leaves_the_old_file() {
    for at in 1..=3 {
        let tree = Tree::new("full", Some(OWNERS));
        let mut agent = tree.agent(&["apply", OUTCOME]);
        let (code, _, stderr) = told(agent.env("SQM_AUTOTUNE_FULL_AT", at.to_string()).output().unwrap());
        assert!(code == 1 && stderr.contains("No space left"), "{at}: {code} {stderr}");
        assert_eq!(tree.text(), OWNERS, "{at}");
        assert_eq!(tree.files(), UNWRITTEN, "{at}");
    }
    let tree = Tree::new("roomy", Some(OWNERS));
    assert_eq!(told(tree.agent(&["apply", OUTCOME]).env("SQM_AUTOTUNE_FULL_AT", "4").output().unwrap()).0, 0);
}

/// A real small disk, and a real read-only one, where this user may mount.
#[test]
fn a_small_or_read_only_disk_leaves_the_old_file() {
    for (options, needed) in [("size=16k", "No space left"), ("size=1m,ro", "Read-only file system")] {
        let tree = Tree::new("mount", None);
        tree.file("sqm.old", OWNERS);
        let etc = tree.0.join("etc");
        // 16 kB are four pages: the directory takes none, the old file one, the filler the rest.
        let script = format!(
            "mount -t tmpfs -o size=1m none {etc} && mkdir {etc}/config && cp {old} {etc}/config/sqm \
             && mount -o remount,{options} {etc} || exit 77; head -c 12288 /dev/zero >{etc}/filler 2>/dev/null; \
             \"$@\"; echo $?; cat {etc}/config/sqm",
            etc = etc.display(),
            old = tree.0.join("sqm.old").display(),
        );
        let agent = tree.agent(&["apply", OUTCOME]);
        let mut unshare = Command::new("unshare");
        unshare.args(["-m", "sh", "-c", &script, "sh"]).arg(agent.get_program()).args(agent.get_args());
        let (code, stdout, stderr) =
            told(unshare.env("PATH", uci_program::path()).stdin(Stdio::null()).output().unwrap());
        if code == 77 || stderr.contains("unshare:") {
            println!("skipped: this user may not mount a file system ({})", stderr.trim());
            return;
        }
        assert!(stderr.contains(needed), "{options}: {stderr}");
        assert!(stdout.ends_with(&format!("1\n{OWNERS}")), "{options}: {stdout}");
    }
}

#[test]
fn one_at_a_time_and_a_killed_owner_holds_nothing() {
    let tree = Tree::new("lock", Some(OWNERS));
    tree.file("var/run/sqm-autotune/run.lock", "4711\n");
    let lock = fs::File::open(tree.0.join("var/run/sqm-autotune/run.lock")).unwrap();
    lock.lock().unwrap();
    let (code, _, stderr) = tree.apply();
    assert!(code == 4 && stderr.contains("another run is going on (process 4711)"), "{code}: {stderr}");
    drop(lock);
    assert_eq!(tree.apply().0, 0, "the number of a dead process is no lock");
}

#[test]
fn a_calibration_is_kept_applied_and_undone() {
    let tree = Tree::new("calibrate", Some(OWNERS));
    let calibrate = ["calibrate", "--line", "sim:vdsl2-pppoe"];
    let (code, stdout, stderr) = tree.run(&[&calibrate[..], &["--json"]].concat());
    let outcome: Value = serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stderr}"));
    assert_eq!((code, tree.text().as_str()), (0, OWNERS), "without --apply nothing is written");
    let (code, stdout, stderr) = tree.run(&["apply", outcome["id"].as_str().unwrap()]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains(&format!("-> '{}'", outcome["upload"]["kbit"])), "{stdout}");
    let (code, _, stderr) = tree.run(&["apply", "20000101-0000-1"]);
    assert!(code == 2 && stderr.contains("no outcome"), "{stderr}");
    assert_eq!(tree.run(&["revert"]).0, 0);
    let (code, _, stderr) = tree.run(&[&calibrate[..], &["--apply"]].concat());
    assert!(code == 0 && tree.text().contains("option overhead '38'"), "{stderr}");
}

/// What `check` knows of a router with its own modem: the WAN, the link, the rates.
fn vdsl2(name: &str, upload: u64) -> Tree {
    let tree = Tree::new(name, Some(OWNERS));
    let router = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/routers/vdsl2-vlan101");
    for file in ["etc/config/network", "ubus/network.interface.dump.json"] {
        tree.file(file, &fs::read_to_string(router.join(file)).unwrap());
    }
    tree.sync(upload);
    tree
}

impl Tree {
    fn sync(&self, upload: u64) {
        let rates = format!(
            r#"{{"up":true,"state":"Showtime with TC-Layer sync","state_num":7,"mode":"G.993.2 (VDSL2)",
            "upstream":{{"data_rate":{upload}000}},"downstream":{{"data_rate":67000000}}}}"#
        );
        self.file("ubus/dsl.metrics.json", &rates);
    }

    fn check(&self) -> Value {
        let (code, stdout, stderr) = self.run(&["check", "--json"]);
        let json: Value = serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {code} {stderr}"));
        json["wans"][0].clone()
    }
}

#[test]
fn check_says_what_speaks_for_and_against_a_run() {
    let tree = vdsl2("check", 18_000);
    let settings = |apply: &str| {
        let text = format!(
            "config autotune\n\toption enabled '1'\n\toption apply '{apply}'\n\toption window 'always'\n\toption settle_minutes '0'\n"
        );
        tree.file("etc/config/sqm-autotune", &text);
    };
    let why = |needed: &str, due: bool| {
        let wan = tree.check();
        let why = wan["why"].as_str().unwrap().to_owned();
        assert!(wan["due"] == due && why.contains(needed), "{needed:?}: {wan}");
        wan
    };
    why("switched off", false);
    settings("auto");
    why("nothing has been written yet", false);
    assert_eq!(tree.apply().0, 0);
    why("nothing has changed", false);
    let (files, sqm) = (tree.files(), tree.text());
    let memory = || fs::metadata(tree.0.join("var/run/sqm-autotune/check/memory.json")).unwrap().modified().unwrap();
    let before = memory();
    for _ in 0..20 {
        why("nothing has changed", false);
    }
    assert_eq!((tree.files(), tree.text(), memory()), (files, sqm, before), "identical events write nothing");
    tree.sync(15_000);
    let due = why("upload sync went from 18000 to 15000 kbit/s", true);
    assert!(due["warning"].as_str().unwrap().contains("SQM is set to 17260"), "{due}");
    assert!(why("18000 to 15000", true)["warning"].is_null(), "once");
    settings("ask");
    why("run `sqm-autotune calibrate --apply`", false);
    settings("auto");
    let edited = tree.text().replace("17260", "12000");
    tree.file("etc/config/sqm", &edited);
    why("upload 12000", false);
    let (code, _, stderr) = tree.run(&["revert"]);
    assert!(code == 4 && stderr.contains("has been changed"), "{code}: {stderr}");
    settings("sometimes");
    let (code, _, stderr) = tree.run(&["check"]);
    assert!(code == 2 && stderr.contains("line 3: option apply is \"sometimes\": write ask or auto"), "{stderr}");
    assert_eq!(tree.text(), edited);
}

#[test]
fn status_history_and_report_tell_what_there_is() {
    let tree = vdsl2("status", 18_000);
    tree.file("etc/config/system", "config system\n\toption hostname 'smithsbox'\n");
    tree.file("etc/openwrt_release", "DISTRIB_ID='OpenWrt'\nDISTRIB_DESCRIPTION='OpenWrt 24.10.1'\n");
    let (code, status, _) = tree.run(&["status"]);
    assert!(code == 0 && status.contains("15,000 kbit/s up, 60,000 kbit/s down"), "{status}");
    assert!(status.contains("none since the router started") && !status.contains("Last write"), "{status}");
    assert!(tree.run(&["history"]).1.contains("Nothing has been measured"));

    let (_, stdout, _) = tree.run(&["calibrate", "--line", "sim:vdsl2-pppoe", "--json", "--apply"]);
    let outcome: Value = serde_json::from_str(&stdout).unwrap();
    let id = outcome["id"].as_str().unwrap();
    let (_, status, _) = tree.run(&["status", "--json"]);
    let status: Value = serde_json::from_str(&status).unwrap();
    assert_eq!((&status["last"]["id"], &status["last"]["written"]), (&outcome["id"], &true.into()));
    assert_eq!(
        (&status["last_write"]["device"], &status["last_write"]["revertible"]),
        (&"pppoe-wan".into(), &true.into())
    );
    assert_eq!(status["wans"][0]["queue"]["upload_kbit"], outcome["upload"]["kbit"]);
    assert_eq!(status["wans"][0]["sync"]["upload_kbit"], 18_000);

    let (_, table, _) = tree.run(&["history"]);
    assert!(table.contains(id) && table.contains("C>A+") && table.contains("(written)"), "{table}");
    let (_, one, _) = tree.run(&["history", id, "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&one).unwrap(), outcome);
    let (_, short, _) = tree.run(&["history", "--json"]);
    let short: Value = serde_json::from_str(&short).unwrap();
    assert_eq!(short["outcomes"][0]["id"], outcome["id"]);
    assert!(short["outcomes"][0].get("trials").is_none());
    assert_eq!(tree.run(&["history", "../../etc/config/sqm"]).0, 2);

    let secret = "config queue\n\toption interface 'eth9'\n\toption note 'smithsbox at 203.0.113.7'\n";
    tree.file("etc/config/sqm", &(tree.text() + secret));
    for words in [&["report"][..], &["report", "--json"]] {
        let (code, report, _) = tree.run(words);
        assert!(code == 0 && report.contains("OpenWrt 24.10.1") && report.contains("pppoe-wan"), "{report}");
        assert!(report.contains("<name> at <ipv4>") && !report.contains("smithsbox"), "{report}");
        assert!(!report.contains("203.0.113") && !report.contains("192.168."), "{report}");
    }
}

#[test]
fn the_history_is_bounded_and_the_last_result_may_outlive_the_ram_disk() {
    let tree = Tree::new("bounded", None);
    let text = fs::read_to_string(OUTCOME).unwrap();
    for n in 1..=25 {
        let id = format!("20261130-0912-{n}");
        tree.file(&format!("var/run/sqm-autotune/history/{id}.json"), &text.replace("20261130-0912-1", &id));
    }
    let (code, stdout, _) = tree.run(&["calibrate", "--line", "sim:vdsl2-pppoe", "--json"]);
    assert_eq!(code, 0);
    let newest: Value = serde_json::from_str(&stdout).unwrap();
    let kept = || -> Vec<String> {
        let (_, stdout, _) = tree.run(&["history", "--json"]);
        let json: Value = serde_json::from_str(&stdout).unwrap();
        json["outcomes"].as_array().unwrap().iter().map(|entry| entry["id"].as_str().unwrap().to_owned()).collect()
    };
    let ids = kept();
    assert_eq!(ids.len(), 20);
    // The machine's clock may be before or after the recorded ones.
    let recorded: Vec<_> = ids.iter().filter(|id| **id != newest["id"]).map(String::as_str).collect();
    assert_eq!(recorded[..3], ["20261130-0912-25", "20261130-0912-24", "20261130-0912-23"]);
    fs::create_dir_all(tree.0.join("etc/sqm-autotune")).unwrap();
    fs::write(tree.0.join("etc/sqm-autotune/last.json"), &text).unwrap();
    fs::remove_dir_all(tree.0.join("var")).unwrap();
    assert_eq!(kept(), ["20261130-0912-1"]);
}
