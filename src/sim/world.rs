//! Everything between a sender and its receiver, in virtual time.
//!
//! ```text
//!   up:   LAN client ─► (CAKE) ─► bottleneck ─► path ─► far end
//!   down: far end ─► path ─► bottleneck ─► (CAKE) ─► LAN client
//! ```
//! Acknowledgements and probes are packets like any other and take the same way as everything that goes in
//! their direction. A round trip's jitter is at the far end, in each reflector and in the server.

use super::bottleneck::Bottleneck;
use super::cake::Shaper;
use super::cpu::Cpu;
use super::cubic::Congestion;
use super::event::{Event, EventQueue, Side};
use super::flow::{Flow, Pace};
use super::jitter::Jitter;
use super::packet::{DelayLine, Kind, PROBE_BYTES, Packet};
use super::reflector::Reflector;
use super::rng::Rng;
use super::scenario::Scenario;
use crate::line::{Cake, Origin};
use crate::units::Rate;
use household::Resident;

mod ends;
mod household;
mod ways;

#[derive(Debug)]
pub struct World {
    now_ns: u64,
    events: EventQueue,
    lanes: [Lane; 2],
    /// From the client to the router, at a gigabit.
    lan: DelayLine,
    granted: DelayLine,
    /// What the server has not got round to: a round trip's jitter.
    server: DelayLine,
    flows: Vec<Option<Box<Flow>>>,
    residents: Vec<Resident>,
    reflectors: Vec<Reflector>,
    cpu: Cpu,
    rng: Rng,
    seed: u64,
    shapers_made: u64,
    half_rtt_ns: u64,
    jitter: Jitter,
    loss: f64,
}

/// One direction.
#[derive(Debug)]
pub struct Lane {
    pub shaper: Option<Shaper>,
    shaper_planned_ns: Option<u64>,
    pub bottleneck: Bottleneck,
    path: DelayLine,
    grant_ns: u64,
    changes: Vec<Rate>,
    /// IP bytes that crossed the WAN device.
    pub device_bytes: u64,
}

/// What a step of the world brought that somebody outside may want to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happened {
    /// Nothing to report.
    Something,
    /// A probe is back.
    Reply { number: u64 },
    /// An event that the trial had planned for itself.
    Due(Event),
}

/// Streams of chance.
const FLOWS_STREAM: u64 = 1;
const JITTER_STREAM: u64 = 2;
const BOTTLENECK_STREAM: u64 = 10;
const REFLECTOR_STREAM: u64 = 100;
const SHAPER_STREAM: u64 = 10_000;

const LAN: Rate = Rate::from_kbit(1_000_000);

pub fn nanos(ms: f64) -> u64 {
    (ms * 1e6) as u64
}

impl World {
    pub fn new(scenario: &Scenario, seed: u64) -> Self {
        let jitter_ns = nanos(scenario.path.jitter_ms);
        let mut world = Self {
            now_ns: 0,
            events: EventQueue::default(),
            lanes: Side::BOTH.map(|side| {
                let link = scenario.link(side.direction());
                let rng = Rng::new(seed, BOTTLENECK_STREAM + side as u64);
                Lane {
                    shaper: None,
                    shaper_planned_ns: None,
                    bottleneck: Bottleneck::new(link, scenario.path.mtu, rng),
                    path: DelayLine::default(),
                    grant_ns: nanos(link.grant_ms),
                    changes: link.changes.iter().map(|change| Rate::from_kbit(change.rate_kbit)).collect(),
                    device_bytes: 0,
                }
            }),
            lan: DelayLine::default(),
            granted: DelayLine::default(),
            server: DelayLine::default(),
            flows: Vec::new(),
            residents: Vec::new(),
            reflectors: (REFLECTOR_STREAM..)
                .zip(&scenario.reflectors)
                .map(|(stream, truth)| {
                    Reflector::new(truth.clone(), scenario.path.icmp, jitter_ns, Rng::new(seed, stream))
                })
                .collect(),
            cpu: Cpu::new(scenario.router.shaper_cpu_kbit),
            rng: Rng::new(seed, FLOWS_STREAM),
            seed,
            shapers_made: 0,
            half_rtt_ns: nanos(scenario.path.rtt_ms / 2.0),
            jitter: Jitter::new(jitter_ns, Rng::new(seed, JITTER_STREAM)),
            loss: scenario.path.loss,
        };
        // Each reflector has a flow of its own in CAKE's eyes.
        world.flows.resize_with(world.reflectors.len(), || None);
        for side in Side::BOTH {
            for (number, change) in (0..).zip(&scenario.link(side.direction()).changes) {
                world.events.plan(nanos(change.at_s * 1000.0), Event::RateChange(side, number));
            }
        }
        world.move_in(scenario);
        world
    }

    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    pub fn lane(&self, side: Side) -> &Lane {
        &self.lanes[side as usize]
    }

    pub fn cpu(&mut self) -> &mut Cpu {
        &mut self.cpu
    }

    pub fn flow(&self, id: u32) -> Option<&Flow> {
        self.flows.get(id as usize)?.as_deref()
    }

    /// A new shaper, or none; what waited in the old one is lost with it.
    pub fn shape(&mut self, side: Side, cake: Option<Cake>) {
        self.shapers_made += 1;
        let rng = Rng::new(self.seed, SHAPER_STREAM + self.shapers_made);
        let lane = &mut self.lanes[side as usize];
        lane.shaper = cake.map(|cake| Shaper::new(cake, self.now_ns, rng));
        lane.shaper_planned_ns = None;
    }

    /// A TCP flow that begins `within_ns` from now. Returns its number.
    pub fn open(&mut self, side: Side, origin: Origin, mss: u32, congestion: Congestion, within_ns: u64) -> u32 {
        let id = self.new_id();
        self.flows[id as usize] = Some(Box::new(Flow::new(id, side, origin, mss, congestion)));
        let at_ns = self.now_ns + self.rng.uniform_ns(within_ns);
        self.events.plan(at_ns, Event::FlowStart(id));
        id
    }

    /// The flow just ceases; what is under way still takes its room.
    pub fn close(&mut self, id: u32) {
        if let Some(flow) = self.flows.get_mut(id as usize) {
            *flow = None;
        }
    }

    pub fn set_pace(&mut self, id: u32, bits_per_s: u64) {
        let from_ns = self.now_ns;
        if let Some(flow) = self.flows[id as usize].as_deref_mut() {
            flow.pace = Some(Pace { from_ns, bits_per_s, planned: false });
        }
    }

    pub fn new_id(&mut self) -> u32 {
        self.flows.push(None);
        self.flows.len() as u32 - 1
    }

    pub fn plan(&mut self, at_ns: u64, event: Event) {
        self.events.plan(at_ns, event);
    }

    pub fn forget_trial(&mut self) {
        self.events.forget_trial();
    }

    pub fn send_probe(&mut self, reflector: u32, number: u64) {
        let kind = Kind::Probe { number, reflector };
        self.send_up(Packet { flow: reflector, ip_bytes: PROBE_BYTES, kind, queued_ns: 0 });
    }

    /// Lets the next thing happen that is due by `until_ns`; without one, the time has come.
    pub fn step(&mut self, until_ns: u64) -> Option<Happened> {
        let Some((at_ns, event)) = self.events.pop_until(until_ns) else {
            self.now_ns = self.now_ns.max(until_ns);
            return None;
        };
        self.now_ns = self.now_ns.max(at_ns);
        match event {
            Event::LanArrival => {
                let (packet, next) = self.lan.pop();
                self.plan_if(next, Event::LanArrival);
                if let Some(packet) = packet {
                    self.send_up(packet);
                }
            }
            Event::Shaper(side) => return Some(self.run_shaper(side)),
            Event::Bottleneck(side) => return Some(self.leave_bottleneck(side)),
            Event::PathArrival(side) => {
                let (packet, next) = self.lanes[side as usize].path.pop();
                self.plan_if(next, Event::PathArrival(side));
                match (side, packet) {
                    (Side::Up, Some(packet)) => self.far_end(packet),
                    (Side::Down, Some(packet)) => self.enter_bottleneck(side, packet),
                    (_, None) => {}
                }
            }
            Event::Granted => {
                let (packet, next) = self.granted.pop();
                self.plan_if(next, Event::Granted);
                if let Some(packet) = packet {
                    return Some(self.receive_at_device(packet));
                }
            }
            Event::Server => {
                let (packet, next) = self.server.pop();
                self.plan_if(next, Event::Server);
                if let Some(packet) = packet {
                    self.serve(&packet);
                }
            }
            Event::FlowStart(id) => self.pump(id),
            Event::Application(id) => {
                if let Some(pace) = self.flows[id as usize].as_mut().and_then(|flow| flow.pace.as_mut()) {
                    pace.planned = false;
                }
                self.pump(id);
            }
            Event::FlowTimer(id) => self.flow_timer(id),
            Event::DelayedAck(id) => self.delayed_ack(id),
            Event::RateChange(side, number) => {
                let lane = &mut self.lanes[side as usize];
                lane.bottleneck.set_rate(lane.changes[number as usize]);
            }
            Event::ProbeReply { number, reflector } => {
                let kind = Kind::Probe { number, reflector };
                self.send_down(Packet { flow: reflector, ip_bytes: PROBE_BYTES, kind, queued_ns: 0 });
            }
            Event::HouseholdBegin(number) => self.begin_habit(number),
            Event::HouseholdEnd(number) => self.end_habit(number),
            Event::HouseholdPacket(number) => self.continue_habit(number),
            Event::ProbeSend(_) | Event::ProbeTimeout | Event::Counters | Event::Cpu => {
                return Some(Happened::Due(event));
            }
        }
        Some(Happened::Something)
    }
}
