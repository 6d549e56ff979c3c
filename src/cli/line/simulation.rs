//! Simulated lines: those that ship, and those in a file.

use super::Held;
use crate::cli::args::{SimulationArgs, UsageError};
use crate::cli::{doc, words};
use crate::line::{Paced, Stoppable};
use crate::sim::{Scenario, SimLine};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What ships: name, and what it is.
pub fn names() -> Vec<(String, String)> {
    Scenario::builtin_names()
}

pub fn builtin(name: &str, args: &SimulationArgs, stop: Arc<AtomicBool>) -> Result<Held, UsageError> {
    let scenario = Scenario::builtin(name).ok_or_else(|| unknown(name))?;
    Ok(play(scenario, args, stop))
}

pub fn file(path: &Path, args: &SimulationArgs, stop: Arc<AtomicBool>) -> Result<Held, UsageError> {
    let scenario = Scenario::from_file(path).map_err(|error| UsageError(words::clean(&error.to_string())))?;
    Ok(play(scenario, args, stop))
}

fn play(scenario: Scenario, args: &SimulationArgs, stop: Arc<AtomicBool>) -> Held {
    let seed = args.seed.unwrap_or(scenario.seed);
    let line = SimLine::new(scenario, seed);
    match args.pace {
        Some(factor) => Held::of(Stoppable { inner: Paced { inner: line, factor }, stop }),
        None => Held::of(Stoppable { inner: line, stop }),
    }
}

fn unknown(name: &str) -> UsageError {
    let known: Vec<_> = names().into_iter().map(|(name, _)| name).collect();
    UsageError(match doc::closest(name, known.iter().map(String::as_str)) {
        Some(close) => format!("there is no simulated line {name:?}: did you mean --line sim:{close}?"),
        None => format!("there is no simulated line {name:?}: known are {}", known.join(", ")),
    })
}
