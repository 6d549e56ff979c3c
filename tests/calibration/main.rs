//! Whole calibrations on the simulated lines that ship, over many seeds, against the lines' truth.
#![cfg(feature = "sim")]

mod table;

use sqm_autotune::calibration::observer::Unwatched;
use sqm_autotune::calibration::outcome::{Outcome, Status};
use sqm_autotune::calibration::{Plan, calibrate};
use sqm_autotune::sim::{Scenario, SimLine};

pub fn scenario(name: &str) -> Scenario {
    Scenario::builtin(name).expect("a shipped line")
}

pub fn outcome(scenario: &Scenario, seed: u64) -> Outcome {
    let mut line = SimLine::new(scenario.clone(), seed);
    let run = calibrate(&mut line, &Plan::default(), &mut Unwatched);
    assert_eq!(run.error, None, "{} seed {seed}", scenario.name);
    run.outcome
}

/// The outcomes of so many seeds, computed side by side.
pub fn outcomes(name: &str, seeds: u64) -> Vec<Outcome> {
    let scenario = scenario(name);
    let seeds: Vec<u64> = (1..=seeds).collect();
    let half = seeds.len().div_ceil(2);
    std::thread::scope(|scope| {
        let workers: Vec<_> = seeds
            .chunks(half.max(1))
            .map(|chunk| scope.spawn(|| chunk.iter().map(|seed| outcome(&scenario, *seed)).collect::<Vec<_>>()))
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("a calibration panicked")).collect()
    })
}

pub fn count(outcomes: &[Outcome], status: Status) -> usize {
    outcomes.iter().filter(|o| o.outcome == status).count()
}
