//! Lines that treat pings otherwise than the rest: a second witness, asked by TCP, tells.

use super::{RIGHT, SEEDS, fits, outcome, scenario, side_by_side};
use sqm_autotune::calibration::outcome::{Outcome, Status};
use sqm_autotune::sim::{Icmp, ReflectorTruth, Scenario};

fn line(icmp: Icmp) -> Scenario {
    let mut scenario = scenario("vdsl2-pppoe");
    scenario.path.icmp = icmp;
    let witness = ReflectorTruth { name: "tcp:server".into(), tcp: true, ..ReflectorTruth::default() };
    scenario.reflectors.push(witness);
    scenario
}

fn tuned(icmp: Icmp) -> Vec<Outcome> {
    let scenario = line(icmp);
    let all = side_by_side(&(1..=SEEDS).collect::<Vec<_>>(), |seed| outcome(&scenario, seed));
    let share = |o: &Outcome| o.upload.kbit.unwrap_or(0) as f64 / fits(&scenario, o).kbit() as f64;
    let right = |o: &&Outcome| o.outcome == Status::Tuned && (0.95..=0.99).contains(&share(o));
    let told: Vec<_> = all.iter().map(|o| (o.outcome, &o.reason, share(o))).collect();
    assert!(all.iter().filter(right).count() >= RIGHT, "{icmp:?}: {told:?}");
    all
}

fn doubted(all: &[Outcome]) -> usize {
    all.iter().filter(|o| o.doubts.iter().any(|d| d.code == "icmp")).count()
}

#[test]
fn pings_that_go_first_do_not_hide_the_bloat() {
    assert_eq!(doubted(&tuned(Icmp::First)), SEEDS as usize);
}

#[test]
fn where_pings_are_blocked_handshakes_stand_for_them() {
    assert_eq!(doubted(&tuned(Icmp::Blocked)), SEEDS as usize);
}

#[test]
fn where_pings_queue_like_everybody_nothing_is_said() {
    assert_eq!(doubted(&tuned(Icmp::Fair)), 0);
}
