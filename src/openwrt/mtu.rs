//! The largest packet that each WAN takes, and the WireGuard tunnels that go through it.

use super::device::Medium;
use super::doctor::Port;
use super::inventory::Inventory;
use super::network::{Network, NoSuchWan, Pick, Wan};
use super::root::Root;
use super::uci::{Config, Section};
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// What Ethernet carries unless somebody says otherwise.
const ETHERNET: u32 = 1500;
/// PPPoE's own header (RFC 2516), and what pppd therefore takes unless told.
const PPPOE_HEADER: u32 = 8;
const PPPOE: u32 = ETHERNET - PPPOE_HEADER;
/// The IPv6 header around each IPv4 packet (RFC 6333, RFC 7597); MAP-T exchanges the header, which is 20 longer.
const AROUND_IPV4: u32 = 40;
const TRANSLATED: u32 = 20;
/// What netifd gives a DS-Lite or MAP tunnel that says nothing.
const SOFTWIRE_DEFAULT: u32 = 1280;
/// What the kernel gives a WireGuard device.
const WIREGUARD: u32 = 1420;

/// `wan` of `mtu --json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WanMtu {
    pub device: Option<String>,
    /// The effective one.
    pub mtu: u32,
    pub configured: Option<u32>,
    /// The largest IPv4 packet that was seen to get through, where somebody has looked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probed: Option<u32>,
    pub why: String,
}

/// A WAN and what gets through it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Carrier {
    pub wan: WanMtu,
    /// Inside DS-Lite or MAP less than the WAN's.
    pub ipv4: u32,
    /// A mobile network may carry less than its device says.
    pub uncertain: bool,
}

impl Carrier {
    /// Takes what IPv4 packets of the size that should fit were seen to do.
    pub fn seen(&mut self, largest: u32) {
        self.wan.probed = Some(largest);
        self.uncertain = false;
        let why = &self.wan.why;
        if largest >= self.ipv4 {
            self.wan.why = format!("{why}; a ping of {} bytes that may not be cut gets through", self.ipv4);
            return;
        }
        self.wan.why =
            format!("{why}; of pings that may not be cut, those of more than {largest} bytes get lost on the way");
        // What limits the inside of a softwire need not limit what carries it.
        if self.ipv4 == self.wan.mtu {
            self.wan.mtu = largest;
        }
        self.ipv4 = largest;
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireGuard {
    pub name: String,
    pub mtu: u32,
    /// The addresses of its peers; `None` for a name.
    pub endpoints: Vec<Option<IpAddr>>,
    pub clamped: Option<bool>,
    /// The network that it is bound to.
    pub through: Option<String>,
}

pub struct Mtus {
    inventory: Inventory,
    firewall: Option<Config>,
    ports: BTreeMap<String, Port>,
    /// WireGuard devices that run.
    running: Vec<String>,
}

impl Mtus {
    pub fn read(root: &Root) -> Self {
        let ports = super::doctor::ports(root).unwrap_or_default();
        let is_wireguard = |name: &&String| {
            let kind = root.text(&format!("sys/class/net/{name}/uevent")).unwrap_or_default();
            kind.lines().any(|line| line == "DEVTYPE=wireguard")
        };
        Self {
            running: ports.keys().filter(is_wireguard).cloned().collect(),
            inventory: Inventory::read(root),
            firewall: root.config("firewall").ok().flatten(),
            ports,
        }
    }

    /// The wanted WAN, or the first.
    pub fn carrier(&self, pick: Option<&Pick>) -> Result<Carrier, NoSuchWan> {
        let Some(wan) = self.inventory.wans.choose(pick)? else {
            let why = format!("no WAN is known here: Ethernet's {ETHERNET} is assumed");
            let wan = WanMtu { device: None, mtu: ETHERNET, configured: None, probed: None, why };
            return Ok(Carrier { wan, ipv4: ETHERNET, uncertain: false });
        };
        let mut effective = self.of_wan(wan);
        let uncertain = wan.medium == Some(Medium::Mobile);
        if uncertain {
            effective.why += "; a mobile network may carry less";
        }
        let ipv4 = match self.softwire() {
            Some(softwire) => self.inside(softwire, &mut effective),
            None => effective.mtu,
        };
        Ok(Carrier { wan: effective, ipv4, uncertain })
    }

    fn of_wan(&self, wan: &Wan) -> WanMtu {
        let device = wan.device.clone();
        let configured = self.interface(&wan.interface).and_then(|section| number(section, "mtu"));
        let live = device.as_deref().and_then(|device| self.ports.get(device)?.mtu);
        let name = device.as_deref().unwrap_or(&wan.interface);
        if wan.protocol == "pppoe" {
            let parent = self.of_devices(&wan.stack.devices);
            let wanted = configured.unwrap_or(PPPOE);
            let fits = wanted.min(parent.saturating_sub(PPPOE_HEADER));
            let mtu = live.map_or(fits, |live| live.min(fits));
            let why = format!(
                "PPPoE on {}: the smaller of {wanted} ({}) and {parent} - {PPPOE_HEADER} = {}",
                wan.over(),
                if configured.is_some() { "configured" } else { "PPPoE's default" },
                parent.saturating_sub(PPPOE_HEADER)
            );
            let more = if mtu < fits {
                format!("; {name} really has {mtu}")
            } else if configured.is_some_and(|configured| configured > fits) {
                format!("; {wanted} would need {} on {}", wanted + PPPOE_HEADER, wan.over())
            } else {
                String::new()
            };
            return WanMtu { device, mtu, configured, probed: None, why: why + &more };
        }
        let of_device = device.as_deref().and_then(|device| number(self.device_section(device)?, "mtu"));
        let configured = configured.or(of_device);
        let (mtu, why) = match (live, configured) {
            (Some(live), Some(configured)) if configured < live => (configured, "configured"),
            (Some(live), _) => (live, "as the device has it"),
            (None, Some(configured)) => (configured, "configured"),
            (None, None) => (self.of_devices(&wan.stack.devices), "by its device"),
        };
        WanMtu { mtu, configured, probed: None, why: format!("{name}: {mtu}, {why}"), device }
    }

    /// Of the first that says something: a VLAN has that of the port below it.
    fn of_devices(&self, devices: &[String]) -> u32 {
        let said = |device: &String| {
            self.ports.get(device).and_then(|port| port.mtu).or_else(|| number(self.device_section(device)?, "mtu"))
        };
        devices.iter().find_map(said).unwrap_or(ETHERNET)
    }

    fn device_section(&self, device: &str) -> Option<&Section> {
        let mut sections = self.inventory.network.iter().flat_map(|network| network.of_kind("device"));
        sections.find(|section| section.get("name") == Some(device))
    }

    /// The tunnel that carries IPv4 in the provider's IPv6.
    fn softwire(&self) -> Option<&Network> {
        self.inventory.wans.networks.iter().find(|network| matches!(network.protocol.as_str(), "dslite" | "map"))
    }

    fn inside(&self, softwire: &Network, carrier: &mut WanMtu) -> u32 {
        let section = self.interface(&softwire.name);
        let translates = section.is_some_and(|section| section.get("type") == Some("map-t"));
        let (kind, cost) = match softwire.protocol.as_str() {
            "dslite" => ("DS-Lite", AROUND_IPV4),
            _ if translates => ("MAP-T", TRANSLATED),
            _ => ("MAP", AROUND_IPV4),
        };
        let fits = carrier.mtu.saturating_sub(cost);
        let live = softwire.device.as_deref().and_then(|device| self.ports.get(device)?.mtu);
        let known = live.or_else(|| number(section?, "mtu"));
        let more = match known {
            Some(mtu) if mtu < fits => format!(", and {} has {mtu}: set its mtu to {fits}", softwire.name),
            None => format!(" (set mtu '{fits}' for {}: the default is {SOFTWIRE_DEFAULT})", softwire.name),
            Some(_) => String::new(),
        };
        let fit = format!("IPv4 goes through {kind}, where {} - {cost} = {fits} fit", carrier.mtu);
        carrier.why = format!("{}; {fit}{more}", carrier.why);
        known.map_or(fits, |mtu| mtu.min(fits))
    }

    pub fn tunnels(&self) -> Vec<WireGuard> {
        let sections = self.inventory.network.iter().flat_map(|network| network.of_kind("interface"));
        let ours = sections.filter(|section| {
            matches!(section.get("proto"), Some("wireguard" | "amneziawg")) && section.get("disabled") != Some("1")
        });
        let mut tunnels: Vec<WireGuard> = ours.filter_map(|section| self.configured(section)).collect();
        for name in &self.running {
            if !tunnels.iter().any(|tunnel| tunnel.name == *name) {
                let mtu = self.ports.get(name).and_then(|port| port.mtu).unwrap_or(WIREGUARD);
                let (endpoints, through) = (Vec::new(), None);
                tunnels.push(WireGuard { name: name.clone(), mtu, endpoints, clamped: None, through });
            }
        }
        tunnels
    }

    fn configured(&self, section: &Section) -> Option<WireGuard> {
        let name = section.name.clone()?;
        let live = self.ports.get(&name).and_then(|port| port.mtu);
        let kind = format!("{}_{name}", section.get("proto")?);
        let peers = self.inventory.network.iter().flat_map(|network| network.of_kind(&kind));
        let hosts = peers.filter(|peer| peer.get("disabled") != Some("1")).filter_map(|peer| peer.get("endpoint_host"));
        let address = |host: &str| host.trim_matches(['[', ']']).parse().ok();
        Some(WireGuard {
            mtu: number(section, "mtu").or(live).unwrap_or(WIREGUARD),
            endpoints: hosts.map(address).collect(),
            clamped: self.clamped(&name),
            through: section.get("tunlink").map(str::to_owned),
            name,
        })
    }

    fn clamped(&self, network: &str) -> Option<bool> {
        let mut zones = self.firewall.iter().flat_map(|firewall| firewall.of_kind("zone"));
        let zone = zones.find(|zone| zone.words("network").contains(&network))?;
        Some(matches!(zone.get("mtu_fix"), Some("1" | "on" | "true" | "yes")))
    }

    fn interface(&self, name: &str) -> Option<&Section> {
        self.inventory.network.as_ref()?.named("interface", name)
    }
}

fn number(section: &Section, option: &str) -> Option<u32> {
    section.get(option)?.trim().parse().ok().filter(|mtu| *mtu > 0)
}
