//! The router that this program runs on.

use super::Held;
use crate::cli::args::{RouterArgs, UsageError};
use crate::line::LineError;
use crate::router::journal;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub fn open(_args: &RouterArgs, _stop: Arc<AtomicBool>) -> Result<Held, UsageError> {
    Err(UsageError("--line router is not there yet: write --line sim:vdsl2-pppoe".into()))
}

/// Puts back what a killed run left; says what that was.
pub fn restore() -> Result<Vec<String>, LineError> {
    journal::restore(Path::new(journal::DIRECTORY))
}
