//! The simulated line against a real kernel: 6.1 with `sch_cake`, netem at 18,000 kbit/s with 34 bytes per packet,
//! a FIFO of 400 packets, 12 ms, 4 CUBIC flows of a client behind the router, 8 seconds each.
#![cfg(feature = "sim")]

use sqm_autotune::line::{Accounting, Cake, Cells, Line, Load, Origin, Sample, Seen, Shaping, Step, Trial, Watch};
use sqm_autotune::sim::{Scenario, SimLine};
use sqm_autotune::units::{Direction, Rate};
use std::time::Duration;

const KERNEL_LINE: &str = r#"
name = "kernel-lab"
[upload]
rate_kbit = 18000
overhead = 34
buffer_packets = 400
[path]
rtt_ms = 12.6               # with this jitter, idle is 13.6/16.8 as it was there
jitter_ms = 1.4
"#;

const SEEDS: u64 = 20;
/// As the agent does: what a trial begins with does not count.
const SETTLE: Duration = Duration::from_millis(1500);

#[derive(Clone, Copy)]
struct Setup {
    cake: Option<(u64, Duration)>,
    flows: u32,
    mss: u32,
    origin: Origin,
    settle: Duration,
    seconds: u64,
}

const FOUR_FLOWS: Setup =
    Setup { cake: None, flows: 4, mss: 1460, origin: Origin::Forwarded, settle: SETTLE, seconds: 8 };

#[derive(Clone, Copy, Debug, Default)]
struct Row {
    p50_ms: f64,
    p95_ms: f64,
    ethernet_kbit: f64,
    packets_per_s: f64,
    goodput_kbit: f64,
    retransmits: f64,
    tin_delay_ms: f64,
}

fn run(scenario: &Scenario, setup: Setup, seed: u64) -> Row {
    let shaping = setup.cake.map_or(Shaping::Unshaped, |(kbit, rtt)| {
        let accounting = Accounting { overhead: 44, mpu: 84, cells: Cells::None };
        Shaping::Cake(Cake { rate: Rate::from_kbit(kbit), accounting, rtt })
    });
    let load = Load { direction: Direction::Upload, flows: setup.flows, mss: setup.mss, origin: setup.origin };
    let trial = Trial {
        number: 1,
        step: Step::Search,
        upload: shaping,
        download: Shaping::Unshaped,
        loads: if setup.flows == 0 { vec![] } else { vec![load] },
        reflectors: vec![0, 1, 2, 3],
        probe_interval: Duration::from_millis(200),
        duration: Duration::from_secs(setup.seconds),
    };
    let mut line = SimLine::new(scenario.clone(), seed);
    let mut samples: Vec<Sample> = Vec::new();
    line.run(&trial, &mut |sample| {
        samples.push(sample.clone());
        Watch::Continue
    })
    .expect("a simulated trial runs");
    summary(&samples, setup.settle)
}

fn summary(samples: &[Sample], settle: Duration) -> Row {
    let mut rtts: Vec<f64> = Vec::new();
    let (mut first, mut last) = (None, None);
    let (mut tin_delays, mut queue_samples) = (0.0, 0.0);
    for sample in samples.iter().filter(|sample| sample.at >= settle) {
        match sample.seen {
            Seen::Reply { rtt_ms, .. } => rtts.push(rtt_ms),
            Seen::Flows(flows) => {
                first.get_or_insert((sample.at, flows));
                last = Some((sample.at, flows));
            }
            Seen::Queue(queue) => {
                tin_delays += queue.avg_delay_ms;
                queue_samples += 1.0;
            }
            _ => {}
        }
    }
    rtts.sort_by(f64::total_cmp);
    let quantile = |q: f64| rtts[((rtts.len() - 1) as f64 * q).round() as usize];
    let mut row = Row { p50_ms: quantile(0.5), p95_ms: quantile(0.95), ..Row::default() };
    if let (Some((from, first)), Some((to, last))) = (first, last) {
        let seconds = (to - from).as_secs_f64();
        let packets = (last.packets - first.packets) as f64;
        let probes_per_s = 20.0;
        row.packets_per_s = packets / seconds + probes_per_s;
        row.ethernet_kbit = ((last.ip_bytes - first.ip_bytes) as f64 + 14.0 * packets) / seconds / 125.0
            + probes_per_s * (84.0 + 14.0) / 125.0;
        row.goodput_kbit = (last.payload_bytes - first.payload_bytes) as f64 / seconds / 125.0;
        row.retransmits = last.retransmits as f64;
        row.tin_delay_ms = tin_delays / f64::max(queue_samples, 1.0);
    }
    row
}

/// The mean over some seeds.
fn mean(scenario: &Scenario, setup: Setup) -> Row {
    let mut sum = Row::default();
    for seed in 1..=SEEDS {
        let row = run(scenario, setup, seed);
        sum.p50_ms += row.p50_ms / SEEDS as f64;
        sum.p95_ms += row.p95_ms / SEEDS as f64;
        sum.ethernet_kbit += row.ethernet_kbit / SEEDS as f64;
        sum.packets_per_s += row.packets_per_s / SEEDS as f64;
        sum.goodput_kbit += row.goodput_kbit / SEEDS as f64;
        sum.retransmits += row.retransmits / SEEDS as f64;
        sum.tin_delay_ms += row.tin_delay_ms / SEEDS as f64;
    }
    sum
}

fn kernel_line() -> Scenario {
    Scenario::parse("kernel-lab", KERNEL_LINE).expect("it reads")
}

#[test]
fn the_table_of_the_real_kernel() {
    let line = kernel_line();
    let cake = |kbit| Setup { cake: Some((kbit, Cake::DEFAULT_RTT)), ..FOUR_FLOWS };
    let rows = [
        ("idle", Setup { flows: 0, ..FOUR_FLOWS }, 13.6, 16.8, 0.0),
        ("unshaped", FOUR_FLOWS, 242.0, 280.0, 17762.0),
        ("unshaped, MSS 536", Setup { mss: 536, ..FOUR_FLOWS }, 107.0, 120.0, 17410.0),
        ("unshaped, MSS 216", Setup { mss: 216, ..FOUR_FLOWS }, 57.0, 64.0, 16754.0),
        ("CAKE 17100", cake(17_100), 14.1, 17.2, 16552.0),
        ("CAKE 17800", cake(17_800), 15.7, 19.6, 17255.0),
        ("CAKE 18300", cake(18_300), 23.0, 29.0, 17763.0),
        ("CAKE 18600", cake(18_600), 42.8, 56.1, 17760.0),
    ];
    println!("| trial | kernel p50/p95 | sim p50/p95 | kernel kbit/s | sim kbit/s | retransmits | tin delay |");
    for (name, setup, p50_ms, p95_ms, ethernet_kbit) in rows {
        let row = mean(&line, setup);
        println!(
            "| {name} | {p50_ms:.1} / {p95_ms:.1} | {:.1} / {:.1} | {ethernet_kbit} | {:.0} | {:.0} | {:.1} |",
            row.p50_ms, row.p95_ms, row.ethernet_kbit, row.retransmits, row.tin_delay_ms
        );
    }
}

#[test]
fn the_target_rows() {
    let line = kernel_line();
    let cake = |flows, rtt| Setup { cake: Some((17_100, rtt)), flows, ..FOUR_FLOWS };
    let local = Setup { origin: Origin::Local, ..cake(4, Cake::DEFAULT_RTT) };
    let rows = [
        ("4 flows rtt 100", cake(4, Cake::DEFAULT_RTT), "13.6/17.1, 4.9 ms, 15881, 302"),
        ("4 flows rtt 160", cake(4, Cake::LONG_RTT), "13.9/16.6, 6.4 ms, 15992"),
        ("60 flows rtt 100", cake(60, Cake::DEFAULT_RTT), "14.8/18.0, 19.3 ms, 15982, 9523"),
        ("60 flows rtt 160", cake(60, Cake::LONG_RTT), "14.9/20.1, 20.4 ms, 15975, 9409"),
        ("4 local flows", local, "77"),
    ];
    println!("| trial | kernel: ping, tin delay, goodput, retransmits | sim |");
    for (name, setup, kernel) in rows {
        let row = mean(&line, setup);
        println!(
            "| {name} | {kernel} | {:.1}/{:.1}, {:.1} ms, {:.0}, {:.0} |",
            row.p50_ms, row.p95_ms, row.tin_delay_ms, row.goodput_kbit, row.retransmits
        );
    }
    let mut far = kernel_line();
    far.path.rtt_ms = 220.0;
    for (name, rtt, kernel) in
        [("rtt 100", Cake::DEFAULT_RTT, "15299, 14578"), ("rtt 160", Cake::LONG_RTT, "16014, 15229")]
    {
        let row = mean(&far, Setup { settle: Duration::from_secs(12), seconds: 28, ..cake(4, rtt) });
        println!(
            "| 220 ms, {name} | {kernel} | {:.1}/{:.1}, {:.1} ms, {:.0} |",
            row.p50_ms, row.p95_ms, row.tin_delay_ms, row.goodput_kbit
        );
    }
}
