//! What SQM needs of the rest of the router.

use super::devices::Site;
use super::owners::starts;
use super::{Code, Facts, Findings};
use crate::openwrt::state::Place;
use crate::units::Direction;
use std::time::{Duration, UNIX_EPOCH};

/// A clock before this has not been set since the router started (2025-01-01): certificates are then not valid yet.
const EARLIEST: Duration = Duration::from_secs(1_735_689_600);
/// A configuration and its copy take a few kilobytes each; flash needs some to move things about.
const LEAST_FREE_BYTES: u64 = 64 * 1024;
/// Modules of vendors and others that take packets past the qdiscs.
const ACCELERATORS: [&str; 5] = ["shortcut_fe", "shortcut_fe_cm", "fast_classifier", "qca_nss_ecm", "ecm"];

pub fn examine(sites: &[Site], facts: &Facts, findings: &mut Findings) {
    let init = facts.started_at_boot.as_ref().is_some_and(|links| !links.iter().any(|link| starts(link, "sqm")));
    if init {
        let text = "SQM is not started with the router: after the next restart nothing is shaped, and a new connection does not \
                    start it either";
        findings.add(Code::DisabledInit, "/etc/rc.d", text, "/etc/init.d/sqm enable");
    }
    offload(facts, findings);
    stale_lock(facts, findings);
    modules(sites, facts, findings);
    surroundings(facts, findings);
}

pub fn offload(facts: &Facts, findings: &mut Findings) {
    let defaults = facts.firewall.as_ref().and_then(|firewall| firewall.of_kind("defaults").next());
    let is = |option: &str, words: &[&str]| {
        defaults.and_then(|defaults| defaults.get(option)).is_some_and(|value| words.contains(&value))
    };
    // The firewall asks for hardware only where it offloads at all.
    let off = is("flow_offloading", &["0", "off", "false", "no", "disabled"]);
    if is("flow_offloading_hw", &["1", "on", "true", "yes", "enabled"]) && !off {
        let text = "hardware flow offloading is on: the switch forwards most packets by itself, past SQM, which then shapes \
                    nothing";
        let fix =
            "uci set firewall.@defaults[0].flow_offloading_hw='0'; uci commit firewall; /etc/init.d/firewall restart";
        findings.add(Code::HardwareOffload, "firewall.@defaults[0].flow_offloading_hw", text, fix);
    } else if let Some(module) = facts.loaded.iter().find(|module| ACCELERATORS.contains(&module.as_str())) {
        let text = format!("the accelerator {module} is loaded: it forwards most packets by itself, past SQM");
        findings.add(Code::HardwareOffload, "/proc/modules", text, "Turn the vendor's acceleration off");
    }
}

pub fn stale_lock(facts: &Facts, findings: &mut Findings) {
    let (Some(owner), Some(processes)) = (facts.lock, &facts.processes) else { return };
    if !processes.contains_key(&owner) {
        let text = format!(
            "SQM's run lock belongs to process {owner}, which is gone: every start of SQM waits ten seconds and gives up"
        );
        let lock = "/var/run/sqm/sqm-run.lock";
        findings.add(Code::StaleLock, lock, text, format!("rm -r {lock}; /etc/init.d/sqm restart"));
    }
}

fn modules(sites: &[Site], facts: &Facts, findings: &mut Findings) {
    let Some(modules) = &facts.modules else { return };
    let has = |name: &str| modules.iter().chain(&facts.loaded).any(|module| module == name);
    let cake = sites.iter().any(|site| site.queue.is_cake());
    let ifb = sites.iter().any(|site| site.queue.acts_as_kbit(Direction::Download).is_some());
    let live = |kind: &str| facts.live.qdiscs.iter().flatten().any(|qdisc| qdisc.kind == kind);
    let runs = live("cake") || sites.iter().any(|site| facts.live.at(site.device(), Place::Ingress).is_some());
    for (wanted, module, package, what) in [
        (cake, "sch_cake", "kmod-sched-cake", "CAKE"),
        (ifb, "ifb", "kmod-ifb", "the device that downloads are shaped on"),
    ] {
        if wanted && !runs && !has(module) {
            let text = format!("the kernel module {module} is not installed: there is no {what}, and SQM cannot start");
            let fix =
                format!("opkg update && opkg install {package}, or on OpenWrt 25.12 and later: apk add {package}");
            findings.add(Code::MissingModule, format!("/lib/modules/{module}.ko"), text, fix);
        }
    }
}

fn surroundings(facts: &Facts, findings: &mut Findings) {
    if facts.default_route == Some(false) {
        let text = "there is no default route: the router has no connection, and nothing can be measured";
        findings.add(
            Code::NoDefaultRoute,
            "/proc/net/route",
            text,
            "Bring the WAN up first (ifup wan; logread -e netifd)",
        );
    }
    let since = facts.machine.now.map(|now| now.duration_since(UNIX_EPOCH).unwrap_or_default());
    if since.is_some_and(|since| since < EARLIEST) {
        let text = "the clock is wrong, so that HTTPS servers are refused and a history has no order";
        findings.add(Code::WrongClock, "date", text, "Let NTP set it (/etc/init.d/sysntpd restart)");
    }
    no_space(facts, findings);
}

pub fn no_space(facts: &Facts, findings: &mut Findings) {
    if let Some(free) = facts.machine.free_bytes.filter(|free| *free < LEAST_FREE_BYTES) {
        let text = format!("only {free} bytes are free where the configuration is kept: a change cannot be written");
        findings.add(Code::NoSpace, "/overlay", text, "Remove packages or files (df -h /overlay)");
    }
}
