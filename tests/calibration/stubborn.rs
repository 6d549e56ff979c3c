//! Lines that have no rate to find, or need none: each ends in the outcome that is right for it, and says why.

use super::{RIGHT, count, fits, outcomes, scenario};
use sqm_autotune::calibration::outcome::{Grade, Outcome, Status};

fn all_end_with(name: &str, status: Status, code: &str, words: &str) -> Vec<Outcome> {
    let all = outcomes(&scenario(name));
    let ended = |o: &&Outcome| {
        o.outcome == status
            && (code.is_empty() || o.doubts.iter().any(|d| d.code == code))
            && o.reason.as_ref().is_some_and(|reason| reason.contains(words))
    };
    let right = all.iter().filter(ended).count();
    let reasons: Vec<_> = all.iter().map(|o| (o.outcome, &o.reason)).collect();
    assert!(right >= RIGHT, "{name}: {right}: {reasons:?}");
    assert!(all.iter().all(|o| matches!(o.upload.kbit, None | Some(0))), "{name}: nothing may be recommended");
    all
}

/// Three milliseconds of queue at 94 Mbit/s: shaping would only cost throughput.
#[test]
fn good_modem_is_unneeded() {
    let all = all_end_with("good-modem", Status::Unneeded, "", "adds only");
    assert_eq!(count(&all, Status::Unneeded), all.len());
    assert!(all.iter().all(|o| o.latency.grade_before == Some(Grade::APlus)));
}

#[test]
fn lte_is_variable() {
    let all = all_end_with("lte", Status::Inconclusive, "variable", "rate");
    // C14, C48: what an adaptive shaper may start from, inside what the line really did in the time (6 to 15 Mbit/s).
    for reason in all.iter().map(|o| o.reason.as_deref().unwrap_or_default()) {
        let number = |word: &str| {
            let rest = reason.split(word).nth(1).unwrap_or_else(|| panic!("no {word} in: {reason}"));
            rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse::<u64>().unwrap()
        };
        let (min, base, max) = (number("min "), number("base "), number("max "));
        assert!(5_000 < min && min < base && base < max && max < 16_000, "{reason}");
    }
}

#[test]
fn busy_home_is_not_measured_over_other_peoples_calls() {
    let all = all_end_with("busy-home", Status::Inconclusive, "line-busy", "others use");
    // Seen before the line was loaded at all.
    assert!(all.iter().all(|o| o.cost.load_seconds == 0.0));
}

/// The answer is what the router can shape, never a higher rate, and it is said why it is no more.
#[test]
fn weak_router_is_cpu_bound() {
    let scenario = scenario("weak-router");
    let able = scenario.router.shaper_cpu_kbit;
    let all = outcomes(&scenario);
    for outcome in &all {
        assert_eq!(outcome.outcome, Status::Tuned, "{:?}", outcome.reason);
        assert!(able < fits(&scenario, outcome).kbit());
        let kbit = outcome.upload.kbit.unwrap();
        assert!(kbit <= able && kbit * 100 >= able * 90, "{kbit} of {able}");
        assert!(outcome.doubts.iter().any(|d| d.code == "cpu-bound"), "{:?}", outcome.doubts);
    }
}

/// Nothing is delayed, so the losses show the rate; it is said that they did.
#[test]
fn fibre_policer_is_tuned_by_its_losses() {
    let scenario = scenario("fibre-policer");
    let all = outcomes(&scenario);
    let share = |o: &Outcome| o.upload.kbit.unwrap_or(0) as f64 / fits(&scenario, o).kbit() as f64;
    let right = all.iter().filter(|o| (0.95..=0.99).contains(&share(o))).count();
    assert!(right >= RIGHT, "{right}: {:?}", all.iter().map(share).collect::<Vec<_>>());
    assert!(all.iter().all(|o| o.doubts.iter().any(|d| d.code == "policer")));
    assert!(all.iter().all(|o| o.trials.last().is_some_and(|verify| verify.lost_percent < 0.1)));
}

/// CAKE's drops and the repeats that answer them are not seen at the same moment; on a slow policer one packet is a tenth
/// of a per cent.
#[test]
fn the_shapers_own_drops_are_no_losses_of_a_slow_policer() {
    let mut scenario = scenario("fibre-policer");
    scenario.upload.rate_kbit = 6_000;
    scenario.upload.policer_burst_kb = 60.0;
    let all = outcomes(&scenario);
    let share = |o: &Outcome| o.upload.kbit.unwrap_or(0) as f64 / fits(&scenario, o).kbit() as f64;
    let shares: Vec<f64> = all.iter().map(share).collect();
    assert!(shares.iter().all(|share| (0.95..=0.99).contains(share)), "{shares:?}");
    assert!(all.iter().all(|o| o.doubts.iter().any(|d| d.code == "policer")));
    let mut shaped = all.iter().flat_map(|o| &o.trials).filter(|trial| trial.shaper_kbit.is_some());
    assert!(shaped.all(|trial| trial.lost_percent < 0.01));
}
