//! A command of the user's that asks a modem which has no common language: it prints two numbers, the upload's and the
//! download's sync rate in kbit/s.

use super::settings::kbit;
use crate::units::Rate;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Modems with slow web pages take seconds; rpcd ends what waits longer than half a minute.
const PATIENCE: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(20);
/// More than two numbers need; the rest stays unread.
const MOST_BYTES: u64 = 4096;

/// What the command prints, as upload and download; or why not, in one line.
pub fn rates(command: &str) -> Result<(Rate, Rate), String> {
    understood(&output(command, PATIENCE)?)
}

fn understood(text: &str) -> Result<(Rate, Rate), String> {
    let mut words = text.split_whitespace();
    let rates = (words.next().and_then(kbit), words.next().and_then(kbit));
    match (rates, words.next()) {
        ((Some(upload), Some(download)), None) => Ok((upload, download)),
        _ => Err(format!("prints {:?} instead of two rates in kbit/s, upload and download", text.trim())),
    }
}

fn output(command: &str, patience: Duration) -> Result<String, String> {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", command]).process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = shell.spawn().map_err(|error| format!("cannot be started: {error}"))?;
    let ended = wait(&mut child, patience);
    let status = ended.ok_or_else(|| format!("has not ended after {} s", patience.as_secs()))?;
    let mut text = Vec::new();
    let read = child.stdout.take().map(|stdout| stdout.take(MOST_BYTES).read_to_end(&mut text));
    match read {
        _ if !status.success() => Err(format!("ended with {status}")),
        Some(Err(error)) => Err(format!("cannot be read: {error}")),
        _ => Ok(String::from_utf8_lossy(&text).into_owned()),
    }
}

/// Whatever it has started ends with it.
fn wait(child: &mut Child, patience: Duration) -> Option<std::process::ExitStatus> {
    let begun = Instant::now();
    let mut status = None;
    while status.is_none() && begun.elapsed() < patience {
        status = child.try_wait().ok()?;
        if status.is_none() {
            thread::sleep(POLL);
        }
    }
    // SAFETY: only a signal, to the group that the child has led: what it left running would keep its stdout open.
    unsafe { libc::kill(-(child.id() as libc::pid_t), libc::SIGKILL) };
    if status.is_none() {
        let _ = child.wait();
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_numbers_are_upload_and_download() {
        assert_eq!(rates("echo 18000; echo 67000"), Ok((Rate::from_kbit(18_000), Rate::from_kbit(67_000))));
        for text in ["", "18000", "18000 67000 x", "up 18000", "0 67000", "18000000 67000000"] {
            assert!(understood(text).is_err_and(|why| why.contains("two rates")), "{text}");
        }
    }

    #[test]
    fn what_fails_or_hangs_is_told_in_one_line() {
        assert_eq!(rates("exit 3"), Err("ended with exit status: 3".into()));
        let begun = Instant::now();
        let hung = output("sleep 30 & sleep 30; echo 1 2", Duration::from_millis(100));
        assert_eq!(hung, Err("has not ended after 0 s".into()));
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
}
