//! Whole calibrations on the simulated lines that ship, over many seeds, against the lines' truth.
#![cfg(feature = "sim")]

mod cap;
mod cases;
mod download;
mod everything;
mod golden;
mod hold;
mod household;
mod links;
mod steady;
mod stubborn;
mod target;
mod witness;

use sqm_autotune::calibration::observer::Unwatched;
use sqm_autotune::calibration::outcome::{Layer, Outcome, Status, TrialRecord};
use sqm_autotune::calibration::{Plan, calibrate};
use sqm_autotune::line::{Accounting, Cells, Step};
use sqm_autotune::sim::{Scenario, SimLine};
use sqm_autotune::units::{Direction, Rate};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;

/// What the issue of honesty asks for: so many seeds, so many of them right.
pub const SEEDS: u64 = 20;
pub const RIGHT: usize = 19;

pub fn scenario(name: &str) -> Scenario {
    Scenario::builtin(name).expect("a shipped line")
}

/// The accounting that would be written.
pub fn accounting(outcome: &Outcome) -> Accounting {
    let link = &outcome.link;
    let cells = if link.write_layer == Layer::Atm { Cells::Atm } else { Cells::None };
    Accounting { overhead: link.write_overhead, mpu: link.write_mpu, cells }
}

/// The highest CAKE rate that the upload's bottleneck drains for full-size packets, with the accounting that would be
/// written.
pub fn fits(scenario: &Scenario, outcome: &Outcome) -> Rate {
    scenario.fits(Direction::Upload, &accounting(outcome))
}

/// What is done unasked.
pub fn outcome(scenario: &Scenario, seed: u64) -> Outcome {
    planned(scenario, seed, &Plan::default())
}

/// The upload alone: what does not need more is quicker so.
pub fn upload_only(scenario: &Scenario, seed: u64) -> Outcome {
    planned(scenario, seed, &Plan { direction: Some(Direction::Upload), ..Plan::default() })
}

pub fn planned(scenario: &Scenario, seed: u64, plan: &Plan) -> Outcome {
    let mut line = SimLine::new(scenario.clone(), seed);
    let run = calibrate(&mut line, plan, &mut Unwatched);
    assert_eq!(run.error, None, "{} seed {seed}", scenario.name);
    run.outcome
}

/// The outcomes of all seeds of a shipped line, as `calibrate` does it unasked. Computed once for all tests.
pub fn outcomes(name: &str) -> Arc<Vec<Outcome>> {
    type Computed = Arc<OnceLock<Arc<Vec<Outcome>>>>;
    static LINES: Mutex<BTreeMap<String, Computed>> = Mutex::new(BTreeMap::new());
    let line = Arc::clone(LINES.lock().unwrap_or_else(PoisonError::into_inner).entry(name.into()).or_default());
    Arc::clone(line.get_or_init(|| {
        let scenario = scenario(name);
        Arc::new(side_by_side(&(1..=SEEDS).collect::<Vec<_>>(), |seed| outcome(&scenario, seed)))
    }))
}

/// Seconds in which the upload alone was loaded, but for the target's trials.
pub fn upload_load_s(outcome: &Outcome) -> f64 {
    let of_it = |t: &&TrialRecord| t.direction == Some(Direction::Upload) && !t.both && t.step != Step::Target;
    outcome.trials.iter().filter(of_it).map(|trial| trial.seconds).sum()
}

pub fn megabytes(outcome: &Outcome) -> f64 {
    (outcome.cost.upload_bytes + outcome.cost.download_bytes) as f64 / 1e6
}

/// Maps in as many threads as a small machine has cores; the order is kept.
pub fn side_by_side<T: Sync + Copy, R: Send>(items: &[T], work: impl Fn(T) -> R + Sync) -> Vec<R> {
    let workers = thread::available_parallelism().map_or(2, usize::from);
    let share = items.len().div_ceil(workers).max(1);
    thread::scope(|scope| {
        let work = &work;
        let running: Vec<_> = items
            .chunks(share)
            .map(|chunk| scope.spawn(move || chunk.iter().map(|item| work(*item)).collect::<Vec<_>>()))
            .collect();
        running.into_iter().flat_map(|worker| worker.join().expect("a calibration panicked")).collect()
    })
}

pub fn count(outcomes: &[Outcome], status: Status) -> usize {
    outcomes.iter().filter(|o| o.outcome == status).count()
}

pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}
