//! COBALT, CAKE's AQM: CoDel for queues that answer to drops, BLUE for those that do not.
//!
//! CoDel is RFC 8289; the variant (a counter that decays instead of being forgotten, BLUE beside it, the
//! floor of four packets) follows the description of `sch_cake.c`. Packets here carry no ECN.

use super::rng::Rng;

/// What a queue is held to.
#[allow(clippy::struct_field_names)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    pub target_ns: u64,
    pub interval_ns: u64,
    /// What one full packet takes at the shaped rate; 0 for an AQM that knows no rate.
    pub packet_ns: u64,
}

/// BLUE's steps in `sch_cake.c`: 1/256 up, 1/4096 down.
const BLUE_UP: f64 = 1.0 / 256.0;
const BLUE_DOWN: f64 = 1.0 / 4096.0;

/// The state of one queue.
#[derive(Clone, Debug, Default)]
pub struct Cobalt {
    count: u32,
    dropping: bool,
    drop_next_ns: u64,
    blue: f64,
    blue_changed_ns: u64,
}

impl Cobalt {
    /// Whether the packet that waited since `queued_ns` and could leave now is to be dropped instead.
    pub fn should_drop(&mut self, limits: &Limits, now_ns: u64, queued_ns: u64, rng: &mut Rng) -> bool {
        let sojourn_ns = now_ns.saturating_sub(queued_ns);
        // Four packets' time is the least queue that counts as standing, whatever the target.
        let over_target = sojourn_ns > limits.target_ns && sojourn_ns > 4 * limits.packet_ns;
        let mut due = self.count > 0 && now_ns >= self.drop_next_ns;

        if over_target {
            if !self.dropping {
                self.dropping = true;
                self.drop_next_ns = now_ns + self.spacing_ns(limits);
            }
            self.count = self.count.max(1);
        } else {
            self.dropping = false;
        }

        let mut drop = false;
        if due && self.dropping {
            drop = true;
            self.count = self.count.saturating_add(1);
            self.drop_next_ns += self.spacing_ns(limits);
        } else {
            while due {
                self.count -= 1;
                self.drop_next_ns += self.spacing_ns(limits);
                due = self.count > 0 && now_ns >= self.drop_next_ns;
            }
        }
        drop |= rng.chance(self.blue);

        // The same field tells how long the queue has been at rest.
        if self.count == 0 {
            self.drop_next_ns = now_ns + limits.interval_ns;
        } else if now_ns > self.drop_next_ns && !drop {
            self.drop_next_ns = now_ns;
        }
        drop
    }

    /// A packet did not fit: BLUE drops more, CoDel starts at once.
    pub fn overflowed(&mut self, limits: &Limits, now_ns: u64) {
        if now_ns.saturating_sub(self.blue_changed_ns) > limits.target_ns {
            self.blue = (self.blue + BLUE_UP).min(1.0);
            self.blue_changed_ns = now_ns;
        }
        self.dropping = true;
        self.drop_next_ns = now_ns;
        self.count = self.count.max(1);
    }

    /// The queue ran empty: both calm down.
    pub fn ran_empty(&mut self, limits: &Limits, now_ns: u64) {
        if self.blue > 0.0 && now_ns.saturating_sub(self.blue_changed_ns) > limits.target_ns {
            self.blue = (self.blue - BLUE_DOWN).max(0.0);
            self.blue_changed_ns = now_ns;
        }
        self.dropping = false;
        if self.count > 0 && now_ns >= self.drop_next_ns {
            self.count -= 1;
            self.drop_next_ns += self.spacing_ns(limits);
        }
    }

    /// Nothing left that an empty queue would have to remember.
    pub fn is_at_rest(&self, now_ns: u64) -> bool {
        self.blue == 0.0 && self.count == 0 && now_ns >= self.drop_next_ns
    }

    /// CoDel's control law: the interval over the square root of the count.
    fn spacing_ns(&self, limits: &Limits) -> u64 {
        (limits.interval_ns as f64 / f64::from(self.count.max(1)).sqrt()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const LIMITS: Limits = Limits { target_ns: 5 * MS, interval_ns: 100 * MS, packet_ns: 0 };

    /// When a queue that delays by `delay_ms` drops, a packet each millisecond.
    fn drops(limits: &Limits, delay_ms: u64, for_ms: u64) -> Vec<u64> {
        let (mut cobalt, mut rng) = (Cobalt::default(), Rng::new(1, 1));
        (1000..1000 + for_ms)
            .filter(|ms| cobalt.should_drop(limits, ms * MS, (ms - delay_ms) * MS, &mut rng))
            .map(|ms| ms - 1000)
            .collect()
    }

    #[test]
    fn drops_begin_after_an_interval_and_come_ever_faster() {
        assert_eq!(drops(&LIMITS, 6, 400), [100, 171, 229, 279, 324, 364]);
    }

    #[test]
    fn below_target_or_four_packets_nothing_is_dropped() {
        assert!(drops(&LIMITS, 5, 2000).is_empty());
        let slow = Limits { packet_ns: 2 * MS, ..LIMITS };
        assert!(drops(&slow, 8, 2000).is_empty());
        assert!(!drops(&slow, 9, 2000).is_empty());
    }

    #[test]
    fn overflow_starts_blue_and_an_empty_queue_ends_it() {
        let (mut cobalt, mut rng) = (Cobalt::default(), Rng::new(1, 1));
        cobalt.overflowed(&LIMITS, 1000 * MS);
        assert!(!cobalt.is_at_rest(1000 * MS));
        let blue_drops = (1..5000).filter(|_| rng.chance(cobalt.blue)).count();
        assert!((8..40).contains(&blue_drops), "{blue_drops} of 5000 at 1/256");
        for ms in 0..400 {
            cobalt.ran_empty(&LIMITS, (2000 + 10 * ms) * MS);
        }
        assert!(cobalt.is_at_rest(9000 * MS));
    }
}
