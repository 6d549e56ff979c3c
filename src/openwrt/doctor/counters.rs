//! What the shapers have counted.

use super::devices::Site;
use super::live;
use super::{Code, Facts, Findings};
use crate::openwrt::queue::option_of;
use crate::openwrt::state::{Cake, Place, Qdisc, RouterState, Tin};
use crate::units::{Direction, Rate};

/// Sixty flows at 17 Mbit/s keep CAKE's queue at four times its target (measured, facts B); a device below that does not drain,
/// at seven times and more (C49).
const FAR_ABOVE_TARGET: u64 = 6;
/// Below this share of the rate it is not the shaper that makes the queue.
const BELOW_RATE: f64 = 0.8;
/// Of the incoming packets (contract).
const FLOOD: f64 = 0.95;
/// Fewer packets prove nothing.
const ENOUGH_PACKETS: u64 = 100;
/// Where the first tin is Bulk, with a sixteenth of the rate.
const WITH_BULK: [&str; 2] = ["diffserv3", "diffserv4"];

pub fn examine(site: &Site, facts: &Facts, findings: &mut Findings) {
    let through = live::ifb(site.queue, &facts.live);
    let shapers = [(Direction::Upload, facts.live.at(site.device(), Place::Root)), (Direction::Download, through)];
    for (direction, qdisc) in shapers {
        let Some((qdisc, cake)) = qdisc.and_then(|qdisc| Some((qdisc, qdisc.cake.as_ref()?))) else { continue };
        if site.queue.acts_as_kbit(direction).is_none() {
            continue;
        }
        let place = site.queue.at(option_of(direction));
        slow_below(qdisc, cake, facts, &place, findings);
        if direction == Direction::Download {
            flooded(site, cake, &place, findings);
        }
    }
}

fn slow_below(qdisc: &Qdisc, cake: &Cake, facts: &Facts, place: &str, findings: &mut Findings) {
    let (Some(rate), Some(tin)) = (cake.rate, main_tin(cake)) else { return };
    if !is_slow(tin) {
        return;
    }
    // Without a second look: what waits now, over how long it waits (Little's law), is what drains.
    let waited = std::time::Duration::from_micros(tin.average_delay_us);
    let drains = facts.live.throughput.get(&qdisc.device).copied();
    let drains = drains.unwrap_or_else(|| Rate::of(qdisc.backlog_bytes as f64, waited));
    if drains.ratio(rate) < BELOW_RATE {
        let text = format!(
            "packets wait {} ms in the queue of {} (CAKE aims at {}) although less gets through than the {} kbit/s that are set: \
             what comes after CAKE cannot take it",
            tin.average_delay_us / 1000,
            qdisc.device,
            tin.target_us / 1000,
            rate.kbit()
        );
        let fix = "Look at the port, its cable, duplex and flow control, at the modem and the processor; a lower rate helps, \
                   another target does not";
        findings.add(Code::SlowerThanRate, place, text, fix);
    }
}

/// Whether some queue is so long that what gets through it decides.
pub fn worth_a_second_look(live: &RouterState) -> bool {
    let cakes = live.qdiscs.iter().flatten().filter_map(|qdisc| qdisc.cake.as_ref());
    cakes.filter_map(main_tin).any(is_slow)
}

fn is_slow(tin: &Tin) -> bool {
    tin.target_us > 0 && tin.average_delay_us > tin.target_us * FAR_ABOVE_TARGET
}

/// The one that most goes through; Bulk may wait.
fn main_tin(cake: &Cake) -> Option<&Tin> {
    let bulk = WITH_BULK.contains(&cake.diffserv.as_str()) && cake.tins.len() > 1;
    cake.tins.iter().skip(usize::from(bulk)).max_by_key(|tin| tin.packets)
}

fn flooded(site: &Site, cake: &Cake, place: &str, findings: &mut Findings) {
    let all: u64 = cake.tins.iter().map(|tin| tin.packets).sum();
    let Some(bulk) = cake.tins.first().filter(|_| WITH_BULK.contains(&cake.diffserv.as_str())) else { return };
    if all >= ENOUGH_PACKETS && bulk.packets as f64 > all as f64 * FLOOD {
        let text = format!(
            "{} of {all} incoming packets are marked as Bulk, which gets a sixteenth of the rate when others want it: somebody \
             upstream marks everything, and the line stalls every few seconds",
            bulk.packets
        );
        let fix =
            format!("Use piece_of_cake.qos, or ignore the marks: uci set {}='1'", site.queue.at("squash_ingress"));
        findings.add(Code::BulkTinFlood, place, text, fix);
    }
}
