//! Lines around a line: stop it, slow it down, record it, play it back, break it.

use super::{Facts, Line, LineError, Sample, Trial, Watch};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Ends a running trial with [`LineError::Stopped`] once the flag is up. For lines that have no signal handling of their own.
pub struct Stoppable<L> {
    pub inner: L,
    pub stop: Arc<AtomicBool>,
}

impl<L: Line> Line for Stoppable<L> {
    fn facts(&mut self) -> Result<Facts, LineError> {
        self.inner.facts()
    }

    fn run(&mut self, trial: &Trial, watch: &mut dyn FnMut(&Sample) -> Watch) -> Result<(), LineError> {
        let stop = &self.stop;
        let stopped = || stop.load(Ordering::Relaxed);
        self.inner.run(trial, &mut |sample| if stopped() { Watch::Enough } else { watch(sample) })?;
        if stopped() { Err(LineError::Stopped) } else { Ok(()) }
    }

    fn put_back(&mut self) -> Result<(), LineError> {
        self.inner.put_back()
    }
}

/// Makes a line in virtual time take `1/factor` of it in real time, so that a person can watch.
pub struct Paced<L> {
    pub inner: L,
    pub factor: f64,
}

impl<L: Line> Line for Paced<L> {
    fn facts(&mut self) -> Result<Facts, LineError> {
        self.inner.facts()
    }

    fn run(&mut self, trial: &Trial, watch: &mut dyn FnMut(&Sample) -> Watch) -> Result<(), LineError> {
        let began = Instant::now();
        let factor = self.factor;
        self.inner.run(trial, &mut |sample| {
            let due = sample.at.div_f64(factor);
            std::thread::sleep(due.saturating_sub(began.elapsed()));
            watch(sample)
        })
    }

    fn put_back(&mut self) -> Result<(), LineError> {
        self.inner.put_back()
    }
}

/// Keeps what a line said, for [`Replay`].
pub struct Recorder<L> {
    pub inner: L,
    pub facts: Option<Facts>,
    pub trials: Vec<(Trial, Vec<Sample>)>,
}

impl<L: Line> Recorder<L> {
    pub fn new(inner: L) -> Self {
        Self { inner, facts: None, trials: Vec::new() }
    }

    /// A line that says the same again.
    pub fn into_replay(self) -> Option<Replay> {
        Some(Replay { facts: self.facts?, trials: self.trials.into() })
    }
}

impl<L: Line> Line for Recorder<L> {
    fn facts(&mut self) -> Result<Facts, LineError> {
        let facts = self.inner.facts()?;
        self.facts = Some(facts.clone());
        Ok(facts)
    }

    fn run(&mut self, trial: &Trial, watch: &mut dyn FnMut(&Sample) -> Watch) -> Result<(), LineError> {
        let mut samples = Vec::new();
        let result = self.inner.run(trial, &mut |sample| {
            samples.push(sample.clone());
            watch(sample)
        });
        self.trials.push((trial.clone(), samples));
        result
    }

    fn put_back(&mut self) -> Result<(), LineError> {
        self.inner.put_back()
    }
}

/// Plays a recording back, trial by trial; a trial other than the recorded one is an error.
pub struct Replay {
    pub facts: Facts,
    pub trials: VecDeque<(Trial, Vec<Sample>)>,
}

impl Line for Replay {
    fn facts(&mut self) -> Result<Facts, LineError> {
        Ok(self.facts.clone())
    }

    fn run(&mut self, trial: &Trial, watch: &mut dyn FnMut(&Sample) -> Watch) -> Result<(), LineError> {
        let Some((recorded, samples)) = self.trials.pop_front() else {
            return Err(LineError::failed("replay a trial", "the recording has ended"));
        };
        if recorded != *trial {
            return Err(LineError::failed("replay a trial", format!("recorded {recorded:?}, asked for {trial:?}")));
        }
        for sample in &samples {
            if watch(sample) == Watch::Enough {
                break;
            }
        }
        Ok(())
    }

    fn put_back(&mut self) -> Result<(), LineError> {
        Ok(())
    }
}

/// Breaks off trial number `at_trial` after `after` with `error`.
pub struct Faulty<L> {
    pub inner: L,
    pub at_trial: u32,
    pub after: Duration,
    pub error: LineError,
}

impl<L: Line> Line for Faulty<L> {
    fn facts(&mut self) -> Result<Facts, LineError> {
        self.inner.facts()
    }

    fn run(&mut self, trial: &Trial, watch: &mut dyn FnMut(&Sample) -> Watch) -> Result<(), LineError> {
        if trial.number != self.at_trial {
            return self.inner.run(trial, watch);
        }
        let after = self.after;
        self.inner.run(trial, &mut |sample| if sample.at >= after { Watch::Enough } else { watch(sample) })?;
        Err(self.error.clone())
    }

    fn put_back(&mut self) -> Result<(), LineError> {
        self.inner.put_back()
    }
}
