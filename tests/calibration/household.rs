//! Other people at home use the line while it is measured: wait for a quiet moment, and if none comes, say so.

use super::{RIGHT, SEEDS, fits, outcome, scenario, side_by_side};
use sqm_autotune::calibration::outcome::{Outcome, Status};
use sqm_autotune::sim::{Habit, Scenario};

/// The project's own line with somebody who uploads 6 Mbit/s in these seconds.
fn busy(spans: &[(f64, f64)]) -> Scenario {
    let mut scenario = scenario("vdsl2-pppoe");
    let habit = |(from_s, to_s): &(f64, f64)| Habit { from_s: *from_s, to_s: *to_s, kbit: 6000, flows: 1 };
    scenario.household.upload = spans.iter().map(habit).collect();
    scenario
}

fn outcomes(scenario: &Scenario) -> Vec<Outcome> {
    side_by_side(&(1..=SEEDS).collect::<Vec<_>>(), |seed| outcome(scenario, seed))
}

fn tuned(scenario: &Scenario) -> Vec<Outcome> {
    let all = outcomes(scenario);
    let share = |o: &Outcome| o.upload.kbit.unwrap_or(0) as f64 / fits(scenario, o).kbit() as f64;
    let right = |o: &&Outcome| o.outcome == Status::Tuned && (0.95..=0.99).contains(&share(o));
    let told: Vec<_> = all.iter().map(|o| (o.outcome, &o.reason, share(o))).collect();
    assert!(all.iter().filter(right).count() >= RIGHT, "{told:?}");
    all
}

#[test]
fn an_upload_before_the_start_is_waited_for() {
    let all = tuned(&busy(&[(0.0, 40.0)]));
    assert!(all.iter().all(|o| o.cost.seconds - o.cost.load_seconds > 40.0), "waiting is no load");
}

#[test]
fn an_upload_in_the_middle_is_waited_for_and_its_trial_repeated() {
    for from_s in [12.0, 27.0, 38.0] {
        let all = tuned(&busy(&[(from_s, from_s + 30.0)]));
        let disturbed = |o: &&Outcome| o.trials.iter().any(|t| t.why.contains("others use"));
        assert!(all.iter().filter(disturbed).count() >= RIGHT, "from {from_s} s: nobody has noticed");
    }
}

#[test]
fn a_home_that_is_never_quiet_is_given_up_within_the_time() {
    for outcome in outcomes(&busy(&[(10.0, 600.0)])) {
        assert_eq!((outcome.outcome, outcome.upload.kbit), (Status::Inconclusive, None));
        assert!(outcome.doubts.iter().any(|d| d.code == "line-busy"), "{:?}", outcome.doubts);
        // The patience, what one look takes too long, and the trials that noticed.
        assert!(outcome.cost.seconds < 180.0, "{} s", outcome.cost.seconds);
    }
}
