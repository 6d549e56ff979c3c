//! The WANs of a router: what netifd says of its interfaces, completed with `/etc/config/network`.

use super::device::{Medium, Stack, medium_of};
use super::uci::{Config, Section};
use serde_json::Value;

/// A line that leads out. Logical interfaces on one device (`wan` and `wan6`) are one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wan {
    /// The interface that makes the connection.
    pub interface: String,
    /// The others on the same device.
    pub also: Vec<String>,
    pub protocol: String,
    /// Where a queue belongs.
    pub device: Option<String>,
    /// From the device that the protocol runs on, downwards.
    pub stack: Stack,
    pub medium: Option<Medium>,
    /// As far as anybody says.
    pub up: bool,
}

/// All WANs, the one that carries the default route first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wans {
    pub found: Vec<Wan>,
    /// A tunnel that holds a default route: what goes there still leaves by a WAN.
    pub tunnel: Option<String>,
    /// Every logical interface but the loopback.
    pub networks: Vec<Network>,
}

/// A logical interface as a queue sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    pub name: String,
    pub protocol: String,
    /// Where IP packets go.
    pub device: Option<String>,
    /// From that device downwards, the ports of a bridge included.
    pub stack: Stack,
    /// `None`: nobody can tell.
    pub side: Option<Side>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Out,
    Home,
    Tunnel,
}

/// Which WAN is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pick {
    Interface(String),
    Device(String),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no WAN {wanted:?}: {}", if known.is_empty() { "none is known".into() } else { format!("known are {}", known.join(", ")) })]
pub struct NoSuchWan {
    pub wanted: String,
    pub known: Vec<String>,
}

/// Protocols that make tunnels over another WAN, its own or a provider's (DS-Lite, MAP, 6in4).
const TUNNELS: [&str; 27] = [
    "wireguard",
    "amneziawg",
    "openvpn",
    "openconnect",
    "vpnc",
    "l2tp",
    "pptp",
    "sstp",
    "softethervpn",
    "zerotier",
    "tailscale",
    "gre",
    "gretap",
    "grev6",
    "grev6tap",
    "ipip",
    "6in4",
    "6rd",
    "6to4",
    "dslite",
    "map",
    "464xlat",
    "vti",
    "vtiv6",
    "xfrm",
    "vxlan",
    "vxlan6",
];
/// And the devices of those that netifd knows as `none`.
const TUNNEL_DEVICES: [&str; 18] = [
    "tun",
    "tap",
    "wg",
    "zt",
    "tailscale",
    "ipsec",
    "xfrm",
    "vti",
    "gre",
    "sit",
    "ip6tnl",
    "ds-",
    "map-",
    "464-",
    "6in4-",
    "6rd-",
    "6to4-",
    "vpn-",
];
pub const MOBILE: [&str; 9] = ["3g", "qmi", "mbim", "ncm", "modemmanager", "directip", "hso", "wwan", "quectel"];
/// What a client of a provider speaks.
const CLIENTS: [&str; 6] = ["pppoe", "pppoa", "ipoa", "ppp", "dhcp", "dhcpv6"];
/// netifd names the device of these after the interface, unless told otherwise.
const NAMED_AFTER: [&str; 4] = ["pppoe", "pppoa", "3g", "ppp"];

impl Wans {
    pub fn of(dump: Option<&Value>, network: Option<&Config>) -> Self {
        let interfaces = interfaces(dump, network);
        let mut outward: Vec<&Interface> = interfaces.iter().filter(|interface| interface.leads_out()).collect();
        outward.sort_by_key(|interface| interface.rank());
        let mut lines: Vec<Vec<&Interface>> = Vec::new();
        for interface in outward {
            let mut known = lines.iter_mut();
            match known.find(|line| line.iter().any(|other| interface.shares_line(other, &interfaces))) {
                Some(line) => line.push(interface),
                None => lines.push(vec![interface]),
            }
        }
        let found = lines.iter().map(|line| Wan::of(line, &interfaces, network)).collect();
        let networks = interfaces.iter().filter(|interface| interface.lower.as_deref() != Some("lo"));
        let networks = networks.map(|interface| interface.network(&interfaces, network)).collect();
        Self { found, tunnel: tunnel(&interfaces), networks }
    }

    /// The wanted one, or else the first.
    ///
    /// # Errors
    /// Where one is wanted that is not there.
    pub fn choose(&self, pick: Option<&Pick>) -> Result<Option<&Wan>, NoSuchWan> {
        let Some(pick) = pick else { return Ok(self.found.first()) };
        let found = self.found.iter().find(|wan| wan.is(pick));
        found.map(Some).ok_or_else(|| NoSuchWan {
            wanted: match pick {
                Pick::Interface(name) | Pick::Device(name) => name.clone(),
            },
            known: self.found.iter().map(Wan::to_string).collect(),
        })
    }
}

impl std::fmt::Display for Wan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.interface, self.device.as_deref().unwrap_or("no device yet"))
    }
}

impl Wans {
    /// The WAN that this device is, or is below.
    pub fn on(&self, device: &str) -> Option<&Wan> {
        self.found.iter().find(|wan| wan.is(&Pick::Device(device.into())))
    }
}

impl Wan {
    /// The interface that makes the connection speaks for all on its line; what netifd adds by itself (`wan_6`) and IPv6
    /// come after it.
    fn of(line: &[&Interface], all: &[Interface], network: Option<&Config>) -> Self {
        let first = line.iter().min_by_key(|i| (i.dynamic, i.protocol == "dhcpv6")).expect("a line has an interface");
        let device = line.iter().find_map(|interface| interface.device(all));
        let lower = first.lower.as_deref().filter(|lower| !lower.starts_with('@')).or(device.as_deref());
        let stack = lower.map(|lower| Stack::of(lower, network)).unwrap_or_default();
        let medium = match first.protocol.as_str() {
            "pppoa" | "ipoa" => Some(Medium::Dsl),
            protocol if MOBILE.contains(&protocol) => Some(Medium::Mobile),
            _ if stack.devices.is_empty() => None,
            _ => Some(medium_of(stack.bottom())),
        };
        Self {
            interface: first.name.clone(),
            also: line.iter().filter(|i| i.name != first.name).map(|i| i.name.clone()).collect(),
            protocol: first.protocol.clone(),
            device,
            stack,
            medium,
            up: line.iter().any(|interface| interface.up),
        }
    }

    /// What the protocol runs on, for people.
    pub fn over(&self) -> &str {
        self.stack.devices.first().or(self.device.as_ref()).map_or("a device of its own", String::as_str)
    }

    /// By one of its interfaces.
    pub fn is_called(&self, interface: &str) -> bool {
        self.interface == interface || self.also.iter().any(|name| name == interface)
    }

    fn is(&self, pick: &Pick) -> bool {
        match pick {
            Pick::Interface(name) => self.is_called(name),
            Pick::Device(name) => self.device.as_ref() == Some(name) || self.stack.devices.contains(name),
        }
    }
}

/// The tunnel that takes what the WAN should, if one does.
fn tunnel(interfaces: &[Interface]) -> Option<String> {
    let tunnels = interfaces.iter().filter(|interface| interface.is_tunnel() && interface.default_route.is_some());
    tunnels.map(|tunnel| tunnel.top.clone().unwrap_or_else(|| tunnel.name.clone())).next()
}

/// One logical interface.
#[derive(Clone, Debug)]
struct Interface {
    name: String,
    up: bool,
    /// netifd made it, for another one.
    dynamic: bool,
    protocol: String,
    /// Where IP packets go.
    top: Option<String>,
    /// What the protocol runs on.
    lower: Option<String>,
    /// The metric of its default route.
    default_route: Option<u64>,
    /// A static configuration with a gateway.
    gateway: bool,
}

impl Interface {
    fn of_dump(entry: &Value) -> Option<Self> {
        let text = |key: &str| entry.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        let flag = |key: &str| entry.get(key).and_then(Value::as_bool).unwrap_or(false);
        let metric = |value: &Value| value.get("metric").and_then(Value::as_u64);
        let routes = entry.get("route").and_then(Value::as_array).into_iter().flatten();
        let default = routes.filter(|route| {
            let target = route.get("target").and_then(Value::as_str).unwrap_or_default();
            matches!(target, "0.0.0.0" | "::") && route.get("mask").and_then(Value::as_u64) == Some(0)
        });
        Some(Self {
            name: text("interface")?.into(),
            up: flag("up"),
            dynamic: flag("dynamic"),
            protocol: text("proto").unwrap_or("none").into(),
            top: text("l3_device").map(str::to_owned),
            lower: text("device").map(str::to_owned),
            default_route: default.map(|route| metric(route).or_else(|| metric(entry)).unwrap_or(0)).min(),
            gateway: false,
        })
    }

    fn of_config(section: &Section) -> Option<Self> {
        let name = section.name.clone()?;
        let protocol = section.get("proto").unwrap_or("none").to_owned();
        let lower = ["device", "ifname"].into_iter().find_map(|key| section.words(key).first().copied());
        // A mobile modem's control device is no network device.
        let lower = lower.filter(|device| !device.contains('/')).map(str::to_owned);
        let lower = if section.get("type") == Some("bridge") { Some(format!("br-{name}")) } else { lower };
        let named = section.get("pppname").map(str::to_owned);
        let named = named.or_else(|| NAMED_AFTER.contains(&protocol.as_str()).then(|| format!("{protocol}-{name}")));
        Some(Self {
            up: false,
            dynamic: false,
            top: named.or_else(|| lower.clone()),
            lower,
            default_route: None,
            gateway: section.get("gateway").or_else(|| section.get("ip6gw")).is_some(),
            name,
            protocol,
        })
    }

    /// Where a queue belongs: an alias (`@wan`) has the device of what it names.
    fn device(&self, all: &[Self]) -> Option<String> {
        let device = self.top.as_deref().or(self.lower.as_deref())?;
        match device.strip_prefix('@') {
            Some(name) => all.iter().find(|other| other.name == name && other.name != self.name)?.top.clone(),
            None => Some(device.into()),
        }
    }

    fn network(&self, all: &[Self], network: Option<&Config>) -> Network {
        let device = self.device(all);
        let side = match (self.is_tunnel(), self.leads_out()) {
            (true, _) => Some(Side::Tunnel),
            (false, true) => Some(Side::Out),
            // Without an address it may be anything, and a WAN's static address may lack its route for the moment.
            (false, false) if self.protocol == "none" || self.name.starts_with("wan") => None,
            (false, false) => Some(Side::Home),
        };
        let stack = device.as_deref().map(|device| Stack::of(device, network)).unwrap_or_default();
        Network { name: self.name.clone(), protocol: self.protocol.clone(), device, stack, side }
    }

    /// On the same device, or netifd's addition to the other one.
    fn shares_line(&self, other: &Self, all: &[Self]) -> bool {
        let added = |one: &Self, to: &Self| {
            one.dynamic && one.name.strip_suffix("_4").or_else(|| one.name.strip_suffix("_6")) == Some(&to.name)
        };
        let device = self.device(all);
        device.is_some() && device == other.device(all) || added(self, other) || added(other, self)
    }

    fn is_tunnel(&self) -> bool {
        let device = self.top.as_deref().or(self.lower.as_deref()).unwrap_or_default();
        TUNNELS.contains(&self.protocol.as_str()) || TUNNEL_DEVICES.iter().any(|prefix| device.starts_with(prefix))
    }

    fn leads_out(&self) -> bool {
        let device = self.lower.as_deref().or(self.top.as_deref()).unwrap_or_default();
        let lan = self.name.strip_prefix("lan").is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphabetic()));
        let home = lan || device == "lo" || device.starts_with("br-lan");
        let speaks = |protocols: &[&str]| protocols.contains(&self.protocol.as_str());
        let out = self.default_route.is_some() || self.gateway || speaks(&CLIENTS) || speaks(&MOBILE);
        out && !home && !self.is_tunnel()
    }

    /// What is up and carries the default route with the lowest metric comes first.
    fn rank(&self) -> impl Ord + use<> {
        (!self.up, self.default_route.is_none(), self.default_route, self.name != "wan")
    }
}

/// From netifd, and what only the configuration has. Without netifd's word, the configuration's.
fn interfaces(dump: Option<&Value>, network: Option<&Config>) -> Vec<Interface> {
    let disabled = |section: &&Section| section.get("disabled") == Some("1");
    let sections = network.into_iter().flat_map(|network| network.of_kind("interface")).filter(|s| !disabled(s));
    let configured: Vec<Interface> = sections.filter_map(Interface::of_config).collect();
    let entries = dump.and_then(|dump| dump.get("interface")?.as_array());
    let Some(entries) = entries else { return configured };
    let mut interfaces: Vec<Interface> = entries.iter().filter_map(Interface::of_dump).collect();
    for interface in &mut interfaces {
        if let Some(known) = configured.iter().find(|known| known.name == interface.name) {
            interface.lower = interface.lower.take().or_else(|| known.lower.clone());
            interface.top = interface.top.take().or_else(|| known.top.clone());
            interface.gateway = known.gateway;
        }
    }
    interfaces
}
