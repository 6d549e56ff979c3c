//! `status`: what is set, since when, what the line says of it, and whether anything is due. `report`: the same and the
//! last outcome in full, for a forum.

use super::args::{FactArgs, UsageError};
use super::check::{self, CheckedWan};
use super::clock::Utc;
use super::exit::Exit;
use super::history::{self, Entry};
use super::style::Style;
use super::words::{grouped, labelled};
use super::{held, json, link, result};
use crate::calibration::outcome::{FORMAT, Outcome, Status as Ending};
use crate::openwrt::apply;
use crate::openwrt::link::Link;
use crate::openwrt::live::Live;
use crate::openwrt::network::Pick;
use crate::openwrt::redact::Redactor;
use crate::openwrt::settings::General;
use crate::openwrt::sqm::{self, Place};
use crate::openwrt::sync::Sync;
use crate::openwrt::{Inventory, Root, history as kept};
use serde::Serialize;
use std::fmt::Write;

/// `status --json`.
#[derive(Debug, Serialize)]
pub struct Status {
    format: u32,
    agent: &'static str,
    /// When this was looked at; what is shown is as old as that.
    at: String,
    wans: Vec<WanStatus>,
    last: Option<Entry>,
    last_write: Option<LastWrite>,
    /// What of the configuration cannot be read.
    problems: Vec<String>,
}

#[derive(Debug, Serialize)]
struct WanStatus {
    #[serde(flatten)]
    checked: CheckedWan,
    queue: Option<QueueStatus>,
    sync: Option<Sync>,
    link: Option<Link>,
    live: Option<Live>,
}

/// What `/etc/config/sqm` says.
#[derive(Debug, Serialize)]
struct QueueStatus {
    section: String,
    enabled: bool,
    upload_kbit: Option<u64>,
    download_kbit: Option<u64>,
}

#[derive(Debug, Serialize)]
struct LastWrite {
    id: String,
    at: String,
    device: String,
    /// The file is still what was written: `revert` is possible.
    revertible: bool,
}

pub fn status(args: &FactArgs) -> Result<Exit, UsageError> {
    let root = held::root(args.root.as_deref())?;
    let status = Status::of(&root);
    link::answer(&status, args.json, || status.told());
    Ok(Exit::Done)
}

impl Status {
    fn of(root: &Root) -> Self {
        let inventory = Inventory::read(root);
        let mut problems = Vec::new();
        let settings = held::general(root).unwrap_or_else(|error| {
            problems.push(error.to_string());
            General::default()
        });
        let config = root.config(sqm::FILE).unwrap_or_else(|error| {
            problems.push(error.to_string());
            None
        });
        let records = apply::all(root).unwrap_or_else(|error| {
            problems.push(error.to_string());
            Vec::new()
        });
        let wan = |checked: CheckedWan| {
            let pick = Pick::Interface(checked.interface.clone());
            let place = checked.device.as_ref().map(|device| Place::of_wan(device, inventory.wans()));
            let queue = place.and_then(|place| sqm::find(config.as_ref()?, &place));
            let device = queue.as_ref().and_then(|(_, section)| section.get("interface")).or(checked.device.as_deref());
            let live = device.filter(|_| root.is_live()).and_then(|device| super::line::live(device).ok());
            let rate = |text: Option<&str>| text.and_then(|text| text.parse().ok());
            WanStatus {
                queue: queue.map(|(section, queue)| QueueStatus {
                    section,
                    enabled: sqm::is_on(queue),
                    upload_kbit: rate(queue.get("upload")),
                    download_kbit: rate(queue.get("download")),
                }),
                sync: inventory.sync(Some(&pick)).ok(),
                link: inventory.link(Some(&pick)).ok(),
                live,
                checked,
            }
        };
        let wans = check::glance(root, &settings, &inventory).into_iter().map(wan).collect();
        let last_write = records.first().map(|record| LastWrite {
            id: record.id.clone(),
            at: record.at.clone(),
            device: record.device.clone(),
            revertible: record.is_in_place(root),
        });
        let last = history::entries(root).into_iter().next();
        Self {
            format: FORMAT,
            agent: env!("CARGO_PKG_VERSION"),
            at: Utc::now().rfc3339(),
            wans,
            last,
            last_write,
            problems,
        }
    }

    fn told(&self) -> String {
        let mut text = String::new();
        for wan in &self.wans {
            text.push_str(&wan.told());
        }
        if self.wans.is_empty() {
            text.push_str("This router has no WAN that is known.\n");
        }
        let mut row = |label: &str, words: &str| text.push_str(&labelled(label, 12, words, 80));
        match &self.last {
            Some(last) => row("Last result", &format!("{}, {} ({})", last.id, last.word(), last.line)),
            None => row("Last result", "none since the router started"),
        }
        if let Some(write) = &self.last_write {
            let since = if write.revertible { "revert undoes it" } else { "changed by somebody since" };
            row("Last write", &format!("{}, for {} ({since})", write.at, write.device));
        }
        for problem in &self.problems {
            row("Problem", problem);
        }
        text
    }
}

impl WanStatus {
    fn told(&self) -> String {
        let CheckedWan { interface, device, decision, .. } = &self.checked;
        let mut text = format!("{interface} ({})\n", device.as_deref().unwrap_or("no device"));
        let mut row = |label: &str, words: &str| text.push_str(&labelled(&format!("  {label}"), 12, words, 80));
        let rates = |up: Option<u64>, down: Option<u64>| {
            let rate = |kbit: Option<u64>| match kbit {
                None => "not known".into(),
                Some(0) => "not shaped".into(),
                Some(kbit) => format!("{} kbit/s", grouped(kbit)),
            };
            format!("{} up, {} down", rate(up), rate(down))
        };
        match &self.queue {
            None => row("SQM", "no queue for this line"),
            Some(queue) => {
                let off = if queue.enabled { "" } else { ", switched off" };
                row("SQM", &format!("{}{off}", rates(queue.upload_kbit, queue.download_kbit)));
            }
        }
        if let Some(sync) = self.sync.as_ref().filter(|sync| sync.upload_kbit.or(sync.download_kbit).is_some()) {
            row("Modem", &rates(sync.upload_kbit, sync.download_kbit));
        }
        if let Some(queue) = self.live.as_ref().and_then(|live| live.egress.as_ref()) {
            let rate = queue.kbit.map_or_else(String::new, |kbit| format!(" at {} kbit/s", grouped(kbit)));
            row("Running", &format!("{}{rate}", queue.kind));
        }
        row("Re-tuning", &decision.why);
        if let Some(warning) = &decision.warning {
            row("Warning", warning);
        }
        text
    }
}

/// `report --json`.
#[derive(Debug, Serialize)]
struct Report {
    #[serde(flatten)]
    status: Status,
    release: Option<String>,
    kernel: Option<String>,
    /// As text: what a helper wants to see first.
    sqm: Option<String>,
    /// The last outcome with settings, or else the last.
    outcome: Option<Outcome>,
}

pub fn report(args: &FactArgs) -> Result<Exit, UsageError> {
    let root = held::root(args.root.as_deref())?;
    let redactor = redactor(&root);
    let mut all = kept::all(&root);
    let tuned = all.iter().position(|outcome| outcome.outcome == Ending::Tuned).unwrap_or(0);
    let outcome = (!all.is_empty()).then(|| all.swap_remove(tuned));
    let report = Report {
        status: Status::of(&root),
        release: line_of(&root, "etc/openwrt_release", "DISTRIB_DESCRIPTION="),
        kernel: line_of(&root, "proc/sys/kernel/osrelease", ""),
        sqm: text(&root, "etc/config/sqm"),
        outcome,
    };
    let mut value = serde_json::from_str(&json::text(&report)).expect("it was made this moment");
    redactor.json(&mut value);
    link::answer(&value, args.json, || redactor.text(&report.told()));
    Ok(Exit::Done)
}

impl Report {
    fn told(&self) -> String {
        let mut text = format!("sqm-autotune {} at {}\n", self.status.agent, self.status.at);
        let known = |value: &Option<String>| value.clone().unwrap_or_else(|| "not known".into());
        let _ = writeln!(text, "{}, Linux {}\n", known(&self.release), known(&self.kernel));
        text.push_str(&self.status.told());
        for wan in &self.status.wans {
            if let Some(link) = &wan.link {
                let _ = writeln!(text, "\nLink of {}:", wan.checked.interface);
                for evidence in &link.evidence {
                    let _ = writeln!(text, "  {evidence}");
                }
            }
        }
        if let Some(sqm) = &self.sqm {
            let _ = writeln!(text, "\n/etc/config/sqm:\n{sqm}");
        }
        if let Some(outcome) = &self.outcome {
            let _ = writeln!(text, "\nCalibration {} of {}:\n", outcome.id, outcome.line);
            text.push_str(&result::evidence(outcome, Style::PLAIN));
        }
        text
    }
}

/// Knows the router's own name and what its configurations call people and things.
fn redactor(root: &Root) -> Redactor {
    let configs = ["system", "network", "wireless"].map(|name| root.config(name).ok().flatten());
    let mut redactor = Redactor::of(configs.iter().flatten());
    if let Some(name) = line_of(root, "proc/sys/kernel/hostname", "") {
        redactor.know(&name);
    }
    redactor
}

fn text(root: &Root, path: &str) -> Option<String> {
    root.bytes(path).ok().flatten().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// What follows `begins` in the first line that begins so, without quotes.
fn line_of(root: &Root, path: &str, begins: &str) -> Option<String> {
    let text = text(root, path)?;
    let found = text.lines().find_map(|line| line.strip_prefix(begins))?;
    Some(found.trim_matches(['\'', '"']).to_owned())
}
