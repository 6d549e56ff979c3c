//! A build without simulated lines, as routers have it.

use super::Held;
use crate::cli::args::{SimulationArgs, UsageError};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub fn names() -> Vec<(String, String)> {
    Vec::new()
}

pub fn builtin(_name: &str, _args: &SimulationArgs, _stop: Arc<AtomicBool>) -> Result<Held, UsageError> {
    Err(absent())
}

pub fn file(_path: &Path, _args: &SimulationArgs, _stop: Arc<AtomicBool>) -> Result<Held, UsageError> {
    Err(absent())
}

fn absent() -> UsageError {
    UsageError("this build has no simulated lines: write --line router, or build with --features sim".into())
}
