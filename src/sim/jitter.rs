//! A host that is sometimes busy: delays that keep the order of what they delay.

use super::rng::Rng;

/// The work ahead of a packet, as in a queue with one server: it jumps now and then and drains with time.
/// Neighbouring packets share their fate, as they do behind a host that is busy with something else.
#[derive(Debug)]
pub struct Jitter {
    mean_ns: u64,
    work_ns: u64,
    seen_ns: u64,
    next_jump_ns: u64,
    rng: Rng,
}

/// How long a stall is on average, and how far apart stalls are, in means of the single pings' jitter. Fitted to the
/// kernel table: they decide how well four flows fill a shaper, and so how far a delay climbs above the line's rate.
const STALL: f64 = 1.2;
const APART: f64 = 8.3;

impl Jitter {
    pub fn new(mean_ns: u64, rng: Rng) -> Self {
        Self { mean_ns, work_ns: 0, seen_ns: 0, next_jump_ns: 0, rng }
    }

    pub fn delay_ns(&mut self, now_ns: u64) -> u64 {
        if self.mean_ns == 0 {
            return 0;
        }
        let stall_ns = (self.mean_ns as f64 * STALL) as u64;
        let apart_ns = (self.mean_ns as f64 * APART) as u64;
        while self.next_jump_ns <= now_ns {
            self.drain(self.next_jump_ns);
            self.work_ns += self.rng.exponential_ns(stall_ns);
            self.next_jump_ns += 1 + self.rng.exponential_ns(apart_ns);
        }
        self.drain(now_ns);
        self.work_ns
    }

    fn drain(&mut self, now_ns: u64) {
        self.work_ns = self.work_ns.saturating_sub(now_ns.saturating_sub(self.seen_ns));
        self.seen_ns = self.seen_ns.max(now_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_keeps_the_order_and_has_the_tail() {
        let mut jitter = Jitter::new(1_000_000, Rng::new(5, 0));
        let (mut arrived_ns, mut over_one, mut over_two) = (0, 0, 0);
        for at_ns in (0..40_000_000_000).step_by(500_000) {
            let delay_ns = jitter.delay_ns(at_ns);
            assert!(at_ns + delay_ns >= arrived_ns);
            arrived_ns = at_ns + delay_ns;
            over_one += u32::from(delay_ns > 1_000_000);
            over_two += u32::from(delay_ns > 2_000_000);
        }
        // M/M/1: the load is STALL / APART, the tail's mean STALL / (1 - load).
        let load = STALL / APART;
        for (over, limit) in [(over_one, 1.0), (over_two, 2.0)] {
            let expected = load * (-limit * (1.0 - load) / STALL).exp();
            let share = f64::from(over) / 80_000.0;
            assert!((share / expected - 1.0).abs() < 0.15, "{share} above {limit} ms, not {expected}");
        }
    }
}
