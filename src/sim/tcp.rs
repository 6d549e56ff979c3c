//! A TCP sender as Linux has it: SACK, RACK loss detection, proportional rate reduction, tail loss probes, RTO.
//!
//! Pure: acknowledgements and timers go in, segments come out. Everything is counted in full segments.
//! After RFC 6298 (RTO), 6675 (SACK), 6937 (PRR), 8985 (RACK-TLP) and the choices of Linux 6.1.

use super::cubic::{Congestion, Progress, Window};
use super::packet::Ack;
use super::ranges::Ranges;
use std::collections::{BTreeSet, VecDeque};

#[derive(Debug)]
pub struct Sender {
    una: u32,
    next: u32,
    /// Segments the application has handed over.
    offered: u32,
    /// The most segments the receiver's window takes.
    receive_window: u32,
    /// From `una` to `next`.
    segments: VecDeque<Segment>,
    /// Transmissions in order of time, for RACK; outdated ones are skipped.
    transmissions: VecDeque<(u64, u32)>,
    sacked: Ranges,
    to_repeat: BTreeSet<u32>,
    lost: u32,
    repeats_under_way: u32,
    window: Window,
    congestion: Congestion,
    state: State,
    rtt: RoundTrip,
    /// The latest transmission known to have arrived.
    rack: (u64, u32),
    rack_rtt_ns: u64,
    timer: Option<(u64, Timer)>,
    backoff: u32,
    tail_probe: Option<TailProbe>,
    window_was_full: bool,
    most_in_flight: u32,
    counters: Counters,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub sent: u64,
    pub repeats: u64,
    pub timeouts: u64,
}

/// One segment to put on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToSend {
    pub segment: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Segment {
    sent_ns: u64,
    lost: bool,
    /// A repeat of it is under way.
    repeated: bool,
    /// It was sent more than once: no round-trip time of its own (Karn).
    ambiguous: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    Recovery { until: u32, window_before: u32, delivered: u32, sent: u32 },
    AfterTimeout { until: u32 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Timer {
    Retransmission,
    TailProbe,
    Reordering,
}

#[derive(Clone, Copy, Debug)]
struct TailProbe {
    end: u32,
    is_repeat: bool,
}

/// RFC 6298 with Linux's floor of 200 ms under the variation.
#[derive(Clone, Copy, Debug, Default)]
struct RoundTrip {
    smoothed_ns: Option<u64>,
    deviation_ns: u64,
    least_ns: u64,
}

const MS: u64 = 1_000_000;
const FIRST_RTO_NS: u64 = 1000 * MS;
const LEAST_VARIATION_NS: u64 = 200 * MS;
const MOST_RTO_NS: u64 = 120_000 * MS;
/// Duplicate acknowledgements that prove a loss without waiting (RFC 5681).
const DUPLICATES: u32 = 3;

impl Sender {
    pub fn new(congestion: Congestion, receive_window: u32) -> Self {
        Self {
            una: 0,
            next: 0,
            offered: u32::MAX,
            receive_window: receive_window.max(2),
            segments: VecDeque::new(),
            transmissions: VecDeque::new(),
            sacked: Ranges::default(),
            to_repeat: BTreeSet::new(),
            lost: 0,
            repeats_under_way: 0,
            window: Window::default(),
            congestion,
            state: State::Open,
            rtt: RoundTrip::default(),
            rack: (0, 0),
            rack_rtt_ns: 0,
            timer: None,
            backoff: 0,
            tail_probe: None,
            window_was_full: false,
            most_in_flight: 0,
            counters: Counters::default(),
        }
    }

    /// For an application with its own pace: all it has ever wanted to send.
    pub fn offer(&mut self, segments: u32) {
        self.offered = segments;
    }

    /// Segments that have arrived, out of order too.
    pub fn delivered(&self) -> u32 {
        self.una + self.sacked.count()
    }

    /// What has been sent for the first time.
    pub fn sent_new(&self) -> u32 {
        self.next
    }

    pub fn counters(&self) -> Counters {
        self.counters
    }

    pub fn window(&self) -> u32 {
        self.window.size
    }

    pub fn smoothed_rtt_ns(&self) -> Option<u64> {
        self.rtt.smoothed_ns
    }

    /// Nothing to send, or no receive window to send it in.
    pub fn is_sender_limited(&self) -> bool {
        self.next >= self.offered || self.next - self.una >= self.receive_window
    }

    pub fn timer_ns(&self) -> Option<u64> {
        self.timer.map(|(at_ns, _)| at_ns)
    }

    /// The next segment that may leave now: repeats first.
    pub fn next_to_send(&mut self, now_ns: u64) -> Option<ToSend> {
        if self.in_flight() >= self.window.size {
            return None;
        }
        if let Some(segment) = self.to_repeat.pop_first() {
            self.repeat(segment, now_ns);
            return Some(ToSend { segment });
        }
        (!self.is_sender_limited()).then(|| self.send_new(now_ns))
    }

    /// The caller has sent all it could or wanted: was it the window that stopped it?
    pub fn pause(&mut self) {
        let in_flight = self.in_flight();
        self.most_in_flight = self.most_in_flight.max(in_flight);
        self.window_was_full = in_flight >= self.window.size;
    }

    pub fn on_ack(&mut self, ack: &Ack, now_ns: u64) {
        let delivered_before = self.delivered();
        let una_before = self.una;
        let lost_before = self.lost;
        let rack_before = self.rack;
        let mut news = News::default();
        self.acknowledge(ack, &mut news);
        self.selectively_acknowledge(ack, &mut news);
        let delivered = self.delivered() - delivered_before;
        let advanced = self.una > una_before;
        if self.rack != rack_before {
            self.rack_rtt_ns = now_ns - self.rack.0;
        }
        if let Some(oldest_ns) = news.oldest_sent_ns {
            self.rtt.add(now_ns - oldest_ns);
        }
        let progress = Progress {
            now_ns,
            acked: delivered,
            rtt_ns: news.latest_sent_ns.map(|sent_ns| now_ns - sent_ns),
            una: self.una,
            next: self.next,
        };
        self.congestion.on_rtt(&mut self.window, &progress);
        if advanced {
            self.backoff = 0;
        }
        let waiting_for_order = self.detect_losses(now_ns);
        self.settle_tail_probe();
        self.leave_repair();
        if self.lost > 0 && matches!(self.state, State::Open) {
            self.enter_recovery();
        }
        let newly_lost = self.lost > lost_before;
        match self.state {
            State::Recovery { .. } => self.reduce_window(delivered, advanced && !newly_lost),
            State::Open | State::AfterTimeout { .. } => {
                if advanced && self.is_window_limited() {
                    self.congestion.grow(&mut self.window, &progress);
                }
            }
        }
        self.set_timer(now_ns, waiting_for_order, delivered > 0);
    }

    /// The timer is due. A tail probe is returned at once: it may exceed the window.
    pub fn on_timer(&mut self, now_ns: u64) -> Option<ToSend> {
        let (_, timer) = self.timer.take()?;
        match timer {
            Timer::Reordering => {
                let waiting = self.detect_losses(now_ns);
                if self.lost > 0 && matches!(self.state, State::Open) {
                    self.enter_recovery();
                    self.reduce_window(1, false);
                }
                self.set_timer(now_ns, waiting, true);
                None
            }
            Timer::TailProbe => {
                let probe = self.probe_tail(now_ns);
                self.timer = Some((now_ns + self.rto_ns(), Timer::Retransmission));
                probe
            }
            Timer::Retransmission => {
                self.time_out();
                self.timer = Some((now_ns + self.rto_ns(), Timer::Retransmission));
                None
            }
        }
    }

    fn in_flight(&self) -> u32 {
        (self.next - self.una + self.repeats_under_way).saturating_sub(self.sacked.count() + self.lost)
    }

    fn is_window_limited(&self) -> bool {
        self.window_was_full || (self.window.in_slow_start() && self.window.size < 2 * self.most_in_flight)
    }

    fn send_new(&mut self, now_ns: u64) -> ToSend {
        let segment = self.next;
        self.next += 1;
        self.segments.push_back(Segment { sent_ns: now_ns, ..Segment::default() });
        self.sent(segment, now_ns);
        ToSend { segment }
    }

    fn repeat(&mut self, segment: u32, now_ns: u64) {
        let state = &mut self.segments[(segment - self.una) as usize];
        state.sent_ns = now_ns;
        state.ambiguous = true;
        if !state.repeated {
            state.repeated = true;
            self.repeats_under_way += 1;
        }
        self.counters.repeats += 1;
        self.sent(segment, now_ns);
    }

    fn sent(&mut self, segment: u32, now_ns: u64) {
        self.transmissions.push_back((now_ns, segment));
        self.counters.sent += 1;
        if let State::Recovery { sent, .. } = &mut self.state {
            *sent += 1;
        }
        if self.timer.is_none() {
            self.set_timer(now_ns, None, true);
        }
    }

    fn acknowledge(&mut self, ack: &Ack, news: &mut News) {
        while self.una < ack.next.min(self.next) {
            let segment = self.una;
            let Some(state) = self.segments.pop_front() else { break };
            if !self.sacked.contains(segment) {
                self.arrived(segment, state, news);
            }
            self.una += 1;
        }
        self.sacked.remove_below(self.una);
    }

    fn selectively_acknowledge(&mut self, ack: &Ack, news: &mut News) {
        for &(start, end) in ack.blocks() {
            let (start, end) = (start.max(self.una), end.min(self.next));
            if start >= end {
                continue;
            }
            let mut fresh = Vec::new();
            self.sacked.insert(start, end, |segment| fresh.push(segment));
            for segment in fresh {
                let at = (segment - self.una) as usize;
                let state = self.segments[at];
                self.arrived(segment, state, news);
                self.segments[at].lost = false;
                self.segments[at].repeated = false;
            }
        }
    }

    fn arrived(&mut self, segment: u32, state: Segment, news: &mut News) {
        if state.lost {
            self.lost -= 1;
            self.to_repeat.remove(&segment);
        }
        if state.repeated {
            self.repeats_under_way -= 1;
        }
        if !state.ambiguous {
            news.oldest_sent_ns = Some(news.oldest_sent_ns.map_or(state.sent_ns, |ns| ns.min(state.sent_ns)));
            news.latest_sent_ns = Some(news.latest_sent_ns.map_or(state.sent_ns, |ns| ns.max(state.sent_ns)));
        }
        self.rack = self.rack.max((state.sent_ns, segment));
    }

    /// RACK: what was sent before something that has arrived is lost, at once when that is beyond doubt, else
    /// after a reordering window. Returns when to look again.
    fn detect_losses(&mut self, now_ns: u64) -> Option<u64> {
        let certain = !matches!(self.state, State::Open) || self.sacked.count() >= DUPLICATES;
        let patience_ns = if certain { 0 } else { (self.rtt.least_ns / 4).min(self.rtt.smoothed_ns.unwrap_or(0) / 8) };
        while let Some(&(sent_ns, segment)) = self.transmissions.front() {
            let state = segment.checked_sub(self.una).and_then(|at| self.segments.get(at as usize).copied());
            let under_way = state.is_some_and(|state| {
                state.sent_ns == sent_ns && (!state.lost || state.repeated) && !self.sacked.contains(segment)
            });
            if under_way {
                if (sent_ns, segment) >= self.rack {
                    return None;
                }
                let give_up_ns = sent_ns + self.rack_rtt_ns + patience_ns;
                if patience_ns > 0 && give_up_ns > now_ns {
                    return Some(give_up_ns);
                }
                self.mark_lost(segment);
            }
            self.transmissions.pop_front();
        }
        None
    }

    fn mark_lost(&mut self, segment: u32) {
        let state = &mut self.segments[(segment - self.una) as usize];
        if state.repeated {
            state.repeated = false;
            self.repeats_under_way -= 1;
        }
        if !state.lost {
            state.lost = true;
            self.lost += 1;
        }
        self.to_repeat.insert(segment);
    }

    fn enter_recovery(&mut self) {
        self.window.threshold = self.congestion.on_loss(&self.window);
        self.state = State::Recovery { until: self.next, window_before: self.window.size, delivered: 0, sent: 0 };
    }

    /// PRR: down to the threshold in proportion to what arrives; slow start up to it when too little is left.
    fn reduce_window(&mut self, newly_delivered: u32, is_clean: bool) {
        let in_flight = self.in_flight();
        let threshold = self.window.threshold;
        let State::Recovery { window_before, delivered, sent, .. } = &mut self.state else { return };
        if newly_delivered == 0 {
            return;
        }
        *delivered += newly_delivered;
        let may_send = if in_flight > threshold {
            (u64::from(threshold) * u64::from(*delivered)).div_ceil(u64::from((*window_before).max(1))) as i64
                - i64::from(*sent)
        } else {
            let may_send = (i64::from(*delivered) - i64::from(*sent)).max(i64::from(newly_delivered));
            (may_send + i64::from(is_clean)).min(i64::from(threshold - in_flight))
        };
        // The first repeat leaves in any case.
        let may_send = may_send.max(i64::from(*sent == 0));
        self.window.size = (i64::from(in_flight) + may_send).max(1) as u32;
    }

    fn leave_repair(&mut self) {
        match self.state {
            State::Recovery { until, .. } if self.una >= until => {
                self.window.size = self.window.threshold;
                self.state = State::Open;
                self.most_in_flight = 0;
            }
            State::AfterTimeout { until } if self.una >= until => self.state = State::Open,
            _ => {}
        }
    }

    fn time_out(&mut self) {
        if self.una == self.next {
            return;
        }
        self.counters.timeouts += 1;
        if !matches!(self.state, State::AfterTimeout { .. }) {
            self.window.threshold = self.congestion.on_loss(&self.window);
            self.congestion.on_timeout();
        }
        self.state = State::AfterTimeout { until: self.next };
        for segment in self.una..self.next {
            if !self.sacked.contains(segment) {
                self.mark_lost(segment);
            }
        }
        self.transmissions.clear();
        self.window.size = self.in_flight() + 1;
        self.backoff += 1;
        self.tail_probe = None;
    }

    fn probe_tail(&mut self, now_ns: u64) -> Option<ToSend> {
        if self.una == self.next {
            return None;
        }
        let fresh = !self.is_sender_limited();
        let sent = if fresh {
            self.send_new(now_ns)
        } else {
            let segment = self.next - 1;
            self.repeat(segment, now_ns);
            ToSend { segment }
        };
        self.tail_probe = Some(TailProbe { end: self.next, is_repeat: !fresh });
        Some(sent)
    }

    /// A probe that repaired the tail all by itself was a loss, and counts as one.
    fn settle_tail_probe(&mut self) {
        let Some(probe) = self.tail_probe.filter(|probe| self.una >= probe.end) else { return };
        self.tail_probe = None;
        if probe.is_repeat && self.state == State::Open {
            self.window.threshold = self.congestion.on_loss(&self.window);
            self.window.size = self.window.threshold;
        }
    }

    fn set_timer(&mut self, now_ns: u64, reordering_ns: Option<u64>, progress: bool) {
        if let Some(at_ns) = reordering_ns {
            self.timer = Some((at_ns, Timer::Reordering));
        } else if self.una == self.next {
            self.timer = None;
        } else if progress || self.timer.is_none_or(|(_, timer)| timer == Timer::Reordering) {
            let rto_ns = now_ns + self.rto_ns();
            self.timer = Some(match self.tail_probe_ns() {
                Some(after_ns) if now_ns + after_ns < rto_ns => (now_ns + after_ns, Timer::TailProbe),
                _ => (rto_ns, Timer::Retransmission),
            });
        }
    }

    /// Two round trips; more where a lone segment may meet a delayed acknowledgement.
    fn tail_probe_ns(&self) -> Option<u64> {
        let smoothed_ns = self.rtt.smoothed_ns?;
        let possible = self.state == State::Open && self.sacked.is_empty() && self.tail_probe.is_none();
        possible.then(|| 2 * smoothed_ns + if self.next - self.una == 1 { LEAST_VARIATION_NS } else { 8 * MS })
    }

    fn rto_ns(&self) -> u64 {
        let base = self
            .rtt
            .smoothed_ns
            .map_or(FIRST_RTO_NS, |smoothed_ns| smoothed_ns + (4 * self.rtt.deviation_ns).max(LEAST_VARIATION_NS));
        (base << self.backoff.min(10)).min(MOST_RTO_NS)
    }
}

/// When the segments that an acknowledgement is about were sent, the ambiguous ones left out.
#[derive(Clone, Copy, Debug, Default)]
struct News {
    oldest_sent_ns: Option<u64>,
    latest_sent_ns: Option<u64>,
}

impl RoundTrip {
    fn add(&mut self, sample_ns: u64) {
        match &mut self.smoothed_ns {
            None => {
                self.smoothed_ns = Some(sample_ns);
                self.deviation_ns = sample_ns / 2;
                self.least_ns = sample_ns;
            }
            Some(smoothed_ns) => {
                let off_ns = sample_ns.abs_diff(*smoothed_ns);
                // A fall in delay raises the deviation only slowly, as Linux has it.
                let weight = if sample_ns < *smoothed_ns && off_ns > self.deviation_ns { 32 } else { 4 };
                self.deviation_ns =
                    (self.deviation_ns as i64 + (off_ns as i64 - self.deviation_ns as i64) / weight) as u64;
                *smoothed_ns = (*smoothed_ns as i64 + (sample_ns as i64 - *smoothed_ns as i64) / 8) as u64;
                self.least_ns = self.least_ns.min(sample_ns);
            }
        }
    }
}
