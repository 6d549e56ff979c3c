//! The narrow place: a drop-tail FIFO, a modem with an AQM of its own, or a policer, ahead of a wire that counts
//! overhead and cells.

use super::cobalt::{Cobalt, Limits};
use super::packet::Packet;
use super::rng::Rng;
use super::scenario::LinkRate;
use crate::line::Accounting;
use crate::units::Rate;
use std::collections::VecDeque;

#[derive(Debug)]
pub struct Bottleneck {
    accounting: Accounting,
    rate: Rate,
    queue: VecDeque<Packet>,
    queue_wire_bytes: u64,
    sending: Option<Packet>,
    room: Room,
    aqm: Option<Aqm>,
    policer: Option<Bucket>,
    burst: Option<Burst>,
    dropped: u64,
}

/// How much may wait.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Room {
    WireBytes(u64),
    Packets(usize),
}

#[derive(Debug)]
struct Aqm {
    cobalt: Cobalt,
    limits: Limits,
    rng: Rng,
}

/// Tokens are wire bytes.
#[derive(Debug)]
struct Bucket {
    tokens: f64,
    most: f64,
    filled_ns: u64,
}

#[derive(Debug)]
struct Burst {
    rate: Rate,
    bucket: Bucket,
}

/// CoDel's own interval (RFC 8289, section 4.3).
const AQM_INTERVAL_NS: u64 = 100_000_000;
/// A FIFO always has room for two packets; one that is named without a buffer, for a millisecond of its rate:
/// no real queue, yet nothing is lost to two packets that arrive at once.
const LEAST_PACKETS: u64 = 2;
const LEAST_MS: f64 = 1.0;

impl Bottleneck {
    pub fn new(link: &LinkRate, mtu: u32, rng: Rng) -> Self {
        let accounting = link.accounting();
        let rate = Rate::from_kbit(link.rate_kbit);
        let bytes_in = |ms: f64| rate.bits() as f64 / 8000.0 * ms;
        let least = u64::from(accounting.wire_bytes(mtu)) * LEAST_PACKETS;
        let buffer_ms = if link.buffer_ms > 0.0 { link.buffer_ms } else { LEAST_MS };
        let full = |tokens: f64| Bucket { tokens, most: tokens, filled_ns: 0 };
        Self {
            accounting,
            rate,
            queue: VecDeque::new(),
            queue_wire_bytes: 0,
            sending: None,
            room: match link.buffer_packets {
                0 => Room::WireBytes((bytes_in(buffer_ms) as u64).max(least)),
                packets => Room::Packets(packets as usize),
            },
            aqm: (link.aqm_ms > 0.0).then(|| {
                let target_ns = (link.aqm_ms * 1e6) as u64;
                let limits = Limits { target_ns, interval_ns: AQM_INTERVAL_NS.max(2 * target_ns), packet_ns: 0 };
                Aqm { cobalt: Cobalt::default(), limits, rng }
            }),
            policer: (link.policer_burst_kb > 0.0).then(|| full(link.policer_burst_kb * 1000.0)),
            burst: (link.burst_kbit > link.rate_kbit && link.burst_s > 0.0).then(|| Burst {
                rate: Rate::from_kbit(link.burst_kbit),
                bucket: full((link.burst_kbit - link.rate_kbit) as f64 * 125.0 * link.burst_s),
            }),
            dropped: 0,
        }
    }

    /// Packets, since the line was made.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    pub fn set_rate(&mut self, rate: Rate) {
        self.rate = rate;
    }

    /// How long the packets that wait will take at the present rate.
    pub fn backlog_ms(&self) -> f64 {
        self.queue_wire_bytes as f64 * 8000.0 / self.rate.bits().max(1) as f64
    }

    /// Takes a packet in, or drops it.
    pub fn offer(&mut self, mut packet: Packet, now_ns: u64) {
        packet.queued_ns = now_ns;
        let wire_bytes = u64::from(self.accounting.wire_bytes(packet.ip_bytes));
        let fits = match (&mut self.policer, self.room) {
            (Some(bucket), _) => bucket.take(wire_bytes, self.rate, now_ns),
            (None, Room::WireBytes(most)) => self.queue_wire_bytes + wire_bytes <= most,
            (None, Room::Packets(most)) => self.queue.len() < most,
        };
        if fits {
            self.queue.push_back(packet);
            self.queue_wire_bytes += wire_bytes;
        } else {
            self.dropped += 1;
        }
    }

    /// Starts on the next packet if the wire is free; says when it will have been sent.
    pub fn start(&mut self, now_ns: u64) -> Option<u64> {
        if self.sending.is_some() {
            return None;
        }
        let packet = self.next(now_ns)?;
        self.sending = Some(packet);
        let wire_bytes = u64::from(self.accounting.wire_bytes(packet.ip_bytes));
        if self.policer.is_some() {
            // What conforms passes at once.
            return Some(now_ns);
        }
        let mut rate = self.rate;
        if let Some(burst) = &mut self.burst
            && burst.bucket.spend(wire_bytes, rate, now_ns)
        {
            rate = burst.rate;
        }
        Some(now_ns + rate.time_for(wire_bytes).as_nanos() as u64)
    }

    /// The packet that has just been sent.
    pub fn finish(&mut self) -> Option<Packet> {
        self.sending.take()
    }

    fn next(&mut self, now_ns: u64) -> Option<Packet> {
        loop {
            let packet = self.queue.pop_front()?;
            self.queue_wire_bytes -= u64::from(self.accounting.wire_bytes(packet.ip_bytes));
            let Some(aqm) = &mut self.aqm else { return Some(packet) };
            let drop = aqm.cobalt.should_drop(&aqm.limits, now_ns, packet.queued_ns, &mut aqm.rng);
            if !drop || self.queue.is_empty() {
                return Some(packet);
            }
            self.dropped += 1;
        }
    }
}

impl Bucket {
    /// Takes the tokens if there are enough; says whether there were.
    fn take(&mut self, bytes: u64, rate: Rate, now_ns: u64) -> bool {
        self.fill(rate, now_ns);
        let enough = self.tokens >= bytes as f64;
        if enough {
            self.tokens -= bytes as f64;
        }
        enough
    }

    /// Takes the tokens in any case, on credit where there are too few; says whether there were enough.
    fn spend(&mut self, bytes: u64, rate: Rate, now_ns: u64) -> bool {
        self.fill(rate, now_ns);
        let enough = self.tokens >= bytes as f64;
        self.tokens -= bytes as f64;
        enough
    }

    fn fill(&mut self, rate: Rate, now_ns: u64) {
        let earned = now_ns.saturating_sub(self.filled_ns) as f64 * rate.bits() as f64 / 8e9;
        self.tokens = (self.tokens + earned).min(self.most);
        self.filled_ns = now_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::super::packet::Kind;
    use super::*;
    use crate::line::Cells;

    const MS: u64 = 1_000_000;

    fn bottleneck(link: &LinkRate) -> Bottleneck {
        Bottleneck::new(link, 1500, Rng::new(1, 1))
    }

    fn packet(ip_bytes: u32) -> Packet {
        Packet { flow: 0, ip_bytes, kind: Kind::Datagram, queued_ns: 0 }
    }

    /// Offers a full packet every `every_ns`; returns how many were sent in each of `seconds`.
    fn sent_per_second(line: &mut Bottleneck, every_ns: u64, seconds: u64) -> Vec<u64> {
        let (mut sent, mut done, mut next_offer) = (vec![0; seconds as usize], None, 0);
        loop {
            let now = done.unwrap_or(u64::MAX).min(next_offer);
            if now >= seconds * 1000 * MS {
                return sent;
            }
            if done == Some(now) {
                sent[(now / (1000 * MS)) as usize] += u64::from(line.finish().is_some());
                done = None;
            } else {
                line.offer(packet(1500), now);
                next_offer += every_ns;
            }
            done = done.or(line.start(now));
        }
    }

    #[test]
    fn the_wire_counts_overhead_and_cells() {
        let frames = LinkRate { rate_kbit: 12_272, overhead: 34, ..LinkRate::default() };
        let mut line = bottleneck(&frames);
        line.offer(packet(1500), 0);
        assert_eq!(line.start(0), Some(MS));
        let cells = LinkRate { rate_kbit: 1_200, overhead: 40, cell: Cells::Atm, ..LinkRate::default() };
        let mut line = bottleneck(&cells);
        line.offer(packet(1500), 0);
        assert_eq!(line.start(0), Some(33 * 53 * 8 * MS / 1200));
    }

    #[test]
    fn a_fifo_holds_its_bytes_or_its_packets() {
        let waiting = |link| {
            let mut line = bottleneck(&link);
            for _ in 0..2000 {
                line.offer(packet(1500), 0);
            }
            line.queue.len()
        };
        let bytes = LinkRate { rate_kbit: 18_000, overhead: 34, buffer_ms: 180.0, ..LinkRate::default() };
        assert_eq!(waiting(bytes.clone()), 264);
        assert_eq!(waiting(LinkRate { buffer_packets: 400, ..bytes.clone() }), 400);
        assert_eq!(waiting(LinkRate { buffer_ms: 0.1, ..bytes }), 2);
    }

    #[test]
    fn a_policer_passes_at_once_or_drops() {
        let mut line = bottleneck(&LinkRate { rate_kbit: 12_000, policer_burst_kb: 15.0, ..LinkRate::default() });
        let sent = sent_per_second(&mut line, MS / 2, 3);
        assert_eq!((sent[1], sent[2]), (1000, 1000));
        assert!((1009..=1011).contains(&sent[0]), "{sent:?}");
        assert!(line.backlog_ms() < 1.0);
    }

    #[test]
    fn a_burst_is_spent_and_earned_back() {
        let link =
            LinkRate { rate_kbit: 12_000, burst_kbit: 24_000, burst_s: 2.0, buffer_ms: 50.0, ..LinkRate::default() };
        let mut narrow = bottleneck(&link);
        let sent = sent_per_second(&mut narrow, MS / 2, 5);
        assert!(sent[..2].iter().all(|count| (1995..=2001).contains(count)), "{sent:?}");
        assert!(sent[3..].iter().all(|count| (999..=1001).contains(count)), "{sent:?}");
        // Two idle seconds earn two seconds of the difference, the whole credit.
        let burst = narrow.burst.as_mut().expect("it bursts");
        assert!(burst.bucket.take(2_900_000, Rate::from_kbit(12_000), 7000 * MS));
        assert!(!burst.bucket.take(200_000, Rate::from_kbit(12_000), 7000 * MS));
    }

    #[test]
    fn an_aqm_keeps_its_queue_near_its_target() {
        let link = LinkRate { rate_kbit: 12_000, aqm_ms: 20.0, buffer_ms: 500.0, ..LinkRate::default() };
        let mut calm = bottleneck(&link);
        sent_per_second(&mut calm, MS, 2);
        assert_eq!(calm.dropped(), 0);
        // One packet in fifty too many: 20 ms of queue after a second, then it is kept there.
        let mut busy = bottleneck(&link);
        sent_per_second(&mut busy, MS * 50 / 51, 6);
        assert!((60..=110).contains(&busy.dropped()), "{}", busy.dropped());
        assert!((5.0..40.0).contains(&busy.backlog_ms()), "{}", busy.backlog_ms());
    }
}
