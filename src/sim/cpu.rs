//! The router's busiest core.

/// Works on one packet at a time, for both shapers.
#[derive(Debug)]
pub struct Cpu {
    bits_per_s: u64,
    limits: bool,
    free_ns: u64,
    busy_ns: f64,
}

/// A CPU that never limits still works: as if this were its most.
const AMPLE_KBIT: u64 = 3_000_000;
/// Shaping costs a core many times what forwarding does.
const FORWARDING_SHARE: f64 = 0.1;
/// What a router does anyway.
const IDLE_SHARE: f64 = 0.04;

impl Cpu {
    pub fn new(shaper_cpu_kbit: u64) -> Self {
        let kbit = if shaper_cpu_kbit == 0 { AMPLE_KBIT } else { shaper_cpu_kbit };
        Self { bits_per_s: kbit * 1000, limits: shaper_cpu_kbit > 0, free_ns: 0, busy_ns: 0.0 }
    }

    /// When a packet that could leave the shaper at `ready_ns` really can.
    pub fn ready_ns(&self, ready_ns: u64) -> u64 {
        if self.limits { ready_ns.max(self.free_ns) } else { ready_ns }
    }

    pub fn shape(&mut self, bytes: u32, now_ns: u64) {
        let work_ns = f64::from(bytes) * 8e9 / self.bits_per_s as f64;
        self.free_ns = self.free_ns.max(now_ns) + work_ns as u64;
        self.busy_ns += work_ns;
    }

    pub fn forward(&mut self, bytes: u32) {
        self.busy_ns += f64::from(bytes) * 8e9 / self.bits_per_s as f64 * FORWARDING_SHARE;
    }

    /// The share of the last `elapsed_ns` that was not idle; asking begins a new account.
    pub fn take_share(&mut self, elapsed_ns: u64) -> f64 {
        let share = IDLE_SHARE + self.busy_ns / elapsed_ns.max(1) as f64;
        self.busy_ns = 0.0;
        share.min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weak_core_makes_packets_wait_and_says_so() {
        let mut cpu = Cpu::new(12_000);
        cpu.shape(1500, 0);
        assert_eq!(cpu.ready_ns(0), 1_000_000);
        cpu.shape(1500, 1_000_000);
        assert!(cpu.take_share(2_000_000) > 0.99);
        assert!(cpu.take_share(2_000_000) < 0.1);
    }

    #[test]
    fn an_ample_core_never_limits() {
        let mut cpu = Cpu::new(0);
        cpu.shape(1500, 0);
        assert_eq!(cpu.ready_ns(5), 5);
        assert!((0.043..0.045).contains(&cpu.take_share(1_000_000)));
    }
}
