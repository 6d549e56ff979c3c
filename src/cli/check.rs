//! `check`: what cron and hotplug call. Re-tunes if the line has changed, else says why not.

use super::apply::{self, How, Refusal};
use super::args::{FactArgs, LineArgs, RouterArgs, UsageError};
use super::clock::Utc;
use super::exit::Exit;
use super::job::{Job, What};
use super::watch::Watched;
use super::words::clean;
use super::{complain, held, line, link, progress, signals, syslog, uci_text};
use crate::calibration::outcome::{FORMAT, Status};
use crate::calibration::{self, Plan};
use crate::durable::{self, Lock};
use crate::openwrt::apply::{self as written, Record};
use crate::openwrt::device::Medium;
use crate::openwrt::live::Wanted;
use crate::openwrt::network::{Pick, Wan};
use crate::openwrt::schedule::{self, Cure, Decision, Memory, Seen};
use crate::openwrt::service::Service;
use crate::openwrt::settings::General;
use crate::openwrt::sqm::{self, Place};
use crate::openwrt::{Inventory, Root, history};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

const MEMORY: &str = "var/run/sqm-autotune/check/memory.json";
/// Long enough to tell a download from a few packets.
const LISTEN: Duration = Duration::from_secs(3);

/// `check --json`.
#[derive(Debug, Serialize)]
struct Checked {
    format: u32,
    wans: Vec<CheckedWan>,
}

#[derive(Debug, Serialize)]
pub struct CheckedWan {
    pub interface: String,
    pub device: Option<String>,
    #[serde(flatten)]
    pub decision: Decision,
    /// What the run came to, if there was one.
    pub outcome: Option<Status>,
    pub written: bool,
}

/// What all checks remember, by the WAN's name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Memories {
    wans: BTreeMap<String, Memory>,
}

pub fn check(args: &FactArgs) -> Result<Exit, UsageError> {
    let root = held::root(args.root.as_deref())?;
    let settings = held::general(&root)?;
    let inventory = Inventory::read(&root);
    let wans = chosen(&inventory, args.pick.as_ref())?;
    let result = held::lock(&root).and_then(|lock| {
        settled(&root)?;
        let mut memories = recall(&root)?;
        let check = |wan| Check { root: &root, settings: &settings, inventory: &inventory, wan };
        Ok(wans.into_iter().map(|wan| (wan, check(wan).run(&lock, &mut memories))).collect::<Vec<_>>())
    });
    let mut checked = Checked { format: FORMAT, wans: Vec::new() };
    let mut exit = Exit::Done;
    match result {
        Err(refusal) => return Ok(apply::ended(Err(refusal), args.json)),
        Ok(results) => {
            for (wan, result) in results {
                match result {
                    Ok(one) => checked.wans.push(one),
                    Err(Refusal { exit: ended, why }) => {
                        complain(&clean(&format!("{}: {why}", wan.interface)));
                        exit = ended;
                    }
                }
            }
        }
    }
    let none = "This router has no WAN that is known.\n";
    link::answer(&checked, args.json, || match checked.wans.as_slice() {
        [] if exit == Exit::Done => none.into(),
        wans => wans.iter().map(told).collect(),
    });
    Ok(exit)
}

/// What each WAN's check would say now; nothing is remembered, started or asked of the line.
pub fn glance(root: &Root, settings: &General, inventory: &Inventory) -> Vec<CheckedWan> {
    let memories = recall(root).unwrap_or_default();
    let glance = |wan: &Wan| {
        let check = Check { root, settings, inventory, wan };
        let mut memory = memories.wans.get(&wan.interface).cloned().unwrap_or_default();
        memory.warned_kbit = None;
        let decision = check.decide(&mut memory, &mut || 0.0).ok()?;
        Some(CheckedWan::of(wan, decision))
    };
    inventory.wans().found.iter().filter_map(glance).collect()
}

fn chosen<'a>(inventory: &'a Inventory, pick: Option<&Pick>) -> Result<Vec<&'a Wan>, UsageError> {
    if pick.is_none() {
        return Ok(inventory.wans().found.iter().collect());
    }
    let wan = inventory.wans().choose(pick).map_err(|error| UsageError(error.to_string()))?;
    Ok(wan.into_iter().collect())
}

fn settled(root: &Root) -> Result<(), Refusal> {
    let service = Service::of(root).map_err(Refusal::refused)?;
    held::settle(root, service.as_ref())
}

impl CheckedWan {
    fn of(wan: &Wan, decision: Decision) -> Self {
        let (interface, device) = (wan.interface.clone(), wan.device.clone());
        Self { interface, device, decision, outcome: None, written: false }
    }
}

/// One WAN.
struct Check<'a> {
    root: &'a Root,
    settings: &'a General,
    inventory: &'a Inventory,
    wan: &'a Wan,
}

impl Check<'_> {
    fn run(&self, lock: &Lock, memories: &mut Memories) -> Result<CheckedWan, Refusal> {
        if !self.settings.enabled {
            // Nothing to remember, and nobody wants a word in the log.
            return Ok(CheckedWan::of(self.wan, self.decide(&mut Memory::default(), &mut || 0.0)?));
        }
        let before = memories.clone();
        let name = &self.wan.interface;
        let now_s = Utc::now().seconds();
        let others = memories.wans.iter().filter(|(other, _)| *other != name);
        let others: u64 = others.map(|(_, memory)| memory.moved_today(now_s)).sum();
        // The budget is the household's, not the WAN's.
        let settings =
            General { daily_bytes: self.settings.daily_bytes.saturating_sub(others), ..self.settings.clone() };
        let check = Check { settings: &settings, ..*self };
        let memory = memories.wans.entry(name.clone()).or_default();
        check.health(memory)?;
        let decision = check.decide(memory, &mut || self.busy())?;
        if let Some(warning) = decision.warning.as_ref().filter(|_| self.root.is_live()) {
            syslog::warn(&format!("{name}: {warning}"));
        }
        let due = decision.due && self.root.is_live();
        if due {
            memory.run_begins(now_s);
        }
        // A hundred events that change nothing write nothing.
        if *memories != before {
            remember(self.root, memories)?;
        }
        let mut checked = CheckedWan::of(self.wan, decision);
        if due {
            let (status, bytes, result) = self.retune(lock);
            checked.outcome = Some(status);
            memories.wans.entry(name.clone()).or_default().run_has_moved(bytes, now_s);
            remember(self.root, memories)?;
            match result {
                Ok(written) => checked.written = written,
                Err(refusal) => {
                    syslog::warn(&format!("{name}: {}", refusal.why));
                    return Err(refusal);
                }
            }
        }
        Ok(checked)
    }

    fn decide(&self, memory: &mut Memory, busy: &mut dyn FnMut() -> f64) -> Result<Decision, Refusal> {
        Ok(schedule::decide(self.settings, &self.seen()?, memory, busy))
    }

    fn seen(&self) -> Result<Seen, Refusal> {
        let pick = Pick::Interface(self.wan.interface.clone());
        let sync = self.inventory.sync(Some(&pick)).map_err(Refusal::failed)?;
        let link = self.inventory.link(Some(&pick)).map_err(Refusal::failed)?;
        let record = self.record()?;
        let config = self.root.config(sqm::FILE).map_err(Refusal::refused)?;
        let queue = |device: &str| {
            let place = Place::of_wan(device, self.inventory.wans());
            config.as_ref().and_then(|config| sqm::find(config, &place)).map(|(_, section)| section)
        };
        let section =
            record.as_ref().map(|record| record.device.as_str()).or(self.wan.device.as_deref()).and_then(queue);
        let now = Utc::now();
        let rate = |option: &str| section.filter(|section| sqm::is_on(section))?.get(option)?.parse().ok();
        let metered = self.inventory.metered(&pick).unwrap_or(self.wan.medium == Some(Medium::Mobile));
        Ok(Seen {
            now_s: now.seconds(),
            minute: now.local_minute(),
            device: self.wan.device.clone().filter(|_| self.wan.up || !self.inventory.has_netifd),
            link: link.kind,
            modem: sync.state,
            sync_upload_kbit: sync.upload_kbit,
            sync_download_kbit: sync.download_kbit,
            metered,
            edited: record.as_ref().and_then(|record| record.edited(section)),
            basis: record.map(|record| record.basis),
            set_upload_kbit: rate("upload"),
        })
    }

    /// The last write for this WAN, on whatever device it was then.
    fn record(&self) -> Result<Option<Record>, Refusal> {
        let ours = |record: &Record| match &record.basis.interface {
            Some(interface) => self.wan.is_called(interface),
            None => self.wan.device.as_ref() == Some(&record.device),
        };
        Ok(written::all(self.root)?.into_iter().find(ours))
    }

    /// A queue that is on and does not run is started once (openwrt/packages#25172), then told.
    fn health(&self, memory: &mut Memory) -> Result<(), Refusal> {
        let (Some(service), Some(device)) = (Service::of(self.root).map_err(Refusal::refused)?, &self.wan.device)
        else {
            return Ok(());
        };
        let config = self.root.config(sqm::FILE).map_err(Refusal::refused)?;
        let place = Place::of_wan(device, self.inventory.wans());
        let section = config.as_ref().and_then(|config| sqm::find(config, &place)).map(|(_, section)| section);
        let Some(wanted) = section.and_then(Wanted::of).filter(|_| service.is_enabled().unwrap_or(false)) else {
            return Ok(());
        };
        let device = section.and_then(|section| section.get("interface")).unwrap_or(device);
        let Ok(live) = line::live(device) else { return Ok(()) };
        match memory.health.look(wanted.runs(&live), Utc::now().seconds()) {
            Cure::Nothing => {}
            Cure::Restart => service.restart(device).map_err(Refusal::failed)?,
            Cure::Tell => {
                syslog::warn(&format!("SQM does not run on {device}, though it is switched on: see `logread -e SQM`"));
            }
        }
        Ok(())
    }

    /// Which share of the line others use now.
    fn busy(&self) -> f64 {
        let Some(device) = &self.wan.device else { return 0.0 };
        let count = |name: &str| -> Option<u64> {
            let text = self.root.bytes(format!("sys/class/net/{device}/statistics/{name}")).ok()??;
            String::from_utf8(text).ok()?.trim().parse().ok()
        };
        let read = || Some((count("tx_bytes")?, count("rx_bytes")?));
        let Some(before) = read() else { return 0.0 };
        std::thread::sleep(LISTEN);
        let Some(after) = read() else { return 0.0 };
        let Ok(seen) = self.seen() else { return 0.0 };
        let share = |bytes: u64, kbit: Option<u64>| {
            let most = kbit.unwrap_or(0) as f64 * 125.0 * LISTEN.as_secs_f64();
            if most > 0.0 { bytes as f64 / most } else { 0.0 }
        };
        let upload = share(after.0.saturating_sub(before.0), seen.sync_upload_kbit.or(seen.set_upload_kbit));
        upload.max(share(after.1.saturating_sub(before.1), seen.sync_download_kbit))
    }

    /// What the run came to, what it moved, and whether it was written.
    fn retune(&self, lock: &Lock) -> (Status, u64, Result<bool, Refusal>) {
        let device = self.wan.device.clone();
        let args = LineArgs { router: RouterArgs { device, ..RouterArgs::default() }, ..LineArgs::default() };
        let named = LineArgs { line: Some(super::args::LineName::Router), ..args };
        signals::catch();
        let mut job = match Job::begin(self.root, What::Calibrate) {
            Ok(job) => job,
            Err(refusal) => return (Status::Refused, 0, Err(refusal)),
        };
        let mut held = match line::open_to_calibrate(&named, true, signals::flag()) {
            Ok(held) => held,
            Err(error) => {
                job.end(Exit::Failed, Some(&error.to_string()), None);
                return (Status::Failed, 0, Err(Refusal::failed(error)));
            }
        };
        let now = Utc::now();
        let plan = Plan {
            id: now.id(history::next_number(self.root, &now.minute())),
            started: now.rfc3339(),
            max_added_ms: self.settings.max_added_ms,
            max_bytes: Some(self.settings.daily_bytes).filter(|bytes| *bytes > 0),
            ..Plan::default()
        };
        let mut view = progress::on_stderr();
        let mut run = calibration::calibrate(held.line(), &plan, &mut Watched::new(&mut view, Some(&mut job), &plan));
        drop((view, held));
        job.seen().close();
        run.outcome.uci = uci_text::section(&run.outcome, &run.outcome.line.clone());
        let (status, cost) = (run.outcome.outcome, run.outcome.cost);
        let bytes = cost.upload_bytes + cost.download_bytes;
        if let Err(error) = history::keep(self.root, &run.outcome, self.settings.keep_last) {
            complain(&clean(&error.to_string()));
        }
        if status != Status::Tuned {
            job.end(Exit::of(&run), run.outcome.reason.as_deref(), Some(&run.outcome.id));
            let why = run.outcome.reason.unwrap_or_else(|| "no settings came of it".into());
            syslog::warn(&format!("{}: the line was measured again, without a result: {why}", self.wan.interface));
            return (status, bytes, Ok(false));
        }
        let how = How { dry_run: false, ask: false, json: true };
        let applied = apply::write_locked(self.root, lock, &run.outcome, &named, how);
        let (exit, reason) = match &applied {
            Ok(_) => (Exit::Done, None),
            Err(refusal) => (refusal.exit, Some(refusal.why.as_str())),
        };
        job.end(exit, reason, Some(&run.outcome.id));
        (status, bytes, applied.map(|applied| applied.written))
    }
}

fn told(checked: &CheckedWan) -> String {
    let CheckedWan { interface, decision, outcome, written, .. } = checked;
    let verdict = match (outcome, written) {
        (Some(_), true) => "calibrated again and written",
        (Some(_), false) => "calibrated again, nothing to write",
        (None, _) if decision.due => "a calibration is due",
        (None, _) => "no calibration",
    };
    let warning = decision.warning.as_ref().map_or_else(String::new, |warning| format!("{interface}: {warning}\n"));
    format!("{interface}: {verdict}: {}\n{warning}", decision.why)
}

/// What makes no sense is forgotten: it is worth no more than that.
fn recall(root: &Root) -> Result<Memories, Refusal> {
    let text = root.bytes(MEMORY).map_err(Refusal::failed)?;
    Ok(text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default())
}

fn remember(root: &Root, memories: &Memories) -> Result<(), Refusal> {
    let path = root.path(MEMORY).map_err(Refusal::failed)?;
    let made = path.parent().map_or(Ok(()), std::fs::create_dir_all);
    let json = serde_json::to_vec(memories).expect("memories are plain data");
    made.and_then(|()| durable::replace(&path, &json))
        .map_err(|error| Refusal::failed(format!("cannot write {}: {error}", path.display())))
}
