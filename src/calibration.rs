//! The core that decides: which trial next, what a trial proved, what to recommend.
//!
//! Pure: facts, samples and their times go in, a value comes out. No clock, socket, file, process or async.

mod capacity;
mod estimate;
#[cfg(test)]
mod fixture;
mod idle;
pub mod observer;
pub mod outcome;
mod search;
mod session;
mod stats;
mod upload;
mod verdict;

use crate::line::{Facts, Line, LineError, LinkType};
use crate::units::Rate;
use observer::Observer;
use outcome::{Cost, Latency, Layer, Link, LinkSource, Outcome, Shaped, Status, Target, TargetSource};
use session::{Halt, Session};
use upload::Progressed;

/// What the user asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// For the outcome: its name and when it was started (RFC 3339).
    pub id: String,
    pub started: String,
    /// The user's word on the sync rates goes before the line's.
    pub sync_up: Option<Rate>,
    pub sync_down: Option<Rate>,
    /// Instead of the default bound of a clean trial.
    pub max_added_ms: Option<f64>,
    /// Stop before moving more than this (both directions).
    pub max_bytes: Option<u64>,
}

/// An outcome there always is; `error` says what broke it off, if something did.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    pub outcome: Outcome,
    pub error: Option<LineError>,
}

/// Tunes the upload of `line`. Whatever happens, the line has been put back when this returns.
pub fn calibrate(line: &mut dyn Line, plan: &Plan, observer: &mut dyn Observer) -> Run {
    run(line, plan, observer, |session, so_far| {
        Ok(match upload::calibrate(session, so_far)? {
            upload::Found::Rate => (Status::Tuned, None),
            upload::Found::Unneeded(why) => (Status::Unneeded, Some(why)),
        })
    })
}

/// Grades the line as it is: idle, then loaded. Changes nothing.
pub fn measure(line: &mut dyn Line, plan: &Plan, observer: &mut dyn Observer) -> Run {
    run(line, plan, observer, |session, so_far| {
        upload::grade(session, so_far)?;
        Ok((Status::Graded, None))
    })
}

type Steps = fn(&mut Session, &mut Progressed) -> Result<(Status, Option<String>), Halt>;

fn run(line: &mut dyn Line, plan: &Plan, observer: &mut dyn Observer, steps: Steps) -> Run {
    let mut so_far = Progressed::default();
    let mut run = match Session::new(&mut *line, plan, observer) {
        Err(error) => Run { outcome: blank(plan, None), error: Some(error) },
        Ok(mut session) => {
            let ended = steps(&mut session, &mut so_far);
            let mut outcome = blank(plan, Some(&session.facts));
            outcome.upload = so_far.shaped;
            outcome.latency = so_far.latency;
            outcome.doubts = std::mem::take(&mut session.doubts);
            outcome.trials = std::mem::take(&mut session.records);
            outcome.cost = session.cost;
            let error = match ended {
                Ok((status, reason)) => {
                    (outcome.outcome, outcome.reason) = (status, reason);
                    None
                }
                Err(Halt::Inconclusive(doubt)) => {
                    outcome.outcome = Status::Inconclusive;
                    outcome.reason = Some(doubt.text.clone());
                    outcome.upload.why.clone_from(&doubt.text);
                    outcome.doubts.push(doubt);
                    None
                }
                Err(Halt::Line(error)) => Some(error),
            };
            Run { outcome, error }
        }
    };
    if let Err(error) = line.put_back() {
        run.error = run.error.or(Some(error));
    }
    if let Some(error) = &run.error {
        run.outcome.outcome = match error {
            LineError::Refused { .. } => Status::Refused,
            _ => Status::Failed,
        };
        run.outcome.reason = Some(error.to_string());
        run.outcome.upload.kbit = None;
    }
    run
}

/// An outcome in which nothing has been determined yet.
fn blank(plan: &Plan, facts: Option<&Facts>) -> Outcome {
    let link = facts.map_or(LinkType::Unknown, |f| f.link);
    let prior = link.prior();
    Outcome {
        format: outcome::FORMAT,
        agent: env!("CARGO_PKG_VERSION").into(),
        id: plan.id.clone(),
        line: facts.map(|f| f.name.clone()).unwrap_or_default(),
        started: plan.started.clone(),
        outcome: Status::Failed,
        reason: None,
        upload: Shaped::default(),
        download: Shaped {
            sync_kbit: facts.and_then(|f| f.sync_down).map(Rate::kbit),
            why: "not looked at".into(),
            ..Shaped::default()
        },
        link: Link {
            layer: layer(link),
            overhead: Some(prior.overhead),
            overhead_low: None,
            overhead_high: None,
            mpu: prior.mpu,
            source: if link == LinkType::Unknown { LinkSource::Default } else { LinkSource::LinkType },
            write_layer: prior.cells.into(),
            write_overhead: prior.overhead,
            write_mpu: prior.mpu,
        },
        target: Target {
            target_ms: Some(5.0),
            rtt_ms: Some(100.0),
            decided_by: TargetSource::Skipped,
            why: "not looked at: CAKE's default".into(),
            trials: Vec::new(),
        },
        latency: Latency::default(),
        cost: Cost::default(),
        doubts: Vec::new(),
        trials: Vec::new(),
        uci: None,
    }
}

fn layer(link: LinkType) -> Layer {
    match link {
        LinkType::PppoeVdsl2 => Layer::Ptm,
        LinkType::PppoeAtm | LinkType::Pppoa => Layer::Atm,
        LinkType::Docsis | LinkType::Ethernet | LinkType::Pppoe => Layer::Ethernet,
        LinkType::Lte | LinkType::Unknown => Layer::Unknown,
    }
}
