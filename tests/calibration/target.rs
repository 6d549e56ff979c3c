//! 5 or 8 ms: the lines on which 8 ms helps and does not, and how often chance alone says so.

use super::{RIGHT, SEEDS, planned, side_by_side};
use sqm_autotune::calibration::observer::Unwatched;
use sqm_autotune::calibration::outcome::{Outcome, TargetSource};
use sqm_autotune::calibration::{Plan, Wish, calibrate};
use sqm_autotune::line::{Cake, Facts, Line, LineError, Sample, Shaping, Trial, Watch};
use sqm_autotune::sim::{Scenario, SimLine};
use sqm_autotune::units::Direction;
use std::path::Path;

/// The comparison is bounded; the steps around it take another minute.
const MOST_LOAD_S: f64 = 960.0;

fn line(name: &str) -> Scenario {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/calibration/lines/{name}.toml"));
    Scenario::from_file(&path).expect("a line of the tests")
}

fn plan() -> Plan {
    let steps = vec![Wish::Link, Wish::Search, Wish::Target, Wish::Verify];
    Plan { steps, direction: Some(Direction::Upload), target_time: Plan::TARGET_ASKED, ..Plan::default() }
}

fn all_seeds(name: &str) -> Vec<Outcome> {
    let scenario = line(name);
    side_by_side(&(1..=SEEDS).collect::<Vec<_>>(), |seed| planned(&scenario, seed, &plan()))
}

fn said(outcomes: &[Outcome], target_ms: f64) -> usize {
    outcomes.iter().filter(|o| o.target.target_ms == Some(target_ms)).count()
}

fn whys(outcomes: &[Outcome]) -> String {
    outcomes.iter().map(|o| o.target.why.as_str()).collect::<Vec<_>>().join("\n")
}

#[test]
fn eight_ms_helps_where_the_path_is_longer_than_the_interval_and_shorter_than_the_longer_one() {
    let all = all_seeds("far-50");
    assert!(said(&all, 8.0) >= RIGHT, "{}", whys(&all));
    for outcome in &all {
        assert_eq!(outcome.target.decided_by, TargetSource::Measured);
        assert!(outcome.cost.load_seconds <= MOST_LOAD_S, "{:?}", outcome.cost);
        assert!(outcome.target.trials.len() >= 8, "{}", outcome.target.why);
        assert_eq!(outcome.target.rtt_ms, outcome.target.target_ms.map(|ms| ms * 20.0));
    }
}

#[test]
fn eight_ms_does_not_help_on_a_path_longer_than_either() {
    let all = all_seeds("far-18");
    assert!(said(&all, 5.0) >= RIGHT, "{}", whys(&all));
    for outcome in &all {
        assert!(outcome.cost.load_seconds <= MOST_LOAD_S, "{:?}", outcome.cost);
        let bulk = outcome.target.trials.iter().filter(|trial| trial.flows == 4).count();
        assert!(bulk >= 4, "one pair is not enough on a long path: {}", outcome.target.why);
    }
}

/// A line on which `rtt 160ms` is `rtt 100ms`: all that it finds is chance.
struct OneTarget(SimLine);

impl Line for OneTarget {
    fn facts(&mut self) -> Result<Facts, LineError> {
        self.0.facts()
    }

    fn run(&mut self, trial: &Trial, watch: &mut dyn FnMut(&Sample) -> Watch) -> Result<(), LineError> {
        let mut trial = trial.clone();
        if let Shaping::Cake(cake) = &mut trial.upload {
            cake.rtt = Cake::DEFAULT_RTT;
        }
        self.0.run(&trial, watch)
    }

    fn put_back(&mut self) -> Result<(), LineError> {
        self.0.put_back()
    }
}

/// On the two lines that scatter most. (The rule itself is tested with thousands of draws beside it.)
#[test]
fn chance_alone_flips_the_answer_in_5_percent_at_most() {
    let plan = Plan { steps: vec![Wish::Search, Wish::Target], ..plan() };
    for (name, seeds) in [("far-18", 40), ("far-50", 20)] {
        let scenario = line(name);
        let all = side_by_side(&(1..=seeds).collect::<Vec<u64>>(), |seed| {
            let mut line = OneTarget(SimLine::new(scenario.clone(), seed));
            calibrate(&mut line, &plan, &mut Unwatched).outcome
        });
        assert!(all.iter().all(|o| o.target.decided_by == TargetSource::Measured), "{}", whys(&all));
        assert!(said(&all, 8.0) <= all.len() / 20, "{}", whys(&all));
    }
}

/// What is allowed does not suffice to decide: the rate that was found stands, the target is the default, and it says so.
#[test]
fn out_of_data_keeps_5_ms_and_the_rate() {
    let plan = Plan { max_bytes: Some(250_000_000), ..plan() };
    let outcome = planned(&line("far-18"), 1, &plan);
    assert!(outcome.upload.kbit.is_some(), "{:?}", outcome.reason);
    assert_eq!(outcome.target.target_ms, Some(5.0));
    assert!(outcome.target.why.starts_with("undecided with the data allowed"), "{}", outcome.target.why);
}

/// What takes a quarter of an hour is not done unasked; the answer says how to ask.
#[test]
fn a_long_comparison_is_not_made_unasked() {
    let outcome = planned(&line("far-18"), 1, &Plan { direction: Some(Direction::Upload), ..Plan::default() });
    assert_eq!((outcome.target.decided_by, outcome.target.target_ms), (TargetSource::Skipped, Some(5.0)));
    assert!(outcome.target.why.contains("--steps link,search,target,verify"), "{}", outcome.target.why);
    assert!(outcome.target.trials.is_empty());
}
