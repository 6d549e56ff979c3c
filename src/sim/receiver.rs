//! A TCP receiver: puts segments in order and says what it has, every second segment or at once when asked to
//! by a gap (RFC 5681, 2018).

use super::packet::Ack;
use super::ranges::Ranges;

#[derive(Debug)]
pub struct Receiver {
    next: u32,
    ahead: Ranges,
    /// Blocks above a gap, the latest first; the sender is told of three.
    recent: Vec<(u32, u32)>,
    unacknowledged: u32,
    /// Acknowledgements still to be sent at once: Linux begins every connection so (`TCP_MAX_QUICKACKS`).
    quick: u32,
    delayed_until_ns: Option<u64>,
    echo_ns: u64,
}

const QUICK_ACKS: u32 = 16;
const DELAY_NS: u64 = 40_000_000;
const REMEMBERED: usize = 4;

impl Default for Receiver {
    fn default() -> Self {
        Self {
            next: 0,
            ahead: Ranges::default(),
            recent: Vec::new(),
            unacknowledged: 0,
            quick: QUICK_ACKS,
            delayed_until_ns: None,
            echo_ns: 0,
        }
    }
}

impl Receiver {
    /// Segments received, each once.
    pub fn received(&self) -> u64 {
        u64::from(self.next) + u64::from(self.ahead.count())
    }

    pub fn delayed_until_ns(&self) -> Option<u64> {
        self.delayed_until_ns
    }

    pub fn on_data(&mut self, segment: u32, sent_ns: u64, now_ns: u64) -> Option<Ack> {
        if segment <= self.next && self.unacknowledged == 0 {
            self.echo_ns = sent_ns;
        }
        self.unacknowledged += 1;
        let had_gap = !self.ahead.is_empty();
        if segment == self.next {
            self.next = self.ahead.end_of(segment + 1).unwrap_or(segment + 1);
            self.ahead.remove_below(self.next);
            self.recent.retain(|block| block.1 > self.next);
        } else if segment > self.next {
            let block = self.ahead.insert(segment, segment + 1, |_| {});
            self.recent.retain(|known| known.1 < block.0 || known.0 > block.1);
            self.recent.insert(0, block);
            self.recent.truncate(REMEMBERED);
        }
        let at_once = had_gap || segment != self.next.wrapping_sub(1) || self.quick > 0 || self.unacknowledged >= 2;
        if at_once {
            self.quick = self.quick.saturating_sub(1);
            return Some(self.acknowledge());
        }
        self.delayed_until_ns = Some(now_ns + DELAY_NS);
        None
    }

    /// The delay is over.
    pub fn acknowledge(&mut self) -> Ack {
        self.unacknowledged = 0;
        self.delayed_until_ns = None;
        let mut ack = Ack { next: self.next, echo_ns: self.echo_ns, ..Ack::default() };
        for (slot, block) in ack.blocks.iter_mut().zip(&self.recent) {
            *slot = *block;
            ack.block_count += 1;
        }
        ack
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One that has got over its quick start.
    fn settled() -> Receiver {
        let mut receiver = Receiver::default();
        for segment in 0..QUICK_ACKS {
            assert!(receiver.on_data(segment, 0, 0).is_some());
        }
        receiver
    }

    #[test]
    fn every_second_segment_is_acknowledged_and_a_lone_one_after_a_while() {
        let mut receiver = settled();
        assert_eq!(receiver.on_data(16, 0, 5), None);
        assert_eq!(receiver.delayed_until_ns(), Some(5 + DELAY_NS));
        assert_eq!(receiver.on_data(17, 0, 6).map(|ack| ack.next), Some(18));
        assert_eq!(receiver.delayed_until_ns(), None);
    }

    #[test]
    fn gaps_are_told_at_once_latest_block_first() {
        let mut receiver = settled();
        assert_eq!(receiver.on_data(17, 0, 0).map(|ack| (ack.next, ack.blocks[0])), Some((16, (17, 18))));
        let ack = receiver.on_data(20, 0, 0).expect("a second gap");
        assert_eq!(ack.blocks(), [(20, 21), (17, 18)]);
        let ack = receiver.on_data(18, 0, 0).expect("the first block grows");
        assert_eq!(ack.blocks(), [(17, 19), (20, 21)]);
        let ack = receiver.on_data(16, 0, 0).expect("the first gap closes");
        assert_eq!((ack.next, ack.blocks()), (19, &[(20, 21)][..]));
        let ack = receiver.on_data(19, 0, 0).expect("the last gap closes");
        assert_eq!((ack.next, ack.block_count), (21, 0));
        assert_eq!(receiver.received(), 21);
    }
}
