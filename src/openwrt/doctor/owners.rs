//! Other programs that set the rate of the same device.

use super::devices::Site;
use super::{Code, Facts, Findings};
use crate::openwrt::network::Wan;
use crate::openwrt::uci::Config;
use serde_json::Value;

/// Those that are about, and the files that say which device they have.
const OWNERS: [&str; 4] = ["cake-autorate", "sqm-autorate", "qosify", "qosmate"];
pub const CONFIGURED: [&str; 3] = ["sqm-autorate", "qosify", "qosmate"];

const INTERPRETERS: [&str; 7] = ["sh", "ash", "bash", "lua", "luajit", "ucode", "python3"];

pub fn examine(sites: &[Site], facts: &Facts, findings: &mut Findings) {
    for owner in OWNERS.into_iter().filter(|owner| is_active(owner, facts)) {
        if let Some(site) = sites.iter().find(|site| is_told(owner, site.device(), site.wan, facts)) {
            tell(owner, site.device(), site.queue.at("interface"), findings);
        }
    }
}

/// Of a device that may have no queue yet.
pub fn examine_device(device: &str, facts: &Facts, findings: &mut Findings) {
    let wan = facts.inventory.wans().on(device);
    for owner in OWNERS.into_iter().filter(|owner| is_active(owner, facts) && is_told(owner, device, wan, facts)) {
        tell(owner, device, device.into(), findings);
    }
}

fn tell(owner: &str, device: &str, place: String, findings: &mut Findings) {
    let text = format!(
        "{owner} runs and sets the rate of {device} too: what is configured here does not stay, and a calibration measures \
         against a moving rate"
    );
    let fix = format!("Decide for one of them: /etc/init.d/{owner} stop; /etc/init.d/{owner} disable");
    findings.add(Code::OtherOwner, place, text, fix);
}

/// Whether its configuration has the device, by its own name or by that of the network on it; one that does not say has all.
fn is_told(owner: &str, device: &str, wan: Option<&Wan>, facts: &Facts) -> bool {
    let named = facts.others.get(owner).and_then(|config| devices(owner, config));
    let is_it = |name: &String| name == device || wan.is_some_and(|wan| wan.is_called(name));
    named.is_none_or(|names| names.iter().any(is_it))
}

/// Running, or started with the router.
fn is_active(owner: &str, facts: &Facts) -> bool {
    let at_boot = facts.started_at_boot.iter().flatten().any(|link| starts(link, owner));
    let instances = facts.services.as_ref().and_then(|services| services.get(owner)?.get("instances")?.as_object());
    let running = instances.is_some_and(|instances| {
        instances.values().any(|instance| instance.get("running").and_then(Value::as_bool) == Some(true))
    });
    at_boot || running || facts.processes.iter().flat_map(|processes| processes.values()).any(|line| runs(line, owner))
}

/// The program itself, or the script that an interpreter runs.
fn runs(line: &str, owner: &str) -> bool {
    let mut words = line.split_whitespace().map(|word| word.rsplit('/').next().unwrap_or_default());
    let first = words.next().unwrap_or_default();
    let script = words.next().filter(|_| INTERPRETERS.contains(&first));
    script.unwrap_or(first).starts_with(owner)
}

/// `S97NAME`.
pub fn starts(link: &str, name: &str) -> bool {
    link.strip_prefix('S').is_some_and(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()) == name)
}

/// Which devices or networks a program is told to manage; `None` where its file does not say. An empty list: none.
fn devices(owner: &str, config: &Config) -> Option<Vec<String>> {
    let off = |value: Option<&str>| matches!(value, Some("0" | "off" | "false" | "no"));
    let values = |options: &[&str]| {
        let all = config.sections.iter().flat_map(|section| options.iter().filter_map(|option| section.get(option)));
        all.map(str::to_owned).collect::<Vec<_>>()
    };
    let named = match owner {
        "qosify" => {
            let enabled = |section: &&crate::openwrt::uci::Section| section.get("disabled") != Some("1");
            let of_kind = ["interface", "device"].into_iter().flat_map(|kind| config.of_kind(kind)).filter(enabled);
            let names = of_kind.filter_map(|section| section.get("name").or(section.name.as_deref()));
            return Some(names.map(str::to_owned).collect());
        }
        _ if config.sections.iter().any(|section| off(section.get("enabled"))) => return Some(Vec::new()),
        "qosmate" => values(&["WAN"]),
        _ => values(&["transmit_interface", "receive_interface", "upload_interface", "download_interface"]),
    };
    (!named.is_empty()).then_some(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_looks_for_a_program_is_not_that_program() {
        assert!(runs("/bin/bash /root/cake-autorate/cake-autorate.sh", "cake-autorate"));
        assert!(runs("/usr/sbin/qosify -o", "qosify"));
        assert!(!runs("grep qosify", "qosify") && !runs("", "qosify"));
    }
}
