//! The steps of an upload calibration, top to bottom: idle, unshaped, search, verify.

use super::capacity::Capacity;
use super::estimate::Measurement;
use super::idle::Idle;
use super::outcome::{Grade, Latency, Quantiles, Shaped};
use super::search::Search;
use super::session::{Attempt, Ends, Halt, Session, lasting, tenths};
use super::verdict::{CleanBound, Doubtful, Judge, LOSSY, NO_QUEUE_MS, Verdict};
use crate::line::{Accounting, Cake, Cells, LinkType, Shaping, Step};
use crate::units::Rate;
use std::time::Duration;

/// Bulk flows: enough to fill a line, few enough for a small router.
pub const FLOWS: u32 = 4;
/// Idle replies wanted for the quantiles that everything is compared with.
const IDLE_REPLIES: u32 = 120;
/// A baseline is at least and at most this long.
const BASELINE: (Duration, Duration) = (Duration::from_secs(4), Duration::from_secs(12));
/// Quiet is less foreign traffic than this share of sync; looked at so many times.
const QUIET_SHARE: f64 = 0.05;
const QUIET_LOOKS: u32 = 3;
/// Outlasts the 10 s of burst credit that cable modems give (facts H).
pub const UNSHAPED: Duration = Duration::from_millis(12_500);
/// A trial of the search gets no more than this to make up its mind.
pub const SEARCH: Duration = Duration::from_millis(10_500);
/// What a trial of the search usually takes, for the time left.
const SEARCH_USUALLY: Duration = Duration::from_millis(4_600);
/// The recommended setting is watched longer than any other shaped trial.
pub const VERIFY: Duration = Duration::from_millis(12_500);
/// So many recommendations are verified before the line counts as unpredictable.
const VERIFICATIONS: u32 = 3;
/// Lines breathe: what is set stays this far below the highest clean rate (contract).
pub const MARGIN: f64 = 0.01;
/// A capacity this far below what sync allows is the provider's shaper, not the modem.
const SHAPED_BELOW: f64 = 0.93;
/// A queue this small on average is none that a load could have built.
const SATURATED_MS: f64 = 0.3;

/// How the steps ended, when none of them halted.
pub enum Found {
    Rate,
    /// Shaping would gain nothing; why.
    Unneeded(String),
}

/// What the steps have established so far; survives a halt.
#[derive(Default)]
pub struct Progressed {
    pub shaped: Shaped,
    pub latency: Latency,
}

/// Runs all steps. What is known at each moment is in `so_far`, also when a step halts.
pub fn calibrate(session: &mut Session, so_far: &mut Progressed) -> Result<Found, Halt> {
    let accounting = session.facts.link.prior();
    so_far.shaped.sync_kbit = session.facts.sync_up.map(Rate::kbit);
    session.still_to_come = lasting(1, UNSHAPED) + lasting(3, SEARCH_USUALLY) + lasting(1, VERIFY);
    baseline(session, so_far)?;
    session.still_to_come = lasting(3, SEARCH_USUALLY) + lasting(1, VERIFY);
    let (measured, bound) = unshaped(session, accounting, so_far)?;
    if let Some(why) = needless(&measured, bound)? {
        so_far.shaped.why.clone_from(&why);
        return Ok(Found::Unneeded(why));
    }
    let cap = search_cap(session, accounting, &measured, so_far)?;
    search_and_verify(session, accounting, bound, cap, so_far)?;
    Ok(Found::Rate)
}

/// The line as it is: idle, then loaded.
pub fn grade(session: &mut Session, so_far: &mut Progressed) -> Result<(), Halt> {
    session.still_to_come = lasting(1, UNSHAPED);
    baseline(session, so_far)?;
    session.still_to_come = Duration::ZERO;
    loaded(session, Shaping::AsIs, so_far)?;
    so_far.shaped.why = "graded as it is".into();
    Ok(())
}

/// The idle line: which reflectors are good, and what their replies look like.
pub fn baseline(session: &mut Session, so_far: &mut Progressed) -> Result<(), Halt> {
    let reflectors = session.facts.reflectors.len() as u32;
    let interval = session.probe_interval();
    let wanted = interval * IDLE_REPLIES.div_ceil(reflectors.max(1));
    let duration = wanted.clamp(BASELINE.0, BASELINE.1);
    for look in 1.. {
        let (measured, samples) = session.run_idle(duration)?;
        let (idle, left_out) = Idle::judge(&samples, reflectors as usize, duration, interval);
        let quiet = session.facts.sync_up.is_none_or(|sync| measured.foreign < sync.times(QUIET_SHARE));
        if !quiet && look < QUIET_LOOKS {
            session.note(&format!("others upload {} right now; waiting for a quiet moment", measured.foreign));
            continue;
        }
        if !quiet {
            return Err(Doubtful::LineBusy { foreign: measured.foreign }.into());
        }
        let Some(idle) = idle else {
            let text = "no reflector answers: is the line up, and may it be pinged? Name another with --reflector";
            return Err(Halt::inconclusive("reflectors", text));
        };
        for left in left_out {
            let name = session.facts.reflectors[left.reflector].clone();
            session.doubt("reflectors", format!("{name} is left out: it {}", left.why));
        }
        so_far.latency.idle = Some(Quantiles { p50: tenths(idle.p50_ms), p95: tenths(idle.p95_ms) });
        session.idle = Some(idle);
        break;
    }
    Ok(())
}

/// The line without a shaper, loaded: the grade before, and what the bottleneck drains.
fn unshaped(
    session: &mut Session,
    accounting: Accounting,
    so_far: &mut Progressed,
) -> Result<(Measurement, CleanBound), Halt> {
    let measured = loaded(session, Shaping::Unshaped, so_far)?;
    let wire_bytes = accounting.wire_bytes(session.packet_bytes());
    let idle = session.idle.clone().unwrap_or_default();
    let capacity = Capacity::of(&measured.windows, measured.packets_per_s);
    let booked = |packets_per_s| measured.booked(&accounting, session.packet_bytes(), packets_per_s);
    let rate = booked(capacity.packets_per_s());
    session.line_rate = Some(rate);
    so_far.shaped.capacity_kbit = Some(rate.kbit());
    let bound = CleanBound::new(session.plan().max_added_ms, &idle, rate.times(super::search::FIRST_GUESS), wire_bytes);
    so_far.shaped.clean_below_ms = Some(tenths(bound.ms));
    steady(session, capacity, &measured, accounting)?;
    Ok((measured, bound))
}

/// Loads the line for the grade before.
fn loaded(session: &mut Session, upload: Shaping, so_far: &mut Progressed) -> Result<Measurement, Halt> {
    let attempt = Attempt {
        step: Step::Unshaped,
        upload,
        load: Some(session.upload(FLOWS)),
        duration: UNSHAPED,
        ends: Ends::IfInvalid,
    };
    let idle = session.idle.clone().unwrap_or_default();
    // What the line drains is not known yet, so nothing is said of how long a packet takes.
    let bound = CleanBound::new(session.plan().max_added_ms, &idle, Rate::from_bits(u64::MAX), 0);
    let judge = Judge { bound, idle: &idle, packet_bytes: session.packet_bytes() };
    let (measured, verdict) = session.run(&attempt, &judge)?;
    so_far.latency.unshaped = quantiles(&measured);
    so_far.latency.grade_before = measured.added_p95_ms.map(Grade::of);
    match verdict {
        Verdict::Inconclusive(Doubtful::Unsure { .. }) | Verdict::Clean { .. } | Verdict::Bloated(_) => Ok(measured),
        Verdict::Inconclusive(why) => Err(why.into()),
    }
}

/// Only a line that keeps its rate has one to find.
fn steady(
    session: &mut Session,
    capacity: Capacity,
    measured: &Measurement,
    accounting: Accounting,
) -> Result<(), Halt> {
    let packet_bytes = session.packet_bytes();
    let booked = |packets_per_s| measured.booked(&accounting, packet_bytes, packets_per_s);
    match capacity {
        Capacity::Variable { lowest, highest, .. } => Err(Halt::inconclusive(
            "variable",
            format!(
                "the line's rate changes by itself, between {} and {} while it was watched: no fixed rate suits it",
                booked(lowest),
                booked(highest)
            ),
        )),
        _ if session.facts.link == LinkType::Lte => Err(Halt::inconclusive(
            "variable",
            "a radio link changes its rate by the minute: no rate found now would hold",
        )),
        Capacity::Burst { first, packets_per_s } => {
            session.doubt(
                "burst",
                format!(
                    "the line allows {} at first and {} in the long run; the long run counts",
                    booked(first),
                    booked(packets_per_s)
                ),
            );
            Ok(())
        }
        Capacity::Steady { .. } => Ok(()),
    }
}

/// Why shaping would gain nothing, if so.
fn needless(measured: &Measurement, bound: CleanBound) -> Result<Option<String>, Halt> {
    let added = measured.added_p95_ms.unwrap_or(f64::INFINITY);
    let typical = measured.added_p50_ms.unwrap_or_default();
    if added >= bound.ms {
        return Ok(None);
    }
    if measured.line_loss >= LOSSY && typical < NO_QUEUE_MS {
        return Err(Halt::inconclusive(
            "policer",
            format!(
                "the line drops packets ({:.1} %) without delaying any: a policer, whose rate the delay cannot show",
                measured.line_loss * 100.0
            ),
        ));
    }
    if typical < SATURATED_MS && measured.retransmits == 0 {
        return Err(Doubtful::LoadLimited { throughput: measured.throughput, asked: None }.into());
    }
    Ok(Some(format!("adds only {added:.1} ms unshaped, below {bound}")))
}

/// The lowest rate that is too much without trying.
fn search_cap(
    session: &mut Session,
    accounting: Accounting,
    measured: &Measurement,
    so_far: &mut Progressed,
) -> Result<Rate, Halt> {
    let capacity = Rate::from_kbit(so_far.shaped.capacity_kbit.unwrap_or_default());
    if capacity.kbit() == 0 {
        return Err(Halt::inconclusive("load-limited", "nothing got through: the load server did not take the upload"));
    }
    let Some(sync) = session.facts.sync_up else { return Ok(capacity) };
    let fits = fits_in(sync, session.facts.link, session.packet_bytes());
    // Without any overhead at all: what certainly went over the wire.
    let bare = Accounting { overhead: 0, mpu: 0, ..accounting };
    let at_least = measured.booked(&bare, session.packet_bytes(), measured.packets_per_s);
    if at_least > sync {
        session
            .doubt("sync-mismatch", format!("{at_least} got through, more than the sync of {sync}: not this line's"));
        session.facts.sync_up = None;
        return Ok(capacity);
    }
    if capacity < fits.times(SHAPED_BELOW) {
        session.facts.sync_up = None;
        session.note(&format!("the line drains {capacity} of {sync} sync: the provider shapes below it"));
    }
    Ok(capacity.min(fits))
}

/// The highest rate that a line with this sync can drain, as the link type's prior counts: framing taken off once, and
/// on ATM the cell that the generous prior may count too much (the least overhead there is 8 bytes, facts C).
fn fits_in(sync: Rate, link: LinkType, packet_bytes: u32) -> Rate {
    let prior = link.prior();
    let least = match prior.cells {
        Cells::Atm => Accounting { overhead: 8, ..prior },
        Cells::None | Cells::Ptm => prior,
    };
    let counted_too_much = f64::from(prior.wire_bytes(packet_bytes)) / f64::from(least.wire_bytes(packet_bytes));
    sync.times(link.framing_share() * counted_too_much)
}

fn search_and_verify(
    session: &mut Session,
    accounting: Accounting,
    bound: CleanBound,
    cap: Rate,
    so_far: &mut Progressed,
) -> Result<(), Halt> {
    let mut search = Search::new(cap, session.facts.sync_up);
    for _ in 0..VERIFICATIONS {
        while let Some(rate) = search.next() {
            session.still_to_come =
                lasting(search.expected_trials().saturating_sub(1), SEARCH_USUALLY) + lasting(1, VERIFY);
            let (_, verdict) = shaped_trial(session, Step::Search, rate, accounting, bound)?;
            search.learn(verdict.is_clean());
        }
        let Some(highest) = search.highest_clean() else {
            so_far.shaped.highest_clean_kbit = None;
            return Err(Halt::inconclusive(
                "no-clean-rate",
                "lowering the rate does not make the line clean: the delay comes from somewhere else",
            ));
        };
        let recommended = Rate::from_kbit(highest.times(1.0 - MARGIN).kbit());
        session.still_to_come = Duration::ZERO;
        let (measured, verdict) = shaped_trial(session, Step::Verify, recommended, accounting, bound)?;
        if verdict.is_clean() {
            so_far.latency.tuned = quantiles(&measured);
            so_far.latency.grade_after = measured.added_p95_ms.map(Grade::of);
            so_far.shaped.highest_clean_kbit = Some(highest.kbit());
            so_far.shaped.kbit = Some(recommended.kbit());
            so_far.shaped.why = explain(session, so_far, highest, bound);
            return Ok(());
        }
        session.note(&format!("{recommended} did not hold when watched longer: {verdict}; looking lower"));
        search.distrust(recommended);
    }
    Err(Halt::inconclusive(
        "unsteady",
        "rates that were clean at first did not stay clean: the line changes while it is measured",
    ))
}

fn shaped_trial(
    session: &mut Session,
    step: Step,
    rate: Rate,
    accounting: Accounting,
    bound: CleanBound,
) -> Result<(Measurement, Verdict), Halt> {
    let (duration, ends) = match step {
        Step::Verify => (VERIFY, Ends::UnlessClean),
        _ => (SEARCH, Ends::OnceCertain),
    };
    let cake = Cake { rate, accounting, rtt: Cake::DEFAULT_RTT };
    let attempt = Attempt { step, upload: Shaping::Cake(cake), load: Some(session.upload(FLOWS)), duration, ends };
    let idle = session.idle.clone().unwrap_or_default();
    let judge = Judge { bound, idle: &idle, packet_bytes: session.packet_bytes() };
    let (measured, verdict) = session.run(&attempt, &judge)?;
    match verdict {
        Verdict::Inconclusive(Doubtful::Unsure { .. }) | Verdict::Clean { .. } | Verdict::Bloated(_) => {
            Ok((measured, verdict))
        }
        Verdict::Inconclusive(why) => Err(why.into()),
    }
}

fn explain(session: &Session, so_far: &Progressed, highest: Rate, bound: CleanBound) -> String {
    let capacity = Rate::from_kbit(so_far.shaped.capacity_kbit.unwrap_or_default());
    let provider = so_far.shaped.sync_kbit.map(Rate::from_kbit).filter(|_| session.facts.sync_up.is_none());
    let limit = match provider {
        Some(sync) if capacity < sync => format!("; the provider shapes below the sync of {sync}"),
        _ => String::new(),
    };
    format!(
        "the highest rate that added less than {bound} was {highest}, {:.1} % of the {capacity} that the line drains; \
         set 1 % below it, since lines breathe{limit}",
        highest.ratio(capacity) * 100.0,
    )
}

pub fn quantiles(measured: &Measurement) -> Option<Quantiles> {
    Some(Quantiles { p50: tenths(measured.rtt_p50_ms?), p95: tenths(measured.rtt_p95_ms?) })
}
