//! What the LuCI page calls, as rpcd calls it: a process for each question, on a simulated line and in a directory that looks
//! like a router.
#![cfg(feature = "sim")]

mod uci_program;

use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// Slow enough that a run is still going on when the next question is asked.
const SLOW: &str = "2";
const FAST: &str = "2000";
/// What a browser may be sent once a second.
const LARGEST_STATUS: usize = 24 * 1024;
const SQM: &str = "\nconfig queue\n\toption interface 'pppoe-wan'\n\toption enabled '1'\n\toption download '60000'\n\
    \toption upload '15000'\n\n";

struct Tree {
    path: PathBuf,
    pace: &'static str,
}

impl Tree {
    fn new(name: &str, pace: &'static str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("rpcd-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.join("etc/config")).unwrap();
        fs::write(path.join("etc/config/sqm"), SQM).unwrap();
        Self { path, pace }
    }

    fn agent() -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sqm-autotune"));
        command.env("PATH", uci_program::path()).stdin(Stdio::null());
        command
    }

    fn text(&self, method: &str, question: &str) -> String {
        let mut child = Self::agent()
            .args(["rpcd", "/usr/libexec/rpcd/sqm-autotune", "call", method, "--line", "sim:vdsl2-pppoe"])
            .args(["--pace", self.pace, "--root"])
            .arg(&self.path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(question.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{method}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn call(&self, method: &str, question: &Value) -> Value {
        serde_json::from_str(&self.text(method, &question.to_string())).unwrap()
    }

    fn ask(&self, method: &str) -> Value {
        self.call(method, &json!({}))
    }

    /// The status, once it is as wanted.
    fn until(&self, wanted: impl Fn(&Value) -> bool) -> Value {
        for _ in 0..1200 {
            let status = self.ask("status");
            if wanted(&status) {
                return status;
            }
            sleep(Duration::from_millis(50));
        }
        panic!("never seen; now it is {}", self.ask("status"));
    }

    /// As somebody on the console does it.
    fn calibrate(&self) {
        let calibrated = Self::agent()
            .args(["calibrate", "--json", "--line", "sim:vdsl2-pppoe", "--pace", "20000", "--root"])
            .arg(&self.path)
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert!(calibrated.success());
    }

    fn sqm(&self) -> String {
        fs::read_to_string(self.path.join("etc/config/sqm")).unwrap()
    }

    fn pid(&self) -> String {
        let state = fs::read(self.path.join("var/run/sqm-autotune/job.json")).unwrap();
        serde_json::from_slice::<Value>(&state).unwrap()["pid"].to_string()
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = self.text("cancel", "{}");
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn code(reply: &Value) -> &str {
    reply["error"]["code"].as_str().unwrap_or("none")
}

#[test]
fn every_method_is_listed_with_its_arguments() {
    let output = Command::new(env!("CARGO_BIN_EXE_sqm-autotune")).args(["rpcd", "list"]).output().unwrap();
    let list: Value = serde_json::from_slice(&output.stdout).unwrap();
    let names: Vec<_> = list.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(names, ["advice", "apply", "cancel", "findings", "history", "outcome", "revert", "start", "status"]);
    assert_eq!(list["start"], json!({ "direction": "both", "max_mbytes": 0 }));
    assert_eq!(list["status"], json!({}));
}

#[test]
fn a_run_is_started_watched_and_stopped() {
    let tree = Tree::new("stopped", SLOW);
    assert_eq!(tree.ask("status")["state"], "idle");
    assert_eq!(code(&tree.ask("cancel")), "not-running");
    assert_eq!(tree.ask("start")["started"], true);
    assert_eq!(code(&tree.ask("start")), "busy");
    assert_eq!(code(&tree.ask("revert")), "busy");
    let status =
        tree.until(|status| status["job"]["over_time"]["curve"].as_str().is_some_and(|curve| curve.len() > 40));
    assert_eq!(
        (&status["state"], &status["poll_s"], &status["job"]["what"]),
        (&json!("running"), &json!(1), &json!("calibrate"))
    );
    assert_eq!(status["job"]["line"], "sim:vdsl2-pppoe");
    let comm = fs::read_to_string(format!("/proc/{}/comm", tree.pid())).unwrap();
    assert_eq!(comm, "sqm-autotune\n", "killall finds it");
    let stages = status["job"]["stages"].as_array().unwrap();
    assert!(stages.contains(&json!({ "name": "idle", "state": "done" })), "{stages:?}");
    assert_eq!(stages.iter().filter(|stage| stage["state"] == "running").count(), 1, "{stages:?}");
    assert!(status["job"]["left"].is_string() && status["job"]["now"]["n"].is_u64());
    assert_eq!(tree.ask("cancel")["stopping"], true);
    let status = tree.until(|status| status["state"] != "running");
    assert_eq!((&status["state"], &status["job"]["end"]["exit"]), (&json!("ended"), &json!("stopped")));
    assert_eq!(tree.sqm(), SQM);
    assert_eq!(tree.ask("outcome")["outcome"], Value::Null, "what was stopped is no result");
}

#[test]
fn a_killed_run_is_told_and_the_next_one_starts() {
    let tree = Tree::new("killed", SLOW);
    tree.ask("start");
    tree.until(|status| status["job"]["now"].is_object());
    assert!(Command::new("kill").args(["-KILL", &tree.pid()]).status().unwrap().success());
    tree.until(|status| status["state"] == "interrupted");
    assert_eq!(code(&tree.ask("cancel")), "not-running");
    assert_eq!(tree.ask("start")["started"], true);
    assert_eq!(tree.ask("status")["state"], "running");
}

#[test]
fn a_run_of_somebody_else_is_seen_then_applied_and_undone() {
    let tree = Tree::new("applied", FAST);
    tree.calibrate();
    let text = tree.text("status", "");
    let status: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&status["state"], &status["job"]["end"]["exit"]), (&json!("ended"), &json!("done")));
    assert!(text.len() < LARGEST_STATUS, "{} bytes", text.len());

    let shown = tree.ask("outcome");
    let outcome = &shown["outcome"];
    assert_eq!((&outcome["outcome"], &outcome["written"]), (&json!("tuned"), &json!(false)));
    let changes = outcome["changes"]["changes"].as_array().unwrap();
    assert!(changes.iter().any(|change| change["option"] == "upload" && change["old"] == "15000"), "{changes:?}");
    assert_eq!(outcome["before_and_after"]["bars"].as_array().unwrap().len(), 3);
    assert!(outcome["upload"]["points"].as_array().unwrap().len() > 2);
    // This provider's download is good as it is: seen once, without a limit, and last.
    assert_eq!(status["job"]["download"]["points"].as_array().unwrap().len(), 1);
    assert_eq!(status["job"]["upload"]["points"], outcome["upload"]["points"]);
    assert_eq!(outcome["download"], Value::Null);
    let reasons: Vec<_> = outcome["reasons"].as_array().unwrap().iter().map(|reason| &reason["name"]).collect();
    for name in ["upload", "overhead", "target", "download"] {
        assert!(reasons.contains(&&json!(name)), "{reasons:?}");
    }
    assert!(shown["cost"].as_str().unwrap().contains("MB"), "{}", shown["cost"]);

    assert_eq!(tree.call("apply", &json!({ "id": outcome["id"] }))["started"], true);
    let status = tree.until(|status| status["state"] == "ended" && status["job"]["what"] == "apply");
    assert_eq!(status["job"]["end"]["exit"], "done", "{status}");
    assert_ne!(tree.sqm(), SQM);
    let shown = tree.ask("outcome");
    assert_eq!((&shown["outcome"]["written"], &shown["outcome"]["changes"]), (&json!(true), &Value::Null));
    assert!(shown["revert"].is_string());
    assert_eq!(tree.ask("history")["outcomes"][0]["written"], true);

    assert_eq!(tree.ask("revert")["started"], true);
    tree.until(|status| status["state"] == "ended" && status["job"]["what"] == "revert");
    assert_eq!(tree.sqm(), SQM);
    assert_eq!(tree.ask("outcome")["revert"], Value::Null);
    tree.ask("revert");
    let status = tree.until(|status| status["state"] == "ended" && status["job"]["end"]["exit"] != "done");
    assert_eq!(status["job"]["end"]["exit"], "failed");
    assert!(status["job"]["end"]["reason"].is_string());
}

#[test]
fn a_run_that_never_started_hides_no_result() {
    let tree = Tree::new("refused", FAST);
    tree.calibrate();
    let kept = tree.ask("outcome")["outcome"]["id"].clone();
    let history = tree.path.join("var/run/sqm-autotune/history");
    let file = history.join(format!("{}.json", kept.as_str().unwrap()));
    let mut outcome: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    outcome["id"] = json!("29991231-2359-1");
    outcome["outcome"] = json!("refused");
    fs::write(history.join("29991231-2359-1.json"), outcome.to_string()).unwrap();
    assert_eq!(tree.ask("history")["outcomes"][0]["outcome"], "refused");
    assert_eq!(tree.ask("outcome")["outcome"]["id"], kept);
}

#[test]
fn wrong_arguments_get_a_code_and_start_nothing() {
    let tree = Tree::new("wrong", SLOW);
    for (method, question) in [
        ("start", json!({ "direction": "sideways" })),
        ("start", json!({ "direction": 7 })),
        ("start", json!({ "max_mbytes": 0 })),
        ("start", json!({ "max_mbytes": -1 })),
        ("start", json!({ "root": "/" })),
        ("start", json!({ "line": "sim:fibre-pppoe" })),
        ("start", json!([])),
        ("status", json!({ "x": 1 })),
        ("apply", json!({})),
        ("outcome", json!({ "id": 1 })),
    ] {
        assert_eq!(code(&tree.call(method, &question)), "bad-argument", "{method} {question}");
    }
    assert_eq!(code(&tree.call("apply", &json!({ "id": "../../etc/passwd" }))), "unknown");
    assert_eq!(code(&tree.call("outcome", &json!({ "id": "20200101-0000-1" }))), "unknown");
    let broken: Value = serde_json::from_str(&tree.text("start", "{\"direction\":")).unwrap();
    assert_eq!(code(&broken), "bad-argument");
    assert_eq!(tree.ask("status")["state"], "idle");
    // The gateway's own word is no argument of ours.
    assert_eq!(tree.call("status", &json!({ "ubus_rpc_session": "0" }))["state"], "idle");
}

#[test]
fn findings_and_advice_answer_without_a_router() {
    let tree = Tree::new("facts", SLOW);
    let findings = tree.ask("findings");
    assert!(findings["findings"].is_array(), "{findings}");
    let advice = tree.ask("advice");
    assert!(advice["tunnels"].is_array() || code(&advice) == "failed", "{advice}");
}
