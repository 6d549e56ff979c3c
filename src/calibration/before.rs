//! The line before anything is set: idle, and under load without a shaper.

use super::Progressed;
use super::capacity::Capacity;
use super::estimate::Measurement;
use super::idle::Idle;
use super::outcome::{Grade, Quantiles};
use super::search::FIRST_GUESS;
use super::session::{Attempt, Ends, Halt, Provider, Session, tenths};
use super::verdict::{CleanBound, Doubtful, Judge, LOSSY, MAX_FOREIGN, NO_QUEUE_MS, Verdict, pings_go_first};
use crate::line::{Accounting, LinkType, Shaping, Step};
use crate::units::Direction;
use std::time::Duration;

/// Idle replies wanted for the quantiles that everything is compared with.
const IDLE_REPLIES: u32 = 120;
/// A baseline is at least and at most this long.
const BASELINE: (Duration, Duration) = (Duration::from_secs(4), Duration::from_secs(12));
/// Outlasts the 10 s of burst credit that cable modems give (facts H).
pub const UNSHAPED: Duration = Duration::from_millis(12_500);
/// A queue this small on average is none that a load could have built.
const SATURATED_MS: f64 = 0.3;

/// What one direction does without a shaper.
pub struct Before {
    pub measured: Measurement,
    pub capacity: Capacity,
    pub bound: CleanBound,
}

/// Does this direction need a shaper?
pub enum Need {
    Yes,
    /// It drops what is too much without delaying anything: the rate has to be found by the losses.
    Policed,
    /// Why not.
    No(String),
}

/// The idle line: which reflectors are good, and what their replies look like.
pub fn baseline(session: &mut Session, so_far: &mut Progressed) -> Result<(), Halt> {
    let reflectors = session.facts.reflectors.len() as u32;
    let interval = session.probe_interval();
    let wanted = interval * IDLE_REPLIES.div_ceil(reflectors.max(1));
    let duration = wanted.clamp(BASELINE.0, BASELINE.1);
    // The other direction's traffic is for its own trials to find.
    let (direction, sync) = if session.plan().wants_upload() {
        (Direction::Upload, session.facts.sync_up)
    } else {
        (Direction::Download, session.facts.sync_down)
    };
    let (idle, left_out) = loop {
        let seen = session.run_idle(duration)?;
        let foreign = seen.foreign(direction);
        if sync.is_some_and(|sync| foreign >= sync.times(MAX_FOREIGN)) {
            session.be_patient(foreign, duration)?;
            continue;
        }
        let (idle, left_out) =
            Idle::judge(&seen.samples, reflectors as usize, session.facts.witness, duration, interval);
        break (idle, left_out);
    };
    let Some(idle) = idle else {
        let text = "no reflector answers: is the line up, and may it be pinged? Name another with --reflector";
        return Err(Halt::inconclusive("reflectors", text));
    };
    if session.facts.witness.is_some_and(|witness| idle.good() == [witness]) {
        session
            .doubt("icmp", "no ping is answered on this line: TCP handshakes with the load server are timed instead");
    }
    for left in left_out {
        let name = session.facts.reflectors[left.reflector].clone();
        session.doubt("reflectors", format!("{name} is left out: it {}", left.why));
    }
    so_far.latency.idle = Some(Quantiles { p50: tenths(idle.p50_ms), p95: tenths(idle.p95_ms) });
    session.idle = Some(idle);
    Ok(())
}

/// The line without a shaper in this direction, loaded: what the bottleneck drains, and what is clean there.
pub fn unshaped(
    session: &mut Session,
    direction: Direction,
    accounting: Accounting,
    so_far: &mut Progressed,
) -> Result<Before, Halt> {
    let measured = loaded(session, direction, Shaping::Unshaped, so_far)?;
    let idle = session.idle.clone().unwrap_or_default();
    let capacity = Capacity::of(&measured.windows, measured.packets_per_s);
    let booked = |packets_per_s| measured.booked(&accounting, session.packet_bytes(), packets_per_s);
    let rate = booked(capacity.packets_per_s());
    match direction {
        Direction::Upload => session.line_rate = Some(rate),
        Direction::Download => {
            let queue_ms = measured.added_p95_ms.unwrap_or_default().max(0.0);
            session.provider = Some(Provider { queue: Duration::from_secs_f64(queue_ms / 1000.0), drains: rate });
        }
    }
    // What comes in can only be shaped behind its bottleneck: a packet of each flow may stand there at once.
    let packets = if direction == Direction::Download { session.load(direction).flows } else { 1 };
    let wire_bytes = accounting.wire_bytes(session.packet_bytes()) * packets;
    let bound = CleanBound::new(session.plan().max_added_ms, &idle, rate.times(FIRST_GUESS), wire_bytes);
    let shaped = so_far.shaped(direction);
    shaped.capacity_kbit = Some(rate.kbit());
    shaped.clean_below_ms = Some(tenths(bound.ms));
    if rate.kbit() == 0 {
        return Err(Halt::inconclusive("load-limited", "nothing got through: the load server did not take the load"));
    }
    Ok(Before { measured, capacity, bound })
}

/// Loads one direction as it is, or without a shaper.
pub fn loaded(
    session: &mut Session,
    direction: Direction,
    shaping: Shaping,
    so_far: &mut Progressed,
) -> Result<Measurement, Halt> {
    let attempt = Attempt {
        step: Step::Unshaped,
        setting: session.setting.with(direction, shaping),
        loads: vec![session.load(direction)],
        duration: UNSHAPED,
        ends: Ends::IfInvalid,
    };
    let idle = session.idle.clone().unwrap_or_default();
    let bound = CleanBound::at_any_rate(session.plan().max_added_ms, &idle);
    let judge = Judge { bound, idle: &idle, packet_bytes: session.packet_bytes(), policed: false };
    let (measured, verdict) = session.run(&attempt, &judge)?;
    if pings_go_first(&measured, &bound) {
        session.distrust_pings();
        return loaded(session, direction, shaping, so_far);
    }
    if so_far.latency.unshaped.is_none() {
        so_far.latency.unshaped = quantiles(&measured);
        so_far.latency.grade_before = measured.added_p95_ms.map(Grade::of);
    }
    match verdict {
        Verdict::Inconclusive(Doubtful::Unsure { .. }) | Verdict::Clean { .. } | Verdict::Bloated(_) => Ok(measured),
        Verdict::Inconclusive(why) => Err(why.into()),
    }
}

impl Before {
    /// What the direction gains from a shaper, by what it did without. Where it gains something, the line must keep its
    /// rate; a queue that is often empty says nothing about that.
    pub fn need(&self, session: &mut Session, accounting: Accounting) -> Result<Need, Halt> {
        let need = self.gain()?;
        if !matches!(need, Need::No(_)) {
            steady(session, self.capacity, &self.measured, accounting)?;
        }
        Ok(need)
    }

    fn gain(&self) -> Result<Need, Halt> {
        let measured = &self.measured;
        let added = measured.added_p95_ms.unwrap_or(f64::INFINITY);
        let typical = measured.added_p50_ms.unwrap_or_default();
        if added >= self.bound.ms {
            return Ok(Need::Yes);
        }
        if measured.line_loss >= LOSSY && typical < NO_QUEUE_MS {
            return Ok(Need::Policed);
        }
        if typical < SATURATED_MS && measured.retransmits == 0 && measured.line_loss <= 0.0 {
            return Err(Doubtful::LoadLimited { throughput: measured.throughput, asked: None }.into());
        }
        Ok(Need::No(format!("adds only {added:.1} ms unshaped, below {}", self.bound)))
    }
}

/// Only a line that keeps its rate has one to find.
fn steady(
    session: &mut Session,
    capacity: Capacity,
    measured: &Measurement,
    accounting: Accounting,
) -> Result<(), Halt> {
    let packet_bytes = session.packet_bytes();
    let booked = |packets_per_s| measured.booked(&accounting, packet_bytes, packets_per_s);
    match capacity {
        Capacity::Variable { lowest, highest, median } => {
            let [lowest, usual, highest] = [lowest, median, highest].map(booked);
            Err(Halt::inconclusive(
                "variable",
                format!(
                    "the line's rate changes by itself, between {lowest} and {highest} while it was watched: no fixed \
                     rate suits it. A cautious one is {}; a shaper that follows the line may start from these kbit/s: \
                     min {}, base {}, max {}",
                    lowest.times(FIRST_GUESS),
                    lowest.times(FIRST_GUESS).kbit(),
                    usual.kbit(),
                    highest.kbit(),
                ),
            ))
        }
        _ if session.facts.link == LinkType::Lte => Err(Halt::inconclusive(
            "variable",
            "a radio link changes its rate by the minute: no rate found now would hold",
        )),
        Capacity::Burst { first, packets_per_s } => {
            session.doubt(
                "burst",
                format!(
                    "the line allows {} at first and {} in the long run; the long run counts",
                    booked(first),
                    booked(packets_per_s)
                ),
            );
            Ok(())
        }
        Capacity::Steady { .. } => Ok(()),
    }
}

pub fn quantiles(measured: &Measurement) -> Option<Quantiles> {
    Some(Quantiles { p50: tenths(measured.rtt_p50_ms?), p95: tenths(measured.rtt_p95_ms?) })
}
