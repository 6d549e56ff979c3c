//! Confirms the accounting by what it is for: at one rate, full-size and small packets both stay clean with it, and
//! small ones do not with twenty bytes less.

use super::before::Before;
use super::link;
use super::rate::MARGIN;
use super::search::FIRST_GUESS;
use super::session::{Attempt, Ends, Halt, Session};
use super::verdict::{Judge, Verdict};
use crate::line::{Accounting, Cake, Load, Shaping, Step};
use crate::units::Direction;
use std::time::Duration;

/// IP bytes of the small packets: 20 bytes are a twelfth of what one costs.
const SMALL: u32 = 256;
/// So many bytes too few must show (facts A).
const TOO_FEW: i32 = 20;
const EACH: Duration = Duration::from_millis(10_500);

pub fn run(session: &mut Session, link: &link::Found, before: &Before) -> Result<(), Halt> {
    let full = session.packet_bytes();
    let capacity = before.measured.booked(&link.accounting, full, before.capacity.packets_per_s());
    // In the upper half of what will be recommended: near enough for twenty bytes to matter.
    let rate = capacity.times(f64::midpoint(FIRST_GUESS, 1.0) - MARGIN / 2.0);
    let fewer = Accounting { overhead: link.accounting.overhead - TOO_FEW, mpu: 0, ..link.accounting };
    let mut clean = |accounting, size| trial(session, before, Cake::new(rate, accounting), size);
    let (large, small, short) = (clean(link.accounting, full)?, clean(link.accounting, SMALL)?, clean(fewer, SMALL)?);
    let text = match (large, small, short) {
        (true, true, false) => {
            session.note("the overhead is confirmed: clean with it, not with 20 bytes less");
            return Ok(());
        }
        (true, true, true) => "20 bytes of overhead less would do no harm on this line".to_owned(),
        _ => format!("{rate} is not clean with the overhead found: it may be too small"),
    };
    session.doubt("overhead-unconfirmed", text);
    Ok(())
}

fn trial(session: &mut Session, before: &Before, cake: Cake, size: u32) -> Result<bool, Halt> {
    let attempt = Attempt {
        step: Step::Confirm,
        setting: session.setting.with(Direction::Upload, Shaping::Cake(cake)),
        loads: vec![Load { mss: size - 40, ..session.load(Direction::Upload) }],
        duration: EACH,
        ends: Ends::OnceCertain,
    };
    let idle = session.idle.clone().unwrap_or_default();
    let judge = Judge { bound: before.bound, idle: &idle, packet_bytes: size, policed: false };
    match session.run(&attempt, &judge)?.1 {
        Verdict::Clean { .. } => Ok(true),
        Verdict::Bloated(_) | Verdict::Inconclusive(super::verdict::Doubtful::Unsure { .. }) => Ok(false),
        Verdict::Inconclusive(why) => Err(why.into()),
    }
}
