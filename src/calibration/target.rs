//! CAKE's target: 5 ms against 8 ms, by measurement.
//!
//! A sparse probe does not see the target; the flows' goodput does. Two loads, many small flows and a few bulk ones,
//! under `rtt 100ms` and `rtt 160ms` in pairs of balanced order. 8 ms is chosen where it carries at least
//! [`WORTH`] more goodput in one load, for certain, without [`MOST_ADDED_MS`] more for the probe and without loss in the other load.

use super::estimate::Measurement;
use super::outcome::{Target, TargetSource, TargetTrial};
use super::session::{Attempt, Ends, Halt, Session, lasting, tenths};
use super::stats::{mean, squares, student};
use super::verdict::{CleanBound, Judge, MAX_SENDER_LIMITED};
use crate::line::{Cake, Load, Origin, Shaping, Step};
use crate::units::{Direction, Rate};
use std::time::Duration;

/// The loads, by their number of flows.
const LOADS: [u32; 2] = [60, 4];
/// Goodput that makes a target of 8 ms worth having.
const WORTH: f64 = 0.03;
/// Goodput that the other load may lose: no more than chance explains.
const MOST_LOST: f64 = 0.01;
const MOST_ADDED_MS: f64 = 1.0;
/// A load whose first pair gains less than this is not looked at again.
const PROMISING: f64 = 0.015;
/// Pairs of a load at most.
const PAIRS: usize = 4;
/// One-sided 97.5 %: a gain is certain. The pairs are looked at one by one, hence not 95.
const CERTAIN_Z: f64 = 1.96;
/// What chance does to one pair's ratio on a steady line, beside the pairs' own scatter; counts as so many degrees of freedom.
const USUAL_SCATTER: f64 = 0.012;
const USUAL_DEGREES: f64 = 3.0;
/// CAKE's effective target is at least 1.5 full packets' time (sch_cake.c): below this rate 5 and 8 ms are the same.
const SAME_BELOW: Rate = Rate::from_kbit(2_271);
/// Flows need so many round trips to settle, and as many again to be judged.
const ROUND_TRIPS: u32 = 50;
const SHORTEST: Duration = Duration::from_millis(2_500);
/// A path so long that a trial would take longer than this is not tried.
const LONGEST: Duration = Duration::from_secs(16);

impl Target {
    /// CAKE's default, with the reason why nothing else was looked at.
    pub fn skipped(why: &str) -> Self {
        Self::default_by(TargetSource::Skipped, why)
    }

    fn default_by(decided_by: TargetSource, why: &str) -> Self {
        Self { target_ms: Some(5.0), rtt_ms: Some(100.0), decided_by, why: why.into(), trials: Vec::new() }
    }
}

/// Decides at the rate that was found.
pub fn decide(session: &mut Session, cake: &Cake) -> Result<Target, Halt> {
    if cake.rate < SAME_BELOW {
        let why = format!("below {SAME_BELOW} CAKE itself raises both targets to the same value");
        return Ok(Target::default_by(TargetSource::TooSlow, &why));
    }
    let rtt_ms = session.idle.as_ref().map_or(0.0, |idle| idle.p50_ms);
    let settle = Duration::from_secs_f64(rtt_ms / 1000.0).saturating_mul(ROUND_TRIPS).max(SHORTEST);
    if settle > LONGEST {
        return Ok(Target::skipped("the path is too long to try it in the time allowed: CAKE's default"));
    }
    let mut contest =
        Contest { cake: *cake, settle, trials: Vec::new(), pairs: LOADS.map(|flows| (flows, Vec::new())) };
    for round in 0..PAIRS {
        let open: Vec<usize> = (0..LOADS.len()).filter(|load| contest.is_open(*load)).collect();
        if open.is_empty() || contest.winner().is_some() {
            break;
        }
        for load in open {
            session.still_to_come = lasting(2, settle * 2);
            if !contest.pair(session, load, round)? {
                return Ok(Target::skipped("the load was its own limit, so it could not tell: CAKE's default"));
            }
        }
    }
    Ok(contest.target())
}

struct Contest {
    cake: Cake,
    settle: Duration,
    trials: Vec<TargetTrial>,
    /// Of each load: its flows, and what each pair said.
    pairs: [(u32, Vec<Pair>); 2],
}

/// 8 ms against 5 ms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair {
    /// Logarithm of the goodputs' ratio.
    pub gain: f64,
    pub probe_ms: f64,
}

impl Contest {
    /// Worth another pair?
    fn is_open(&self, load: usize) -> bool {
        let pairs = &self.pairs[load].1;
        pairs.is_empty() || (self.pairs.iter().any(|(_, p)| gain(p) >= PROMISING) && !is_settled(pairs))
    }

    /// Runs both targets, in turns the one or the other first. `false`: the load could not tell.
    fn pair(&mut self, session: &mut Session, load: usize, round: usize) -> Result<bool, Halt> {
        let flows = self.pairs[load].0;
        let mut both = [None, None];
        let order = if (round + load).is_multiple_of(2) { [0, 1] } else { [1, 0] };
        for which in order {
            let rtt = [Cake::DEFAULT_RTT, Cake::LONG_RTT][which];
            let (measured, goodput) = self.trial(session, flows, Cake { rtt, ..self.cake })?;
            if goodput.kbit() == 0 || measured.sender_limited > MAX_SENDER_LIMITED {
                return Ok(false);
            }
            let probe_ms = measured.added_p95_ms.unwrap_or_default();
            self.trials.push(TargetTrial {
                target_ms: crate::units::millis(rtt / 20),
                flows,
                goodput_kbit: goodput.kbit(),
                queue_ms: tenths(measured.queue_delay_ms.unwrap_or_default()),
                probe_p95_ms: tenths(measured.rtt_p95_ms.unwrap_or_default()),
            });
            both[which] = Some((goodput, probe_ms));
        }
        if let [Some((short, short_ms)), Some((long, long_ms))] = both {
            self.pairs[load].1.push(Pair { gain: long.ratio(short).ln(), probe_ms: long_ms - short_ms });
        }
        Ok(true)
    }

    fn trial(&self, session: &mut Session, flows: u32, cake: Cake) -> Result<(Measurement, Rate), Halt> {
        let load = Load { flows, origin: Origin::Forwarded, ..session.load(Direction::Upload) };
        let attempt = Attempt {
            step: Step::Target,
            setting: session.setting.with(Direction::Upload, Shaping::Cake(cake)),
            loads: vec![load],
            duration: self.settle * 2,
            ends: Ends::IfInvalid,
        };
        let idle = session.idle.clone().unwrap_or_default();
        let bound = CleanBound::new(None, &idle, cake.rate, cake.accounting.wire_bytes(session.packet_bytes()));
        let judge = Judge { bound, idle: &idle, packet_bytes: session.packet_bytes(), policed: false };
        let (observation, measured) = session.run_unjudged(&attempt, &judge)?;
        Ok((measured, observation.goodput_since(self.settle)))
    }

    /// The load in which 8 ms has won, if it has.
    fn winner(&self) -> Option<usize> {
        (0..LOADS.len()).find(|load| {
            let (own, other) = (&self.pairs[*load].1, &self.pairs[1 - load].1);
            gain(own) >= WORTH && certainly_gains(own) && probe(own) < MOST_ADDED_MS && gain(other) > -MOST_LOST
        })
    }

    fn target(self) -> Target {
        let winner = self.winner();
        let said = self
            .pairs
            .iter()
            .map(|(flows, pairs)| format!("{:+.1} % with {flows} flows", (gain(pairs).exp() - 1.0) * 100.0));
        let said = said.collect::<Vec<_>>().join(", ");
        let why = match winner {
            Some(_) => format!("8 ms carries more on this path ({said}) and the probe waits no longer"),
            None => format!("8 ms gains too little on this path ({said}): CAKE's default of 5 ms stays"),
        };
        let (target_ms, rtt_ms) = if winner.is_some() { (8.0, 160.0) } else { (5.0, 100.0) };
        Target {
            target_ms: Some(target_ms),
            rtt_ms: Some(rtt_ms),
            decided_by: TargetSource::Measured,
            why,
            trials: self.trials,
        }
    }
}

fn gain(pairs: &[Pair]) -> f64 {
    mean(&pairs.iter().map(|p| p.gain).collect::<Vec<_>>()).unwrap_or(0.0)
}

fn probe(pairs: &[Pair]) -> f64 {
    mean(&pairs.iter().map(|p| p.probe_ms).collect::<Vec<_>>()).unwrap_or(0.0)
}

/// Half the width of the mean gain's confidence interval.
fn uncertainty(pairs: &[Pair]) -> f64 {
    let gains: Vec<f64> = pairs.iter().map(|p| p.gain).collect();
    let n = gains.len() as f64;
    let degrees = n - 1.0 + USUAL_DEGREES;
    let variance = (squares(&gains) + USUAL_DEGREES * USUAL_SCATTER * USUAL_SCATTER) / degrees;
    student(CERTAIN_Z, degrees) * (variance / n).sqrt()
}

/// Two pairs at least: one can be chance, whatever it says.
fn certainly_gains(pairs: &[Pair]) -> bool {
    pairs.len() >= 2 && gain(pairs) - uncertainty(pairs) > 0.0
}

/// Certain to be worth it, or certain not to be.
fn is_settled(pairs: &[Pair]) -> bool {
    pairs.len() >= 2 && (gain(pairs) - WORTH).abs() > uncertainty(pairs)
}
