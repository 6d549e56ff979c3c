//! All steps on request: target and download too.

use super::{SEEDS, everything, planned, scenario, side_by_side};
use sqm_autotune::calibration::outcome::{LinkSource, Outcome, Status, TargetSource};
use sqm_autotune::calibration::{Plan, Wish};
use sqm_autotune::sim::Scenario;

fn all_seeds(scenario: &Scenario) -> Vec<Outcome> {
    side_by_side(&(1..=SEEDS).collect::<Vec<_>>(), |seed| everything(scenario, seed))
}

#[test]
fn vdsl2_pppoe_whole() {
    for outcome in all_seeds(&scenario("vdsl2-pppoe")) {
        assert_eq!(outcome.outcome, Status::Tuned);
        assert_eq!(outcome.link.source, LinkSource::Measured);
        assert!((33..=35).contains(&outcome.link.overhead.unwrap()), "{:?}", outcome.link);
        assert!(outcome.link.write_overhead >= 34 && outcome.link.write_mpu == 84, "{:?}", outcome.link);
        assert_eq!(outcome.download.kbit, Some(0), "{}", outcome.download.why);
        assert!(outcome.download.why.contains("adds only"), "{}", outcome.download.why);
        assert_eq!((outcome.target.target_ms, outcome.target.decided_by), (Some(5.0), TargetSource::Measured));
        assert!(outcome.target.trials.len() >= 4);
        assert!(outcome.latency.both.is_some());
        let megabytes = (outcome.cost.upload_bytes + outcome.cost.download_bytes) as f64 / 1e6;
        assert!(outcome.cost.load_seconds <= 110.0 && megabytes <= 330.0, "{:?}", outcome.cost);
    }
}

/// Below 2.27 Mbit/s both targets are the same.
#[test]
fn a_slow_line_has_no_target_to_choose() {
    let plan = Plan { steps: vec![Wish::Search, Wish::Target], ..Plan::default() };
    let outcome = planned(&scenario("adsl-atm"), 1, &plan);
    assert_eq!(outcome.target.decided_by, TargetSource::TooSlow);
}

#[test]
fn the_overhead_is_confirmed_by_the_delay() {
    let plan = Plan { steps: vec![Wish::Link, Wish::Confirm], ..Plan::default() };
    for seed in 1..=5 {
        let outcome = planned(&scenario("vdsl2-pppoe"), seed, &plan);
        assert_eq!(outcome.outcome, Status::Graded);
        assert_eq!(outcome.upload.kbit, None);
        assert!(outcome.doubts.is_empty(), "{:?}", outcome.doubts);
    }
}
