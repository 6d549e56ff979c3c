//! `--max-mbytes`: what has no room is left out before the line is loaded, and the cap is kept whatever happens.

use super::{megabytes, outcomes, planned, scenario};
use sqm_autotune::calibration::Plan;
use sqm_autotune::calibration::forecast::Forecast;
use sqm_autotune::calibration::outcome::{Outcome, Status};
use sqm_autotune::line::{Line, Step};
use sqm_autotune::sim::SimLine;

fn capped(name: &str, megabytes: u64) -> Outcome {
    planned(&scenario(name), 1, &Plan { max_bytes: Some(megabytes * 1_000_000), ..Plan::default() })
}

fn ran(outcome: &Outcome, step: Step) -> bool {
    outcome.trials.iter().any(|trial| trial.step == step)
}

#[test]
fn the_forecast_is_near_what_it_costs() {
    for name in ["vdsl2-pppoe", "adsl-atm", "slow-uplink"] {
        let scenario = scenario(name);
        let facts = SimLine::new(scenario, 1).facts().unwrap();
        let forecast = Forecast::of(&Plan::default(), &facts).unwrap();
        let outcome = &outcomes(name)[0];
        let near = |said: f64, was: f64| (0.75..=1.4).contains(&(said / was));
        assert!(near(forecast.bytes() as f64 / 1e6, megabytes(outcome)), "{name}: {forecast:?}, {:?}", outcome.cost);
    }
}

#[test]
fn what_has_no_room_is_left_out_and_said() {
    let all = capped("vdsl2-pppoe", 400);
    assert!(all.doubts.is_empty(), "{:?}", all.doubts);

    let without_target = capped("vdsl2-pppoe", 260);
    assert_eq!(without_target.outcome, Status::Tuned);
    assert!(!ran(&without_target, Step::Target) && without_target.download.kbit == Some(0));
    assert!(without_target.target.why.contains("to save data"), "{}", without_target.target.why);

    let upload_only = capped("vdsl2-pppoe", 125);
    assert_eq!(upload_only.outcome, Status::Tuned);
    assert!(ran(&upload_only, Step::Link) && upload_only.download.kbit.is_none());
    assert!(upload_only.download.why.contains("to save data"), "{}", upload_only.download.why);
    assert_eq!(upload_only.doubts.iter().filter(|doubt| doubt.code == "data-cap").count(), 2);
    for (outcome, cap) in [(&all, 400.0), (&without_target, 260.0), (&upload_only, 125.0)] {
        assert!(megabytes(outcome) <= cap, "{:?}", outcome.cost);
    }
}

/// Said before the line is loaded where the rate is known, after the first load where it is not.
#[test]
fn a_cap_that_is_clearly_too_small_ends_it_early() {
    let known = capped("vdsl2-pppoe", 40);
    assert_eq!((known.outcome, known.cost.load_seconds), (Status::Inconclusive, 0.0));
    assert!(known.reason.as_ref().unwrap().contains("--max-mbytes"), "{:?}", known.reason);
    assert!(known.trials.is_empty());

    let unknown = capped("docsis", 100);
    assert_eq!(unknown.outcome, Status::Inconclusive);
    assert_eq!(unknown.trials.iter().filter(|trial| trial.direction.is_some()).count(), 1, "{:?}", unknown.reason);
    assert!(unknown.doubts.iter().any(|doubt| doubt.code == "data-cap"));
}

/// The rate of the download is not known before it is loaded: what was found for the upload stands.
#[test]
fn a_cap_that_ends_in_the_download_leaves_the_upload_tuned() {
    for cap in [330, 450] {
        let outcome = capped("docsis", cap);
        assert_eq!(outcome.outcome, Status::Tuned, "{:?}", outcome.reason);
        assert!(outcome.upload.kbit.is_some() && outcome.download.kbit.is_none(), "{:?}", outcome.download);
        assert!(outcome.download.why.contains("--max-mbytes"), "{}", outcome.download.why);
        assert!(megabytes(&outcome) <= cap as f64 + 5.0, "{:?}", outcome.cost);
    }
}
