//! What a network device stands on: VLANs, bridges and other names off, down to the port or the modem.

use super::uci::{Config, Section};

/// From the name that an interface has to the device below all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stack {
    /// Every device on the way, top first, the bottom included. A bridge counts with all its ports.
    pub devices: Vec<String>,
    /// The tags on the way down, outermost last.
    pub vlans: Vec<String>,
}

/// What kind of thing sends the packets in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// The modem in this router.
    Dsl,
    /// A port: whatever is at the other end of the cable.
    Ethernet,
    Mobile,
    WiFi,
}

impl Stack {
    pub fn of(device: &str, network: Option<&Config>) -> Self {
        let mut stack = Self::default();
        let mut next = Some(device.to_owned());
        while let Some(device) = next.take().filter(|device| !stack.devices.contains(device)) {
            stack.devices.push(device.clone());
            next = stack.below(&device, network);
        }
        stack
    }

    pub fn bottom(&self) -> &str {
        self.devices.last().map_or("", String::as_str)
    }

    fn below(&mut self, device: &str, network: Option<&Config>) -> Option<String> {
        if let Some(section) = network.and_then(|network| section_of(network, device)) {
            let below = section.words("ifname").first().copied();
            match section.get("type") {
                Some("8021q" | "8021ad") => {
                    self.vlans.extend(section.get("vid").map(str::to_owned));
                    return below.map(str::to_owned);
                }
                Some("macvlan" | "ipvlan") => return below.map(str::to_owned),
                Some("bridge") => {
                    let ports: Vec<&str> = ["ports", "ifname"].iter().flat_map(|key| section.words(key)).collect();
                    return self.bridged(&ports);
                }
                _ => {}
            }
        }
        if let Some(ports) = network.and_then(|network| ports_of_old_bridge(network, device)) {
            return self.bridged(&ports);
        }
        let (below, vlan) = device.rsplit_once('.').filter(|(_, vlan)| vlan.parse::<u16>().is_ok())?;
        if let Some(ports) = network.and_then(|network| ports_of_bridge_vlan(network, below, vlan)) {
            // `:t` keeps the tag on the port, `:u` and `:*` take it off.
            let bare = |port: &str| port.split(':').next().unwrap_or_default().to_owned();
            if ports.iter().any(|port| port.split_once(':').is_some_and(|(_, flags)| flags.contains('t'))) {
                self.vlans.push(vlan.into());
            }
            let names: Vec<String> = ports.iter().map(|port| bare(port)).collect();
            return self.bridged(&names.iter().map(String::as_str).collect::<Vec<_>>());
        }
        self.vlans.push(vlan.into());
        Some(below.into())
    }

    /// Of several ports, one that leads out is the bottom; the others belong to it all the same.
    fn bridged(&mut self, ports: &[&str]) -> Option<String> {
        let out = ports.iter().find(|port| medium_of(port) != Medium::Ethernet || port.starts_with("wan"));
        let out = out.or(ports.first())?;
        self.devices.extend(ports.iter().filter(|port| *port != out).map(|port| (*port).to_owned()));
        Some((*out).to_owned())
    }
}

/// By the name that OpenWrt gives to devices of this kind.
pub fn medium_of(device: &str) -> Medium {
    let begins = |prefixes: &[&str]| prefixes.iter().any(|prefix| device.starts_with(prefix));
    if begins(&["dsl", "ptm", "nas", "atm", "vdsl", "adsl", "xdsl"]) {
        Medium::Dsl
    } else if begins(&["wwan", "usb", "rmnet", "ccmni", "3g-", "lte"]) {
        Medium::Mobile
    } else if begins(&["wlan", "phy", "ath", "wl", "ra0", "rai", "apcli"]) {
        Medium::WiFi
    } else {
        Medium::Ethernet
    }
}

fn section_of<'a>(network: &'a Config, device: &str) -> Option<&'a Section> {
    network.of_kind("device").find(|section| section.get("name") == Some(device))
}

/// Up to 19.07 an interface could make its own bridge, `br-` and its name.
fn ports_of_old_bridge<'a>(network: &'a Config, device: &str) -> Option<Vec<&'a str>> {
    let interface = network.named("interface", device.strip_prefix("br-")?)?;
    (interface.get("type") == Some("bridge")).then(|| interface.words("ifname"))
}

fn ports_of_bridge_vlan<'a>(network: &'a Config, bridge: &str, vlan: &str) -> Option<Vec<&'a str>> {
    let mut vlans = network.of_kind("bridge-vlan");
    let section = vlans.find(|s| s.get("device") == Some(bridge) && s.get("vlan") == Some(vlan))?;
    Some(section.words("ports"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(device: &str, network: &str) -> (Vec<String>, Vec<String>, String) {
        let stack = Stack::of(device, Some(&Config::parse(network.as_bytes()).unwrap()));
        let bottom = stack.bottom().to_owned();
        (stack.devices, stack.vlans, bottom)
    }

    fn expect(device: &str, network: &str, devices: &[&str], vlans: &[&str]) {
        let (found, tags, bottom) = stack(device, network);
        assert_eq!(
            (found, tags),
            (devices.iter().map(ToString::to_string).collect(), vlans.iter().map(ToString::to_string).collect())
        );
        assert_eq!(bottom, devices[devices.len() - 1]);
    }

    #[test]
    fn a_dot_is_a_vlan_and_a_name_may_hide_one() {
        expect("dsl0.101", "", &["dsl0.101", "dsl0"], &["101"]);
        let named =
            "config device\n\toption name 'isp'\n\toption type '8021q'\n\toption ifname 'dsl0'\n\toption vid '7'\n";
        expect("isp", named, &["isp", "dsl0"], &["7"]);
        expect("eth0.2.7", "", &["eth0.2.7", "eth0.2", "eth0"], &["7", "2"]);
        expect("my.device", "", &["my.device"], &[]);
        let mac = "config device\n\toption name 'mac0'\n\toption type 'macvlan'\n\toption ifname 'eth1'\n";
        expect("mac0", mac, &["mac0", "eth1"], &[]);
    }

    #[test]
    fn a_bridge_stands_on_the_port_that_leads_out() {
        let dsa =
            "config device\n\toption name 'br-wan'\n\toption type 'bridge'\n\tlist ports 'lan4'\n\tlist ports 'wan'\n";
        expect("br-wan", dsa, &["br-wan", "lan4", "wan"], &[]);
        let old = "config interface 'wan2'\n\toption type 'bridge'\n\toption ifname 'eth0.3'\n";
        expect("br-wan2", old, &["br-wan2", "eth0.3", "eth0"], &["3"]);
        let filtered = "config bridge-vlan\n\toption device 'br0'\n\toption vlan '7'\n\tlist ports 'dsl0:t'\n";
        expect("br0.7", filtered, &["br0.7", "dsl0"], &["7"]);
        let untagged = "config bridge-vlan\n\toption device 'br0'\n\toption vlan '7'\n\tlist ports 'wan:u*'\n";
        expect("br0.7", untagged, &["br0.7", "wan"], &[]);
    }

    #[test]
    fn a_circle_ends() {
        let circle = "config device\n\toption name 'a'\n\toption type '8021q'\n\toption ifname 'b'\n\nconfig device\n\toption name 'b'\n\toption type '8021q'\n\toption ifname 'a'\n";
        assert_eq!(stack("a", circle).0, ["a", "b"]);
    }
}
