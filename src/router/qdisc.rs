//! Queueing disciplines over netlink: see them, set one as a device's root, take it away.

use super::attribute::{Attribute, Malformed, Writer, attributes, u32_at, u64_at};
use super::cake;
use super::message::{Message, Request};
use super::netlink::{Error, Socket};
use std::fmt;

/// `MAJOR:MINOR` as tc writes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handle(pub u32);

impl Handle {
    /// The parent of a root qdisc (`TC_H_ROOT`).
    pub const ROOT: Self = Self(0xffff_ffff);
    /// What the kernel sets by itself has this handle and no other.
    pub const DEFAULT: Self = Self(0);
}

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}:", self.0 >> 16)
    }
}

/// A qdisc as the kernel shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Qdisc {
    pub device: i32,
    pub kind: String,
    pub handle: Handle,
    pub parent: Handle,
    /// The kind's own, as they came (CAKE's without padding, which comes and goes).
    pub options: Vec<u8>,
    /// What cannot be set again from what is shown: `a size table`, …
    pub irreproducible: Option<&'static str>,
    pub counted: Counted,
    /// The kind's own statistics.
    pub statistics: Vec<u8>,
}

/// What every qdisc counts. Bytes have the link header in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    pub sent_bytes: u64,
    pub sent_packets: u64,
    pub dropped: u32,
    pub queued_packets: u32,
    pub backlog_bytes: u32,
}

impl fmt::Display for Qdisc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.handle)
    }
}

/// The root qdisc of a device. A device that was never up may show none.
pub fn root(socket: &mut Socket, device: i32) -> Result<Option<Qdisc>, Error> {
    let qdiscs = on_device(socket, device)?;
    Ok(qdiscs.into_iter().find(|qdisc| qdisc.parent == Handle::ROOT))
}

/// Every qdisc of a device: root, children, ingress.
pub fn on_device(socket: &mut Socket, device: i32) -> Result<Vec<Qdisc>, Error> {
    // The kernel shows those of all devices whatever is asked (`tc_dump_qdisc`).
    list(socket, || format!("list the qdiscs of device {device}"), |shown| shown == device)
}

/// Those of every device.
pub fn all(socket: &mut Socket) -> Result<Vec<Qdisc>, Error> {
    list(socket, || "list the qdiscs".into(), |_| true)
}

fn list(socket: &mut Socket, what: impl Fn() -> String, wanted: impl Fn(i32) -> bool) -> Result<Vec<Qdisc>, Error> {
    let body = tc_header(0, Handle::DEFAULT, Handle::DEFAULT);
    let request = Request { kind: libc::RTM_GETQDISC, flags: libc::NLM_F_DUMP, body: &body };
    let parse = |message: Message| {
        let wanted = message.kind == libc::RTM_NEWQDISC && wanted(device_of(message.body)?);
        if wanted { parse(message.body).map(Some) } else { Ok(None) }
    };
    socket.query(what, request, parse)
}

/// Puts a new qdisc at the root in place of what is there. The handle must be free on the device: over one that is
/// taken the kernel would *change* the old qdisc, which keeps every option that is not named.
pub fn replace_root(
    socket: &mut Socket,
    device: &str,
    index: i32,
    kind: &str,
    handle: Handle,
    options: &[u8],
) -> Result<(), Error> {
    let body = request_body(index, kind, handle, options);
    let flags = libc::NLM_F_CREATE | libc::NLM_F_REPLACE;
    let request = Request { kind: libc::RTM_NEWQDISC, flags, body: &body };
    socket.command(|| format!("set {kind} {handle} on {device}"), request)
}

/// The index of the device `lo`, in every network namespace.
pub const LOOPBACK: i32 = 1;

/// Asks for a qdisc of this kind at the loopback's root, with a size table that is none: refused if the kernel knows the kind
/// (it loads the module first), and with another error if not. Nothing changes, since what is asked for is read before anything
/// is set. A kind's own option, if wrong, would be refused too, but with a warning in the kernel's log.
pub fn ask_in_vain(socket: &mut Socket, kind: &str, handle: Handle) -> Result<(), Error> {
    let header = tc_header(LOOPBACK, handle, Handle::ROOT);
    let body = Writer::after(&header).text(libc::TCA_KIND, kind).nest(libc::TCA_STAB, Writer::default()).finish();
    let flags = libc::NLM_F_CREATE | libc::NLM_F_REPLACE;
    let request = Request { kind: libc::RTM_NEWQDISC, flags, body: &body };
    socket.command(|| format!("ask for {kind} on lo"), request)
}

/// Changes the options of the root qdisc that has this kind and handle. Its queue stays.
pub fn change_root(
    socket: &mut Socket,
    device: &str,
    index: i32,
    kind: &str,
    handle: Handle,
    options: &[u8],
) -> Result<(), Error> {
    let body = request_body(index, kind, handle, options);
    let request = Request { kind: libc::RTM_NEWQDISC, flags: 0, body: &body };
    socket.command(|| format!("change {kind} {handle} on {device}"), request)
}

/// Takes the root qdisc away, if it has this handle; the kernel then sets its default.
pub fn delete_root(socket: &mut Socket, device: &str, index: i32, handle: Handle) -> Result<(), Error> {
    let body = tc_header(index, handle, Handle::ROOT);
    let request = Request { kind: libc::RTM_DELQDISC, flags: 0, body: &body };
    socket.command(|| format!("delete the root qdisc {handle} of {device}"), request)
}

/// Whether anybody attached filters to this qdisc: they would go with it.
pub fn has_filters(socket: &mut Socket, device: i32, handle: Handle) -> Result<bool, Error> {
    Ok(!filters(socket, device, handle, |_| Ok(Some(())))?.is_empty())
}

/// What `parse` makes of each filter message of a qdisc.
pub fn filters<T>(
    socket: &mut Socket,
    device: i32,
    parent: Handle,
    mut parse: impl FnMut(&[u8]) -> Result<Option<T>, Malformed>,
) -> Result<Vec<T>, Error> {
    let body = tc_header(device, Handle::DEFAULT, parent);
    let request = Request { kind: libc::RTM_GETTFILTER, flags: libc::NLM_F_DUMP, body: &body };
    let operation = || format!("list the filters of {parent} on device {device}");
    socket.query(
        operation,
        request,
        |message| {
            if message.kind == libc::RTM_NEWTFILTER { parse(message.body) } else { Ok(None) }
        },
    )
}

fn request_body(device: i32, kind: &str, handle: Handle, options: &[u8]) -> Vec<u8> {
    let writer = Writer::after(&tc_header(device, handle, Handle::ROOT)).text(libc::TCA_KIND, kind);
    if options.is_empty() { writer.finish() } else { writer.bytes(libc::TCA_OPTIONS, options).finish() }
}

pub const TC_HEADER: usize = 20;

/// `struct tcmsg`: family, padding, device, handle, parent, info.
pub fn tc_header(device: i32, handle: Handle, parent: Handle) -> [u8; TC_HEADER] {
    let mut header = [0; TC_HEADER];
    header[4..8].copy_from_slice(&device.to_ne_bytes());
    header[8..12].copy_from_slice(&handle.0.to_ne_bytes());
    header[12..16].copy_from_slice(&parent.0.to_ne_bytes());
    header
}

fn device_of(body: &[u8]) -> Result<i32, Malformed> {
    u32_at(body, 4).map(u32::cast_signed)
}

fn parse(body: &[u8]) -> Result<Qdisc, Malformed> {
    // rtnetlink.h; libc has the later ones for glibc only.
    const TCA_INGRESS_BLOCK: u16 = 13;
    const TCA_EGRESS_BLOCK: u16 = 14;
    let (handle, parent) = (Handle(u32_at(body, 8)?), Handle(u32_at(body, 12)?));
    let mut qdisc = Qdisc { device: device_of(body)?, handle, parent, ..Qdisc::default() };
    for attribute in attributes(body.get(TC_HEADER..).unwrap_or(&[])) {
        let attribute = attribute?;
        match attribute.kind {
            libc::TCA_KIND => qdisc.kind = attribute.text()?,
            libc::TCA_OPTIONS => qdisc.options = attribute.payload.to_vec(),
            libc::TCA_STATS2 => statistics(&attribute, &mut qdisc)?,
            libc::TCA_STAB => qdisc.irreproducible = Some("a size table (stab)"),
            TCA_INGRESS_BLOCK | TCA_EGRESS_BLOCK => qdisc.irreproducible = Some("a shared filter block"),
            _ => {}
        }
    }
    if cake::is_cake(&qdisc.kind) {
        qdisc.options = cake::without_padding(&qdisc.options)?;
    }
    Ok(qdisc)
}

/// `TCA_STATS_*` (gen_stats.h).
fn statistics(stats: &Attribute, qdisc: &mut Qdisc) -> Result<(), Malformed> {
    const BASIC: u16 = 1;
    const RATE_ESTIMATOR: [u16; 2] = [2, 5];
    const QUEUE: u16 = 3;
    const APPLICATION: u16 = 4;
    const PACKETS64: u16 = 8;
    let counted = &mut qdisc.counted;
    for attribute in stats.nested() {
        let attribute = attribute?;
        let bytes = attribute.payload;
        match attribute.kind {
            BASIC => {
                counted.sent_bytes = u64_at(bytes, 0)?;
                counted.sent_packets = counted.sent_packets.max(u64::from(u32_at(bytes, 8)?));
            }
            PACKETS64 => counted.sent_packets = u64_at(bytes, 0)?,
            QUEUE => {
                counted.queued_packets = u32_at(bytes, 0)?;
                counted.backlog_bytes = u32_at(bytes, 4)?;
                counted.dropped = u32_at(bytes, 8)?;
            }
            APPLICATION => qdisc.statistics = bytes.to_vec(),
            kind if RATE_ESTIMATOR.contains(&kind) => qdisc.irreproducible = Some("a rate estimator"),
            _ => {}
        }
    }
    Ok(())
}

/// Recorded answers of a kernel (see `recorded/README.md`): little-endian, so for hosts that are.
#[cfg(all(test, target_endian = "little"))]
pub mod recorded {
    use super::{Qdisc, parse};

    pub const CAKE_BESTEFFORT_LOADED: &str = include_str!("recorded/cake-besteffort-loaded.hex");
    pub const CAKE_DIFFSERV4: &str = include_str!("recorded/cake-diffserv4.hex");
    pub const FQ_CODEL: &str = include_str!("recorded/fq_codel.hex");

    /// The message's body, behind the netlink header.
    pub fn body(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.chars().filter_map(|digit| digit.to_digit(16)).map(|digit| digit as u8).collect();
        digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).skip(16).collect()
    }

    pub fn qdisc(hex: &str) -> Qdisc {
        parse(&body(hex)).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_in_the_hosts_byte_order() {
        let body = request_body(3, "cake", Handle(0x5351_0000), &[8, 0, 1, 0, 0, 0, 0, 0]);
        assert_eq!(body[4..8], 3_i32.to_ne_bytes());
        assert_eq!(body[8..12], 0x5351_0000_u32.to_ne_bytes());
        assert_eq!(body[12..16], u32::MAX.to_ne_bytes());
        let read: Vec<_> = attributes(&body[20..]).map(Result::unwrap).collect();
        assert_eq!((read[0].kind, read[0].text().unwrap().as_str()), (1, "cake"));
        assert_eq!((read[1].kind, read[1].payload.len()), (2, 8));
        assert_eq!(attributes(&request_body(3, "pfifo_fast", Handle(1), &[])[20..]).count(), 1);
    }

    /// By hand, so that big-endian hosts test their own order.
    #[test]
    fn what_cannot_be_set_again_is_noticed_and_large_counts_are_read() {
        let header = tc_header(3, Handle(0x8001_0000), Handle::ROOT);
        let basic = [&7_000_000_000_u64.to_ne_bytes()[..], &705_032_704_u32.to_ne_bytes()[..], &[0; 4][..]].concat();
        let queue = [5_u32, 5000, 9, 0, 0].map(u32::to_ne_bytes).concat();
        let stats = Writer::default().bytes(1, &basic).u64(8, 5_000_000_000).bytes(3, &queue);
        let plain = Writer::after(&header).text(1, "fq_codel").nest(7, stats.clone());
        let read = parse(&plain.clone().finish()).unwrap();
        assert_eq!((read.device, read.handle, read.parent), (3, Handle(0x8001_0000), Handle::ROOT));
        let counted = Counted {
            sent_bytes: 7_000_000_000,
            sent_packets: 5_000_000_000,
            dropped: 9,
            queued_packets: 5,
            backlog_bytes: 5000,
        };
        assert_eq!((read.counted, read.irreproducible), (counted, None));
        let with_stab = plain.clone().nest(8, Writer::default());
        assert_eq!(parse(&with_stab.finish()).unwrap().irreproducible, Some("a size table (stab)"));
        assert_eq!(parse(&plain.u32(14, 22).finish()).unwrap().irreproducible, Some("a shared filter block"));
        let estimated = Writer::after(&header).nest(7, stats.bytes(2, &[0; 8]));
        assert_eq!(parse(&estimated.finish()).unwrap().irreproducible, Some("a rate estimator"));
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn a_recorded_cake_is_read_as_tc_reads_it() {
        let read = recorded::qdisc(recorded::CAKE_BESTEFFORT_LOADED);
        assert_eq!(read.to_string(), "cake 5351:");
        assert_eq!((read.device, read.parent, read.irreproducible), (3, Handle::ROOT, None));
        let counted =
            Counted { sent_bytes: 43_602, sent_packets: 43, dropped: 28, queued_packets: 79, backlog_bytes: 80_106 };
        assert_eq!(read.counted, counted);
        let read = recorded::qdisc(recorded::FQ_CODEL);
        assert_eq!((read.to_string().as_str(), read.options.len()), ("fq_codel 12:", 64));
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn damaged_answers_never_panic() {
        for hex in [recorded::CAKE_BESTEFFORT_LOADED, recorded::CAKE_DIFFSERV4, recorded::FQ_CODEL] {
            let body = recorded::body(hex);
            let read = |bytes: &[u8]| {
                if let Ok(read) = parse(bytes) {
                    let _ = (cake::decode(&read.options), cake::statistics(&read.statistics));
                }
            };
            for position in 0..body.len() {
                read(&body[..position]);
                for value in [0, 1, 3, 4, 0x7f, 0xff] {
                    let mut damaged = body.clone();
                    damaged[position] = value;
                    read(&damaged);
                }
            }
        }
    }
}
