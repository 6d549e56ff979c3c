//! CAKE's ACK filter: where the download is so much faster than the upload that its acknowledgements fill that.
//!
//! Both directions are loaded at once under the settings found, without the filter and with it, in pairs of balanced
//! order. It is recommended where either direction carries at least [`WORTH`] more and the other loses nothing.

use super::outcome::AckFilter;
use super::session::{Attempt, Ends, Halt, Session, lasting};
use super::stats::mean;
use super::verdict::{CleanBound, Judge};
use crate::line::{Cake, Shaping, Step};
use crate::units::{Direction, Rate};
use std::time::Duration;

/// Download to upload. One acknowledgement of 52 bytes for two packets of 1500 is a fifty-eighth: five times that for
/// what a frame or cell adds, and for repeats, and it begins to matter (cases C40: above 10 to 15).
const RATIO: f64 = 10.5;
/// Goodput that makes the filter worth having: well above what chance does to one pair (1 to 2 per cent).
const WORTH: f64 = 0.05;
/// Goodput that the other direction may lose: no more than chance explains.
const MOST_LOST: f64 = 0.02;
const PAIRS: usize = 2;
const SETTLE: Duration = Duration::from_millis(2_500);
const EACH: Duration = Duration::from_millis(6_500);
/// What trying it may move in all.
const MOST_BYTES: u64 = 500_000_000;

/// What trying it would take: so many trials of such a length. `None`: there is no need to.
pub fn trials(upload: Rate, download: Rate) -> Option<(u32, Duration)> {
    let trials = 2 * PAIRS as u32;
    let affordable = download.bytes_in(EACH * trials) <= MOST_BYTES;
    (affordable && download.ratio(upload) >= RATIO).then_some((trials, EACH))
}

/// `download`: what the line carries that way.
pub fn decide(session: &mut Session, upload: &Cake, download: Rate) -> Result<AckFilter, Halt> {
    let ratio = download.ratio(upload.rate);
    let no = |why: String| Ok(AckFilter { recommended: false, why });
    if ratio < RATIO {
        return no(format!("download is only {ratio:.1} times upload: acknowledgements take little of it"));
    }
    let trials = 2 * PAIRS as u32;
    let bytes = download.bytes_in(EACH * trials);
    if bytes > MOST_BYTES {
        return no(format!("not tried: that would move {} MB", bytes / 1_000_000));
    }
    let mut gains: [Vec<f64>; 2] = Default::default();
    for pair in 0..PAIRS {
        let mut carried = [[Rate::default(); 2]; 2];
        let order = if pair % 2 == 0 { [false, true] } else { [true, false] };
        for filtered in order {
            session.still_to_come = lasting(trials, EACH);
            carried[usize::from(filtered)] = trial(session, Cake { ack_filter: filtered, ..*upload })?;
        }
        for (gains, direction) in gains.iter_mut().zip([0, 1]) {
            gains.push(carried[1][direction].ratio(carried[0][direction]) - 1.0);
        }
    }
    let [up, down] = gains.map(|gains| mean(&gains).unwrap_or_default());
    let said = format!(
        "with both directions loaded the download carries {:+.1} % and the upload {:+.1} % with it",
        down * 100.0,
        up * 100.0
    );
    let recommended = up.max(down) >= WORTH && up.min(down) > -MOST_LOST;
    Ok(AckFilter { recommended, why: said })
}

/// The goodput of the upload and of the download.
fn trial(session: &mut Session, upload: Cake) -> Result<[Rate; 2], Halt> {
    let attempt = Attempt {
        step: Step::Acks,
        setting: session.setting.with(Direction::Upload, Shaping::Cake(upload)),
        loads: vec![session.load(Direction::Upload), session.load(Direction::Download)],
        duration: EACH,
        ends: Ends::IfInvalid,
    };
    let idle = session.idle.clone().unwrap_or_default();
    let bound = CleanBound::at_any_rate(None, &idle);
    let judge = Judge { bound, idle: &idle, packet_bytes: session.packet_bytes(), policed: false };
    let (seen, _) = session.run_unjudged(&attempt, &judge)?;
    Ok([Direction::Upload, Direction::Download].map(|direction| seen.goodput_in(direction, SETTLE)))
}
