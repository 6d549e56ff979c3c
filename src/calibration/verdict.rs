//! The verdict on a loaded trial: clean, bloated, or inconclusive with the reason. All thresholds live here.
//!
//! **The rule.** The added delay of a reply is its round-trip time minus the 95th percentile of its reflector
//! on the idle line. A trial is *bloated* when the 95th percentile of the settled replies' added delay is above
//! the clean bound, and *clean* when it is below it, by more than its own uncertainty: that of the same percentile
//! from block to block ([`CONFIDENCE_Z`], Student's t, widened for autocorrelation);
//! or bloated when a queue grows steadily, by a whole bound within [`HORIZON`] seconds. A clean trial must also
//! have loaded the line ([`MIN_FILL`]), else it proves nothing.

use super::estimate::Measurement;
use super::idle::Idle;
use super::stats::{autocorrelation, fit_line, mean, squares, student};
use crate::line::{Cake, Trouble};
use crate::units::{Rate, millis};
use std::fmt;
use std::time::Duration;

/// Clean means less added delay than this (grade A+), unless the line itself cannot do better.
pub const CLEAN_MS: f64 = 5.0;
/// One-sided 97 % at one look; a trial is looked at after each block, which the error rates below take into account.
const CONFIDENCE_Z: f64 = 1.9;
/// No verdict before so many blocks.
pub const MIN_BLOCKS: usize = 3;
/// Degrees of freedom that the idle line's own scatter counts for beside the trial's.
const PRIOR_DEGREES: f64 = 3.0;
/// Blocks never scatter less than this in truth, whatever three of them look like.
const MIN_SCATTER_MS: f64 = 0.4;
/// A queue that certainly grows (one-sided 99.5 %, by Student's t) …
const GROWTH_Z: f64 = 2.58;
/// … by as much as the bound within so many seconds is bloat to come.
const HORIZON: f64 = 10.0;
/// Blocks needed to believe in growth.
const GROWTH_BLOCKS: usize = 4;
/// A probe waits for the packet that is being sent, so on a slow line the 95th percentile is nearly that packet's time
/// (0.94 of it at 1.2 Mbit/s in the kernel lab). So much more of it is clean, or a quiet trial could not be told from it.
const PACKET_HEADROOM: f64 = 1.25;
/// CAKE must have been kept this busy, or a clean delay says nothing about the rate (rivals, lesson 7).
pub const MIN_FILL: f64 = 0.85;
/// A core this busy cannot do more.
pub const CPU_FULL: f64 = 0.90;
/// More foreign traffic than this share of ours disturbs a trial.
pub const MAX_FOREIGN: f64 = 0.05;
/// The same of its busiest seconds: what a short visit takes away from the load is lost to the trial's mean too.
const MAX_FOREIGN_PEAK: f64 = 0.10;
/// A sender that was itself the limit for more than this share of the time did not load the line.
pub const MAX_SENDER_LIMITED: f64 = 0.5;
/// Lost packets beyond what the shaper dropped; more than this is not a clean line (facts A: 0.1 % lossy, 1 % stalls).
pub const LOSSY: f64 = 0.001;
/// Less added delay than this in the median is no queue at all: loss without it is a policer.
pub const NO_QUEUE_MS: f64 = 1.0;
/// Pings that wait less than this share of what the second witness waits did not stand in its queue.
const PINGS_FIRST: f64 = 0.5;
/// So long without any reply, while the load moves, makes a trial invalid.
pub const SILENCE: Duration = Duration::from_secs(3);

#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    Clean { added_ms: f64 },
    Bloated(Bloat),
    Inconclusive(Doubtful),
}

impl Verdict {
    pub fn is_clean(&self) -> bool {
        matches!(self, Self::Clean { .. })
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Bloat {
    Delay {
        added_ms: f64,
        bound_ms: f64,
    },
    Growing {
        ms_per_s: f64,
        added_ms: f64,
    },
    /// On a policed line: packets lost that the shaper did not drop, as a share.
    Loss {
        share: f64,
    },
}

/// Why a trial proves nothing.
#[derive(Clone, Debug, PartialEq)]
pub enum Doubtful {
    /// Too close to the bound for the time allowed.
    Unsure {
        added_ms: f64,
        bound_ms: f64,
    },
    LineBusy {
        foreign: Rate,
    },
    CpuBound {
        throughput: Rate,
        asked: Rate,
    },
    LoadLimited {
        throughput: Rate,
        asked: Option<Rate>,
    },
    ReflectorsSilent,
    Server(Trouble),
}

impl Doubtful {
    /// The code of the outcome's doubt.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unsure { .. } => "unsure",
            Self::LineBusy { .. } => "line-busy",
            Self::CpuBound { .. } => "cpu-bound",
            Self::LoadLimited { .. } | Self::Server(_) => "load-limited",
            Self::ReflectorsSilent => "reflectors",
        }
    }

    /// Would the same trial a little later perhaps do better?
    pub fn worth_a_repeat(&self) -> bool {
        matches!(self, Self::LineBusy { .. } | Self::ReflectorsSilent)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Clean { added_ms } => write!(f, "adds {added_ms:.1} ms"),
            Self::Bloated(Bloat::Delay { added_ms, bound_ms }) => {
                write!(f, "adds {added_ms:.1} ms, more than {bound_ms:.1}")
            }
            Self::Bloated(Bloat::Growing { ms_per_s, added_ms }) => {
                write!(f, "the queue grows by {ms_per_s:.1} ms each second, to {added_ms:.1} ms")
            }
            Self::Bloated(Bloat::Loss { share }) => write!(f, "the line drops {:.1} % of the packets", share * 100.0),
            Self::Inconclusive(why) => why.fmt(f),
        }
    }
}

impl fmt::Display for Doubtful {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsure { added_ms, bound_ms } => {
                write!(f, "adds {added_ms:.1} ms, too close to {bound_ms:.1} to tell")
            }
            Self::LineBusy { foreign } => write!(f, "others use {foreign} of the line: try again when it is quiet"),
            Self::CpuBound { throughput, asked } => {
                write!(f, "the router's CPU is full at {throughput}; it cannot shape {asked}")
            }
            Self::LoadLimited { throughput, asked: Some(asked) } => {
                write!(
                    f,
                    "only {throughput} of {asked} got through although nothing queued: the server or the path limits the load"
                )
            }
            Self::LoadLimited { throughput, asked: None } => {
                write!(
                    f,
                    "only {throughput} got through and the line was not full: the server or the path limits the load"
                )
            }
            Self::ReflectorsSilent => write!(f, "no reflector answered while traffic flowed"),
            Self::Server(Trouble::ServerRefused { status, retry_after_s }) => {
                write!(f, "the load server refused (HTTP {status})")?;
                match retry_after_s {
                    Some(s) => write!(f, "; it asks to wait {s} s"),
                    None => write!(f, "; use another with --server"),
                }
            }
            Self::Server(Trouble::ServerLost { error }) => write!(f, "the load server was lost: {error}"),
            Self::Server(Trouble::Stalled) => {
                write!(f, "the load stalled although the line answers: try another server")
            }
        }
    }
}

/// Below which added delay a trial is clean, and why there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CleanBound {
    pub ms: f64,
    pub because: Because,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Because {
    Default,
    User,
    /// The idle line's own jitter is more.
    Noise,
    /// The full-size packets that nobody can overtake take longer.
    Packet,
}

impl CleanBound {
    /// `slowest`: the lowest rate at which a full-size packet of `wire_bytes` still has to be waited for.
    /// The idle jitter comes on top of a packet's time, since a probe can meet both.
    pub fn new(user: Option<f64>, idle: &Idle, slowest: Rate, wire_bytes: u32) -> Self {
        let wanted = Self { ms: user.unwrap_or(CLEAN_MS), because: user.map_or(Because::Default, |_| Because::User) };
        let noise = Self { ms: idle.noise_ms, because: Because::Noise };
        let packet_ms = millis(slowest.time_for(u64::from(wire_bytes)).min(std::time::Duration::from_secs(10)));
        let one_packet = packet_ms * PACKET_HEADROOM;
        let packet = Self { ms: one_packet + idle.noise_ms, because: Because::Packet };
        // On a fast line a packet's time is part of what is clean anyway.
        let packet = if one_packet >= wanted.ms { packet } else { wanted };
        [wanted, noise, packet].into_iter().max_by(|a, b| a.ms.total_cmp(&b.ms)).unwrap_or(wanted)
    }

    /// Where nothing is known of the rate, nothing is said of how long a packet takes.
    pub fn at_any_rate(user: Option<f64>, idle: &Idle) -> Self {
        Self::new(user, idle, Rate::from_bits(u64::MAX), 0)
    }

    /// Up to here a delay is nothing new: half of what is clean, or one packet.
    fn unremarkable_ms(&self) -> f64 {
        match self.because {
            Because::Packet => self.ms / PACKET_HEADROOM,
            Because::Default | Because::User | Because::Noise => self.ms / 2.0,
        }
    }
}

impl fmt::Display for CleanBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.because {
            Because::Default => "grade A+",
            Because::User => "as asked for",
            Because::Noise => "the idle line itself jitters that much",
            Because::Packet => "full-size packets themselves take nearly that long on this line",
        };
        write!(f, "{:.1} ms ({why})", self.ms)
    }
}

/// What a trial is judged against.
#[derive(Clone, Copy, Debug)]
pub struct Judge<'a> {
    pub bound: CleanBound,
    pub idle: &'a Idle,
    /// The load's packets, IP bytes.
    pub packet_bytes: u32,
    /// The line drops instead of delaying: then losses tell what the delay cannot.
    pub policed: bool,
}

impl Judge<'_> {
    /// The verdict as soon as it is certain, else `None`.
    pub fn verdict(&self, m: &Measurement, cake: Option<&Cake>) -> Option<Verdict> {
        if let Some(why) = invalid(m) {
            return Some(Verdict::Inconclusive(why));
        }
        let verdict = self.delay_verdict(m)?;
        if self.policed && m.line_loss >= LOSSY {
            return Some(Verdict::Bloated(Bloat::Loss { share: m.line_loss }));
        }
        match verdict {
            Verdict::Clean { .. } => Some(self.unloaded(m, cake).map_or(verdict, Verdict::Inconclusive)),
            _ => Some(verdict),
        }
    }

    /// The verdict when no more time is to be had.
    pub fn final_verdict(&self, m: &Measurement, cake: Option<&Cake>) -> Verdict {
        self.verdict(m, cake).unwrap_or(Verdict::Inconclusive(match m.added_p95_ms {
            Some(added_ms) => Doubtful::Unsure { added_ms, bound_ms: self.bound.ms },
            None => Doubtful::ReflectorsSilent,
        }))
    }

    fn delay_verdict(&self, m: &Measurement) -> Option<Verdict> {
        let blocks = &m.blocks_ms;
        let bound_ms = self.bound.ms;
        // Pooled: a block alone sees too few states of the queue to know its tail.
        let added_ms = m.added_p95_ms?.max(mean(blocks)?);
        if blocks.len() < MIN_BLOCKS {
            return None;
        }
        let margin = self.uncertainty(blocks);
        if added_ms - margin > bound_ms {
            return Some(Verdict::Bloated(Bloat::Delay { added_ms, bound_ms }));
        }
        if let Some(bloat) = self.growth(m) {
            return Some(Verdict::Bloated(bloat));
        }
        (added_ms + margin < bound_ms && !Self::may_grow(m, bound_ms)).then_some(Verdict::Clean { added_ms })
    }

    /// Half the width of the mean's confidence interval: the trial's scatter, steadied by the idle line's, and
    /// widened where neighbouring blocks resemble each other.
    fn uncertainty(&self, blocks: &[f64]) -> f64 {
        let n = blocks.len() as f64;
        let prior = (self.idle.noise_ms / 2.0).max(MIN_SCATTER_MS);
        let degrees = n - 1.0 + PRIOR_DEGREES;
        let variance = (squares(blocks) + PRIOR_DEGREES * prior * prior) / degrees;
        // So few blocks show a likeness by chance too: only what exceeds that counts.
        let alike = (autocorrelation(blocks) - n.sqrt().recip()).clamp(0.0, 0.8);
        let independent = n * (1.0 - alike) / (1.0 + alike);
        student(CONFIDENCE_Z, degrees) * (variance / independent.max(1.0)).sqrt()
    }

    fn growth(&self, m: &Measurement) -> Option<Bloat> {
        let blocks = &m.blocks_ms;
        let fit = slope(m).filter(|_| blocks.len() >= GROWTH_BLOCKS)?;
        let error = fit.1.max(MIN_SCATTER_MS / (blocks.len() as f64).powf(1.5) / m.block.as_secs_f64());
        let newest = blocks[blocks.len() - 1];
        let steady = fit.0 > student(GROWTH_Z, blocks.len() as f64 - 2.0) * error;
        (steady && fit.0 * HORIZON > self.bound.ms && newest > self.bound.unremarkable_ms())
            .then_some(Bloat::Growing { ms_per_s: fit.0, added_ms: newest })
    }

    /// Would it pass the bound if it went on as long again? Then it is not clean yet.
    fn may_grow(m: &Measurement, bound_ms: f64) -> bool {
        let seconds = m.blocks_ms.len() as f64 * m.block.as_secs_f64();
        let newest = m.blocks_ms[m.blocks_ms.len() - 1];
        slope(m).is_some_and(|(slope, error)| slope > error && newest + slope * seconds > bound_ms)
    }

    fn unloaded(&self, m: &Measurement, cake: Option<&Cake>) -> Option<Doubtful> {
        let Some(cake) = cake else {
            let idle_line = m.sender_limited > MAX_SENDER_LIMITED;
            return idle_line.then_some(Doubtful::LoadLimited { throughput: m.throughput, asked: None });
        };
        let filled = m.booked(&cake.accounting, self.packet_bytes, m.packets_per_s);
        if filled.ratio(cake.rate) >= MIN_FILL {
            return None;
        }
        Some(if m.busiest_core.is_some_and(|core| core >= CPU_FULL) {
            Doubtful::CpuBound { throughput: filled, asked: cake.rate }
        } else {
            Doubtful::LoadLimited { throughput: filled, asked: Some(cake.rate) }
        })
    }
}

/// Do pings meet much less of a queue than the second witness does? Then somebody lets them go first.
pub fn pings_go_first(m: &Measurement, bound: &CleanBound) -> bool {
    let (Some(pings), Some(witness)) = (m.added_p50_ms, m.witness_p50_ms) else { return false };
    witness - pings > bound.ms && pings < witness * PINGS_FIRST
}

/// Why the trial proves nothing, whatever its delays.
pub fn invalid(m: &Measurement) -> Option<Doubtful> {
    if let Some(trouble) = &m.trouble {
        return Some(Doubtful::Server(trouble.clone()));
    }
    if m.judged < SILENCE {
        return None;
    }
    if m.replies == 0 {
        return Some(Doubtful::ReflectorsSilent);
    }
    for (foreign, most) in [(m.foreign, MAX_FOREIGN), (m.foreign_peak, MAX_FOREIGN_PEAK)] {
        if foreign > m.throughput.times(most) {
            return Some(Doubtful::LineBusy { foreign });
        }
    }
    None
}

/// Growth per second and its standard error.
fn slope(m: &Measurement) -> Option<(f64, f64)> {
    let seconds = m.block.as_secs_f64();
    let points: Vec<_> = m.blocks_ms.iter().enumerate().map(|(i, ms)| (i as f64 * seconds, *ms)).collect();
    fit_line(&points).map(|fit| (fit.slope, fit.slope_error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibration::extent::BLOCK;
    use crate::calibration::fixture;

    fn judge(idle: &Idle) -> Judge<'_> {
        let bound = CleanBound::new(None, idle, Rate::from_kbit(17_000), 1544);
        Judge { bound, idle, packet_bytes: 1500, policed: false }
    }

    fn measured(blocks: &[f64]) -> Measurement {
        Measurement {
            judged: BLOCK * blocks.len() as u32,
            block: BLOCK,
            replies: 20 * blocks.len(),
            added_p95_ms: mean(blocks),
            blocks_ms: blocks.to_vec(),
            packets_per_s: 1400.0,
            throughput: Rate::from_kbit(16_800),
            ..Measurement::default()
        }
    }

    fn cake(kbit: u64) -> Cake {
        let accounting = crate::line::LinkType::Unknown.prior();
        Cake::new(Rate::from_kbit(kbit), accounting)
    }

    #[test]
    fn three_quiet_seconds_are_clean_and_three_loud_ones_bloated() {
        let idle = fixture::idle(4, 12.0);
        let judge = judge(&idle);
        assert_eq!(judge.verdict(&measured(&[1.0, 1.2]), Some(&cake(17_100))), None);
        assert!(judge.verdict(&measured(&[1.0, 1.2, 0.9]), Some(&cake(17_100))).unwrap().is_clean());
        let loud = judge.verdict(&measured(&[40.0, 44.0, 41.0]), Some(&cake(17_100)));
        assert!(matches!(loud, Some(Verdict::Bloated(Bloat::Delay { .. }))), "{loud:?}");
    }

    #[test]
    fn near_the_bound_it_takes_longer_and_may_stay_open() {
        let idle = fixture::idle(4, 12.0);
        let judge = judge(&idle);
        let near = [4.0, 5.5, 4.4, 5.2, 4.9, 5.6, 4.5];
        assert_eq!(judge.verdict(&measured(&near), Some(&cake(17_100))), None);
        let end = judge.final_verdict(&measured(&near), Some(&cake(17_100)));
        assert!(matches!(end, Verdict::Inconclusive(Doubtful::Unsure { .. })), "{end:?}");
    }

    #[test]
    fn a_queue_that_grows_is_bloat_before_it_has_passed_the_bound() {
        let idle = fixture::idle(4, 12.0);
        let judge = judge(&idle);
        let growing = judge.verdict(&measured(&[0.6, 1.5, 2.6, 3.4, 4.5]), Some(&cake(17_100)));
        assert!(matches!(growing, Some(Verdict::Bloated(Bloat::Growing { .. }))), "{growing:?}");
    }

    #[test]
    fn on_a_slow_line_a_packets_time_is_clean_and_no_growth() {
        let idle = fixture::idle(4, 25.0);
        // 12.1 ms a packet.
        let bound = CleanBound::new(None, &idle, Rate::from_kbit(1_155), 1749);
        let judge = Judge { bound, idle: &idle, packet_bytes: 1500, policed: false };
        let few = |blocks: &[f64]| Measurement { packets_per_s: 80.0, ..measured(blocks) };
        let near = [10.4, 11.2, 10.9, 11.4, 11.0, 11.3, 10.8];
        assert!(judge.verdict(&few(&near), Some(&cake(1_155))).unwrap().is_clean());
        // How probes fall between packets drifts.
        assert_eq!(judge.growth(&measured(&[6.2, 7.4, 8.8, 9.9, 11.2])), None);
        let queue = judge.growth(&measured(&[8.0, 10.1, 12.0, 13.9, 16.0]));
        assert!(matches!(queue, Some(Bloat::Growing { .. })), "{queue:?}");
    }

    #[test]
    fn a_line_that_was_not_filled_proves_nothing() {
        let idle = fixture::idle(4, 12.0);
        let judge = judge(&idle);
        let mut m = measured(&[0.5, 0.6, 0.4]);
        m.packets_per_s = 900.0;
        let starved = judge.verdict(&m, Some(&cake(17_100)));
        assert!(matches!(starved, Some(Verdict::Inconclusive(Doubtful::LoadLimited { .. }))), "{starved:?}");
        m.busiest_core = Some(0.97);
        let full = judge.verdict(&m, Some(&cake(17_100)));
        assert!(matches!(full, Some(Verdict::Inconclusive(Doubtful::CpuBound { .. }))), "{full:?}");
    }

    #[test]
    fn a_busy_line_silence_and_a_refusing_server_are_said() {
        let idle = fixture::idle(4, 12.0);
        let judge = judge(&idle);
        let mut m = measured(&[0.5, 0.6, 0.4]);
        m.foreign = Rate::from_kbit(2_000);
        assert_eq!(judge.verdict(&m, None), Some(Verdict::Inconclusive(Doubtful::LineBusy { foreign: m.foreign })));
        let mut m = measured(&[]);
        m.judged = BLOCK * 3;
        m.replies = 0;
        assert_eq!(judge.verdict(&m, None), Some(Verdict::Inconclusive(Doubtful::ReflectorsSilent)));
        m.trouble = Some(Trouble::ServerRefused { status: 429, retry_after_s: Some(60) });
        assert!(judge.verdict(&m, None).unwrap().to_string().contains("429"));
    }

    #[test]
    fn the_clean_bound_is_the_grade_the_noise_or_the_packet() {
        let idle = fixture::idle(4, 12.0);
        let fast = CleanBound::new(None, &idle, Rate::from_kbit(17_000), 1544);
        assert_eq!((fast.ms, fast.because), (5.0, Because::Default));
        let slow = CleanBound::new(None, &idle, Rate::from_kbit(500), 1749);
        assert_eq!(slow.because, Because::Packet);
        assert!((slow.ms - 28.0 * 1.25).abs() < 1.5, "{}", slow.ms);
        let mut radio = idle.clone();
        radio.noise_ms = 22.0;
        assert_eq!(CleanBound::new(None, &radio, Rate::from_kbit(17_000), 1544).because, Because::Noise);
        assert_eq!(CleanBound::new(Some(15.0), &idle, Rate::from_kbit(17_000), 1544).because, Because::User);
    }
}

#[cfg(test)]
mod error_rates;
