//! A write that ends in the old state or in the complete new one.
//!
//! Before the first change the exact old bytes and what ran are noted down in `/etc/sqm-autotune/begun.json`, on flash:
//! a power cut in the middle is undone as well as a killed run. The note goes when the settings have proved good. What
//! was written last stays in `written.DEVICE.json`, for `revert` and so that nobody's later edit is overwritten.

mod bytes;

use super::root::{Root, RootError};
use super::schedule::Basis;
use super::service::{Service, ServiceError};
use super::sqm::ChangeList;
use super::uci::{Config, Section};
use super::write::{Edit, WriteError};
use crate::durable;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::PathBuf;

const DIRECTORY: &str = "etc/sqm-autotune";
const BEGUN: &str = "begun.json";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const VERSION: u32 = 1;

/// One write: what it takes to undo it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    version: u32,
    doing: Doing,
    /// Of the outcome that was written.
    pub id: String,
    /// RFC 3339, UTC.
    pub at: String,
    pub device: String,
    pub section: String,
    #[serde(with = "bytes::optional")]
    before: Option<Vec<u8>>,
    #[serde(with = "bytes")]
    after: Vec<u8>,
    /// Whether SQM started at boot, and whether it shaped the device.
    was_enabled: bool,
    was_running: bool,
    /// Another device that the queue was for, if SQM shaped that.
    moved_from: Option<String>,
    boot: String,
    /// What the settings rest on.
    pub basis: Basis,
}

/// What a note that is left over says was interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Doing {
    Writing,
    Reverting,
}

#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error(transparent)]
    Service(#[from] ServiceError),
    #[error(transparent)]
    Root(#[from] RootError),
    #[error("cannot note down what is there in {}: {cause}; the old state stays", path.display())]
    Note { path: PathBuf, cause: io::Error },
    #[error("the note {} of an earlier run cannot be read: {why}. See what /etc/config/sqm has, and delete the note", path.display())]
    Unreadable { path: PathBuf, why: String },
    #[error("nothing has been written that could be undone")]
    NothingWritten,
}

/// What is written, and when.
#[derive(Clone, Debug)]
pub struct Write {
    /// Of the outcome.
    pub id: String,
    /// RFC 3339, UTC.
    pub at: String,
    pub basis: Basis,
}

/// A write under way. Dropped before it is kept, it undoes itself.
pub struct Apply<'a> {
    root: &'a Root,
    service: Option<&'a Service>,
    record: Record,
    open: bool,
}

impl<'a> Apply<'a> {
    /// Notes down what is there. Changes nothing else.
    pub fn begin(
        root: &'a Root,
        service: Option<&'a Service>,
        list: &ChangeList,
        edit: Edit,
        write: &Write,
    ) -> Result<Self, ApplyError> {
        let moved =
            list.changes.iter().find(|change| change.option == "interface").and_then(|change| change.old.clone());
        let record = Record {
            version: VERSION,
            doing: Doing::Writing,
            id: write.id.clone(),
            at: write.at.clone(),
            basis: write.basis.clone(),
            device: list.device.clone(),
            section: list.section.clone(),
            before: edit.before,
            after: edit.after,
            was_enabled: service.map_or(Ok(true), Service::is_enabled)?,
            was_running: service.is_some_and(|service| service.runs_on(&list.device)),
            moved_from: moved.filter(|device| service.is_some_and(|service| service.runs_on(device))),
            boot: boot(),
        };
        note(root, BEGUN, &record)?;
        Ok(Self { root, service, record, open: true })
    }

    /// The file, then SQM: enabled as LuCI does it, and started anew on this device alone.
    pub fn carry_out(&self) -> Result<(), ApplyError> {
        self.edit().commit(self.root)?;
        durable::point("committed");
        let Some(service) = self.service else { return Ok(()) };
        if !self.record.was_enabled {
            service.enable(true)?;
        }
        durable::point("enabled");
        for device in self.record.moved_from.iter().chain([&self.record.device]) {
            service.stop(device)?;
            durable::point("stopped");
        }
        service.start(&self.record.device)?;
        durable::point("started");
        Ok(())
    }

    /// The settings have proved good.
    pub fn keep(mut self) -> Result<(), ApplyError> {
        note(self.root, &written(&self.record.device), &self.record)?;
        self.open = false;
        forget(self.root)
    }

    /// Everything as it was before. Says what could not be put back.
    pub fn undo(mut self) -> Result<Vec<String>, ApplyError> {
        self.open = false;
        self.record.undo(self.root, self.service).and_then(|said| forget(self.root).map(|()| said))
    }

    fn edit(&self) -> Edit {
        self.record.edit()
    }
}

impl Drop for Apply<'_> {
    fn drop(&mut self) {
        if self.open {
            self.open = false;
            let undone = self.record.undo(self.root, self.service).and_then(|_| forget(self.root));
            if let Err(error) = undone {
                log::error!("{error}; `sqm-autotune restore` tries again");
            }
        }
    }
}

impl Record {
    fn edit(&self) -> Edit {
        Edit { before: self.before.clone(), after: self.after.clone() }
    }

    /// The configuration as we wrote it.
    pub fn wrote(&self) -> Option<Config> {
        Config::parse(&self.after).ok()
    }

    /// Whether the file is still as we wrote it.
    pub fn is_in_place(&self, root: &Root) -> bool {
        root.bytes("etc/config/sqm").is_ok_and(|now| now.as_deref() == Some(self.after.as_slice()))
    }

    /// The rates that the queue has otherwise than we wrote them, in words. `now`: the queue for its place.
    pub fn edited(&self, now: Option<&Section>) -> Option<String> {
        let Some(now) = now else { return Some("its queue is gone".into()) };
        let wrote = self.wrote()?;
        let wrote = super::sqm::section(&wrote, &self.section)?;
        let rates = ["enabled", "upload", "download"].into_iter().filter(|option| now.get(option) != wrote.get(option));
        let rates: Vec<_> = rates.map(|option| format!("{option} {}", now.get(option).unwrap_or("none"))).collect();
        (!rates.is_empty()).then(|| rates.join(", "))
    }

    fn undo(&self, root: &Root, service: Option<&Service>) -> Result<Vec<String>, ApplyError> {
        let mut said = Vec::new();
        match self.edit().undo(root) {
            Ok(()) => said.push("/etc/config/sqm is as it was".into()),
            Err(WriteError::Changed) => {
                return Ok(vec!["/etc/config/sqm has been changed by somebody else since: it stays".into()]);
            }
            Err(error) => return Err(error.into()),
        }
        durable::point("undone");
        let Some(service) = service else { return Ok(said) };
        if !self.was_enabled && service.is_enabled()? {
            service.enable(false)?;
            said.push("SQM no longer starts at boot, as before".into());
        }
        durable::point("disabled");
        // After a restart of the router nothing of ours runs; SQM starts by itself what the file says.
        if self.boot == boot() {
            service.stop(&self.device)?;
            durable::point("stopped again");
            if self.was_running {
                service.start(&self.device)?;
                said.push(format!("SQM runs on {} as before", self.device));
            }
            if let Some(device) = &self.moved_from {
                service.start(device)?;
                said.push(format!("SQM runs on {device} as before"));
            }
        }
        Ok(said)
    }
}

/// Undoes what a killed run or a power cut has left half done; says what it did.
pub fn restore(root: &Root, service: Option<&Service>) -> Result<Vec<String>, ApplyError> {
    sweep(root);
    let Some(record) = read(root, BEGUN)? else { return Ok(Vec::new()) };
    match record.doing {
        Doing::Reverting => finish_revert(root, service, &record),
        // The last step of a write that was kept: only the note is left over.
        Doing::Writing if read(root, &written(&record.device))?.is_some_and(|kept| kept == record) => {
            forget(root)?;
            Ok(vec!["the last write is complete".into()])
        }
        Doing::Writing => {
            let said = record.undo(root, service)?;
            forget(root)?;
            Ok(said)
        }
    }
}

/// Undoes the last write that was kept, byte for byte.
///
/// # Errors
/// Where there is none, or somebody has changed the file since: theirs stays.
pub fn revert(root: &Root, service: Option<&Service>) -> Result<(Record, Vec<String>), ApplyError> {
    let record = all(root)?.into_iter().next().ok_or(ApplyError::NothingWritten)?;
    if !record.is_in_place(root) {
        return Err(WriteError::Changed.into());
    }
    if let Some(obstacle) = super::write::obstacle(root)? {
        return Err(obstacle.into());
    }
    let record = Record { doing: Doing::Reverting, boot: boot(), ..record };
    note(root, BEGUN, &record)?;
    let said = finish_revert(root, service, &record)?;
    Ok((record, said))
}

fn finish_revert(root: &Root, service: Option<&Service>, record: &Record) -> Result<Vec<String>, ApplyError> {
    let said = record.undo(root, service)?;
    let path = root.path(format!("{DIRECTORY}/{}", written(&record.device)))?;
    durable::remove(&path).map_err(|cause| ApplyError::Note { path, cause })?;
    forget(root)?;
    Ok(said)
}

/// The last write of each device, newest first.
pub fn all(root: &Root) -> Result<Vec<Record>, ApplyError> {
    let Ok(entries) = fs::read_dir(root.path(DIRECTORY)?) else { return Ok(Vec::new()) };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let names =
        names.filter(|name| name.strip_prefix("written.").is_some_and(|rest| rest.strip_suffix(".json").is_some()));
    let mut records: Vec<Record> = names.filter_map(|name| read(root, &name).transpose()).collect::<Result<_, _>>()?;
    records.sort_by(|a, b| b.at.cmp(&a.at));
    Ok(records)
}

fn written(device: &str) -> String {
    format!("written.{device}.json")
}

fn read(root: &Root, name: &str) -> Result<Option<Record>, ApplyError> {
    let path = root.path(format!("{DIRECTORY}/{name}"))?;
    let Some(text) = root.bytes(format!("{DIRECTORY}/{name}"))? else { return Ok(None) };
    let unreadable = |why: String| ApplyError::Unreadable { path: path.clone(), why };
    let record: Record = serde_json::from_slice(&text).map_err(|error| unreadable(error.to_string()))?;
    if record.version == VERSION {
        return Ok(Some(record));
    }
    Err(unreadable(format!("it has format {}, not {VERSION}", record.version)))
}

fn note(root: &Root, name: &str, record: &Record) -> Result<(), ApplyError> {
    let path = root.path(format!("{DIRECTORY}/{name}"))?;
    let failed = |cause| ApplyError::Note { path: path.clone(), cause };
    fs::create_dir_all(root.path(DIRECTORY)?).map_err(failed)?;
    let json = serde_json::to_vec(record).expect("a record is plain data");
    durable::replace(&path, &json).map_err(failed)
}

fn forget(root: &Root) -> Result<(), ApplyError> {
    let path = root.path(format!("{DIRECTORY}/{BEGUN}"))?;
    durable::remove(&path).map_err(|cause| ApplyError::Note { path, cause })
}

/// Halves of files that a crash has left beside the whole ones. Only under the lock: they may be another run's.
fn sweep(root: &Root) {
    for directory in ["etc/config", DIRECTORY, super::write::WORK] {
        let entries = root.path(directory).ok().and_then(|path| fs::read_dir(path).ok());
        for path in entries.into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())) {
            let half = durable::is_temporary(&path) || super::write::is_work(&path);
            let _ = if half && path.is_dir() {
                fs::remove_dir_all(path)
            } else if half {
                fs::remove_file(path)
            } else {
                Ok(())
            };
        }
    }
}

fn boot() -> String {
    fs::read_to_string(BOOT_ID).unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
#[path = "apply/tests.rs"]
mod tests;
