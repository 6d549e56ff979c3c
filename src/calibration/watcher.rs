//! Watches one running trial: tells how it goes, and when it has seen enough.

use super::estimate::Observation;
use super::extent::BLOCK;
use super::idle::Idle;
use super::observer::{Observer, Progress};
use super::session::{Attempt, Ends};
use super::verdict::{self, Judge};
use crate::line::{Sample, Seen, Watch};
use std::time::Duration;

/// How often the observer hears of a running trial.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);

/// Sees the samples of one running trial.
pub struct Watcher<'a, 'j> {
    pub observation: Observation,
    pub judge: Option<&'a Judge<'j>>,
    pub idle: Option<&'a Idle>,
    pub attempt: &'a Attempt,
    pub budget: Option<u64>,
    pub over_budget: bool,
    pub observer: &'a mut dyn Observer,
    pub pace: Pace,
}

/// When it looks up next.
pub struct Pace {
    settle: Duration,
    block: Duration,
    next_progress: Duration,
    next_judgement: Duration,
}

impl Pace {
    pub fn new(settle: Duration) -> Self {
        Self { settle, block: BLOCK, next_progress: PROGRESS_EVERY, next_judgement: settle }
    }
}

impl Watcher<'_, '_> {
    pub fn see(&mut self, sample: &Sample) -> Watch {
        self.observation.see(sample);
        if let (Seen::Device { sent_bytes, received_bytes }, Some(budget)) = (&sample.seen, self.budget) {
            self.over_budget = !self.attempt.loads.is_empty() && sent_bytes + received_bytes > budget;
            if self.over_budget {
                return Watch::Enough;
            }
        }
        if sample.at >= self.pace.next_progress {
            self.pace.next_progress = sample.at + PROGRESS_EVERY;
            self.tell();
        }
        if sample.at < self.pace.next_judgement {
            return Watch::Continue;
        }
        if self.pace.next_judgement == self.pace.settle {
            // From now on when a block is whole; how long that is has just become known.
            self.pace.block = self.observation.block();
            self.pace.next_judgement += self.pace.block;
            return Watch::Continue;
        }
        self.pace.next_judgement += self.pace.block;
        if self.is_decided() { Watch::Enough } else { Watch::Continue }
    }

    fn tell(&mut self) {
        let newest = self.observation.newest_reply(self.idle);
        self.observer.progress(&Progress {
            at: self.observation.at,
            rtt_now_ms: newest.map(|n| n.0),
            added_now_ms: newest.and_then(|n| n.1),
            throughput_kbit: self.observation.throughput_now().kbit(),
        });
    }

    fn is_decided(&self) -> bool {
        let Some(judge) = self.judge else { return false };
        let measured = self.observation.measure(self.idle.or(Some(judge.idle)));
        if verdict::invalid(&measured).is_some() {
            return true;
        }
        if self.observation.is_enough(&measured) {
            return true;
        }
        let verdict = judge.verdict(&measured, self.attempt.cake());
        match self.attempt.ends {
            Ends::IfInvalid => false,
            Ends::OnceCertain => verdict.is_some(),
            Ends::UnlessClean => verdict.is_some_and(|v| !v.is_clean()),
        }
    }
}
