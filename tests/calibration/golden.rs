//! One table over all lines, compared with the one that is checked in, so that every change of what the product
//! recommends or costs is seen in review. `UPDATE_GOLDEN=1 cargo test --test calibration golden` writes it anew.

use super::{SEEDS, fits, median, outcomes};
use sqm_autotune::calibration::outcome::{Grade, Outcome, Status};
use sqm_autotune::sim::Scenario;
use std::fmt::Write;
use std::path::Path;

const HEAD: &str = "\
line              fits  recommended      share of fits  before  after  trials  load s     MB  outcomes
                kbit/s  median kbit/s  least  greatest                   median over seeds
";

#[test]
fn golden_table() {
    let mut table = format!("{SEEDS} seeds of each simulated line, upload\n\n{HEAD}");
    for (name, _) in Scenario::builtin_names() {
        let scenario = super::scenario(&name);
        row(&mut table, &scenario, &outcomes(&scenario));
    }
    println!("{table}");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/calibration/golden.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &table).expect("golden.txt can be written");
    }
    let golden = std::fs::read_to_string(&path).expect("golden.txt is checked in");
    assert!(
        table == golden,
        "the table has changed; if that is right: UPDATE_GOLDEN=1 cargo test --test calibration golden\n{table}"
    );
}

fn row(table: &mut String, scenario: &Scenario, all: &[Outcome]) {
    let fits = fits(scenario).kbit();
    let rates: Vec<f64> = all.iter().filter_map(|o| o.upload.kbit).map(|kbit| kbit as f64).collect();
    let (recommended, least, greatest) = if rates.is_empty() {
        ("–".into(), "–".into(), "–".into())
    } else {
        let percent = |rate: f64| format!("{:.1} %", rate / fits as f64 * 100.0);
        let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
        let greatest = rates.iter().copied().fold(0.0, f64::max);
        (format!("{:.0}", median(rates)), percent(least), percent(greatest))
    };
    let worst = |grade: fn(&Outcome) -> Option<Grade>| {
        all.iter().filter_map(grade).max().map_or("–".into(), |g| g.to_string())
    };
    writeln!(
        table,
        "{:<15} {fits:>6}  {recommended:>13} {least:>6}  {greatest:>8}  {:>6}  {:>5}  {:>6}  {:>6.1}  {:>5.0}  {}",
        scenario.name,
        worst(|o| o.latency.grade_before),
        worst(|o| o.latency.grade_after),
        median(all.iter().map(|o| o.trials.len() as f64)),
        median(all.iter().map(|o| o.cost.load_seconds)),
        median(all.iter().map(|o| (o.cost.upload_bytes + o.cost.download_bytes) as f64 / 1e6)),
        statuses(all),
    )
    .expect("a string takes it");
}

/// `18 tuned, 2 inconclusive`.
fn statuses(all: &[Outcome]) -> String {
    let named = [
        (Status::Tuned, "tuned"),
        (Status::Unneeded, "unneeded"),
        (Status::Inconclusive, "inconclusive"),
        (Status::Failed, "failed"),
        (Status::Refused, "refused"),
    ];
    let counted = named.map(|(status, name)| (super::count(all, status), name));
    let some: Vec<_> = counted.iter().filter(|c| c.0 > 0).map(|(count, name)| format!("{count} {name}")).collect();
    some.join(", ")
}
