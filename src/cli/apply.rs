//! `apply`, and what `calibrate --apply` and `check` do with an outcome: show the changes, write them, look whether the line
//! is better for it, and keep or undo.

use super::args::{ApplyArgs, LineArgs, UsageError};
use super::clock::Utc;
use super::exit::Exit;
use super::job::{Job, What};
use super::words::clean;
use super::{complain, doctor, held, json, line, print, question, signals};
use crate::calibration::outcome::Outcome;
use crate::durable::Lock;
use crate::line::LineError;
use crate::openwrt::apply::{self, Apply, ApplyError};
use crate::openwrt::link::Kind;
use crate::openwrt::live::{self, Live, Probe, Wanted};
use crate::openwrt::network::Pick;
use crate::openwrt::schedule::Basis;
use crate::openwrt::service::Service;
use crate::openwrt::sqm::{self, ChangeList, Place};
use crate::openwrt::write::{self, Edit, WriteError};
use crate::openwrt::{Inventory, Root, history};
use serde::Serialize;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// LuCI's window for a confirmation is 90 s.
const ROLLBACK_PATIENCE: Duration = Duration::from_secs(95);

/// `apply --json`.
#[derive(Debug, Serialize)]
pub struct Applied {
    #[serde(flatten)]
    pub list: ChangeList,
    pub id: String,
    /// The changes are in the file now.
    pub written: bool,
    /// Why they are not.
    pub reason: Option<String>,
}

/// Why nothing was written, and how the command ends.
#[derive(Debug)]
pub struct Refusal {
    pub exit: Exit,
    pub why: String,
}

impl Refusal {
    pub fn failed(error: impl std::fmt::Display) -> Self {
        Self { exit: Exit::Failed, why: error.to_string() }
    }

    pub fn refused(error: impl std::fmt::Display) -> Self {
        Self { exit: Exit::Refused, why: error.to_string() }
    }
}

impl From<LineError> for Refusal {
    fn from(error: LineError) -> Self {
        match error {
            LineError::Refused { .. } => Self::refused(error),
            error => Self::failed(error),
        }
    }
}

impl From<ApplyError> for Refusal {
    fn from(error: ApplyError) -> Self {
        match error {
            ApplyError::Write(error) => error.into(),
            error => Self::failed(error),
        }
    }
}

impl From<WriteError> for Refusal {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::File { .. } | WriteError::Unfaithful(_) | WriteError::NoUci(_) | WriteError::Root(_) => {
                Self::failed(error)
            }
            error => Self::refused(error),
        }
    }
}

pub fn apply(args: &ApplyArgs) -> Result<Exit, UsageError> {
    let root = held::root(args.root.as_deref())?;
    let outcome = match chosen(&root, args.id.as_deref()) {
        Ok(outcome) => outcome,
        Err(why) => return Err(UsageError(why)),
    };
    let how = How { dry_run: args.dry_run, ask: !args.yes, json: args.json };
    // Before any lock, which not everybody may take.
    if let Err(refusal) = not_simulated(&root, &outcome) {
        return Ok(ended(Err(refusal), args.json));
    }
    let write = || write_outcome(&root, &outcome, &args.line, how);
    let result = if args.dry_run { write() } else { watched(&root, What::Apply, Some(&outcome.id), write) };
    Ok(ended(result, args.json))
}

/// As the command line wants it.
#[derive(Clone, Copy, Debug)]
pub struct How {
    pub dry_run: bool,
    /// On a terminal, before anything is written.
    pub ask: bool,
    pub json: bool,
}

/// Tells what came of it.
pub fn ended(result: Result<Applied, Refusal>, json: bool) -> Exit {
    match result {
        Ok(applied) => {
            if json {
                print(&json::lines(&applied));
            }
            if let Some(reason) = &applied.reason {
                complain(&clean(reason));
            }
            Exit::Done
        }
        Err(Refusal { exit, why }) => {
            complain(&clean(&why));
            exit
        }
    }
}

/// The named outcome, or a file with one, or the last that has settings.
fn chosen(root: &Root, id: Option<&str>) -> Result<Outcome, String> {
    match id {
        Some(file) if file.contains('/') || Path::new(file).extension().is_some() => {
            let text = std::fs::read(file).map_err(|error| format!("cannot read {file}: {error}"))?;
            serde_json::from_slice(&text)
                .map_err(|error| format!("{file} is no outcome of `calibrate --json`: {error}"))
        }
        Some(id) => history::get(root, id).map_err(|error| error.to_string()),
        None => {
            let mut all = history::all(root).into_iter();
            all.find(|outcome| outcome.outcome == crate::calibration::outcome::Status::Tuned)
                .ok_or_else(|| "there is no outcome with settings yet: run `sqm-autotune calibrate`".into())
        }
    }
}

pub fn write_outcome(root: &Root, outcome: &Outcome, line: &LineArgs, how: How) -> Result<Applied, Refusal> {
    // Before the lock, which not everybody may take.
    not_simulated(root, outcome)?;
    let lock = held::lock(root)?;
    write_locked(root, &lock, outcome, line, how)
}

/// What would keep a write from happening, as far as it can be known before. A pending rollback will be over by then.
pub fn preflight(root: &Root) -> Result<(), Refusal> {
    Service::of(root).map_err(Refusal::refused)?;
    root.config(sqm::FILE).map_err(Refusal::refused)?;
    match write::obstacle(root).map_err(Refusal::failed)? {
        None | Some(WriteError::Rollback) => Ok(()),
        Some(obstacle) => Err(obstacle.into()),
    }
}

/// Tells the page that it goes on, and how it ended.
fn watched<T>(
    root: &Root,
    what: What,
    id: Option<&str>,
    work: impl FnOnce() -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    let job = Job::begin(root, what)?;
    let result = work();
    let (exit, reason) = match &result {
        Ok(_) => (Exit::Done, None),
        Err(refusal) => (refusal.exit, Some(refusal.why.as_str())),
    };
    job.end(exit, reason, id);
    result
}

/// What would be written, without the lock, the program `uci` or a word to anybody.
pub fn preview(root: &Root, outcome: &Outcome) -> Result<ChangeList, Refusal> {
    not_simulated(root, outcome)?;
    let config = root.config(sqm::FILE).map_err(|error| Refusal::refused(format!("{error}; nothing was changed")))?;
    let place = place(root, outcome, &Inventory::read(root))?;
    ChangeList::of(config.as_ref(), &place, outcome).map_err(Refusal::refused)
}

fn not_simulated(root: &Root, outcome: &Outcome) -> Result<(), Refusal> {
    if !(outcome.line.starts_with("sim:") && root.is_live()) {
        return Ok(());
    }
    let why = format!(
        "{} is a simulated line: its settings are not for this router (--root names another tree)",
        outcome.line
    );
    Err(Refusal::refused(why))
}

/// Shows, writes, verifies. Whatever goes wrong, the old state is back when this returns.
pub fn write_locked(
    root: &Root,
    _lock: &Lock,
    outcome: &Outcome,
    line: &LineArgs,
    how: How,
) -> Result<Applied, Refusal> {
    not_simulated(root, outcome)?;
    let service = Service::of(root).map_err(Refusal::refused)?;
    held::settle(root, service.as_ref())?;
    let config = root.config(sqm::FILE).map_err(|error| Refusal::refused(format!("{error}; nothing was changed")))?;
    let inventory = Inventory::read(root);
    let place = place(root, outcome, &inventory)?;
    let mut list = ChangeList::of(config.as_ref(), &place, outcome).map_err(Refusal::refused)?;
    if !how.dry_run && root.is_live() {
        write::wait_for_rollback(root, ROLLBACK_PATIENCE);
    }
    let edit = if list.is_empty() { None } else { Some(Edit::prepare(root, &list)?) };
    if edit.as_ref().is_some_and(Edit::loses_comments) {
        list.notes
            .push("uci writes the file anew and keeps no comments: those in it go (revert brings them back)".into());
    }
    let tell = |text: &str| if how.json { eprint(text) } else { print(text) };
    tell(&list.to_string());
    let id = outcome.id.clone();
    let Some(edit) = edit else { return Ok(Applied { list, id, written: false, reason: None }) };
    if how.dry_run {
        return Ok(Applied { list, id, written: false, reason: Some("nothing was written (--dry-run)".into()) });
    }
    doctor::unhindered(root, Some(&list.device), true)?;
    let question = "Write this? The line is loaded for some seconds to see whether it is better.";
    if how.ask && !question::agreed(|| Some(question.into())) {
        return Err(Refusal { exit: Exit::Stopped, why: "nothing was written".into() });
    }
    signals::catch();
    let wanted = Wanted::after(&list, config.as_ref()).ok_or_else(|| Refusal::failed("the queue would be off"))?;
    let router = LiveRouter { args: line };
    let eyes = service.as_ref().map(|_| &router as &dyn Eyes);
    // The measurement before, so that "worse" has something to be worse than.
    let before = eyes.map_or(Ok(None), |eyes| eyes.probe(&list.device)).map_err(Refusal::refused)?;
    eyes.map_or(Ok(()), go_on)?;
    let basis = basis(outcome, &inventory, &list.device);
    let write = apply::Write { id: id.clone(), at: Utc::now().rfc3339(), basis };
    let apply = Apply::begin(root, service.as_ref(), &list, edit, &write)?;
    kept_or_undone(apply, eyes, &list.device, &wanted, before)?;
    Ok(Applied { list, id, written: true, reason: None })
}

/// What is asked of a router that was written to. A directory has nobody to ask.
trait Eyes {
    fn stop_asked(&self) -> bool;
    fn live(&self, device: &str) -> Result<Live, LineError>;
    fn probe(&self, device: &str) -> Result<Option<Probe>, LineError>;
}

struct LiveRouter<'a> {
    args: &'a LineArgs,
}

impl Eyes for LiveRouter<'_> {
    fn stop_asked(&self) -> bool {
        signals::flag().load(Ordering::Relaxed)
    }

    fn live(&self, device: &str) -> Result<Live, LineError> {
        line::live(device)
    }

    fn probe(&self, device: &str) -> Result<Option<Probe>, LineError> {
        line::probe(self.args, device)
    }
}

fn kept_or_undone(
    apply: Apply,
    eyes: Option<&dyn Eyes>,
    device: &str,
    wanted: &Wanted,
    before: Option<Probe>,
) -> Result<(), Refusal> {
    let good = apply
        .carry_out()
        .map_err(Refusal::from)
        .and_then(|()| eyes.map_or(Ok(()), |eyes| verified(eyes, device, wanted, before)));
    match good {
        Ok(()) => Ok(apply.keep()?),
        Err(refusal) => {
            let said = apply.undo()?;
            Err(Refusal { why: format!("{}: {}", refusal.why, said.join(", ")), ..refusal })
        }
    }
}

/// What `check` compares with later.
fn basis(outcome: &Outcome, inventory: &Inventory, device: &str) -> Basis {
    let pick = Pick::Device(device.into());
    let link = inventory.link(Some(&pick)).ok();
    Basis {
        interface: link.as_ref().and_then(|link| link.interface.clone()),
        device: device.into(),
        link: link.map_or(Kind::Unknown, |link| link.kind),
        sync_upload_kbit: outcome.upload.sync_kbit,
        sync_download_kbit: outcome.download.sync_kbit,
        measured_s: Utc::parse(&outcome.started).map_or(0, Utc::seconds),
        bytes: outcome.cost.upload_bytes + outcome.cost.download_bytes,
    }
}

/// Where the queue belongs, and under which names it may be there already: that of a device that the line has left, too.
fn place(root: &Root, outcome: &Outcome, inventory: &Inventory) -> Result<Place, Refusal> {
    let simulated = outcome.line.starts_with("sim:");
    let mut place = Place::of_wan(&device(outcome, inventory, simulated), inventory.wans());
    let wan = inventory.wans().found.iter().find(|wan| wan.device.as_ref() == Some(&place.device));
    if let Some(interface) = wan.map(|wan| &wan.interface) {
        let before = apply::all(root)?.into_iter().map(|record| record.basis);
        let before = before.filter(|basis| basis.interface.as_ref() == Some(interface));
        place.aliases.extend(before.map(|basis| basis.device).filter(|device| *device != place.device));
    }
    Ok(place)
}

/// Where the line was measured. A simulated one takes the tree's first WAN.
fn device(outcome: &Outcome, inventory: &Inventory, simulated: bool) -> String {
    if !simulated {
        return outcome.line.clone();
    }
    let known = inventory.wans().found.first().and_then(|wan| wan.device.clone());
    let shown = || outcome.uci.as_ref()?.lines().find_map(|line| line.trim().strip_prefix("option interface "));
    known.or_else(|| shown().map(|name| name.trim_matches('\'').into())).unwrap_or_else(|| "wan".into())
}

/// The kernel does what was written, and the line is not worse for it. One bad measurement may have another reason: two
/// have not.
fn verified(eyes: &dyn Eyes, device: &str, wanted: &Wanted, before: Option<Probe>) -> Result<(), Refusal> {
    go_on(eyes)?;
    let read = || eyes.live(device).map_err(Refusal::failed);
    let differences = wanted.differences(&read()?);
    if !differences.is_empty() {
        return Err(Refusal::failed(format!("SQM has not done what was written ({})", differences.join("; "))));
    }
    let look = || {
        let verdict = live::verdict(before, eyes.probe(device).unwrap_or(None));
        go_on(eyes).map(|()| verdict)
    };
    if look()?.is_err() {
        look()?.map_err(|why| Refusal::failed(format!("the settings made the line worse ({why})")))?;
    }
    match wanted.unfed(&read()?).filter(|_| before.is_some()) {
        Some(unfed) => Err(Refusal::failed(unfed)),
        None => Ok(()),
    }
}

fn go_on(eyes: &dyn Eyes) -> Result<(), Refusal> {
    if eyes.stop_asked() { Err(Refusal { exit: Exit::Stopped, why: "stopped".into() }) } else { Ok(()) }
}

fn eprint(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

pub fn revert(args: &super::args::FactArgs) -> Result<Exit, UsageError> {
    let root = held::root(args.root.as_deref())?;
    let reverted = watched(&root, What::Revert, None, || {
        let _lock = held::lock(&root)?;
        let service = Service::of(&root).map_err(Refusal::refused)?;
        held::settle(&root, service.as_ref())?;
        apply::revert(&root, service.as_ref()).map_err(Refusal::from)
    });
    Ok(match reverted {
        Ok((record, said)) => {
            complain(&format!("undid the write of {} for {}: {}", record.at, record.device, said.join(", ")));
            Exit::Done
        }
        Err(Refusal { exit, why }) => {
            complain(&clean(&why));
            exit
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::openwrt::live::{Ingress, Queue};
    use crate::openwrt::uci::Config;
    use std::cell::{Cell, RefCell};
    use std::fs;

    const OLD: &str = "config queue\n\toption interface 'eth1'\n";
    const NEW: &str = "config queue\n\toption interface 'eth1'\n\toption enabled '1'\n\toption upload '17236'\n\toption download '0'\n";

    /// A router that answers as a list says, the last answer for ever.
    struct Scripted {
        /// When asked for a stop so many times.
        stop_in: Cell<u32>,
        live: RefCell<Vec<Result<Live, LineError>>>,
        probes: RefCell<Vec<Option<Probe>>>,
    }

    impl Eyes for Scripted {
        fn stop_asked(&self) -> bool {
            self.stop_in.set(self.stop_in.get().saturating_sub(1));
            self.stop_in.get() == 0
        }

        fn live(&self, _: &str) -> Result<Live, LineError> {
            let mut answers = self.live.borrow_mut();
            if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() }
        }

        fn probe(&self, _: &str) -> Result<Option<Probe>, LineError> {
            let mut answers = self.probes.borrow_mut();
            Ok(if answers.len() > 1 { answers.remove(0) } else { answers[0] })
        }
    }

    #[allow(clippy::unnecessary_wraps, reason = "one answer of several")]
    fn cake(kbit: u64, packets: u64) -> Result<Live, LineError> {
        let queue = Queue { kind: "cake".into(), kbit: Some(kbit), rtt_ms: 100.0, packets, ..Queue::default() };
        Ok(Live { egress: Some(queue), ingress: Ingress::Direct })
    }

    #[allow(clippy::unnecessary_wraps, reason = "one answer of several")]
    fn probe(added_p95_ms: f64, throughput_kbit: u64) -> Option<Probe> {
        Some(Probe { added_p95_ms, throughput_kbit })
    }

    /// Whether the new file stayed, and why not.
    fn ended(name: &str, live: Vec<Result<Live, LineError>>, probes: Vec<Option<Probe>>) -> Result<(), String> {
        let eyes = Scripted { stop_in: Cell::new(u32::MAX), live: RefCell::new(live), probes: RefCell::new(probes) };
        ended_under(name, &eyes)
    }

    fn ended_under(name: &str, eyes: &Scripted) -> Result<(), String> {
        let dir = std::env::temp_dir().join(format!("sqm-autotune-verify-{name}-{}", std::process::id()));
        fs::create_dir_all(dir.join("etc/config")).unwrap();
        fs::write(dir.join("etc/config/sqm"), OLD).unwrap();
        let root = Root::at(&dir).unwrap();
        let list = ChangeList {
            format: 1,
            device: "eth1".into(),
            section: "@queue[0]".into(),
            new: false,
            changes: Vec::new(),
            notes: Vec::new(),
        };
        let basis = Basis {
            interface: None,
            device: "eth1".into(),
            link: Kind::Unknown,
            sync_upload_kbit: None,
            sync_download_kbit: None,
            measured_s: 0,
            bytes: 0,
        };
        let edit = Edit { before: Some(OLD.into()), after: NEW.into() };
        let write = apply::Write { id: "1".into(), at: "now".into(), basis };
        let begun = Apply::begin(&root, None, &list, edit, &write).unwrap();
        let wanted = Wanted::of(&Config::parse(NEW.as_bytes()).unwrap().sections[0]).unwrap();
        let result = kept_or_undone(begun, Some(eyes), "eth1", &wanted, probe(167.0, 17_000));
        let now = fs::read_to_string(dir.join("etc/config/sqm")).unwrap();
        assert_eq!(now, if result.is_ok() { NEW } else { OLD }, "{result:?}");
        assert!(!dir.join("etc/sqm-autotune/begun.json").exists());
        fs::remove_dir_all(&dir).unwrap();
        result.map_err(|refusal| refusal.why)
    }

    #[test]
    fn what_is_as_written_and_better_stays() {
        assert_eq!(ended("good", vec![cake(17_236, 9)], vec![probe(2.0, 16_500)]), Ok(()));
        let second = vec![probe(300.0, 16_500), probe(2.0, 16_500)];
        assert_eq!(ended("second", vec![cake(17_236, 9)], second), Ok(()), "one bad measurement proves nothing");
    }

    #[test]
    fn a_stop_at_any_moment_is_undone() {
        for asked in 1..=2 {
            let (live, probes) = (RefCell::new(vec![cake(17_236, 9)]), RefCell::new(vec![probe(2.0, 16_500)]));
            let why = ended_under("stop", &Scripted { stop_in: Cell::new(asked), live, probes }).unwrap_err();
            assert_eq!(why, "stopped: /etc/config/sqm is as it was", "asked {asked} times");
        }
    }

    #[test]
    fn everything_else_is_undone_and_told() {
        let good = || vec![probe(2.0, 16_500)];
        let gone = Err(LineError::failed("list the devices", "no answer"));
        for (name, live, probes, needed) in [
            ("rate", vec![cake(15_000, 9)], good(), "SQM has not done what was written (upload: the rate is 15000"),
            ("none", vec![Ok(Live::default())], good(), "the device is gone"),
            ("error", vec![gone], good(), "no answer"),
            ("half", vec![cake(17_236, 9)], vec![probe(2.0, 8000)], "only 8000 kbit/s get through"),
            ("delay", vec![cake(17_236, 9)], vec![probe(300.0, 16_500)], "a load adds 300.0 ms"),
            ("lost", vec![cake(17_236, 9)], vec![None], "cannot be measured any more"),
            ("unfed", vec![cake(17_236, 0)], good(), "hardware offload"),
        ] {
            let why = ended(name, live, probes).unwrap_err();
            assert!(why.contains(needed) && why.ends_with("/etc/config/sqm is as it was"), "{name}: {why}");
        }
    }
}
