//! The home network behind the router, and where in it there is room for one more host.
//!
//! OpenWrt's firewall knows networks by their device and rejects what comes in by any other. So a host of ours has to
//! join the bridge that the LAN's hosts are on.

use super::neighbours;
use crate::line::LineError;
use crate::router::device::{self, Address, Device};
use crate::router::netlink::Socket;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A network that a host can join.
#[derive(Clone, Debug)]
pub struct Lan {
    /// Bears the router's addresses there.
    pub device: Device,
    pub bridge: i32,
    /// The VLAN of it on that bridge, where the bridge has several.
    pub vlan: Option<u16>,
    addresses: Vec<Address>,
}

/// What a host of the network is told by DHCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub address: IpAddr,
    pub prefix: u8,
    pub router: IpAddr,
}

/// What OpenWrt calls it unless told otherwise.
const USUAL_NAME: &str = "br-lan";

/// So many addresses are asked for at once whether anybody has them.
const CANDIDATES: usize = 8;

/// Where addresses are spoken for whose owners may be asleep: leases, reservations, names, the router's own settings.
const SPOKEN_FOR: [&str; 6] =
    ["/tmp/dhcp.leases", "/tmp/hosts/odhcpd", "/etc/config/dhcp", "/etc/config/network", "/etc/ethers", "/etc/hosts"];

/// The bridge that bears a private address and is not the line itself.
///
/// # Errors
/// [`LineError::Refused`] where there is none.
pub fn find(socket: &mut Socket, wan: &Device) -> Result<Lan, LineError> {
    let devices = device::all(socket)?;
    let mut found = Vec::new();
    for device in devices.iter().filter(|device| device.is_up() && device.index != wan.index) {
        let Some((bridge, vlan)) = bridge_of(device, &devices) else { continue };
        let addresses = device::addresses(socket, device.index)?;
        if addresses.iter().any(|address| home(address).is_some()) {
            found.push(Lan { device: device.clone(), bridge, vlan, addresses });
        }
    }
    let unusual = |lan: &Lan| lan.device.name.split('.').next() != Some(USUAL_NAME);
    found.into_iter().min_by_key(|lan| (unusual(lan), lan.device.index)).ok_or_else(|| {
        LineError::refused(
            "the LAN is no bridge with a private IPv4 address, so a host of our own cannot join it",
            "Make a bridge of it (on OpenWrt: br-lan)",
        )
    })
}

/// The bridge that the device is, or is a VLAN of.
fn bridge_of(device: &Device, devices: &[Device]) -> Option<(i32, Option<u16>)> {
    match device.kind.as_deref()? {
        "bridge" => Some((device.index, None)),
        "vlan" => {
            let below = devices.iter().find(|below| Some(below.index) == device.link)?;
            (below.kind.as_deref() == Some("bridge")).then_some((below.index, device.vlan))
        }
        _ => None,
    }
}

/// The address and the length of the network's prefix, if it is one that a home has and others fit in.
fn home(address: &Address) -> Option<(Ipv4Addr, u8)> {
    match address.ip {
        IpAddr::V4(ip) if ip.is_private() && address.prefix <= 30 => Some((ip, address.prefix)),
        _ => None,
    }
}

impl Lan {
    /// An address that nobody has. Takes three seconds: so long the kernel waits for an owner to answer.
    pub fn room(&self, socket: &mut Socket) -> Result<Place, LineError> {
        let spoken_for: Vec<_> = SPOKEN_FOR.iter().filter_map(|path| std::fs::read_to_string(path).ok()).collect();
        let spoken_for: Vec<Ipv4Addr> = spoken_for.iter().flat_map(|text| addresses_in(text)).collect();
        for (router, prefix) in self.addresses.iter().filter_map(home) {
            let free = |address: &Ipv4Addr| *address != router && !spoken_for.contains(address);
            let candidates: Vec<_> = from_the_top(router, prefix).filter(free).take(CANDIDATES).collect();
            if let Some(address) = neighbours::unused(socket, self.device.index, &candidates)? {
                return Ok(Place { address: address.into(), prefix, router: router.into() });
            }
        }
        let problem = format!("no address of {} is known to be free", self.device.name);
        Err(LineError::refused(problem, "Free one: the highest of the network, outside of the DHCP pool"))
    }

    /// A place in each IPv6 network there. So large a network needs no question who has an address.
    pub fn room_v6(&self, random: u64) -> Vec<Place> {
        let link_local = |ip: &Ipv6Addr| ip.segments()[0] & 0xffc0 == 0xfe80;
        let v6 = |address: &Address| match address.ip {
            IpAddr::V6(ip) => Some((ip, address.prefix)),
            IpAddr::V4(_) => None,
        };
        let all: Vec<_> = self.addresses.iter().filter_map(v6).collect();
        let Some((router, _)) = all.iter().find(|(ip, _)| link_local(ip)) else { return Vec::new() };
        let place = |(ip, prefix): &(Ipv6Addr, u8)| {
            let network = u128::from(*ip) & !u128::from(u64::MAX);
            // Locally made up: the universal bit stays off (RFC 4291).
            let address = Ipv6Addr::from(network | u128::from(random & !(1 << 57)));
            Place { address: address.into(), prefix: *prefix, router: (*router).into() }
        };
        all.iter().filter(|(ip, prefix)| !link_local(ip) && *prefix <= 64).map(place).collect()
    }
}

/// The network's addresses from the highest down, without its first and its last.
fn from_the_top(router: Ipv4Addr, prefix: u8) -> impl Iterator<Item = Ipv4Addr> {
    let hosts = u32::MAX.checked_shr(prefix.into()).unwrap_or(0);
    let network = u32::from(router) & !hosts;
    (1..hosts).rev().map(move |host| Ipv4Addr::from(network | host))
}

/// Everything in a text that looks like an IPv4 address.
fn addresses_in(text: &str) -> impl Iterator<Item = Ipv4Addr> {
    text.split(|c: char| c != '.' && !c.is_ascii_digit()).filter_map(|word| word.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(text: &str) -> Ipv4Addr {
        text.parse().unwrap()
    }

    #[test]
    fn addresses_are_tried_from_the_top() {
        let of_24: Vec<_> = from_the_top(v4("192.168.1.1"), 24).collect();
        assert_eq!((of_24[0], of_24[1], of_24.len()), (v4("192.168.1.254"), v4("192.168.1.253"), 254));
        assert_eq!(of_24.last(), Some(&v4("192.168.1.1")));
        let of_22: Vec<_> = from_the_top(v4("10.0.5.1"), 22).take(1).collect();
        assert_eq!(of_22, [v4("10.0.7.254")]);
        assert_eq!(from_the_top(v4("10.0.0.1"), 30).collect::<Vec<_>>(), [v4("10.0.0.2"), v4("10.0.0.1")]);
        assert_eq!(from_the_top(v4("10.0.0.1"), 31).count() + from_the_top(v4("10.0.0.1"), 32).count(), 0);
        assert_eq!(from_the_top(v4("10.0.0.1"), 0).next(), Some(v4("255.255.255.254")));
    }

    #[test]
    fn what_is_spoken_for_is_found_in_any_of_the_files() {
        let lease = "1760000000 02:00:00:00:00:01 192.168.1.254 phone 01:02\n";
        let uci = "config host\n\toption ip '192.168.1.253'\n\toption mac '02:00:00:00:00:02'\n";
        let hosts = "127.0.0.1\tlocalhost # 1.2.3\n192.168.1.252 nas\n";
        let found: Vec<_> = [lease, uci, hosts].into_iter().flat_map(addresses_in).collect();
        assert_eq!(found, ["192.168.1.254", "192.168.1.253", "127.0.0.1", "192.168.1.252"].map(v4));
    }

    fn device(index: i32, kind: &str, link: Option<i32>, vlan: Option<u16>) -> Device {
        Device { index, kind: Some(kind.into()), link, vlan, ..Device::default() }
    }

    #[test]
    fn a_vlan_of_a_bridge_is_joined_through_the_bridge() {
        let port = Device { index: 1, ..Device::default() };
        let bridge = device(2, "bridge", None, None);
        let on_bridge = device(3, "vlan", Some(2), Some(7));
        let on_port = device(4, "vlan", Some(1), Some(7));
        let all = [port, bridge, on_bridge, on_port];
        let joined: Vec<_> = all.iter().map(|device| bridge_of(device, &all)).collect();
        assert_eq!(joined, [None, Some((2, None)), Some((2, Some(7))), None]);
    }

    fn lan(addresses: &[(&str, u8)]) -> Lan {
        let address = |(ip, prefix): &(&str, u8)| Address { ip: ip.parse().unwrap(), prefix: *prefix, scope: 0 };
        let addresses = addresses.iter().map(address).collect();
        Lan { device: Device::default(), bridge: 1, vlan: None, addresses }
    }

    #[test]
    fn a_host_has_an_address_in_every_ipv6_network_and_the_routers_link_local_one_as_its_way_out() {
        let lan = lan(&[("192.168.1.1", 24), ("2001:db8:1::1", 64), ("fd00:1::1", 60), ("fe80::1", 64)]);
        let places = lan.room_v6(0xfeff_0000_0000_0007);
        let shown: Vec<_> = places.iter().map(|place| format!("{}/{}", place.address, place.prefix)).collect();
        assert_eq!(shown, ["2001:db8:1:0:fcff::7/64", "fd00:1::fcff:0:0:7/60"]);
        assert!(places.iter().all(|place| place.router.to_string() == "fe80::1"));
    }

    #[test]
    fn without_a_router_or_a_network_there_is_no_ipv6() {
        assert_eq!(lan(&[("2001:db8:1::1", 64)]).room_v6(1), []);
        assert_eq!(lan(&[("2001:db8:1::1", 128), ("fe80::1", 64)]).room_v6(1), []);
    }
}
