//! Lines whose bottleneck keeps its rate: the recommendation lies in 95–99 % of what fits, and it holds.

use super::{RIGHT, SEEDS, accounting, count, fits, hold, median, outcomes, scenario, side_by_side};
use sqm_autotune::calibration::outcome::{Grade, Outcome, Status};
use sqm_autotune::line::{Accounting, LinkType};
use sqm_autotune::sim::Scenario;
use sqm_autotune::units::Rate;

/// What contract and issue allow, as shares of what fits.
const RANGE: std::ops::RangeInclusive<f64> = 0.95..=0.99;

/// The load that a calibration of this line may cost, median over the seeds, in seconds.
fn check(name: &str, most_load_s: f64) -> Vec<Outcome> {
    check_line(&scenario(name), most_load_s)
}

fn check_line(scenario: &Scenario, most_load_s: f64) -> Vec<Outcome> {
    let name = scenario.name.as_str();
    let all = outcomes(scenario);
    let share = |o: &Outcome| o.upload.kbit.map(|kbit| Rate::from_kbit(kbit).ratio(fits(scenario, o)));
    let right = all.iter().filter(|o| share(o).is_some_and(|s| RANGE.contains(&s))).count();
    let shares: Vec<_> = all.iter().map(|o| (o.upload.kbit, share(o), o.reason.clone())).collect();
    assert!(right >= RIGHT, "{name}: {right} of {SEEDS} within {RANGE:?} of what fits: {shares:?}");
    assert_eq!(count(&all, Status::Tuned), all.len() - all.iter().filter(|o| o.upload.kbit.is_none()).count());
    let load = median(all.iter().map(|o| o.cost.load_seconds));
    assert!(load <= most_load_s, "{name}: {load} s of load");

    let reflectors: Vec<usize> =
        if name == "sick-reflectors" { vec![0] } else { (0..scenario.reflectors.len()).collect() };
    let rated: Vec<(u64, Accounting, f64, u64)> = (1..)
        .zip(&all)
        .filter_map(|(seed, o)| Some((o.upload.kbit?, accounting(o), o.upload.clean_below_ms?, 1000 + seed)))
        .collect();
    let held = side_by_side(&rated, |(kbit, accounting, bound, seed)| {
        (hold::added_p95_ms(scenario, Rate::from_kbit(kbit), accounting, seed, &reflectors), bound)
    });
    for (added, bound) in held {
        assert!(added < bound, "{name}: adds {added:.2} ms for a minute, clean is {bound}");
    }
    all
}

#[test]
fn vdsl2_pppoe() {
    let all = check("vdsl2-pppoe", 45.0);
    for outcome in &all {
        assert!((16_900..=17_700).contains(&outcome.upload.kbit.unwrap()), "{:?}", outcome.upload);
        assert!(outcome.latency.grade_before >= Some(Grade::C), "{:?}", outcome.latency);
        assert_eq!(outcome.latency.grade_after, Some(Grade::APlus));
    }
}

#[test]
fn adsl_atm() {
    check("adsl-atm", 55.0);
}

/// Nothing scatters there but the probes between packets of 12 ms, and nobody says what link it is: the kernel lab's line.
#[test]
fn a_slow_line_without_any_jitter() {
    let mut line = scenario("adsl-atm");
    line.path.jitter_ms = 0.0;
    line.router.link = LinkType::Unknown;
    check_line(&line, 55.0);
}

#[test]
fn docsis() {
    let all = check("docsis", 55.0);
    assert!(all.iter().all(|o| o.upload.sync_kbit.is_none()));
}

#[test]
fn fibre_pppoe() {
    check("fibre-pppoe", 55.0);
}

/// A full-size packet takes longer than the default bound: the outcome says so.
#[test]
fn slow_uplink() {
    let all = check("slow-uplink", 55.0);
    for outcome in &all {
        assert!(outcome.upload.clean_below_ms.unwrap() > 25.0, "{:?}", outcome.upload);
        assert!(outcome.upload.why.contains("full-size packet"), "{}", outcome.upload.why);
    }
}

/// A burst credit hides the sustained rate for ten seconds; the sustained rate is what counts.
#[test]
fn cable_burst() {
    let all = check("cable-burst", 60.0);
    let said = all.iter().filter(|o| o.doubts.iter().any(|d| d.code == "burst")).count();
    assert!(said >= RIGHT, "{said}");
}

/// Three of the four reflectors are no good; the line is judged by the rest, and this is said.
#[test]
fn sick_reflectors() {
    let all = check("sick-reflectors", 50.0);
    assert!(all.iter().all(|o| o.doubts.iter().any(|d| d.code == "reflectors")));
}
