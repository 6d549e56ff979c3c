//! How busy the cores are.

use crate::line::{LineError, Seen};
use std::fs;

/// Watches `/proc/stat`. A router's work is mostly in software interrupts, which are counted as busy there.
#[derive(Debug)]
pub struct Cpu {
    cores: Vec<Core>,
}

/// Clock ticks since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Core {
    idle: u64,
    all: u64,
}

impl Cpu {
    pub fn start() -> Result<Self, LineError> {
        Ok(Self { cores: cores(&read()?) })
    }

    /// The busiest core since the last call; `None` while less than a tick has gone by.
    pub fn read(&mut self) -> Result<Option<Seen>, LineError> {
        let now = cores(&read()?);
        let busiest = busiest(&self.cores, &now);
        if busiest.is_some() {
            self.cores = now;
        }
        Ok(busiest.map(|busiest_core| Seen::Cpu { busiest_core }))
    }
}

fn read() -> Result<String, LineError> {
    fs::read_to_string("/proc/stat").map_err(|error| LineError::failed("read /proc/stat", error))
}

/// `cpuN user nice system idle iowait irq softirq steal guest guest_nice` (proc_stat(5)); guests are in user already.
fn cores(stat: &str) -> Vec<Core> {
    let lines = stat.lines().filter(|line| line.starts_with("cpu") && !line.starts_with("cpu "));
    lines
        .map(|line| {
            let ticks: Vec<u64> =
                line.split_whitespace().skip(1).take(8).map(|word| word.parse().unwrap_or(0)).collect();
            Core { idle: ticks.iter().skip(3).take(2).sum(), all: ticks.iter().sum() }
        })
        .collect()
}

/// The largest share of time not idle, 0 to 1. A core's idle time can run backwards by a tick (proc_stat(5)).
fn busiest(before: &[Core], now: &[Core]) -> Option<f64> {
    let pairs = before.iter().zip(now).filter(|(before, now)| now.all > before.all);
    pairs
        .map(|(before, now)| {
            let all = (now.all - before.all) as f64;
            let idle = now.idle.saturating_sub(before.idle) as f64;
            (1.0 - idle / all).clamp(0.0, 1.0)
        })
        .max_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str =
        "cpu  30 0 20 140 10 0 0 0 0 0\ncpu0 10 0 10 70 10 0 0 0 0 0\ncpu1 20 0 10 70 0 0 0 0 0 0\nintr 7 0\n";

    #[test]
    fn the_busiest_core_counts_soft_interrupts_and_not_waiting_for_disks() {
        let after = "cpu  0\ncpu0 10 0 10 75 15 0 0 0 0 0\ncpu1 21 0 10 71 0 1 7 0 0 0\n";
        let busy = busiest(&cores(BEFORE), &cores(after)).unwrap();
        assert!((busy - 0.9).abs() < 1e-9, "{busy}");
    }

    #[test]
    fn no_time_no_answer_and_idle_time_may_run_backwards() {
        assert_eq!(busiest(&cores(BEFORE), &cores(BEFORE)), None);
        let backwards = "cpu0 12 0 10 69 10 0 0 0 0 0\n";
        assert_eq!(busiest(&cores(BEFORE), &cores(backwards)), Some(1.0));
        assert_eq!(busiest(&cores("nonsense"), &cores("cpu0 a b")), None);
    }

    #[test]
    fn the_real_file_is_read() {
        let mut cpu = Cpu::start().unwrap();
        assert!(!cpu.cores.is_empty());
        cpu.read().unwrap();
    }
}
