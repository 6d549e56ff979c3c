//! Each shipped line has its own truth, and tells it.
#![cfg(feature = "sim")]

mod sim_support;

use sim_support::{Showed, cake, cake_at, frames, idle, load, loaded, run, samples, scenario, seeded, shipped};
use sqm_autotune::line::{Accounting, Line, LinkType, Load, Seen, Shaping, Trial};
use sqm_autotune::sim::{Scenario, SimLine};
use sqm_autotune::units::Direction::{Download, Upload};
use sqm_autotune::units::Rate;

const FULL: u32 = 1460;

fn four_up() -> Vec<Load> {
    vec![load(Upload, 4, FULL)]
}

/// Idle, then the upload loaded as `shaping` says; both on a line of its own.
fn idle_and_loaded(name: &str, shaping: Shaping, seconds: f64) -> (Showed, Showed) {
    let mut line = shipped(name);
    let trial = idle(&mut line, 4.0);
    let quiet = run(&mut line, &trial);
    let trial = loaded(&mut line, shaping, &four_up(), seconds);
    (quiet, run(&mut line, &trial))
}

/// What shaping to `share` of what fits adds at the median.
fn added_ms(name: &str, share: f64, seconds: f64) -> f64 {
    let (quiet, busy) = idle_and_loaded(name, cake_at(&scenario(name), Upload, share), seconds);
    busy.p50_ms - quiet.p50_ms
}

/// IP kbit/s of full packets at what the bottleneck drains.
fn capacity_kbit(scenario: &Scenario) -> f64 {
    let bare = Accounting { overhead: 0, mpu: 0, cells: sqm_autotune::line::Cells::None };
    scenario.fits(Upload, &bare).bits() as f64 / 1000.0
}

fn assert_within(what: &str, value: f64, low: f64, high: f64) {
    assert!((low..=high).contains(&value), "{what}: {value:.2} is not within {low} and {high}");
}

/// The steady ones bloat, drain what they say, are clean at 95 % of what fits and not at 103 %.
#[test]
fn steady_lines_are_clean_below_their_rate_and_not_above() {
    // Name, unshaped delay added, delay that is still clean (a slow line's packets take long), above the rate.
    let lines = [
        ("vdsl2-pppoe", 120.0..190.0, 2.0, 40.0),
        ("adsl-atm", 400.0..620.0, 12.0, 30.0),
        ("docsis", 20.0..40.0, 5.0, 15.0),
        ("fibre-pppoe", 35.0..65.0, 2.0, 20.0),
        ("slow-uplink", 700.0..1050.0, 25.0, 60.0),
        ("sick-reflectors", 120.0..190.0, 3.0, 40.0),
    ];
    for (name, bloat, clean_ms, above_ms) in lines {
        let (quiet, unshaped) = idle_and_loaded(name, Shaping::Unshaped, 8.0);
        let added = unshaped.p50_ms - quiet.p50_ms;
        assert!(bloat.contains(&added), "{name} unshaped adds {added:.1}");
        let capacity = capacity_kbit(&scenario(name));
        // Probes and their like take the rest.
        assert_within(name, unshaped.ip_kbit, 0.95 * capacity, 1.001 * capacity);
        let below = added_ms(name, 0.95, 8.0);
        assert!((-0.5..clean_ms).contains(&below), "{name} at 95 %: {below:.1}");
        let above = added_ms(name, 1.03, 10.0);
        assert!(above > above_ms && above > 3.0 * below && above < 1.05 * added, "{name} at 103 %: {above:.1}");
    }
}

#[test]
fn vdsl2_is_the_line_of_the_report() {
    let facts = shipped("vdsl2-pppoe").facts().expect("facts");
    assert_eq!(facts.name, "sim:vdsl2-pppoe");
    assert_eq!(facts.link, LinkType::PppoeVdsl2);
    assert_eq!((facts.sync_up, facts.sync_down), (Some(Rate::from_kbit(18_000)), Some(Rate::from_kbit(67_000))));
    assert_eq!((facts.mtu, facts.reflectors.len()), (1500, 4));
    // 17100 with 44 bytes holds, 17900 loses the gain.
    let (quiet, held) = idle_and_loaded("vdsl2-pppoe", cake(17_100, frames(44)), 10.0);
    assert_within("17100", held.p50_ms - quiet.p50_ms, 0.0, 2.0);
    let (quiet, lost) = idle_and_loaded("vdsl2-pppoe", cake(18_100, frames(44)), 10.0);
    assert_within("18100", lost.p50_ms - quiet.p50_ms, 5.0, 100.0);
    // Its download hardly bloats.
    let mut line = shipped("vdsl2-pppoe");
    let trial = loaded(&mut line, Shaping::Unshaped, &[load(Download, 4, FULL)], 6.0);
    let down = run(&mut line, &trial);
    assert_within("download", down.p50_ms - quiet.p50_ms, 0.5, 5.0);
    assert_within("download rate", down.ip_kbit, 58_000.0, 66_000.0);
}

#[test]
fn a_cake_without_cells_overruns_atm_with_small_packets() {
    let line = scenario("adsl-atm");
    let frames = frames(40);
    let rate = line.fits(Upload, &frames).times(0.97);
    let shaping = cake(rate.kbit(), frames);
    let mut line = shipped("adsl-atm");
    let trial = loaded(&mut line, shaping, &[load(Upload, 4, FULL)], 12.0);
    assert_within("full packets", run(&mut line, &trial).p50_ms, 25.0, 45.0);
    let trial = loaded(&mut line, shaping, &[load(Upload, 4, 216)], 12.0);
    assert_within("small packets", run(&mut line, &trial).p50_ms, 100.0, 700.0);
}

#[test]
fn docsis_has_a_light_queue_and_grants() {
    let (quiet, unshaped) = idle_and_loaded("docsis", Shaping::Unshaped, 8.0);
    assert_within("the modem's AQM", unshaped.p50_ms - quiet.p50_ms, 25.0, 40.0);
    let (quiet, shaped) = idle_and_loaded("docsis", cake_at(&scenario("docsis"), Upload, 0.9), 8.0);
    // Grants wait in parallel: they delay, and take no capacity.
    assert_within("grants", quiet.p50_ms - 14.0, 1.5, 5.0);
    assert_within(
        "shaped",
        shaped.ip_kbit,
        0.88 * capacity_kbit(&scenario("docsis")),
        capacity_kbit(&scenario("docsis")),
    );
    assert_eq!(shipped("docsis").facts().expect("facts").sync_up, None);
}

#[test]
fn a_policer_drops_and_never_delays() {
    let mut line = shipped("fibre-policer");
    let trial = idle(&mut line, 4.0);
    let quiet = run(&mut line, &trial);
    let trial = loaded(&mut line, Shaping::Unshaped, &four_up(), 8.0);
    let unshaped = run(&mut line, &trial);
    assert_within("added", unshaped.p95_ms - quiet.p95_ms, -0.5, 1.0);
    let drops = line.bottleneck_drops(Upload);
    assert!(drops > 300 && unshaped.retransmits > 300.0, "{drops} dropped, {} repeated", unshaped.retransmits);
    let trial = loaded(&mut line, cake_at(&scenario("fibre-policer"), Upload, 0.97), &four_up(), 8.0);
    run(&mut line, &trial);
    assert!(line.bottleneck_drops(Upload) - drops < 5, "a shaper below its rate keeps a policer from dropping");
}

#[test]
fn lte_changes_its_rate_while_you_look() {
    let mut line = shipped("lte");
    let trial = loaded(&mut line, Shaping::Unshaped, &four_up(), 24.0);
    let mut device = vec![(0.0, 0.0)];
    for sample in samples(&mut line, &trial) {
        if let Seen::Flows(flows) = sample.seen {
            device.push((sample.at.as_secs_f64(), flows.ip_bytes as f64));
        }
    }
    let rate = |from_s: f64, to_s: f64| {
        let at = |s: f64| device.iter().rev().find(|point| point.0 <= s + 0.01).expect("sampled").1;
        (at(to_s) - at(from_s)) / 125.0 / (to_s - from_s)
    };
    for (from_s, to_s, kbit) in
        [(2.0, 6.0, 12_000.0), (8.0, 13.0, 8_000.0), (15.0, 19.0, 15_000.0), (21.0, 24.0, 6_000.0)]
    {
        assert_within("rate", rate(from_s, to_s) / kbit, 0.88, 1.01);
    }
}

#[test]
fn cable_sends_faster_for_ten_seconds() {
    let mut line = shipped("cable-burst");
    let trial = loaded(&mut line, Shaping::Unshaped, &four_up(), 8.0);
    assert_within("the first seconds", run(&mut line, &trial).ip_kbit, 33_000.0, 35_000.0);
    let trial = loaded(&mut line, Shaping::Unshaped, &four_up(), 8.0);
    run(&mut line, &trial);
    let trial = loaded(&mut line, Shaping::Unshaped, &four_up(), 8.0);
    assert_within("sustained", run(&mut line, &trial).ip_kbit, 18_500.0, 21_500.0);
    // A pause earns it back.
    let trial = idle(&mut line, 10.0);
    run(&mut line, &trial);
    let trial = loaded(&mut line, Shaping::Unshaped, &four_up(), 6.0);
    assert_within("after a pause", run(&mut line, &trial).ip_kbit, 33_000.0, 35_000.0);
}

#[test]
fn a_slow_uplink_raises_cakes_target() {
    let mut line = shipped("slow-uplink");
    let trial = loaded(&mut line, cake_at(&scenario("slow-uplink"), Upload, 0.95), &four_up(), 6.0);
    let targets: Vec<f64> = samples(&mut line, &trial)
        .iter()
        .filter_map(|sample| if let Seen::Queue(queue) = sample.seen { Some(queue.target_ms) } else { None })
        .collect();
    assert!(!targets.is_empty() && targets.iter().all(|target| (35.0..42.0).contains(target)), "{targets:?}");
}

#[test]
fn a_weak_router_cannot_shape_its_line() {
    let truth = scenario("weak-router");
    let (_, unshaped) = idle_and_loaded("weak-router", Shaping::Unshaped, 6.0);
    assert_within("unshaped", unshaped.ip_kbit, 95_000.0, 98_000.0);
    assert_within("CPU unshaped", unshaped.cpu, 0.1, 0.4);
    let (_, shaped) = idle_and_loaded("weak-router", cake_at(&truth, Upload, 0.95), 6.0);
    assert_within("shaped", shaped.ip_kbit, 55_000.0, 60_000.0);
    assert_within("CPU shaped", shaped.cpu, 0.97, 1.0);
    assert!(shaped.backlog_bytes > 10_000.0, "packets wait in CAKE: {}", shaped.backlog_bytes);
    let (_, half) = idle_and_loaded("weak-router", cake_at(&truth, Upload, 0.3), 6.0);
    assert_within("CPU at half of its power", half.cpu, 0.4, 0.65);
    // Both directions share it.
    let mut line = shipped("weak-router");
    let shaping = cake_at(&truth, Upload, 0.95);
    let trial = Trial {
        download: cake_at(&truth, Download, 0.95),
        ..loaded(&mut line, shaping, &[load(Upload, 4, FULL), load(Download, 4, FULL)], 6.0)
    };
    let both = run(&mut line, &trial);
    assert_within("both", both.sent_kbit + both.received_kbit, 54_000.0, 61_000.0);
}

#[test]
fn a_busy_home_shows_in_the_device_not_in_the_flows() {
    let mut line = shipped("busy-home");
    let trial = idle(&mut line, 4.0);
    let quiet = run(&mut line, &trial);
    assert_within("the call, up", quiet.sent_kbit, 1_150.0, 1_450.0);
    assert_within("video, down", quiet.received_kbit, 7_500.0, 8_500.0);
    // From 5 to 13 seconds there is a backup too.
    let trial = loaded(&mut line, cake(16_000, frames(34)), &four_up(), 8.0);
    let busy = run(&mut line, &trial);
    assert_within("the others", busy.sent_kbit - busy.ip_kbit, 3_000.0, 7_600.0);
    assert_within("all", busy.sent_kbit, 15_000.0, 15_800.0);
}

#[test]
fn sick_reflectors_lose_limit_and_fall_silent() {
    let mut line = shipped("sick-reflectors");
    let names = line.facts().expect("facts").reflectors;
    assert_eq!(names, ["well", "also-well", "lossy", "limited", "falls-silent", "far"]);
    let trial = idle(&mut line, 18.0);
    let early = run(&mut line, &trial);
    let trial = idle(&mut line, 18.0);
    let late = run(&mut line, &trial);
    // 55 asked each, of which those of the last three seconds are not given up yet.
    assert!(early.replies[0] > 50 && early.lost[0] == 0);
    assert!((10..25).contains(&early.lost[2]), "lossy: {:?}", early.lost);
    assert!((25..=36).contains(&early.replies[3]), "limited: {:?}", early.replies);
    assert!(early.replies[4] > 50 && late.replies[4] < 5 && late.lost[4] > 40, "silent: {:?}", late.lost);
    let far = early.rtts_ms.iter().filter(|rtt| **rtt > 90.0).count();
    assert_eq!(far, early.replies[5]);
}

#[test]
fn a_good_modem_needs_nothing() {
    let (quiet, unshaped) = idle_and_loaded("good-modem", Shaping::Unshaped, 8.0);
    assert_within("added p50", unshaped.p50_ms - quiet.p50_ms, 0.5, 3.5);
    assert_within("added p95", unshaped.p95_ms - quiet.p95_ms, 0.5, 5.0);
    let capacity = capacity_kbit(&scenario("good-modem"));
    assert_within("rate", unshaped.ip_kbit, 0.95 * capacity, capacity);
}

/// The bloat of a steady line is no matter of luck.
#[test]
fn seeds_differ_in_detail_only() {
    let medians: Vec<f64> = (1..=5)
        .map(|seed| {
            let mut line: SimLine = seeded("vdsl2-pppoe", seed);
            let trial = loaded(&mut line, Shaping::Unshaped, &four_up(), 8.0);
            run(&mut line, &trial).p50_ms
        })
        .collect();
    let (low, high) = medians.iter().fold((f64::MAX, f64::MIN), |(low, high), ms| (low.min(*ms), high.max(*ms)));
    assert!(high > low && high / low < 1.1, "{medians:?}");
}
