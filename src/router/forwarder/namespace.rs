//! A network namespace: devices, addresses and routes of its own, as a machine of its own has them.
//!
//! It has no name in the file system: it is there as long as somebody holds it, and goes with our process however that
//! ends. A socket belongs to the namespace of the thread that made it, whoever uses it later.

use crate::line::LineError;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread;

/// Clones are the same namespace.
#[derive(Clone, Debug)]
pub struct Namespace(Arc<OwnedFd>);

impl Namespace {
    /// A new one, with nothing in it but a loopback device that is down.
    pub fn new() -> Result<Self, LineError> {
        let made = in_a_thread(|| {
            // SAFETY: no pointers; it moves this thread, which ends here, into a new namespace.
            success(unsafe { libc::unshare(libc::CLONE_NEWNET) })?;
            Ok(Self::from(OwnedFd::from(File::open("/proc/thread-self/ns/net")?)))
        });
        made.map_err(|error| match error.raw_os_error() {
            Some(libc::EPERM) => {
                LineError::refused("no permission to make a network namespace", "Run as root (CAP_SYS_ADMIN is needed)")
            }
            Some(libc::EINVAL) => {
                LineError::refused("this kernel has no network namespaces", "Use one built with CONFIG_NET_NS")
            }
            _ => LineError::failed("make a network namespace", error),
        })
    }

    /// Does something inside. What it opens stays inside.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        // A thread that could not get back out would be worse than one more thread.
        in_a_thread(|| {
            // SAFETY: no pointers; the descriptor is open; only this thread, which ends here, is moved.
            success(unsafe { libc::setns(self.0.as_raw_fd(), libc::CLONE_NEWNET) })?;
            work()
        })
    }
}

impl From<OwnedFd> for Namespace {
    fn from(descriptor: OwnedFd) -> Self {
        Self(Arc::new(descriptor))
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl PartialEq for Namespace {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Namespace {}

fn in_a_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().spawn_scoped(scope, work)?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn success(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
