//! What is under way: which segments were sent when, which have arrived, which are lost.

use crate::sim::packet::Ack;
use crate::sim::ranges::Ranges;
use std::collections::{BTreeSet, VecDeque};

#[derive(Debug, Default)]
pub struct Scoreboard {
    /// First unacknowledged segment, and the next new one.
    una: u32,
    next: u32,
    /// From `una` to `next`.
    segments: VecDeque<Segment>,
    /// Transmissions in order of time; outdated ones are skipped.
    transmissions: VecDeque<Transmission>,
    sacked: Ranges,
    to_repeat: BTreeSet<u32>,
    lost: u32,
    repeats_under_way: u32,
    /// The latest transmission known to have arrived, and how long it took.
    latest: Transmission,
    latest_rtt_ns: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Transmission {
    sent_ns: u64,
    segment: u32,
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

/// What an acknowledgement brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct News {
    /// Segments that have arrived, out of order too.
    pub delivered: u32,
    pub advanced: bool,
    /// When the oldest and the latest of them were sent, the ambiguous ones left out.
    pub oldest_sent_ns: Option<u64>,
    pub latest_sent_ns: Option<u64>,
}

impl Scoreboard {
    pub fn una(&self) -> u32 {
        self.una
    }

    pub fn next(&self) -> u32 {
        self.next
    }

    pub fn outstanding(&self) -> u32 {
        self.next - self.una
    }

    pub fn delivered(&self) -> u32 {
        self.una + self.sacked.count()
    }

    pub fn sacked(&self) -> u32 {
        self.sacked.count()
    }

    pub fn lost(&self) -> u32 {
        self.lost
    }

    pub fn in_flight(&self) -> u32 {
        (self.outstanding() + self.repeats_under_way).saturating_sub(self.sacked.count() + self.lost)
    }

    pub fn take_repeat(&mut self) -> Option<u32> {
        self.to_repeat.pop_first()
    }

    pub fn send_new(&mut self, now_ns: u64) -> u32 {
        let segment = self.next;
        self.next += 1;
        self.segments.push_back(Segment { sent_ns: now_ns, ..Segment::default() });
        self.transmissions.push_back(Transmission { sent_ns: now_ns, segment });
        segment
    }

    pub fn send_again(&mut self, segment: u32, now_ns: u64) {
        let state = &mut self.segments[(segment - self.una) as usize];
        state.sent_ns = now_ns;
        state.ambiguous = true;
        if !state.repeated {
            state.repeated = true;
            self.repeats_under_way += 1;
        }
        self.transmissions.push_back(Transmission { sent_ns: now_ns, segment });
    }

    pub fn on_ack(&mut self, ack: &Ack, now_ns: u64) -> News {
        let (una_before, delivered_before, latest_before) = (self.una, self.delivered(), self.latest);
        let mut news = News::default();
        self.acknowledge(ack, &mut news);
        self.selectively_acknowledge(ack, &mut news);
        if self.latest != latest_before {
            self.latest_rtt_ns = now_ns - self.latest.sent_ns;
        }
        News { delivered: self.delivered() - delivered_before, advanced: self.una > una_before, ..news }
    }

    /// RACK (RFC 8985): what was sent before something that has arrived is lost, `patience_ns` after its own round
    /// trip. Returns when to look again.
    pub fn detect_losses(&mut self, patience_ns: u64, now_ns: u64) -> Option<u64> {
        while let Some(&first) = self.transmissions.front() {
            if self.is_under_way(first) {
                if first >= self.latest {
                    return None;
                }
                let give_up_ns = first.sent_ns + self.latest_rtt_ns + patience_ns;
                if patience_ns > 0 && give_up_ns > now_ns {
                    return Some(give_up_ns);
                }
                self.mark_lost(first.segment);
            }
            self.transmissions.pop_front();
        }
        None
    }

    /// After a timeout: nothing that is not known to have arrived will.
    pub fn give_up_all(&mut self) {
        for segment in self.una..self.next {
            if !self.sacked.contains(segment) {
                self.mark_lost(segment);
            }
        }
        self.transmissions.clear();
    }

    /// The timeout was wrong: they are still on their way.
    pub fn nothing_was_lost(&mut self) {
        for segment in &mut self.segments {
            segment.lost = false;
        }
        self.lost = 0;
        self.to_repeat.clear();
        self.transmissions = (self.una..)
            .zip(&self.segments)
            .map(|(segment, state)| Transmission { sent_ns: state.sent_ns, segment })
            .collect();
        self.transmissions.make_contiguous().sort_unstable();
    }

    fn is_under_way(&self, transmission: Transmission) -> bool {
        let place = transmission.segment.checked_sub(self.una);
        place.and_then(|at| self.segments.get(at as usize)).is_some_and(|state| {
            state.sent_ns == transmission.sent_ns
                && (!state.lost || state.repeated)
                && !self.sacked.contains(transmission.segment)
        })
    }

    fn acknowledge(&mut self, ack: &Ack, news: &mut News) {
        while self.una < ack.next.min(self.next) {
            let segment = self.una;
            let Some(state) = self.segments.pop_front() else { break };
            if !self.sacked.contains(segment) {
                // Of a repeated segment it may be the original that is here (RFC 8985, section 6.2, step 2).
                let is_original = state.ambiguous && ack.echo_ns < state.sent_ns;
                self.arrived(segment, state, !is_original, news);
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
                self.arrived(segment, state, true, news);
                self.segments[at].lost = false;
                self.segments[at].repeated = false;
            }
        }
    }

    fn arrived(&mut self, segment: u32, state: Segment, is_latest: bool, news: &mut News) {
        if state.lost {
            self.lost -= 1;
            self.to_repeat.remove(&segment);
        }
        if state.repeated {
            self.repeats_under_way -= 1;
        }
        if !state.ambiguous {
            news.oldest_sent_ns = Some(news.oldest_sent_ns.map_or(state.sent_ns, |ns| ns.min(state.sent_ns)));
            news.latest_sent_ns = news.latest_sent_ns.max(Some(state.sent_ns));
        }
        if is_latest {
            self.latest = self.latest.max(Transmission { sent_ns: state.sent_ns, segment });
        }
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
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn sent(count: u32) -> Scoreboard {
        let mut board = Scoreboard::default();
        for at in 0..count {
            board.send_new(u64::from(at) * MS);
        }
        board
    }

    fn ack(next: u32, blocks: &[(u32, u32)]) -> Ack {
        let mut ack = Ack { next, block_count: blocks.len() as u8, ..Ack::default() };
        ack.blocks[..blocks.len()].copy_from_slice(blocks);
        ack
    }

    #[test]
    fn what_was_sent_before_something_that_arrived_is_lost_after_some_patience() {
        let mut board = sent(6);
        let news = board.on_ack(&ack(1, &[(2, 4)]), 23 * MS);
        assert_eq!((news.delivered, news.advanced), (3, true));
        assert_eq!((news.oldest_sent_ns, news.latest_sent_ns), (Some(0), Some(3 * MS)));
        // Segment 1 left at 1 ms; the latest that arrived took 20 ms.
        assert_eq!(board.detect_losses(5 * MS, 23 * MS), Some(26 * MS));
        assert_eq!((board.lost(), board.in_flight()), (0, 3));
        assert_eq!(board.detect_losses(5 * MS, 26 * MS), None);
        assert_eq!((board.lost(), board.in_flight(), board.take_repeat()), (1, 2, Some(1)));
    }

    #[test]
    fn a_lost_repeat_is_noticed_too() {
        let mut board = sent(4);
        board.on_ack(&ack(0, &[(1, 4)]), 20 * MS);
        board.detect_losses(0, 20 * MS);
        assert_eq!(board.take_repeat(), Some(0));
        board.send_again(0, 20 * MS);
        board.send_new(21 * MS);
        assert_eq!((board.lost(), board.in_flight()), (1, 2));
        board.on_ack(&ack(0, &[(1, 5)]), 40 * MS);
        board.detect_losses(0, 40 * MS);
        assert_eq!((board.take_repeat(), board.in_flight()), (Some(0), 0));
    }

    #[test]
    fn counts_return_to_zero() {
        let mut board = sent(8);
        board.on_ack(&ack(2, &[(4, 6)]), 20 * MS);
        board.give_up_all();
        assert_eq!((board.lost(), board.in_flight()), (4, 0));
        board.send_again(2, 21 * MS);
        board.nothing_was_lost();
        board.on_ack(&ack(8, &[]), 30 * MS);
        assert_eq!((board.lost(), board.in_flight(), board.sacked(), board.outstanding()), (0, 0, 0, 0));
    }
}
