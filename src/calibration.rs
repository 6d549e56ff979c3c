//! The core that decides: which trial next, what a trial proved, what to recommend.
//!
//! Pure: facts, samples and their times go in, a value comes out. No clock, socket, file, process or async.

mod acks;
mod before;
mod capacity;
mod confirm;
mod estimate;
mod extent;
#[cfg(test)]
mod fixture;
pub mod forecast;
mod idle;
mod link;
pub mod observer;
pub mod outcome;
mod rate;
mod search;
mod session;
mod stats;
mod steps;
mod target;
mod verdict;
mod watcher;

use crate::line::{Facts, Line, LineError, LinkType};
use crate::units::{Direction, Rate};
use observer::Observer;
use outcome::{AckFilter, Cost, Latency, Link, Outcome, Shaped, Status, Target};
use session::{Halt, Session};
use std::time::Duration;

/// What the user asked for.
#[derive(Clone, Debug, PartialEq)]
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
    /// `None`: both.
    pub direction: Option<Direction>,
    pub steps: Vec<Wish>,
    /// No longer than this is the line loaded to compare CAKE's targets.
    pub target_time: Duration,
}

/// A step that can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Measure overhead and cells.
    Link,
    /// Confirm them against the delay.
    Confirm,
    Search,
    /// 5 or 8 ms.
    Target,
    Download,
    /// Watch what is recommended for longer.
    Verify,
}

impl Wish {
    pub const ALL: [(&str, Self); 6] = [
        ("link", Self::Link),
        ("confirm", Self::Confirm),
        ("search", Self::Search),
        ("target", Self::Target),
        ("download", Self::Download),
        ("verify", Self::Verify),
    ];
}

impl Default for Plan {
    /// Both directions, every step but the confirmation of the overhead.
    fn default() -> Self {
        Self {
            id: String::new(),
            started: String::new(),
            sync_up: None,
            sync_down: None,
            max_added_ms: None,
            max_bytes: None,
            direction: None,
            steps: Wish::ALL.into_iter().map(|(_, wish)| wish).filter(|wish| *wish != Wish::Confirm).collect(),
            target_time: target::UNASKED,
        }
    }
}

impl Plan {
    /// For a comparison of the targets that somebody asked for by name.
    pub const TARGET_ASKED: Duration = target::ASKED;

    pub(crate) fn wants(&self, wish: Wish) -> bool {
        self.steps.contains(&wish)
    }

    pub(crate) fn wants_upload(&self) -> bool {
        self.direction != Some(Direction::Download)
    }

    /// Asked for as a step, or as the direction.
    pub(crate) fn wants_download(&self) -> bool {
        self.direction == Some(Direction::Download) || self.direction.is_none() && self.wants(Wish::Download)
    }
}

/// What the steps have established so far; survives a halt.
struct Progressed {
    upload: Shaped,
    download: Shaped,
    latency: Latency,
    link: Option<Link>,
    target: Target,
    ack_filter: Option<AckFilter>,
}

impl Progressed {
    fn shaped(&mut self, direction: Direction) -> &mut Shaped {
        match direction {
            Direction::Upload => &mut self.upload,
            Direction::Download => &mut self.download,
        }
    }
}

impl Default for Progressed {
    fn default() -> Self {
        let not_asked = || Shaped { why: "not looked at: left as it is".into(), ..Shaped::default() };
        Self {
            upload: not_asked(),
            download: not_asked(),
            latency: Latency::default(),
            link: None,
            target: Target::skipped("not looked at: CAKE's default"),
            ack_filter: None,
        }
    }
}

/// An outcome there always is; `error` says what broke it off, if something did.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    pub outcome: Outcome,
    pub error: Option<LineError>,
}

/// Tunes `line`. Whatever happens, the line has been put back when this returns.
pub fn calibrate(line: &mut dyn Line, plan: &Plan, observer: &mut dyn Observer) -> Run {
    run(line, plan, observer, |session, so_far| {
        Ok(match steps::calibrate(session, so_far)? {
            steps::Found::Settings => (Status::Tuned, None),
            steps::Found::Unneeded(why) => (Status::Unneeded, Some(why)),
            steps::Found::Measured => (Status::Graded, None),
        })
    })
}

/// Grades the line as it is: idle, then loaded. Changes nothing.
pub fn measure(line: &mut dyn Line, plan: &Plan, observer: &mut dyn Observer) -> Run {
    run(line, plan, observer, |session, so_far| {
        steps::grade(session, so_far)?;
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
            outcome.upload = so_far.upload;
            outcome.download = so_far.download;
            outcome.target = so_far.target;
            outcome.ack_filter = so_far.ack_filter;
            outcome.latency = so_far.latency;
            if let Some(link) = so_far.link {
                outcome.link = link;
            }
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
    Outcome {
        format: outcome::FORMAT,
        agent: env!("CARGO_PKG_VERSION").into(),
        id: plan.id.clone(),
        line: facts.map(|f| f.name.clone()).unwrap_or_default(),
        started: plan.started.clone(),
        outcome: Status::Failed,
        reason: None,
        upload: Shaped::default(),
        download: Shaped::default(),
        link: link::prior(link).link,
        target: Target::skipped("not looked at: CAKE's default"),
        ack_filter: None,
        latency: Latency::default(),
        cost: Cost::default(),
        doubts: Vec::new(),
        trials: Vec::new(),
        uci: None,
    }
}
