//! A host that is sometimes busy: delays that keep the order of what they delay.

use super::rng::Rng;

/// The work ahead of a packet, as in a queue with one server: it jumps now and then and drains with time. Its
/// tail is exponential with the given mean, as the jitter of single pings is, but neighbours share their fate.
#[derive(Debug)]
pub struct Jitter {
    mean_ns: u64,
    work_ns: u64,
    seen_ns: u64,
    next_jump_ns: u64,
    rng: Rng,
}

/// The share of time with any work ahead. Fitted to the kernel table: the throughput of CAKE rows.
const BUSY: f64 = 0.5;

impl Jitter {
    pub fn new(mean_ns: u64, rng: Rng) -> Self {
        Self { mean_ns, work_ns: 0, seen_ns: 0, next_jump_ns: 0, rng }
    }

    pub fn delay_ns(&mut self, now_ns: u64) -> u64 {
        if self.mean_ns == 0 {
            return 0;
        }
        // M/M/1: jumps of mean s at rate BUSY/s leave an exponential tail of mean s / (1 - BUSY).
        let jump_ns = (self.mean_ns as f64 * (1.0 - BUSY)) as u64;
        while self.next_jump_ns <= now_ns {
            self.drain(self.next_jump_ns);
            self.work_ns += self.rng.exponential_ns(jump_ns);
            self.next_jump_ns += 1 + self.rng.exponential_ns((jump_ns as f64 / BUSY) as u64);
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
        let (one, two) = (f64::from(over_one) / 80_000.0, f64::from(over_two) / 80_000.0);
        assert!((one / (BUSY * (-1f64).exp()) - 1.0).abs() < 0.1, "{one}");
        assert!((two / (BUSY * (-2f64).exp()) - 1.0).abs() < 0.15, "{two}");
    }
}
