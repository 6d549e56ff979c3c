//! Outcomes made by hand, for the tests of the views.

use crate::calibration::outcome::*;
use crate::line::Step;
use crate::units::Direction;

/// The line of the report this project comes from, tuned.
pub fn tuned() -> Outcome {
    Outcome {
        format: FORMAT,
        agent: "0.1.0".into(),
        id: "20261130-0912-1".into(),
        line: "sim:vdsl2-pppoe".into(),
        started: "2026-11-30T09:12:05Z".into(),
        outcome: Status::Tuned,
        reason: None,
        upload: Shaped {
            kbit: Some(17_236),
            sync_kbit: Some(18_000),
            capacity_kbit: Some(17_720),
            highest_clean_kbit: Some(17_410),
            clean_below_ms: Some(6.0),
            why: "17,410 kbit/s was the highest rate that stayed clean, and 17,560 was not; 1 % below it, since lines breathe.".into(),
        },
        download: Shaped { why: "not measured: left as it is.".into(), sync_kbit: Some(67_000), ..Shaped::default() },
        link: Link {
            layer: Layer::Ethernet,
            overhead: Some(34),
            overhead_low: Some(33),
            overhead_high: Some(35),
            mpu: 0,
            source: LinkSource::Measured,
            write_layer: Layer::Ethernet,
            write_overhead: 38,
            write_mpu: 84,
        },
        ack_filter: None,
        target: Target {
            target_ms: Some(5.0),
            rtt_ms: Some(100.0),
            decided_by: TargetSource::Measured,
            why: "8 ms delivered no more, so the default stays.".into(),
            trials: Vec::new(),
        },
        latency: Latency {
            both: None,
            grade_both: None,
            idle: Some(Quantiles { p50: 12.9, p95: 14.0 }),
            unshaped: Some(Quantiles { p50: 168.2, p95: 181.3 }),
            tuned: Some(Quantiles { p50: 13.6, p95: 15.9 }),
            grade_before: Some(Grade::C),
            grade_after: Some(Grade::APlus),
        },
        cost: Cost { seconds: 61.0, load_seconds: 41.0, upload_bytes: 85_400_000, download_bytes: 210_000 },
        doubts: vec![Doubt { code: "line-busy".into(), text: "somebody else used a tenth of the line during trial 5.".into() }],
        trials: vec![
            trial(1, Step::Baseline, None, 0, None, 12.9, 14.0, VerdictWord::None),
            trial(2, Step::Unshaped, None, 17_190, Some(167.3), 168.2, 181.3, VerdictWord::Bloated),
            small(trial(3, Step::Link, None, 16_840, Some(93.0), 97.0, 107.0, VerdictWord::None)),
            trial(4, Step::Search, Some(17_100), 16_552, Some(1.8), 13.5, 15.8, VerdictWord::Clean),
            trial(5, Step::Search, Some(17_720), 17_150, Some(31.0), 38.2, 45.0, VerdictWord::Bloated),
            trial(6, Step::Search, Some(17_410), 16_850, Some(2.4), 14.0, 16.4, VerdictWord::Clean),
            trial(7, Step::Search, Some(17_560), 16_990, Some(9.1), 17.7, 23.1, VerdictWord::Inconclusive),
            trial(8, Step::Verify, Some(17_236), 16_680, Some(1.9), 13.6, 15.9, VerdictWord::Clean),
        ],
        uci: Some("config queue\n\toption enabled '1'\n\toption interface 'pppoe-wan'\n".into()),
    }
}

/// A line without anything to mend.
pub fn unneeded() -> Outcome {
    let mut outcome = tuned();
    outcome.outcome = Status::Unneeded;
    outcome.reason = Some("the unshaped upload adds only 2.1 ms.".into());
    outcome.upload.kbit = None;
    outcome.latency.tuned = None;
    outcome.latency.grade_before = Some(Grade::APlus);
    outcome.latency.grade_after = None;
    outcome.trials.truncate(2);
    outcome.uci = None;
    outcome
}

/// Nothing was measured.
pub fn refused() -> Outcome {
    let mut outcome = unneeded();
    outcome.outcome = Status::Refused;
    outcome.reason = Some("CAKE is not installed. Install kmod-sched-cake".into());
    outcome.latency = Latency::default();
    outcome.cost = Cost::default();
    outcome.upload = Shaped::default();
    outcome.doubts.clear();
    outcome.trials.clear();
    outcome
}

#[allow(clippy::too_many_arguments)]
fn trial(
    n: u32,
    step: Step,
    shaper_kbit: Option<u64>,
    throughput_kbit: u64,
    added_ms: Option<f64>,
    p50: f64,
    p95: f64,
    verdict: VerdictWord,
) -> TrialRecord {
    let loaded = step != Step::Baseline;
    TrialRecord {
        n,
        step,
        shaper_kbit,
        overhead: shaper_kbit.map(|_| 38),
        flows: if loaded { 4 } else { 0 },
        mss: loaded.then_some(1460),
        direction: loaded.then_some(Direction::Upload),
        seconds: 6.0,
        probe_p50_ms: Some(p50),
        probe_p95_ms: Some(p95),
        added_ms,
        throughput_kbit,
        packets_per_s: throughput_kbit as f64 / 12.0,
        lost_percent: 0.0,
        backlog: shaper_kbit.map(|_| true),
        verdict,
        why: String::new(),
    }
}

fn small(trial: TrialRecord) -> TrialRecord {
    TrialRecord { mss: Some(536), ..trial }
}
