//! Where a panic ends the program at once (the small builds for routers): the work is done by a child, and a parent
//! that does nothing else puts the router back if the child dies.

use super::exit::Exit;
use super::signals;
use std::io;

/// Does `work` in a child. If the child dies, of whatever, `put_back` is told why. To be called while there is
/// only one thread.
pub fn supervised(work: impl FnOnce() -> Exit, put_back: impl FnOnce(&str)) -> Exit {
    // SAFETY: with one thread there is no lock that a thread which the child does not have could hold.
    let child = unsafe { libc::fork() };
    match child {
        // No room for a second process: better unwatched than not at all.
        -1 => work(),
        0 => {
            die_with_the_parent();
            std::process::exit(i32::from(work() as u8))
        }
        child => {
            signals::pass_on_to(child);
            match wait(child) {
                Ended::Exit(exit) => exit,
                Ended::Signal(libc::SIGINT | libc::SIGTERM | libc::SIGHUP) => {
                    put_back("stopped");
                    Exit::Stopped
                }
                Ended::Signal(signal) => {
                    put_back(&format!("a bug in this program or a lack of memory ended it (signal {signal})"));
                    Exit::Failed
                }
                Ended::Unknown(error) => {
                    put_back(&format!("the run cannot be waited for: {error}"));
                    Exit::Failed
                }
            }
        }
    }
}

enum Ended {
    Exit(Exit),
    Signal(i32),
    Unknown(io::Error),
}

fn wait(child: libc::pid_t) -> Ended {
    let mut status = 0;
    // SAFETY: `status` outlives the call.
    while unsafe { libc::waitpid(child, &raw mut status, 0) } < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Ended::Unknown(error);
        }
    }
    if libc::WIFSIGNALED(status) {
        return Ended::Signal(libc::WTERMSIG(status));
    }
    Ended::Exit(Exit::numbered(libc::WEXITSTATUS(status)))
}

/// Without its parent, the child stops as if it had been told to.
fn die_with_the_parent() {
    // SAFETY: takes numbers only.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How it ended, and what was said before putting back.
    fn ended(work: impl FnOnce() -> Exit) -> (Exit, Option<String>) {
        let mut said = None;
        let exit = supervised(work, |why| said = Some(why.to_owned()));
        (exit, said)
    }

    fn dies_of(signal: i32) -> impl FnOnce() -> Exit {
        move || {
            // SAFETY: takes numbers only.
            unsafe {
                libc::signal(signal, libc::SIG_DFL);
                libc::raise(signal);
            }
            Exit::Done
        }
    }

    #[test]
    fn only_a_child_that_died_is_followed_by_putting_back() {
        for exit in [Exit::Done, Exit::Failed, Exit::Usage, Exit::Inconclusive, Exit::Refused, Exit::Stopped] {
            assert_eq!(ended(|| exit), (exit, None));
        }
        for signal in [libc::SIGABRT, libc::SIGILL, libc::SIGTRAP, libc::SIGKILL] {
            let why = format!("a bug in this program or a lack of memory ended it (signal {signal})");
            assert_eq!(ended(dies_of(signal)), (Exit::Failed, Some(why)));
        }
        assert_eq!(ended(dies_of(libc::SIGTERM)), (Exit::Stopped, Some("stopped".into())));
    }
}
