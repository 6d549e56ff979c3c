//! `doctor`: what is wrong with the SQM configuration and with what really runs.
//!
//! A pure function of what was read ([`Facts`]). What could not be looked at gives no finding, and neither does a queue
//! that is off. The specific replaces the general: each rule says where it gives way.

mod counters;
mod devices;
mod facts;
mod live;
mod options;
mod owners;
mod rates;
mod system;

pub use counters::worth_a_second_look;
pub use facts::{Facts, Machine, Port, ports};

use super::queue::{self, Enabled, Queue};
use super::uci::Config;
use crate::calibration::outcome::FORMAT;
use devices::Site;
use serde::Serialize;

/// `doctor --json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    pub format: u32,
    pub findings: Vec<Finding>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub code: Code,
    pub severity: Severity,
    /// An option as `uci` names it, or a file or a device.
    #[serde(rename = "where")]
    pub place: String,
    /// What it is and what comes of it.
    pub text: String,
    pub fix: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Error,
    Warning,
    Info,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Code {
    ConfigUnreadable,
    BitPerS,
    MissingRate,
    BadRate,
    NotEnabled,
    DisabledInit,
    SecondQueue,
    UnknownDevice,
    LogicalName,
    LanQueue,
    LayerNoneDropsOverhead,
    OverheadRange,
    AtmOnFrames,
    FramesOnAtm,
    ScriptQdiscMismatch,
    UnknownScript,
    DeadOption,
    BadOpts,
    FlagsHideOptions,
    NotRunning,
    NotCake,
    RateDiffers,
    DirectionsSwapped,
    IfbNotFed,
    NoRedirect,
    HardwareOffload,
    OtherOwner,
    StaleLock,
    SlowerThanRate,
    BulkTinFlood,
    NestedQueues,
    AboveSync,
    FarBelowLine,
    PortSpeed,
    MissingModule,
    NoSpace,
    WrongClock,
    NoDefaultRoute,
}

impl Code {
    pub fn severity(self) -> Severity {
        match self {
            Self::LanQueue
            | Self::LayerNoneDropsOverhead
            | Self::AtmOnFrames
            | Self::ScriptQdiscMismatch
            | Self::RateDiffers
            | Self::OtherOwner
            | Self::SlowerThanRate
            | Self::BulkTinFlood
            | Self::AboveSync
            | Self::PortSpeed
            | Self::NoSpace
            | Self::WrongClock
            | Self::NoDefaultRoute => Severity::Warning,
            Self::DeadOption | Self::FlagsHideOptions | Self::NestedQueues | Self::FarBelowLine => Severity::Info,
            _ => Severity::Error,
        }
    }
}

/// What has been found so far.
#[derive(Debug, Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, code: Code, place: impl Into<String>, text: impl Into<String>, fix: impl Into<String>) {
        let (place, text, fix) = (place.into(), text.into(), fix.into());
        self.0.push(Finding { code, severity: code.severity(), place, text, fix });
    }

    fn has(&self, code: Code, place: &str) -> bool {
        self.0.iter().any(|finding| finding.code == code && finding.place == place)
    }
}

impl Diagnosis {
    pub fn of(facts: &Facts) -> Self {
        let mut findings = Findings::default();
        for (file, problem) in &facts.unreadable {
            let text = format!("{problem}: no program on the router can read this file, and it counts as empty");
            findings.add(Code::ConfigUnreadable, format!("/etc/config/{file}"), text, "Correct that line");
        }
        if let Some(sqm) = &facts.sqm {
            queues(sqm, facts, &mut findings);
        }
        findings.0.sort_by_key(|finding| finding.severity);
        Self { format: FORMAT, findings: findings.0 }
    }
}

/// What keeps a calibration of `device` from being true, and if it is to be written, from being that: the first such thing.
/// Where the device is not known, nobody else can own it. What the kernel lacks is found when it is asked for it.
pub fn hindrance(facts: &Facts, device: Option<&str>, is_to_be_written: bool) -> Option<Finding> {
    let mut findings = Findings::default();
    system::offload(facts, &mut findings);
    if let Some(device) = device {
        owners::examine_device(device, facts, &mut findings);
    }
    if is_to_be_written {
        system::stale_lock(facts, &mut findings);
        system::no_space(facts, &mut findings);
    }
    findings.0.into_iter().next()
}

fn queues(sqm: &Config, facts: &Facts, findings: &mut Findings) {
    let all = queue::queues(sqm);
    for queue in all.iter().filter(|queue| queue.enabled == Enabled::Misread) {
        let written = queue.section.get("enabled").unwrap_or_default();
        findings.add(
            Code::NotEnabled,
            queue.at("enabled"),
            format!("enabled is '{written}', which SQM reads as off: only the number 1 is on, and nothing is shaped"),
            format!("Write option enabled '1' (uci set {}='1')", queue.at("enabled")),
        );
    }
    let enabled: Vec<&Queue> = all.iter().filter(|queue| queue.enabled == Enabled::Yes).collect();
    let mut sites: Vec<Site> = Vec::new();
    for queue in &enabled {
        if let Some(first) =
            sites.iter().find(|site| !queue.interface.is_empty() && site.queue.interface == queue.interface)
        {
            findings.add(
                Code::SecondQueue,
                queue.at("interface"),
                format!(
                    "{} already has the queue {}: SQM skips this one without a word, and its settings do nothing",
                    queue.interface, first.queue.path
                ),
                "Delete or disable one of the two",
            );
            continue;
        }
        let site = Site::of(queue, facts);
        options::examine(queue, site.line(facts).as_ref(), findings);
        options::examine_script(queue, facts.scripts.as_deref(), findings);
        let there = devices::examine(&site, facts, findings);
        rates::examine(&site, facts, findings);
        if there {
            live::examine(&site, facts, findings);
            counters::examine(&site, facts, findings);
        }
        sites.push(site);
    }
    rates::nested(&sites, findings);
    if !sites.is_empty() {
        owners::examine(&sites, facts, findings);
        system::examine(&sites, facts, findings);
    }
}
