//! From samples to a measurement: what a trial has proved so far.

use super::extent::{self, BLOCK, SETTLE};
use super::idle::Idle;
use super::stats::{Fit, fit_line, mean, median, quantile};
use crate::line::{Accounting, Flows, Sample, Seen, Trial, Trouble};
use crate::units::{Direction, Rate};
use std::time::Duration;

/// A reflector whose median added delay is above the median of all of them by more than this, and this share of it, is
/// slow itself, not the line.
const LONE_SLOW_MS: f64 = 10.0;
const LONE_SLOW_SHARE: f64 = 0.25;
/// Fewer replies than this from the others condemn nobody.
const WITNESSES: f64 = 10.0;
/// What a probe takes on the line, IP bytes, there and back alike.
pub const PROBE_BYTES: u32 = 84;
/// How far back the throughput that people watch looks.
const LATELY: Duration = Duration::from_secs(1);
/// Somebody else's upload that begins late in a trial is little of the whole; in a window of this length it shows.
const FOREIGN_WINDOW: Duration = Duration::from_secs(2);

/// All samples of one trial, and what they amount to.
#[derive(Clone, Debug)]
pub struct Observation {
    trial: Trial,
    settle: Duration,
    pub samples: Vec<Sample>,
    /// Time of the newest sample.
    pub at: Duration,
}

/// What a trial proved, up to now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measurement {
    /// Judged time: without what it took to settle.
    pub judged: Duration,
    /// The length of a block, which is also that of the windows in which the delivered rate is looked at.
    pub block: Duration,
    pub replies: usize,
    /// Plain round-trip times.
    pub rtt_p50_ms: Option<f64>,
    pub rtt_p95_ms: Option<f64>,
    /// Each reply minus its reflector's idle quantile, pooled; the same quantile of that.
    pub added_p50_ms: Option<f64>,
    pub added_p95_ms: Option<f64>,
    /// What the second witness says of [`Measurement::added_p50_ms`], where it was asked often enough.
    pub witness_p50_ms: Option<f64>,
    /// The 95th percentile of the added delay in each whole block.
    pub blocks_ms: Vec<f64>,
    /// Reflectors that were slow or silent while the others were not.
    pub sick: Vec<usize>,
    /// The load's packets per second: what the line drains, if it is saturated.
    pub packets_per_s: f64,
    /// Probes per second: on a slow line they count.
    pub probes_per_s: f64,
    /// IP bytes of the load as a rate.
    pub throughput: Rate,
    /// Packets per second in each whole block, oldest first.
    pub windows: Vec<f64>,
    pub retransmits: u64,
    /// Retransmits that the shaper's own drops do not explain, as a share of the packets.
    pub line_loss: f64,
    pub sender_limited: f64,
    /// Share of the time in which CAKE held a queue. `None`: no CAKE of ours.
    pub backlog_share: Option<f64>,
    pub queue_delay_ms: Option<f64>,
    /// The busiest core, mean over the trial.
    pub busiest_core: Option<f64>,
    /// Other people's traffic in the load's direction.
    pub foreign: Rate,
    /// The most of it that any [`FOREIGN_WINDOW`] saw, of an upload. (A download's bytes count when a gap before them
    /// is filled, in jumps.)
    pub foreign_peak: Rate,
    pub trouble: Option<Trouble>,
}

impl Measurement {
    /// The rate that `packets_per_s` of the load and what went beside it amount to, as the accounting books them.
    pub fn booked(&self, accounting: &Accounting, packet_bytes: u32, packets_per_s: f64) -> Rate {
        let all = [(packets_per_s, packet_bytes)].into_iter().chain(self.beside());
        let bytes_per_s: f64 = all.map(|(per_s, bytes)| per_s * f64::from(accounting.wire_bytes(bytes))).sum();
        Rate::from_bits((bytes_per_s * 8.0).round() as u64)
    }

    /// What crossed the line beside the load, as packets per second and their IP bytes: probes, and other people's
    /// traffic, which counts as full-size packets.
    pub fn beside(&self) -> [(f64, u32); 2] {
        let full_size = 1500;
        [(self.probes_per_s, PROBE_BYTES), (self.foreign.bits() as f64 / 8.0 / f64::from(full_size), full_size)]
    }
}

impl Observation {
    pub fn new(trial: &Trial) -> Self {
        Self { trial: trial.clone(), settle: SETTLE, samples: Vec::new(), at: Duration::ZERO }
    }

    /// Leaves out this much at the beginning.
    pub fn settling(self, settle: Duration) -> Self {
        Self { settle, ..self }
    }

    pub fn see(&mut self, sample: &Sample) {
        self.at = self.at.max(sample.at);
        self.samples.push(sample.clone());
    }

    /// The load's direction; an idle trial is looked at as if it uploaded.
    pub fn direction(&self) -> Direction {
        self.trial.loads.first().map_or(Direction::Upload, |load| load.direction)
    }

    /// The newest reply's round-trip time and, where its reflector is known idle, its added delay.
    pub fn newest_reply(&self, idle: Option<&Idle>) -> Option<(f64, Option<f64>)> {
        self.samples.iter().rev().find_map(|sample| match sample.seen {
            Seen::Reply { reflector, rtt_ms } => {
                Some((rtt_ms, idle.and_then(|i| i.profile(reflector)).map(|p| rtt_ms - p.p50_ms)))
            }
            _ => None,
        })
    }

    /// Throughput over the last window, for people to watch.
    pub fn throughput_now(&self) -> Rate {
        let flows = self.flows(self.direction());
        let Some((now, newest)) = flows.last() else { return Rate::default() };
        let from = now.saturating_sub(LATELY);
        let Some((then, older)) = flows.iter().rev().find(|(at, _)| *at <= from) else { return Rate::default() };
        Rate::of(newest.ip_bytes.saturating_sub(older.ip_bytes) as f64, now.saturating_sub(*then))
    }

    /// Payload that got through in one direction after `settled`, as a rate.
    pub fn goodput_in(&self, direction: Direction, settled: Duration) -> Rate {
        let flows = self.flows(direction);
        let curve: Vec<_> = flows.iter().filter(|(at, _)| *at >= settled).collect();
        let (Some((from, first)), Some((to, last))) = (curve.first(), curve.last()) else { return Rate::default() };
        Rate::of(last.payload_bytes.saturating_sub(first.payload_bytes) as f64, to.saturating_sub(*from))
    }

    /// How long a block of this trial is, once it has settled: by what it carried just before.
    pub fn block(&self) -> Duration {
        if self.at < self.settle {
            return BLOCK;
        }
        let before: Vec<_> = self
            .flows(self.direction())
            .into_iter()
            .filter(|(at, _)| (self.settle / 2..=self.settle).contains(at))
            .collect();
        let (Some((from, first)), Some((to, last))) = (before.first(), before.last()) else { return BLOCK };
        extent::block(Rate::of(last.ip_bytes.saturating_sub(first.ip_bytes) as f64, to.saturating_sub(*from)))
    }

    /// Has it seen enough, in bytes too?
    pub fn is_enough(&self, measured: &Measurement) -> bool {
        let bytes = [Direction::Upload, Direction::Download].map(|direction| {
            let flows = self.flows(direction);
            let settled = flows.iter().find(|(at, _)| *at >= self.settle);
            settled.zip(flows.last()).map_or(0, |((_, first), (_, last))| last.ip_bytes.saturating_sub(first.ip_bytes))
        });
        extent::is_enough(self.trial.step, measured.judged, measured.block, bytes.iter().sum())
    }

    /// What has been proved so far. `idle` is `None` for the idle trial itself.
    pub fn measure(&self, idle: Option<&Idle>) -> Measurement {
        let judged = self.at.saturating_sub(self.settle);
        let mut m = Measurement { judged, block: self.block(), ..Measurement::default() };
        self.measure_delay(idle, &mut m);
        self.measure_flows(&mut m);
        self.measure_rest(&mut m);
        m
    }

    fn measure_delay(&self, idle: Option<&Idle>, m: &mut Measurement) {
        let replies: Vec<(Duration, usize, f64)> = self
            .samples
            .iter()
            .filter_map(|sample| match sample.seen {
                Seen::Reply { reflector, rtt_ms } if sample.at >= self.settle => Some((sample.at, reflector, rtt_ms)),
                _ => None,
            })
            .collect();
        if let Some(idle) = idle {
            m.sick = sick(&replies, idle);
        }
        let (witnessed, replies): (Vec<_>, Vec<_>) =
            replies.into_iter().partition(|(_, r, _)| idle.and_then(Idle::witness).is_some_and(|w| w.reflector == *r));
        if let Some(witness) = idle.and_then(Idle::witness).filter(|_| witnessed.len() as f64 >= WITNESSES) {
            let above: Vec<f64> = witnessed.iter().map(|(_, _, rtt)| rtt - witness.profile.p50_ms).collect();
            m.witness_p50_ms = quantile(&above, 0.5);
        }
        let replies: Vec<_> = replies.into_iter().filter(|(_, r, _)| !m.sick.contains(r)).collect();
        m.replies = replies.len();
        let all = self.probes(self.settle, self.at);
        m.probes_per_s = if m.judged.is_zero() { 0.0 } else { all / m.judged.as_secs_f64() };
        let rtts: Vec<f64> = replies.iter().map(|r| r.2).collect();
        m.rtt_p50_ms = quantile(&rtts, 0.5);
        m.rtt_p95_ms = quantile(&rtts, 0.95);
        let Some(idle) = idle else { return };
        let known = || replies.iter().filter_map(|(at, r, rtt)| idle.profile(*r).map(|p| (*at, *rtt, p)));
        let above_p50: Vec<f64> = known().map(|(_, rtt, p)| rtt - p.p50_ms).collect();
        m.added_p50_ms = quantile(&above_p50, 0.5);
        let above_p95: Vec<(Duration, f64)> = known().map(|(at, rtt, p)| (at, rtt - p.p95_ms)).collect();
        m.added_p95_ms = quantile(&above_p95.iter().map(|a| a.1).collect::<Vec<_>>(), 0.95);
        let whole = (m.judged.as_secs_f64() / m.block.as_secs_f64()).floor() as u32;
        for block in 0..whole {
            let (from, to) = (self.settle + m.block * block, self.settle + m.block * (block + 1));
            let inside: Vec<f64> = above_p95.iter().filter(|(at, _)| (from..to).contains(at)).map(|a| a.1).collect();
            m.blocks_ms.extend(quantile(&inside, 0.95));
        }
    }

    /// Of the loads in one direction.
    fn flows(&self, direction: Direction) -> Vec<(Duration, Flows)> {
        self.samples
            .iter()
            .filter_map(|sample| match &sample.seen {
                Seen::Flows(flows) if flows.direction == direction => Some((sample.at, *flows)),
                _ => None,
            })
            .collect()
    }

    /// The newest of them at that time.
    fn flows_by(&self, at: Duration, direction: Direction) -> Option<&Flows> {
        self.samples.iter().rev().find_map(|sample| match &sample.seen {
            Seen::Flows(flows) if sample.at <= at && flows.direction == direction => Some(flows),
            _ => None,
        })
    }

    fn measure_flows(&self, m: &mut Measurement) {
        let flows = self.flows(self.direction());
        let settled: Vec<_> = flows.iter().filter(|(at, _)| *at >= self.settle).collect();
        let (Some((from, first)), Some((to, last))) = (settled.first(), settled.last()) else { return };
        if to <= from {
            return;
        }
        let packets = |f: &Flows| f.packets as f64;
        // A straight line through the delivered curve: single late acknowledgements weigh less than in (last − first).
        let curve: Vec<_> = settled.iter().map(|(at, f)| (at.as_secs_f64(), packets(f))).collect();
        m.packets_per_s = fit_line(&curve).map_or(0.0, |fit: Fit| fit.slope.max(0.0));
        let packet_bytes = if last.packets == 0 { 0.0 } else { last.ip_bytes as f64 / packets(last) };
        m.throughput = Rate::of(m.packets_per_s * packet_bytes, Duration::from_secs(1));
        let mut open = *from;
        while open + m.block <= *to {
            let inside: Vec<_> = settled
                .iter()
                .filter(|(at, _)| (open..=open + m.block).contains(at))
                .map(|(at, f)| (at.as_secs_f64(), packets(f)))
                .collect();
            m.windows.extend(fit_line(&inside).map(|fit| fit.slope));
            open += m.block;
        }
        m.retransmits = last.retransmits - first.retransmits;
        let sent = (packets(last) - packets(first)).max(1.0);
        m.line_loss = (self.lost_on_line(*to) - self.lost_on_line(self.settle)) as f64 / sent;
        m.sender_limited = last.sender_limited;
    }

    /// Packets that the line has lost by then: repeats that no drop of our shaper explains. A drop is repeated a round
    /// trip later, so the repeats seen before a reading of the drops, less those, are short by what is still to be
    /// repeated, now more and now less: their highest difference is nearest to the truth, and never above it.
    fn lost_on_line(&self, by: Duration) -> u64 {
        let direction = self.direction();
        let shaped = self.queues().next().is_some();
        let (mut repeats, mut lost) = (0, 0);
        for sample in self.samples.iter().filter(|sample| sample.at <= by) {
            let dropped = match &sample.seen {
                Seen::Flows(flows) if flows.direction == direction => {
                    repeats = flows.retransmits;
                    if shaped {
                        continue;
                    }
                    0
                }
                Seen::Queue(queue) if queue.direction == direction => queue.dropped_packets,
                _ => continue,
            };
            lost = lost.max(repeats.saturating_sub(dropped));
        }
        lost
    }

    /// Packets that CAKE dropped in the load's direction after settling.
    fn dropped_by_shaper(&self) -> f64 {
        let counts: Vec<u64> =
            self.queues().filter(|(at, _)| *at >= self.settle).map(|(_, q)| q.dropped_packets).collect();
        match (counts.first(), counts.last()) {
            (Some(first), Some(last)) => (last - first) as f64,
            _ => 0.0,
        }
    }

    fn queues(&self) -> impl Iterator<Item = (Duration, &crate::line::Queue)> {
        let direction = self.direction();
        self.samples.iter().filter_map(move |sample| match &sample.seen {
            Seen::Queue(queue) if queue.direction == direction => Some((sample.at, queue)),
            _ => None,
        })
    }

    fn measure_rest(&self, m: &mut Measurement) {
        let queues: Vec<_> = self.queues().filter(|(at, _)| *at >= self.settle).map(|(_, q)| q).collect();
        if !queues.is_empty() {
            let held: Vec<f64> = queues.iter().map(|q| f64::from(u8::from(q.backlog_bytes > 0))).collect();
            m.backlog_share = mean(&held);
            m.queue_delay_ms = median(&queues.iter().map(|q| q.avg_delay_ms).collect::<Vec<_>>());
        }
        let cores: Vec<f64> = self
            .samples
            .iter()
            .filter_map(|s| match s.seen {
                Seen::Cpu { busiest_core } if s.at >= self.settle => Some(busiest_core),
                _ => None,
            })
            .collect();
        m.busiest_core = mean(&cores);
        m.trouble = self.samples.iter().rev().find_map(|s| match &s.seen {
            Seen::Trouble(trouble) => Some(trouble.clone()),
            _ => None,
        });
        self.measure_foreign(m);
    }

    /// Bytes in `direction` that are ours and not its load's: acknowledgements of a load the other way (one a
    /// packet at most), and what our own shaper has dropped behind the device's counter.
    fn other_way(&self, direction: Direction, from: Duration, to: Duration) -> f64 {
        const ACKNOWLEDGEMENT: f64 = 64.0;
        let at = |limit: Duration| self.flows_by(limit, direction.other()).map_or(0, |flows| flows.packets);
        let acknowledged = at(to).saturating_sub(at(from)) as f64 * ACKNOWLEDGEMENT;
        let dropped = if direction == Direction::Download { self.dropped_by_shaper() } else { 0.0 };
        let packet = f64::from(self.trial.loads.first().map_or(0, |load| load.mss + 40));
        acknowledged + dropped * packet
    }

    /// Probes that ended in this time, answered or not.
    fn probes(&self, from: Duration, to: Duration) -> f64 {
        let ended = |s: &&Sample| matches!(s.seen, Seen::Reply { .. } | Seen::Lost { .. });
        self.samples.iter().filter(|s| s.at > from && s.at <= to).filter(ended).count() as f64
    }

    /// IP bytes of all probes so far, one way.
    pub fn probe_bytes(&self) -> u64 {
        self.probes(Duration::ZERO, self.at) as u64 * u64::from(PROBE_BYTES)
    }

    /// IP bytes on the device since the trial began, everybody's: sent and received.
    pub fn device_bytes(&self) -> (u64, u64) {
        self.device().last().map_or((0, 0), |(_, sent, received)| (sent, received))
    }

    /// The device's counters: when, sent, received.
    fn device(&self) -> impl Iterator<Item = (Duration, u64, u64)> {
        self.samples.iter().filter_map(|s| match s.seen {
            Seen::Device { sent_bytes, received_bytes } => Some((s.at, sent_bytes, received_bytes)),
            _ => None,
        })
    }

    fn measure_foreign(&self, m: &mut Measurement) {
        let direction = self.direction();
        m.foreign = self.foreign(direction);
        if direction == Direction::Upload {
            let mut begins = self.settle;
            while begins + FOREIGN_WINDOW <= self.at {
                let seen = self.foreign_between(direction, begins, begins + FOREIGN_WINDOW);
                m.foreign_peak = m.foreign_peak.max(seen);
                begins += FOREIGN_WINDOW / 4;
            }
        }
    }

    /// Other people's traffic in one direction: what went through the device beyond ours.
    pub fn foreign(&self, direction: Direction) -> Rate {
        let end = self.device().last().map_or(Duration::ZERO, |last| last.0);
        self.foreign_between(direction, self.settle.min(end / 2), end)
    }

    fn foreign_between(&self, direction: Direction, from: Duration, to: Duration) -> Rate {
        let mut inside = self.device().filter(|(at, ..)| (from..=to).contains(at));
        let Some(first) = inside.next() else { return Rate::default() };
        let Some(last) = inside.last() else { return Rate::default() };
        let ours_at = |at: Duration| {
            self.flows_by(at, direction).map_or(0, |flows| match direction {
                Direction::Upload => flows.sent_ip_bytes,
                Direction::Download => flows.ip_bytes,
            })
        };
        let load = ours_at(last.0).saturating_sub(ours_at(first.0)) as f64;
        let probes = self.probes(first.0, last.0) * f64::from(PROBE_BYTES);
        let ours = load + probes + self.other_way(direction, first.0, last.0);
        let all = match direction {
            Direction::Upload => last.1 - first.1,
            Direction::Download => last.2 - first.2,
        };
        Rate::of((all as f64 - ours).max(0.0), last.0.saturating_sub(first.0))
    }
}

/// Reflectors that disagree with the majority: slow by themselves, or silent while the others answer.
fn sick(replies: &[(Duration, usize, f64)], idle: &Idle) -> Vec<usize> {
    let good = idle.good();
    if good.len() < 3 {
        return Vec::new();
    }
    let seen: Vec<(usize, usize, f64)> = good
        .iter()
        .filter_map(|&r| {
            let profile = idle.profile(r)?;
            let added: Vec<f64> = replies.iter().filter(|x| x.1 == r).map(|x| x.2 - profile.p50_ms).collect();
            Some((r, added.len(), median(&added).unwrap_or(f64::INFINITY)))
        })
        .collect();
    let usual = median(&seen.iter().map(|s| s.2).collect::<Vec<_>>()).unwrap_or_default();
    let answers = median(&seen.iter().map(|s| s.1 as f64).collect::<Vec<_>>()).unwrap_or_default();
    seen.into_iter()
        .filter(|(_, count, added)| {
            *added > usual * (1.0 + LONE_SLOW_SHARE) + LONE_SLOW_MS
                || (answers >= WITNESSES && (*count as f64) < answers / 2.0)
        })
        .map(|s| s.0)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibration::fixture;

    #[test]
    fn a_reflector_gone_slow_is_not_bloat() {
        let idle = fixture::idle(4, 12.0);
        let mut observation = Observation::new(&fixture::trial());
        for k in 0..40u32 {
            for reflector in 0..4 {
                let rtt_ms = if reflector == 2 { 92.0 } else { 12.5 };
                observation.see(&fixture::reply(200 * k, reflector, rtt_ms));
            }
        }
        let m = observation.measure(Some(&idle));
        assert_eq!(m.sick, vec![2]);
        assert!(m.added_p95_ms.unwrap() < 1.0, "{m:?}");
    }

    #[test]
    fn a_reflector_gone_silent_is_found_and_a_line_gone_slow_is_not_blamed_on_it() {
        let idle = fixture::idle(4, 12.0);
        let mut observation = Observation::new(&fixture::trial());
        for k in 0..40u32 {
            for reflector in 0..4 {
                if reflector != 1 {
                    observation.see(&fixture::reply(200 * k, reflector, 150.0));
                }
            }
        }
        let m = observation.measure(Some(&idle));
        assert_eq!(m.sick, vec![1]);
        assert!(m.added_p95_ms.unwrap() > 130.0);
    }

    #[test]
    fn the_delivered_rate_is_the_slope_of_the_delivered_curve() {
        let mut observation = Observation::new(&fixture::trial());
        for k in 0..=80u64 {
            observation.see(&fixture::flows(100 * k as u32, 150 * k, 0));
        }
        let m = observation.measure(None);
        assert!((m.packets_per_s - 1500.0).abs() < 1.0, "{}", m.packets_per_s);
        assert_eq!(m.throughput.kbit(), 18_000);
        assert_eq!(m.windows.len(), 6);
    }

    /// Every 100 ms: 40 packets more delivered, `dropped(k)` by CAKE so far, `repeats(k)` so far.
    fn loss(dropped: impl Fn(u64) -> u64, repeats: impl Fn(u64) -> u64) -> f64 {
        let mut observation = Observation::new(&fixture::trial());
        for k in 0..=80u64 {
            observation.see(&fixture::flows(100 * k as u32, 40 * k, repeats(k)));
            observation.see(&fixture::queue(100 * k as u32, dropped(k)));
        }
        observation.measure(None).line_loss
    }

    #[test]
    fn what_the_shaper_drops_is_not_lost_on_the_line_though_it_is_repeated_later() {
        // Eight drops just before the beginning is over are repeated just after it.
        let dropped = |k| if k < 15 { 3 * k } else { 3 * k + 8 };
        let repeats = |k: u64| if k < 17 { 3 * k.saturating_sub(1) } else { dropped(k - 1) };
        let none = loss(dropped, repeats);
        assert!(none < f64::EPSILON, "{none}");
        // A packet each 200 ms on top: 32 of 2600.
        let more = loss(dropped, |k| repeats(k) + k / 2);
        assert!((0.011..=0.0135).contains(&more), "{more}");
    }

    #[test]
    fn without_a_shaper_each_repeat_was_a_loss() {
        let mut observation = Observation::new(&fixture::trial());
        for k in 0..=80u64 {
            observation.see(&fixture::flows(100 * k as u32, 40 * k, k));
        }
        let lost = observation.measure(None).line_loss;
        assert!((lost - 65.0 / 2600.0).abs() < 1e-9, "{lost}");
    }

    #[test]
    fn other_peoples_traffic_is_what_the_device_sent_beyond_ours() {
        let mut observation = Observation::new(&fixture::trial());
        for k in 0..=80u64 {
            observation.see(&fixture::flows(100 * k as u32, 100 * k, 0));
            observation
                .see(&fixture::sample(100 * k as u32, Seen::Device { sent_bytes: 175_000 * k, received_bytes: 0 }));
        }
        let m = observation.measure(None);
        assert!((m.foreign.kbit() as i64 - 2000).abs() < 20, "{}", m.foreign);
    }
}
