//! What all steps together find and cost, and steps that are asked for by name.

use super::{median, megabytes, outcomes, planned, scenario, upload_load_s};
use sqm_autotune::calibration::outcome::{LinkSource, Status, TargetSource};
use sqm_autotune::calibration::{Plan, Wish};

#[test]
fn vdsl2_pppoe_whole() {
    let all = outcomes("vdsl2-pppoe");
    for outcome in all.iter() {
        assert_eq!(outcome.outcome, Status::Tuned);
        assert_eq!(outcome.link.source, LinkSource::Measured);
        assert!((33..=35).contains(&outcome.link.overhead.unwrap()), "{:?}", outcome.link);
        assert!(outcome.link.write_overhead >= 34 && outcome.link.write_mpu == 84, "{:?}", outcome.link);
        assert_eq!(outcome.download.kbit, Some(0), "{}", outcome.download.why);
        assert!(outcome.download.why.contains("adds only"), "{}", outcome.download.why);
        assert_eq!((outcome.target.target_ms, outcome.target.decided_by), (Some(5.0), TargetSource::Measured));
        assert!(outcome.target.trials.len() >= 4);
        assert!(outcome.latency.both.is_some());
        assert!(outcome.cost.load_seconds <= 110.0, "{:?}", outcome.cost);
    }
    assert!(median(all.iter().map(megabytes)) <= 330.0);
    assert!(median(all.iter().map(upload_load_s)) <= 45.0);
}

/// A line ten times as fast does not cost ten times the data: trials are bounded in bytes.
#[test]
fn fast_lines_cost_little_more() {
    for (name, most) in [("docsis", 600.0), ("fibre-pppoe", 1_200.0)] {
        let cost = median(outcomes(name).iter().map(megabytes));
        assert!(cost <= most, "{name}: {cost} MB");
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
