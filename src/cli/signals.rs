//! Ctrl-C, SIGTERM and a closed SSH session raise one flag; whoever runs a trial looks at it.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, OnceLock};

/// Whom a supervisor passes them on to.
static CHILD: AtomicI32 = AtomicI32::new(0);

static STOP: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Down until a signal came.
pub fn flag() -> Arc<AtomicBool> {
    Arc::clone(STOP.get_or_init(Arc::default))
}

/// From now on these signals no longer end the process: they raise the flag.
pub fn catch() {
    flag();
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler only reads a `OnceLock` that is filled before it is installed, and stores to an
        // atomic: both are allowed in a signal handler.
        unsafe { libc::signal(signal, raise as *const () as libc::sighandler_t) };
    }
}

/// From now on these signals go to that child instead.
pub fn pass_on_to(child: libc::pid_t) {
    CHILD.store(child, Ordering::Relaxed);
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler only reads an atomic and calls `kill`: both are allowed in a signal handler.
        unsafe { libc::signal(signal, pass_on as *const () as libc::sighandler_t) };
    }
}

extern "C" fn pass_on(signal: libc::c_int) {
    // SAFETY: takes numbers only.
    unsafe { libc::kill(CHILD.load(Ordering::Relaxed), signal) };
}

extern "C" fn raise(_signal: libc::c_int) {
    if let Some(stop) = STOP.get() {
        stop.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_raises_the_flag_and_the_process_goes_on() {
        let stop = flag();
        catch();
        assert!(!stop.load(Ordering::Relaxed));
        // SAFETY: `raise` delivers the signal to this thread, whose handler was installed above.
        unsafe { libc::raise(libc::SIGTERM) };
        assert!(stop.load(Ordering::Relaxed));
    }
}
