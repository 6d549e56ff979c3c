//! What one trial of a target showed once its flows had settled, and what two of them amount to.

use super::pairs::Pair;
use crate::calibration::estimate::{Measurement, Observation};
use crate::calibration::outcome::TargetTrial;
use crate::calibration::session::tenths;
use crate::calibration::stats::{mean, quantile};
use crate::line::{Flows, Queue, Seen};
use crate::units::Rate;
use std::time::Duration;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tried {
    pub goodput: Rate,
    /// Plain round-trip times: the sparse probe's 95th percentile, and the flows' own mean.
    pub probe_p95_ms: f64,
    pub flows_ms: f64,
    /// What CAKE says its packets waited.
    pub queue_ms: f64,
    pub drops: u64,
}

impl Tried {
    pub fn new(seen: &Observation, measured: &Measurement, settled: Duration) -> Self {
        let direction = seen.direction();
        let (mut flows, mut queues, mut replies) = (Vec::<(Duration, Flows)>::new(), Vec::<Queue>::new(), Vec::new());
        for sample in seen.samples.iter().filter(|sample| sample.at >= settled) {
            match &sample.seen {
                Seen::Flows(counters) if counters.direction == direction => flows.push((sample.at, *counters)),
                Seen::Queue(queue) if queue.direction == direction => queues.push(*queue),
                Seen::Reply { reflector, rtt_ms } if !measured.sick.contains(reflector) => replies.push(*rtt_ms),
                _ => {}
            }
        }
        let (Some((from, first)), Some((to, last))) = (flows.first(), flows.last()) else { return Self::default() };
        let drops = match (queues.first(), queues.last()) {
            (Some(first), Some(last)) => last.dropped_packets.saturating_sub(first.dropped_packets),
            _ => 0,
        };
        let trips: Vec<f64> = flows.iter().filter_map(|(_, counters)| counters.srtt_ms).collect();
        let waits: Vec<f64> = queues.iter().map(|queue| queue.avg_delay_ms).collect();
        Self {
            goodput: Rate::of(last.payload_bytes.saturating_sub(first.payload_bytes) as f64, to.saturating_sub(*from)),
            probe_p95_ms: quantile(&replies, 0.95).unwrap_or_default(),
            flows_ms: mean(&trips).unwrap_or_default(),
            queue_ms: mean(&waits).unwrap_or_default(),
            drops,
        }
    }

    pub fn record(&self, target_ms: f64, flows: u32) -> TargetTrial {
        TargetTrial {
            target_ms,
            flows,
            goodput_kbit: self.goodput.kbit(),
            queue_ms: tenths(self.queue_ms),
            flows_ms: tenths(self.flows_ms),
            probe_p95_ms: tenths(self.probe_p95_ms),
            drops: self.drops,
        }
    }

    /// The second against the first.
    pub fn compare([short, long]: &[Self; 2]) -> Pair {
        Pair {
            gain: long.goodput.ratio(short.goodput).ln(),
            probe_ms: long.probe_p95_ms - short.probe_p95_ms,
            flows_ms: long.flows_ms - short.flows_ms,
            queue_ms: long.queue_ms - short.queue_ms,
            drops: [short.drops as f64, long.drops as f64],
        }
    }
}
