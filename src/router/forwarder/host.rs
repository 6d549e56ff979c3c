//! Our host in the home network: a pair of devices, one end on the bridge, the other in a namespace of its own.

use super::lan::{Lan, Place};
use super::namespace::Namespace;
use crate::line::LineError;
use crate::router::attribute::{Malformed, Writer, attributes};
use crate::router::device::{self, Device};
use crate::router::message::{Message, Request};
use crate::router::netlink::{Error, Socket};
use crate::router::redirect::{link_header, or_without};
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};

/// The router's end of the pair.
pub const LINK: &str = "sqmtune-lan";
/// The other end, in its namespace.
const INSIDE: &str = "eth0";
const LOOPBACK: i32 = 1;

// linux/if_link.h, veth.h, if_bridge.h.
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_AF_SPEC: u16 = 26;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
const IFLA_BRIDGE_VLAN_INFO: u16 = 2;
/// What comes in without a tag belongs to it, what goes out has none.
const BRIDGE_VLAN_ACCESS: u16 = 0b110;
const IFA_F_NODAD: u8 = 0x02;

/// Makes the pair and joins the LAN with one end. `random`: for its hardware address.
pub fn join(socket: &mut Socket, space: &Namespace, lan: &Lan, random: u64) -> Result<(), LineError> {
    add_pair(socket, space, lan, random)?;
    let link = device::by_name(socket, LINK)?;
    if let Some(vlan) = lan.vlan {
        set_vlan(socket, &link, vlan)?;
    }
    Ok(up(socket, link.index)?)
}

/// Gives the other end its addresses and the router as its way to everywhere. IPv6 is an extra that may fail.
pub fn furnish(space: &Namespace, places: &[Place]) -> Result<(), LineError> {
    let inside = space.within(|| Socket::open().map_err(std::io::Error::other));
    let socket = &mut inside.map_err(|error| LineError::failed("open a netlink socket in the namespace", error))?;
    up(socket, LOOPBACK)?;
    let device = device::by_name(socket, INSIDE)?.index;
    up(socket, device)?;
    for place in places {
        let settled = add_address(socket, device, place).and_then(|()| add_default_route(socket, device, place));
        match settled {
            Err(error) if place.address.is_ipv6() => log::debug!("{error}"),
            settled => settled?,
        }
    }
    Ok(())
}

/// Takes the pair away: one end is enough for both. True if it was there.
pub fn remove(socket: &mut Socket) -> Result<bool, Error> {
    let Some(link) = device::all(socket)?.into_iter().find(is_ours) else { return Ok(false) };
    let body = link_header(link.index, false);
    let request = Request { kind: libc::RTM_DELLINK, flags: 0, body: &body };
    match socket.command(|| format!("delete the device {LINK}"), request) {
        // With its namespace it goes by itself.
        Err(error) if error.errno() != Some(libc::ENODEV) => Err(error),
        _ => Ok(true),
    }
}

/// Whether our end is on this bridge.
pub fn is_joined(socket: &mut Socket, bridge: i32) -> Result<bool, Error> {
    Ok(device::all(socket)?.iter().any(|device| is_ours(device) && device.master == Some(bridge)))
}

/// The device by which the router sends on what comes from our host.
pub fn way_out(socket: &mut Socket, lan: &Lan, from: IpAddr, to: IpAddr) -> Result<Option<i32>, Error> {
    let body = route_question(lan.device.index, from, to);
    let request = Request { kind: libc::RTM_GETROUTE, flags: 0, body: &body };
    let parse = |message: Message| if message.kind == libc::RTM_NEWROUTE { leaves_by(message.body) } else { Ok(None) };
    Ok(socket.query(|| format!("find the way from {from} to {to}"), request, parse)?.first().copied())
}

fn is_ours(device: &Device) -> bool {
    device.name == LINK && device.kind.as_deref() == Some("veth")
}

fn add_pair(socket: &mut Socket, space: &Namespace, lan: &Lan, random: u64) -> Result<(), LineError> {
    let mtu = lan.device.mtu;
    let descriptor = space.as_fd().as_raw_fd();
    let body = pair(lan.bridge, mtu, hardware_address(random), descriptor);
    let request = Request { kind: libc::RTM_NEWLINK, flags: libc::NLM_F_CREATE | libc::NLM_F_EXCL, body: &body };
    let result = socket.command(|| format!("make the devices {LINK} and {INSIDE}"), request);
    result.map_err(|error| or_without(error, &[libc::EOPNOTSUPP, libc::ENOENT], "veth devices", "kmod-veth"))
}

fn pair(bridge: i32, mtu: u32, address: [u8; 6], namespace: i32) -> Vec<u8> {
    let inside = Writer::after(&link_header(0, false)).text(IFLA_IFNAME, INSIDE).u32(IFLA_MTU, mtu);
    let peer = Writer::default().nest(VETH_INFO_PEER, inside.i32(IFLA_NET_NS_FD, namespace));
    let kind = Writer::default().text(IFLA_INFO_KIND, "veth").nest(IFLA_INFO_DATA, peer);
    Writer::after(&link_header(0, false))
        .text(IFLA_IFNAME, LINK)
        .u32(IFLA_MTU, mtu)
        .bytes(IFLA_ADDRESS, &address)
        .i32(IFLA_MASTER, bridge)
        .nest(IFLA_LINKINFO, kind)
        .finish()
}

/// A bridge without an address of its own takes the lowest of its ports' (`br_stp_recalculate_bridge_id`). This one
/// is higher than any that a port has, so that the LAN's hosts go on to find their router.
fn hardware_address(random: u64) -> [u8; 6] {
    let [a, b, c, d, ..] = random.to_ne_bytes();
    [0xfe, 0xff, a, b, c, d]
}

fn set_vlan(socket: &mut Socket, link: &Device, vlan: u16) -> Result<(), Error> {
    let mut header = link_header(link.index, false);
    header[0] = libc::AF_BRIDGE as u8;
    let info = [BRIDGE_VLAN_ACCESS.to_ne_bytes(), vlan.to_ne_bytes()].concat();
    let body = Writer::after(&header).nest(IFLA_AF_SPEC, Writer::default().bytes(IFLA_BRIDGE_VLAN_INFO, &info));
    let request = Request { kind: libc::RTM_SETLINK, flags: 0, body: &body.finish() };
    socket.command(|| format!("put {LINK} into VLAN {vlan}"), request)
}

fn up(socket: &mut Socket, device: i32) -> Result<(), Error> {
    let request = Request { kind: libc::RTM_NEWLINK, flags: 0, body: &link_header(device, true) };
    socket.command(|| format!("start device {device} of our host"), request)
}

fn add_address(socket: &mut Socket, device: i32, place: &Place) -> Result<(), Error> {
    // `struct ifaddrmsg`: family, prefix, flags, scope, device.
    let header = [&[family(place.address), place.prefix, IFA_F_NODAD, 0][..], &device.to_ne_bytes()].concat();
    let bytes = octets(place.address);
    let body = Writer::after(&header).bytes(libc::IFA_LOCAL, &bytes).bytes(libc::IFA_ADDRESS, &bytes).finish();
    let request = Request { kind: libc::RTM_NEWADDR, flags: libc::NLM_F_CREATE, body: &body };
    socket.command(|| format!("give our host the address {}", place.address), request)
}

fn add_default_route(socket: &mut Socket, device: i32, place: &Place) -> Result<(), Error> {
    // `struct rtmsg`: family, both prefixes, TOS, table, protocol, scope, type, flags.
    let family = family(place.address);
    let header = [family, 0, 0, 0, libc::RT_TABLE_MAIN, libc::RTPROT_STATIC, 0, libc::RTN_UNICAST, 0, 0, 0, 0];
    let body = Writer::after(&header).bytes(libc::RTA_GATEWAY, &octets(place.router)).i32(libc::RTA_OIF, device);
    let request = Request { kind: libc::RTM_NEWROUTE, flags: libc::NLM_F_CREATE, body: &body.finish() };
    socket.command(|| format!("give our host the router {}", place.router), request)
}

fn route_question(comes_in: i32, from: IpAddr, to: IpAddr) -> Vec<u8> {
    let bits = if to.is_ipv4() { 32 } else { 128 };
    let header = [family(to), bits, bits, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let body = Writer::after(&header).bytes(libc::RTA_DST, &octets(to)).bytes(libc::RTA_SRC, &octets(from));
    body.i32(libc::RTA_IIF, comes_in).finish()
}

fn leaves_by(body: &[u8]) -> Result<Option<i32>, Malformed> {
    for attribute in attributes(body.get(12..).unwrap_or(&[])) {
        let attribute = attribute?;
        if attribute.kind == libc::RTA_OIF {
            return attribute.i32().map(Some);
        }
    }
    Ok(None)
}

fn family(ip: IpAddr) -> u8 {
    (if ip.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 }) as u8
}

fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}
