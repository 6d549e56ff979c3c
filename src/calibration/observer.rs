//! What a calibration tells whoever watches it: the terminal, the page.

use super::outcome::TrialRecord;
use crate::line::{Facts, Trial};
use std::time::Duration;

/// Told, never asked. Every method does nothing by default.
pub trait Observer {
    /// Once, before the first trial.
    fn starts(&mut self, _facts: &Facts) {}
    /// A trial begins; `left` is what the whole calibration will probably still take.
    fn trial_begins(&mut self, _trial: &Trial, _left: Duration) {}
    /// About every 200 ms during a trial.
    fn progress(&mut self, _progress: &Progress) {}
    fn trial_ends(&mut self, _record: &TrialRecord) {}
    /// Something a person should know now: a repeat, a reflector left out.
    fn note(&mut self, _text: &str) {}
}

/// Nobody watches.
pub struct Unwatched;

impl Observer for Unwatched {}

/// A moment of a running trial.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// Since the trial began.
    pub at: Duration,
    /// The last replies' delay above the idle line's median; `None` before the first, and while there is no idle line to compare.
    pub added_now_ms: Option<f64>,
    /// The last replies' round-trip time.
    pub rtt_now_ms: Option<f64>,
    /// What the load got through during the last second.
    pub throughput_kbit: u64,
}
