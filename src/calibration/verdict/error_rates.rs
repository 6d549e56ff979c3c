//! How often the rule is wrong, shown over many seeds: lines whose truth is known, replies as a line with
//! a wandering queue gives them, judged second by second as a running trial is.

use super::*;
use crate::calibration::estimate::{Observation, SETTLE};
use crate::calibration::fixture;
use crate::calibration::stats::quantile;
use std::time::Duration;

const SEEDS: u64 = 400;
const REFLECTORS: usize = 4;
const BASE_MS: f64 = 12.0;
const JITTER_MS: f64 = 0.8;
/// Neighbouring probe rounds (200 ms) see much the same queue.
const ALIKE: f64 = 0.6;

/// A small generator of our own for the tests (Marsaglia's xorshift64*).
struct Random(u64);

impl Random {
    fn uniform(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * self.uniform().ln()
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

/// A queue whose logarithm wanders (AR(1)) about `level_ms`, growing by `growth` ms each second.
struct Line {
    random: Random,
    level_ms: f64,
    growth: f64,
    wander: f64,
    round: u32,
}

impl Line {
    fn new(seed: u64, level_ms: f64, growth: f64) -> Self {
        Self { random: Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1), level_ms, growth, wander: 0.0, round: 0 }
    }

    /// The next round of replies: one of each reflector.
    fn replies(&mut self) -> Vec<crate::line::Sample> {
        self.wander = ALIKE * self.wander + (1.0 - ALIKE * ALIKE).sqrt() * self.random.normal();
        let at_ms = self.round * 200;
        self.round += 1;
        let queue = self.level_ms * (0.5 * self.wander).exp() + self.growth * f64::from(at_ms) / 1000.0;
        (0..REFLECTORS)
            .map(|r| {
                let own = self.level_ms.min(1.0) * self.random.uniform();
                fixture::reply(at_ms, r, BASE_MS + queue + own + self.random.exponential(JITTER_MS))
            })
            .collect()
    }
}

fn idle() -> Idle {
    let mut line = Line::new(7, 0.0, 0.0);
    let samples: Vec<_> = (0..200).flat_map(|_| line.replies()).collect();
    Idle::judge(&samples, REFLECTORS, None, fixture::INTERVAL * 200, fixture::INTERVAL).0.expect("healthy reflectors")
}

/// The added delay's p95 that the line really has.
fn truth(idle: &Idle, level_ms: f64) -> f64 {
    let mut line = Line::new(99, level_ms, 0.0);
    let p95 = idle.profile(0).expect("profiled").p95_ms;
    let added: Vec<f64> = (0..20_000)
        .flat_map(|_| line.replies())
        .filter_map(|s| match s.seen {
            crate::line::Seen::Reply { rtt_ms, .. } => Some(rtt_ms - p95),
            _ => None,
        })
        .collect();
    quantile(&added, 0.95).expect("replies")
}

/// Judges one trial of at most `seconds`, ending as soon as the verdict is certain; also says how long it took.
fn judged(idle: &Idle, seed: u64, level_ms: f64, growth: f64, seconds: u32) -> (Verdict, Duration) {
    let bound = CleanBound::new(None, idle, Rate::from_kbit(17_000), 1544);
    let judge = Judge { bound, idle, packet_bytes: 1500, policed: false };
    let mut line = Line::new(seed, level_ms, growth);
    let mut watched = Observation::new(&fixture::trial());
    let mut next = SETTLE + BLOCK;
    while watched.at < SETTLE + BLOCK * seconds {
        line.replies().iter().for_each(|sample| watched.see(sample));
        if watched.at >= next {
            next += BLOCK;
            if let Some(verdict) = judge.verdict(&watched.measure(Some(idle)), None) {
                return (verdict, watched.at);
            }
        }
    }
    (judge.final_verdict(&watched.measure(Some(idle)), None), watched.at)
}

#[derive(Debug, Default)]
struct Shares {
    clean: f64,
    bloated: f64,
    seconds: f64,
}

fn shares(idle: &Idle, level_ms: f64, growth: f64) -> Shares {
    let mut shares = Shares::default();
    for seed in 1..=SEEDS {
        let (verdict, took) = judged(idle, seed, level_ms, growth, 9);
        match verdict {
            Verdict::Clean { .. } => shares.clean += 1.0 / SEEDS as f64,
            Verdict::Bloated(_) => shares.bloated += 1.0 / SEEDS as f64,
            Verdict::Inconclusive(_) => {}
        }
        shares.seconds += took.as_secs_f64() / SEEDS as f64;
    }
    shares
}

/// The queue level at which the line's true added p95 is `wanted`.
fn level_for(idle: &Idle, wanted: f64) -> f64 {
    let (mut low, mut high) = (0.0, 40.0);
    for _ in 0..20 {
        let middle = f64::midpoint(low, high);
        if truth(idle, middle) < wanted { low = middle } else { high = middle }
    }
    low
}

#[test]
fn false_alarms_and_misses_are_rare_and_quick_where_it_is_plain() {
    let idle = idle();
    println!("true p95  clean    bloated  open     seconds");
    let table: Vec<(f64, Shares)> = [0.5, 1.5, 2.5, 4.0, 6.0, 7.5, 10.0, 20.0]
        .into_iter()
        .map(|wanted| (wanted, shares(&idle, level_for(&idle, wanted), 0.0)))
        .collect();
    for (wanted, s) in &table {
        let open = 1.0 - s.clean - s.bloated;
        println!(
            "{wanted:>5.1} ms  {:>6.1} %  {:>6.1} %  {:>6.1} %  {:>5.1}",
            s.clean * 100.0,
            s.bloated * 100.0,
            open * 100.0,
            s.seconds
        );
    }
    for (wanted, s) in &table {
        match *wanted {
            // Half the bound and less: practically always clean, and soon.
            w if w <= 2.5 => assert!(s.clean >= 0.97 && s.bloated <= 0.005 && s.seconds < 6.5, "{w}: {s:?}"),
            // A fifth from the bound, either side: seldom wrong.
            w if w < CLEAN_MS => assert!(s.bloated <= 0.06 && s.clean >= 0.60, "{w}: {s:?}"),
            w if w < 7.0 => assert!(s.clean <= 0.25, "{w}: {s:?}"),
            // Half above the bound: a miss is rare.
            w if w < 10.0 => assert!(s.clean <= 0.05 && s.bloated >= 0.75, "{w}: {s:?}"),
            w => assert!(s.clean <= 0.005 && s.bloated >= 0.97 && s.seconds < 7.0, "{w}: {s:?}"),
        }
    }
}

#[test]
fn a_rate_just_above_the_bottleneck_is_found_out_by_its_growing_queue() {
    let idle = idle();
    // 1 % above the bottleneck with a sender that keeps CAKE full: 10 ms more each second.
    let fast = shares(&idle, 0.5, 10.0);
    assert!(fast.clean <= 0.002 && fast.bloated >= 0.99, "{fast:?}");
    // 0.1 % above: 1 ms each second. The margin below the highest clean rate is ten times as wide.
    let slow = shares(&idle, 0.5, 1.0);
    println!("0.1 % above the bottleneck: {slow:?}");
    assert!(slow.clean <= 0.05 && slow.bloated >= 0.95, "{slow:?}");
}
