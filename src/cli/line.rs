//! Opens the line that `--line` names. The only place that knows both the simulated line and the router.

#[cfg(debug_assertions)]
mod panicking;
mod refused;
#[cfg_attr(not(feature = "router"), path = "line/no_router.rs")]
mod router;
#[cfg_attr(not(feature = "sim"), path = "line/no_simulation.rs")]
mod simulation;

pub use router::{largest_packet, live, probe, restore};
pub use simulation::names as simulated;

use super::args::{LineArgs, LineName, RouterArgs, SimulationArgs, UsageError};
use super::doctor;
use crate::line::Line;
use crate::openwrt::Root;
use refused::Refused;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A line on loan: whatever happens while it is held, it is put back in the end.
pub struct Held(Box<dyn Line>);

impl Held {
    #[cfg_attr(not(any(feature = "router", feature = "sim")), allow(dead_code, reason = "a mere server opens no line"))]
    pub fn of(line: impl Line + 'static) -> Self {
        let line: Box<dyn Line> = Box::new(line);
        #[cfg(debug_assertions)]
        let line = panicking::Panicking::around(line);
        Self(line)
    }

    pub fn line(&mut self) -> &mut dyn Line {
        self.0.as_mut()
    }
}

/// Also while a panic unwinds. After an orderly end there is nothing left to do, and asking twice is allowed.
impl Drop for Held {
    fn drop(&mut self) {
        if let Err(error) = self.0.put_back() {
            super::complain(&format!("{error}; `sqm-autotune restore` tries again"));
        }
    }
}

/// `stop` ends a running trial with [`crate::line::LineError::Stopped`].
pub fn open(args: &LineArgs, stop: Arc<AtomicBool>) -> Result<Held, UsageError> {
    let name = args.line.clone().or_else(|| on_openwrt().then_some(LineName::Router)).ok_or_else(|| {
        UsageError("this is no OpenWrt router, so say which line: --line sim:vdsl2-pppoe is a simulated one".into())
    })?;
    match name {
        LineName::Router => {
            refuse_for_router(&args.simulation)?;
            router::open(&args.router, stop)
        }
        LineName::Builtin(name) => {
            refuse_for_simulation(&args.router)?;
            simulation::builtin(&name, &args.simulation, stop)
        }
        LineName::File(path) => {
            refuse_for_simulation(&args.router)?;
            simulation::file(&path, &args.simulation, stop)
        }
    }
}

/// As [`open`], to calibrate: a router on which nothing true would come of it, or nothing could be written, refuses.
pub fn open_to_calibrate(args: &LineArgs, is_to_be_written: bool, stop: Arc<AtomicBool>) -> Result<Held, UsageError> {
    let held = open(args, stop)?;
    if !is_real(args) {
        return Ok(held);
    }
    let unhindered = doctor::unhindered(&Root::live(), args.router.device.as_deref(), is_to_be_written);
    Ok(unhindered.map_or_else(|refusal| Held::of(Refused(refusal)), |()| held))
}

/// Real lines belong to real people: these are asked before they are loaded.
pub fn is_real(args: &LineArgs) -> bool {
    !matches!(args.line, Some(LineName::Builtin(_) | LineName::File(_)))
}

pub fn on_openwrt() -> bool {
    Path::new("/etc/openwrt_release").exists()
}

fn refuse_for_router(args: &SimulationArgs) -> Result<(), UsageError> {
    let given = [("seed", args.seed.is_some()), ("pace", args.pace.is_some())];
    refuse(&given, "is for simulated lines: leave it out, or write --line sim:NAME")
}

fn refuse_for_simulation(args: &RouterArgs) -> Result<(), UsageError> {
    let given = [
        ("device", args.device.is_some()),
        ("reflector", !args.reflectors.is_empty()),
        ("upload-url", args.upload_url.is_some()),
        ("download-url", args.download_url.is_some()),
        ("server", args.server.is_some()),
        ("ca", args.ca.is_some()),
    ];
    refuse(&given, "is for a router: leave it out, or write --line router")
}

fn refuse(given: &[(&str, bool)], why: &str) -> Result<(), UsageError> {
    match given.iter().find(|(_, given)| *given) {
        Some((flag, _)) => Err(UsageError(format!("--{flag} {why}"))),
        None => Ok(()),
    }
}
