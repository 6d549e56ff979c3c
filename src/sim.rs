//! The simulated line: packets in virtual time, the same for the same seed.
//!
//! A [`Scenario`] is the truth about a line. [`SimLine`] plays it, packet by packet: TCP senders, CAKE, the
//! bottleneck and its queue, the path, reflectors, a household. It knows no clock, so a calibration that takes
//! minutes on a router takes a second here. It is held to a table measured on a real kernel
//! (`tests/sim_kernel_table.rs`).

mod bottleneck;
mod cake;
mod cobalt;
mod cpu;
mod cubic;
mod event;
mod flow;
mod jitter;
mod lines;
mod mistake;
mod packet;
mod ranges;
mod receiver;
mod reflector;
mod rng;
mod scenario;
mod session;
mod tcp;
mod world;

pub use mistake::ScenarioError;
pub use scenario::{Habit, Household, Icmp, LinkRate, PathTruth, RateChange, ReflectorTruth, RouterTruth, Scenario};

use crate::line::{Facts, Line, LineError, Sample, Shaping, Trial, Watch};
use crate::units::{Direction, Rate};
use event::Side;
use session::Session;
use world::World;

/// A line in virtual time. Its clock begins when it is made and advances with each trial.
#[derive(Debug)]
pub struct SimLine {
    scenario: Scenario,
    world: World,
    probes_sent: u64,
}

/// Between two trials a real run sets up the next one.
const PAUSE_NS: u64 = 1_000_000_000;
/// However deep its queue, a line is given no longer than this to drain.
const MOST_PAUSE_NS: u64 = 5_000_000_000;
const DRAINED_MS: f64 = 1.0;

impl SimLine {
    /// The same scenario and seed give the same samples.
    pub fn new(scenario: Scenario, seed: u64) -> Self {
        let world = World::new(&scenario, seed);
        Self { scenario, world, probes_sent: 0 }
    }

    /// Seconds of the line's life so far.
    pub fn age_s(&self) -> f64 {
        self.world.now_ns() as f64 / 1e9
    }

    /// Packets that the bottleneck has dropped so far: the truth behind a sender's retransmits.
    pub fn bottleneck_drops(&self, direction: Direction) -> u64 {
        self.world.lane(direction.into()).bottleneck.dropped()
    }

    fn shape(&mut self, side: Side, shaping: Shaping) {
        match shaping {
            Shaping::AsIs => {}
            Shaping::Unshaped => self.world.shape(side, None),
            Shaping::Cake(cake) => self.world.shape(side, Some(cake)),
        }
    }

    /// The load is over; what it left in the queues drains.
    fn pause(&mut self) {
        let begin_ns = self.world.now_ns();
        let mut until_ns = begin_ns + PAUSE_NS;
        loop {
            while self.world.step(until_ns).is_some() {}
            let drained = Side::BOTH.iter().all(|side| self.world.lane(*side).bottleneck.backlog_ms() < DRAINED_MS);
            if drained || until_ns >= begin_ns + MOST_PAUSE_NS {
                return;
            }
            until_ns += PAUSE_NS / 4;
        }
    }
}

impl Line for SimLine {
    fn facts(&mut self) -> Result<Facts, LineError> {
        let known = |kbit| (kbit > 0).then(|| Rate::from_kbit(kbit));
        Ok(Facts {
            name: format!("sim:{}", self.scenario.name),
            link: self.scenario.router.link,
            sync_up: known(self.scenario.router.sync_up_kbit),
            sync_down: known(self.scenario.router.sync_down_kbit),
            mtu: self.scenario.path.mtu,
            reflectors: self.scenario.reflectors.iter().map(|reflector| reflector.name.clone()).collect(),
            witness: self.scenario.reflectors.iter().position(|reflector| reflector.tcp),
            server: "the simulated server".to_owned(),
            caveats: Vec::new(),
        })
    }

    fn run(&mut self, trial: &Trial, watch: &mut dyn FnMut(&Sample) -> Watch) -> Result<(), LineError> {
        if let Some(unknown) = trial.reflectors.iter().find(|at| **at >= self.scenario.reflectors.len()) {
            return Err(LineError::failed("probe the line", format!("it has no reflector number {unknown}")));
        }
        self.shape(Side::Up, trial.upload);
        self.shape(Side::Down, trial.download);
        Session::begin(&mut self.world, trial, &mut self.probes_sent).run(watch);
        self.pause();
        Ok(())
    }

    fn put_back(&mut self) -> Result<(), LineError> {
        for side in Side::BOTH {
            self.shape(side, Shaping::Unshaped);
        }
        Ok(())
    }
}
