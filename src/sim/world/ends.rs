//! Both ends of the line: who sends, who receives, who answers.

use super::{Happened, World};
use crate::line::Origin;
use crate::sim::event::{Event, Side};
use crate::sim::flow::Flow;
use crate::sim::packet::{Ack, Kind, Packet};

impl World {
    /// A packet of the upload has reached a server or a reflector.
    pub(super) fn far_end(&mut self, packet: Packet) {
        match packet.kind {
            Kind::Data { .. } | Kind::Ack(_) => {
                let at_ns = self.now_ns + self.jitter.delay_ns(self.now_ns);
                let planned = self.server.push(at_ns, packet);
                self.plan_if(planned, Event::Server);
            }
            Kind::Probe { number, reflector } => {
                let now_ns = self.now_ns;
                if let Some(after_ns) = self.reflectors[reflector as usize].answer(now_ns) {
                    self.events.plan(now_ns + after_ns, Event::ProbeReply { number, reflector });
                }
            }
            Kind::Datagram => {}
        }
    }

    /// The server has got round to a packet.
    pub(super) fn serve(&mut self, packet: &Packet) {
        match packet.kind {
            Kind::Data { segment, sent_ns } => self.receive(packet.flow, segment, sent_ns),
            Kind::Ack(ack) => self.acknowledged(packet.flow, &ack),
            Kind::Probe { .. } | Kind::Datagram => {}
        }
    }

    /// A packet of the download has reached the router's LAN, or the router itself.
    pub(super) fn home(&mut self, packet: Packet) -> Happened {
        match packet.kind {
            Kind::Data { segment, sent_ns } => self.receive(packet.flow, segment, sent_ns),
            Kind::Ack(ack) => self.acknowledged(packet.flow, &ack),
            Kind::Probe { number, .. } => return Happened::Reply { number },
            Kind::Datagram => {}
        }
        Happened::Something
    }

    /// Sends whatever flow `id` may send now.
    pub(super) fn pump(&mut self, id: u32) {
        let Some(mut flow) = self.take(id) else { return };
        let now_ns = self.now_ns;
        let more_ns = flow.feed(now_ns);
        while !flow.is_pushed_back() {
            let Some(segment) = flow.sender.next_to_send(now_ns) else { break };
            self.launch(&mut flow, segment);
        }
        flow.sender.pause();
        flow.limited.note(flow.sender.is_sender_limited(), now_ns);
        self.plan_if(more_ns, Event::Application(id));
        self.plan_timer(&mut flow);
        self.put(flow);
    }

    pub(super) fn flow_timer(&mut self, id: u32) {
        let Some(mut flow) = self.take(id) else { return };
        let now_ns = self.now_ns;
        if flow.timer_planned_ns.is_some_and(|planned_ns| planned_ns <= now_ns) {
            flow.timer_planned_ns = None;
        }
        if flow.sender.timer_ns().is_none_or(|at_ns| at_ns > now_ns) {
            self.plan_timer(&mut flow);
            self.put(flow);
            return;
        }
        if let Some(probe) = flow.sender.on_timer(now_ns) {
            self.launch(&mut flow, probe);
        }
        self.put(flow);
        self.pump(id);
    }

    pub(super) fn delayed_ack(&mut self, id: u32) {
        let Some(mut flow) = self.take(id) else { return };
        let now_ns = self.now_ns;
        flow.ack_planned_ns = None;
        match flow.receiver.delayed_until_ns() {
            Some(until_ns) if until_ns <= now_ns => {
                let ack = flow.receiver.acknowledge();
                self.put(flow);
                self.send_ack(id, ack);
            }
            Some(until_ns) => {
                self.plan_ack(&mut flow, until_ns);
                self.put(flow);
            }
            None => self.put(flow),
        }
    }

    /// A packet has left the upload shaper, for the wire or for good: its socket may put in another.
    pub(super) fn left_shaper(&mut self, packet: &Packet) {
        let Kind::Data { .. } = packet.kind else { return };
        let Some(Some(flow)) = self.flows.get_mut(packet.flow as usize) else { return };
        if flow.origin == Origin::Local && flow.side == Side::Up {
            let pushed_back = flow.is_pushed_back();
            flow.in_shaper = flow.in_shaper.saturating_sub(1);
            if pushed_back {
                self.pump(packet.flow);
            }
        }
    }

    fn receive(&mut self, id: u32, segment: u32, sent_ns: u64) {
        let Some(mut flow) = self.take(id) else { return };
        let ack = flow.receiver.on_data(segment, sent_ns, self.now_ns);
        if let Some(until_ns) = flow.receiver.delayed_until_ns() {
            self.plan_ack(&mut flow, until_ns);
        }
        self.put(flow);
        if let Some(ack) = ack {
            self.send_ack(id, ack);
        }
    }

    /// Back to the sender, through the other direction's queues.
    fn send_ack(&mut self, id: u32, ack: Ack) {
        let Some(flow) = self.flow(id) else { return };
        let packet = Packet { flow: id, ip_bytes: ack.ip_bytes(), kind: Kind::Ack(ack), queued_ns: 0 };
        match flow.side {
            Side::Up => self.send_down(packet),
            Side::Down => self.send_up(packet),
        }
    }

    fn acknowledged(&mut self, id: u32, ack: &Ack) {
        let now_ns = self.now_ns;
        let Some(Some(flow)) = self.flows.get_mut(id as usize) else { return };
        flow.sender.on_ack(ack, now_ns);
        self.pump(id);
    }

    fn launch(&mut self, flow: &mut Flow, segment: u32) {
        let packet = flow.packet(segment, self.now_ns);
        match (flow.side, flow.origin) {
            (Side::Up, Origin::Forwarded) => self.send_over_lan(packet),
            (Side::Up, Origin::Local) => {
                if self.lanes[Side::Up as usize].shaper.is_some() {
                    flow.in_shaper += 1;
                }
                self.send_up(packet);
            }
            (Side::Down, _) => self.send_down(packet),
        }
    }

    fn plan_timer(&mut self, flow: &mut Flow) {
        if let Some(at_ns) = flow.sender.timer_ns()
            && flow.timer_planned_ns.is_none_or(|planned_ns| at_ns < planned_ns)
        {
            flow.timer_planned_ns = Some(at_ns);
            self.events.plan(at_ns.max(self.now_ns), Event::FlowTimer(flow.id));
        }
    }

    fn plan_ack(&mut self, flow: &mut Flow, until_ns: u64) {
        if flow.ack_planned_ns.is_none() {
            flow.ack_planned_ns = Some(until_ns);
            self.events.plan(until_ns, Event::DelayedAck(flow.id));
        }
    }

    fn take(&mut self, id: u32) -> Option<Box<Flow>> {
        self.flows.get_mut(id as usize)?.take()
    }

    fn put(&mut self, flow: Box<Flow>) {
        let id = flow.id as usize;
        self.flows[id] = Some(flow);
    }
}
