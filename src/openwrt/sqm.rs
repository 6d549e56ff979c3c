//! What writing an outcome into `/etc/config/sqm` would change: exactly one queue, and of it only our options.
//!
//! Pure. The queue is found by its `interface`, since LuCI's have no name. `layer_cake.qos` stays where the owner chose it;
//! what we do not know stays as it is.

mod text;
mod tokens;

pub use tokens::Tokens;

use super::network::{Wan, Wans};
use super::uci::{Config, Section, Value};
use crate::calibration::outcome::{FORMAT, Layer, Outcome, Status, TargetSource};
use serde::Serialize;

pub const FILE: &str = "sqm";

/// tc's `rtt` for a target of 8 ms; 5 ms is what CAKE does unasked (`q_cake.c`: a twentieth of it).
pub const LONG_RTT: &str = "rtt 160ms";
const ACK_FILTER: &str = "ack-filter";
/// sqm-scripts' scripts that set CAKE; the first is what we write.
const SCRIPTS: [&str; 2] = ["piece_of_cake.qos", "layer_cake.qos"];

/// Which device a queue is for, and what else people write for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Where a new queue goes.
    pub device: String,
    /// Devices that do as well, if the owner chose one: the ports of a bridge.
    pub ports: Vec<String>,
    /// What means this line and is no device to put a queue on: names of `/etc/config/network`, what PPPoE runs on.
    pub aliases: Vec<String>,
}

/// The changes of one queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChangeList {
    pub format: u32,
    /// The device that the queue shapes when all is done.
    pub device: String,
    /// As `uci` names it: `@queue[1]`, or a name.
    pub section: String,
    /// The section has to be made first.
    pub new: bool,
    pub changes: Vec<Change>,
    /// What the owner should know.
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    pub option: String,
    pub old: Option<String>,
    /// `None`: the option goes.
    pub new: Option<String>,
}

/// Why nothing can be written. One line each, with what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unwritable {
    #[error("the outcome {id} is no reason to write anything: it is {status:?}, and only a tuned line has settings")]
    NotTuned { id: String, status: Status },
    #[error(
        "{option} of {section} is {value:?}: sqm-scripts hand it to a shell, so only letters, digits, spaces, dots and hyphens are safe. Correct it first"
    )]
    Unsafe { section: String, option: String, value: String },
    #[error("{device:?} is no name of a network device that sqm-scripts can work with")]
    Device { device: String },
}

impl Place {
    /// A device of which nothing else is known.
    pub fn of_device(device: &str) -> Self {
        Self { device: device.into(), ports: Vec::new(), aliases: Vec::new() }
    }

    /// The WAN whose queue belongs on `device`, among others that may stand on the same port.
    pub fn of_wan(device: &str, wans: &Wans) -> Self {
        let mut place = Self::of_device(device);
        let Some(wan) = wans.found.iter().find(|wan| wan.device.as_deref() == Some(device)) else { return place };
        let names = [&wan.interface].into_iter().chain(&wan.also);
        place.aliases = names.flat_map(|name| [name.clone(), format!("@{name}")]).collect();
        let shared = |name: &String| wans.found.iter().any(|other| other != wan && other.stack.devices.contains(name));
        // Below a VLAN there is everybody's port.
        let carries_vlans =
            |name: &String| wan.stack.devices.iter().any(|upper| upper.starts_with(&format!("{name}.")));
        let ours = |name: &&String| *name != device && !shared(name) && !carries_vlans(name);
        let below = wan.stack.devices.iter().filter(ours).cloned();
        if runs_on(wan, device) {
            place.ports = below.collect();
        } else {
            place.aliases.extend(below);
        }
        place.aliases.retain(|alias| alias != device && !place.ports.contains(alias));
        place
    }

    /// How well a queue for `interface` fits: lower is better.
    fn rank(&self, interface: &str) -> Option<u8> {
        let is = |names: &[String]| names.iter().any(|name| name == interface);
        match interface {
            _ if interface == self.device => Some(0),
            _ if is(&self.ports) => Some(1),
            _ if is(&self.aliases) => Some(2),
            _ => None,
        }
    }
}

/// Whether IP packets leave by the device that the protocol runs on: not for PPP, which has one of its own.
fn runs_on(wan: &Wan, device: &str) -> bool {
    wan.stack.devices.first().is_some_and(|first| first == device)
}

impl ChangeList {
    /// # Errors
    /// Where the outcome has no settings, or the queue has what no shell should read.
    pub fn of(config: Option<&Config>, place: &Place, outcome: &Outcome) -> Result<Self, Unwritable> {
        if outcome.outcome != Status::Tuned {
            return Err(Unwritable::NotTuned { id: outcome.id.clone(), status: outcome.outcome });
        }
        device_name(&place.device)?;
        let mut list = match config.and_then(|config| find(config, place)) {
            Some((reference, section)) => Draft::of(reference, section, place),
            None => Draft::new(new_name(config, &place.device), place),
        };
        list.set("enabled", "1");
        list.set("interface", &list.device.clone());
        list.rate("upload", outcome.upload.kbit);
        list.rate("download", outcome.download.kbit);
        list.set("qdisc", "cake");
        if !SCRIPTS.iter().any(|script| list.is("script", script)) {
            list.set("script", SCRIPTS[0]);
        }
        list.link(outcome);
        list.options(outcome)?;
        Ok(list.finish())
    }

    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && !self.new
    }

    /// For the router's `uci batch`: `package` is the name of the file that it works on. Every value is one of ours: digits,
    /// names, tc's words; none has a quote.
    pub fn batch(&self, package: &str) -> String {
        let section = format!("{package}.{}", self.section);
        let mut script = String::new();
        let mut say = |line: String| script.push_str(&(line + "\n"));
        if self.new {
            say(format!("set {section}=queue"));
        }
        for Change { option, new, .. } in &self.changes {
            say(match new {
                Some(value) => format!("set {section}.{option}='{value}'"),
                None => format!("delete {section}.{option}"),
            });
        }
        say(format!("commit {package}"));
        script
    }

    /// What the options of the section are afterwards.
    pub fn value<'a>(&'a self, before: Option<&'a Section>, option: &str) -> Option<&'a str> {
        match self.changes.iter().find(|change| change.option == option) {
            Some(change) => change.new.as_deref(),
            None => before?.get(option),
        }
    }

    /// Whether `after` is `before` with these changes and no other. The order of a section's options counts for nobody, and
    /// libuci up to 2021 moves what it sets to the end.
    pub fn leads_from(&self, before: &Config, after: &Config) -> bool {
        let mut expected = before.clone();
        if self.new {
            expected.sections.push(Section::new("queue", Some(&self.section)));
        }
        let Some(section) = at(&expected, &self.section) else { return false };
        for Change { option, new, .. } in &self.changes {
            expected.sections[section].set(option, new.as_deref());
        }
        expected.sections.len() == after.sections.len()
            && expected.sections.iter().zip(&after.sections).all(|(one, other)| one.says_the_same(other))
    }
}

/// The section that a reference of ours means.
pub fn section<'a>(config: &'a Config, reference: &str) -> Option<&'a Section> {
    at(config, reference).map(|index| &config.sections[index])
}

fn at(config: &Config, reference: &str) -> Option<usize> {
    (0..config.sections.len()).find(|index| self::reference(config, *index) == reference)
}

/// A name, or how many of its kind come before it (`uci` counts the named ones too).
fn reference(config: &Config, index: usize) -> String {
    let section = &config.sections[index];
    let before = || config.sections[..index].iter().filter(|other| other.kind == section.kind).count();
    section.name.clone().unwrap_or_else(|| format!("@{}[{}]", section.kind, before()))
}

/// The queue for a place, as sqm-scripts would find it: of several the first that is on; any kind of section counts.
pub fn find<'a>(config: &'a Config, place: &Place) -> Option<(String, &'a Section)> {
    let ranked = config.sections.iter().enumerate().filter_map(|(index, section)| {
        let rank = place.rank(section.get("interface")?)?;
        Some((!is_on(section), rank, index))
    });
    let (_, _, index) = ranked.min()?;
    Some((reference(config, index), &config.sections[index]))
}

/// sqm-scripts compare with the number 1; `true` and `on` are off.
pub fn is_on(section: &Section) -> bool {
    section.get("enabled").is_some_and(|enabled| enabled.trim().parse() == Ok(1))
}

fn new_name(config: Option<&Config>, device: &str) -> String {
    let word = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let name: String = device.chars().map(word).collect();
    let taken = |name: &str| {
        config.is_some_and(|config| config.sections.iter().any(|section| section.name.as_deref() == Some(name)))
    };
    let mut names = std::iter::once(name.clone()).chain((2..).map(|n| format!("{name}_{n}")));
    names.find(|name| !taken(name)).expect("numbers do not end")
}

/// As Linux allows (`dev_valid_name`), and nothing that a shell or `uci` would act on.
fn device_name(device: &str) -> Result<(), Unwritable> {
    let safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if (1..=15).contains(&device.len()) && device.chars().all(safe) && !device.starts_with(['.', '-']) {
        return Ok(());
    }
    Err(Unwritable::Device { device: device.into() })
}

/// A change list in the making.
struct Draft<'a> {
    before: Option<&'a Section>,
    device: String,
    section: String,
    changes: Vec<Change>,
    notes: Vec<String>,
}

impl<'a> Draft<'a> {
    fn new(section: String, place: &Place) -> Self {
        let notes = vec![format!("there is no queue for {} yet: one is made", place.device)];
        Self { before: None, device: place.device.clone(), section, changes: Vec::new(), notes }
    }

    fn of(section: String, before: &'a Section, place: &Place) -> Self {
        let interface = before.get("interface").unwrap_or_default();
        let kept = place.ports.iter().any(|port| port == interface);
        let device = if kept { interface } else { &place.device };
        let mut notes = Vec::new();
        if interface != device {
            notes.push(format!("{interface:?} means the line of {device}, and that is the device to shape"));
        }
        if before.get("enabled").is_some() && !is_on(before) {
            notes.push("the queue is off for SQM and is switched on".into());
        }
        Self { before: Some(before), device: device.into(), section, changes: Vec::new(), notes }
    }

    fn old(&self, option: &str) -> Option<String> {
        Some(match self.before?.value(option)? {
            Value::Text(text) => text.clone(),
            Value::List(items) => items.join(" "),
        })
    }

    fn is(&self, option: &str, value: &str) -> bool {
        self.before.and_then(|before| before.get(option)) == Some(value)
    }

    fn set(&mut self, option: &str, value: &str) {
        if !self.is(option, value) {
            let change = Change { option: option.into(), old: self.old(option), new: Some(value.into()) };
            self.changes.push(change);
        }
    }

    fn delete(&mut self, option: &str) {
        if let Some(old) = self.old(option) {
            self.changes.push(Change { option: option.into(), old: Some(old), new: None });
        }
    }

    /// What was not tuned stays, and where there is nothing, 0 is set: sqm-scripts take a missing rate for 2302 and 14698.
    fn rate(&mut self, option: &str, kbit: Option<u64>) {
        match (kbit, self.old(option)) {
            (Some(kbit), _) => self.set(option, &kbit.to_string()),
            (None, None) => self.set(option, "0"),
            (None, Some(kept)) => {
                if kept != "0" {
                    self.notes.push(format!("{option} was not tuned and stays at {kept} kbit/s"));
                }
            }
        }
    }

    fn link(&mut self, outcome: &Outcome) {
        let link = &outcome.link;
        self.set("linklayer", if link.write_layer == Layer::Atm { "atm" } else { "ethernet" });
        self.set("overhead", &link.write_overhead.to_string());
        // The flag is for LuCI, which deletes what it hides.
        self.set("linklayer_advanced", "1");
        if link.write_mpu > 0 || self.old("tcMPU").is_some() {
            self.set("tcMPU", &link.write_mpu.to_string());
        }
        // A size table of tc would count the overhead before CAKE does.
        if !self.is("linklayer_adaptation_mechanism", "cake") {
            self.set("linklayer_adaptation_mechanism", "default");
        }
    }

    fn options(&mut self, outcome: &Outcome) -> Result<(), Unwritable> {
        let read = |draft: &Self, option: &str| {
            let value = draft.old(option).unwrap_or_default();
            Tokens::of(&value).ok_or_else(|| Unwritable::Unsafe {
                section: format!("{FILE}.{}", draft.section),
                option: option.into(),
                value,
            })
        };
        read(self, "iqdisc_opts")?;
        let mut egress = read(self, "eqdisc_opts")?;
        // The target was compared for the upload, so only its options are ours.
        match outcome.target.decided_by {
            TargetSource::Skipped => {}
            _ if outcome.target.target_ms == Some(8.0) => egress.put(LONG_RTT),
            TargetSource::Measured | TargetSource::TooSlow => egress.take("rtt"),
        }
        // Where it gains nothing here, the owner may still want it.
        if outcome.ack_filter.as_ref().is_some_and(|filter| filter.recommended) {
            egress.put(ACK_FILTER);
        }
        let written = egress.to_string();
        if Tokens::of(&self.old("eqdisc_opts").unwrap_or_default()).is_some_and(|old| old == egress) {
            return Ok(());
        }
        if written.is_empty() {
            self.delete("eqdisc_opts");
            return Ok(());
        }
        self.set("qdisc_advanced", "1");
        self.set("qdisc_really_really_advanced", "1");
        self.set("eqdisc_opts", &written);
        Ok(())
    }

    fn finish(self) -> ChangeList {
        let Self { before, device, section, changes, notes } = self;
        ChangeList { format: FORMAT, device, section, new: before.is_none(), changes, notes }
    }
}

#[cfg(test)]
#[path = "sqm/tests.rs"]
mod tests;
