//! One trial on the world: opens its flows, sends its probes, reads its counters, and closes it all again.

use super::cubic::{Congestion, Cubic};
use super::event::{Event, Side};
use super::flow::Flow;
use super::world::{Happened, World};
use crate::line::{Flows, Load, PROBE_TIMEOUT, Queue, Sample, Seen, Trial, Watch};
use crate::units::MILLISECOND;
use std::collections::VecDeque;
use std::time::Duration;

pub struct Session<'a> {
    world: &'a mut World,
    probes_sent: &'a mut u64,
    began_ns: u64,
    ends_ns: u64,
    probe_interval_ns: u64,
    loads: Vec<(Load, Vec<u32>)>,
    /// Under way, in the order in which they were sent; the first has number `first_probe`.
    probes: VecDeque<Probe>,
    first_probe: u64,
    device_before: [u64; 2],
    shaper_before: [super::cake::Counters; 2],
    samples: Vec<Seen>,
}

#[derive(Clone, Copy, Debug)]
struct Probe {
    /// Its place in [`crate::line::Facts::reflectors`].
    reflector: u32,
    sent_ns: u64,
    answered: bool,
}

const COUNTERS_EVERY_NS: u64 = 100_000_000;
const CPU_EVERY_NS: u64 = 200_000_000;
const PROBE_TIMEOUT_NS: u64 = PROBE_TIMEOUT.as_nanos() as u64;
/// Sockets are opened one after the other.
const START_WITHIN_NS: u64 = 20_000_000;

impl<'a> Session<'a> {
    pub fn begin(world: &'a mut World, trial: &Trial, probes_sent: &'a mut u64) -> Self {
        let began_ns = world.now_ns();
        let probe_interval_ns = (trial.probe_interval.max(MILLISECOND)).as_nanos() as u64;
        // Probes take turns.
        for (turn, reflector) in (0..).zip(&trial.reflectors) {
            let after_ns = probe_interval_ns * turn / trial.reflectors.len() as u64;
            world.plan(began_ns + after_ns, Event::ProbeSend(*reflector as u32));
        }
        world.plan(began_ns + COUNTERS_EVERY_NS, Event::Counters);
        world.plan(began_ns + CPU_EVERY_NS, Event::Cpu);
        world.cpu().take_share(1);
        let loads = trial.loads.iter().map(|load| (*load, open(world, load))).collect();
        let first_probe = *probes_sent;
        Self {
            device_before: Side::BOTH.map(|side| world.lane(side).device_bytes),
            shaper_before: Side::BOTH
                .map(|side| world.lane(side).shaper.as_ref().map(super::cake::Shaper::counters).unwrap_or_default()),
            world,
            probes_sent,
            began_ns,
            ends_ns: began_ns + trial.duration.as_nanos() as u64,
            probe_interval_ns,
            loads,
            probes: VecDeque::new(),
            first_probe,
            samples: Vec::new(),
        }
    }

    /// Until the time is over or `watch` has seen enough.
    pub fn run(mut self, watch: &mut dyn FnMut(&Sample) -> Watch) {
        'trial: while let Some(happened) = self.world.step(self.ends_ns) {
            match happened {
                Happened::Something => continue,
                Happened::Reply { number } => self.reply(number),
                Happened::Due(event) => self.due(event),
            }
            let at = Duration::from_nanos(self.world.now_ns() - self.began_ns);
            for seen in self.samples.drain(..) {
                if watch(&Sample { at, seen }) == Watch::Enough {
                    break 'trial;
                }
            }
        }
        for id in self.loads.iter().flat_map(|(_, ids)| ids) {
            self.world.close(*id);
        }
        self.world.forget_trial();
    }

    fn due(&mut self, event: Event) {
        let now_ns = self.world.now_ns();
        match event {
            Event::ProbeSend(reflector) => {
                self.probes.push_back(Probe { reflector, sent_ns: now_ns, answered: false });
                self.world.send_probe(reflector, *self.probes_sent);
                *self.probes_sent += 1;
                self.world.plan(now_ns + PROBE_TIMEOUT_NS, Event::ProbeTimeout);
                self.world.plan(now_ns + self.probe_interval_ns, event);
            }
            Event::ProbeTimeout => {
                self.first_probe += 1;
                if let Some(Probe { reflector, answered: false, .. }) = self.probes.pop_front() {
                    self.samples.push(Seen::Lost { reflector: reflector as usize });
                }
            }
            Event::Counters => {
                self.read_counters();
                self.world.plan(now_ns + COUNTERS_EVERY_NS, event);
            }
            Event::Cpu => {
                let busiest_core = self.world.cpu().take_share(CPU_EVERY_NS);
                self.samples.push(Seen::Cpu { busiest_core });
                self.world.plan(now_ns + CPU_EVERY_NS, event);
            }
            _ => {}
        }
    }

    /// A late answer, or one to an earlier trial's probe, is no answer.
    fn reply(&mut self, number: u64) {
        let now_ns = self.world.now_ns();
        let place = number.checked_sub(self.first_probe).and_then(|at| usize::try_from(at).ok());
        if let Some(probe) = place.and_then(|at| self.probes.get_mut(at)) {
            probe.answered = true;
            let rtt_ms = (now_ns - probe.sent_ns) as f64 / 1e6;
            self.samples.push(Seen::Reply { reflector: probe.reflector as usize, rtt_ms });
        }
    }

    fn read_counters(&mut self) {
        for (load, ids) in &self.loads {
            self.samples.push(Seen::Flows(self.flows(*load, ids)));
        }
        for side in Side::BOTH {
            if let Some(queue) = self.queue(side) {
                self.samples.push(Seen::Queue(queue));
            }
        }
        let [sent_bytes, received_bytes] =
            Side::BOTH.map(|side| self.world.lane(side).device_bytes - self.device_before[side as usize]);
        self.samples.push(Seen::Device { sent_bytes, received_bytes });
    }

    fn flows(&self, load: Load, ids: &[u32]) -> Flows {
        let now_ns = self.world.now_ns();
        let flows: Vec<&Flow> = ids.iter().filter_map(|id| self.world.flow(*id)).collect();
        let (payload, ip_bytes) = flows.first().map_or((0, 0), |flow| (flow.payload, flow.ip_bytes()));
        let packets = flows.iter().map(|flow| flow.delivered()).sum::<u64>();
        let sent = flows.iter().map(|flow| flow.sender.counters().sent).sum::<u64>();
        let rtts: Vec<f64> =
            flows.iter().filter_map(|flow| flow.sender.smoothed_rtt_ns()).map(|ns| ns as f64 / 1e6).collect();
        let limited_ns = flows.iter().map(|flow| flow.limited.total_ns(now_ns)).sum::<u64>();
        let lived_ns = (now_ns - self.began_ns).max(1) as f64 * flows.len().max(1) as f64;
        Flows {
            direction: load.direction,
            alive: flows.len() as u32,
            payload_bytes: packets * u64::from(payload),
            packets,
            ip_bytes: packets * u64::from(ip_bytes),
            sent_ip_bytes: if Side::from(load.direction) == Side::Up { sent * u64::from(ip_bytes) } else { 0 },
            retransmits: flows.iter().map(|flow| flow.sender.counters().repeats).sum(),
            srtt_ms: (!rtts.is_empty()).then(|| rtts.iter().sum::<f64>() / rtts.len() as f64),
            sender_limited: (limited_ns as f64 / lived_ns).min(1.0),
        }
    }

    fn queue(&self, side: Side) -> Option<Queue> {
        let shaper = self.world.lane(side).shaper.as_ref()?;
        let (counters, before) = (shaper.counters(), self.shaper_before[side as usize]);
        Some(Queue {
            direction: side.direction(),
            backlog_bytes: shaper.backlog_bytes(),
            sent_bytes: counters.sent_bytes - before.sent_bytes,
            sent_packets: counters.sent_packets - before.sent_packets,
            dropped_packets: counters.dropped_packets - before.dropped_packets,
            ecn_marked: 0,
            avg_delay_ms: counters.avg_delay_ns / 1e6,
            target_ms: shaper.target_ns() as f64 / 1e6,
        })
    }
}

fn open(world: &mut World, load: &Load) -> Vec<u32> {
    let side = Side::from(load.direction);
    (0..load.flows)
        .map(|_| world.open(side, load.origin, load.mss, Congestion::Cubic(Cubic::default()), START_WITHIN_NS))
        .collect()
}
