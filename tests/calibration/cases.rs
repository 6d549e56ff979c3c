//! Real people's lines, by their numbers, and the answer that proved right there.

use super::{RIGHT, SEEDS, everything, fits, outcome, side_by_side};
use sqm_autotune::calibration::outcome::{Layer, Outcome, Status};
use sqm_autotune::sim::Scenario;

fn line(text: &str) -> Scenario {
    Scenario::parse("a case", text).expect("a good scenario")
}

fn all(scenario: &Scenario, run: fn(&Scenario, u64) -> Outcome) -> Vec<Outcome> {
    side_by_side(&(1..=SEEDS).collect::<Vec<_>>(), |seed| run(scenario, seed))
}

fn most(outcomes: &[Outcome], right: impl Fn(&Outcome) -> bool) {
    let count = outcomes.iter().filter(|o| right(o)).count();
    let told: Vec<_> = outcomes.iter().map(|o| (o.outcome, &o.upload, &o.link, &o.ack_filter, &o.doubts)).collect();
    assert!(count >= RIGHT, "{count}: {told:#?}");
}

/// C01: VDSL2 syncs at 46.7 Mbit/s, the provider shapes to a little below it. 95 % of sync happened to be too much.
#[test]
fn sync_is_only_an_upper_bound() {
    let scenario = line(
        "name = \"c01\"\nseed = 1\n[router]\nsync_up_kbit = 46719\nsync_down_kbit = 116790\nlink = \"pppoe-vdsl2\"\n\
         [upload]\nrate_kbit = 45038\noverhead = 26\nbuffer_ms = 60\n[path]\nrtt_ms = 10.0\njitter_ms = 0.8\n",
    );
    most(&all(&scenario, outcome), |o| {
        let kbit = o.upload.kbit.unwrap_or(0);
        o.outcome == Status::Tuned && (43_000..=45_000).contains(&kbit) && o.upload.why.contains("the provider shapes")
    });
}

/// C09: an upstream sync of 19,999 carries 19,691: the framing's 64/65, once, and 34 bytes a packet.
#[test]
fn the_framing_is_counted_once() {
    let scenario = line(
        "name = \"c09\"\nseed = 1\n[router]\nsync_up_kbit = 19999\nlink = \"pppoe-vdsl2\"\n\
         [upload]\nrate_kbit = 19691\noverhead = 34\nbuffer_ms = 150\n[path]\nrtt_ms = 11.0\njitter_ms = 0.8\n",
    );
    most(&all(&scenario, outcome), |o| {
        let capacity = o.upload.capacity_kbit.unwrap_or(0).abs_diff(19_691);
        let share = o.upload.kbit.unwrap_or(0) as f64 / fits(&scenario, o).kbit() as f64;
        capacity < 60
            && (33..=35).contains(&o.link.overhead.unwrap_or(0))
            && (0.95..=0.99).contains(&share)
            && o.link.layer == Layer::Ptm
            && o.link.write_layer == Layer::Ethernet
            && !o.upload.why.contains("provider")
    });
}

/// C40: 48 Mbit/s down, 2.25 up, with DOCSIS' overhead: acknowledgements take the upload's half.
#[test]
fn a_line_of_twenty_to_one_filters_acknowledgements() {
    let scenario = line(
        "name = \"c40\"\nseed = 1\n[router]\nlink = \"docsis\"\n\
         [upload]\nrate_kbit = 2250\noverhead = 18\nbuffer_ms = 200\n\
         [download]\nrate_kbit = 48000\noverhead = 18\nbuffer_ms = 80\n[path]\nrtt_ms = 20.0\njitter_ms = 1.0\n",
    );
    let outcomes = all(&scenario, everything);
    most(&outcomes, |o| o.ack_filter.as_ref().is_some_and(|filter| filter.recommended) && o.link.write_mpu == 64);
}

/// C40, the other line: at 2.5 to 1 they take nothing worth saving.
#[test]
fn a_line_of_five_to_two_does_not() {
    let scenario = line(
        "name = \"c40-wide\"\nseed = 1\n[router]\nlink = \"pppoe-vdsl2\"\n\
         [upload]\nrate_kbit = 10000\noverhead = 34\nbuffer_ms = 120\n\
         [download]\nrate_kbit = 25000\noverhead = 34\nbuffer_ms = 80\n[path]\nrtt_ms = 15.0\njitter_ms = 1.0\n",
    );
    most(&all(&scenario, everything), |o| o.ack_filter.as_ref().is_some_and(|filter| !filter.recommended));
}

/// C18: everybody falls silent while traffic flows. That is no line's answer; nothing is recommended.
#[test]
fn silence_while_traffic_flows_is_no_measurement() {
    let reflectors: String =
        ["a", "b", "c"].map(|name| format!("[[reflector]]\nname = \"{name}\"\nsilent_from_s = 15.0\n")).concat();
    let scenario = line(&format!(
        "name = \"c18\"\nseed = 1\n[router]\nsync_up_kbit = 18000\nlink = \"pppoe-vdsl2\"\n\
         [upload]\nrate_kbit = 17723\noverhead = 34\nbuffer_ms = 180\n[path]\nrtt_ms = 12.0\n{reflectors}"
    ));
    for outcome in all(&scenario, outcome) {
        assert_eq!((outcome.outcome, outcome.upload.kbit), (Status::Inconclusive, None), "{:?}", outcome.reason);
        assert!(outcome.doubts.iter().any(|doubt| doubt.code == "reflectors"), "{:?}", outcome.doubts);
    }
}
