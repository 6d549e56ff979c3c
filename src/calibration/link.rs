//! The link step: saturate the line with segments of several sizes, and find what each packet costs on the wire.

mod fit;

use self::fit::{DECISIVE, LinkFit, SizeRate, accounting_to_write, conventional};
use super::capacity::Capacity;
use super::estimate::Measurement;
use super::outcome::{self, Layer, LinkSource};
use super::session::{Attempt, Ends, Halt, Session};
use super::stats::{mean, squares};
use super::verdict::{CPU_FULL, CleanBound, Doubtful, Judge, MAX_SENDER_LIMITED, Verdict};
use crate::line::{Accounting, Cells, LinkType, Load, Shaping, Step};
use crate::units::{Direction, Rate};
use std::time::Duration;

/// Packets of these sizes (IP bytes), in the order of what they tell: the smallest gives the overhead, the next tells
/// frames from cells, the others settle what is still open.
const SIZES: [u32; 5] = [256, 576, 136, 256, 1000];
/// No smaller packets than the router and the server can send so many of a second. Past 8,000 a weak core shows it
/// (facts A), which its load tells; this is where even a good one does.
const MAX_PACKETS_PER_S: f64 = 30_000.0;
/// One size for so long: a standard error of about a thousandth.
pub const EACH: Duration = Duration::from_secs(5);
/// A queue of less than this on average is not certain to have never been empty.
const SATURATED_MS: f64 = 2.0;
/// A packet rate is never known better than this: clocks, counters that are read between two packets.
const LEAST_ERROR: f64 = 0.0005;
/// Squared residuals per degree of freedom that a model may leave.
const MOST_MISFIT: f64 = 9.0;

/// What the step found out.
pub struct Found {
    pub link: outcome::Link,
    /// With which the shaper is to count from now on.
    pub accounting: Accounting,
    /// The least that a packet costs for certain: `accounting` may count more, to be safe.
    pub certain: Accounting,
    /// What the bottleneck drains, counted as the line itself counts. `None`: not measured.
    pub capacity: Option<Rate>,
}

/// What is used without a measurement: generous, by the type of the link.
pub fn prior(link: LinkType) -> Found {
    let accounting = link.prior();
    let layer = match link {
        LinkType::PppoeVdsl2 => Layer::Ptm,
        LinkType::PppoeAtm | LinkType::Pppoa => Layer::Atm,
        LinkType::Docsis | LinkType::Ethernet | LinkType::Pppoe => Layer::Ethernet,
        LinkType::Lte | LinkType::Unknown => Layer::Unknown,
    };
    let link = outcome::Link {
        layer,
        overhead: Some(accounting.overhead),
        overhead_low: None,
        overhead_high: None,
        mpu: accounting.mpu,
        source: if link == LinkType::Unknown { LinkSource::Default } else { LinkSource::LinkType },
        write_layer: accounting.cells.into(),
        write_overhead: accounting.overhead,
        write_mpu: accounting.mpu,
    };
    // On ATM the generous prior may count a cell too much: the least overhead there is 8 bytes (facts C).
    let certain = match accounting.cells {
        Cells::Atm => Accounting { overhead: 8, ..accounting },
        Cells::None | Cells::Ptm => accounting,
    };
    Found { link, accounting, certain, capacity: None }
}

/// Measures overhead and cells; `full` is the unshaped trial with full-size packets, and
/// `capacity` what it showed. Where the line cannot tell, the
/// link type's prior stays, with a doubt that says why.
pub fn measure(session: &mut Session, full: &Measurement, capacity: Capacity) -> Result<Found, Halt> {
    let mut rates = vec![size_rate(full, capacity.packets_per_s(), session.packet_bytes())];
    let bytes_per_s = full.packets_per_s * f64::from(session.packet_bytes());
    let affordable = |size: &u32| bytes_per_s / f64::from(*size) <= MAX_PACKETS_PER_S;
    let sizes: Vec<u32> = SIZES.into_iter().filter(affordable).collect();
    if sizes.first().is_none_or(|smallest| *smallest * 2 > session.packet_bytes()) {
        return Ok(unknown(session, "the line is too fast to fill it with small packets from here"));
    }
    for size in sizes {
        let measured = match saturate(session, size)? {
            Ok(measured) => measured,
            Err(why) => return Ok(unknown(session, &why)),
        };
        rates.push(size_rate(&measured, measured.packets_per_s, size));
        if let Some(fit) = fit::fit(&rates).filter(|fit| decided(fit, session.packet_bytes(), rates.len())) {
            return Ok(found(session, &fit));
        }
    }
    Ok(match fit::fit(&rates) {
        Some(fit) if !explains(&fit, rates.len()) => {
            unknown(session, "neither frames nor cells explain the packet rates: the line did not keep its rate")
        }
        Some(fit) if fit.preferred_by >= DECISIVE => found(session, &fit),
        _ => unknown(session, "the packet rates do not tell frames from cells within the time allowed"),
    })
}

/// The unshaped line under packets of one size; in words why that told nothing.
fn saturate(session: &mut Session, size: u32) -> Result<Result<Measurement, String>, Halt> {
    let load = Load { mss: size - 40, ..session.load(Direction::Upload) };
    let attempt = Attempt {
        step: Step::Link,
        setting: session.setting.with(Direction::Upload, Shaping::Unshaped),
        loads: vec![load],
        duration: EACH,
        ends: Ends::IfInvalid,
    };
    let idle = session.idle.clone().unwrap_or_default();
    let bound = CleanBound::at_any_rate(None, &idle);
    let judge = Judge { bound, idle: &idle, packet_bytes: size, policed: false };
    let (measured, verdict) = session.run(&attempt, &judge)?;
    if let Verdict::Inconclusive(why) = verdict
        && !matches!(why, Doubtful::Unsure { .. } | Doubtful::LoadLimited { .. })
    {
        return Err(why.into());
    }
    Ok(if measured.busiest_core.is_some_and(|core| core >= CPU_FULL) {
        Err(format!("the router's CPU is full with packets of {size} bytes"))
    } else if measured.sender_limited > MAX_SENDER_LIMITED || measured.added_p50_ms.unwrap_or(0.0) < SATURATED_MS {
        Err(format!("packets of {size} bytes did not fill the line"))
    } else {
        Ok(measured)
    })
}

fn size_rate(measured: &Measurement, packets_per_s: f64, size: u32) -> SizeRate {
    let windows = &measured.windows;
    let n = windows.len() as f64;
    let scatter = mean(windows).map_or(1.0, |mean| (squares(windows) / (n - 1.0) / n).sqrt() / mean);
    SizeRate {
        packet_bytes: f64::from(size),
        packets_per_s,
        beside: measured.beside().map(|(per_s, bytes)| (per_s, f64::from(bytes))),
        relative_error: if scatter.is_finite() { scatter.max(LEAST_ERROR) } else { 1.0 },
    }
}

fn explains(fit: &LinkFit, rates: usize) -> bool {
    fit.misfit <= MOST_MISFIT * (rates.saturating_sub(2)).max(1) as f64
}

/// Is the interval small enough to write the same whatever the truth in it?
fn decided(fit: &LinkFit, full_size: u32, rates: usize) -> bool {
    if rates < 3 || fit.preferred_by < DECISIVE || !explains(fit, rates) {
        return false;
    }
    match fit.cells {
        Cells::None | Cells::Ptm => conventional(fit.low) == conventional(fit.high) || fit.high - fit.low <= 1.5,
        Cells::Atm => {
            let cells = |overhead: f64| ((f64::from(full_size) + overhead) / 48.0).ceil() as u32;
            cells(fit.low) == cells(fit.high)
        }
    }
}

fn found(session: &mut Session, fit: &LinkFit) -> Found {
    let link = session.facts.link;
    let prior = link.prior();
    if prior.cells != fit.cells && link != LinkType::Unknown {
        let (measured, said) = if fit.cells == Cells::Atm { ("cells", "frames") } else { ("frames", "cells") };
        session.doubt(
            "link-mismatch",
            format!("the link's type says {said}, the packet rates say {measured}; those count"),
        );
    }
    let mpu = if prior.mpu == 0 { Accounting { ..LinkType::Unknown.prior() }.mpu } else { prior.mpu };
    let accounting = accounting_to_write(fit, mpu, session.packet_bytes());
    let layer = match fit.cells {
        Cells::Atm => Layer::Atm,
        _ if link == LinkType::PppoeVdsl2 => Layer::Ptm,
        _ => Layer::Ethernet,
    };
    let link = outcome::Link {
        layer,
        overhead: Some(fit.overhead.round() as i32),
        overhead_low: Some(fit.low.floor() as i32),
        overhead_high: Some(fit.high.ceil() as i32),
        mpu: 0,
        source: LinkSource::Measured,
        write_layer: accounting.cells.into(),
        write_overhead: accounting.overhead,
        write_mpu: accounting.mpu,
    };
    let certain = Accounting { overhead: fit.low.floor() as i32, mpu: 0, cells: fit.cells };
    Found { link, accounting, certain, capacity: Some(fit.capacity) }
}

fn unknown(session: &mut Session, why: &str) -> Found {
    session.doubt(
        "overhead-unknown",
        format!("the overhead could not be measured ({why}): the link type's usual one is used"),
    );
    prior(session.facts.link)
}
