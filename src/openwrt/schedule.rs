//! Whether an unattended run is due. Pure: what is seen and the time go in, a decision and what to remember come out.

use super::link::Kind;
use super::modem::State;
use super::settings::{ApplyMode, General};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What a written setting rests on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Basis {
    /// The WAN, by its name in `/etc/config/network`.
    pub interface: Option<String>,
    pub device: String,
    pub link: Kind,
    pub sync_upload_kbit: Option<u64>,
    pub sync_download_kbit: Option<u64>,
    /// When it was measured, in seconds since 1970.
    pub measured_s: u64,
    /// What it cost, both directions.
    pub bytes: u64,
}

/// What there is to see now.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Seconds since 1970.
    pub now_s: u64,
    /// Minutes since midnight, local time.
    pub minute: u16,
    pub device: Option<String>,
    pub link: Kind,
    /// The modem's word, where there is one.
    pub modem: State,
    pub sync_upload_kbit: Option<u64>,
    pub sync_download_kbit: Option<u64>,
    /// A mobile line, or one that the owner calls metered.
    pub metered: bool,
    /// What was written last; `None`: nothing yet.
    pub basis: Option<Basis>,
    /// The rates that the owner has set since, where they differ from what was written.
    pub edited: Option<String>,
    /// What the queue is set to.
    pub set_upload_kbit: Option<u64>,
}

/// What one check remembers for the next.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// A change that has not lasted long enough.
    pub pending: Option<Pending>,
    /// Of the budget: the last day (since 1970, UTC) with a run, and what was moved in it.
    day: u64,
    bytes_today: u64,
    /// The last unattended run, whatever came of it.
    pub tried_s: Option<u64>,
    /// The upload's sync rate that the owner was warned of.
    pub warned_kbit: Option<u64>,
    pub health: Health,
}

/// Of a queue that should be running.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    #[default]
    Running,
    /// Perhaps SQM is on its way.
    Missing { since_s: u64 },
    /// Started once more, by us.
    Restarted { at_s: u64 },
    /// That did not help: the owner was told.
    Told,
}

/// What to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cure {
    Nothing,
    Restart,
    Tell,
}

/// SQM's own hotplug script comes a moment after the device (openwrt/packages#14518).
const START_S: u64 = 60;

impl Health {
    /// One restart, then a word; no second of either.
    pub fn look(&mut self, running: bool, now_s: u64) -> Cure {
        let (next, cure) = match *self {
            _ if running => (Self::Running, Cure::Nothing),
            Self::Running => (Self::Missing { since_s: now_s }, Cure::Nothing),
            Self::Missing { since_s } if now_s.saturating_sub(since_s) >= START_S => {
                (Self::Restarted { at_s: now_s }, Cure::Restart)
            }
            Self::Restarted { at_s } if now_s.saturating_sub(at_s) >= START_S => (Self::Told, Cure::Tell),
            same => (same, Cure::Nothing),
        };
        *self = next;
        cure
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pending {
    pub since_s: u64,
    upload_kbit: Option<u64>,
    download_kbit: Option<u64>,
    device: Option<String>,
    link: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Decision {
    pub due: bool,
    /// Why, or why not.
    pub why: String,
    /// For the owner, once.
    pub warning: Option<String>,
}

/// After a run that changed nothing the next one waits: what was in the way rarely goes in minutes.
const RETRY_S: u64 = 6 * 3600;
/// Before this the clock was never set: 1 January 2025.
const SANE_CLOCK_S: u64 = 1_735_689_600;
const DAY_S: u64 = 86_400;

/// `busy` measures which share of the line others use; it is asked only where everything else is in favour.
pub fn decide(settings: &General, seen: &Seen, memory: &mut Memory, busy: &mut dyn FnMut() -> f64) -> Decision {
    let warning = warning(seen, memory);
    let result = due(settings, seen, memory, busy);
    let (due, why) = match result {
        Ok(why) => (true, why),
        Err(why) => (false, why),
    };
    Decision { due, why, warning }
}

impl Memory {
    /// To be told before an unattended run begins, so that a killed one counts as well.
    pub fn run_begins(&mut self, now_s: u64) {
        self.tried_s = Some(now_s);
    }

    pub fn run_has_moved(&mut self, bytes: u64, now_s: u64) {
        (self.day, self.bytes_today) = (now_s / DAY_S, self.moved_today(now_s).saturating_add(bytes));
    }

    /// A new day begins by itself: nothing needs to be written for it.
    pub fn moved_today(&self, now_s: u64) -> u64 {
        if self.day == now_s / DAY_S { self.bytes_today } else { 0 }
    }
}

fn due(settings: &General, seen: &Seen, memory: &mut Memory, busy: &mut dyn FnMut() -> f64) -> Result<String, String> {
    if !settings.enabled {
        return Err("unattended runs are switched off (option enabled in /etc/config/sqm-autotune)".into());
    }
    if seen.now_s < SANE_CLOCK_S {
        return Err("the clock has not been set yet".into());
    }
    let Some(basis) = &seen.basis else {
        return Err("nothing has been written yet: run `sqm-autotune calibrate --apply` once".into());
    };
    if seen.device.is_none() {
        return Err("the line is down".into());
    }
    if matches!(seen.modem, State::Training | State::Down) {
        // Whatever comes after it begins anew.
        memory.pending = None;
        return Err("the modem has no connection".into());
    }
    let changes = changes(settings, seen, basis);
    if changes.is_empty() {
        memory.pending = None;
        return Err("nothing has changed since the last calibration".into());
    }
    if let Some(edited) = &seen.edited {
        return Err(format!("the owner has set other rates since the last write ({edited}): they stay"));
    }
    let changes = changes.join(", ");
    let waited_s = memory.pending_since(settings, seen);
    if waited_s < settings.settle.as_secs() {
        let left = (settings.settle.as_secs() - waited_s).div_ceil(60);
        return Err(format!("{changes}: waiting {left} min more whether it lasts"));
    }
    if settings.apply == ApplyMode::Ask {
        return Err(format!("{changes}: run `sqm-autotune calibrate --apply`, or set option apply to auto"));
    }
    if seen.metered {
        return Err(format!("{changes}, but the line is metered (option metered)"));
    }
    if let Some(tried) = memory.tried_s.filter(|tried| seen.now_s.saturating_sub(*tried) < RETRY_S) {
        let left = (RETRY_S - (seen.now_s - tried.min(seen.now_s))).div_ceil(3600);
        return Err(format!("{changes}, but a run has just been tried: the next one in {left} h"));
    }
    if let Some(window) = settings.window.filter(|window| !window.contains(seen.minute)) {
        return Err(format!("{changes}: waiting for the window {window}"));
    }
    let moved = memory.moved_today(seen.now_s);
    if moved.saturating_add(basis.bytes) > settings.daily_bytes {
        let (left, most) = (settings.daily_bytes.saturating_sub(moved), settings.daily_bytes);
        return Err(format!("{changes}, but of today's {} MB only {} MB are left", most / 1_000_000, left / 1_000_000));
    }
    let share = busy();
    if share > settings.quiet_share {
        return Err(format!("{changes}, but others use {:.0} % of the line", share * 100.0));
    }
    Ok(changes)
}

/// What is otherwise than when the settings were measured.
fn changes(settings: &General, seen: &Seen, basis: &Basis) -> Vec<String> {
    let mut changes = Vec::new();
    for (what, was, is) in [
        ("upload", basis.sync_upload_kbit, seen.sync_upload_kbit),
        ("download", basis.sync_download_kbit, seen.sync_download_kbit),
    ] {
        if let (Some(was), Some(is)) = (was, is)
            && differs(was, is, settings.threshold)
        {
            changes.push(format!("{what} sync went from {was} to {is} kbit/s"));
        }
    }
    // Where a modem told its rates and now says nothing, it does not tell the kind of link either.
    let silent = basis.sync_upload_kbit.is_some()
        && seen.sync_upload_kbit.is_none()
        && seen.device.as_ref() == Some(&basis.device);
    if seen.link != basis.link && !silent {
        changes.push(format!("the link was {} and is {}", Shown(basis.link), Shown(seen.link)));
    }
    if let Some(device) = seen.device.as_ref().filter(|device| **device != basis.device) {
        changes.push(format!("the line was on {} and is on {device}", basis.device));
    }
    let age = seen.now_s.saturating_sub(basis.measured_s);
    if settings.max_age.is_some_and(|most| age >= most.as_secs()) {
        changes.push(format!("the last calibration is {} days old", age / DAY_S));
    }
    changes
}

fn differs(was: u64, is: u64, threshold: f64) -> bool {
    was.abs_diff(is) as f64 > was as f64 * threshold
}

impl Memory {
    /// For how long things have been as they are now. A rate that goes on moving begins anew.
    fn pending_since(&mut self, settings: &General, seen: &Seen) -> u64 {
        let same = |was: Option<u64>, is: Option<u64>| match (was, is) {
            (Some(was), Some(is)) => !differs(was, is, settings.threshold),
            (was, is) => was == is,
        };
        let lasting = self.pending.take().filter(|pending| {
            same(pending.upload_kbit, seen.sync_upload_kbit)
                && same(pending.download_kbit, seen.sync_download_kbit)
                && (&pending.device, pending.link) == (&seen.device, seen.link)
                // A clock that was put back has no past.
                && pending.since_s <= seen.now_s
        });
        let pending = lasting.unwrap_or_else(|| Pending {
            since_s: seen.now_s,
            upload_kbit: seen.sync_upload_kbit,
            download_kbit: seen.sync_download_kbit,
            device: seen.device.clone(),
            link: seen.link,
        });
        seen.now_s - self.pending.insert(pending).since_s
    }
}

/// Once for each rate: a shaper above what the modem can send does nothing.
fn warning(seen: &Seen, memory: &mut Memory) -> Option<String> {
    let (sync, set) = (seen.sync_upload_kbit?, seen.set_upload_kbit.filter(|set| *set > 0)?);
    if sync >= set {
        memory.warned_kbit = None;
        return None;
    }
    if memory.warned_kbit.is_some_and(|warned| !differs(warned, sync, 0.01)) {
        return None;
    }
    memory.warned_kbit = Some(sync);
    Some(format!(
        "the modem sends {sync} kbit/s and SQM is set to {set}: it has no effect until the line is calibrated again"
    ))
}

/// As the configuration writes it.
struct Shown(Kind);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = serde_json::to_value(self.0).ok();
        f.write_str(name.as_ref().and_then(|name| name.as_str()).unwrap_or("unknown"))
    }
}

#[cfg(test)]
#[path = "schedule/tests.rs"]
mod tests;
