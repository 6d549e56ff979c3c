//! The last outcomes, on the router's RAM disk; the very last one on flash too, where the owner wants that.

use super::root::{Root, RootError};
use crate::calibration::outcome::Outcome;
use crate::durable;
use std::fs;
use std::io;
use std::path::PathBuf;

const DIRECTORY: &str = "var/run/sqm-autotune/history";
const LAST: &str = "etc/sqm-autotune/last.json";
/// An outcome has about 8 kB: this is what a router with 64 MB does not feel.
const MOST: usize = 20;

#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    #[error("there is no outcome {0:?} in the history: see `sqm-autotune history`")]
    Unknown(String),
    #[error("cannot keep the outcome in {}: {cause}", path.display())]
    Write { path: PathBuf, cause: io::Error },
    #[error("the outcome {} cannot be read: {cause}", path.display())]
    Unreadable { path: PathBuf, cause: serde_json::Error },
    #[error(transparent)]
    Root(#[from] RootError),
}

/// Newest last comes first. What cannot be read is left out.
pub fn all(root: &Root) -> Vec<Outcome> {
    let mut ids = ids(root);
    ids.sort_by_key(|id| std::cmp::Reverse(order(id)));
    let mut outcomes: Vec<Outcome> = ids.iter().filter_map(|id| get(root, id).ok()).collect();
    // After a restart of the router the RAM disk is empty.
    if let Ok(last) = read(root, LAST.into())
        && !outcomes.iter().any(|outcome| outcome.id == last.id)
    {
        outcomes.push(last);
    }
    outcomes
}

pub fn get(root: &Root, id: &str) -> Result<Outcome, HistoryError> {
    // It becomes part of a path.
    let unknown = || HistoryError::Unknown(id.into());
    if id.is_empty() || !id.chars().all(|c| c.is_ascii_digit() || c == '-') {
        return Err(unknown());
    }
    match read(root, format!("{DIRECTORY}/{id}.json")) {
        Err(HistoryError::Unknown(_)) => read(root, LAST.into()).ok().filter(|last| last.id == id).ok_or_else(unknown),
        read => read,
    }
}

/// Keeps an outcome and drops the oldest ones. `on_flash`: it survives a restart of the router.
pub fn keep(root: &Root, outcome: &Outcome, on_flash: bool) -> Result<(), HistoryError> {
    let json = serde_json::to_vec(outcome).expect("an outcome is plain data");
    write(root, format!("{DIRECTORY}/{}.json", outcome.id), &json)?;
    let mut ids = ids(root);
    ids.sort_by_key(|id| order(id));
    for old in ids.iter().take(ids.len().saturating_sub(MOST)) {
        let path = root.path(format!("{DIRECTORY}/{old}.json"))?;
        durable::remove(&path).map_err(|cause| HistoryError::Write { path, cause })?;
    }
    if on_flash { write(root, LAST.into(), &json) } else { Ok(()) }
}

/// The number of the next outcome of a minute, `20261130-0912` for example.
pub fn next_number(root: &Root, minute: &str) -> u32 {
    let numbers =
        ids(root).into_iter().filter_map(|id| id.strip_prefix(minute)?.strip_prefix('-')?.parse::<u32>().ok());
    numbers.max().unwrap_or(0) + 1
}

fn ids(root: &Root) -> Vec<String> {
    let entries = root.path(DIRECTORY).ok().and_then(|path| fs::read_dir(path).ok());
    let names = entries.into_iter().flatten().filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter_map(|name| Some(name.strip_suffix(".json")?.to_owned())).filter(|id| !id.starts_with('.')).collect()
}

/// `20261130-0912-10` comes after `20261130-0912-9`.
fn order(id: &str) -> Vec<u64> {
    id.split('-').map(|part| part.parse().unwrap_or(0)).collect()
}

fn read(root: &Root, path: String) -> Result<Outcome, HistoryError> {
    let text = root.bytes(&path)?.ok_or_else(|| HistoryError::Unknown(path.clone()))?;
    serde_json::from_slice(&text).map_err(|cause| HistoryError::Unreadable { path: path.into(), cause })
}

fn write(root: &Root, path: String, json: &[u8]) -> Result<(), HistoryError> {
    let path = root.path(path)?;
    let made = path.parent().map_or(Ok(()), fs::create_dir_all);
    made.and_then(|()| durable::replace(&path, json)).map_err(|cause| HistoryError::Write { path, cause })
}
