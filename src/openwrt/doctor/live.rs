//! What runs against what is configured.

use super::devices::Site;
use super::{Code, Facts, Findings};
use crate::openwrt::network::Wan;
use crate::openwrt::queue::{Queue, option_of};
use crate::openwrt::state::{Place, Qdisc, RouterState};
use crate::units::{Direction, Rate};

/// Of the configured rate (contract).
const SAME_RATE: f64 = 0.01;
/// So near the other direction's rate, and not its own, a rate is taken for the other's (contract).
const SWAPPED: f64 = 0.1;
/// Before so many packets have come, nobody knows what becomes of them.
const ENOUGH_PACKETS: u64 = 10;

pub fn examine(site: &Site, facts: &Facts, findings: &mut Findings) {
    let (queue, live) = (site.queue, &facts.live);
    if live.qdiscs.is_none() {
        return;
    }
    let upload = queue.acts_as_kbit(Direction::Upload);
    let download = queue.acts_as_kbit(Direction::Download);
    let fix =
        format!("/etc/init.d/sqm restart, then look at logread -e SQM and tc -s qdisc show dev {}", site.device());
    if upload.is_some() && !runs(queue, live.at(site.device(), Place::Root), "interface", &fix, findings) {
        return;
    }
    let through = ifb(queue, live);
    if download.is_some() {
        let option = if upload.is_some() { "download" } else { "interface" };
        if runs(queue, through, option, &fix, findings) {
            fed(site, facts, through, findings);
        }
    }
    rates(site, live, through, findings);
}

/// The device that the download's shaper is on: called after this one, or the one that incoming packets are led to.
pub fn ifb<'a>(queue: &Queue, live: &'a RouterState) -> Option<&'a Qdisc> {
    let led = live.redirects.get(queue.interface).into_iter().flatten().cloned();
    let mut found = queue.ifbs().into_iter().chain(led).filter_map(|name| live.at(&name, Place::Root));
    let all: Vec<&Qdisc> = found.by_ref().collect();
    all.iter().find(|qdisc| qdisc.cake.is_some()).or(all.first()).copied()
}

/// Whether the queue's shaper is there.
fn runs(queue: &Queue, root: Option<&Qdisc>, option: &str, fix: &str, findings: &mut Findings) -> bool {
    let place = queue.at(option);
    let what = if option == "download" { "the download of this queue" } else { "this queue" };
    match root {
        Some(root) if root.cake.is_some() || root.set && !queue.has_cake_script() => true,
        Some(root) if root.set => {
            let text = format!(
                "{} has {} where {what} should have CAKE: something else has set it, and SQM does not shape here",
                root.device, root.kind
            );
            let fix = format!("Stop what sets {}, then /etc/init.d/sqm restart", root.kind);
            findings.add(Code::NotCake, place, text, fix);
            false
        }
        _ => {
            let there =
                root.map_or_else(String::new, |root| format!(" ({} has only the kernel's {})", root.device, root.kind));
            let text = format!("{what} is enabled and not running{there}: nothing is shaped");
            findings.add(Code::NotRunning, place, text, fix);
            false
        }
    }
}

fn fed(site: &Site, facts: &Facts, through: Option<&Qdisc>, findings: &mut Findings) {
    let (live, device, place) = (&facts.live, site.device(), site.queue.at("download"));
    let Some(through) = through else { return };
    let ingress = live.at(device, Place::Ingress);
    let led = live.redirects.get(device).is_none_or(|targets| targets.contains(&through.device));
    let restart = "/etc/init.d/sqm restart";
    if !led {
        let text = format!(
            "no filter leads what {device} receives to {}, where the download's shaper waits: downloads are not shaped",
            through.device
        );
        return findings.add(Code::NoRedirect, place, text, restart);
    }
    let came = ingress.is_some_and(|ingress| ingress.packets >= ENOUGH_PACKETS);
    // The device counts since it came to be; what was sent since SQM started tells that answers have come since, too.
    let sent = live.at(device, Place::Root).filter(|root| root.set);
    let received = facts.received.get(device).is_some_and(|packets| *packets >= ENOUGH_PACKETS);
    let received = received && sent.is_none_or(|sent| sent.packets >= ENOUGH_PACKETS);
    if through.packets == 0 && through.backlog_bytes == 0 && (came || received) {
        let text = format!(
            "{device} receives packets and none of them reaches {}: downloads are not shaped, as with some vendors' kernels \
             and accelerators",
            through.device
        );
        let below = site.wan.map(Wan::over).filter(|over| *over != device);
        let fix = match below {
            Some(below) => format!("Turn accelerators off, or put the queue on {below} below it"),
            None => format!("Turn accelerators and flow offloading off, then {restart}"),
        };
        findings.add(Code::IfbNotFed, place, text, fix);
    }
}

fn rates(site: &Site, live: &RouterState, through: Option<&Qdisc>, findings: &mut Findings) {
    let queue = site.queue;
    let rate = |qdisc: Option<&Qdisc>| qdisc?.cake.as_ref()?.rate.map(Rate::kbit);
    let live = [(Direction::Upload, rate(live.at(site.device(), Place::Root))), (Direction::Download, rate(through))];
    let set = |direction| queue.acts_as_kbit(direction);
    let near = |is: u64, wanted: u64, share: f64| (is as f64 - wanted as f64).abs() <= wanted as f64 * share;
    if let ([(_, Some(up)), (_, Some(down))], Some(set_up), Some(set_down)) =
        (live, set(Direction::Upload), set(Direction::Download))
    {
        let crossed = near(up, set_down, SWAPPED) && near(down, set_up, SWAPPED);
        if crossed && !near(up, set_up, SWAPPED) && !near(down, set_down, SWAPPED) {
            let text = format!(
                "the upload really runs with {up} kbit/s and the download with {down}: the two directions are swapped, so that \
                 one is throttled and the other not shaped at all"
            );
            let fix = "Set both rates again and /etc/init.d/sqm restart; if it comes back, look for another program that sets them";
            return findings.add(Code::DirectionsSwapped, queue.at("upload"), text, fix);
        }
    }
    for (direction, is) in live {
        let (Some(is), Some(wanted)) = (is, set(direction)) else { continue };
        if !near(is, wanted, SAME_RATE) {
            let name = option_of(direction);
            let text = format!(
                "the {name} really runs with {is} kbit/s and {wanted} is configured: another program has changed it, or SQM was \
                 not restarted"
            );
            findings.add(
                Code::RateDiffers,
                queue.at(name),
                text,
                "/etc/init.d/sqm restart, unless something else is meant to set the rate",
            );
        }
    }
}
