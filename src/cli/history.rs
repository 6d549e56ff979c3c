//! `history`: the last outcomes, in a line each, or one of them in full.

use super::args::{HistoryArgs, UsageError};
use super::exit::Exit;
use super::style::Style;
use super::words::{clean, grouped};
use super::{held, link, result};
use crate::calibration::outcome::{FORMAT, Grade, Outcome, Status};
use crate::openwrt::{Root, apply, history};
use serde::Serialize;

/// `history --json`: all without their trials. One outcome in full is `history ID --json`.
#[derive(Debug, Serialize)]
struct History {
    format: u32,
    outcomes: Vec<Entry>,
}

#[derive(Debug, Serialize)]
pub struct Entry {
    pub id: String,
    pub line: String,
    pub started: String,
    pub outcome: Status,
    pub reason: Option<String>,
    pub upload_kbit: Option<u64>,
    pub download_kbit: Option<u64>,
    pub grade_before: Option<Grade>,
    pub grade_after: Option<Grade>,
    /// It is what `/etc/config/sqm` was written from last.
    pub written: bool,
}

pub fn history(args: &HistoryArgs) -> Result<Exit, UsageError> {
    let root = held::root(args.root.as_deref())?;
    if let Some(id) = &args.id {
        let outcome = history::get(&root, id).map_err(|error| UsageError(clean(&error.to_string())))?;
        link::answer(&outcome, args.json, || result::evidence(&outcome, Style::of(&std::io::stdout())));
        return Ok(Exit::Done);
    }
    let history = History { format: FORMAT, outcomes: entries(&root) };
    link::answer(&history, args.json, || table(&history.outcomes));
    Ok(Exit::Done)
}

/// Newest first.
pub fn entries(root: &Root) -> Vec<Entry> {
    let written: Vec<String> = apply::all(root).unwrap_or_default().into_iter().map(|record| record.id).collect();
    history::all(root).iter().map(|outcome| Entry::of(outcome, &written)).collect()
}

impl Entry {
    fn of(outcome: &Outcome, written: &[String]) -> Self {
        Self {
            id: outcome.id.clone(),
            line: outcome.line.clone(),
            started: outcome.started.clone(),
            outcome: outcome.outcome,
            reason: outcome.reason.clone(),
            upload_kbit: outcome.upload.kbit,
            download_kbit: outcome.download.kbit,
            grade_before: outcome.latency.grade_before,
            grade_after: outcome.latency.grade_after,
            written: written.contains(&outcome.id),
        }
    }

    /// `tuned`, as the JSON has it.
    pub fn word(&self) -> String {
        serde_json::to_value(self.outcome).ok().and_then(|word| Some(word.as_str()?.to_owned())).unwrap_or_default()
    }
}

fn table(entries: &[Entry]) -> String {
    if entries.is_empty() {
        return "Nothing has been measured since the router started.\n".into();
    }
    let mut text = String::from("id                outcome         upload   download  grade   line\n");
    for entry in entries {
        let rate = |kbit: Option<u64>| kbit.map_or_else(|| "-".into(), grouped);
        let grade = |grade: Option<Grade>| grade.map_or_else(|| "-".into(), |grade| grade.to_string());
        let grades = format!("{}>{}", grade(entry.grade_before), grade(entry.grade_after));
        let mark = if entry.written { " (written)" } else { "" };
        let row = format!(
            "{:16}  {:12} {:>9} {:>10}  {grades:6}  {}{mark}\n",
            entry.id,
            entry.word(),
            rate(entry.upload_kbit),
            rate(entry.download_kbit),
            entry.line
        );
        text.push_str(&row);
    }
    text
}
