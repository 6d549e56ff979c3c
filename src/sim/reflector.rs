//! Hosts that answer pings, more or less.

use super::rng::Rng;
use super::scenario::{Icmp, ReflectorTruth};
use std::collections::VecDeque;

#[derive(Debug)]
pub struct Reflector {
    truth: ReflectorTruth,
    icmp: Icmp,
    jitter_ns: u64,
    answered_ns: VecDeque<u64>,
    rng: Rng,
}

const SECOND_NS: u64 = 1_000_000_000;

impl Reflector {
    pub fn new(truth: ReflectorTruth, icmp: Icmp, jitter_ns: u64, rng: Rng) -> Self {
        Self { truth, icmp, jitter_ns, answered_ns: VecDeque::new(), rng }
    }

    /// Do its probes go ahead of the upload's queue?
    pub fn is_first(&self) -> bool {
        self.icmp == Icmp::First && !self.truth.tcp
    }

    /// A probe arrives: how long it takes to answer, if it answers.
    pub fn answer(&mut self, now_ns: u64) -> Option<u64> {
        let silent = self.truth.silent_from_s > 0.0 && now_ns as f64 / 1e9 >= self.truth.silent_from_s;
        let blocked = self.icmp == Icmp::Blocked && !self.truth.tcp;
        if silent || blocked || self.rng.chance(self.truth.loss) {
            return None;
        }
        if self.truth.limit_per_s > 0 {
            while self.answered_ns.front().is_some_and(|at_ns| at_ns + SECOND_NS <= now_ns) {
                self.answered_ns.pop_front();
            }
            if self.answered_ns.len() >= self.truth.limit_per_s as usize {
                return None;
            }
            self.answered_ns.push_back(now_ns);
        }
        Some((self.truth.extra_ms * 1e6) as u64 + self.rng.exponential_ns(self.jitter_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Answers to ten pings a second for ten seconds, per second.
    fn answers(truth: ReflectorTruth) -> Vec<usize> {
        let mut reflector = Reflector::new(truth, Icmp::Fair, 0, Rng::new(1, 1));
        (0..10).map(|s| (0..10).filter(|i| reflector.answer((s * 1000 + i * 100) * MS).is_some()).count()).collect()
    }

    #[test]
    fn they_answer_limit_fall_silent_and_lose() {
        assert_eq!(answers(ReflectorTruth::default()), [10; 10]);
        assert_eq!(answers(ReflectorTruth { limit_per_s: 3, ..ReflectorTruth::default() }), [3; 10]);
        let silent = ReflectorTruth { silent_from_s: 2.5, ..ReflectorTruth::default() };
        assert_eq!(answers(silent), [10, 10, 5, 0, 0, 0, 0, 0, 0, 0]);
        let lossy: usize = answers(ReflectorTruth { loss: 0.3, ..ReflectorTruth::default() }).iter().sum();
        assert!((58..=82).contains(&lossy), "{lossy}");
    }

    #[test]
    fn extra_and_jitter_delay_the_answer() {
        let far = ReflectorTruth { extra_ms: 85.0, ..ReflectorTruth::default() };
        let mut reflector = Reflector::new(far, Icmp::Fair, MS, Rng::new(1, 1));
        let delays: Vec<u64> = (0..200).filter_map(|at| reflector.answer(at * MS)).collect();
        assert!(delays.iter().all(|delay| *delay >= 85 * MS));
        assert!(delays.iter().any(|delay| *delay > 87 * MS));
    }
}
