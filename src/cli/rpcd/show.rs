//! What the page shows, ready to be shown: it works nothing out.

use super::Wrong;
use crate::calibration::Plan;
use crate::calibration::forecast::Forecast;
use crate::calibration::outcome::{FORMAT, Grade, Outcome, Quantiles, Status};
use crate::cli::args::RpcdArgs;
use crate::cli::clock::Utc;
use crate::cli::drawing::{self, Drawing};
use crate::cli::job::{End, Phase, State, What};
use crate::cli::watch::{Now, Seen, Stage, Tried};
use crate::cli::words::{grouped, megabytes, ms, seconds};
use crate::cli::{apply as writing, held, line, link, result, signals};
use crate::line::{Facts, LineError, LinkType};
use crate::openwrt::sqm::{self, ChangeList, Place};
use crate::openwrt::{Inventory, Root, apply, history};
use crate::units::{Direction, Rate};
use serde::Serialize;
use std::fmt::Write;

const FELT: &str = "others on the line will notice";
const POLL_RUNNING_S: u32 = 1;
const POLL_IDLE_S: u32 = 30;

/// `status`: from the job's file and nothing else.
#[derive(Debug, Serialize)]
pub struct Glance {
    format: u32,
    agent: &'static str,
    at: String,
    /// `idle`, `running`, `ended` or `interrupted`.
    state: &'static str,
    poll_s: u32,
    job: Option<JobShown>,
}

#[derive(Debug, Serialize)]
struct JobShown {
    what: What,
    began: String,
    at: String,
    line: Option<String>,
    server: Option<String>,
    stages: Vec<Stage>,
    now: Option<Now>,
    now_words: Vec<String>,
    left: Option<String>,
    notes: Vec<String>,
    over_time: Option<Drawing>,
    upload: Option<Drawing>,
    download: Option<Drawing>,
    end: Option<End>,
}

pub fn status(root: &Root) -> Glance {
    let job = State::read(root);
    let (state, poll_s) = match job.as_ref().map(State::phase) {
        None => ("idle", POLL_IDLE_S),
        Some(Phase::Running) => ("running", POLL_RUNNING_S),
        Some(Phase::Ended) => ("ended", POLL_IDLE_S),
        Some(Phase::Interrupted) => ("interrupted", POLL_IDLE_S),
    };
    let agent = env!("CARGO_PKG_VERSION");
    Glance { format: FORMAT, agent, at: Utc::now().rfc3339(), state, poll_s, job: job.map(JobShown::of) }
}

impl JobShown {
    fn of(state: State) -> Self {
        let State { what, began, at, seen, end, .. } = state;
        let Seen { line, server, stages, now, delays, points, notes, left_s } = seen;
        let now_words = now.as_ref().map(|now| {
            let delay = now.added_ms.map(|added| format!("{} added", ms(added)));
            let through = (now.throughput_kbit > 0).then(|| format!("{} kbit/s through", grouped(now.throughput_kbit)));
            [Some(now.words.clone()), delay, through].into_iter().flatten().collect()
        });
        let (upload, download): (Vec<_>, Vec<_>) =
            points.into_iter().partition(|point| point.direction == Direction::Upload);
        Self {
            what,
            began,
            at,
            line,
            server,
            stages,
            now,
            now_words: now_words.unwrap_or_default(),
            left: left_s.map(|left| seconds(left as f64)),
            notes,
            over_time: drawing::over_time(&delays),
            upload: drawing::against_rate(&upload, None, None),
            download: drawing::against_rate(&download, None, None),
            end,
        }
    }
}

/// `outcome`: the line in one sentence, what a calibration costs, and one outcome in full.
#[derive(Debug, Serialize)]
pub struct OutcomeShown {
    format: u32,
    line: String,
    /// When what SQM has now was written or measured, RFC 3339, UTC.
    tuned: Option<String>,
    cost: String,
    problems: Vec<String>,
    outcome: Option<Shown>,
    revert: Option<String>,
}

#[derive(Debug, Serialize)]
struct Shown {
    id: String,
    line: String,
    started: String,
    outcome: Status,
    verdict: String,
    meaning: Option<String>,
    spent: String,
    grade_before: Option<Grade>,
    grade_after: Option<Grade>,
    rows: Vec<Row>,
    reasons: Vec<Labelled>,
    doubts: Vec<Doubted>,
    before_and_after: Option<Drawing>,
    upload: Option<Drawing>,
    download: Option<Drawing>,
    /// What `apply` would change; `None` where there is nothing to write or it cannot be.
    changes: Option<ChangeList>,
    /// Why it cannot.
    obstacle: Option<String>,
    /// It is what SQM has now.
    written: bool,
}

#[derive(Debug, Serialize)]
struct Row {
    name: &'static str,
    before: String,
    after: String,
}

#[derive(Debug, Serialize)]
struct Labelled {
    name: &'static str,
    text: String,
}

#[derive(Debug, Serialize)]
struct Doubted {
    code: String,
    text: String,
    todo: &'static str,
}

pub fn outcome(root: &Root, args: &RpcdArgs, id: Option<&str>) -> Result<OutcomeShown, Wrong> {
    let outcome = match id.filter(|id| !id.is_empty()) {
        Some(id) => Some(history::get(root, id).map_err(|error| Wrong::new("unknown", error))?),
        // One that was stopped or never started says nothing and hides what was known before.
        None => {
            history::all(root).into_iter().find(|outcome| outcome.outcome != Status::Refused && !is_stopped(outcome))
        }
    };
    let inventory = Inventory::read(root);
    let records = apply::all(root);
    let mut problems: Vec<String> = records.as_ref().err().map(ToString::to_string).into_iter().collect();
    problems.extend(held::general(root).err().map(|error| error.to_string()));
    let records = records.unwrap_or_default();
    let last = records.first().filter(|record| record.is_in_place(root));
    let written = last.map(|record| record.id.as_str());
    let tuned = last.and_then(|record| history::get(root, &record.id).ok());
    Ok(OutcomeShown {
        format: FORMAT,
        line: sentence(root, &inventory, tuned.as_ref().and_then(|outcome| outcome.latency.grade_after)),
        tuned: last.map(|record| tuned.map_or_else(|| record.at.clone(), |outcome| outcome.started)),
        cost: cost(args, &inventory),
        problems,
        revert: last.map(|record| format!("{}, {}", record.at, record.device)),
        outcome: outcome.map(|outcome| Shown::of(root, &outcome, written)),
    })
}

fn is_stopped(outcome: &Outcome) -> bool {
    outcome.outcome == Status::Failed && outcome.reason == Some(LineError::Stopped.to_string())
}

impl Shown {
    fn of(root: &Root, outcome: &Outcome, written: Option<&str>) -> Self {
        let written = written == Some(outcome.id.as_str());
        let preview = (outcome.outcome == Status::Tuned).then(|| writing::preview(root, outcome));
        let (changes, obstacle) = match preview {
            None => (None, None),
            Some(Ok(list)) => (Some(list).filter(|list| !list.is_empty()), None),
            Some(Err(refusal)) => (None, Some(refusal.why)),
        };
        let tried = |way| -> Vec<Tried> {
            outcome.trials.iter().filter_map(Tried::of).filter(|tried| tried.direction == way).collect()
        };
        let draw = |way, shaped: &crate::calibration::outcome::Shaped| {
            // One trial without a limit is no drawing.
            let tried = Some(tried(way)).filter(|tried| tried.iter().any(|trial| trial.kbit.is_some()))?;
            drawing::against_rate(&tried, shaped.clean_below_ms, shaped.kbit)
        };
        let doubts = result::others(outcome).map(|doubt| Doubted {
            code: doubt.code.clone(),
            text: doubt.text.clone(),
            todo: todo(&doubt.code),
        });
        Self {
            id: outcome.id.clone(),
            line: outcome.line.clone(),
            started: outcome.started.clone(),
            outcome: outcome.outcome,
            verdict: result::verdict(outcome),
            meaning: result::meaning(outcome),
            spent: result::spent(outcome),
            grade_before: outcome.latency.grade_before,
            grade_after: outcome.latency.grade_after,
            rows: rows(outcome),
            reasons: result::reasons(outcome).into_iter().map(|(name, text)| Labelled { name, text }).collect(),
            doubts: doubts.collect(),
            before_and_after: drawing::before_and_after(&outcome.latency),
            upload: draw(Direction::Upload, &outcome.upload),
            download: draw(Direction::Download, &outcome.download),
            changes,
            obstacle,
            written,
        }
    }
}

fn rows(outcome: &Outcome) -> Vec<Row> {
    let none = || "–".to_owned();
    let delay =
        |found: Option<Quantiles>| found.map_or_else(none, |found| format!("{} / {}", ms(found.p50), ms(found.p95)));
    let through = |way, step| {
        let of_it = |trial: &&crate::calibration::outcome::TrialRecord| {
            trial.step == step && trial.direction == Some(way) && !trial.both
        };
        let trial = outcome.trials.iter().rev().find(of_it);
        trial.map_or_else(none, |trial| format!("{} kbit/s", grouped(trial.throughput_kbit)))
    };
    let row = |name, before, after| Row { name, before, after };
    let (before, after) = (crate::line::Step::Unshaped, crate::line::Step::Verify);
    let grade = |grade: Option<Grade>| grade.map_or_else(none, |grade| grade.to_string());
    vec![
        row("grade", grade(outcome.latency.grade_before), grade(outcome.latency.grade_after)),
        row("delay", delay(outcome.latency.unshaped), delay(outcome.latency.tuned)),
        row("upload", through(Direction::Upload, before), through(Direction::Upload, after)),
        row("download", through(Direction::Download, before), through(Direction::Download, after)),
    ]
}

/// What a person can do about a doubt.
fn todo(code: &str) -> &'static str {
    match code {
        "line-busy" | "disturbed" => "Calibrate again when nobody else uses the line.",
        "cpu-bound" => "The router itself is the limit: lower rates or a faster router.",
        "load-limited" | "local-load" => "Name a nearer or faster server in the settings.",
        "reflectors" | "icmp" => "Name other reflectors in the settings.",
        "data-cap" => "Allow more megabytes to get the whole answer.",
        "sync-mismatch" => "Look at the rates the modem itself shows.",
        "variable" | "burst" => "Calibrate again at another time of day and compare.",
        "overhead-unconfirmed" | "unverified" => "Calibrate again; nothing is wrong with what was found.",
        _ => "Nothing has to be done; keep it in mind.",
    }
}

/// Device, link, sync, what shapes it, its grade.
fn sentence(root: &Root, inventory: &Inventory, grade: Option<Grade>) -> String {
    let Some(wan) = inventory.wans().found.first() else { return "This router has no WAN that is known.".into() };
    let device = wan.device.as_deref().unwrap_or(&wan.interface);
    let mut text = device.to_owned();
    if let Ok(found) = inventory.link(None) {
        let _ = write!(text, " ({})", link::kind(found.kind));
    }
    if let Some((up, down)) = inventory.sync(None).ok().and_then(|sync| Some((sync.upload_kbit?, sync.download_kbit?)))
    {
        let _ = write!(text, " syncs at {} kbit/s up and {} down", grouped(up), grouped(down));
    } else {
        text += ": the modem's rates are not known";
    }
    let Ok(config) = root.config(sqm::FILE) else { return text + ". What shapes it cannot be read." };
    let place = Place::of_wan(device, inventory.wans());
    let queue = config.as_ref().and_then(|config| sqm::find(config, &place)).filter(|(_, queue)| sqm::is_on(queue));
    let rate = |text: Option<&str>| match text.and_then(|text| text.parse().ok()) {
        None => "not known".to_owned(),
        Some(0) => "unshaped".into(),
        Some(kbit) => grouped(kbit),
    };
    text += &queue.map_or_else(
        || ". Nothing shapes it".to_owned(),
        |(_, queue)| format!(". SQM shapes it: {} up, {} down", rate(queue.get("upload")), rate(queue.get("download"))),
    );
    if let Some(grade) = grade {
        let _ = write!(text, ", grade {grade}");
    }
    text + "."
}

/// Before it begins, by the rates that are known.
fn cost(args: &RpcdArgs, inventory: &Inventory) -> String {
    let forecast = facts(args, inventory).and_then(|facts| Forecast::of(&Plan::default(), &facts));
    match forecast {
        Some(forecast) => {
            format!("About {} and {}: {FELT}.", seconds(forecast.load.as_secs_f64()), megabytes(forecast.bytes()))
        }
        None => format!("About a minute, and as much as the line carries in it: {FELT}."),
    }
}

fn facts(args: &RpcdArgs, inventory: &Inventory) -> Option<Facts> {
    if args.named.line.is_some() && !line::is_real(&args.named) {
        return line::open(&args.named, signals::flag()).ok()?.line().facts().ok();
    }
    let sync = inventory.sync(None).ok()?;
    Some(Facts {
        name: String::new(),
        link: LinkType::Unknown,
        sync_up: sync.upload_kbit.map(Rate::from_kbit),
        sync_down: sync.download_kbit.map(Rate::from_kbit),
        mtu: 1500,
        reflectors: Vec::new(),
        witness: None,
        server: String::new(),
        caveats: Vec::new(),
    })
}
