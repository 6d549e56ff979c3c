//! The result on the terminal: what was found, what it rests on, what it would change.
//!
//! Pure: an outcome and a style go in, text comes out. Never wider than 80 columns.

use super::latency;
use super::plot::{self, Lines, Mark, Point};
use super::style::{Style, Tint};
use super::trials;
use super::words::{kbit, labelled, megabytes, ms, seconds, wrapped};
use crate::calibration::outcome::{Doubt, Layer, LinkSource, Outcome, Status, TargetSource, VerdictWord};
use crate::line::{LineError, Step};
use crate::units::Direction;

const WIDTH: usize = 80;
const LABEL: usize = 12;
const KEEP_DOWNLOAD: &str =
    "The download was not tuned. The 0 below leaves it unshaped; if you shape it today, keep your number.";

/// After `calibrate`.
pub fn calibration(outcome: &Outcome, style: Style) -> String {
    let mut text = evidence(outcome, style);
    if let Some(uci) = &outcome.uci {
        text.push_str(&heading("For /etc/config/sqm (shown only, nothing was written)", style));
        if outcome.download.kbit.is_none() {
            text.push_str(&paragraph(KEEP_DOWNLOAD, None, style));
        }
        text.push_str(uci);
    }
    text
}

/// The same without the section, where the changes themselves are shown next.
pub fn evidence(outcome: &Outcome, style: Style) -> String {
    let mut text = String::new();
    if !outcome.trials.is_empty() {
        text.push_str(&heading("Trials", style));
        text.push_str(&trials::table(&outcome.trials, style));
        text.push('\n');
    }
    text.push_str(&heading("Result", style));
    text.push_str(&paragraph(&verdict(outcome), Some(tint(outcome.outcome)), style));
    if let Some(meaning) = meaning(outcome) {
        text.push_str(&paragraph(&meaning, None, style));
    }
    text.push_str(&latency::before_and_after(&outcome.latency, style));
    text.push_str(&drawing(outcome, style));
    text.push_str(&choices(outcome, style));
    text.push_str(&doubts(outcome, style));
    text.push_str(&cost(outcome, style));
    text
}

/// After `measure`.
pub fn grading(outcome: &Outcome, style: Style) -> String {
    let mut text = heading("Result", style);
    let latency = &outcome.latency;
    let words = match (latency.grade_before, added(outcome, Direction::Upload, Step::Unshaped), outcome.outcome) {
        (_, _, Status::Failed | Status::Refused) | (None, ..) => verdict(outcome),
        (Some(grade), Some(added), _) => {
            format!("Grade {grade}: while the upload is busy, everything else waits {} longer.", ms(added))
        }
        (Some(grade), None, _) => format!("Grade {grade}."),
    };
    text.push_str(&paragraph(&words, Some(Tint::Bold), style));
    text.push_str(&latency::as_it_is(latency, style));
    if !outcome.trials.is_empty() {
        text.push_str(&heading("Trials", style));
        text.push_str(&trials::table(&outcome.trials, style));
        text.push('\n');
    }
    text.push_str(&doubts(outcome, style));
    text.push_str(&cost(outcome, style));
    text
}

/// One sentence that somebody who reads nothing else should read.
pub fn verdict(outcome: &Outcome) -> String {
    let reason = outcome.reason.as_deref().unwrap_or("no reason was given");
    match (outcome.outcome, outcome.upload.kbit) {
        (Status::Tuned, upload) => {
            let ways = [
                setting("upload", upload, outcome.upload.sync_kbit),
                setting("download", outcome.download.kbit, outcome.download.sync_kbit),
            ];
            ways.into_iter().flatten().collect::<Vec<_>>().join(" ")
        }
        (Status::Graded, _) => "Measured as asked; no rate was looked for.".into(),
        (Status::Unneeded, _) => format!("Nothing to tune: {reason}"),
        (Status::Inconclusive, _) => format!("No settings, since the measurements cannot be relied on: {reason}"),
        (Status::Failed, _) if reason == LineError::Stopped.to_string() => "Stopped before there was a result.".into(),
        (Status::Failed, _) => format!("Broke off: {reason}"),
        (Status::Refused, _) => format!("Not started: {reason}"),
    }
}

fn setting(way: &str, rate: Option<u64>, sync: Option<u64>) -> Option<String> {
    let share = |rate: u64| {
        sync.filter(|sync| *sync > 0).map_or_else(String::new, |sync| {
            format!(", {:.0} % of what the modem reports", rate as f64 / sync as f64 * 100.0)
        })
    };
    Some(match rate? {
        0 => format!("Leave the {way} unshaped."),
        rate => format!("Set the {way} to {}{}.", kbit(rate), share(rate)),
    })
}

fn tint(status: Status) -> Tint {
    match status {
        Status::Tuned | Status::Unneeded | Status::Graded => Tint::Good,
        Status::Inconclusive => Tint::Doubtful,
        Status::Failed | Status::Refused => Tint::Bad,
    }
}

/// What the numbers mean to somebody who has never heard of CAKE.
pub fn meaning(outcome: &Outcome) -> Option<String> {
    let way = if outcome.upload.kbit.is_some_and(|kbit| kbit > 0) { Direction::Upload } else { Direction::Download };
    let after = added(outcome, way, Step::Verify).filter(|_| outcome.outcome == Status::Tuned)?;
    let before = added(outcome, way, Step::Unshaped)?;
    let how = match way {
        Direction::Upload => {
            "The router sends a little less than the line can carry, so that packets queue in the \
                              router, where CAKE lets the urgent ones pass, and not in the modem."
        }
        Direction::Download => {
            "The router takes in a little less than the line can carry, so that the senders slow \
                                down before packets queue at the provider."
        }
    };
    Some(format!(
        "A busy {way} makes everything else (calls, games, web pages) wait {} longer now; with this setting {}. {how}",
        ms(before),
        ms(after.max(0.0)),
    ))
}

/// The added delay of the last trial of a step, with this direction alone if there is such a one.
fn added(outcome: &Outcome, way: Direction, step: Step) -> Option<f64> {
    let of_it = || outcome.trials.iter().rev().filter(|trial| trial.step == step && trial.direction == Some(way));
    of_it().find(|trial| !trial.both).or_else(|| of_it().next()).and_then(|trial| trial.added_ms)
}

fn drawing(outcome: &Outcome, style: Style) -> String {
    let points: Vec<Point> = outcome
        .trials
        .iter()
        .filter(|trial| trial.direction == Some(Direction::Upload) && !trial.both)
        .filter(|trial| matches!(trial.step, Step::Unshaped | Step::Search | Step::Verify))
        .filter_map(|trial| {
            let mark = match trial.verdict {
                VerdictWord::Clean => Mark::Clean,
                VerdictWord::Bloated => Mark::Bloated,
                VerdictWord::Inconclusive => Mark::Inconclusive,
                VerdictWord::None => return None,
            };
            Some(Point { kbit: trial.shaper_kbit, added_ms: trial.added_ms?, mark })
        })
        .collect();
    let lines = Lines {
        clean_below_ms: outcome.upload.clean_below_ms,
        chosen_kbit: outcome.upload.kbit.filter(|kbit| *kbit > 0),
    };
    let drawn = plot::draw(&points, lines, style);
    if drawn.is_empty() {
        return drawn;
    }
    let key = format!(
        "{:9}{} clean   {} bloated   ? cannot tell",
        "",
        style.paint(Tint::Good, style.glyph("●", "o")),
        style.paint(Tint::Bad, style.glyph("✗", "x")),
    );
    let title = heading("Upload: the delay that each rate adds (ms against kbit/s)", style);
    format!("{title}{drawn}{key}\n\n")
}

fn choices(outcome: &Outcome, style: Style) -> String {
    listed("Why", &reasons(outcome), style)
}

/// One sentence for each number that was chosen.
pub fn reasons(outcome: &Outcome) -> Vec<(&'static str, String)> {
    let mut rows: Vec<(&str, String)> = Vec::new();
    if !matches!(outcome.outcome, Status::Tuned | Status::Graded) {
        return rows;
    }
    if !outcome.upload.why.is_empty() {
        rows.push(("upload", outcome.upload.why.clone()));
    }
    rows.push(("overhead", overhead(outcome)));
    if outcome.target.decided_by != TargetSource::Skipped || !outcome.target.why.is_empty() {
        let target = outcome.target.target_ms.map_or_else(String::new, |target| format!("{}: ", ms(target)));
        rows.push(("target", target + &outcome.target.why));
    }
    if let Some(filter) = outcome.ack_filter.as_ref().filter(|filter| filter.recommended) {
        rows.push(("ack-filter", filter.why.clone()));
    }
    if !outcome.download.why.is_empty() {
        rows.push(("download", outcome.download.why.clone()));
    }
    rows
}

fn overhead(outcome: &Outcome) -> String {
    let link = &outcome.link;
    let cells = match link.layer {
        Layer::Atm => ", in ATM cells",
        Layer::Ptm | Layer::Ethernet | Layer::Unknown => "",
    };
    let source = match (link.source, link.overhead, link.overhead_low, link.overhead_high) {
        (LinkSource::Measured, Some(best), Some(low), Some(high)) => {
            format!("each packet was measured to cost {best} bytes more than its size ({low} to {high}){cells}; ")
        }
        (LinkSource::Measured, ..) => format!("measured{cells}; "),
        (LinkSource::LinkType, ..) => format!("taken from the kind of link{cells}; "),
        (LinkSource::User, ..) => format!("as you said{cells}; "),
        (LinkSource::Default, ..) => "not measured, a safe default; ".into(),
    };
    let layer = if link.write_layer == Layer::Atm { "atm " } else { "" };
    let mpu = if link.write_mpu > 0 { format!(" mpu {}", link.write_mpu) } else { String::new() };
    format!("{source}CAKE is told {layer}overhead {}{mpu}.", link.write_overhead)
}

/// The doubt that decided has been shown as the verdict.
pub fn others(outcome: &Outcome) -> impl Iterator<Item = &Doubt> {
    outcome.doubts.iter().filter(|doubt| outcome.reason.as_ref() != Some(&doubt.text))
}

fn doubts(outcome: &Outcome, style: Style) -> String {
    let others = others(outcome);
    let rows: Vec<_> = others.map(|doubt| (doubt.code.as_str(), doubt.text.clone())).collect();
    listed("Doubts", &rows, style)
}

fn cost(outcome: &Outcome, style: Style) -> String {
    let cost = &outcome.cost;
    if outcome.trials.is_empty() && cost.upload_bytes + cost.download_bytes == 0 {
        return String::new();
    }
    heading("Cost", style) + &paragraph(&spent(outcome), None, style)
}

pub fn spent(outcome: &Outcome) -> String {
    let cost = &outcome.cost;
    format!(
        "{}, {} of it under load; {} up and {} down.",
        seconds(cost.seconds),
        seconds(cost.load_seconds),
        megabytes(cost.upload_bytes),
        megabytes(cost.download_bytes),
    )
}

fn listed(title: &str, rows: &[(&str, String)], style: Style) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let widest = rows.iter().map(|(label, _)| label.len() + 4).max().unwrap_or(0).max(LABEL);
    let mut text = heading(title, style);
    for (label, words) in rows {
        text.push_str(&labelled(&format!("  {label}"), widest, words, WIDTH));
    }
    text.push('\n');
    text
}

fn heading(title: &str, style: Style) -> String {
    format!("{}\n\n", style.paint(Tint::Bold, title))
}

fn paragraph(words: &str, tint: Option<Tint>, style: Style) -> String {
    let mut text = String::new();
    for line in wrapped(words, WIDTH - 2) {
        let line = tint.map_or_else(|| line.clone(), |tint| style.paint(tint, &line));
        text.push_str("  ");
        text.push_str(&line);
        text.push('\n');
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::sample;

    const UTF8: Style = Style { colour: false, utf8: true };

    #[test]
    fn everything_of_a_tuned_outcome_is_shown() {
        let shown = calibration(&sample::tuned(), UTF8);
        for needed in [
            "Set the upload to 17,236 kbit/s, 96 % of what the modem reports.",
            "wait 167 ms\n  longer now; with this setting 1.9 ms",
            "A+",
            "chosen: 17,236",
            "overhead 38 mpu 84",
            "5.0 ms: ",
            "line-busy",
            "1 min 1 s, 41 s of it under load; 85 MB up and 0.2 MB down.",
            "config queue",
        ] {
            assert!(shown.contains(needed), "{needed:?} is missing in\n{shown}");
        }
    }

    #[test]
    fn no_view_is_too_wide_or_shows_what_it_should_not() {
        let mut hostile = sample::tuned();
        hostile.doubts[0].text = format!("\x1b]0;gotcha\x07 {}", "very long words ".repeat(20));
        for outcome in [sample::tuned(), sample::unneeded(), sample::refused(), hostile] {
            for view in [calibration, grading] {
                let ascii = view(&outcome, Style::PLAIN);
                assert!(ascii.is_ascii(), "{ascii}");
                assert!(!ascii.contains('\x1b') && !ascii.contains('\x07'), "{ascii}");
                for line in ascii.lines().chain(view(&outcome, UTF8).lines()) {
                    assert!(line.chars().count() <= 80, "{line}");
                }
                let colourful = view(&outcome, Style { colour: true, utf8: false });
                assert_eq!(without_codes(&colourful), ascii);
            }
        }
    }

    #[test]
    fn an_outcome_without_settings_says_why() {
        assert!(
            calibration(&sample::unneeded(), UTF8).contains("Nothing to tune: the unshaped upload adds only 2.1 ms")
        );
        let refused = calibration(&sample::refused(), UTF8);
        assert!(refused.contains("Not started: CAKE is not installed. Install kmod-sched-cake"), "{refused}");
        assert!(
            !refused.contains("Trials") && !refused.contains("Cost") && !refused.contains("config queue"),
            "{refused}"
        );
        let mut stopped = sample::tuned();
        stopped.outcome = Status::Failed;
        stopped.reason = Some(LineError::Stopped.to_string());
        assert!(calibration(&stopped, UTF8).contains("Stopped before there was a result."));
    }

    #[test]
    fn a_grading_shows_the_line_as_it_is() {
        let shown = grading(&sample::tuned(), UTF8);
        assert!(shown.contains("Grade C: while the upload is busy, everything else waits 167 ms longer."), "{shown}");
        assert!(!shown.contains("after"), "{shown}");
    }

    fn without_codes(text: &str) -> String {
        let mut plain = String::new();
        let mut parts = text.split("\x1b[");
        plain.push_str(parts.next().unwrap_or_default());
        for part in parts {
            plain.push_str(part.split_once('m').expect("a colour code").1);
        }
        plain
    }
}
