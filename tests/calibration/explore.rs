use super::*;
#[test]
fn explore() {
    let Ok(name) = std::env::var("LINE") else { return };
    let seeds: u64 = std::env::var("SEEDS").map_or(SEEDS, |s| s.parse().unwrap());
    for o in side_by_side(&(1..=seeds).collect::<Vec<_>>(), |seed| calibrated(&scenario(&name), seed, None)) {
        let scenario = scenario(&name);
        let share = o.upload.kbit.map_or(0.0, |k| k as f64 / fits(&scenario, &o).kbit() as f64);
        let dfits = scenario.fits(Direction::Download, &accounting(&o)).kbit();
        println!(
            "{:?} up {:?} {share:.3} down {:?} {:.3} link {:?} {:?}..{:?} target {:?} load {:.1} MB {:.0} {:?} both {:?} | {} | {} | {:?}",
            o.outcome,
            o.upload.kbit,
            o.download.kbit,
            o.download.kbit.unwrap_or(0) as f64 / dfits as f64,
            o.link.overhead,
            o.link.overhead_low,
            o.link.overhead_high,
            o.target.target_ms,
            o.cost.load_seconds,
            (o.cost.upload_bytes + o.cost.download_bytes) as f64 / 1e6,
            o.reason,
            o.latency.grade_both,
            o.target.why,
            o.download.why,
            o.doubts.iter().map(|d| &d.text).collect::<Vec<_>>()
        );
        if std::env::var("TRIALS").is_ok() {
            for t in &o.trials {
                println!(
                    "      {} {:?} {:?} {:?} f{} mss {:?} {:.1}s p50 {:?} p95 {:?} added {:?} tp {} lost {} {:?} {}",
                    t.n,
                    t.step,
                    t.direction,
                    t.shaper_kbit,
                    t.flows,
                    t.mss,
                    t.seconds,
                    t.probe_p50_ms,
                    t.probe_p95_ms,
                    t.added_ms,
                    t.throughput_kbit,
                    t.lost_percent,
                    t.verdict,
                    t.why
                );
            }
        }
    }
}
