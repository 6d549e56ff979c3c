//! The steps of a calibration, top to bottom.

use super::before::{self, Need, UNSHAPED};
use super::outcome::{Grade, Target};
use super::rate::{Quest, usual_time};
use super::session::{Attempt, Ends, Halt, Session, lasting};
use super::verdict::{CleanBound, Judge};
use super::{Progressed, Wish, acks, confirm, link, target};
use crate::line::{Cake, Shaping, Step};
use crate::units::{Direction, Rate};
use std::time::Duration;

/// Both directions at once under the final settings: long enough for a grade, short enough for the household.
const TOGETHER: Duration = Duration::from_millis(6_500);

/// How the steps ended, when none of them halted.
pub enum Found {
    Settings,
    /// Shaping would gain nothing; why.
    Unneeded(String),
    /// Measured what was asked for; no rate was.
    Measured,
}

/// Runs all steps that were asked for. What is known at each moment is in `so_far`, also when a step halts.
pub fn calibrate(session: &mut Session, so_far: &mut Progressed) -> Result<Found, Halt> {
    so_far.upload.sync_kbit = session.facts.sync_up.map(Rate::kbit);
    so_far.download.sync_kbit = session.facts.sync_down.map(Rate::kbit);
    session.still_to_come = lasting(1, UNSHAPED) + usual_time();
    before::baseline(session, so_far)?;
    let mut link = link::prior(session.facts.link);
    let upload = if session.plan().wants_upload() { upload(session, &mut link, so_far)? } else { Way::NotAsked };
    let download = if session.plan().wants_download() { download(session, &link, so_far)? } else { Way::NotAsked };
    filter_acks(session, so_far)?;
    if session.plan().wants_upload() && session.plan().wants_download() && session.plan().wants(Wish::Verify) {
        together(session, so_far)?;
    }
    Ok(match (upload, download) {
        (Way::Shaped, _) | (_, Way::Shaped) => Found::Settings,
        (Way::Needless(why), Way::NotAsked | Way::Needless(_)) | (Way::NotAsked, Way::Needless(why)) => {
            Found::Unneeded(why)
        }
        _ => Found::Measured,
    })
}

/// The line as it is: idle, then loaded.
pub fn grade(session: &mut Session, so_far: &mut Progressed) -> Result<(), Halt> {
    session.still_to_come = lasting(1, UNSHAPED);
    before::baseline(session, so_far)?;
    session.still_to_come = Duration::ZERO;
    before::loaded(session, Direction::Upload, Shaping::AsIs, so_far)?;
    so_far.upload.why = "graded as it is".into();
    Ok(())
}

/// What became of one direction.
enum Way {
    NotAsked,
    Needless(String),
    /// A rate was not asked for.
    Measured,
    Shaped,
}

fn upload(session: &mut Session, link: &mut link::Found, so_far: &mut Progressed) -> Result<Way, Halt> {
    session.still_to_come = usual_time();
    let before = before::unshaped(session, Direction::Upload, link.accounting, so_far)?;
    let policed = match before.need()? {
        Need::No(why) => {
            so_far.upload.why.clone_from(&why);
            so_far.upload.kbit = Some(0);
            // Its queue was too short to be sure that it was never empty: what got through is not what it drains.
            so_far.upload.capacity_kbit = None;
            return Ok(Way::Needless(why));
        }
        Need::Policed => {
            let lost = before.measured.line_loss * 100.0;
            session.doubt(
                "policer",
                format!("the line drops what is too much ({lost:.1} % unshaped) without delaying anything: the rate is the one without losses"),
            );
            true
        }
        Need::Yes => false,
    };
    if session.plan().wants(Wish::Search) && session.plan().wants(Wish::Target) {
        session.later = target::usual_time(session, before.measured.throughput);
    }
    if session.plan().wants(Wish::Link) {
        *link = link::measure(session, &before.measured, before.capacity)?;
        if let Some(capacity) = link.capacity {
            so_far.upload.capacity_kbit = Some(capacity.kbit());
        }
        so_far.link = Some(link.link.clone());
    }
    if session.plan().wants(Wish::Confirm) {
        confirm::run(session, link, &before)?;
    }
    if !session.plan().wants(Wish::Search) {
        so_far.upload.why = "no rate was asked for".into();
        return Ok(Way::Measured);
    }
    let verify = session.plan().wants(Wish::Verify);
    let quest = Quest { direction: Direction::Upload, link, before: &before, policed, verify };
    let mut cake = quest.run(session, so_far)?;
    session.later = Duration::ZERO;
    so_far.target = if session.plan().wants(Wish::Target) {
        target::decide(session, &cake)?
    } else {
        Target::skipped("not compared: CAKE's default (--steps link,search,target,verify compares)")
    };
    if let Some(rtt_ms) = so_far.target.rtt_ms {
        cake.rtt = Duration::from_secs_f64(rtt_ms / 1000.0);
    }
    session.setting.upload = Shaping::Cake(cake);
    Ok(Way::Shaped)
}

/// The download's trouble is its own: what was found for the upload stands.
fn download(session: &mut Session, link: &link::Found, so_far: &mut Progressed) -> Result<Way, Halt> {
    match try_download(session, link, so_far) {
        Err(Halt::Inconclusive(doubt)) if session.plan().wants_upload() => {
            so_far.download.why = format!("left as it is: {}", doubt.text);
            session.doubt(&doubt.code, format!("download: {}", doubt.text));
            session.setting.download = Shaping::AsIs;
            Ok(Way::NotAsked)
        }
        ended => ended,
    }
}

fn try_download(session: &mut Session, link: &link::Found, so_far: &mut Progressed) -> Result<Way, Halt> {
    session.still_to_come = lasting(1, TOGETHER);
    let before = before::unshaped(session, Direction::Download, link.accounting, so_far)?;
    let zero = |session: &mut Session, so_far: &mut Progressed, why: String| {
        so_far.download.kbit = Some(0);
        so_far.download.why.clone_from(&why);
        session.setting.download = Shaping::Unshaped;
        Ok(Way::Needless(why))
    };
    let policed = match before.need()? {
        Need::No(why) => return zero(session, so_far, why),
        Need::Policed => true,
        Need::Yes => false,
    };
    let verify = session.plan().wants(Wish::Verify);
    let quest = Quest { direction: Direction::Download, link, before: &before, policed, verify };
    let cake = quest.run(session, so_far)?;
    let unshaped = before.measured.throughput;
    if cake.rate < unshaped.times(MOST_LOST_TO_CPU) && session.doubts.iter().any(|d| d.code == "cpu-bound") {
        let why = format!(
            "the router's CPU could shape only {} of {unshaped}: that would cost more than it gains",
            cake.rate
        );
        so_far.download.highest_clean_kbit = None;
        return zero(session, so_far, why);
    }
    session.setting.download = Shaping::Cake(cake);
    Ok(Way::Shaped)
}

/// Where both directions have been looked at: do acknowledgements need CAKE's help?
fn filter_acks(session: &mut Session, so_far: &mut Progressed) -> Result<(), Halt> {
    let download = so_far.download.capacity_kbit.map(Rate::from_kbit);
    let (Shaping::Cake(upload), Some(download)) = (session.setting.upload, download) else { return Ok(()) };
    let filter = acks::decide(session, &upload, download)?;
    session.setting.upload = Shaping::Cake(Cake { ack_filter: filter.recommended, ..upload });
    so_far.ack_filter = Some(filter);
    Ok(())
}

/// A shaper that takes more than a quarter of the download away costs more than the delay that it saves.
const MOST_LOST_TO_CPU: f64 = 0.75;

/// Both directions at once with the final settings.
fn together(session: &mut Session, so_far: &mut Progressed) -> Result<(), Halt> {
    session.still_to_come = Duration::ZERO;
    let setting = session.setting;
    let attempt = Attempt {
        step: Step::Verify,
        setting,
        loads: vec![session.load(Direction::Upload), session.load(Direction::Download)],
        duration: TOGETHER,
        ends: Ends::IfInvalid,
    };
    let idle = session.idle.clone().unwrap_or_default();
    let bound = CleanBound::new(session.plan().max_added_ms, &idle, Rate::from_bits(u64::MAX), 0);
    let judge = Judge { bound, idle: &idle, packet_bytes: session.packet_bytes(), policed: false };
    let (measured, _) = session.run(&attempt, &judge)?;
    so_far.latency.both = before::quantiles(&measured);
    so_far.latency.grade_both = measured.added_p95_ms.map(Grade::of);
    Ok(())
}
