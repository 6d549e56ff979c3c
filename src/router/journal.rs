//! The record of what was there before us, on the router's RAM disk, so that a killed run can be undone.
//!
//! It is written before the first change and removed after the last. One run at a time holds the lock; the kernel
//! releases it when its holder dies, however it dies.

use super::forwarder;
use super::netlink::Socket;
use super::redirect;
use super::root::{self, Before, Done};
use crate::durable::{self, Lock, LockError};
use crate::line::LineError;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Gone after a reboot, as the qdiscs are.
pub const DIRECTORY: &str = "/var/run/sqm-autotune/journal";

const VERSION: u32 = 1;

/// What we do to a device, and what it takes to undo it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    Root {
        before: Before,
        done: Done,
    },
    /// Incoming packets are led through a device of ours.
    Redirect {
        through: String,
    },
    /// A host of ours has joined the LAN.
    Host {
        address: Ipv4Addr,
    },
}

impl Change {
    fn name(&self) -> &'static str {
        match self {
            Self::Root { .. } => "root",
            Self::Redirect { .. } => "ingress",
            Self::Host { .. } => "host",
        }
    }
}

/// One change of one device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    version: u32,
    boot: String,
    pid: u32,
    /// In clock ticks since boot: tells a process from a later one with its number.
    pid_started: u64,
    pub device: String,
    pub index: i32,
    pub change: Change,
}

/// The directory of records, with the lock on it.
#[derive(Debug)]
pub struct Journal {
    directory: PathBuf,
    boot: String,
    pid_started: u64,
    _lock: Lock,
}

/// Puts back what a killed run left; says what it did. Refuses while a run is going on.
pub fn restore(directory: &Path) -> Result<Vec<String>, LineError> {
    if !directory.exists() {
        return Ok(Vec::new());
    }
    Journal::lock(directory)?.settle()
}

impl Journal {
    /// Takes the lock, after putting back what a killed run left.
    pub fn open(directory: &Path) -> Result<Arc<Self>, LineError> {
        let journal = Self::lock(directory)?;
        for line in journal.settle()? {
            log::warn!("{line}");
        }
        Ok(Arc::new(journal))
    }

    /// To be written before the change is made.
    pub fn write(&self, device: &str, index: i32, change: &Change) -> Result<(), LineError> {
        let record = Record {
            version: VERSION,
            boot: self.boot.clone(),
            pid: std::process::id(),
            pid_started: self.pid_started,
            device: device.into(),
            index,
            change: change.clone(),
        };
        let path = self.path(device, change);
        replace_file(&path, &record).map_err(|error| LineError::failed(format!("write {}", path.display()), error))
    }

    /// After it was undone.
    pub fn remove(&self, device: &str, change: &Change) -> Result<(), LineError> {
        remove_file(&self.path(device, change))
    }

    fn path(&self, device: &str, change: &Change) -> PathBuf {
        self.directory.join(format!("{device}.{}.json", change.name()))
    }

    fn lock(directory: &Path) -> Result<Self, LineError> {
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::PermissionDenied => LineError::refused(
                format!("{} may not be written by this user", directory.display()),
                "Run this as root",
            ),
            _ => LineError::failed(format!("use the directory {}", directory.display()), error),
        };
        let lock = Lock::take(&directory.join("lock")).map_err(|error| match error {
            LockError::Busy { owner } => running(&owner),
            LockError::File { cause, .. } => failed(cause),
        })?;
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").map_err(failed)?.trim().to_owned();
        let pid_started = process_start(std::process::id()).unwrap_or(0);
        Ok(Self { directory: directory.to_owned(), boot, pid_started, _lock: lock })
    }

    /// Undoes every record there is. One that cannot be undone does not keep the others from it.
    fn settle(&self) -> Result<Vec<String>, LineError> {
        let failed = |error: io::Error| LineError::failed(format!("list {}", self.directory.display()), error);
        let mut said = Vec::new();
        let mut first_error = None;
        for entry in fs::read_dir(&self.directory).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.extension().is_some_and(|extension| extension == "json") {
                match self.settle_one(&path) {
                    Ok(line) => said.push(line),
                    Err(error) => first_error = first_error.or(Some(error)),
                }
            } else if durable::is_temporary(&path) {
                // Whoever was killed over it had changed nothing yet.
                first_error = first_error.or(remove_file(&path).err());
            }
        }
        first_error.map_or(Ok(said), Err)
    }

    fn settle_one(&self, path: &Path) -> Result<String, LineError> {
        let Record { boot, pid, pid_started, device, index, change, .. } = read(path)?;
        let outcome = if boot != self.boot {
            "the router was restarted since, nothing to put back".into()
        } else if pid != std::process::id() && process_start(pid) == Some(pid_started) {
            return Err(running(&pid.to_string()));
        } else {
            let socket = &mut Socket::open()?;
            match &change {
                Change::Root { before, done } => root::put_back(socket, &device, index, before, *done)?.said(before),
                Change::Redirect { through } => redirect::put_back(socket, &device, index, through)?.into(),
                Change::Host { address } => forwarder::put_back(socket, index, *address)?.into(),
            }
        };
        remove_file(path)?;
        Ok(format!("{device}: {outcome}"))
    }
}

fn running(owner: &str) -> LineError {
    LineError::refused(format!("another run is going on (process {owner})"), "Wait for its end, or stop it")
}

fn read(path: &Path) -> Result<Record, LineError> {
    #[derive(Deserialize)]
    struct Version {
        version: u32,
    }
    let unreadable = |error: &dyn std::fmt::Display| {
        let problem = format!("the record {} of an earlier run cannot be read: {error}", path.display());
        LineError::refused(problem, "See what is set with `tc qdisc show`, put it right, and delete the file")
    };
    let text = fs::read_to_string(path).map_err(|error| unreadable(&error))?;
    match serde_json::from_str::<Version>(&text).map_err(|error| unreadable(&error))? {
        Version { version: VERSION } => serde_json::from_str(&text).map_err(|error| unreadable(&error)),
        Version { version } => Err(unreadable(&format_args!("it has format {version}, not {VERSION}"))),
    }
}

fn replace_file(path: &Path, record: &Record) -> io::Result<()> {
    durable::replace(path, &serde_json::to_vec(record)?)
}

fn remove_file(path: &Path) -> Result<(), LineError> {
    durable::remove(path).map_err(|error| LineError::failed(format!("remove {}", path.display()), error))
}

/// When a process began; `None` if there is none. Field 22 of `/proc/PID/stat`; the name before may hold anything.
fn process_start(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory that goes with its owner.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("sqm-autotune-journal-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn change() -> Change {
        let before = Before::Set { kind: "cake".into(), handle: 0x8001_0000, options: vec![8, 0, 1, 0xff] };
        Change::Root { before, done: Done::Unshaped }
    }

    fn rewrite(path: &Path, change: impl FnOnce(&mut Record)) {
        let mut record = read(path).unwrap();
        change(&mut record);
        replace_file(path, &record).unwrap();
    }

    #[test]
    fn a_record_says_what_was_and_what_was_done_and_goes() {
        let scratch = Scratch::new("record");
        let journal = Journal::open(&scratch.0).unwrap();
        journal.write("eth0.7", 4, &change()).unwrap();
        journal.write("eth0.7", 4, &Change::Redirect { through: "ifb0".into() }).unwrap();
        let path = scratch.0.join("eth0.7.root.json");
        let record = read(&path).unwrap();
        assert_eq!((record.device.as_str(), record.index, record.pid), ("eth0.7", 4, std::process::id()));
        assert_eq!(record.change, change());
        journal.remove("eth0.7", &change()).unwrap();
        journal.remove("eth0.7", &change()).unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn one_run_at_a_time_and_the_lock_goes_with_its_holder() {
        let scratch = Scratch::new("lock");
        let journal = Journal::open(&scratch.0).unwrap();
        let refused = Journal::open(&scratch.0).unwrap_err();
        assert!(refused.to_string().contains(&std::process::id().to_string()), "{refused}");
        assert!(matches!(restore(&scratch.0), Err(LineError::Refused { .. })));
        drop(journal);
        Journal::open(&scratch.0).unwrap();
    }

    #[test]
    fn after_a_reboot_there_is_nothing_to_put_back() {
        let scratch = Scratch::new("boot");
        Journal::open(&scratch.0).unwrap().write("lo", 1, &change()).unwrap();
        rewrite(&scratch.0.join("lo.root.json"), |record| record.boot = "another".into());
        assert!(restore(&scratch.0).unwrap()[0].contains("restarted"));
        assert_eq!(restore(&scratch.0), Ok(vec![]));
    }

    #[test]
    fn the_record_of_a_living_process_stays_even_without_its_lock() {
        let scratch = Scratch::new("alive");
        Journal::open(&scratch.0).unwrap().write("lo", 1, &change()).unwrap();
        let path = scratch.0.join("lo.root.json");
        rewrite(&path, |record| (record.pid, record.pid_started) = (1, process_start(1).unwrap()));
        let refused = restore(&scratch.0).unwrap_err();
        assert!(refused.to_string().contains("process 1"), "{refused}");
        assert!(path.exists());
    }

    #[test]
    fn a_record_that_makes_no_sense_is_refused_and_kept() {
        let scratch = Scratch::new("sense");
        let journal = Journal::open(&scratch.0).unwrap();
        for (text, why) in [("{", "EOF"), (r#"{"version":99}"#, "format 99"), (r#"{"version":1}"#, "missing field")] {
            let path = scratch.0.join("lo.root.json");
            fs::write(&path, text).unwrap();
            let refused = journal.settle().unwrap_err();
            assert!(refused.to_string().contains(why), "{refused}");
            assert!(path.exists());
        }
    }

    #[test]
    fn half_a_record_that_a_kill_left_goes_without_a_word() {
        let scratch = Scratch::new("half");
        drop(Journal::open(&scratch.0).unwrap());
        let half = scratch.0.join(".lo.root.json.sqm-autotune");
        fs::write(&half, "{").unwrap();
        assert_eq!(restore(&scratch.0), Ok(vec![]));
        assert!(!half.exists());
    }

    #[test]
    fn no_directory_nothing_to_restore() {
        let scratch = Scratch::new("none");
        assert_eq!(restore(&scratch.0), Ok(vec![]));
        assert!(!scratch.0.exists());
    }

    #[test]
    fn a_process_has_a_start_and_a_dead_one_has_none() {
        assert!(process_start(std::process::id()).is_some_and(|start| start > 0));
        assert_eq!(process_start(u32::MAX), None);
    }
}
