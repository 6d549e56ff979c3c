//! Whether a queue is on a device, and on which side of the router.

use super::{Code, Facts, Findings};
use crate::openwrt::device::{Medium, Stack, medium_of};
use crate::openwrt::link::Link;
use crate::openwrt::network::{Network, Pick, Side, Wan};
use crate::openwrt::queue::Queue;

/// A queue and what its device is.
pub struct Site<'a> {
    pub queue: &'a Queue<'a>,
    pub wan: Option<&'a Wan>,
    pub side: Option<Side>,
}

/// Names of devices that no port is behind, or not directly.
const VIRTUAL: [&str; 12] =
    ["br", "veth", "ifb", "tun", "tap", "wg", "bond", "dummy", "docker", "pppoe-", "pppoa-", "lo"];

impl<'a> Site<'a> {
    pub fn of(queue: &'a Queue<'a>, facts: &'a Facts) -> Self {
        let wans = &facts.inventory.wans;
        let device = queue.interface;
        let wan = wans.on(device);
        let on = |side: Side| wans.networks.iter().any(|network| network.side == Some(side) && network.is_on(device));
        let side = if wan.is_some() {
            Some(Side::Out)
        } else if on(Side::Tunnel) || (!on(Side::Home) && is_called_tunnel(device)) {
            Some(Side::Tunnel)
        } else if on(Side::Home) || is_called_home(device) {
            Some(Side::Home)
        } else {
            None
        };
        Self { queue, wan, side }
    }

    pub fn device(&self) -> &str {
        self.queue.interface
    }

    fn pick(&self) -> Pick {
        Pick::Device(self.device().into())
    }

    /// The kind of link, if this is a WAN.
    pub fn line(&self, facts: &Facts) -> Option<Link> {
        self.wan.and_then(|_| facts.inventory.link(Some(&self.pick())).ok())
    }

    /// Upload and download in kbit/s, as the modem or the user says.
    pub fn sync(&self, facts: &Facts) -> (Option<u64>, Option<u64>) {
        let sync = self.wan.and_then(|_| facts.inventory.sync(Some(&self.pick())).ok());
        sync.map_or((None, None), |sync| (sync.upload_kbit, sync.download_kbit))
    }

    /// The port below, and its speed.
    pub fn port<'f>(&self, facts: &'f Facts) -> Option<(&'f str, u64)> {
        let stack = match self.wan {
            Some(wan) if !wan.stack.devices.is_empty() => wan.stack.clone(),
            _ => Stack::of(self.device(), facts.inventory.network.as_ref()),
        };
        let (name, port) = facts.ports.as_ref()?.get_key_value(stack.bottom())?;
        let is_port = medium_of(name) == Medium::Ethernet && !VIRTUAL.iter().any(|prefix| name.starts_with(prefix));
        let speed = port.speed.filter(|_| is_port)?;
        Some((name, speed * 1000))
    }
}

impl Network {
    fn is_on(&self, device: &str) -> bool {
        self.device.as_deref() == Some(device)
            || (self.side == Some(Side::Home) && self.stack.devices.iter().any(|d| d == device))
    }
}

/// What nobody else knows, by the names that people give.
fn is_called_tunnel(device: &str) -> bool {
    ["wg", "tun", "tap"].iter().any(|prefix| device.starts_with(prefix)) || device.contains("vpn")
}

fn is_called_home(device: &str) -> bool {
    let port = device.strip_prefix("lan").is_some_and(|rest| rest.bytes().all(|digit| digit.is_ascii_digit()));
    port || device == "br-lan" || device.starts_with("br-lan.") || medium_of(device) == Medium::WiFi
}

/// Whether the device is there, so that one can look at what runs on it.
pub fn examine(site: &Site, facts: &Facts, findings: &mut Findings) -> bool {
    let (device, place) = (site.device(), site.queue.at("interface"));
    if device.is_empty() {
        let text = "no interface is named, so that SQM has nothing to shape";
        findings.add(Code::UnknownDevice, place, text, "Name the WAN's device, for example pppoe-wan");
        return false;
    }
    let Some(ports) = &facts.ports else {
        lan(site, findings);
        return true;
    };
    if ports.contains_key(device) {
        lan(site, findings);
        return !ports[device].is_down;
    }
    if site.wan.is_some_and(|wan| facts.inventory.has_netifd && !wan.up && wan.device.as_deref() == Some(device)) {
        // A PPPoE device comes with the connection, and SQM with it.
        return false;
    }
    let wans = &facts.inventory.wans;
    let logical = wans.networks.iter().find(|network| network.name == device.trim_start_matches('@'));
    match logical.and_then(|network| network.device.as_deref()) {
        Some(real) if !device.starts_with('@') => findings.add(
            Code::LogicalName,
            &place,
            format!(
                "{device} is the name of a network, its device is {real}: SQM finds no device {device} and shapes nothing"
            ),
            format!("uci set {place}='{real}'"),
        ),
        real => {
            let instead = real.map(str::to_owned).or_else(|| wans.found.iter().find_map(|wan| wan.device.clone()));
            let fix = match instead {
                Some(wan) => format!("uci set {place}='{wan}', if the WAN is meant"),
                None => "Name the WAN's device, for example pppoe-wan (ip link lists all)".into(),
            };
            let alias = if device.starts_with('@') { ", an @ name is known to the network configuration only" } else { "" };
            let text = format!("there is no network device {device}{alias}: this queue shapes nothing");
            findings.add(Code::UnknownDevice, place, text, fix);
        }
    }
    false
}

fn lan(site: &Site, findings: &mut Findings) {
    if site.side == Some(Side::Home) {
        let text = format!(
            "{} is on the home side, where upload and download mean the opposite: upload limits what the clients download, \
             and traffic between them as well",
            site.device()
        );
        let fix = "If the internet line is meant, put the queue on the WAN's device; if not, read the two rates the other way round";
        findings.add(Code::LanQueue, site.queue.at("interface"), text, fix);
    }
}
