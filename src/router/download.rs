//! Shapes what comes in on a device: through the IFB that SQM has made, or through one of our own.

use super::device::{self, Device};
use super::journal::Journal;
use super::netlink::Socket;
use super::redirect::{self, Redirect};
use super::shaper::Shaper;
use crate::line::{LineError, Shaping};
use crate::units::Direction;
use std::sync::Arc;

/// As [`Shaper`], for download. Dropped, it puts back what was there.
pub struct Download {
    device: Device,
    journal: Arc<Journal>,
    // In the order in which they go: the shaper, then what leads to it.
    shaper: Option<Shaper>,
    ours: Option<Redirect>,
}

impl Download {
    /// Looks at what is there; changes nothing.
    ///
    /// # Errors
    /// As [`Shaper::open`], and [`LineError::Refused`] if something else is done with what comes in.
    pub fn open(device: &str, journal: &Arc<Journal>) -> Result<Self, LineError> {
        let mut socket = Socket::open()?;
        let device = device::by_name(&mut socket, device)?;
        let existing = redirect::existing(&mut socket, &device)?;
        let open = |ifb: &Device| Shaper::open(&ifb.name, Direction::Download, journal);
        let shaper = existing.as_ref().map(open).transpose()?;
        Ok(Self { device, journal: Arc::clone(journal), shaper, ours: None })
    }

    /// The IFB whose root counts what comes in, for [`super::counters::Counters`]; `None` while there is none.
    pub fn through(&self) -> Option<&Device> {
        self.shaper.as_ref().map(Shaper::device)
    }

    /// Sets this CAKE, takes all shaping off what comes in (anybody else's too), or puts back what was there. An IFB of
    /// ours exists only while there is a CAKE on it.
    ///
    /// # Errors
    /// As [`Shaper::shape`].
    pub fn shape(&mut self, shaping: Shaping) -> Result<(), LineError> {
        self.undisturbed()?;
        match (shaping, &mut self.shaper) {
            (Shaping::AsIs | Shaping::Unshaped, _) if self.ours.is_some() => self.put_back(),
            (_, Some(shaper)) => shaper.shape(shaping),
            (Shaping::AsIs | Shaping::Unshaped, None) => Ok(()),
            (Shaping::Cake(_), None) => {
                let redirect = self.ours.insert(Redirect::open(&self.device, &self.journal)?);
                let shaper = Shaper::open(&redirect.through().name, Direction::Download, &self.journal)?;
                self.shaper.insert(shaper).shape(shaping)
            }
        }
    }

    /// Whether everything is still as we left it (or found it).
    pub fn undisturbed(&mut self) -> Result<(), LineError> {
        let disturbed = || LineError::Disturbed { what: format!("the way of what comes in on {}", self.device.name) };
        let mut socket = Socket::open()?;
        let now = match redirect::existing(&mut socket, &self.device) {
            Err(LineError::Refused { .. }) => return Err(disturbed()),
            now => now?,
        };
        if now.map(|now| now.index) != self.through().map(|through| through.index) {
            return Err(disturbed());
        }
        self.shaper.as_mut().map_or(Ok(()), Shaper::undisturbed)
    }

    /// Puts back what was there before. Does nothing the second time.
    pub fn put_back(&mut self) -> Result<(), LineError> {
        let shaper = self.shaper.as_mut().map_or(Ok(()), Shaper::put_back);
        // Even if that failed: with our IFB goes what stands on it.
        if let Some(redirect) = &mut self.ours {
            redirect.put_back()?;
            (self.shaper, self.ours) = (None, None);
            return Ok(());
        }
        shaper
    }
}
