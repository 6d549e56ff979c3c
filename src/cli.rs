//! The command line: the only part that knows all the others.

mod apply;
mod args;
mod check;
mod clock;
mod doc;
mod doctor;
mod drawing;
mod exit;
mod held;
mod history;
mod job;
mod json;
mod latency;
mod line;
mod link;
mod mtu;
mod plot;
mod progress;
mod question;
mod result;
mod rpcd;
mod run;
#[cfg(test)]
mod sample;
#[cfg(feature = "server")]
mod serve;
mod signals;
mod state;
mod status;
mod style;
mod supervisor;
mod sync;
mod syslog;
mod trials;
mod uci_text;
mod watch;
mod words;

use args::{Command, UsageError};
use exit::Exit;
use std::io::Write;
use std::panic::{self, AssertUnwindSafe};
use std::process::ExitCode;
use std::sync::Mutex;

pub fn main() -> ExitCode {
    // What was started as /proc/self/exe would be called "exe": not every killall and pidof looks further.
    // SAFETY: the name is a C string.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"sqm-autotune".as_ptr()) };
    let level = log::LevelFilter::Warn;
    simple_logger::SimpleLogger::new().with_level(level).env().init().expect("nobody else logs");
    guarded(|| run(std::env::args_os().skip(1))).into()
}

fn run(args: impl IntoIterator<Item = std::ffi::OsString>) -> Exit {
    args::parse(args).and_then(supervise).unwrap_or_else(usage)
}

fn usage(UsageError(error): UsageError) -> Exit {
    complain(&error);
    Exit::Usage
}

/// Where a panic does not unwind, what changes this router is watched by a parent.
fn supervise(command: Command) -> Result<Exit, UsageError> {
    if cfg!(panic = "unwind") || !changes_this_router(&command) {
        return execute(command);
    }
    let work = || execute(command).unwrap_or_else(usage);
    Ok(supervisor::supervised(work, |why| {
        complain(why);
        let _ = held::restore(None);
    }))
}

fn changes_this_router(command: &Command) -> bool {
    match command {
        Command::Calibrate(args) | Command::Measure(args) => line::is_real(&args.line),
        Command::Apply(args) => args.root.is_none(),
        Command::Check(args) | Command::Revert(args) => args.root.is_none(),
        _ => false,
    }
}

fn execute(command: Command) -> Result<Exit, UsageError> {
    match command {
        Command::Calibrate(args) => run::calibrate(&args),
        Command::Measure(args) => run::measure(&args),
        Command::Lines => Ok(lines()),
        Command::Serve { listen } => Ok(serve(listen)),
        Command::Restore(args) => held::restore(args.root.as_deref()),
        Command::Apply(args) => apply::apply(&args),
        Command::Revert(args) => apply::revert(&args),
        Command::Check(args) => check::check(&args),
        Command::Status(args) => status::status(&args),
        Command::History(args) => history::history(&args),
        Command::Report(args) => status::report(&args),
        Command::Sync(args) => sync::sync(&args),
        Command::Link(args) => link::link(&args),
        Command::Doctor(args) => doctor::doctor(&args),
        Command::Mtu(args) => mtu::mtu(&args),
        Command::Rpcd(args) => Ok(rpcd::rpcd(&args)),
        Command::Print(text) => {
            print(&text);
            Ok(Exit::Done)
        }
    }
}

fn lines() -> Exit {
    let lines = line::simulated();
    let widest = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, about) in &lines {
        print(&words::labelled(&format!("sim:{name}"), widest + 6, about, 80));
    }
    Exit::Done
}

#[cfg(feature = "server")]
use serve::serve;

#[cfg(not(feature = "server"))]
fn serve(_listen: std::net::SocketAddr) -> Exit {
    complain("this build has no server: build with --features server");
    Exit::Failed
}

/// A bug must not leave the router changed: what is held is put back while the panic unwinds, then it is told in one line.
fn guarded(work: impl FnOnce() -> Exit) -> Exit {
    static BUG: Mutex<String> = Mutex::new(String::new());
    let main_thread = std::thread::current().id();
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        let main = std::thread::current().id() == main_thread;
        if let (true, Ok(mut bug)) = (main, BUG.lock()) {
            *bug = words::clean(&info.to_string());
        }
        if !main || std::env::var("RUST_BACKTRACE").is_ok_and(|wanted| wanted != "0") {
            usual(info);
        }
    }));
    panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        let bug = BUG.lock().map(|bug| bug.clone()).unwrap_or_default();
        complain(&format!("a bug in this program, the line has been put back: {bug}"));
        Exit::Failed
    })
}

/// For stdout. A reader that has gone (`| head`) is no error.
fn print(text: &str) {
    let mut stdout = std::io::stdout().lock();
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}

/// One line for people, on stderr.
fn complain(text: &str) {
    let _ = writeln!(std::io::stderr(), "sqm-autotune: {text}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::{Facts, Line, LineError, Sample, Trial, Watch};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// Breaks when it is asked who it is.
    struct Broken {
        put_back: Arc<AtomicU32>,
    }

    impl Line for Broken {
        fn facts(&mut self) -> Result<Facts, LineError> {
            panic!("a broken\nline")
        }

        fn run(&mut self, _: &Trial, _: &mut dyn FnMut(&Sample) -> Watch) -> Result<(), LineError> {
            Ok(())
        }

        fn put_back(&mut self) -> Result<(), LineError> {
            self.put_back.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
    }

    #[test]
    fn a_panic_puts_the_line_back_and_is_a_failure() {
        let put_back = Arc::<AtomicU32>::default();
        let exit = guarded(|| {
            let mut held = line::Held::of(Broken { put_back: Arc::clone(&put_back) });
            let _ = held.line().facts();
            Exit::Done
        });
        assert_eq!((exit, put_back.load(Ordering::Relaxed)), (Exit::Failed, 1));
        assert_eq!(guarded(|| Exit::Refused), Exit::Refused);
    }
}
