//! A TCP sender as Linux has it: SACK, RACK loss detection, proportional rate reduction, tail loss probes, RTO.
//!
//! Pure: acknowledgements and timers go in, segments come out. Everything is counted in full segments.
//! After RFC 6298 (RTO), 6675 (SACK), 6937 (PRR), 8985 (RACK-TLP) and the choices of Linux 6.1.

mod scoreboard;

use super::cubic::{Congestion, Progress, Window};
use super::packet::Ack;
use scoreboard::Scoreboard;

#[derive(Debug)]
pub struct Sender {
    board: Scoreboard,
    /// Segments the application has handed over.
    offered: u32,
    /// The most segments the receiver's window takes.
    receive_window: u32,
    window: Window,
    congestion: Congestion,
    state: State,
    rtt: RoundTrip,
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
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// PRR: what was delivered and sent since the loss was found.
    Recovery {
        until: u32,
        window_before: u32,
        delivered: u32,
        sent: u32,
    },
    AfterTimeout {
        until: u32,
        /// When it was called, and what it cost: an answer to something older proves it wrong.
        at_ns: u64,
        before: Window,
    },
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
#[allow(clippy::struct_field_names)]
struct RoundTrip {
    smoothed_ns: Option<u64>,
    deviation_ns: u64,
    least_ns: u64,
}

const MS: u64 = 1_000_000;
const FIRST_RTO_NS: u64 = 1000 * MS;
const LEAST_VARIATION_NS: u64 = 200 * MS;
const MOST_RTO_NS: u64 = 120_000 * MS;
/// Two jiffies (at 250 Hz) on top of a tail probe's two round trips.
const TAIL_PROBE_EXTRA_NS: u64 = 8 * MS;
/// Duplicate acknowledgements that prove a loss without waiting (RFC 5681).
const DUPLICATES: u32 = 3;

impl Sender {
    pub fn new(congestion: Congestion, receive_window: u32) -> Self {
        Self {
            board: Scoreboard::default(),
            offered: u32::MAX,
            receive_window: receive_window.max(2),
            window: Window::default(),
            congestion,
            state: State::Open,
            rtt: RoundTrip::default(),
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
        self.board.delivered()
    }

    /// Segments sent for the first time.
    pub fn sent_new(&self) -> u32 {
        self.board.next()
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
        self.board.next() >= self.offered || self.board.outstanding() >= self.receive_window
    }

    pub fn timer_ns(&self) -> Option<u64> {
        self.timer.map(|(at_ns, _)| at_ns)
    }

    /// The number of the next segment that may leave now: repeats first.
    pub fn next_to_send(&mut self, now_ns: u64) -> Option<u32> {
        if self.board.in_flight() >= self.window.size {
            return None;
        }
        if let Some(segment) = self.board.take_repeat() {
            self.repeat(segment, now_ns);
            return Some(segment);
        }
        (!self.is_sender_limited()).then(|| self.send_new(now_ns))
    }

    /// The caller has sent all it could or wanted: was it the window that stopped it?
    pub fn pause(&mut self) {
        let in_flight = self.board.in_flight();
        self.most_in_flight = self.most_in_flight.max(in_flight);
        self.window_was_full = in_flight >= self.window.size;
    }

    pub fn on_ack(&mut self, ack: &Ack, now_ns: u64) {
        let lost_before = self.board.lost();
        let news = self.board.on_ack(ack, now_ns);
        if let Some(oldest_ns) = news.oldest_sent_ns {
            self.rtt.add(now_ns - oldest_ns);
        }
        let progress = Progress {
            now_ns,
            acked: news.delivered,
            rtt_ns: news.latest_sent_ns.map(|sent_ns| now_ns - sent_ns),
            una: self.board.una(),
            next: self.board.next(),
        };
        self.congestion.on_rtt(&mut self.window, &progress);
        if news.advanced {
            self.backoff = 0;
            self.undo_timeout(ack);
        }
        let look_again_ns = self.board.detect_losses(self.patience_ns(), now_ns);
        self.settle_tail_probe();
        self.leave_repair();
        if self.board.lost() > 0 && self.state == State::Open {
            self.enter_recovery();
        }
        let newly_lost = self.board.lost() > lost_before;
        match self.state {
            State::Recovery { .. } => self.reduce_window(news.delivered, news.advanced && !newly_lost),
            State::Open | State::AfterTimeout { .. } => {
                if news.advanced && self.is_window_limited() {
                    self.congestion.grow(&mut self.window, &progress);
                }
            }
        }
        self.set_timer(now_ns, look_again_ns, news.delivered > 0);
    }

    /// The timer is due. A tail probe is returned at once: it may exceed the window.
    pub fn on_timer(&mut self, now_ns: u64) -> Option<u32> {
        let (_, timer) = self.timer.take()?;
        match timer {
            Timer::Reordering => {
                let look_again_ns = self.board.detect_losses(self.patience_ns(), now_ns);
                if self.board.lost() > 0 && self.state == State::Open {
                    self.enter_recovery();
                    self.reduce_window(1, false);
                }
                self.set_timer(now_ns, look_again_ns, true);
                None
            }
            Timer::TailProbe => {
                let probe = self.probe_tail(now_ns);
                self.timer = Some((now_ns + self.rto_ns(), Timer::Retransmission));
                probe
            }
            Timer::Retransmission => {
                self.time_out(now_ns);
                self.timer = Some((now_ns + self.rto_ns(), Timer::Retransmission));
                None
            }
        }
    }

    fn is_window_limited(&self) -> bool {
        self.window_was_full || (self.window.in_slow_start() && self.window.size < 2 * self.most_in_flight)
    }

    fn send_new(&mut self, now_ns: u64) -> u32 {
        let segment = self.board.send_new(now_ns);
        self.sent(now_ns);
        segment
    }

    fn repeat(&mut self, segment: u32, now_ns: u64) {
        self.board.send_again(segment, now_ns);
        self.counters.repeats += 1;
        self.sent(now_ns);
    }

    fn sent(&mut self, now_ns: u64) {
        self.counters.sent += 1;
        if let State::Recovery { sent, .. } = &mut self.state {
            *sent += 1;
        }
        if self.timer.is_none() {
            self.set_timer(now_ns, None, true);
        }
    }

    /// RACK's reordering window: none once a loss is certain, else a quarter of the least round trip.
    fn patience_ns(&self) -> u64 {
        if self.state != State::Open || self.board.sacked() >= DUPLICATES {
            0
        } else {
            (self.rtt.least_ns / 4).min(self.rtt.smoothed_ns.unwrap_or(0) / 8)
        }
    }

    fn enter_recovery(&mut self) {
        self.window.threshold = self.congestion.on_loss(&self.window);
        self.state =
            State::Recovery { until: self.board.next(), window_before: self.window.size, delivered: 0, sent: 0 };
    }

    /// PRR: down to the threshold in proportion to what arrives; slow start up to it when too little is left.
    fn reduce_window(&mut self, newly_delivered: u32, is_clean: bool) {
        let in_flight = self.board.in_flight();
        let threshold = self.window.threshold;
        let State::Recovery { window_before, delivered, sent, .. } = &mut self.state else { return };
        if newly_delivered == 0 {
            return;
        }
        *delivered += newly_delivered;
        let may_send = if in_flight > threshold {
            let share = u64::from(threshold) * u64::from(*delivered);
            share.div_ceil(u64::from((*window_before).max(1))) as i64 - i64::from(*sent)
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
            State::Recovery { until, .. } if self.board.una() >= until => {
                self.window.size = self.window.threshold;
                self.state = State::Open;
                self.most_in_flight = 0;
            }
            State::AfterTimeout { until, .. } if self.board.una() >= until => self.state = State::Open,
            _ => {}
        }
    }

    fn time_out(&mut self, now_ns: u64) {
        if self.board.outstanding() == 0 {
            return;
        }
        let (at_ns, before) = match self.state {
            State::AfterTimeout { at_ns, before, .. } => (at_ns, before),
            State::Open | State::Recovery { .. } => {
                let before = self.window;
                self.window.threshold = self.congestion.on_loss(&self.window);
                self.congestion.on_timeout();
                (now_ns, before)
            }
        };
        self.state = State::AfterTimeout { until: self.board.next(), at_ns, before };
        self.board.give_up_all();
        self.window.size = self.board.in_flight() + 1;
        self.backoff += 1;
        self.tail_probe = None;
    }

    /// The echoed timestamp is from before the timeout: the original has arrived, only late (RFC 4015).
    fn undo_timeout(&mut self, ack: &Ack) {
        if let State::AfterTimeout { at_ns, before, .. } = self.state
            && ack.echo_ns < at_ns
        {
            self.board.nothing_was_lost();
            self.window.size = self.window.size.max(before.size);
            self.window.threshold = self.window.threshold.max(before.threshold);
            self.state = State::Open;
        }
    }

    fn probe_tail(&mut self, now_ns: u64) -> Option<u32> {
        if self.board.outstanding() == 0 {
            return None;
        }
        let is_repeat = self.is_sender_limited();
        let segment = if is_repeat {
            let last = self.board.next() - 1;
            self.repeat(last, now_ns);
            last
        } else {
            self.send_new(now_ns)
        };
        self.tail_probe = Some(TailProbe { end: self.board.next(), is_repeat });
        Some(segment)
    }

    /// A probe that repaired the tail all by itself was a loss, and counts as one.
    fn settle_tail_probe(&mut self) {
        let Some(probe) = self.tail_probe.filter(|probe| self.board.una() >= probe.end) else { return };
        self.tail_probe = None;
        if probe.is_repeat && self.state == State::Open {
            self.window.threshold = self.congestion.on_loss(&self.window);
            self.window.size = self.window.threshold;
        }
    }

    fn set_timer(&mut self, now_ns: u64, look_again_ns: Option<u64>, progress: bool) {
        if let Some(at_ns) = look_again_ns {
            self.timer = Some((at_ns, Timer::Reordering));
        } else if self.board.outstanding() == 0 {
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
        let possible = self.state == State::Open && self.board.sacked() == 0 && self.tail_probe.is_none();
        let extra_ns = if self.board.outstanding() == 1 { LEAST_VARIATION_NS } else { TAIL_PROBE_EXTRA_NS };
        possible.then_some(2 * smoothed_ns + extra_ns)
    }

    fn rto_ns(&self) -> u64 {
        let base_ns = self
            .rtt
            .smoothed_ns
            .map_or(FIRST_RTO_NS, |smoothed_ns| smoothed_ns + (4 * self.rtt.deviation_ns).max(LEAST_VARIATION_NS));
        (base_ns << self.backoff.min(10)).min(MOST_RTO_NS)
    }
}

impl RoundTrip {
    fn add(&mut self, sample_ns: u64) {
        let Some(smoothed_ns) = self.smoothed_ns else {
            *self = Self { smoothed_ns: Some(sample_ns), deviation_ns: sample_ns / 2, least_ns: sample_ns };
            return;
        };
        let (sample, smoothed, deviation) = (sample_ns as i64, smoothed_ns as i64, self.deviation_ns as i64);
        let off = (sample - smoothed).abs();
        // A fall in delay raises the deviation only slowly, as Linux has it.
        let weight = if sample < smoothed && off > deviation { 32 } else { 4 };
        self.deviation_ns = (deviation + (off - deviation) / weight) as u64;
        self.smoothed_ns = Some((smoothed + (sample - smoothed) / 8) as u64);
        self.least_ns = self.least_ns.min(sample_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::super::cubic::Cubic;
    use super::super::receiver::Receiver;
    use super::*;

    /// A wire of `rtt_ms` that loses what it is told to; what the sender did, in order.
    struct Wire {
        sender: Sender,
        receiver: Receiver,
        lose: Vec<u32>,
        rtt_ms: u64,
        /// Packets arrive no closer than this.
        apart_ms: u64,
        now_ns: u64,
        forward: Vec<(u64, u32, u64)>,
        back: Vec<(u64, Ack)>,
        sent: Vec<(u64, u32)>,
    }

    impl Wire {
        fn new(segments: u32, lose: &[u32]) -> Self {
            let mut sender = Sender::new(Congestion::Cubic(Cubic::default()), 1000);
            sender.offer(segments);
            Self {
                sender,
                receiver: Receiver::default(),
                lose: lose.to_vec(),
                rtt_ms: 20,
                apart_ms: 0,
                now_ns: 0,
                forward: Vec::new(),
                back: Vec::new(),
                sent: Vec::new(),
            }
        }

        fn put(&mut self, segment: u32) {
            self.sent.push((self.now_ns / MS, segment));
            // Each loss happens once.
            if let Some(at) = self.lose.iter().position(|lost| *lost == segment) {
                self.lose.remove(at);
            } else {
                let earliest_ns = self.forward.last().map_or(0, |last| last.0 + self.apart_ms * MS);
                let at_ns = (self.now_ns + self.rtt_ms / 2 * MS).max(earliest_ns);
                self.forward.push((at_ns, segment, self.now_ns));
            }
        }

        /// In steps of a millisecond.
        fn run(&mut self, until_ms: u64) {
            while self.now_ns < until_ms * MS {
                if self.sender.timer_ns().is_some_and(|at_ns| at_ns <= self.now_ns)
                    && let Some(probe) = self.sender.on_timer(self.now_ns)
                {
                    self.put(probe);
                }
                while let Some(segment) = self.sender.next_to_send(self.now_ns) {
                    self.put(segment);
                }
                self.sender.pause();
                self.now_ns += MS;
                let now_ns = self.now_ns;
                let arrived: Vec<_> = self.forward.extract_if(.., |packet| packet.0 <= now_ns).collect();
                for (_, segment, sent_ns) in arrived {
                    if let Some(ack) = self.receiver.on_data(segment, sent_ns, now_ns) {
                        self.back.push((now_ns + self.rtt_ms / 2 * MS, ack));
                    }
                }
                if self.receiver.delayed_until_ns().is_some_and(|at_ns| at_ns <= now_ns) {
                    let ack = self.receiver.acknowledge();
                    self.back.push((now_ns + self.rtt_ms / 2 * MS, ack));
                }
                let acks: Vec<_> = self.back.extract_if(.., |packet| packet.0 <= now_ns).collect();
                for (_, ack) in acks {
                    self.sender.on_ack(&ack, now_ns);
                }
            }
        }
    }

    #[test]
    fn slow_start_fills_the_path_and_stops_when_done() {
        let mut wire = Wire::new(70, &[]);
        wire.run(200);
        let by_round: Vec<usize> =
            (0..3).map(|round| wire.sent.iter().filter(|sent| sent.0 / 20 == round).count()).collect();
        assert_eq!(by_round, [10, 20, 40]);
        assert_eq!((wire.sender.delivered(), wire.sender.counters()), (70, Counters { sent: 70, repeats: 0 }));
        assert_eq!(wire.sender.timer_ns(), None);
    }

    #[test]
    fn one_loss_is_one_repeat_and_a_window_of_seven_tenths() {
        let mut wire = Wire::new(400, &[30]);
        wire.run(2000);
        assert_eq!(wire.sender.delivered(), 400);
        assert_eq!(wire.sender.counters().repeats, 1);
        let repeat = wire.sent.iter().filter(|sent| sent.1 == 30).map(|sent| sent.0).collect::<Vec<_>>();
        // Found a round trip after it was sent, with the first acknowledgement of what was sent behind it.
        assert_eq!((repeat.len(), repeat[1] - repeat[0]), (2, 20));
        assert!((24..=29).contains(&wire.sender.window.threshold), "{}", wire.sender.window.threshold);
    }

    #[test]
    fn a_burst_of_losses_is_repaired_without_a_timeout() {
        let lost: Vec<u32> = (40..60).collect();
        let mut wire = Wire::new(400, &lost);
        wire.run(2000);
        assert_eq!((wire.sender.delivered(), wire.sender.counters().repeats), (400, 20));
        let end_ms = wire.sent.last().expect("it sent").0;
        assert!(end_ms < 400, "{end_ms} ms: there was a timeout");
    }

    #[test]
    fn a_lost_tail_is_probed_for() {
        let mut wire = Wire::new(40, &[38, 39]);
        wire.run(1000);
        assert_eq!(wire.sender.delivered(), 40);
        let probe = wire.sent.iter().filter(|sent| sent.1 == 39).nth(1).expect("a probe").0;
        let sent = wire.sent.iter().find(|sent| sent.1 == 39).expect("sent").0;
        // Two round trips and two jiffies after the last acknowledgement, long before a timeout.
        assert!((50..=80).contains(&(probe - sent)), "{}", probe - sent);
    }

    #[test]
    fn when_all_is_lost_the_timeout_begins_again_with_one() {
        let all: Vec<u32> = (0..10).collect();
        let mut wire = Wire::new(30, &all);
        wire.run(1010);
        assert_eq!((wire.sender.window(), wire.sent.last()), (1, Some(&(1000, 0))));
        wire.run(2000);
        assert_eq!(wire.sender.delivered(), 30);
    }

    #[test]
    fn a_timeout_that_was_wrong_is_undone() {
        let mut wire = Wire::new(60, &[]);
        wire.run(30);
        let window = wire.sender.window();
        // The path gets much longer than the timeout, and slow.
        wire.rtt_ms = 600;
        wire.apart_ms = 5;
        wire.run(1500);
        assert_eq!(wire.sender.delivered(), 60);
        assert_eq!(wire.sender.counters().repeats, 1);
        assert!(wire.sender.window() >= window, "{} after {window}", wire.sender.window());
    }
}
