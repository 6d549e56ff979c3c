//! What a load's connections have done, added up. Pure: TCP_INFO and time go in.

use crate::line::Flows;
use crate::router::tcp_info::TcpInfo;
use crate::units::{Direction, millis};
use std::time::{Duration, Instant};

/// How long nothing may move before it counts as stalled.
pub const STALL: Duration = Duration::from_secs(3);

/// The books of one load: connections under way and those already closed.
#[derive(Debug)]
pub struct Account {
    direction: Direction,
    closed: Count,
    flows: Vec<FlowAccount>,
    moved: Moved,
}

/// One flow: connection after connection, one at a time.
#[derive(Debug)]
struct FlowAccount {
    open: Option<Open>,
    /// Until when `limited` has been counted.
    looked: Instant,
    /// Time in which its sender had nothing to send, or no window.
    limited: Duration,
    since: Instant,
}

#[derive(Debug)]
struct Open {
    ip_header: u32,
    info: TcpInfo,
    /// A download whose body is coming in.
    receiving: bool,
}

#[derive(Debug)]
struct Moved {
    bytes: u64,
    at: Instant,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    payload_bytes: u64,
    packets: u64,
    ip_bytes: u64,
    sent_ip_bytes: u64,
    retransmits: u64,
}

impl Account {
    pub fn new(direction: Direction, flows: u32, now: Instant) -> Self {
        let flow = || FlowAccount { open: None, looked: now, limited: Duration::ZERO, since: now };
        Self {
            direction,
            closed: Count::default(),
            flows: (0..flows).map(|_| flow()).collect(),
            moved: Moved { bytes: 0, at: now },
        }
    }

    /// A connection was made. Everything up to now was time without one.
    pub fn opened(&mut self, flow: usize, ipv6: bool, now: Instant) {
        self.look(flow, None, now);
        if self.flows.iter().all(|flow| flow.open.is_none()) {
            self.moved.at = now;
        }
        let ip_header = if ipv6 { 40 } else { 20 };
        self.flows[flow].open = Some(Open { ip_header, info: TcpInfo::default(), receiving: false });
    }

    /// The body of a download has begun to come in, or has ended.
    pub fn receiving(&mut self, flow: usize, receiving: bool, now: Instant) {
        self.look(flow, None, now);
        if let Some(open) = &mut self.flows[flow].open {
            open.receiving = receiving;
        }
    }

    /// What the kernel says of the flow's connection now; `None`: it could not be asked, or nothing new is known.
    pub fn look(&mut self, flow: usize, info: Option<TcpInfo>, now: Instant) {
        let direction = self.direction;
        let flow = &mut self.flows[flow];
        let passed = now.saturating_duration_since(flow.looked);
        let limited = match (&mut flow.open, info) {
            (None, _) => passed,
            // Without news, an upload's time is counted at the next look.
            (Some(_), None) if direction == Direction::Upload => return,
            (Some(open), info) => {
                let limited = open.limited(info.as_ref(), direction, passed);
                open.info = info.unwrap_or(open.info);
                limited
            }
        };
        flow.limited += limited;
        flow.looked = flow.looked.max(now);
    }

    /// The connection is over; what it did stays.
    pub fn closed(&mut self, flow: usize, now: Instant) {
        self.look(flow, None, now);
        if let Some(open) = self.flows[flow].open.take() {
            self.closed = self.closed.plus(open.count(self.direction));
        }
    }

    /// Everything so far.
    pub fn flows(&mut self, now: Instant) -> Flows {
        let open = || self.flows.iter().filter_map(|flow| flow.open.as_ref());
        let count = open().fold(self.closed, |sum, open| sum.plus(open.count(self.direction)));
        let trips: Vec<f64> = open().filter_map(|open| open.rtt(self.direction)).map(millis).collect();
        let alive = open().count() as u32;
        let elapsed: Duration = self.flows.iter().map(|flow| now.saturating_duration_since(flow.since)).sum();
        let limited: Duration = self.flows.iter().map(|flow| flow.limited).sum();
        if count.payload_bytes > self.moved.bytes {
            self.moved = Moved { bytes: count.payload_bytes, at: now };
        }
        Flows {
            direction: self.direction,
            alive,
            payload_bytes: count.payload_bytes,
            packets: count.packets,
            ip_bytes: count.ip_bytes,
            sent_ip_bytes: count.sent_ip_bytes,
            retransmits: count.retransmits,
            srtt_ms: (!trips.is_empty()).then(|| trips.iter().sum::<f64>() / trips.len() as f64),
            sender_limited: if elapsed.is_zero() {
                0.0
            } else {
                (limited.as_secs_f64() / elapsed.as_secs_f64()).min(1.0)
            },
        }
    }

    /// Whether there are connections and nothing has moved for [`STALL`].
    pub fn stalled(&self, now: Instant) -> bool {
        self.flows.iter().any(|flow| flow.open.is_some()) && now.saturating_duration_since(self.moved.at) >= STALL
    }
}

impl Open {
    /// How much of the time that passed the sender did not use.
    fn limited(&self, new: Option<&TcpInfo>, direction: Direction, passed: Duration) -> Duration {
        match (direction, new) {
            (Direction::Upload, Some(new)) => {
                // Nothing left unsent: we did not keep up, whatever is still under way. The kernel's own clock says
                // "busy" then, until the last acknowledgement; and its app-limited bit sticks to the best rate seen.
                if new.notsent_bytes == 0 {
                    return passed;
                }
                let used =
                    |info: &TcpInfo| info.busy.saturating_sub(info.rwnd_limited).saturating_sub(info.sndbuf_limited);
                passed.saturating_sub(used(new).saturating_sub(used(&self.info)))
            }
            // The other end is the sender; we only see when it has no reason to send.
            (Direction::Download, _) if !self.receiving => passed,
            _ => Duration::ZERO,
        }
    }

    fn rtt(&self, direction: Direction) -> Option<Duration> {
        let rtt = match direction {
            Direction::Upload => self.info.rtt,
            Direction::Download => self.info.rcv_rtt,
        };
        (!rtt.is_zero()).then_some(rtt)
    }

    fn count(&self, direction: Direction) -> Count {
        let info = &self.info;
        // RFC 7323: ten bytes and two of padding, in every segment once agreed on.
        let header = u64::from(self.ip_header + 20 + if info.timestamps { 12 } else { 0 });
        match direction {
            Direction::Upload => {
                // The kernel counts our SYN as one byte and as one segment.
                let payload_bytes = info.bytes_acked.saturating_sub(1);
                let packets = u64::from(info.delivered.saturating_sub(1));
                // Not tcpi_bytes_sent and tcpi_segs_out: they count again what a full device queue would not take and
                // the kernel never sent (three times what was delivered, with sixty flows on a FIFO of 200 packets).
                let under_way = u64::from(info.unacked) * u64::from(info.snd_mss);
                let not_arrived = u64::from(info.unacked.saturating_sub(info.sacked) + info.total_retrans);
                Count {
                    payload_bytes,
                    packets,
                    ip_bytes: payload_bytes + packets * header,
                    sent_ip_bytes: payload_bytes + under_way + info.bytes_retrans + (packets + not_arrived) * header,
                    retransmits: u64::from(info.total_retrans),
                }
            }
            Direction::Download => {
                let packets = u64::from(info.data_segs_in);
                Count {
                    payload_bytes: info.bytes_received,
                    packets,
                    ip_bytes: info.bytes_received + packets * header,
                    sent_ip_bytes: 0,
                    retransmits: 0,
                }
            }
        }
    }
}

impl Count {
    fn plus(self, other: Self) -> Self {
        Self {
            payload_bytes: self.payload_bytes + other.payload_bytes,
            packets: self.packets + other.packets,
            ip_bytes: self.ip_bytes + other.ip_bytes,
            sent_ip_bytes: self.sent_ip_bytes + other.sent_ip_bytes,
            retransmits: self.retransmits + other.retransmits,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(bytes: u64, packets: u32, busy_ms: u64) -> TcpInfo {
        TcpInfo {
            timestamps: true,
            bytes_acked: bytes + 1,
            delivered: packets + 1,
            snd_mss: 1448,
            unacked: 3,
            sacked: 1,
            bytes_retrans: 500,
            notsent_bytes: 1,
            total_retrans: 1,
            busy: Duration::from_millis(busy_ms),
            rtt: Duration::from_millis(20),
            ..TcpInfo::default()
        }
    }

    #[test]
    fn what_closed_connections_did_still_counts() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut account = Account::new(Direction::Upload, 2, start);
        assert_eq!(account.flows(start).alive, 0);
        account.opened(0, false, start);
        account.opened(1, true, start);
        account.look(0, Some(sent(14_480, 10, 100)), at(100));
        account.look(1, Some(sent(1_448, 1, 100)), at(100));
        let flows = account.flows(at(100));
        assert_eq!((flows.alive, flows.payload_bytes, flows.packets, flows.retransmits), (2, 15_928, 11, 2));
        assert_eq!(flows.ip_bytes, 15_928 + 10 * 52 + 72);
        assert_eq!(flows.sent_ip_bytes, 15_928 + 2 * (3 * 1448 + 500) + (10 + 2 + 1) * 52 + (1 + 2 + 1) * 72);
        assert_eq!(flows.srtt_ms, Some(20.0));
        assert!(flows.sender_limited.abs() < 1e-9, "busy all the time: {}", flows.sender_limited);

        account.closed(0, at(100));
        account.opened(0, false, at(150));
        account.look(0, Some(sent(1_448, 1, 50)), at(200));
        account.look(1, Some(sent(2_896, 2, 200)), at(200));
        let flows = account.flows(at(200));
        assert_eq!((flows.payload_bytes, flows.packets), (14_480 + 1_448 + 2_896, 13));
        assert!((flows.sender_limited - 50.0 / 400.0).abs() < 1e-9, "50 ms of 2 x 200: {}", flows.sender_limited);
    }

    #[test]
    fn an_idle_or_held_back_sender_shows() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut account = Account::new(Direction::Upload, 1, start);
        account.opened(0, false, start);
        account.look(0, Some(TcpInfo { rwnd_limited: Duration::from_millis(40), ..sent(1, 1, 100) }), at(100));
        assert!((account.flows(at(100)).sender_limited - 0.4).abs() < 1e-9);
        account.look(
            0,
            Some(TcpInfo { rwnd_limited: Duration::from_millis(40), notsent_bytes: 0, ..sent(1, 1, 200) }),
            at(200),
        );
        assert!((account.flows(at(200)).sender_limited - 0.7).abs() < 1e-9);
    }

    #[test]
    fn a_download_counts_what_came_in() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut account = Account::new(Direction::Download, 1, start);
        account.opened(0, false, at(30));
        account.receiving(0, true, at(50));
        let info = TcpInfo {
            bytes_received: 2_920,
            data_segs_in: 2,
            rcv_rtt: Duration::from_millis(15),
            rtt: Duration::from_millis(99),
            ..TcpInfo::default()
        };
        account.look(0, Some(info), at(100));
        let flows = account.flows(at(100));
        assert_eq!((flows.payload_bytes, flows.packets, flows.ip_bytes), (2_920, 2, 3_000));
        assert_eq!((flows.sent_ip_bytes, flows.srtt_ms), (0, Some(15.0)));
        assert!((flows.sender_limited - 0.5).abs() < 1e-9, "{}", flows.sender_limited);
    }

    #[test]
    fn stalled_is_connected_and_nothing_moves() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut account = Account::new(Direction::Upload, 1, start);
        account.flows(at(4000));
        assert!(!account.stalled(at(4000)), "no connection is another trouble");
        account.opened(0, false, at(4000));
        account.look(0, Some(sent(1000, 1, 10)), at(4100));
        account.flows(at(4100));
        assert!(!account.stalled(at(7099)));
        account.flows(at(7100));
        assert!(account.stalled(at(7100)));
        account.look(0, Some(sent(2000, 2, 10)), at(7200));
        account.flows(at(7200));
        assert!(!account.stalled(at(7200)));
    }
}
