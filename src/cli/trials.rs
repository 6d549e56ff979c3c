//! The trials of a calibration, as a table and one by one.

use super::style::{Style, Tint};
use super::words::{bare_ms, grouped, kbit, ms};
use crate::calibration::outcome::{TrialRecord, VerdictWord};
use crate::line::Step;

const HEAD: [&str; 10] = ["#", "step", "limit", "flows", "packet", "through", "median", "p95", "added", "verdict"];
const UNITS: [&str; 10] = ["", "", "kbit/s", "", "bytes", "kbit/s", "ms", "ms", "ms", ""];
/// What the largest segment does not count (RFC 6691).
const IPV4_TCP_HEADERS: u32 = 40;
/// Left for words, right for numbers.
const LEFT: [bool; 10] = [false, true, false, false, false, false, false, false, false, true];

/// At most 80 columns wide.
pub fn table(trials: &[TrialRecord], style: Style) -> String {
    let rows: Vec<[String; 10]> = trials.iter().map(|trial| row(trial, style)).collect();
    let heads = [HEAD.map(String::from), UNITS.map(String::from)];
    let widths: [usize; 10] = std::array::from_fn(|column| {
        heads.iter().chain(&rows).map(|row| row[column].chars().count()).max().unwrap_or(0)
    });
    let mut text = String::new();
    for head in &heads {
        text.push_str(&style.paint(Tint::Dim, line(head, widths).trim_end()));
        text.push('\n');
    }
    for (trial, row) in trials.iter().zip(&rows) {
        let line = line(row, widths);
        let (left, verdict) = line.split_at(line.len() - widths[9]);
        let verdict = verdict.trim_end();
        let verdict = tint(trial.verdict).map_or_else(|| verdict.into(), |tint| style.paint(tint, verdict));
        text.push_str(format!("{left}{verdict}").trim_end());
        text.push('\n');
    }
    text
}

/// For a pipe: a finished trial in one plain line.
pub fn sentence(trial: &TrialRecord) -> String {
    let rate = trial.shaper_kbit.map_or_else(String::new, |rate| format!(" at {}", kbit(rate)));
    let mut parts = vec![format!("trial {}: {}{rate}", trial.n, name(trial.step))];
    if trial.direction.is_some() {
        parts.push(format!("{} through", kbit(trial.throughput_kbit)));
    }
    match (trial.added_ms, trial.probe_p95_ms) {
        (Some(added), _) => parts.push(format!("{} added", ms(added))),
        (None, Some(p95)) => parts.push(format!("p95 {}", ms(p95))),
        (None, None) => {}
    }
    if trial.verdict != VerdictWord::None {
        parts.push(word(trial.verdict).into());
    }
    parts.join(", ")
}

pub fn name(step: Step) -> &'static str {
    match step {
        Step::Baseline => "idle",
        Step::Unshaped => "unshaped",
        Step::Link => "overhead",
        Step::Confirm => "confirm",
        Step::Search => "search",
        Step::Target => "target",
        Step::Acks => "acks",
        Step::Verify => "verify",
    }
}

fn row(trial: &TrialRecord, style: Style) -> [String; 10] {
    let none = || style.glyph("–", "-").to_owned();
    let loaded = trial.direction.is_some();
    let delay = |value: Option<f64>| value.map_or_else(none, bare_ms);
    [
        trial.n.to_string(),
        name(trial.step).into(),
        trial.shaper_kbit.map_or_else(none, grouped),
        if loaded { trial.flows.to_string() } else { none() },
        trial.mss.map_or_else(none, |mss| (mss + IPV4_TCP_HEADERS).to_string()),
        if loaded { grouped(trial.throughput_kbit) } else { none() },
        delay(trial.probe_p50_ms),
        delay(trial.probe_p95_ms),
        delay(trial.added_ms),
        word(trial.verdict).into(),
    ]
}

fn line(row: &[String; 10], widths: [usize; 10]) -> String {
    let cells = row.iter().zip(widths).zip(LEFT);
    let cells: Vec<_> = cells
        .map(|((cell, width), left)| if left { format!("{cell:<width$}") } else { format!("{cell:>width$}") })
        .collect();
    format!(" {}", cells.join("  "))
}

fn word(verdict: VerdictWord) -> &'static str {
    match verdict {
        VerdictWord::None => "",
        VerdictWord::Clean => "clean",
        VerdictWord::Bloated => "bloated",
        VerdictWord::Inconclusive => "unclear",
    }
}

fn tint(verdict: VerdictWord) -> Option<Tint> {
    match verdict {
        VerdictWord::None => None,
        VerdictWord::Clean => Some(Tint::Good),
        VerdictWord::Bloated => Some(Tint::Bad),
        VerdictWord::Inconclusive => Some(Tint::Doubtful),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::sample;

    #[test]
    fn columns_line_up_and_missing_values_are_dashes() {
        let table = table(&sample::tuned().trials, Style::PLAIN);
        let golden = " #  step       limit  flows  packet  through  median   p95  added  verdict
              kbit/s          bytes   kbit/s      ms    ms     ms
 1  idle           -      -       -        -    12.9  14.0      -
 2  unshaped       -      4    1500   17,190     168   181    167  bloated
 3  overhead       -      4     576   16,840    97.0   107   93.0
 4  search    17,100      4    1500   16,552    13.5  15.8    1.8  clean
 5  search    17,720      4    1500   17,150    38.2  45.0   31.0  bloated
 6  search    17,410      4    1500   16,850    14.0  16.4    2.4  clean
 7  search    17,560      4    1500   16,990    17.7  23.1    9.1  unclear
 8  verify    17,236      4    1500   16,680    13.6  15.9    1.9  clean
";
        assert_eq!(table, golden);
    }

    #[test]
    fn a_gigabit_line_still_fits() {
        let mut trials = sample::tuned().trials;
        for trial in &mut trials {
            trial.n += 10;
            trial.shaper_kbit = trial.shaper_kbit.map(|kbit| kbit * 60);
            trial.throughput_kbit *= 60;
            trial.probe_p95_ms = Some(1234.5);
        }
        let table = table(&trials, Style::PLAIN);
        assert!(table.lines().all(|line| line.len() <= 80), "{table}");
    }

    #[test]
    fn one_trial_is_one_sentence() {
        let trials = sample::tuned().trials;
        assert_eq!(sentence(&trials[0]), "trial 1: idle, p95 14.0 ms");
        assert_eq!(
            sentence(trials.last().unwrap()),
            "trial 8: verify at 17,236 kbit/s, 16,680 kbit/s through, 1.9 ms added, clean"
        );
    }
}
