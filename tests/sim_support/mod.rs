//! One trial on a simulated line, and what it showed once it had settled.
#![allow(dead_code)]

use sqm_autotune::line::{Accounting, Cake, Cells, Line, Load, Origin, Sample, Seen, Shaping, Step, Trial, Watch};
use sqm_autotune::sim::{Scenario, SimLine};
use sqm_autotune::units::{Direction, Rate};
use std::time::Duration;

pub const PROBES_PER_S: f64 = 20.0;
pub const PROBE_BYTES: f64 = 84.0;
/// As the agent does: what a trial begins with does not count.
pub const SETTLE: Duration = Duration::from_millis(1500);

pub fn shipped(name: &str) -> SimLine {
    seeded(name, 1)
}

pub fn seeded(name: &str, seed: u64) -> SimLine {
    SimLine::new(scenario(name), seed)
}

pub fn scenario(name: &str) -> Scenario {
    Scenario::builtin(name).unwrap_or_else(|| panic!("{name} does not ship"))
}

pub fn frames(overhead: i32) -> Accounting {
    Accounting { overhead, mpu: 84, cells: Cells::None }
}

pub fn cake(kbit: u64, accounting: Accounting) -> Shaping {
    Shaping::Cake(Cake::new(Rate::from_kbit(kbit), accounting))
}

/// CAKE with the bottleneck's own accounting at `share` of what it drains.
pub fn cake_at(scenario: &Scenario, direction: Direction, share: f64) -> Shaping {
    let accounting = scenario.link(direction).accounting();
    Shaping::Cake(Cake::new(scenario.fits(direction, &accounting).times(share), accounting))
}

pub fn load(direction: Direction, flows: u32, mss: u32) -> Load {
    Load { direction, flows, mss, origin: Origin::Forwarded }
}

/// Nothing is shaped or loaded; all reflectors are asked, 20 probes a second together.
pub fn idle(line: &mut SimLine, seconds: f64) -> Trial {
    let reflectors: Vec<usize> = (0..line.facts().expect("a simulated line has facts").reflectors.len()).collect();
    Trial {
        number: 1,
        step: Step::Baseline,
        upload: Shaping::Unshaped,
        download: Shaping::Unshaped,
        loads: Vec::new(),
        probe_interval: Duration::from_secs_f64(reflectors.len() as f64 / PROBES_PER_S),
        reflectors,
        duration: Duration::from_secs_f64(seconds),
    }
}

pub fn loaded(line: &mut SimLine, upload: Shaping, loads: &[Load], seconds: f64) -> Trial {
    Trial { step: Step::Search, upload, loads: loads.to_vec(), ..idle(line, seconds) }
}

pub fn samples(line: &mut SimLine, trial: &Trial) -> Vec<Sample> {
    let mut samples: Vec<Sample> = Vec::new();
    line.run(trial, &mut |sample| {
        samples.push(sample.clone());
        Watch::Continue
    })
    .expect("a simulated trial runs");
    samples
}

pub fn run(line: &mut SimLine, trial: &Trial) -> Showed {
    summary(&samples(line, trial), SETTLE)
}

/// What a trial showed. Rates are of the load's first entry.
#[derive(Clone, Debug, Default)]
pub struct Showed {
    pub rtts_ms: Vec<f64>,
    pub p50_ms: f64,
    pub p95_ms: f64,
    pub packets_per_s: f64,
    pub ip_kbit: f64,
    pub goodput_kbit: f64,
    pub retransmits: f64,
    pub tin_delay_ms: f64,
    pub backlog_bytes: f64,
    pub cpu: f64,
    pub sent_kbit: f64,
    pub received_kbit: f64,
    pub lost: Vec<usize>,
    pub replies: Vec<usize>,
}

pub fn summary(samples: &[Sample], settle: Duration) -> Showed {
    let mut seen = Showed { lost: vec![0; 8], replies: vec![0; 8], ..Showed::default() };
    let (mut flows, mut device, mut queue, mut cpu) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for sample in samples.iter().filter(|sample| sample.at >= settle) {
        let at_s = sample.at.as_secs_f64();
        match &sample.seen {
            Seen::Reply { reflector, rtt_ms } => {
                seen.rtts_ms.push(*rtt_ms);
                seen.replies[*reflector] += 1;
            }
            Seen::Lost { reflector } => seen.lost[*reflector] += 1,
            Seen::Flows(now) if flows.last().is_none_or(|(last_s, _)| *last_s < at_s) => flows.push((at_s, *now)),
            Seen::Queue(now) => queue.push(*now),
            Seen::Device { sent_bytes, received_bytes } => device.push((at_s, *sent_bytes, *received_bytes)),
            Seen::Cpu { busiest_core } => cpu.push(*busiest_core),
            _ => {}
        }
    }
    seen.rtts_ms.sort_by(f64::total_cmp);
    seen.p50_ms = quantile(&seen.rtts_ms, 0.5);
    seen.p95_ms = quantile(&seen.rtts_ms, 0.95);
    if let (Some((from_s, first)), Some((to_s, last))) = (flows.first(), flows.last()) {
        let per_s = |first: u64, last: u64| (last - first) as f64 / (to_s - from_s);
        seen.packets_per_s = per_s(first.packets, last.packets);
        seen.ip_kbit = per_s(first.ip_bytes, last.ip_bytes) / 125.0;
        seen.goodput_kbit = per_s(first.payload_bytes, last.payload_bytes) / 125.0;
        seen.retransmits = last.retransmits as f64;
    }
    if let (Some(first), Some(last)) = (device.first(), device.last()) {
        let kbit = |bytes: u64| bytes as f64 / 125.0 / (last.0 - first.0);
        seen.sent_kbit = kbit(last.1 - first.1);
        seen.received_kbit = kbit(last.2 - first.2);
    }
    let mean = |values: Vec<f64>| values.iter().sum::<f64>() / values.len().max(1) as f64;
    seen.tin_delay_ms = mean(queue.iter().map(|queue| queue.avg_delay_ms).collect());
    seen.backlog_bytes = mean(queue.iter().map(|queue| queue.backlog_bytes as f64).collect());
    seen.cpu = mean(cpu);
    seen
}

pub fn quantile(sorted: &[f64], q: f64) -> f64 {
    sorted.get(((sorted.len().max(1) - 1) as f64 * q).round() as usize).copied().unwrap_or(f64::NAN)
}
