//! The scripts of the package under a router's shell, with stand-ins for what OpenWrt gives them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn files() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("openwrt-package/files")
}

/// busybox where there is one, since that is what routers have.
fn shell() -> Command {
    if Command::new("busybox").arg("true").status().is_ok_and(|status| status.success()) {
        let mut shell = Command::new("busybox");
        shell.arg("ash");
        return shell;
    }
    println!("skipped: no busybox here, another shell runs the scripts");
    Command::new("sh")
}

struct Router(PathBuf);

impl Router {
    fn new(name: &str, crontab: Option<&str>) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("init-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        if let Some(text) = crontab {
            fs::write(path.join("crontab"), text).unwrap();
        }
        Self(path)
    }

    /// Calls a function of the init script; returns the crontab and how often cron was restarted.
    fn call(&self, function: &str, enabled: &str, minutes: &str) -> (Option<String>, usize) {
        let script = fs::read_to_string(files().join("etc/init.d/sqm-autotune")).unwrap();
        let script = script
            .replace("/etc/init.d/cron restart", "echo restarted")
            .replace("CRONTAB=/etc/crontabs/root", &format!("CRONTAB={}", self.0.join("crontab").display()));
        let stubs = format!(
            "config_load() {{ :; }}\nconfig_get_bool() {{ eval \"$1={enabled}\"; }}\nconfig_get() {{ eval \"$1=\\$MINUTES\"; }}\n\
             procd_add_reload_trigger() {{ :; }}\nset -u\n"
        );
        let mut shell = shell();
        shell.arg("-c").arg(format!("{stubs}{script}\n{function}")).env("MINUTES", minutes);
        let output = shell.output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        let restarts = String::from_utf8(output.stdout).unwrap().matches("restarted").count();
        (fs::read_to_string(self.0.join("crontab")).ok(), restarts)
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const THEIRS: &str = "0 4 * * * /root/backup\n# mine\n";

fn ours(minutes: u32) -> String {
    format!("*/{minutes} * * * * /usr/sbin/sqm-autotune check >/dev/null 2>&1 # sqm-autotune\n")
}

#[test]
fn the_cron_line_keeps_in_step_and_the_others_stay() {
    let router = Router::new("step", Some(THEIRS));
    let with = |minutes| (Some(format!("{THEIRS}{}", ours(minutes))), 1);
    assert_eq!(router.call("start_service", "0", "15"), (Some(THEIRS.into()), 0), "switched off: nothing is touched");
    assert_eq!(router.call("start_service", "1", "15"), with(15));
    assert_eq!(router.call("reload_service", "1", "15"), (with(15).0, 0), "the same again restarts nothing");
    assert_eq!(router.call("reload_service", "1", "5"), with(5));
    assert_eq!(router.call("reload_service", "1", "$(echo 7)"), with(15), "no number: the default");
    assert_eq!(router.call("reload_service", "0", "5"), (Some(THEIRS.into()), 1));
    assert_eq!(router.call("start_service", "1", "15"), with(15));
    assert_eq!(router.call("stop_service", "1", "15"), (Some(THEIRS.into()), 1));
    assert_eq!(router.call("start_service", "1", "15"), with(15));
    assert_eq!(router.call("unschedule", "1", "15"), (Some(THEIRS.into()), 1));
    assert_eq!(router.call("stop_service", "1", "15"), (Some(THEIRS.into()), 0), "it is gone already");
}

#[test]
fn a_router_without_a_crontab_has_one_only_as_long_as_needed() {
    let router = Router::new("none", None);
    assert_eq!(router.call("start_service", "0", "15"), (None, 0));
    assert_eq!(router.call("start_service", "1", "15"), (Some(ours(15)), 1));
    assert_eq!(router.call("stop_service", "1", "15"), (None, 1), "cron would start for an empty one");
}

#[test]
fn hotplug_scripts_call_the_program_when_the_line_comes_up_and_only_then() {
    for (script, variable, up, other) in
        [("dsl", "DSL_INTERFACE_STATUS", "UP", "DOWN"), ("iface", "ACTION", "ifup", "ifdown")]
    {
        let text = fs::read_to_string(files().join(format!("etc/hotplug.d/{script}/60-sqm-autotune"))).unwrap();
        let text = text.replace("/usr/sbin/sqm-autotune check >/dev/null 2>&1 &", "echo called");
        let called = |value: &str| {
            let output = shell().arg("-c").arg(&text).env(variable, value).output().unwrap();
            assert!(output.status.success(), "{output:?}");
            output.stdout == b"called\n"
        };
        assert_eq!((called(up), called(other), called("")), (true, false, false), "{script}");
    }
}
