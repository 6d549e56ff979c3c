//! Chance that repeats: the same seed gives the same line, on every machine.

/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// `stream` keeps the parts of one line independent: more draws by one do not move another's.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut rng = Self { state: seed ^ stream.wrapping_mul(0xd1b5_4a32_d192_ed03) };
        rng.next();
        rng
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 up to, but not including, 1.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Draws nothing where there is nothing to decide.
    pub fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.unit() < probability
    }

    pub fn uniform_ns(&mut self, below_ns: u64) -> u64 {
        if below_ns == 0 { 0 } else { (self.unit() * below_ns as f64) as u64 }
    }

    pub fn exponential_ns(&mut self, mean_ns: u64) -> u64 {
        if mean_ns == 0 { 0 } else { (-(1.0 - self.unit()).ln() * mean_ns as f64) as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_and_stream_repeat_and_others_do_not() {
        let draw = |seed, stream| {
            let mut rng = Rng::new(seed, stream);
            (0..8).map(|_| rng.uniform_ns(1_000_000)).collect::<Vec<_>>()
        };
        assert_eq!(draw(1, 1), draw(1, 1));
        assert_ne!(draw(1, 1), draw(1, 2));
        assert_ne!(draw(1, 1), draw(2, 1));
    }

    #[test]
    fn the_exponential_has_its_mean_and_its_tail() {
        let mut rng = Rng::new(7, 0);
        let mut draws: Vec<u64> = (0..20_000).map(|_| rng.exponential_ns(1_000_000)).collect();
        let mean = draws.iter().sum::<u64>() / draws.len() as u64;
        assert!((970_000..1_030_000).contains(&mean), "{mean}");
        draws.sort_unstable();
        let p95 = draws[draws.len() * 95 / 100];
        assert!((2_900_000..3_100_000).contains(&p95), "{p95}");
    }
}
