//! Hand-made trials and samples for the unit tests of the core.

use super::idle::Idle;
use crate::line::{Flows, Load, Origin, Queue, Sample, Seen, Shaping, Step, Trial};
use crate::units::Direction;
use std::time::Duration;

pub const INTERVAL: Duration = Duration::from_millis(200);

pub fn trial() -> Trial {
    Trial {
        number: 1,
        step: Step::Search,
        upload: Shaping::Unshaped,
        download: Shaping::AsIs,
        loads: vec![Load { direction: Direction::Upload, flows: 4, mss: 1460, origin: Origin::Local }],
        reflectors: vec![0, 1, 2, 3],
        probe_interval: INTERVAL,
        duration: Duration::from_secs(10),
    }
}

pub fn sample(at_ms: u32, seen: Seen) -> Sample {
    Sample { at: Duration::from_millis(u64::from(at_ms)), seen }
}

pub fn reply(at_ms: u32, reflector: usize, rtt_ms: f64) -> Sample {
    sample(at_ms, Seen::Reply { reflector, rtt_ms })
}

/// An upload that has delivered so many packets of 1500 bytes.
pub fn flows(at_ms: u32, packets: u64, retransmits: u64) -> Sample {
    sample(
        at_ms,
        Seen::Flows(Flows {
            direction: Direction::Upload,
            alive: 4,
            payload_bytes: packets * 1448,
            packets,
            ip_bytes: packets * 1500,
            sent_ip_bytes: (packets + retransmits) * 1500,
            retransmits,
            srtt_ms: None,
            sender_limited: 0.0,
        }),
    )
}

/// A CAKE on the upload that has dropped so many packets.
pub fn queue(at_ms: u32, dropped_packets: u64) -> Sample {
    sample(
        at_ms,
        Seen::Queue(Queue {
            direction: Direction::Upload,
            backlog_bytes: 3000,
            sent_bytes: 0,
            sent_packets: 0,
            dropped_packets,
            ecn_marked: 0,
            avg_delay_ms: 4.0,
            target_ms: 5.0,
        }),
    )
}

/// An idle line with a little jitter.
pub fn idle(reflectors: usize, rtt_ms: f64) -> Idle {
    let mut samples = Vec::new();
    for k in 0..30u32 {
        for reflector in 0..reflectors {
            samples.push(reply(200 * k, reflector, rtt_ms + f64::from(k % 5) * 0.2));
        }
    }
    Idle::judge(&samples, reflectors, None, INTERVAL * 30, INTERVAL).0.expect("healthy reflectors")
}
