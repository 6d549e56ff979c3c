//! The seam to the world: a [`Line`] runs a [`Trial`] and streams [`Sample`]s.
//!
//! Two implementations are real: [`crate::router`] (a Linux router) and [`crate::sim`] (virtual time).
//! Recording, pacing, watching or failing is another `Line` around a `Line`.

mod around;
mod setting;

pub use around::{Faulty, Paced, Recorder, Replay, Stoppable};
pub use setting::{Accounting, Cake, Cells, LinkType};

use crate::units::{Direction, Rate};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The only way to the world. Whoever holds it decides nothing; whoever decides holds no socket.
pub trait Line {
    /// What is known before anything is measured. Changes nothing.
    ///
    /// # Errors
    /// [`LineError::Refused`] where a calibration cannot even start (no CAKE, no privileges, …).
    fn facts(&mut self) -> Result<Facts, LineError>;

    /// Shapes as the trial says, loads the line and hands every sample to `watch`, until the trial's
    /// time is over or `watch` has seen enough. On return the load has stopped; the shaping stays as the
    /// trial set it, until the next trial or [`Line::put_back`].
    fn run(&mut self, trial: &Trial, watch: &mut dyn FnMut(&Sample) -> Watch) -> Result<(), LineError>;

    /// Puts back everything this line changed in the world. Safe to call twice.
    fn put_back(&mut self) -> Result<(), LineError>;
}

/// What the watcher of a trial answers to each sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    Continue,
    /// The question is answered (or never will be): stop the load.
    Enough,
}

/// What a line knows of itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// `sim:vdsl2-pppoe`, or the device: `pppoe-wan`.
    pub name: String,
    pub link: LinkType,
    /// What the modem reports; an upper bound.
    pub sync_up: Option<Rate>,
    pub sync_down: Option<Rate>,
    /// Largest IP packet of the path from here.
    pub mtu: u32,
    /// In the order in which samples number them.
    pub reflectors: Vec<String>,
    /// Which of them is asked by TCP handshakes, not by pings: the second witness, where pings are blocked or let
    /// through ahead of the rest.
    #[serde(default)]
    pub witness: Option<usize>,
    /// Who takes the load, in words for people.
    pub server: String,
    /// What makes the rest of this less than certain.
    #[serde(default)]
    pub caveats: Vec<Caveat>,
}

/// A doubt that exists before anything is measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caveat {
    /// The code of the outcome's doubt.
    pub code: String,
    pub text: String,
}

/// An immutable plan of one observation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Counts from 1 within a calibration.
    pub number: u32,
    pub step: Step,
    pub upload: Shaping,
    pub download: Shaping,
    /// Empty: the idle line.
    pub loads: Vec<Load>,
    /// Indices into [`Facts::reflectors`].
    pub reflectors: Vec<usize>,
    /// How often each of them is asked.
    pub probe_interval: Duration,
    /// The trial ends after this even if nobody has seen enough.
    pub duration: Duration,
}

/// What shapes a direction during a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Shaping {
    /// Whatever the owner has there, or had before our first trial.
    AsIs,
    /// No shaper, the owner's neither.
    Unshaped,
    Cake(Cake),
}

impl Shaping {
    pub fn cake(&self) -> Option<&Cake> {
        match self {
            Self::Cake(cake) => Some(cake),
            Self::AsIs | Self::Unshaped => None,
        }
    }
}

/// Why a trial is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Step {
    Baseline,
    Unshaped,
    Link,
    Confirm,
    Search,
    Target,
    /// Is CAKE's ACK filter worth having?
    Acks,
    Verify,
}

/// Bulk TCP in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    pub direction: Direction,
    pub flows: u32,
    /// What the largest segment may carry, TCP options included: the IP packet is 40 bytes larger (IPv4).
    pub mss: u32,
    pub origin: Origin,
}

/// Where the load's TCP stack sits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// Sockets on the router itself.
    Local,
    /// A host of its own behind the router, as a client on the LAN is.
    Forwarded,
}

/// Something seen during a trial, with its time since the trial's load began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    pub at: Duration,
    pub seen: Seen,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Seen {
    /// A probe came back. `at` is the time of the reply.
    Reply { reflector: usize, rtt_ms: f64 },
    /// A probe did not come back within [`PROBE_TIMEOUT`]. `at` is the time it was given up.
    Lost { reflector: usize },
    /// What the flows of one load have done since the trial began.
    Flows(Flows),
    /// The shaper's own account of the queue, if one is set.
    Queue(Queue),
    /// The device's counters since the trial began, everybody's packets, IP bytes.
    Device { sent_bytes: u64, received_bytes: u64 },
    /// The busiest core's share of time not idle since the last such sample, 0 to 1.
    Cpu { busiest_core: f64 },
    /// The load is not what was asked for, through no fault of the line.
    Trouble(Trouble),
    /// A load that was to be forwarded comes from the router itself: a doubt about what it shows, no trouble.
    NotForwarded { why: String },
}

/// A probe that takes longer than this is lost.
pub const PROBE_TIMEOUT: Duration = Duration::from_secs(3);

/// Cumulative since the trial began, all flows of the load together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Flows {
    pub direction: Direction,
    pub alive: u32,
    /// Payload that arrived: acknowledged, selectively too (upload), or received (download).
    pub payload_bytes: u64,
    /// The same in IP packets and their bytes, headers included: what had to cross the line to deliver it.
    pub packets: u64,
    pub ip_bytes: u64,
    /// IP bytes handed to the device for it, repeats included. Not known for downloads: 0.
    pub sent_ip_bytes: u64,
    pub retransmits: u64,
    /// Mean smoothed round-trip time of the flows; `None` before the first.
    pub srtt_ms: Option<f64>,
    /// Share of the time in which the sender had nothing to send or no window to send it in, 0 to 1.
    pub sender_limited: f64,
}

/// CAKE's state; counters since the trial began.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Queue {
    pub direction: Direction,
    pub backlog_bytes: u64,
    /// IP bytes and packets that left the shaper.
    pub sent_bytes: u64,
    pub sent_packets: u64,
    pub dropped_packets: u64,
    pub ecn_marked: u64,
    /// Of the best-effort tin.
    pub avg_delay_ms: f64,
    pub target_ms: f64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Trouble {
    /// The server said no: 403, 413, 429 and their like. Never a line's result.
    ServerRefused { status: u16, retry_after_s: Option<u32> },
    /// Connections cannot be made or break.
    ServerLost { error: String },
    /// Connected, but nothing moves although the line answers probes.
    Stalled,
}

/// Why a line could not do what it was asked to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// The user stopped it.
    #[error("stopped")]
    Stopped,
    /// Nothing was started: something must be put right first.
    #[error("{problem}. {fix}")]
    Refused { problem: String, fix: String },
    /// Somebody else changed what the trial stands on; the trial proves nothing.
    #[error("{what} changed during the trial")]
    Disturbed { what: String },
    #[error("cannot {operation}: {cause}")]
    Failed { operation: String, cause: String },
}

impl LineError {
    pub fn refused(problem: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::Refused { problem: problem.into(), fix: fix.into() }
    }

    pub fn failed(operation: impl Into<String>, cause: impl std::fmt::Display) -> Self {
        Self::Failed { operation: operation.into(), cause: cause.to_string() }
    }
}
