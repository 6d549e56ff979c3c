//! One IP packet, and the waiting lines that only take time.

use std::collections::VecDeque;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Whose it is: what CAKE's flow hash would tell apart. Never used twice.
    pub flow: u32,
    pub ip_bytes: u32,
    pub kind: Kind,
    /// When it entered the queue it waits in.
    pub queued_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A full segment of TCP; segments are numbered from 0.
    Data {
        segment: u32,
        sent_ns: u64,
    },
    Ack(Ack),
    Probe {
        number: u64,
        reflector: u32,
    },
    /// Traffic that nobody answers.
    Datagram,
}

/// IP header, TCP header and timestamps.
pub const HEADERS: u32 = 52;
/// What timestamps take of the MSS.
pub const TIMESTAMPS: u32 = 12;
/// `ping` with its 56 bytes of data.
pub const PROBE_BYTES: u32 = 84;

/// What a receiver says: everything below `next` is here, and these blocks above it (RFC 2018).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ack {
    pub next: u32,
    /// The timestamp it echoes (RFC 7323): when what it answers was sent.
    pub echo_ns: u64,
    pub blocks: [(u32, u32); 3],
    pub block_count: u8,
}

impl Ack {
    pub fn blocks(&self) -> &[(u32, u32)] {
        &self.blocks[..usize::from(self.block_count)]
    }

    /// Each SACK block takes 8 bytes, the option and its padding another 4.
    pub fn ip_bytes(&self) -> u32 {
        match self.block_count {
            0 => HEADERS,
            n => HEADERS + 4 + 8 * u32::from(n),
        }
    }
}

/// Packets that arrive in the order in which they left, each at its time.
#[derive(Debug, Default)]
pub struct DelayLine {
    queue: VecDeque<(u64, Packet)>,
    last_ns: u64,
}

impl DelayLine {
    /// Returns when an arrival must be planned: when nothing was under way before.
    pub fn push(&mut self, at_ns: u64, packet: Packet) -> Option<u64> {
        self.last_ns = self.last_ns.max(at_ns);
        self.queue.push_back((self.last_ns, packet));
        (self.queue.len() == 1).then_some(self.last_ns)
    }

    /// The packet that arrives now, and when the next one does.
    pub fn pop(&mut self) -> (Option<Packet>, Option<u64>) {
        let arrived = self.queue.pop_front().map(|(_, packet)| packet);
        (arrived, self.queue.front().map(|(at_ns, _)| *at_ns))
    }

    /// When the last packet so far arrives.
    pub fn last_ns(&self) -> u64 {
        self.last_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_line_keeps_the_order() {
        let packet = |flow| Packet { flow, ip_bytes: 84, kind: Kind::Datagram, queued_ns: 0 };
        let mut line = DelayLine::default();
        assert_eq!(line.push(30, packet(1)), Some(30));
        assert_eq!(line.push(20, packet(2)), None);
        assert_eq!(line.pop(), (Some(packet(1)), Some(30)));
        assert_eq!(line.pop(), (Some(packet(2)), None));
    }

    #[test]
    fn sack_blocks_cost_bytes() {
        let none = Ack::default();
        let two = Ack { block_count: 2, ..none };
        assert_eq!((none.ip_bytes(), two.ip_bytes()), (52, 72));
    }
}
