//! The steps of a calibration, top to bottom.

use super::before::{self, Need, UNSHAPED};
use super::outcome::{Grade, Target};
use super::rate::{Quest, Sought, usual_time};
use super::session::{Attempt, Ends, Halt, Session, lasting};
use super::verdict::{CleanBound, Judge};
use super::{Progressed, Wish, acks, confirm, forecast, link, target};
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
    forecast::make_room(session, false)?;
    session.still_to_come = lasting(1, UNSHAPED) + usual_time();
    before::baseline(session, so_far)?;
    let mut link = link::prior(session.facts.link);
    let upload = if session.plan().wants_upload() { upload(session, &mut link, so_far)? } else { Way::NotAsked };
    let download = if session.wants_download() { download(session, &link, so_far)? } else { Way::NotAsked };
    if session.plan().wants_download() && !session.wants_download() {
        so_far.download.why = "left as it is, to save data".into();
    }
    filter_acks(session, so_far)?;
    let is_open = so_far.latency.both.is_none() && session.wants_download();
    if is_open && session.plan().wants_upload() && session.wants(Wish::Verify) {
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
    let policed = match before.need(session, link.accounting)? {
        Need::No(why) => {
            so_far.upload.why.clone_from(&why);
            so_far.upload.kbit = Some(0);
            // Its queue was too short to be sure that it was never empty: what got through is not what it drains.
            so_far.upload.capacity_kbit = None;
            session.setting.upload = Shaping::Unshaped;
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
    forecast::make_room(session, true)?;
    if session.wants(Wish::Search) && session.wants(Wish::Target) {
        session.later = target::usual_time(session, before.measured.throughput);
    }
    if session.wants(Wish::Link) {
        *link = link::measure(session, &before.measured, before.capacity)?;
        if let Some(capacity) = link.capacity {
            so_far.upload.capacity_kbit = Some(capacity.kbit());
        }
        so_far.link = Some(link.link.clone());
    }
    if session.wants(Wish::Confirm) {
        confirm::run(session, link, &before)?;
    }
    if !session.wants(Wish::Search) {
        so_far.upload.why = "no rate was asked for".into();
        return Ok(Way::Measured);
    }
    let verify = session.wants(Wish::Verify);
    let quest = Quest { direction: Direction::Upload, link, before: &before, policed, verify };
    let mut cake = match quest.run(session, so_far)? {
        Sought::Setting(cake) => cake,
        Sought::TooDear(why) => return Ok(Way::Needless(why)),
    };
    session.later = Duration::ZERO;
    so_far.target = target(session, &cake)?;
    if let Some(rtt_ms) = so_far.target.rtt_ms {
        cake.rtt = Duration::from_secs_f64(rtt_ms / 1000.0);
    }
    session.setting.upload = Shaping::Cake(cake);
    Ok(Way::Shaped)
}

/// CAKE's target is good enough where it cannot be compared: the rate that was found stands.
fn target(session: &mut Session, cake: &Cake) -> Result<Target, Halt> {
    if !session.plan().wants(Wish::Target) {
        return Ok(Target::skipped("not compared: CAKE's default"));
    }
    if !session.wants(Wish::Target) {
        return Ok(Target::skipped("not compared, to save data: CAKE's default"));
    }
    match target::decide(session, cake) {
        Err(Halt::Inconclusive(doubt)) => {
            let why = format!("not compared ({}): CAKE's default", doubt.text);
            session.doubt(&doubt.code, format!("target: {}", doubt.text));
            Ok(Target::skipped(&why))
        }
        decided => decided,
    }
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
    let policed = match before.need(session, link.accounting)? {
        Need::No(why) => {
            return zero(session, so_far, why);
        }
        Need::Policed => true,
        Need::Yes => false,
    };
    let verify = session.wants(Wish::Verify);
    forecast::make_room_for_download(session, before.measured.throughput)?;
    let quest = Quest { direction: Direction::Download, link, before: &before, policed, verify };
    match quest.run(session, so_far)? {
        Sought::TooDear(why) => zero(session, so_far, why),
        Sought::Setting(cake) => {
            session.setting.download = Shaping::Cake(cake);
            Ok(Way::Shaped)
        }
    }
}

/// Where both directions have been looked at: do acknowledgements need CAKE's help?
fn filter_acks(session: &mut Session, so_far: &mut Progressed) -> Result<(), Halt> {
    let download = so_far.download.capacity_kbit.map(Rate::from_kbit);
    let (Shaping::Cake(upload), Some(download)) = (session.setting.upload, download) else { return Ok(()) };
    let filter = match acks::decide(session, &upload, download) {
        Err(Halt::Inconclusive(doubt)) => {
            session.doubt(&doubt.code, format!("ACK filter: {}", doubt.text));
            return Ok(());
        }
        decided => decided?,
    };
    if filter.recommended {
        // What was verified is not yet what is recommended.
        so_far.latency.both = None;
    }
    session.setting.upload = Shaping::Cake(Cake { ack_filter: filter.recommended, ..upload });
    so_far.ack_filter = Some(filter);
    Ok(())
}

/// Both directions at once with the final settings, where the download's verification has not shown that already.
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
    let bound = CleanBound::at_any_rate(session.plan().max_added_ms, &idle);
    let judge = Judge { bound, idle: &idle, packet_bytes: session.packet_bytes(), policed: false };
    let measured = match session.run(&attempt, &judge) {
        // What was found is verified already; how both together do is worth a word, not the outcome.
        Err(Halt::Inconclusive(doubt)) => {
            session.doubt(&doubt.code, format!("both directions at once: {}", doubt.text));
            return Ok(());
        }
        ran => ran?.0,
    };
    so_far.latency.both = before::quantiles(&measured);
    so_far.latency.grade_both = measured.added_p95_ms.map(Grade::of);
    Ok(())
}
