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
#[test]
fn links() {
    if std::env::var_os("LINKS").is_none() {
        return;
    }
    for (name, _) in Scenario::builtin_names() {
        let scenario = scenario(&name);
        println!("{name} truth {} {:?}", scenario.upload.overhead, scenario.upload.cell);
        for o in side_by_side(&(1..=6).collect::<Vec<_>>(), |seed| outcome(&scenario, seed)) {
            let f = scenario.fits(
                Direction::Upload,
                &sqm_autotune::line::Accounting {
                    overhead: o.link.write_overhead,
                    mpu: o.link.write_mpu,
                    cells: if o.link.write_layer == sqm_autotune::calibration::outcome::Layer::Atm {
                        sqm_autotune::line::Cells::Atm
                    } else {
                        sqm_autotune::line::Cells::None
                    },
                },
            );
            println!(
                "   {:?} {:?} {:?} {:?}..{:?} write {} cap {:?} | {:?} {:.3} load {:.1} {:?}",
                o.outcome,
                o.link.source,
                o.link.overhead,
                o.link.overhead_low,
                o.link.overhead_high,
                o.link.write_overhead,
                o.upload.capacity_kbit,
                o.upload.kbit,
                o.upload.kbit.unwrap_or(0) as f64 / f.kbit() as f64,
                o.cost.load_seconds,
                o.doubts.iter().map(|d| d.text.clone()).collect::<Vec<_>>()
            );
            if std::env::var("TRIALS").is_ok() {
                for t in &o.trials {
                    println!(
                        "      {} {:?} mss {:?} {:.1}s added {:?} pps {} lost {} {:?} {}",
                        t.n, t.step, t.mss, t.seconds, t.added_ms, t.packets_per_s, t.lost_percent, t.verdict, t.why
                    );
                }
            }
        }
    }
}
