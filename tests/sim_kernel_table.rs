//! The simulated line against a real kernel: 6.1 with `sch_cake`, netem at 18,000 kbit/s with 34 bytes per packet,
//! a FIFO of 400 packets, 12 ms, 4 CUBIC flows of a client behind the router, 8 seconds each.
#![cfg(feature = "sim")]

mod sim_support;

use sim_support::{PROBE_BYTES, PROBES_PER_S, SETTLE, idle, samples, summary};
use sqm_autotune::line::{Accounting, Cake, Cells, Load, Origin, Shaping, Step, Trial};
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

const SEEDS: u64 = 12;
const ETHERNET: f64 = 14.0;

#[derive(Clone, Copy)]
struct Setup {
    cake: Option<(u64, Duration)>,
    flows: u32,
    mss: u32,
    origin: Origin,
    settle: Duration,
    seconds: f64,
}

const FOUR_FLOWS: Setup =
    Setup { cake: None, flows: 4, mss: 1460, origin: Origin::Forwarded, settle: SETTLE, seconds: 8.0 };

#[derive(Clone, Copy, Debug, Default)]
struct Row {
    p50_ms: f64,
    p95_ms: f64,
    ethernet_kbit: f64,
    goodput_kbit: f64,
    retransmits: f64,
    tin_delay_ms: f64,
}

impl Row {
    const fn kernel(p50_ms: f64, p95_ms: f64, ethernet_kbit: f64) -> Self {
        Self { p50_ms, p95_ms, ethernet_kbit, goodput_kbit: 0.0, retransmits: 0.0, tin_delay_ms: 0.0 }
    }
}

fn run(scenario: &Scenario, setup: Setup, seed: u64) -> Row {
    let upload = setup.cake.map_or(Shaping::Unshaped, |(kbit, rtt)| {
        let accounting = Accounting { overhead: 44, mpu: 84, cells: Cells::None };
        Shaping::Cake(Cake { rtt, ..Cake::new(Rate::from_kbit(kbit), accounting) })
    });
    let load = Load { direction: Direction::Upload, flows: setup.flows, mss: setup.mss, origin: setup.origin };
    let loads = if setup.flows == 0 { vec![] } else { vec![load] };
    let mut line = SimLine::new(scenario.clone(), seed);
    let trial = Trial { step: Step::Search, upload, loads, ..idle(&mut line, setup.seconds) };
    let showed = summary(&samples(&mut line, &trial), setup.settle);
    Row {
        p50_ms: showed.p50_ms,
        p95_ms: showed.p95_ms,
        // Probes were counted there.
        ethernet_kbit: showed.ip_kbit
            + (showed.packets_per_s * ETHERNET + PROBES_PER_S * (PROBE_BYTES + ETHERNET)) / 125.0,
        goodput_kbit: showed.goodput_kbit,
        retransmits: showed.retransmits,
        tin_delay_ms: showed.tin_delay_ms,
    }
}

/// The mean over some seeds.
fn mean(scenario: &Scenario, setup: Setup) -> Row {
    let mut sum = Row::default();
    for seed in 1..=SEEDS {
        let row = run(scenario, setup, seed);
        sum.p50_ms += row.p50_ms / SEEDS as f64;
        sum.p95_ms += row.p95_ms / SEEDS as f64;
        sum.ethernet_kbit += row.ethernet_kbit / SEEDS as f64;
        sum.goodput_kbit += row.goodput_kbit / SEEDS as f64;
        sum.retransmits += row.retransmits / SEEDS as f64;
        sum.tin_delay_ms += row.tin_delay_ms / SEEDS as f64;
    }
    sum
}

fn kernel_line() -> Scenario {
    Scenario::parse("kernel-lab", KERNEL_LINE).expect("it reads")
}

/// How near a delay has to be.
#[derive(Clone, Copy)]
enum Near {
    Milliseconds(f64),
    Share(f64),
    /// Of what it is above idle.
    ShareOfClimb(f64),
}

#[test]
fn the_table_of_the_real_kernel() {
    let line = kernel_line();
    let cake = |kbit| Setup { cake: Some((kbit, Cake::DEFAULT_RTT)), ..FOUR_FLOWS };
    let no_load = Setup { flows: 0, ..FOUR_FLOWS };
    let segments = |mss| Setup { mss, ..FOUR_FLOWS };
    let idle = Row::kernel(13.6, 16.8, 0.0);
    let rows = [
        ("idle", no_load, idle, Near::Milliseconds(2.0)),
        ("unshaped", FOUR_FLOWS, Row::kernel(242.0, 280.0, 17762.0), Near::Share(0.15)),
        ("unshaped, MSS 536", segments(536), Row::kernel(107.0, 120.0, 17410.0), Near::Share(0.15)),
        ("unshaped, MSS 216", segments(216), Row::kernel(57.0, 64.0, 16754.0), Near::Share(0.15)),
        ("CAKE 17100", cake(17_100), Row::kernel(14.1, 17.2, 16552.0), Near::Milliseconds(2.0)),
        ("CAKE 17800", cake(17_800), Row::kernel(15.7, 19.6, 17255.0), Near::Milliseconds(2.0)),
        ("CAKE 18300", cake(18_300), Row::kernel(23.0, 29.0, 17763.0), Near::ShareOfClimb(0.3)),
        ("CAKE 18600", cake(18_600), Row::kernel(42.8, 56.1, 17760.0), Near::ShareOfClimb(0.3)),
    ];
    let mut off = Vec::new();
    println!("| trial | kernel p50/p95 ms | sim p50/p95 ms | kernel kbit/s | sim kbit/s |");
    for (name, setup, kernel, near) in rows {
        let row = mean(&line, setup);
        println!(
            "| {name} | {:.1} / {:.1} | {:.1} / {:.1} | {:.0} | {:.0} |",
            kernel.p50_ms, kernel.p95_ms, row.p50_ms, row.p95_ms, kernel.ethernet_kbit, row.ethernet_kbit
        );
        let allowed_ms = match near {
            Near::Milliseconds(ms) => ms,
            Near::Share(share) => share * kernel.p50_ms,
            Near::ShareOfClimb(share) => share * (kernel.p50_ms - idle.p50_ms),
        };
        if (row.p50_ms - kernel.p50_ms).abs() > allowed_ms {
            off.push(format!("{name}: p50 {:.1} is not within {allowed_ms:.1} of {}", row.p50_ms, kernel.p50_ms));
        }
        if setup.flows > 0 && (row.ethernet_kbit / kernel.ethernet_kbit - 1.0).abs() > 0.01 {
            off.push(format!("{name}: {:.0} kbit/s is not within 1 % of {}", row.ethernet_kbit, kernel.ethernet_kbit));
        }
    }
    assert!(off.is_empty(), "{off:#?}");
}

/// Many flows, a longer target, local sockets: the kernel's counts are of single runs, so the bounds are wide.
#[test]
fn what_the_target_changes() {
    let line = kernel_line();
    let cake = |flows, rtt| Setup { cake: Some((17_100, rtt)), flows, ..FOUR_FLOWS };
    println!("| trial | kernel: ping p50, tin delay, goodput, retransmits | sim |");
    let row = |name: &str, kernel: &str, setup: Setup| {
        let row = mean(&line, setup);
        println!(
            "| {name} | {kernel} | {:.1}, {:.1} ms, {:.0}, {:.0} |",
            row.p50_ms, row.tin_delay_ms, row.goodput_kbit, row.retransmits
        );
        row
    };
    let four = row("4 flows rtt 100", "13.6, 4.9 ms, 15881, 302", cake(4, Cake::DEFAULT_RTT));
    let four_long = row("4 flows rtt 160", "13.9, 6.4 ms, 15992", cake(4, Cake::LONG_RTT));
    let sixty = row("60 flows rtt 100", "14.8, 19.3 ms, 15982, 9523", cake(60, Cake::DEFAULT_RTT));
    let sixty_long = row("60 flows rtt 160", "14.9, 20.4 ms, 15975, 9409", cake(60, Cake::LONG_RTT));
    let local = Setup { origin: Origin::Local, ..cake(4, Cake::DEFAULT_RTT) };
    let local = row("4 local flows rtt 100", "77 retransmits", local);

    for (row, goodput) in [(four, 15_881.0), (four_long, 15_992.0), (sixty, 15_982.0), (sixty_long, 15_975.0)] {
        assert!((row.goodput_kbit / goodput - 1.0).abs() < 0.01, "{row:?}");
        // A sparse ping does not see the target.
        assert!((row.p50_ms - 14.3).abs() < 1.0, "{row:?}");
    }
    assert!((3.5..6.5).contains(&four.tin_delay_ms) && four_long.tin_delay_ms > 1.2 * four.tin_delay_ms);
    assert!((15.0..32.0).contains(&sixty.tin_delay_ms) && sixty_long.tin_delay_ms > sixty.tin_delay_ms);
    assert!((7_600.0..11_400.0).contains(&sixty.retransmits) && sixty_long.retransmits < sixty.retransmits);
    assert!((150.0..400.0).contains(&four.retransmits) && local.retransmits < 0.85 * four.retransmits);
}

/// Where a longer target helps: a path of 220 ms, 16 seconds after 12 of settling (the kernel: 4.6 % more).
#[test]
fn a_longer_target_pays_on_a_long_path() {
    let mut line = kernel_line();
    line.path.rtt_ms = 220.0;
    let cake = |rtt| Setup { cake: Some((17_100, rtt)), settle: Duration::from_secs(12), seconds: 28.0, ..FOUR_FLOWS };
    let (short, long) = (mean(&line, cake(Cake::DEFAULT_RTT)), mean(&line, cake(Cake::LONG_RTT)));
    let gain = long.goodput_kbit / short.goodput_kbit - 1.0;
    println!("| 220 ms: rtt 100 | 15299, 14578 kbit/s | {:.0} |", short.goodput_kbit);
    println!("| 220 ms: rtt 160 | 16014, 15229 kbit/s | {:.0}, {:.1} % more |", long.goodput_kbit, 100.0 * gain);
    assert!((0.015..0.08).contains(&gain), "{gain}");
    assert!((13_700.0..15_900.0).contains(&short.goodput_kbit), "{short:?}");
    assert!((short.p50_ms - long.p50_ms).abs() < 2.0);
}

/// Saturated, two sizes give the overhead; ATM shows in the cells.
#[test]
fn rates_of_packets_tell_overhead_and_cells() {
    let packets_per_s = |scenario: &Scenario, mss, seconds| {
        let row = mean(scenario, Setup { mss, seconds, ..FOUR_FLOWS });
        row.goodput_kbit * 125.0 / f64::from(mss - 12)
    };
    let line = kernel_line();
    let probes_wire = PROBES_PER_S * (PROBE_BYTES + 34.0);
    for mss in [1460, 536, 216] {
        let wire = packets_per_s(&line, mss, 8.0) * f64::from(mss + 40 + 34) + probes_wire;
        assert!((wire / 2_250_000.0 - 1.0).abs() < 0.003, "MSS {mss}: {wire} of 2,250,000 bytes/s");
    }
    let mut atm = Scenario::builtin("adsl-atm").expect("it ships");
    atm.path.jitter_ms = 0.0;
    for mss in [1460, 1200, 536, 216] {
        let cells = |ip_bytes: u32| f64::from((ip_bytes + 40).div_ceil(48) * 53);
        let wire = packets_per_s(&atm, mss, 20.0) * cells(mss + 40) + PROBES_PER_S * cells(84);
        println!("| ATM, MSS {mss} | 150000 bytes/s | {wire:.0} |");
        assert!((wire / 150_000.0 - 1.0).abs() < 0.01, "MSS {mss}: {wire} of 150,000 bytes/s");
    }
}
