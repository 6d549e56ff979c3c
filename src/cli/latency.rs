//! Before and after, as numbers and bars.

use super::style::{Style, Tint};
use super::words::bare_ms;
use crate::calibration::outcome::{Grade, Latency, Quantiles};

const BAR: usize = 35;

struct Row {
    label: &'static str,
    quantiles: Quantiles,
    grade: Option<Grade>,
}

/// Empty where nothing was measured.
pub fn before_and_after(latency: &Latency, style: Style) -> String {
    chart(&rows(latency, "busy, before", true), style)
}

/// Without an "after".
pub fn as_it_is(latency: &Latency, style: Style) -> String {
    chart(&rows(latency, "busy", false), style)
}

fn rows(latency: &Latency, busy: &'static str, after: bool) -> Vec<Row> {
    let idle = latency.idle.map(|quantiles| Row { label: "idle", quantiles, grade: None });
    let before = latency.unshaped.map(|quantiles| Row { label: busy, quantiles, grade: latency.grade_before });
    let tuned = latency.tuned.filter(|_| after);
    let after = tuned.map(|quantiles| Row { label: "busy, after", quantiles, grade: latency.grade_after });
    let both = latency.both.map(|quantiles| Row { label: "busy both ways", quantiles, grade: latency.grade_both });
    idle.into_iter().chain(before).chain(after).chain(both).collect()
}

fn chart(rows: &[Row], style: Style) -> String {
    let Some(most) = rows.iter().map(|row| row.quantiles.p95).reduce(f64::max) else {
        return String::new();
    };
    let mut text = style.paint(Tint::Dim, &format!("  {:<14}{:>8}{:>8}", "delay, ms", "median", "p95"));
    text.push('\n');
    for row in rows {
        let numbers =
            format!("  {:<14}{:>8}{:>8}  ", row.label, bare_ms(row.quantiles.p50), bare_ms(row.quantiles.p95));
        text.push_str(&numbers);
        text.push_str(&bar(row.quantiles.p95 / most, row.grade, style));
        if let Some(grade) = row.grade {
            text.push_str(&style.paint(tint(grade), &format!(" {grade}")));
        }
        text.push('\n');
    }
    let legend = "  Grades by added delay: A+ below 5 ms, A 30, B 60, C 200, D 400, F above.";
    text.push_str(&style.paint(Tint::Dim, legend));
    text.push_str("\n\n");
    text
}

fn bar(share: f64, grade: Option<Grade>, style: Style) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (share.clamp(0.0, 1.0) * (BAR * 8) as f64).round().max(1.0) as usize;
    let bar =
        if style.utf8 { "█".repeat(eighths / 8) + EIGHTHS[eighths % 8] } else { "#".repeat(eighths.div_ceil(8)) };
    style.paint(grade.map_or(Tint::Dim, tint), &bar)
}

fn tint(grade: Grade) -> Tint {
    match grade {
        Grade::APlus | Grade::A => Tint::Good,
        Grade::B | Grade::C => Tint::Doubtful,
        Grade::D | Grade::F => Tint::Bad,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::sample;

    #[test]
    fn bars_are_as_long_as_the_delay() {
        let chart = before_and_after(&sample::tuned().latency, Style::PLAIN);
        let golden = "  delay, ms       median     p95
  idle              12.9    14.0  ###
  busy, before       168     181  ################################### C
  busy, after       13.6    15.9  #### A+
  Grades by added delay: A+ below 5 ms, A 30, B 60, C 200, D 400, F above.

";
        assert_eq!(chart, golden);
    }

    #[test]
    fn what_was_not_measured_is_not_drawn() {
        assert_eq!(before_and_after(&Latency::default(), Style::PLAIN), "");
        let as_it_is = as_it_is(&sample::tuned().latency, Style::PLAIN);
        assert!(as_it_is.contains("busy  ") && !as_it_is.contains("after"), "{as_it_is}");
    }
}
