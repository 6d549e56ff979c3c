//! Network devices: what they are called, what they have counted, which one leads to the internet.

use super::attribute::{Attribute, Malformed, attributes, u16_at, u32_at, u64_at};
use super::message::{Message, Request};
use super::netlink::{Error, Socket};
use crate::line::LineError;
use std::net::IpAddr;

/// A network device (include/uapi/linux/if_link.h).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    pub index: i32,
    pub name: String,
    pub mtu: u32,
    /// RFC 2863; 6 is up, 0 unknown (ppp and tun never tell), 2 down.
    pub operstate: u8,
    /// `IFF_UP` and its like.
    pub flags: u32,
    /// `ARPHRD_ETHER` and its like.
    pub hardware: u16,
    /// `vlan`, `ifb`, `bridge`, …; none for a piece of hardware.
    pub kind: Option<String>,
    /// The kind of its root qdisc.
    pub qdisc: String,
    /// The device below: of a VLAN.
    pub link: Option<i32>,
    /// The bridge that it is a port of.
    pub master: Option<i32>,
    pub vlan: Option<u16>,
    pub counted: Counted,
}

/// A device's counters since it came to be (`IFLA_STATS64`), link headers included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    pub received_packets: u64,
    pub sent_packets: u64,
    pub received_bytes: u64,
    pub sent_bytes: u64,
}

/// An address of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    pub ip: IpAddr,
    pub prefix: u8,
    /// `RT_SCOPE_UNIVERSE` is 0, `RT_SCOPE_LINK` 253.
    pub scope: u8,
}

// libc has these for glibc only (if_arp.h, if_link.h).
const ARPHRD_ETHER: u16 = 1;
const ARPHRD_LOOPBACK: u16 = 772;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_QDISC: u16 = 6;
const IFLA_MASTER: u16 = 10;
const IFLA_OPERSTATE: u16 = 16;
const IFLA_LINKINFO: u16 = 18;
const IFLA_STATS64: u16 = 23;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const IFLA_VLAN_ID: u16 = 1;

impl Device {
    pub fn is_up(&self) -> bool {
        self.flags & libc::IFF_UP as u32 != 0
    }

    /// Bytes that its counters have for each packet beyond the IP packet. Ethernet's header is in them,
    /// its check sequence is not (`eth_type_trans` and `dev_queue_xmit` see neither it nor the preamble);
    /// ppp, tun and WireGuard count the IP packet.
    pub fn header_bytes(&self) -> u64 {
        match self.hardware {
            ARPHRD_ETHER | ARPHRD_LOOPBACK => 14,
            _ => 0,
        }
    }
}

/// Every device, in the order of their indices.
pub fn all(socket: &mut Socket) -> Result<Vec<Device>, Error> {
    let body = [0; 16];
    let request = Request { kind: libc::RTM_GETLINK, flags: libc::NLM_F_DUMP, body: &body };
    socket.query(|| "list the network devices".into(), request, |message| parse(&message))
}

/// One device by its index; `None` if there is none.
pub fn by_index(socket: &mut Socket, index: i32) -> Result<Option<Device>, Error> {
    let mut body = [0; 16];
    body[4..8].copy_from_slice(&index.to_ne_bytes());
    let request = Request { kind: libc::RTM_GETLINK, flags: 0, body: &body };
    match socket.query(|| format!("read device {index}"), request, |message| parse(&message)) {
        Ok(devices) => Ok(devices.into_iter().next()),
        Err(error) if error.errno() == Some(libc::ENODEV) => Ok(None),
        Err(error) => Err(error),
    }
}

/// One device by its name; refused with the names there are if there is no such device.
pub fn by_name(socket: &mut Socket, name: &str) -> Result<Device, LineError> {
    let devices = all(socket)?;
    let names: Vec<_> = devices.iter().map(|device| device.name.as_str()).filter(|name| *name != "lo").collect();
    let fix = format!("Use one of: {}", names.join(", "));
    devices
        .into_iter()
        .find(|device| device.name == name)
        .ok_or_else(|| LineError::refused(format!("there is no network device {name}"), fix))
}

/// The IPv4 and IPv6 addresses of a device.
pub fn addresses(socket: &mut Socket, index: i32) -> Result<Vec<Address>, Error> {
    let request = Request { kind: libc::RTM_GETADDR, flags: libc::NLM_F_DUMP, body: &[0; 8] };
    let parse =
        |message: Message| if message.kind == libc::RTM_NEWADDR { address(message.body, index) } else { Ok(None) };
    socket.query(|| format!("read the addresses of device {index}"), request, parse)
}

/// Those that others know a device by, of either family.
pub fn public_addresses(socket: &mut Socket, index: i32) -> Result<Vec<IpAddr>, Error> {
    let all = addresses(socket, index)?.into_iter();
    Ok(all.filter(|address| address.scope == libc::RT_SCOPE_UNIVERSE).map(|address| address.ip).collect())
}

/// The index of the device that the main table's default route leaves by; IPv4's before IPv6's, the lowest metric first.
pub fn of_default_route(socket: &mut Socket) -> Result<Option<i32>, Error> {
    for family in [libc::AF_INET, libc::AF_INET6] {
        let mut body = [0; 12];
        body[0] = family as u8;
        let request = Request { kind: libc::RTM_GETROUTE, flags: libc::NLM_F_DUMP, body: &body };
        let parse =
            |message: Message| if message.kind == libc::RTM_NEWROUTE { default_route(message.body) } else { Ok(None) };
        let routes = socket.query(|| "read the routes".into(), request, parse)?;
        if let Some((_, index)) = routes.into_iter().min_by_key(|(metric, _)| *metric) {
            return Ok(Some(index));
        }
    }
    Ok(None)
}

/// `struct ifinfomsg` and its attributes.
fn parse(message: &Message) -> Result<Option<Device>, Malformed> {
    if message.kind != libc::RTM_NEWLINK {
        return Ok(None);
    }
    let body = message.body;
    let mut device = Device {
        hardware: u16_at(body, 2)?,
        index: u32_at(body, 4)?.cast_signed(),
        flags: u32_at(body, 8)?,
        ..Device::default()
    };
    for attribute in attributes(body.get(16..).unwrap_or(&[])) {
        let attribute = attribute?;
        match attribute.kind {
            IFLA_IFNAME => device.name = attribute.text()?,
            IFLA_MTU => device.mtu = attribute.u32()?,
            IFLA_OPERSTATE => device.operstate = attribute.u8()?,
            IFLA_QDISC => device.qdisc = attribute.text()?,
            IFLA_STATS64 => device.counted = counted(attribute.payload)?,
            IFLA_LINK => device.link = Some(attribute.i32()?),
            IFLA_MASTER => device.master = Some(attribute.i32()?),
            IFLA_LINKINFO => (device.kind, device.vlan) = link_kind(&attribute)?,
            _ => {}
        }
    }
    Ok(Some(device))
}

/// `struct rtnl_link_stats64`: packets received, packets sent, bytes received, bytes sent, …
fn counted(stats: &[u8]) -> Result<Counted, Malformed> {
    Ok(Counted {
        received_packets: u64_at(stats, 0)?,
        sent_packets: u64_at(stats, 8)?,
        received_bytes: u64_at(stats, 16)?,
        sent_bytes: u64_at(stats, 24)?,
    })
}

/// The kind, and the number of a VLAN. Other kinds have other things under the same number.
fn link_kind(info: &Attribute) -> Result<(Option<String>, Option<u16>), Malformed> {
    let (mut kind, mut data) = (None, None);
    for attribute in info.nested() {
        let attribute = attribute?;
        match attribute.kind {
            IFLA_INFO_KIND => kind = Some(attribute.text()?),
            IFLA_INFO_DATA => data = Some(attribute),
            _ => {}
        }
    }
    for attribute in data.filter(|_| kind.as_deref() == Some("vlan")).iter().flat_map(Attribute::nested) {
        let attribute = attribute?;
        if attribute.kind == IFLA_VLAN_ID {
            return Ok((kind, Some(u16_at(attribute.payload, 0)?)));
        }
    }
    Ok((kind, None))
}

/// `struct ifaddrmsg`; on a point-to-point link `IFA_ADDRESS` is the other end, `IFA_LOCAL` ours.
fn address(body: &[u8], index: i32) -> Result<Option<Address>, Malformed> {
    if u32_at(body, 4)?.cast_signed() != index {
        return Ok(None);
    }
    let (prefix, scope) = (body[1], body[3]);
    let mut ip = None;
    for attribute in attributes(body.get(8..).unwrap_or(&[])) {
        let attribute = attribute?;
        match attribute.kind {
            libc::IFA_LOCAL => ip = ip_address(attribute.payload),
            libc::IFA_ADDRESS => ip = ip.or(ip_address(attribute.payload)),
            _ => {}
        }
    }
    Ok(ip.map(|ip| Address { ip, prefix, scope }))
}

fn ip_address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = || <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    let v6 = || <[u8; 16]>::try_from(bytes).map(IpAddr::from);
    v4().or_else(|_| v6()).ok()
}

/// Metric and device of a unicast default route of the main table (`struct rtmsg`); of several next hops the first.
fn default_route(body: &[u8]) -> Result<Option<(u32, i32)>, Malformed> {
    const MULTIPATH: u16 = libc::RTA_MULTIPATH;
    let header = body.first_chunk::<12>().ok_or(Malformed("a route is cut off"))?;
    let (bits, mut table, kind) = (header[1], u32::from(header[4]), header[7]);
    let (mut metric, mut device) = (0, None);
    for attribute in attributes(&body[12..]) {
        let attribute = attribute?;
        match attribute.kind {
            libc::RTA_TABLE => table = attribute.u32()?,
            libc::RTA_PRIORITY => metric = attribute.u32()?,
            libc::RTA_OIF => device = Some(attribute.i32()?),
            // `struct rtnexthop`: length, flags, hops, then the device.
            MULTIPATH => device = device.or(Some(u32_at(attribute.payload, 4)?.cast_signed())),
            _ => {}
        }
    }
    let wanted = bits == 0 && table == u32::from(libc::RT_TABLE_MAIN) && kind == libc::RTN_UNICAST;
    Ok(device.filter(|_| wanted).map(|device| (metric, device)))
}

#[cfg(test)]
mod tests {
    use super::super::attribute::Writer;
    use super::*;

    fn link(index: i32, attributes: Writer) -> Vec<u8> {
        let header =
            [[0_u8, 0].as_slice(), &1_u16.to_ne_bytes(), &index.to_ne_bytes(), &0x1043_u32.to_ne_bytes(), &[0; 4]];
        [header.concat(), attributes.finish()].concat()
    }

    fn route(bits: u8, table: u8, attributes: Writer) -> Vec<u8> {
        [vec![2, bits, 0, 0, table, 3, 0, libc::RTN_UNICAST, 0, 0, 0, 0], attributes.finish()].concat()
    }

    #[test]
    fn a_device_is_read_with_what_it_counted() {
        let vlan = Writer::default().bytes(IFLA_VLAN_ID, &7_u16.to_ne_bytes());
        let counters: Vec<u8> = [1_u64, 2, 3_000_000_000_000, 4].iter().flat_map(|n| n.to_ne_bytes()).collect();
        let attributes = Writer::default()
            .text(IFLA_IFNAME, "eth0.7")
            .u32(IFLA_MTU, 1492)
            .u8(IFLA_OPERSTATE, 6)
            .text(IFLA_QDISC, "noqueue")
            .bytes(IFLA_STATS64, &counters)
            .i32(IFLA_LINK, 3)
            .i32(IFLA_MASTER, 9)
            .nest(IFLA_LINKINFO, Writer::default().text(IFLA_INFO_KIND, "vlan").nest(IFLA_INFO_DATA, vlan));
        let body = link(5, attributes);
        let device = parse(&Message::new(libc::RTM_NEWLINK, &body)).unwrap().unwrap();
        assert_eq!((device.index, device.name.as_str(), device.mtu, device.operstate), (5, "eth0.7", 1492, 6));
        assert_eq!((device.kind.as_deref(), device.qdisc.as_str(), device.is_up()), (Some("vlan"), "noqueue", true));
        assert_eq!(device.counted.received_bytes, 3_000_000_000_000);
        assert_eq!((device.counted.sent_packets, device.counted.sent_bytes), (2, 4));
        assert_eq!(device.header_bytes(), 14);
        assert_eq!((device.link, device.master, device.vlan), (Some(3), Some(9), Some(7)));
        for length in 0..body.len() {
            // Whatever it says to a cut message: it must not panic.
            let _ = parse(&Message::new(libc::RTM_NEWLINK, &body[..length]));
        }
    }

    #[test]
    fn ppp_counts_ip_packets() {
        assert_eq!(Device { hardware: 512, ..Device::default() }.header_bytes(), 0);
    }

    #[test]
    fn only_unicast_defaults_of_the_main_table_are_default_routes() {
        let attributes = || Writer::default().u32(libc::RTA_PRIORITY, 20).i32(libc::RTA_OIF, 4);
        assert_eq!(default_route(&route(0, 254, attributes())), Ok(Some((20, 4))));
        assert_eq!(default_route(&route(24, 254, attributes())), Ok(None));
        assert_eq!(default_route(&route(0, 255, attributes())), Ok(None));
        // mwan3's tables have numbers that may not fit into the header's byte.
        assert_eq!(default_route(&route(0, 254, attributes().u32(libc::RTA_TABLE, 1000))), Ok(None));
        let hops = [&8_u16.to_ne_bytes()[..], &[0, 0], &9_i32.to_ne_bytes()[..]].concat();
        assert_eq!(
            default_route(&route(0, 254, Writer::default().bytes(libc::RTA_MULTIPATH, &hops))),
            Ok(Some((0, 9)))
        );
        assert!(default_route(&[0; 11]).is_err());
    }

    #[test]
    fn the_local_end_of_a_point_to_point_link_is_its_address() {
        let header = [[2_u8, 32, 0, 0].as_slice(), &7_u32.to_ne_bytes()].concat();
        let body = Writer::after(&header).bytes(1, &[10, 0, 0, 1]).bytes(2, &[10, 0, 0, 2]).finish();
        let found = address(&body, 7).unwrap().unwrap();
        assert_eq!((found.ip, found.prefix), (IpAddr::from([10, 0, 0, 2]), 32));
        assert_eq!(address(&body, 8), Ok(None));
        assert!(address(&[0; 3], 7).is_err());
    }
}
