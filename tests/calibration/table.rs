//! (explore)
use super::*;
use sqm_autotune::units::Direction;

#[test]
fn explore() {
    let seeds: u64 = std::env::var("SEEDS").map_or(3, |s| s.parse().unwrap());
    let only = std::env::var("LINE").ok();
    for (name, _) in Scenario::builtin_names() {
        if only.as_ref().is_some_and(|o| *o != name) {
            continue;
        }
        let scenario = scenario(&name);
        let began = std::time::Instant::now();
        let accounting = scenario.router.link.prior();
        let fits = scenario.fits(Direction::Upload, &accounting);
        let all = outcomes(&name, seeds);
        println!("{name}: fits {} took {:.1}s", fits.kbit(), began.elapsed().as_secs_f64());
        for o in &all {
            println!(
                "  {:?} {:?} {:.3} cap {:?} {:.3} hi {:?} bound {:?} {:?}->{:?} load {:.1}s {:.0}MB trials {} {} {:?}",
                o.outcome,
                o.upload.kbit,
                o.upload.kbit.unwrap_or(0) as f64 / fits.kbit() as f64,
                o.upload.capacity_kbit,
                o.upload.capacity_kbit.unwrap_or(0) as f64 / fits.kbit() as f64,
                o.upload.highest_clean_kbit,
                o.upload.clean_below_ms,
                o.latency.grade_before,
                o.latency.grade_after,
                o.cost.load_seconds,
                o.cost.upload_bytes as f64 / 1e6,
                o.trials.len(),
                o.reason.clone().unwrap_or_default(),
                o.doubts.iter().map(|d| d.code.clone()).collect::<Vec<_>>()
            );
            if std::env::var("TRIALS").is_ok() {
                for t in &o.trials {
                    println!(
                        "      {} {:?} {:?} {:.1}s p50 {:?} p95 {:?} added {:?} tp {} pps {} lost {} {:?} {}",
                        t.n,
                        t.step,
                        t.shaper_kbit,
                        t.seconds,
                        t.probe_p50_ms,
                        t.probe_p95_ms,
                        t.added_ms,
                        t.throughput_kbit,
                        t.packets_per_s,
                        t.lost_percent,
                        t.verdict,
                        t.why
                    );
                }
            }
        }
    }
}
