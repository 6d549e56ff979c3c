//! One table over all lines, compared with the one that is checked in, so that every change of what the product
//! recommends or costs is seen in review. `UPDATE_GOLDEN=1 cargo test --test calibration golden` writes it anew.

use super::download::top;
use super::{SEEDS, fits, median, megabytes, outcomes};
use sqm_autotune::calibration::outcome::{Grade, LinkSource, Outcome, Status};
use sqm_autotune::line::Cells;
use sqm_autotune::sim::Scenario;
use std::fmt::Write;
use std::path::Path;

const HEAD: &str = concat!(
    "                 truth                upload               download             overhead          target  grades     cost, median\n",
    "line             kbit/s up   bytes    kbit/s  % of fits    kbit/s  % of top    found    written  ms      before/up/both  trials  load s    MB  outcomes\n",
);

#[test]
fn golden_table() {
    let mut table = format!(
        "{SEEDS} seeds of each simulated line, as `calibrate` does it unasked; medians, least to greatest\n\n{HEAD}"
    );
    for (name, _) in Scenario::builtin_names() {
        let scenario = super::scenario(&name);
        row(&mut table, &scenario, &outcomes(&name));
    }
    println!("{table}");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/calibration/golden.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &table).expect("golden.txt can be written");
    }
    let golden = std::fs::read_to_string(&path).expect("golden.txt is checked in");
    let same = table == golden;
    assert!(
        same,
        "the table has changed; if that is right: UPDATE_GOLDEN=1 cargo test --test calibration golden\n{table}"
    );
}

fn row(table: &mut String, scenario: &Scenario, all: &[Outcome]) {
    let truth = &scenario.upload;
    let cell = match truth.cell {
        Cells::None => "",
        Cells::Atm => " atm",
        Cells::Ptm => " ptm",
    };
    let upload = rates(all, |o| Some((o.upload.kbit? as f64, fits(scenario, o).kbit() as f64)));
    let download = rates(all, |o| Some((o.download.kbit? as f64, top(scenario, o))));
    let measured: Vec<&Outcome> = all.iter().filter(|o| o.link.source == LinkSource::Measured).collect();
    let found = match measured.as_slice() {
        [] => "–".into(),
        some => span(some.iter().filter_map(|o| o.link.overhead).map(f64::from)),
    };
    let targets = span(all.iter().filter(|o| !o.target.trials.is_empty()).filter_map(|o| o.target.target_ms));
    let worst = |grade: fn(&Outcome) -> Option<Grade>| {
        all.iter().filter_map(grade).max().map_or("–".to_owned(), |grade| grade.to_string())
    };
    let grades = [worst(|o| o.latency.grade_before), worst(|o| o.latency.grade_after), worst(|o| o.latency.grade_both)];
    writeln!(
        table,
        "{:<15} {:>10}  {:>6}  {:>8}  {:<11}  {:>8}  {:<11}  {found:<7}  {:<7}  {targets:<6}  {:<14}  {:>6}  {:>6.1}  {:>5.0}  {}",
        scenario.name,
        truth.rate_kbit,
        format!("{}{cell}", truth.overhead),
        upload.0,
        upload.1,
        download.0,
        download.1,
        span(all.iter().map(|o| f64::from(o.link.write_overhead))),
        grades.join("/"),
        median(all.iter().map(|o| o.trials.len() as f64)),
        median(all.iter().map(|o| o.cost.load_seconds)),
        median(all.iter().map(megabytes)),
        statuses(all),
    )
    .expect("a string takes it");
}

/// The median rate, and the span of its share of what fits.
fn rates(all: &[Outcome], rate: impl Fn(&Outcome) -> Option<(f64, f64)>) -> (String, String) {
    let some: Vec<(f64, f64)> = all.iter().filter_map(rate).collect();
    let shaped: Vec<&(f64, f64)> = some.iter().filter(|(rate, _)| *rate > 0.0).collect();
    match (some.is_empty(), shaped.is_empty()) {
        (true, _) => ("–".into(), String::new()),
        (_, true) => ("0".into(), String::new()),
        _ => {
            let shares: Vec<f64> = shaped.iter().map(|(rate, fits)| rate / fits * 100.0).collect();
            let least = shares.iter().copied().fold(f64::INFINITY, f64::min);
            let greatest = shares.iter().copied().fold(0.0, f64::max);
            (format!("{:.0}", median(shaped.iter().map(|s| s.0))), format!("{least:.1}–{greatest:.1}"))
        }
    }
}

/// `34`, or `33–35`.
fn span(values: impl Iterator<Item = f64>) -> String {
    let values: Vec<f64> = values.collect();
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let greatest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    match values.as_slice() {
        [] => "–".into(),
        _ if (greatest - least).abs() < 0.5 => format!("{least:.0}"),
        _ => format!("{least:.0}–{greatest:.0}"),
    }
}

/// `18 tuned, 2 inconclusive`.
fn statuses(all: &[Outcome]) -> String {
    let named = [
        (Status::Tuned, "tuned"),
        (Status::Unneeded, "unneeded"),
        (Status::Graded, "graded"),
        (Status::Inconclusive, "inconclusive"),
        (Status::Failed, "failed"),
        (Status::Refused, "refused"),
    ];
    let counted = named.map(|(status, name)| (super::count(all, status), name));
    let some: Vec<_> = counted.iter().filter(|c| c.0 > 0).map(|(count, name)| format!("{count} {name}")).collect();
    some.join(", ")
}
