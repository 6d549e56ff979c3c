//! CAKE's target: 5 ms against 8 ms, by measurement.
//!
//! A sparse probe does not see the target; the flows' goodput does. Two loads, many small flows and a few bulk ones,
//! under `rtt 100ms` and `rtt 160ms` in pairs of balanced order. 8 ms is chosen where it carries at least
//! [`pairs::WORTH`] more goodput in one load, and not by chance, without [`MOST_ADDED_MS`] more for the probe and
//! without loss in the other load. What cannot be decided in the time allowed keeps 5 ms, and says so.

mod pairs;
mod trial;

use super::outcome::{Target, TargetSource, TargetTrial};
use super::session::{Attempt, Ends, Halt, Session, lasting};
use super::verdict::{CleanBound, Judge, MAX_SENDER_LIMITED};
use crate::line::{Cake, Load, Origin, Shaping, Step};
use crate::units::{Direction, Rate};
use pairs::Pairs;
use std::time::Duration;
use trial::Tried;

/// The loads, by their number of flows.
const LOADS: [u32; 2] = [60, 4];
const MOST_ADDED_MS: f64 = 1.0;
/// CAKE's effective target is at least 1.5 full packets' time (sch_cake.c): below this rate 5 and 8 ms are the same.
const SAME_BELOW: Rate = Rate::from_kbit(2_271);
/// What the goodputs of two trials differ by through chance alone, on a short path and on a long one.
const USUAL_SCATTER: [f64; 2] = [0.012, 0.03];
/// A path is long where its flows take longer than [`SHORTEST`] to settle; there, a first pair decides nothing.
const LONG_PATH_PAIRS: usize = 2;
/// Flows settle, and are judged, for so long at least …
const SHORTEST: Duration = Duration::from_millis(2_500);
/// … and settle for so many round trips, in which slow start ends, and so many of CUBIC's cycles from loss to loss …
const SLOW_START_TRIPS: f64 = 10.0;
const CYCLES_TO_SETTLE: f64 = 3.0;
/// … and are judged over so many.
const CYCLES_TO_JUDGE: f64 = 4.0;
/// A path on which one trial would take longer than this is not tried.
const LONGEST: Duration = Duration::from_secs(70);
/// The line is loaded for this comparison no longer than this, unless somebody asked for it by name: on a short path it
/// takes half a minute, and more than that is not what a calibration takes for one option …
pub const UNASKED: Duration = Duration::from_secs(120);
/// … and for so long in any case.
pub const ASKED: Duration = Duration::from_secs(900);
/// Pairs that may come to nothing, because somebody else used the line or a server went away.
const MOST_SPOILT: u32 = 2;

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
    let sides = sides(session, cake.rate);
    if is_too_long(&sides) {
        return Ok(Target::skipped("the path is too long to try it in the time allowed: CAKE's default"));
    }
    let expected = expected(&sides);
    if expected > session.plan().target_time {
        let why = format!(
            "on so long a path the comparison takes about {} minutes under load: --steps link,search,target,verify asks \
             for it; CAKE's default",
            expected.as_secs().div_ceil(60)
        );
        return Ok(Target::skipped(&why));
    }
    let mut contest = Contest { cake: *cake, sides, trials: Vec::new(), loaded: Duration::ZERO, spoilt: 0 };
    let ending = contest.run(session)?;
    Ok(contest.target(&ending))
}

/// What the whole comparison usually takes, for the time left.
pub fn usual_time(session: &Session, rate: Rate) -> Duration {
    if rate < SAME_BELOW {
        return Duration::ZERO;
    }
    let sides = sides(session, rate);
    let expected = expected(&sides);
    if is_too_long(&sides) || expected > session.plan().target_time { Duration::ZERO } else { expected }
}

fn expected(sides: &[Side]) -> Duration {
    sides.iter().map(|side| lasting(2 * side.usual_pairs(), side.trial())).sum()
}

fn sides(session: &Session, rate: Rate) -> [Side; 2] {
    let rtt = Duration::from_secs_f64(session.idle.as_ref().map_or(0.0, |idle| idle.p50_ms) / 1000.0);
    let cycles = LOADS.map(|flows| cycle(rate, rtt, session.packet_bytes(), flows));
    // What slow start has left behind takes the longest cycle to mend, however many flows there are.
    let settle = cycles[0].max(cycles[1]).mul_f64(CYCLES_TO_SETTLE) + rtt.mul_f64(SLOW_START_TRIPS);
    [0, 1].map(|side| Side::new(LOADS[side], settle.max(SHORTEST), cycles[side]))
}

fn is_too_long(sides: &[Side]) -> bool {
    sides.iter().any(|side| side.trial() > LONGEST)
}

/// One load: how long it takes, and what its pairs have said.
struct Side {
    flows: u32,
    settle: Duration,
    judged: Duration,
    pairs: Pairs,
}

impl Side {
    fn new(flows: u32, settle: Duration, cycle: Duration) -> Self {
        let judged = cycle.mul_f64(CYCLES_TO_JUDGE).max(SHORTEST);
        let usual = USUAL_SCATTER[usize::from(settle > SHORTEST)];
        Self { flows, settle, judged, pairs: Pairs::new(usual) }
    }

    fn trial(&self) -> Duration {
        self.settle + self.judged
    }

    fn is_long(&self) -> bool {
        self.settle > SHORTEST
    }

    /// What 8 ms takes and gives beside the goodput.
    fn price(&self) -> String {
        let [short, long] = [0, 1].map(|which| self.pairs.mean(|pair| pair.drops[which]));
        format!(
            "its flows' round trips are {:+.1} ms longer (CAKE's queue {:+.1} ms, the probe's p95 {:+.1} ms) and CAKE drops \
             {long:.0} packets instead of {short:.0}",
            self.pairs.mean(|pair| pair.flows_ms),
            self.pairs.mean(|pair| pair.queue_ms),
            self.pairs.mean(|pair| pair.probe_ms)
        )
    }

    fn usual_pairs(&self) -> u32 {
        if self.is_long() { 4 } else { 1 }
    }

    /// Worth another pair?
    fn is_open(&self) -> bool {
        let enough = if self.is_long() { LONG_PATH_PAIRS } else { 1 };
        self.pairs.len() < Pairs::MOST && (self.pairs.len() < enough || !self.pairs.is_futile())
    }
}

/// From one loss to the next, of one flow among so many: CUBIC regains the 30 % it has given up in
/// `(0.3 · window / 0.4)^(1/3)` seconds, or as Reno would, by 0.53 packets each round trip, where that is sooner (RFC 9438).
fn cycle(rate: Rate, rtt: Duration, packet_bytes: u32, flows: u32) -> Duration {
    let packet = rate.time_for(u64::from(packet_bytes)).as_secs_f64().max(1e-9);
    let window = rtt.as_secs_f64() / packet / f64::from(flows);
    let cubic = (0.3 * window / 0.4).cbrt();
    let reno = 0.3 * window / 0.53 * rtt.as_secs_f64();
    Duration::from_secs_f64(cubic.min(reno))
}

/// How the trials ended.
enum Ending {
    /// 8 ms has won in this load.
    Won(usize),
    /// It would have won, but …
    Spoilt(String),
    Futile,
    /// Out of time, or of data.
    Undecided(&'static str),
    /// The load could not tell.
    Untold(String),
}

struct Contest {
    cake: Cake,
    sides: [Side; 2],
    trials: Vec<TargetTrial>,
    loaded: Duration,
    spoilt: u32,
}

impl Contest {
    fn run(&mut self, session: &mut Session) -> Result<Ending, Halt> {
        for round in 0..Pairs::MOST {
            let open: Vec<usize> = (0..LOADS.len()).filter(|side| self.sides[*side].is_open()).collect();
            if open.is_empty() {
                return Ok(Ending::Futile);
            }
            for side in open {
                let needed = self.sides[side].trial() * 2;
                if self.loaded + needed > session.plan().target_time {
                    return Ok(Ending::Undecided("in the time allowed"));
                }
                let bytes = (self.cake.rate.bits() / 8) as f64 * needed.as_secs_f64();
                if session.budget_left().is_some_and(|left| (left as f64) < bytes) {
                    return Ok(Ending::Undecided("with the data allowed (--max-mbytes)"));
                }
                self.loaded += needed;
                session.still_to_come = lasting(1, self.sides[side].trial());
                if let Some(ending) = self.pair(session, side, round)? {
                    return Ok(ending);
                }
            }
            if let Some(ending) = self.winner() {
                return Ok(ending);
            }
        }
        Ok(Ending::Undecided("in the trials allowed"))
    }

    /// Runs both targets, in turns the one or the other first.
    fn pair(&mut self, session: &mut Session, side: usize, round: usize) -> Result<Option<Ending>, Halt> {
        let mut both = [Tried::default(); 2];
        let order = if (round + side).is_multiple_of(2) { [0, 1] } else { [1, 0] };
        for which in order {
            let rtt = [Cake::DEFAULT_RTT, Cake::LONG_RTT][which];
            let tried = match self.trial(session, side, Cake { rtt, ..self.cake }) {
                Ok(Some(tried)) => tried,
                Ok(None) => {
                    return Ok(Some(Ending::Untold("the load was its own limit, so it could not tell".into())));
                }
                Err(Halt::Inconclusive(doubt)) => return Ok(self.spoil(session, &doubt.text)),
                Err(halt) => return Err(halt),
            };
            self.trials.push(tried.record(crate::units::millis(rtt / 20), self.sides[side].flows));
            both[which] = tried;
        }
        self.sides[side].pairs.add(Tried::compare(&both));
        Ok(None)
    }

    /// A pair came to nothing; the next one may not.
    fn spoil(&mut self, session: &mut Session, why: &str) -> Option<Ending> {
        self.spoilt += 1;
        if self.spoilt > MOST_SPOILT {
            return Some(Ending::Untold(format!("the targets could not be compared: {why}")));
        }
        session.note(&format!("{why}; a pair of trials is left out"));
        None
    }

    /// `None`: the load was its own limit.
    fn trial(&self, session: &mut Session, side: usize, cake: Cake) -> Result<Option<Tried>, Halt> {
        let Side { flows, settle, .. } = self.sides[side];
        let load = Load { flows, origin: Origin::Forwarded, ..session.load(Direction::Upload) };
        let attempt = Attempt {
            step: Step::Target,
            setting: session.setting.with(Direction::Upload, Shaping::Cake(cake)),
            loads: vec![load],
            duration: self.sides[side].trial(),
            ends: Ends::IfInvalid,
        };
        let idle = session.idle.clone().unwrap_or_default();
        let bound = CleanBound::new(None, &idle, cake.rate, cake.accounting.wire_bytes(session.packet_bytes()));
        let judge = Judge { bound, idle: &idle, packet_bytes: session.packet_bytes(), policed: false };
        let (observation, measured) = session.run_unjudged(&attempt, &judge)?;
        let tried = Tried::new(&observation, &measured, settle);
        Ok((tried.goodput.kbit() > 0 && measured.sender_limited <= MAX_SENDER_LIMITED).then_some(tried))
    }

    /// Has 8 ms won in a load, or would it have?
    fn winner(&self) -> Option<Ending> {
        let side = (0..LOADS.len()).find(|side| self.sides[*side].pairs.certainly_gains())?;
        let (own, other) = (&self.sides[side], &self.sides[1 - side]);
        let added = own.pairs.mean(|pair| pair.probe_ms);
        Some(if added >= MOST_ADDED_MS {
            Ending::Spoilt(format!("the probe waits {added:.1} ms longer"))
        } else if other.pairs.certainly_loses() {
            Ending::Spoilt(format!("{} flows lose {}", other.flows, percent(-other.pairs.gain())))
        } else {
            Ending::Won(side)
        })
    }

    fn target(self, ending: &Ending) -> Target {
        let won = matches!(ending, Ending::Won(_));
        let decided_by =
            if matches!(ending, Ending::Untold(_)) { TargetSource::Skipped } else { TargetSource::Measured };
        let (target_ms, rtt_ms) = if won { (8.0, 160.0) } else { (5.0, 100.0) };
        let why = self.why(ending);
        Target { target_ms: Some(target_ms), rtt_ms: Some(rtt_ms), decided_by, why, trials: self.trials }
    }

    /// One sentence: what was gained or lost.
    fn why(&self, ending: &Ending) -> String {
        let best = match ending {
            Ending::Won(side) => *side,
            _ => usize::from(self.sides[1].pairs.gain() > self.sides[0].pairs.gain()),
        };
        let (side, other) = (&self.sides[best], &self.sides[1 - best]);
        let gains = format!(
            "{} goodput with {} flows and {} with {}",
            percent(side.pairs.gain()),
            side.flows,
            percent(other.pairs.gain()),
            other.flows
        );
        let price = side.price();
        match ending {
            Ending::Won(_) => format!("8 ms carries {gains} on this path; {price}"),
            Ending::Spoilt(but) => format!("8 ms would carry {gains}, but {but}: CAKE's default of 5 ms stays"),
            Ending::Futile => format!(
                "8 ms would carry {gains}, less than the {} that would be worth it; {price}: CAKE's default of 5 ms stays",
                percent(pairs::WORTH)
            ),
            Ending::Undecided(within) => format!(
                "undecided {within}: {} pairs put the gain of 8 ms at {} give or take {:.1} with {} flows; CAKE's default of 5 ms stays",
                side.pairs.len(),
                percent(side.pairs.gain()),
                side.pairs.uncertainty() * 100.0,
                side.flows
            ),
            Ending::Untold(why) => format!("{why}: CAKE's default of 5 ms stays"),
        }
    }
}

/// Of a logarithm.
fn percent(gain: f64) -> String {
    format!("{:+.1} %", (gain.exp() - 1.0) * 100.0)
}
