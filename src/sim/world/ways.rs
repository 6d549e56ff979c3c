//! The ways of a packet from one end to the other, queue by queue.

use super::{Happened, LAN, World};
use crate::sim::event::{Event, Side};
use crate::sim::packet::{Kind, Packet};

/// A shaper's timer is late, on average by so much, and what it missed goes out in a burst (fitted to the kernel
/// table: what a ping meets in the FIFO behind a shaper that is not above it).
const TIMER_LATE_NS: u64 = 300_000;

/// A shaper that has just had the CPU lets the other one go first.
const YIELD_NS: u64 = 1;

impl World {
    pub(super) fn plan_if(&mut self, at_ns: Option<u64>, event: Event) {
        if let Some(at_ns) = at_ns {
            self.events.plan(at_ns, event);
        }
    }

    /// From the LAN client's network card, at its speed.
    pub(super) fn send_over_lan(&mut self, packet: Packet) {
        let begin_ns = self.lan.last_ns().max(self.now_ns);
        let at_ns = begin_ns + LAN.time_for(u64::from(packet.ip_bytes)).as_nanos() as u64;
        let planned = self.lan.push(at_ns, packet);
        self.plan_if(planned, Event::LanArrival);
    }

    /// Out of the router's WAN device, or into the shaper on it.
    pub(super) fn send_up(&mut self, packet: Packet) {
        let now_ns = self.now_ns;
        match &mut self.lanes[Side::Up as usize].shaper {
            Some(shaper) => {
                shaper.enqueue(packet, now_ns);
                self.plan_shaper(Side::Up, 0);
            }
            None => self.leave_device(packet),
        }
    }

    /// From a server or reflector towards the router.
    pub(super) fn send_down(&mut self, packet: Packet) {
        if self.rng.chance(self.loss) {
            return;
        }
        let at_ns = self.now_ns + self.half_rtt_ns;
        let planned = self.lanes[Side::Down as usize].path.push(at_ns, packet);
        self.plan_if(planned, Event::PathArrival(Side::Down));
    }

    fn leave_device(&mut self, packet: Packet) {
        self.lanes[Side::Up as usize].device_bytes += u64::from(packet.ip_bytes);
        self.cpu.forward(packet.ip_bytes);
        match packet.kind {
            Kind::Probe { number, reflector } if self.reflectors[reflector as usize].is_first() => {
                let there_ns = self.now_ns + self.half_rtt_ns;
                if let Some(after_ns) = self.reflectors[reflector as usize].answer(there_ns) {
                    self.events.plan(there_ns + after_ns, Event::ProbeReply { number, reflector });
                }
            }
            _ => self.enter_bottleneck(Side::Up, packet),
        }
    }

    /// Into the WAN device, and through the shaper behind it.
    pub(super) fn receive_at_device(&mut self, packet: Packet) -> Happened {
        let now_ns = self.now_ns;
        self.cpu.forward(packet.ip_bytes);
        let lane = &mut self.lanes[Side::Down as usize];
        lane.device_bytes += u64::from(packet.ip_bytes);
        match &mut lane.shaper {
            Some(shaper) => {
                shaper.enqueue(packet, now_ns);
                self.plan_shaper(Side::Down, 0);
                Happened::Something
            }
            None => self.home(packet),
        }
    }

    pub(super) fn enter_bottleneck(&mut self, side: Side, packet: Packet) {
        let now_ns = self.now_ns;
        let bottleneck = &mut self.lanes[side as usize].bottleneck;
        bottleneck.offer(packet, now_ns);
        let planned = bottleneck.start(now_ns);
        self.plan_if(planned, Event::Bottleneck(side));
    }

    pub(super) fn leave_bottleneck(&mut self, side: Side) -> Happened {
        let now_ns = self.now_ns;
        let lane = &mut self.lanes[side as usize];
        let sent = lane.bottleneck.finish();
        let planned = lane.bottleneck.start(now_ns);
        let grant_ns = lane.grant_ns;
        self.plan_if(planned, Event::Bottleneck(side));
        let Some(packet) = sent else { return Happened::Something };
        let ready_ns = now_ns + self.rng.uniform_ns(grant_ns);
        match side {
            Side::Up => {
                if !self.rng.chance(self.loss) {
                    let at_ns = ready_ns + self.half_rtt_ns;
                    let planned = self.lanes[Side::Up as usize].path.push(at_ns, packet);
                    self.plan_if(planned, Event::PathArrival(Side::Up));
                }
                Happened::Something
            }
            Side::Down if grant_ns == 0 => self.receive_at_device(packet),
            Side::Down => {
                let planned = self.granted.push(ready_ns, packet);
                self.plan_if(planned, Event::Granted);
                Happened::Something
            }
        }
    }

    /// Plans the shaper's next packet, unless that is planned already.
    fn plan_shaper(&mut self, side: Side, yield_ns: u64) {
        let lane = &mut self.lanes[side as usize];
        let Some(ready_ns) = lane.shaper.as_ref().and_then(super::Shaper::ready_ns) else { return };
        if lane.shaper_planned_ns.is_some() {
            return;
        }
        let timer_ns =
            if ready_ns > self.now_ns { ready_ns + self.rng.exponential_ns(TIMER_LATE_NS) } else { ready_ns };
        let at_ns = self.cpu.ready_ns(timer_ns).max(self.now_ns) + yield_ns;
        lane.shaper_planned_ns = Some(at_ns);
        self.events.plan(at_ns, Event::Shaper(side));
    }

    pub(super) fn run_shaper(&mut self, side: Side) -> Happened {
        let now_ns = self.now_ns;
        let lane = &mut self.lanes[side as usize];
        let Some(shaper) = &mut lane.shaper else { return Happened::Something };
        if lane.shaper_planned_ns != Some(now_ns) {
            return Happened::Something;
        }
        lane.shaper_planned_ns = None;
        let ready_ns = shaper.ready_ns().map_or(u64::MAX, |ready_ns| self.cpu.ready_ns(ready_ns));
        if ready_ns > now_ns {
            self.plan_shaper(side, 0);
            return Happened::Something;
        }
        let sent = shaper.dequeue(now_ns);
        if let Some(packet) = &sent {
            self.cpu.shape(shaper.wire_bytes(packet), now_ns);
        }
        let dropped: Vec<Packet> = shaper.take_dropped().collect();
        self.plan_shaper(side, YIELD_NS);
        if side == Side::Up {
            for packet in dropped.iter().chain(&sent) {
                self.left_shaper(packet);
            }
        }
        match (side, sent) {
            (Side::Up, Some(packet)) => self.leave_device(packet),
            (Side::Down, Some(packet)) => return self.home(packet),
            (_, None) => {}
        }
        Happened::Something
    }
}
