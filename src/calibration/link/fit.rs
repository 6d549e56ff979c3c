//! Per-packet overhead and cells, from the packet rates that a saturated line delivers at several packet sizes.
//!
//! While the bottleneck's queue is never empty, `packets/s × bytes on the wire` is its rate, whatever the size:
//! `p·(L+o) = R` on a line of frames, `p·53·⌈(L+o)/48⌉ = R` on one of ATM cells. Two sizes give the overhead `o`,
//! more tell which of the two it is. PTM's 65 bytes for 64 looks like frames at a slightly lower rate and cannot be
//! seen this way: it comes from the link type.

use crate::line::{Accounting, Cells};
use crate::units::Rate;

/// What one saturated trial delivered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SizeRate {
    /// Mean IP bytes of its packets.
    pub packet_bytes: f64,
    pub packets_per_s: f64,
    /// Others cross the line too: so many packets a second, of so many IP bytes.
    pub beside: [(f64, f64); 2],
    /// Standard error of the packet rate, relative to it.
    pub relative_error: f64,
}

/// The overhead in bytes per IP packet and the capacity that explain the packet rates best.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkFit {
    pub cells: Cells,
    pub overhead: f64,
    /// All overheads that explain the rates about as well lie between these.
    pub low: f64,
    pub high: f64,
    pub capacity: Rate,
    /// Squared residuals in units of their errors: about (sizes − 2) where the model holds.
    pub misfit: f64,
    /// How much worse the other model explains the rates, in the same units.
    pub preferred_by: f64,
}

/// Overheads that are considered; tc itself takes −64 to 256, no access link costs more than this (facts C).
const OVERHEADS: std::ops::RangeInclusive<i32> = 0..=64;
/// Frames are considered in steps of a tenth of a byte, so that the interval is not coarser than the data.
const STEPS_PER_BYTE: i32 = 10;
/// The interval keeps what is not worse by more than this: 95 % for one free parameter (χ²).
const INTERVAL_MISFIT: f64 = 3.84;
/// The models are told apart when one is worse by so much: odds of e³, 20 to 1.
pub const DECISIVE: f64 = 6.0;

/// `None` with fewer than two different sizes, or where nothing was delivered.
pub fn fit(rates: &[SizeRate]) -> Option<LinkFit> {
    let one_size = rates.iter().all(|r| (r.packet_bytes - rates[0].packet_bytes).abs() < 1.0);
    if one_size || rates.iter().any(|r| r.packets_per_s <= 0.0 || r.relative_error <= 0.0) {
        return None;
    }
    let frames = best(rates, Cells::None, STEPS_PER_BYTE);
    let atm = best(rates, Cells::Atm, 1);
    let (chosen, other) = if atm.misfit < frames.misfit { (atm, frames) } else { (frames, atm) };
    Some(LinkFit { preferred_by: other.misfit - chosen.misfit, ..chosen })
}

/// Bytes on the wire for a packet of `ip_bytes` with a fractional overhead.
fn wire_bytes(ip_bytes: f64, overhead: f64, cells: Cells) -> f64 {
    let framed = ip_bytes + overhead;
    match cells {
        Cells::None | Cells::Ptm => framed,
        Cells::Atm => (framed / 48.0).ceil() * 53.0,
    }
}

fn best(rates: &[SizeRate], cells: Cells, steps_per_byte: i32) -> LinkFit {
    let candidates: Vec<(f64, f64, f64)> = (OVERHEADS.start() * steps_per_byte..=OVERHEADS.end() * steps_per_byte)
        .map(|step| {
            let overhead = f64::from(step) / f64::from(steps_per_byte);
            let (misfit, bytes_per_s) = misfit(rates, overhead, cells);
            (overhead, misfit, bytes_per_s)
        })
        .collect();
    let least = candidates.iter().map(|c| c.1).fold(f64::INFINITY, f64::min);
    // Where several overheads explain equally well (one cell count), the middle one stands for them.
    let equal: Vec<_> = candidates.iter().filter(|c| c.1 <= least + 1e-9).collect();
    let (overhead, misfit, bytes_per_s) = *equal[equal.len() / 2];
    let kept = || candidates.iter().filter(|c| c.1 <= least + INTERVAL_MISFIT).map(|c| c.0);
    LinkFit {
        cells,
        overhead,
        low: kept().fold(f64::INFINITY, f64::min),
        high: kept().fold(f64::NEG_INFINITY, f64::max),
        capacity: Rate::from_bits((bytes_per_s * 8.0).round() as u64),
        misfit,
        preferred_by: 0.0,
    }
}

/// Squared residuals of the rates about the one capacity that suits them best with this overhead, and that capacity in bytes/s.
/// In logarithms, since the errors are relative.
fn misfit(rates: &[SizeRate], overhead: f64, cells: Cells) -> (f64, f64) {
    let logs: Vec<(f64, f64)> = rates
        .iter()
        .map(|r| {
            let all = [(r.packets_per_s, r.packet_bytes)].into_iter().chain(r.beside);
            let bytes_per_s: f64 = all.map(|(per_s, bytes)| per_s * wire_bytes(bytes, overhead, cells)).sum();
            (bytes_per_s.ln(), r.relative_error.powi(-2))
        })
        .collect();
    let weight: f64 = logs.iter().map(|l| l.1).sum();
    let mean = logs.iter().map(|l| l.0 * l.1).sum::<f64>() / weight;
    (logs.iter().map(|l| (l.0 - mean).powi(2) * l.1).sum(), mean.exp())
}

/// What is written for frames: the smallest conventional overhead that is not too little (contract).
const CONVENTIONAL: [i32; 9] = [18, 22, 26, 30, 34, 38, 42, 44, 48];
/// Conventional overheads of ATM encapsulations (facts C).
const CONVENTIONAL_ATM: [i32; 10] = [8, 10, 14, 16, 24, 32, 40, 44, 48, 52];
/// A bare TCP acknowledgement, a small voice packet: what else must not take more cells than are counted.
const SMALL_PACKETS: [u32; 2] = [40, 64];

/// The accounting to write for a measured link: never below what was measured; `mpu` by the kind of link.
pub fn accounting_to_write(fit: &LinkFit, mpu: u32, full_size: u32) -> Accounting {
    let at_least = fit.high.ceil() as i32;
    match fit.cells {
        Cells::None | Cells::Ptm => Accounting { overhead: conventional(fit.high), mpu, cells: Cells::None },
        Cells::Atm => {
            let cells = |overhead: i32, ip: u32| ip.saturating_add_signed(overhead).div_ceil(48);
            let measured = fit.overhead.round() as i32;
            let suffices =
                |o: &i32| SMALL_PACKETS.into_iter().chain([full_size]).all(|ip| cells(*o, ip) >= cells(at_least, ip));
            let overhead = CONVENTIONAL_ATM.into_iter().filter(|o| *o >= measured).find(suffices).unwrap_or(at_least);
            Accounting { overhead, mpu: 0, cells: Cells::Atm }
        }
    }
}

/// The smallest conventional overhead for frames that is not below `high`.
pub fn conventional(high: f64) -> i32 {
    let at_least = high.ceil() as i32;
    CONVENTIONAL.into_iter().find(|o| *o >= at_least).unwrap_or(at_least)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(capacity: u64, overhead: f64, cells: Cells, sizes: &[u32], error: impl Fn(usize) -> f64) -> Vec<SizeRate> {
        sizes
            .iter()
            .enumerate()
            .map(|(i, &size)| SizeRate {
                packet_bytes: f64::from(size),
                packets_per_s: capacity as f64 / 8.0 / wire_bytes(f64::from(size), overhead, cells) * (1.0 + error(i)),
                beside: [(0.0, 84.0), (0.0, 1500.0)],
                relative_error: 0.002,
            })
            .collect()
    }

    #[test]
    fn the_kernels_own_figures_give_the_kernels_truth() {
        // facts B: 18,000 kbit/s, 34 bytes; Ethernet sizes less 14 bytes.
        let rate = |packets_per_s, ethernet: f64| SizeRate {
            packet_bytes: ethernet - 14.0,
            packets_per_s,
            beside: [(0.0, 84.0), (0.0, 1500.0)],
            relative_error: 0.001,
        };
        let fit = fit(&[rate(1483.1, 1497.1), rate(7768.2, 269.6)]).unwrap();
        assert_eq!(fit.cells, Cells::None);
        assert!((fit.overhead - 34.0).abs() < 0.5, "{fit:?}");
    }

    #[test]
    fn frames_are_found_to_a_tenth_when_nothing_is_noisy() {
        for overhead in [18.0, 22.0, 26.0, 34.0, 44.0] {
            let fit = fit(&rates(17_723_000, overhead, Cells::None, &[1500, 576, 256], |_| 0.0)).unwrap();
            assert_eq!(fit.cells, Cells::None);
            assert!((fit.overhead - overhead).abs() < 0.2, "{fit:?}");
            assert!((fit.capacity.kbit() as i64 - 17_723).abs() < 5, "{fit:?}");
            assert!(fit.preferred_by > DECISIVE, "{fit:?}");
        }
    }

    #[test]
    fn cells_are_found_with_the_right_count() {
        for overhead in [32.0, 40.0] {
            let sizes = [1500, 576, 256, 136];
            let fit =
                fit(&rates(1_200_000, overhead, Cells::Atm, &sizes, |i| [0.002, -0.003, 0.001, -0.002][i])).unwrap();
            assert_eq!(fit.cells, Cells::Atm);
            let count = |o: f64| ((1500.0 + o) / 48.0).ceil();
            assert!((count(fit.overhead) - count(overhead)).abs() < 0.5, "{fit:?}");
            assert!(fit.low <= overhead && overhead <= fit.high, "{fit:?}");
        }
    }

    #[test]
    fn what_is_written_is_never_below_what_was_measured() {
        let frames = |high| LinkFit {
            cells: Cells::None,
            overhead: 34.0,
            low: 33.0,
            high,
            capacity: Rate::from_kbit(17_723),
            misfit: 0.0,
            preferred_by: 20.0,
        };
        assert_eq!(accounting_to_write(&frames(33.6), 84, 1500).overhead, 34);
        assert_eq!(accounting_to_write(&frames(35.0), 84, 1500).overhead, 38);
        assert_eq!(accounting_to_write(&frames(60.2), 84, 1500).overhead, 61);
        let atm = LinkFit { cells: Cells::Atm, overhead: 38.0, low: 36.0, high: 40.0, ..frames(0.0) };
        let written = accounting_to_write(&atm, 84, 1500);
        assert_eq!((written.overhead, written.mpu, written.cells), (40, 0, Cells::Atm));
        // 8 would do for full-size packets: an acknowledgement takes one cell with it, two with 32.
        let wide = LinkFit { overhead: 7.0, low: 1.0, high: 32.0, ..atm };
        assert_eq!(accounting_to_write(&wide, 84, 1500).overhead, 10);
    }

    #[test]
    fn one_size_tells_nothing() {
        assert_eq!(fit(&rates(1_000_000, 34.0, Cells::None, &[1500, 1500], |_| 0.0)), None);
        assert_eq!(fit(&[]), None);
    }
}
