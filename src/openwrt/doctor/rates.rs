//! Rates against what the port, the modem and the last calibration say.

use super::devices::Site;
use super::{Code, Facts, Findings};
use crate::openwrt::network::Side;
use crate::openwrt::queue::{Setting, option_of};
use crate::units::Direction;

/// 1 Gbit/s as kbit/s: whoever writes so much may mean bit/s (contract).
const SUSPICIOUS_KBIT: u64 = 1_000_000;
/// What no home router shapes. Where nothing is known of the device, from here on it is absurd.
const MOST_KBIT: u64 = 10_000_000;
/// The most that a DSL line does is far below (G.fast: 1 Gbit/s).
const MOST_DSL_KBIT: u64 = 1_000_000;
/// So many times the modem's rate is no margin any more.
const ABSURD_TIMES_SYNC: u64 = 10;
/// Of a port's speed: the rest are the gaps and preambles between frames (C10: 92 of 100 Mbit/s).
const MOST_OF_PORT: f64 = 0.92;
/// Of the measured capacity (contract).
const FAR_BELOW: f64 = 0.6;

const DIRECTIONS: [Direction; 2] = [Direction::Upload, Direction::Download];

pub fn examine(site: &Site, facts: &Facts, findings: &mut Findings) {
    let sync = site.sync(facts);
    let sync = |direction| if direction == Direction::Upload { sync.0 } else { sync.1 };
    let port = site.port(facts);
    let limit = |direction| most_kbit(site, port.map(|(_, kbit)| kbit), sync(direction));
    let absurd = |direction| {
        let written = site.queue.written_kbit(direction).filter(|kbit| *kbit >= SUSPICIOUS_KBIT);
        written.is_some_and(|kbit| is_above(kbit, limit(direction)) && !is_above(kbit / 1000, limit(direction)))
    };
    let any_absurd = DIRECTIONS.into_iter().any(absurd);
    for direction in DIRECTIONS {
        let (name, place) = (option_of(direction), site.queue.at(option_of(direction)));
        match site.queue.setting(direction) {
            Setting::Missing { acts_as_kbit } => findings.add(
                Code::MissingRate,
                &place,
                format!("no {name} rate is set, and SQM then takes {acts_as_kbit} kbit/s, whatever the line can do"),
                format!("Set the rate in kbit/s, or 0 to leave it unshaped (uci set {place}='0')"),
            ),
            Setting::NoNumber(text) => findings.add(
                Code::BadRate,
                &place,
                format!("the {name} rate '{text}' is no whole number, so that SQM does not shape it"),
                "Write kbit/s without a unit, for example 17100",
            ),
            Setting::Kbit(_) => {}
        }
        let Some(kbit) = site.queue.written_kbit(direction) else { continue };
        // Who has mistaken the unit once has done so twice.
        if absurd(direction) || any_absurd && kbit >= SUSPICIOUS_KBIT {
            let text = format!(
                "the {name} rate {kbit} is taken as kbit/s, which is {} Mbit/s: far more than {} can carry, so that nothing \
                 is shaped. It looks like bit/s",
                kbit / 1000,
                site.device()
            );
            findings.add(Code::BitPerS, &place, text, format!("uci set {place}='{}'", kbit / 1000));
            continue;
        }
        if site.side != Some(Side::Home) && site.side != Some(Side::Tunnel) {
            above_sync(kbit, sync(direction), name, &place, findings);
            far_below_line(site, facts, direction, kbit, findings);
        }
        if let Some((port, speed)) = port.filter(|(_, speed)| kbit as f64 > *speed as f64 * MOST_OF_PORT) {
            let text = format!(
                "the {name} rate of {kbit} kbit/s is above what the port {port} carries at {} Mbit/s once frames and their \
                 gaps are counted, so that packets queue in the port and not in SQM",
                speed / 1000
            );
            let fix = format!("Set at most {} (92 %), or use a faster port", (speed as f64 * MOST_OF_PORT) as u64);
            findings.add(Code::PortSpeed, &place, text, fix);
        }
    }
}

fn most_kbit(site: &Site, port: Option<u64>, sync: Option<u64>) -> Limit {
    use crate::openwrt::device::Medium;
    let by_sync = sync.map(|kbit| kbit * ABSURD_TIMES_SYNC);
    match (port, by_sync) {
        (port, Some(sync)) => Limit::UpTo(port.map_or(sync, |port| port.min(sync))),
        (Some(port), None) => Limit::UpTo(port),
        (None, None) if site.wan.and_then(|wan| wan.medium) == Some(Medium::Dsl) => Limit::UpTo(MOST_DSL_KBIT),
        (None, None) => Limit::Below(MOST_KBIT),
    }
}

#[derive(Clone, Copy)]
enum Limit {
    UpTo(u64),
    Below(u64),
}

fn is_above(kbit: u64, limit: Limit) -> bool {
    match limit {
        Limit::UpTo(most) => kbit > most,
        Limit::Below(most) => kbit >= most,
    }
}

fn above_sync(kbit: u64, sync: Option<u64>, name: &str, place: &str, findings: &mut Findings) {
    if let Some(sync) = sync.filter(|sync| kbit > *sync) {
        let text = format!(
            "the {name} rate of {kbit} kbit/s is above the {sync} that the modem reports: packets queue in the modem, and SQM \
             does nothing against it"
        );
        findings.add(
            Code::AboveSync,
            place,
            text,
            format!("Set about 95 % of it: uci set {place}='{}'", sync * 95 / 100),
        );
    }
}

fn far_below_line(site: &Site, facts: &Facts, direction: Direction, kbit: u64, findings: &mut Findings) {
    let Some(last) = facts.outcomes.iter().find(|last| last.line == site.device()) else { return };
    let capacity = match direction {
        Direction::Upload => last.upload.capacity_kbit,
        Direction::Download => last.download.capacity_kbit,
    };
    let Some(capacity) = capacity.filter(|capacity| (kbit as f64) < *capacity as f64 * FAR_BELOW) else { return };
    let name = option_of(direction);
    let text = format!(
        "the {name} rate of {kbit} kbit/s is {} % of the {capacity} that the line drained when it was last measured: the rest is \
         given away",
        kbit * 100 / capacity
    );
    findings.add(
        Code::FarBelowLine,
        site.queue.at(name),
        text,
        "Run sqm-autotune calibrate, or raise it if that was not on purpose",
    );
}

/// A queue inside a tunnel that lets through more than the WAN's queue does.
pub fn nested(sites: &[Site], findings: &mut Findings) {
    let wan = sites.iter().find(|site| site.side == Some(Side::Out));
    let Some(carrier) = wan.or_else(|| sites.iter().find(|site| site.side.is_none())) else { return };
    for tunnel in sites.iter().filter(|site| site.side == Some(Side::Tunnel)) {
        let above = DIRECTIONS.into_iter().filter_map(|direction| {
            let name = option_of(direction);
            let (inner, outer) = (tunnel.queue.written_kbit(direction)?, carrier.queue.written_kbit(direction)?);
            let misread = [tunnel, carrier].iter().any(|site| findings.has(Code::BitPerS, &site.queue.at(name)));
            (inner > outer && !misread).then(|| (name, format!("{name} {inner} kbit/s inside {outer}")))
        });
        let above: Vec<(&str, String)> = above.collect();
        let Some((first, _)) = above.first() else { continue };
        let rates: Vec<&str> = above.iter().map(|(_, rates)| rates.as_str()).collect();
        let text = format!(
            "{} is carried by {}, whose queue is the narrower one ({}): the rate here is never reached and does nothing",
            tunnel.device(),
            carrier.device(),
            rates.join(", ")
        );
        findings.add(Code::NestedQueues, tunnel.queue.at(first), text, "Shape the WAN only, or set less here");
    }
}
