use super::*;
#[test]
fn explore() {
    let Ok(name) = std::env::var("LINE") else { return };
    for seed in 1..=SEEDS {
        let o = outcome(&scenario(&name), seed);
        let share = o.upload.kbit.map_or(0.0, |k| k as f64 / fits(&scenario(&name)).kbit() as f64);
        println!(
            "seed {seed} {:?} {:?} {share:.3} load {:.1} {:?}",
            o.outcome, o.upload.kbit, o.cost.load_seconds, o.reason
        );
        if share < 0.95 || std::env::var("TRIALS").is_ok() {
            for t in &o.trials {
                println!(
                    "      {} {:?} {:?} {:.1}s p50 {:?} p95 {:?} added {:?} tp {} lost {} {:?} {}",
                    t.n,
                    t.step,
                    t.shaper_kbit,
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
