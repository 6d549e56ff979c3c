//! Writes `/etc/config/sqm` with the router's own `uci`, on a copy that nobody else has edits for; then puts the result
//! in place of the file in one step.
//!
//! Not `uci commit sqm`: that commits what others have staged too, and no option of it isolates (`-t` still reads
//! `/tmp/.uci`, `-P` commits nothing). A package of another name has no foreign edits.

use super::root::{Root, RootError};
use super::sqm::ChangeList;
use super::uci::{Config, UciError};
use crate::durable;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const CONFIG: &str = "etc/config/sqm";
/// Where `uci` keeps what is set and not committed.
const STAGED: &str = "tmp/.uci/sqm";
/// LuCI's copy for the case that nobody confirms a change.
const ROLLBACK: &str = "var/run/rpcd/snapshot-files/sqm";
/// OpenWrt 25.12 reads this one first.
const HIDING: &str = "var/run/uci/sqm";
/// The router's RAM disk.
pub const WORK: &str = "var/run/sqm-autotune";
/// The copy, while `uci` works on it.
const PACKAGE: &str = "sqm_autotune_copy";
/// `uci` holds a file for as long as it takes to read and write it.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);

/// The exact bytes of the file, as they are and as they shall be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// `None`: there is no file.
    pub before: Option<Vec<u8>>,
    pub after: Vec<u8>,
}

#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error(
        "somebody has changed /etc/config/sqm without saving it (`uci changes sqm`): `uci commit sqm` or `uci revert sqm` first"
    )]
    Staged,
    #[error(
        "LuCI waits for somebody to confirm changes of /etc/config/sqm, and would take ours back with them: try again in 90 seconds"
    )]
    Rollback,
    #[error("/var/run/uci/sqm hides /etc/config/sqm: what is written there would have no effect")]
    Hidden,
    #[error("the program uci cannot be run: {0}. It belongs to every OpenWrt; elsewhere put one into PATH")]
    NoUci(io::Error),
    #[error("uci did something else than it was told with /etc/config/sqm{0}; nothing was written")]
    Unfaithful(String),
    #[error("/etc/config/sqm has been changed since it was read: look at the changes again")]
    Changed,
    #[error("/etc/config/sqm is in use by another program")]
    InUse,
    #[error("cannot write {}: {cause}; the old file is still there", path.display())]
    File { path: PathBuf, cause: io::Error },
    #[error("no program on the router accepts etc/config/sqm: {0}")]
    Config(#[from] UciError),
    #[error(transparent)]
    Root(#[from] RootError),
}

/// What stands in the way of a write, whoever writes.
pub fn obstacle(root: &Root) -> Result<Option<WriteError>, RootError> {
    let staged = root.bytes(STAGED)?.is_some_and(|edits| !edits.is_empty());
    Ok(match () {
        () if root.has(ROLLBACK) => Some(WriteError::Rollback),
        () if staged => Some(WriteError::Staged),
        () if root.has(HIDING) => Some(WriteError::Hidden),
        () => None,
    })
}

/// Gives a pending rollback of LuCI's time to end: its window is 90 s.
pub fn wait_for_rollback(root: &Root, patience: Duration) -> bool {
    let begun = Instant::now();
    while root.has(ROLLBACK) && begun.elapsed() < patience {
        thread::sleep(Duration::from_millis(500));
    }
    !root.has(ROLLBACK)
}

impl Edit {
    /// What the router's `uci` makes of the file with these changes. Changes nothing.
    pub fn prepare(root: &Root, list: &ChangeList) -> Result<Self, WriteError> {
        if let Some(obstacle) = obstacle(root)? {
            return Err(obstacle);
        }
        let before = root.bytes(CONFIG)?;
        let old = before.clone().unwrap_or_default();
        let work = Work::new(root)?;
        let copy = work.0.join(PACKAGE);
        let failed = |cause| WriteError::File { path: copy.clone(), cause };
        fs::write(&copy, &old).map_err(failed)?;
        let said = run(&work.0, &list.batch(PACKAGE))?;
        let after = fs::read(&copy).map_err(failed)?;
        let faithful = Config::parse(&after)
            .is_ok_and(|after| Config::parse(&old).is_ok_and(|before| list.leads_from(&before, &after)));
        if faithful { Ok(Self { before, after }) } else { Err(WriteError::Unfaithful(said)) }
    }

    /// Whether comments are lost: `uci` writes none.
    pub fn loses_comments(&self) -> bool {
        let comment = |line: &[u8]| line.trim_ascii_start().starts_with(b"#");
        self.before.as_deref().unwrap_or_default().split(|byte| *byte == b'\n').any(comment)
    }

    /// In one step: the file is the old one or the new one.
    pub fn commit(&self, root: &Root) -> Result<(), WriteError> {
        if let Some(obstacle) = obstacle(root)? {
            return Err(obstacle);
        }
        exchange(root, self.before.as_deref(), Some(&self.after))
    }

    /// The exact bytes that were there before, unless somebody has changed the file since.
    pub fn undo(&self, root: &Root) -> Result<(), WriteError> {
        if root.bytes(CONFIG)? == self.before {
            return Ok(());
        }
        exchange(root, Some(&self.after), self.before.as_deref())
    }
}

/// `None` is no file. Holds the lock that `uci` holds while it writes, and looks once more at what is there.
fn exchange(root: &Root, old: Option<&[u8]>, new: Option<&[u8]>) -> Result<(), WriteError> {
    let path = root.path(CONFIG)?;
    let failed = |cause| WriteError::File { path: path.clone(), cause };
    let _lock = match File::open(&path) {
        Ok(file) => Some(locked(file)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(failed(error)),
    };
    if root.bytes(CONFIG)?.as_deref() != old {
        return Err(WriteError::Changed);
    }
    match new {
        Some(bytes) => durable::replace(&path, bytes),
        None => durable::remove(&path),
    }
    .map_err(failed)
}

fn locked(file: File) -> Result<File, WriteError> {
    let begun = Instant::now();
    loop {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) if begun.elapsed() < LOCK_PATIENCE => {
                thread::sleep(Duration::from_millis(20));
            }
            Err(TryLockError::WouldBlock) => return Err(WriteError::InUse),
            // A file system without locks: uci does without, too.
            Ok(()) | Err(TryLockError::Error(_)) => return Ok(file),
        }
    }
}

/// Whether a killed run has left it.
pub fn is_work(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("uci-"))
}

/// A directory of this process for `uci` to work in.
struct Work(PathBuf);

impl Work {
    fn new(root: &Root) -> Result<Self, WriteError> {
        let path = root.path(format!("{WORK}/uci-{}", std::process::id()))?;
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).map_err(|cause| WriteError::File { path: path.clone(), cause })?;
        Ok(Self(path))
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What it complained of, for the case that the result is wrong: its exit code says nothing about that.
fn run(directory: &Path, script: &str) -> Result<String, WriteError> {
    let mut uci = Command::new("uci");
    uci.arg("-c").arg(directory).arg("-t").arg(directory.join("staged")).arg("batch");
    uci.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = uci.spawn().map_err(WriteError::NoUci)?;
    if let Some(mut stdin) = child.stdin.take() {
        // One that ends early is judged by its result.
        let _ = stdin.write_all(script.as_bytes());
    }
    let output = child.wait_with_output().map_err(WriteError::NoUci)?;
    let said = String::from_utf8_lossy(&output.stderr);
    let first = said.lines().next().unwrap_or_default();
    Ok(if first.is_empty() { String::new() } else { format!(" ({first})") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_is_a_line_of_its_own() {
        let loses = |text: &str| Edit { before: Some(text.into()), after: Vec::new() }.loses_comments();
        assert!(loses("config queue\n\t# mine\n"));
        assert!(!loses("config queue\n\toption x 'a#b'\n"));
        assert!(!Edit { before: None, after: Vec::new() }.loses_comments());
    }
}
