//! What a calibration has shown so far, as the page draws it. Bounded: a small router keeps it in memory.

use super::job::Job;
use super::progress;
use super::words::clean;
use crate::calibration::observer::{Observer, Progress};
use crate::calibration::outcome::{TrialRecord, VerdictWord};
use crate::calibration::{Plan, Wish};
use crate::line::{Facts, Step, Trial};
use crate::units::Direction;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A minute and a half of readings, five a second.
const MOST_DELAYS: usize = 450;
const MOST_POINTS: usize = 60;
const MOST_NOTES: usize = 5;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Seen {
    pub line: Option<String>,
    pub server: Option<String>,
    pub stages: Vec<Stage>,
    pub now: Option<Now>,
    /// Seconds of trials since the beginning, and the added delay then in ms.
    pub delays: Vec<(f64, f64)>,
    pub points: Vec<Tried>,
    pub notes: Vec<String>,
    pub left_s: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    pub name: StageName,
    pub state: StageState,
}

/// What a calibration does, as people count it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StageName {
    Idle,
    Unshaped,
    Overhead,
    Search,
    /// Of what was found, before CAKE's targets are compared with it.
    Verify,
    Target,
    Download,
    Both,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StageState {
    Waiting,
    Running,
    Done,
    Skipped,
}

/// The trial that runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Now {
    pub n: u32,
    pub words: String,
    pub kbit: Option<u64>,
    pub added_ms: Option<f64>,
    pub rtt_ms: Option<f64>,
    pub throughput_kbit: u64,
}

/// A trial that has ended and has a place in the drawing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tried {
    pub n: u32,
    pub direction: Direction,
    pub kbit: Option<u64>,
    pub added_ms: f64,
    pub verdict: VerdictWord,
}

impl Tried {
    /// Only trials with one direction loaded compare.
    pub fn of(trial: &TrialRecord) -> Option<Self> {
        let compares = matches!(trial.step, Step::Unshaped | Step::Search | Step::Verify) && !trial.both;
        let (direction, added_ms) = (trial.direction?, trial.added_ms?);
        let judged = trial.verdict != VerdictWord::None;
        (compares && judged).then_some(Self {
            n: trial.n,
            direction,
            kbit: trial.shaper_kbit,
            added_ms,
            verdict: trial.verdict,
        })
    }
}

impl Seen {
    /// All that the plan asks for.
    pub fn expect(&mut self, plan: &Plan) {
        let wants = |wish| plan.steps.contains(&wish);
        let (upload, download) =
            (plan.direction != Some(Direction::Download), plan.direction != Some(Direction::Upload));
        let stages = [
            (StageName::Idle, true),
            (StageName::Unshaped, upload),
            (StageName::Overhead, upload && (wants(Wish::Link) || wants(Wish::Confirm))),
            (StageName::Search, upload && wants(Wish::Search)),
            (StageName::Verify, upload && wants(Wish::Search) && wants(Wish::Verify)),
            (StageName::Target, upload && wants(Wish::Search) && wants(Wish::Target)),
            (StageName::Download, download && wants(Wish::Download)),
            (StageName::Both, upload && download && wants(Wish::Download) && wants(Wish::Verify)),
        ];
        let wanted = stages.into_iter().filter(|(_, wanted)| *wanted);
        self.stages = wanted.map(|(name, _)| Stage { name, state: StageState::Waiting }).collect();
    }

    fn reach(&mut self, name: StageName) {
        for stage in &mut self.stages {
            stage.state = match (stage.name == name, stage.state) {
                (true, _) => StageState::Running,
                (false, StageState::Running) => StageState::Done,
                (false, StageState::Waiting) if stage.name < name => StageState::Skipped,
                (false, state) => state,
            };
        }
    }

    /// Whatever has not come by now does not come any more.
    pub fn close(&mut self) {
        self.now = None;
        self.left_s = None;
        for stage in &mut self.stages {
            stage.state = match stage.state {
                StageState::Running => StageState::Done,
                StageState::Waiting => StageState::Skipped,
                state => state,
            };
        }
    }
}

fn stage(trial: &Trial) -> StageName {
    let loaded = |direction| trial.loads.iter().any(|load| load.direction == direction);
    match trial.step {
        Step::Baseline => StageName::Idle,
        _ if trial.loads.len() > 1 || trial.step == Step::Acks => StageName::Both,
        _ if loaded(Direction::Download) => StageName::Download,
        Step::Unshaped => StageName::Unshaped,
        Step::Link | Step::Confirm => StageName::Overhead,
        Step::Search => StageName::Search,
        Step::Target => StageName::Target,
        Step::Verify | Step::Acks => StageName::Verify,
    }
}

/// Tells one observer, and the job's file if there is one.
pub struct Watched<'a> {
    view: &'a mut dyn Observer,
    job: Option<&'a mut Job>,
    /// When the trial that runs began, counted in trials' own time.
    base: Duration,
    at: Duration,
    left: Duration,
}

impl<'a> Watched<'a> {
    pub fn new(view: &'a mut dyn Observer, job: Option<&'a mut Job>, plan: &Plan) -> Self {
        let mut job = job;
        if let Some(job) = &mut job {
            job.seen().expect(plan);
        }
        Self { view, job, base: Duration::ZERO, at: Duration::ZERO, left: Duration::ZERO }
    }
}

impl Observer for Watched<'_> {
    fn starts(&mut self, facts: &Facts) {
        self.view.starts(facts);
        if let Some(job) = &mut self.job {
            job.seen().line = Some(clean(&facts.name));
            job.seen().server = Some(clean(&facts.server));
            job.write();
        }
    }

    fn trial_begins(&mut self, trial: &Trial, left: Duration) {
        self.view.trial_begins(trial, left);
        self.base += std::mem::take(&mut self.at);
        self.left = left;
        if let Some(job) = &mut self.job {
            let seen = job.seen();
            seen.reach(stage(trial));
            seen.left_s = Some(left.as_secs());
            let shaper = trial.loads.first().and_then(|load| match load.direction {
                Direction::Upload => trial.upload.cake(),
                Direction::Download => trial.download.cake(),
            });
            seen.now = Some(Now {
                n: trial.number,
                words: progress::doing(trial),
                kbit: shaper.map(|cake| cake.rate.kbit()),
                added_ms: None,
                rtt_ms: None,
                throughput_kbit: 0,
            });
            job.write();
        }
    }

    fn progress(&mut self, progress: &Progress) {
        self.view.progress(progress);
        self.at = progress.at;
        let (base, left) = (self.base, self.left);
        if let Some(job) = &mut self.job {
            let seen = job.seen();
            seen.left_s = Some(left.saturating_sub(progress.at).as_secs());
            if let Some(now) = &mut seen.now {
                (now.added_ms, now.rtt_ms) = (progress.added_now_ms.map(tenth), progress.rtt_now_ms.map(tenth));
                now.throughput_kbit = progress.throughput_kbit;
            }
            if let Some(added) = progress.added_now_ms {
                let excess = (seen.delays.len() + 1).saturating_sub(MOST_DELAYS);
                seen.delays.drain(..excess);
                seen.delays.push((tenth((base + progress.at).as_secs_f64()), tenth(added)));
            }
            job.write_sometimes();
        }
    }

    fn trial_ends(&mut self, record: &TrialRecord) {
        self.view.trial_ends(record);
        if let (Some(job), Some(point)) = (&mut self.job, Tried::of(record)) {
            let seen = job.seen();
            let excess = (seen.points.len() + 1).saturating_sub(MOST_POINTS);
            seen.points.drain(..excess);
            seen.points.push(point);
            job.write();
        }
    }

    fn note(&mut self, text: &str) {
        self.view.note(text);
        if let Some(job) = &mut self.job {
            let notes = &mut job.seen().notes;
            let excess = (notes.len() + 1).saturating_sub(MOST_NOTES);
            notes.drain(..excess);
            notes.push(clean(text).chars().take(300).collect());
        }
    }
}

/// More digits only make the file longer.
fn tenth(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn states(seen: &Seen) -> Vec<(StageName, StageState)> {
        seen.stages.iter().map(|stage| (stage.name, stage.state)).collect()
    }

    #[test]
    fn a_stage_that_is_passed_over_is_skipped_and_one_that_is_left_is_done() {
        let mut seen = Seen::default();
        seen.expect(&Plan { direction: Some(Direction::Upload), ..Plan::default() });
        seen.reach(StageName::Idle);
        seen.reach(StageName::Unshaped);
        seen.reach(StageName::Search);
        let expected = [
            (StageName::Idle, StageState::Done),
            (StageName::Unshaped, StageState::Done),
            (StageName::Overhead, StageState::Skipped),
            (StageName::Search, StageState::Running),
            (StageName::Verify, StageState::Waiting),
            (StageName::Target, StageState::Waiting),
        ];
        assert_eq!(states(&seen), expected);
        seen.close();
        assert_eq!(
            states(&seen)[3..],
            [
                (StageName::Search, StageState::Done),
                (StageName::Verify, StageState::Skipped),
                (StageName::Target, StageState::Skipped),
            ]
        );
    }
}
