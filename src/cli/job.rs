//! What a running `calibrate`, `apply` or `revert` leaves for whoever wants to watch it: one small file that is always whole,
//! and a lock, so that there is one at a time.
//!
//! The file is on the RAM disk and worth nothing after a crash: it is renamed into place and not forced to a disk.

use super::apply::Refusal;
use super::clock::Utc;
use super::exit::Exit;
use super::watch::Seen;
use super::words::clean;
use crate::durable::{Lock, LockError};
use crate::openwrt::Root;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const STATE: &str = "var/run/sqm-autotune/job.json";
const LOCK: &str = "var/run/sqm-autotune/job.lock";
const FORMAT: u32 = 1;
/// The page asks once a second.
const WRITE_EVERY: Duration = Duration::from_millis(400);
/// Of a reason; the rest of the file is bounded by [`Seen`].
const LONGEST_REASON: usize = 600;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum What {
    Calibrate,
    Apply,
    Revert,
}

/// The file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct State {
    format: u32,
    pub what: What,
    pub pid: u32,
    /// Who started it waits for its session: where a parent watches the work, the process itself is a grandchild.
    #[serde(default)]
    session: u32,
    /// When that process began, in the kernel's ticks: another process may get its number.
    born: u64,
    pub began: String,
    /// When this was written.
    pub at: String,
    #[serde(flatten)]
    pub seen: Seen,
    pub end: Option<End>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// `done`, `failed`, `usage`, `inconclusive`, `refused` or `stopped`.
    pub exit: String,
    pub reason: Option<String>,
    /// The outcome that came of it, or that was written.
    pub outcome: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    Running,
    Ended,
    /// Its process is gone and has not said how it ended.
    Interrupted,
}

impl State {
    /// `None`: nothing has run since the router started, or what is there makes no sense.
    pub fn read(root: &Root) -> Option<Self> {
        let text = root.bytes(STATE).ok()??;
        serde_json::from_slice(&text).ok().filter(|state: &Self| state.format == FORMAT)
    }

    pub fn phase(&self) -> Phase {
        match &self.end {
            Some(_) => Phase::Ended,
            None if born(self.pid) == Some(self.born) => Phase::Running,
            None => Phase::Interrupted,
        }
    }

    /// Whether it is what this leader of a session was started for.
    pub fn was_started_by(&self, leader: u32) -> bool {
        self.session == leader
    }

    /// The one that runs now.
    pub fn running(root: &Root) -> Option<Self> {
        Self::read(root).filter(|state| state.phase() == Phase::Running)
    }
}

/// A process that can be watched. When it goes without a word, a panic for example, that is told too.
pub struct Job {
    state: State,
    path: PathBuf,
    _lock: Lock,
    written: Instant,
}

impl Job {
    /// # Errors
    /// Where another one runs.
    pub fn begin(root: &Root, what: What) -> Result<Self, Refusal> {
        let lock = Lock::take(&root.path(LOCK).map_err(Refusal::failed)?).map_err(|error| match error {
            LockError::Busy { .. } => Refusal::refused(format!("{error}. Wait for its end, or stop it")),
            LockError::File { .. } => Refusal::failed(format!("{error}. Run this as root")),
        })?;
        let now = Utc::now().rfc3339();
        let pid = std::process::id();
        let state = State {
            format: FORMAT,
            what,
            pid,
            // SAFETY: takes a number only.
            session: unsafe { libc::getsid(0) } as u32,
            born: born(pid).unwrap_or(0),
            began: now.clone(),
            at: now,
            seen: Seen::default(),
            end: None,
        };
        let path = root.path(STATE).map_err(Refusal::failed)?;
        let mut job = Self { state, path, _lock: lock, written: Instant::now() };
        job.write();
        Ok(job)
    }

    pub fn seen(&mut self) -> &mut Seen {
        &mut self.state.seen
    }

    pub fn end(mut self, exit: Exit, reason: Option<&str>, outcome: Option<&str>) {
        let reason = reason.map(|reason| clean(reason).chars().take(LONGEST_REASON).collect());
        self.state.end = Some(End { exit: exit.word().into(), reason, outcome: outcome.map(str::to_owned) });
        self.write();
    }

    /// Nobody reads it more often than that.
    pub fn write_sometimes(&mut self) {
        if self.written.elapsed() >= WRITE_EVERY {
            self.write();
        }
    }

    /// Who cannot be watched still does their work.
    pub fn write(&mut self) {
        self.state.at = Utc::now().rfc3339();
        self.written = Instant::now();
        let json = serde_json::to_vec(&self.state).expect("a state is plain data");
        let new = self.path.with_extension("json.new");
        if let Err(error) = fs::write(&new, json).and_then(|()| fs::rename(&new, &self.path)) {
            log::warn!("cannot write {}: {error}", self.path.display());
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if self.state.end.is_none() {
            let reason = Some("it broke off without a reason: a bug in this program".into());
            self.state.end = Some(End { exit: Exit::Failed.word().into(), reason, outcome: None });
            self.write();
        }
    }
}

/// Field 22 of `/proc/PID/stat`, counted after the name, which may hold anything.
fn born(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    // A zombie only waits for somebody to ask how it ended.
    let state = fields.next()?;
    (state != "Z").then(|| fields.nth(18)?.parse().ok()).flatten()
}
