//! A line that panics, for the tests that prove what is put back then. Only in builds with debug assertions.

use crate::line::{Facts, Line, LineError, Sample, Trial, Watch};

pub struct Panicking {
    inner: Box<dyn Line>,
    /// At the first sample of this trial.
    trial: u32,
}

impl Panicking {
    /// `SQM_AUTOTUNE_PANIC_AT=trial:N` in the environment asks for it.
    pub fn around(inner: Box<dyn Line>) -> Box<dyn Line> {
        let asked = std::env::var("SQM_AUTOTUNE_PANIC_AT").ok();
        match asked.and_then(|at| at.strip_prefix("trial:")?.parse().ok()) {
            Some(trial) => Box::new(Self { inner, trial }),
            None => inner,
        }
    }
}

impl Line for Panicking {
    fn facts(&mut self) -> Result<Facts, LineError> {
        self.inner.facts()
    }

    fn run(&mut self, trial: &Trial, watch: &mut dyn FnMut(&Sample) -> Watch) -> Result<(), LineError> {
        let due = trial.number == self.trial;
        self.inner.run(trial, &mut |sample| {
            assert!(!due, "asked to panic in trial {}", trial.number);
            watch(sample)
        })
    }

    fn put_back(&mut self) -> Result<(), LineError> {
        self.inner.put_back()
    }
}
