//! What the tests against a real kernel share: a network namespace and a journal of their own, and the system's programs
//! as the second witness.

use sqm_autotune::router::journal::Journal;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

/// A directory for the journal of a test that has its thread's network namespace for itself.
pub struct Place {
    pub directory: PathBuf,
}

impl Place {
    /// `None`: skipped, since there is no namespace to be had or what the test `needs` is not `there`. With `LAB=1` in the
    /// environment that is a failure.
    pub fn new(test: &str, needs: &str, there: impl FnOnce() -> bool) -> Option<Self> {
        // SAFETY: no pointers; it moves this thread into a new network namespace.
        let alone = unsafe { libc::unshare(libc::CLONE_NEWNET) } == 0;
        if alone && there() {
            let directory = std::env::temp_dir().join(format!("sqm-autotune-{test}-{}", std::process::id()));
            return Some(Self { directory });
        }
        assert!(std::env::var_os("LAB").is_none(), "{test}: needs {needs}");
        println!("skipped: needs {needs} (see tests/lab)");
        None
    }

    pub fn journal(&self) -> Arc<Journal> {
        Journal::open(&self.directory).unwrap()
    }

    pub fn records(&self) -> usize {
        let files = std::fs::read_dir(&self.directory).unwrap();
        files.filter(|file| file.as_ref().unwrap().file_name() != "lock").count()
    }

    /// Another process of this test, in this namespace: its test `child`, once it has said that it is `ready`.
    pub fn child(&self, environment: &[(&str, &str)], ready: &str) -> Child {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child", "--nocapture"])
            .envs(environment.iter().copied())
            .env("CHILD_DIRECTORY", &self.directory)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
        let got_there = lines.map_while(Result::ok).any(|line| line.contains(ready));
        assert!(got_there, "the child did not say {ready}");
        child
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn command(line: &str) -> Command {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().unwrap());
    command.args(words);
    command
}

pub fn succeeds(line: &str) -> bool {
    command(line).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// What it printed.
pub fn run(line: &str) -> String {
    let output = command(line).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
