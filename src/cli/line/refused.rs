//! A line that may not be calibrated, and why.

use crate::line::{Facts, Line, LineError, Sample, Trial, Watch};

pub struct Refused(pub LineError);

impl Line for Refused {
    fn facts(&mut self) -> Result<Facts, LineError> {
        Err(self.0.clone())
    }

    fn run(&mut self, _: &Trial, _: &mut dyn FnMut(&Sample) -> Watch) -> Result<(), LineError> {
        Err(self.0.clone())
    }

    /// Nothing was touched.
    fn put_back(&mut self) -> Result<(), LineError> {
        Ok(())
    }
}
