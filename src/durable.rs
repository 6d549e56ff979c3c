//! What outlives a killed process: a lock that its holder cannot leave behind, files that are the old one or the new
//! one and never half of either.

use std::fs::{self, File, Permissions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A lock file. The kernel releases it when its holder dies, however it dies.
#[derive(Debug)]
pub struct Lock {
    file: File,
    path: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error("another run is going on (process {owner})")]
    Busy { owner: String },
    #[error("cannot use {}: {cause}", path.display())]
    File { path: PathBuf, cause: io::Error },
}

impl Lock {
    /// Does not wait. Makes the directory if it is missing.
    pub fn take(path: &Path) -> Result<Self, LockError> {
        let failed = |cause| LockError::File { path: path.into(), cause };
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory).map_err(failed)?;
        }
        let mut file =
            File::options().read(true).write(true).create(true).truncate(false).open(path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut owner = String::new();
                let _ = file.read_to_string(&mut owner);
                return Err(LockError::Busy { owner: owner.trim().into() });
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).map_err(failed)?;
        Ok(Self { file, path: path.into() })
    }
}

impl Drop for Lock {
    /// By name: a child process between its fork and its exec holds a copy of the file, and with it the lock.
    fn drop(&mut self) {
        if let Err(error) = self.file.unlock() {
            log::warn!("cannot release {}: {error}", self.path.display());
        }
    }
}

/// Writes a file anew. After a crash at any moment there is the old file or the new one; after a failure, the old one.
/// Mode and owner stay; a new file has 0600.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // Behind a link the file is replaced, as uci does, not the link.
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.into());
    let temporary = temporary(path);
    let written = write_beside(path, &temporary, bytes).and_then(|()| {
        point("rename");
        fs::rename(&temporary, path)
    });
    if let Err(error) = written {
        let _ = fs::remove_file(&temporary);
        return Err(error);
    }
    point("renamed");
    sync_directory(path)
}

/// A file that is not there is no error.
pub fn remove(path: &Path) -> io::Result<()> {
    point("remove");
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(()) => sync_directory(path),
    }
}

/// Where a crash may have left half a file: hidden, so that nobody takes it for a configuration.
fn temporary(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}{TEMPORARY}"))
}

const TEMPORARY: &str = ".sqm-autotune";

/// Whether it is one of those.
pub fn is_temporary(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with('.') && name.ends_with(TEMPORARY)
}

fn write_beside(path: &Path, temporary: &Path, bytes: &[u8]) -> io::Result<()> {
    point("create");
    let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(temporary)?;
    // Half now, so that the points below see a file that is half written.
    let (first, second) = bytes.split_at(bytes.len() / 2);
    file.write_all(first)?;
    point("write");
    full()?;
    file.write_all(second)?;
    if let Ok(old) = fs::metadata(path) {
        file.set_permissions(Permissions::from_mode(old.mode() & 0o7777))?;
        // Not root, not the owner's to give: then it is ours already.
        let _ = std::os::unix::fs::fchown(&file, Some(old.uid()), Some(old.gid()));
    }
    file.sync_all()
}

/// A rename is on the disk once its directory is.
fn sync_directory(path: &Path) -> io::Result<()> {
    let Some(directory) = path.parent() else { return Ok(()) };
    match File::open(directory).and_then(|directory| directory.sync_all()) {
        // Some file systems have nothing to do there and say so with an error.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(()),
        done => done,
    }
}

/// Where the tests kill the process: `SQM_AUTOTUNE_KILL_AT=N` at the Nth of these points. Only with debug assertions.
#[cfg(debug_assertions)]
pub fn point(name: &str) {
    use std::sync::atomic::{AtomicU32, Ordering};
    static PASSED: AtomicU32 = AtomicU32::new(0);
    let Some(wanted) = number("SQM_AUTOTUNE_KILL_AT") else { return };
    if PASSED.fetch_add(1, Ordering::Relaxed) + 1 == wanted {
        let _ = writeln!(io::stderr(), "killed at {name}");
        // SAFETY: only a signal, to this process.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    }
}

#[cfg(not(debug_assertions))]
pub fn point(_: &str) {}

/// Where the tests let the disk be full: `SQM_AUTOTUNE_FULL_AT=N` at the Nth file. Only with debug assertions.
#[cfg(debug_assertions)]
fn full() -> io::Result<()> {
    use std::sync::atomic::{AtomicU32, Ordering};
    static WRITTEN: AtomicU32 = AtomicU32::new(0);
    let Some(wanted) = number("SQM_AUTOTUNE_FULL_AT") else { return Ok(()) };
    let full = WRITTEN.fetch_add(1, Ordering::Relaxed) + 1 == wanted;
    if full { Err(io::Error::from_raw_os_error(libc::ENOSPC)) } else { Ok(()) }
}

#[cfg(not(debug_assertions))]
fn full() -> io::Result<()> {
    Ok(())
}

#[cfg(debug_assertions)]
fn number(variable: &str) -> Option<u32> {
    std::env::var(variable).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("sqm-autotune-durable-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        path
    }

    #[test]
    fn one_holder_at_a_time_and_a_copy_in_a_child_holds_nothing() {
        let path = scratch("lock").join("below/lock");
        let lock = Lock::take(&path).unwrap();
        let busy = Lock::take(&path).unwrap_err().to_string();
        assert!(busy.contains(&std::process::id().to_string()), "{busy}");
        let _copy = lock.file.try_clone().unwrap();
        drop(lock);
        Lock::take(&path).unwrap();
    }

    #[test]
    fn a_file_keeps_its_mode_and_a_link_its_file() {
        let folder = scratch("mode");
        let (file, link) = (folder.join("sqm"), folder.join("link"));
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        replace(&link, b"new").unwrap();
        assert!(link.is_symlink());
        assert_eq!(fs::read(&file).unwrap(), b"new");
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o640);
        replace(&folder.join("other"), b"").unwrap();
        assert_eq!(fs::metadata(folder.join("other")).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 3, "nothing is left over");
        remove(&file).unwrap();
        remove(&file).unwrap();
    }
}
