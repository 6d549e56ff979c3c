//! Leads a device's incoming packets through an IFB, so that a shaper can stand in their way.

use super::attribute::{Attribute, Malformed, Writer, attributes, u32_at};
use super::device::{self, Device};
use super::journal::{Change, Journal};
use super::message::Request;
use super::netlink::{Error, Socket};
use super::qdisc::{self, Handle, Qdisc, TC_HEADER, tc_header};
use crate::line::LineError;
use std::sync::Arc;

/// Where `ingress` and `clsact` stand, and their handle (pkt_sched.h).
const INGRESS_PARENT: Handle = Handle(0xffff_fff1);
const INGRESS: Handle = Handle(0xffff_0000);
/// clsact's incoming side; of plain `ingress` any minor number of its handle will do.
const INGRESS_FILTERS: Handle = Handle(0xffff_fff2);

/// A redirect of ours. Dropped, it is taken away again.
pub struct Redirect {
    socket: Socket,
    device: Device,
    through: Device,
    journal: Arc<Journal>,
    stands: bool,
}

/// Through which device somebody already leads what comes in (SQM: `ifb4eth0`).
///
/// # Errors
/// [`LineError::Refused`] if something else is done with what comes in: ours would come before or after it.
pub fn existing(socket: &mut Socket, device: &Device) -> Result<Option<Device>, LineError> {
    let Some(ingress) = ingress(socket, device.index)? else { return Ok(None) };
    let targets = targets(socket, device.index, &ingress)?;
    let Some(first) = targets.first().filter(|first| targets.iter().all(|target| target == *first)) else {
        let problem = format!("{} has filters for what comes in ({ingress}) that lead to no one device", device.name);
        return Err(LineError::refused(problem, "Stop what set them, or leave download unshaped"));
    };
    Ok(device::by_index(socket, *first)?)
}

impl Redirect {
    /// Makes an IFB and leads everything that comes in through it. Only for a device without an [`existing`] one.
    pub fn open(device: &Device, journal: &Arc<Journal>) -> Result<Self, LineError> {
        let through = Device { name: format!("sqmtune{}", device.index), ..Device::default() };
        let (device, journal) = (device.clone(), Arc::clone(journal));
        let mut redirect = Self { socket: Socket::open()?, device, through, journal, stands: false };
        redirect.journal.write(&redirect.device.name, redirect.device.index, &redirect.change())?;
        // From here on `Drop` undoes as much as there is.
        redirect.stands = true;
        redirect.set_up()?;
        Ok(redirect)
    }

    fn set_up(&mut self) -> Result<(), LineError> {
        add_ifb(&mut self.socket, &self.through.name)?;
        self.through = device::by_name(&mut self.socket, &self.through.name)?;
        add_ingress(&mut self.socket, &self.device)?;
        add_filter(&mut self.socket, &self.device, self.through.index)?;
        self.undisturbed()
    }

    fn change(&self) -> Change {
        Change::Redirect { through: self.through.name.clone() }
    }

    /// The IFB.
    pub fn through(&self) -> &Device {
        &self.through
    }

    /// Whether what comes in is still led through our IFB and nothing else.
    pub fn undisturbed(&mut self) -> Result<(), LineError> {
        let ingress = ingress(&mut self.socket, self.device.index)?;
        let targets = match &ingress {
            Some(ingress) => targets(&mut self.socket, self.device.index, ingress)?,
            None => Vec::new(),
        };
        if targets == [self.through.index] {
            return Ok(());
        }
        Err(LineError::Disturbed { what: format!("the way of what comes in on {}", self.device.name) })
    }

    /// Takes the redirect and the IFB away, unless somebody has set another one meanwhile.
    pub fn put_back(&mut self) -> Result<(), LineError> {
        if std::mem::take(&mut self.stands) {
            let Device { name, index, .. } = &self.device;
            put_back(&mut self.socket, name, *index, &self.through.name).inspect_err(|_| self.stands = true)?;
            self.journal.remove(name, &self.change())?;
        }
        Ok(())
    }
}

impl Drop for Redirect {
    fn drop(&mut self) {
        if let Err(error) = self.put_back() {
            log::error!("{error}");
        }
    }
}

/// Takes away what [`Redirect::open`] made, whole or in part, and says what it found.
pub fn put_back(socket: &mut Socket, name: &str, index: i32, through: &str) -> Result<&'static str, LineError> {
    let ours = device::all(socket)?.into_iter().find(|device| device.name == through);
    let mut found = "nothing led through our device";
    if let Some(ingress) = ingress(socket, index)? {
        let targets = targets(socket, index, &ingress)?;
        // Ours: it leads to our IFB, or was left without a filter in between.
        let to_ours = ours.as_ref().is_some_and(|ours| targets.iter().all(|target| *target == ours.index));
        if to_ours && ingress.kind == "ingress" {
            let body = tc_header(index, INGRESS, INGRESS_PARENT);
            let request = Request { kind: libc::RTM_DELQDISC, flags: 0, body: &body };
            socket.command(|| format!("delete the ingress qdisc of {name}"), request)?;
            found = "took our redirect away";
        }
    }
    if let Some(ours) = ours {
        let request = Request { kind: libc::RTM_DELLINK, flags: 0, body: &link_header(ours.index, false) };
        socket.command(|| format!("delete the device {through}"), request)?;
    }
    Ok(found)
}

fn ingress(socket: &mut Socket, device: i32) -> Result<Option<Qdisc>, Error> {
    let qdiscs = qdisc::on_device(socket, device)?;
    Ok(qdiscs.into_iter().find(is_ingress))
}

/// Whether this is where what comes in can be filtered: `ingress` or `clsact`.
pub fn is_ingress(qdisc: &Qdisc) -> bool {
    qdisc.parent == INGRESS_PARENT
}

/// Where the filters of what comes in lead, one entry for each that leads anywhere.
pub fn targets(socket: &mut Socket, device: i32, ingress: &Qdisc) -> Result<Vec<i32>, Error> {
    let parent = if ingress.kind == "clsact" { INGRESS_FILTERS } else { INGRESS };
    qdisc::filters(socket, device, parent, target)
}

fn add_ifb(socket: &mut Socket, name: &str) -> Result<(), LineError> {
    const IFLA_IFNAME: u16 = 3;
    const IFLA_LINKINFO: u16 = 18;
    const IFLA_INFO_KIND: u16 = 1;
    let kind = Writer::default().text(IFLA_INFO_KIND, "ifb");
    let body = Writer::after(&link_header(0, true)).text(IFLA_IFNAME, name).nest(IFLA_LINKINFO, kind).finish();
    let request = Request { kind: libc::RTM_NEWLINK, flags: libc::NLM_F_CREATE | libc::NLM_F_EXCL, body: &body };
    let result = socket.command(|| format!("make the device {name}"), request);
    result.map_err(|error| or_without(error, &[libc::EOPNOTSUPP, libc::ENOENT], "IFB devices", "kmod-ifb"))
}

fn add_ingress(socket: &mut Socket, device: &Device) -> Result<(), LineError> {
    let body =
        Writer::after(&tc_header(device.index, INGRESS, INGRESS_PARENT)).text(libc::TCA_KIND, "ingress").finish();
    let request = Request { kind: libc::RTM_NEWQDISC, flags: libc::NLM_F_CREATE | libc::NLM_F_EXCL, body: &body };
    let result = socket.command(|| format!("set an ingress qdisc on {}", device.name), request);
    result.map_err(|error| or_without(error, &[libc::ENOENT], "ingress qdisc", "kmod-sched-core"))
}

/// `matchall` with one action: `mirred egress redirect dev`.
fn add_filter(socket: &mut Socket, device: &Device, through: i32) -> Result<(), LineError> {
    let body = filter(device.index, through);
    let request = Request { kind: libc::RTM_NEWTFILTER, flags: libc::NLM_F_CREATE | libc::NLM_F_EXCL, body: &body };
    let result = socket.command(|| format!("lead what comes in on {} through an IFB", device.name), request);
    result.map_err(|error| or_without(error, &[libc::ENOENT], "matchall or mirred", "kmod-sched-core"))
}

pub fn or_without(error: Error, missing: &[i32], what: &str, package: &str) -> LineError {
    if !error.errno().is_some_and(|errno| missing.contains(&errno)) {
        return error.into();
    }
    let fix = format!("Install it (opkg install {package}, or on OpenWrt with apk: apk add {package})");
    LineError::refused(format!("this kernel has no {what}"), fix)
}

/// `struct ifinfomsg`.
pub fn link_header(index: i32, up: bool) -> [u8; 16] {
    let mut header = [0; 16];
    let flags = if up { (libc::IFF_UP as u32).to_ne_bytes() } else { [0; 4] };
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    header[8..12].copy_from_slice(&flags);
    header[12..16].copy_from_slice(&flags);
    header
}

// pkt_cls.h, tc_act/tc_mirred.h.
const MATCHALL_ACTIONS: u16 = 2;
const ACTION_KIND: u16 = 1;
const ACTION_OPTIONS: u16 = 2;
const MIRRED_PARAMETERS: u16 = 2;
const EGRESS_REDIRECT: u32 = 1;
const STOLEN: u32 = 4;

fn filter(device: i32, through: i32) -> Vec<u8> {
    let mut header = tc_header(device, Handle::DEFAULT, INGRESS);
    // Priority 1, all protocols; the protocol is in network byte order.
    let info = (1_u32 << 16) | u32::from((libc::ETH_P_ALL as u16).to_be());
    header[16..20].copy_from_slice(&info.to_ne_bytes());
    // `struct tc_mirred`: index, capabilities, action, references, bindings, what to do, device.
    let mirred = [0, 0, STOLEN, 0, 0, EGRESS_REDIRECT, through.cast_unsigned()].map(u32::to_ne_bytes).concat();
    let options = Writer::default().bytes(MIRRED_PARAMETERS, &mirred);
    let action = Writer::default().text(ACTION_KIND, "mirred").nest(ACTION_OPTIONS, options);
    let actions = Writer::default().nest(MATCHALL_ACTIONS, Writer::default().nest(1, action));
    Writer::after(&header).text(libc::TCA_KIND, "matchall").nest(libc::TCA_OPTIONS, actions).finish()
}

/// The device that a filter redirects to; `None` for one without a redirect (u32 has such for its hash tables).
fn target(body: &[u8]) -> Result<Option<i32>, Malformed> {
    let (mut kind, mut options) = (String::new(), None);
    for attribute in attributes(body.get(TC_HEADER..).unwrap_or(&[])) {
        let attribute = attribute?;
        match attribute.kind {
            libc::TCA_KIND => kind = attribute.text()?,
            libc::TCA_OPTIONS => options = Some(attribute),
            _ => {}
        }
    }
    // TCA_U32_ACT, TCA_MATCHALL_ACT, TCA_FLOWER_ACT.
    let actions = match kind.as_str() {
        "u32" => 7,
        "matchall" => MATCHALL_ACTIONS,
        "flower" => 3,
        _ => return Ok(None),
    };
    let Some(actions) = options.map(|options| child(&options, actions)).transpose()?.flatten() else { return Ok(None) };
    for action in actions.nested() {
        let Some(options) = child(&action?, ACTION_OPTIONS)? else { continue };
        let is_mirred = child(&action?, ACTION_KIND)?.map(|kind| kind.text()).transpose()?.as_deref() == Some("mirred");
        if let Some(mirred) = child(&options, MIRRED_PARAMETERS)?.filter(|_| is_mirred)
            && u32_at(mirred.payload, 20)? == EGRESS_REDIRECT
        {
            return Ok(Some(u32_at(mirred.payload, 24)?.cast_signed()));
        }
    }
    Ok(None)
}

fn child<'a>(parent: &Attribute<'a>, kind: u16) -> Result<Option<Attribute<'a>>, Malformed> {
    for attribute in parent.nested() {
        let attribute = attribute?;
        if attribute.kind == kind {
            return Ok(Some(attribute));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_that_is_written_is_read_as_a_redirect() {
        let body = filter(3, 9);
        assert_eq!(target(&body), Ok(Some(9)));
        assert_eq!(body[4..8], 3_i32.to_ne_bytes());
        assert_eq!(u32_at(&body, 12), Ok(0xffff_0000));
        // On the wire the protocol is 00 03 on every host.
        let info = u32_at(&body, 16).unwrap();
        assert_eq!((info >> 16, (info as u16).to_ne_bytes()), (1, [0, 3]));
        for length in 0..body.len() {
            let _ = target(&body[..length]);
        }
    }

    #[test]
    fn filters_that_lead_nowhere_are_none() {
        let header = tc_header(3, Handle::DEFAULT, INGRESS);
        let bpf = Writer::after(&header).text(1, "bpf").nest(2, Writer::default().u32(1, 1));
        assert_eq!(target(&bpf.finish()), Ok(None));
        let hash_table = Writer::after(&header).text(1, "u32").nest(2, Writer::default().u32(3, 1));
        assert_eq!(target(&hash_table.finish()), Ok(None));
        assert_eq!(target(&header), Ok(None));
    }
}
