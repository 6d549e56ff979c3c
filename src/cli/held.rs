//! What every command that changes a router does first: one at a time, and what a killed one has left is put right.

use super::apply::Refusal;
use super::args::UsageError;
use super::exit::Exit;
use super::words::clean;
use super::{complain, line};
use crate::durable::{Lock, LockError};
use crate::openwrt::service::Service;
use crate::openwrt::settings::{FILE, General};
use crate::openwrt::{Root, apply};
use std::path::Path;

/// Beside the lock of a single measurement, which is taken within this one.
const LOCK: &str = "var/run/sqm-autotune/run.lock";

pub fn root(dir: Option<&Path>) -> Result<Root, UsageError> {
    match dir {
        None => Ok(Root::live()),
        Some(dir) => Root::at(dir).map_err(|error| UsageError(format!("--root: {}", clean(&error.to_string())))),
    }
}

/// What the owner wants in general.
///
/// # Errors
/// The first wrong value, with its line and option.
pub fn general(root: &Root) -> Result<General, UsageError> {
    let config = root.config(FILE).map_err(|error| UsageError(clean(&error.to_string())))?;
    General::of(config.as_ref()).map_err(|wrong| UsageError(clean(&wrong[0].to_string())))
}

pub fn lock(root: &Root) -> Result<Lock, Refusal> {
    let path = root.path(LOCK).map_err(Refusal::failed)?;
    Lock::take(&path).map_err(|error| match error {
        LockError::Busy { .. } => Refusal::refused(format!("{error}. Wait for its end, or stop it")),
        LockError::File { .. } => Refusal::failed(format!("{error}. Run this as root")),
    })
}

/// Under the lock: what a killed run has left is put right.
pub fn settle(root: &Root, service: Option<&Service>) -> Result<(), Refusal> {
    for line in put_back(root, service)? {
        complain(&format!("an earlier run was broken off: {line}"));
    }
    Ok(())
}

/// The configuration first, so that SQM starts what was there; then the qdiscs.
fn put_back(root: &Root, service: Option<&Service>) -> Result<Vec<String>, Refusal> {
    let mut said = apply::restore(root, service)?;
    if root.is_live() && cfg!(feature = "router") {
        said.extend(line::restore()?);
    }
    Ok(said)
}

/// `restore`.
pub fn restore(dir: Option<&Path>) -> Result<Exit, UsageError> {
    let root = root(dir)?;
    let restored = (|| {
        let _lock = lock(&root)?;
        // At boot SQM may be on its way; without it the file can be put back all the same.
        let service = Service::of(&root).ok().flatten();
        put_back(&root, service.as_ref())
    })();
    Ok(match restored {
        Ok(said) if said.is_empty() => {
            complain("there was nothing to put back");
            Exit::Done
        }
        Ok(said) => {
            for line in &said {
                complain(line);
            }
            Exit::Done
        }
        Err(Refusal { exit, why }) => {
            complain(&clean(&why));
            exit
        }
    })
}
