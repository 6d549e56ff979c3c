//! CAKE with one tin, as `piece_of_cake` sets it up: a shaper that counts as the wire does, one queue per flow,
//! sparse flows first, the rest by deficit round robin, COBALT on each.
//!
//! The behaviour is that of `sch_cake.c` (Linux 6.1); the constants cite it. Not modelled: hash collisions,
//! fairness among hosts, DiffServ, the filter's care for SACK blocks, ingress mode.

use super::cobalt::{Cobalt, Limits};
use super::packet::{Kind, Packet};
use super::rng::Rng;
use crate::line::Cake;
use std::collections::VecDeque;

#[derive(Debug)]
pub struct Shaper {
    setting: Cake,
    limits: Limits,
    quantum: i64,
    memory_limit: u64,
    memory: u64,
    queues: Vec<FlowQueue>,
    new_flows: VecDeque<u32>,
    old_flows: VecDeque<u32>,
    decaying_flows: VecDeque<u32>,
    packets: u32,
    backlog_bytes: u64,
    next_ns: u64,
    counters: Counters,
    dropped: Vec<Packet>,
    rng: Rng,
}

/// Since the shaper was set up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counters {
    pub sent_bytes: u64,
    pub sent_packets: u64,
    pub dropped_packets: u64,
    /// Moving average of what packets waited, weight 1/256.
    pub avg_delay_ns: f64,
}

#[derive(Debug, Default)]
struct FlowQueue {
    packets: VecDeque<Packet>,
    cobalt: Cobalt,
    deficit: i64,
    set: Set,
    bytes: u64,
}

impl FlowQueue {
    /// Where the oldest acknowledgement waits that two later ones make superfluous, the newest packet among them
    /// (`cake_ack_filter` spares one for safety). One with SACK blocks says more than its number and stays.
    fn superfluous_ack(&self) -> Option<usize> {
        let next = |packet: &Packet| match packet.kind {
            Kind::Ack(ack) => Some(ack),
            _ => None,
        };
        let newest = next(self.packets.back()?)?;
        let mut earlier = self
            .packets
            .iter()
            .enumerate()
            .rev()
            .skip(1)
            .filter(|(_, packet)| next(packet).is_some_and(|ack| ack.block_count == 0 && ack.next < newest.next));
        let _spared = earlier.next()?;
        earlier.next_back().map(|(at, _)| at)
    }
}

/// The rotation a flow is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Set {
    #[default]
    None,
    Sparse,
    /// Empty, counted as sparse, in the bulk rotation until its deficit is paid.
    SparseWait,
    Bulk,
    Decaying,
}

/// `sch_cake.c` counts Ethernet's MTU where it needs a full packet's time.
const FULL_PACKET: u32 = 1514;
/// What the kernel books for the buffer of a full packet, over its bytes.
const BUFFER_EXTRA: u64 = 800;
/// The least memory CAKE allows itself.
const LEAST_MEMORY: u64 = 4 << 20;

impl Shaper {
    pub fn new(setting: Cake, now_ns: u64, rng: Rng) -> Self {
        let bytes_per_s = setting.rate.bits() / 8;
        let packet_ns = setting.rate.time_for(u64::from(FULL_PACKET)).as_nanos() as u64;
        let rtt_ns = setting.rtt.as_nanos() as u64;
        let wanted_ns = setting.target().as_nanos() as u64;
        let target_ns = wanted_ns.max(packet_ns.saturating_mul(3) / 2);
        Self {
            setting,
            limits: Limits { target_ns, interval_ns: (rtt_ns + target_ns - wanted_ns).max(2 * target_ns), packet_ns },
            quantum: (bytes_per_s >> 12).clamp(300, u64::from(FULL_PACKET)) as i64,
            // Four intervals' worth.
            memory_limit: ((bytes_per_s as f64 * rtt_ns as f64 / 1e9 * 4.0) as u64).max(LEAST_MEMORY),
            memory: 0,
            queues: Vec::new(),
            new_flows: VecDeque::new(),
            old_flows: VecDeque::new(),
            decaying_flows: VecDeque::new(),
            packets: 0,
            backlog_bytes: 0,
            next_ns: now_ns,
            counters: Counters::default(),
            dropped: Vec::new(),
            rng,
        }
    }

    pub fn counters(&self) -> Counters {
        self.counters
    }

    pub fn backlog_bytes(&self) -> u64 {
        self.backlog_bytes
    }

    /// The target in force: CAKE raises it on slow lines.
    pub fn target_ns(&self) -> u64 {
        self.limits.target_ns
    }

    /// When the next packet may leave, if there is one.
    pub fn ready_ns(&self) -> Option<u64> {
        (self.packets > 0).then_some(self.next_ns)
    }

    /// Packets dropped since the last call.
    pub fn take_dropped(&mut self) -> std::vec::Drain<'_, Packet> {
        self.dropped.drain(..)
    }

    pub fn enqueue(&mut self, mut packet: Packet, now_ns: u64) {
        packet.queued_ns = now_ns;
        let id = packet.flow;
        if self.queues.len() <= id as usize {
            self.queues.resize_with(id as usize + 1, FlowQueue::default);
        }
        if self.packets == 0 {
            // An idle shaper saves nothing up.
            self.next_ns = self.next_ns.max(now_ns);
        }
        let queue = &mut self.queues[id as usize];
        queue.packets.push_back(packet);
        queue.bytes += u64::from(packet.ip_bytes);
        let superfluous = if self.setting.ack_filter { queue.superfluous_ack() } else { None };
        match queue.set {
            Set::None | Set::Decaying => {
                if queue.set == Set::Decaying
                    && let Some(at) = self.decaying_flows.iter().position(|flow| *flow == id)
                {
                    self.decaying_flows.remove(at);
                }
                queue.set = Set::Sparse;
                queue.deficit = self.quantum;
                self.new_flows.push_back(id);
            }
            Set::SparseWait => queue.set = Set::Bulk,
            Set::Sparse | Set::Bulk => {}
        }
        self.packets += 1;
        self.backlog_bytes += u64::from(packet.ip_bytes);
        self.memory += u64::from(packet.ip_bytes) + BUFFER_EXTRA;
        if let Some(at) = superfluous {
            self.remove(id, at);
        }
        while self.memory > self.memory_limit {
            self.drop_from_fattest(now_ns);
        }
    }

    /// The packet that leaves now. The caller has waited for [`Self::ready_ns`].
    pub fn dequeue(&mut self, now_ns: u64) -> Option<Packet> {
        let mut visit_decaying = true;
        loop {
            let id = self.next_flow(visit_decaying)?;
            visit_decaying = false;
            if self.queues[id as usize].deficit <= 0 {
                self.end_turn(id);
                continue;
            }
            if let Some(packet) = self.take_from(id, now_ns) {
                self.book(&packet, now_ns);
                return Some(packet);
            }
            self.retire(id, now_ns);
        }
    }

    /// What CAKE counts a packet as.
    pub fn wire_bytes(&self, packet: &Packet) -> u32 {
        self.setting.accounting.wire_bytes(packet.ip_bytes)
    }

    fn next_flow(&self, visit_decaying: bool) -> Option<u32> {
        let decaying = || self.decaying_flows.front();
        let first = if visit_decaying { decaying() } else { None };
        first.or_else(|| self.new_flows.front()).or_else(|| self.old_flows.front()).or_else(decaying).copied()
    }

    /// Its deficit is used up: to the end of the bulk rotation.
    fn end_turn(&mut self, id: u32) {
        self.unlink_front(id);
        self.old_flows.push_back(id);
        let queue = &mut self.queues[id as usize];
        queue.deficit += self.quantum;
        if queue.set == Set::Sparse {
            queue.set = if queue.packets.is_empty() { Set::SparseWait } else { Set::Bulk };
        }
    }

    /// An empty flow leaves the rotation, but stays in sight while its AQM has something to forget.
    fn retire(&mut self, id: u32, now_ns: u64) {
        self.unlink_front(id);
        let queue = &mut self.queues[id as usize];
        queue.cobalt.ran_empty(&self.limits, now_ns);
        if queue.cobalt.is_at_rest(now_ns) {
            queue.set = Set::None;
        } else {
            queue.set = Set::Decaying;
            self.decaying_flows.push_back(id);
        }
    }

    /// Flows are only ever taken from the front of a rotation.
    fn unlink_front(&mut self, id: u32) {
        for list in [&mut self.new_flows, &mut self.old_flows, &mut self.decaying_flows] {
            if list.front() == Some(&id) {
                list.pop_front();
                return;
            }
        }
    }

    fn take_from(&mut self, id: u32, now_ns: u64) -> Option<Packet> {
        loop {
            let packet = self.pop(id)?;
            let queue = &mut self.queues[id as usize];
            let drop = queue.cobalt.should_drop(&self.limits, now_ns, packet.queued_ns, &mut self.rng);
            // The last packet of a queue is never dropped.
            if !drop || queue.packets.is_empty() {
                return Some(packet);
            }
            self.note_drop(packet);
        }
    }

    fn pop(&mut self, id: u32) -> Option<Packet> {
        self.remove(id, 0)
    }

    fn remove(&mut self, id: u32, at: usize) -> Option<Packet> {
        let queue = &mut self.queues[id as usize];
        let packet = queue.packets.remove(at)?;
        queue.bytes -= u64::from(packet.ip_bytes);
        self.packets -= 1;
        self.backlog_bytes -= u64::from(packet.ip_bytes);
        self.memory -= u64::from(packet.ip_bytes) + BUFFER_EXTRA;
        Some(packet)
    }

    fn note_drop(&mut self, packet: Packet) {
        self.counters.dropped_packets += 1;
        self.dropped.push(packet);
    }

    fn drop_from_fattest(&mut self, now_ns: u64) {
        let Some(fattest) = (0..self.queues.len()).max_by_key(|id| self.queues[*id].bytes) else { return };
        self.queues[fattest].cobalt.overflowed(&self.limits, now_ns);
        if let Some(packet) = self.pop(fattest as u32) {
            self.note_drop(packet);
        }
    }

    fn book(&mut self, packet: &Packet, now_ns: u64) {
        let wire_bytes = self.wire_bytes(packet);
        self.next_ns += u64::from(wire_bytes) * 8_000_000_000 / self.setting.rate.bits().max(1);
        self.queues[packet.flow as usize].deficit -= i64::from(wire_bytes);
        let waited_ns = now_ns.saturating_sub(packet.queued_ns) as f64;
        self.counters.avg_delay_ns += (waited_ns - self.counters.avg_delay_ns) / 256.0;
        self.counters.sent_bytes += u64::from(packet.ip_bytes);
        self.counters.sent_packets += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::super::packet::Ack;
    use super::*;
    use crate::line::{Accounting, Cells};
    use crate::units::Rate;

    const MS: u64 = 1_000_000;

    fn setting(kbit: u64) -> Cake {
        let accounting = Accounting { overhead: 44, mpu: 84, cells: Cells::None };
        Cake::new(Rate::from_kbit(kbit), accounting)
    }

    fn shaper(kbit: u64) -> Shaper {
        Shaper::new(setting(kbit), 0, Rng::new(1, 1))
    }

    fn packet(flow: u32, ip_bytes: u32) -> Packet {
        Packet { flow, ip_bytes, kind: Kind::Datagram, queued_ns: 0 }
    }

    /// Sends until `until_ns` or empty; (time, flow) of each packet.
    fn drain(shaper: &mut Shaper, until_ns: u64) -> Vec<(u64, u32)> {
        let mut sent = Vec::new();
        while let Some(at) = shaper.ready_ns().filter(|at| *at <= until_ns) {
            sent.extend(shaper.dequeue(at).map(|packet| (at, packet.flow)));
        }
        sent
    }

    #[test]
    fn the_rate_counts_overhead_and_mpu() {
        let mut shaper = shaper(12_352);
        for _ in 0..3 {
            shaper.enqueue(packet(0, 1500), 0);
        }
        shaper.enqueue(packet(0, 20), 0);
        shaper.enqueue(packet(0, 1500), 0);
        let times: Vec<u64> = drain(&mut shaper, 100 * MS).iter().map(|sent| sent.0).collect();
        assert_eq!(times, [0, MS, 2 * MS, 3 * MS, 3 * MS + 84 * MS / 1544]);
    }

    #[test]
    fn bulk_flows_share_and_a_sparse_one_goes_first() {
        let mut shaper = shaper(12_352);
        for _ in 0..200 {
            shaper.enqueue(packet(0, 1500), 0);
            shaper.enqueue(packet(1, 750), 0);
        }
        let before = drain(&mut shaper, 50 * MS);
        let share = |flow| before.iter().filter(|sent| sent.1 == flow).count();
        assert!(share(1) > 18 * share(0) / 10 && share(1) < 21 * share(0) / 10, "{} to {}", share(0), share(1));
        shaper.enqueue(packet(2, 84), 50 * MS);
        let after = drain(&mut shaper, 60 * MS);
        assert_eq!(after[0].1, 2);
        assert!(after[0].0 - 50 * MS < 2 * MS);
    }

    #[test]
    fn the_filter_keeps_two_acknowledgements_and_every_block() {
        let mut shaper = Shaper::new(Cake { ack_filter: true, ..setting(12_352) }, 0, Rng::new(1, 1));
        let ack = |next, block_count| Packet {
            kind: Kind::Ack(Ack { next, block_count, ..Ack::default() }),
            ..packet(0, 52)
        };
        for (next, blocks) in [(1, 0), (2, 1), (3, 0), (4, 0), (5, 0)] {
            shaper.enqueue(ack(next, blocks), 0);
        }
        let mut left = Vec::new();
        while let Some(at) = shaper.ready_ns() {
            left.extend(shaper.dequeue(at).map(|packet| match packet.kind {
                Kind::Ack(ack) => ack.next,
                _ => 0,
            }));
        }
        assert_eq!(left, [2, 4, 5]);
        assert_eq!(shaper.counters().dropped_packets, 0);
    }

    #[test]
    fn slow_lines_raise_the_target() {
        assert_eq!(shaper(18_000).target_ns(), 5 * MS);
        let slow = shaper(1_200);
        assert!((15..16).contains(&(slow.target_ns() / MS)), "{}", slow.target_ns());
    }

    #[test]
    fn a_standing_queue_is_dropped_from_and_memory_is_bounded() {
        let mut shaper = shaper(12_352);
        let mut sent = 0;
        for ms in 0..2000 {
            for _ in 0..2 {
                shaper.enqueue(packet(0, 1500), ms * MS);
            }
            sent += drain(&mut shaper, ms * MS).len() as u64;
        }
        assert_eq!(sent, shaper.counters().sent_packets);
        assert!(shaper.counters().dropped_packets > 50);
        for _ in 0..5000 {
            shaper.enqueue(packet(0, 1500), 2000 * MS);
        }
        assert!(shaper.backlog_bytes() <= LEAST_MEMORY);
        assert_eq!(shaper.take_dropped().count() as u64, shaper.counters().dropped_packets);
    }

    #[test]
    fn an_idle_shaper_saves_no_credit() {
        let mut shaper = shaper(12_352);
        shaper.enqueue(packet(0, 1500), 0);
        drain(&mut shaper, MS);
        for _ in 0..3 {
            shaper.enqueue(packet(0, 1500), 1000 * MS);
        }
        let times: Vec<u64> = drain(&mut shaper, 2000 * MS).iter().map(|sent| sent.0 / MS).collect();
        assert_eq!(times, [1000, 1001, 1002]);
    }
}
