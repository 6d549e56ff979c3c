//! One TCP connection across the line: both of its ends, and what its packets look like.

use super::cubic::Congestion;
use super::event::Side;
use super::packet::{HEADERS, Kind, Packet, TIMESTAMPS};
use super::receiver::Receiver;
use super::tcp::Sender;
use crate::line::Origin;

#[derive(Debug)]
pub struct Flow {
    pub id: u32,
    pub side: Side,
    pub origin: Origin,
    pub sender: Sender,
    pub receiver: Receiver,
    pub payload: u32,
    /// An application with its own pace.
    pub pace: Option<Pace>,
    /// Its packets in the router's own shaper, which a local socket knows of.
    pub in_shaper: u32,
    /// Planned wake-ups, so that none is planned twice.
    pub timer_planned_ns: Option<u64>,
    pub ack_planned_ns: Option<u64>,
    pub limited: Limited,
}

/// For how long the sender has been limited by itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limited {
    total_ns: u64,
    since_ns: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
pub struct Pace {
    pub from_ns: u64,
    pub bits_per_s: u64,
    pub planned: bool,
}

/// The receive window that Linux grows to: half of `tcp_rmem`'s 6 MB.
const RECEIVE_WINDOW: u32 = 3_000_000;
/// An application that falls behind gives up on more than this.
const MOST_BEHIND: u32 = 64;

impl Flow {
    pub fn new(id: u32, side: Side, origin: Origin, mss: u32, congestion: Congestion) -> Self {
        let payload = mss.saturating_sub(TIMESTAMPS).max(1);
        Self {
            id,
            side,
            origin,
            sender: Sender::new(congestion, RECEIVE_WINDOW / payload),
            receiver: Receiver::default(),
            payload,
            pace: None,
            in_shaper: 0,
            timer_planned_ns: None,
            ack_planned_ns: None,
            limited: Limited::default(),
        }
    }

    pub fn ip_bytes(&self) -> u32 {
        self.payload + HEADERS
    }

    pub fn packet(&self, segment: u32, sent_ns: u64) -> Packet {
        Packet { flow: self.id, ip_bytes: self.ip_bytes(), kind: Kind::Data { segment, sent_ns }, queued_ns: 0 }
    }

    /// Segments that have arrived, as far as the router can know.
    pub fn delivered(&self) -> u64 {
        match self.side {
            Side::Up => u64::from(self.sender.delivered()),
            Side::Down => self.receiver.received(),
        }
    }

    /// Linux's TCP small queues: a socket keeps two packets in its own qdisc, or a millisecond's worth at the
    /// pace of 1.2 windows per round trip (`tcp_small_queue_check`).
    pub fn is_pushed_back(&self) -> bool {
        if self.origin == Origin::Forwarded {
            return false;
        }
        let per_ms = self
            .sender
            .smoothed_rtt_ns()
            .map_or(0.0, |rtt_ns| 1.2 * f64::from(self.sender.window()) * 1e6 / rtt_ns.max(1) as f64);
        f64::from(self.in_shaper) >= per_ms.max(2.0)
    }

    /// Hands the sender what its application has produced by now; says when there will be more.
    pub fn feed(&mut self, now_ns: u64) -> Option<u64> {
        let pace = self.pace.as_mut()?;
        let per_segment_ns = f64::from(self.payload + HEADERS) * 8e9 / pace.bits_per_s.max(1) as f64;
        let produced = (now_ns.saturating_sub(pace.from_ns) as f64 / per_segment_ns) as u32;
        let sent = self.sender.sent_new();
        if produced > sent + MOST_BEHIND {
            // Start over from here.
            pace.from_ns = now_ns.saturating_sub((f64::from(sent + MOST_BEHIND) * per_segment_ns) as u64);
        }
        self.sender.offer(produced.min(sent + MOST_BEHIND));
        (!pace.planned).then(|| {
            pace.planned = true;
            pace.from_ns + (f64::from(produced.min(sent + MOST_BEHIND) + 1) * per_segment_ns) as u64 + 1
        })
    }
}

impl Limited {
    pub fn note(&mut self, limited: bool, now_ns: u64) {
        match (limited, self.since_ns) {
            (true, None) => self.since_ns = Some(now_ns),
            (false, Some(since_ns)) => {
                self.total_ns += now_ns - since_ns;
                self.since_ns = None;
            }
            _ => {}
        }
    }

    pub fn total_ns(&self, now_ns: u64) -> u64 {
        self.total_ns + self.since_ns.map_or(0, |since_ns| now_ns - since_ns)
    }
}
