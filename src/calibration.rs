//! The core that decides: which trial next, what a trial proved, what to recommend.
//!
//! Pure: facts, samples and their times go in, a value comes out. No clock, socket, file, process or async.

pub mod observer;
pub mod outcome;

use crate::line::{Line, LineError};
use crate::units::Rate;
use observer::Observer;
use outcome::Outcome;

/// What the user asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// For the outcome: its name and when it was started (RFC 3339).
    pub id: String,
    pub started: String,
    /// The user's word on the sync rates goes before the line's.
    pub sync_up: Option<Rate>,
    pub sync_down: Option<Rate>,
    /// Instead of the default bound of a clean trial.
    pub max_added_ms: Option<f64>,
    /// Stop before moving more than this (both directions).
    pub max_bytes: Option<u64>,
}

/// An outcome there always is; `error` says what broke it off, if something did.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    pub outcome: Outcome,
    pub error: Option<LineError>,
}

/// Tunes the upload of `line`. Whatever happens, the line has been put back when this returns.
pub fn calibrate(_line: &mut dyn Line, _plan: &Plan, _observer: &mut dyn Observer) -> Run {
    unimplemented!()
}

/// Grades the line as it is: idle, then loaded. Changes nothing.
pub fn measure(_line: &mut dyn Line, _plan: &Plan, _observer: &mut dyn Observer) -> Run {
    unimplemented!()
}
