//! `mtu`: which MTU the WireGuard tunnels should have.

use super::args::{FactArgs, UsageError};
use super::exit::Exit;
use super::link::{answer, root};
use super::words::{clean, labelled};
use super::{complain, held, line};
use crate::advice::wireguard::{Action, Advice, Family, Path, Tunnel};
use crate::calibration::outcome::FORMAT;
use crate::openwrt::Root;
use crate::openwrt::mtu::{Carrier, Mtus, WanMtu, WireGuard};
use crate::openwrt::network::Pick;
use serde::Serialize;
use std::net::IpAddr;

/// `mtu --json`.
#[derive(Debug, Serialize)]
pub struct Mtu {
    format: u32,
    wan: WanMtu,
    tunnels: Vec<Advice>,
}

pub fn mtu(args: &FactArgs) -> Result<Exit, UsageError> {
    let root = root(args)?;
    // Only where this runs can the path be asked.
    let general = if root.is_live() { Some(held::general(&root)?) } else { None };
    let ask = |carrier: &Carrier| probed(&general.as_ref()?.reflectors, carrier);
    let mtu = advise(&root, args.pick.as_ref(), &ask)?;
    answer(&mtu, args.json, || told(&mtu));
    Ok(Exit::Done)
}

/// `ask`: the largest IPv4 packet that a carrier lets through; `None`: nobody knows.
pub fn advise(root: &Root, pick: Option<&Pick>, ask: &dyn Fn(&Carrier) -> Option<u32>) -> Result<Mtu, UsageError> {
    let mtus = Mtus::read(root);
    let mut carrier = mtus.carrier(pick).map_err(|error| UsageError(error.to_string()))?;
    if let Some(largest) = ask(&carrier) {
        carrier.seen(largest);
    }
    let tunnels = mtus.tunnels().iter().map(|tunnel| advice(tunnel, &carrier, &mtus)).collect();
    Ok(Mtu { format: FORMAT, wan: carrier.wan, tunnels })
}

/// Only where there is a WAN, which the pings can be bound to.
fn probed(reflectors: &[IpAddr], carrier: &Carrier) -> Option<u32> {
    let device = carrier.wan.device.as_deref()?;
    line::largest_packet(reflectors, device, carrier.ipv4).unwrap_or_else(|error| {
        complain(&clean(&format!("{error}: the MTU is what the router says, and was not tried")));
        None
    })
}

/// A tunnel that is bound to another WAN has that one's numbers.
fn advice(tunnel: &WireGuard, carrier: &Carrier, mtus: &Mtus) -> Advice {
    let bound = tunnel.through.clone().and_then(|name| mtus.carrier(Some(&Pick::Interface(name))).ok());
    let own = bound.as_ref().filter(|bound| bound.wan.device != carrier.wan.device);
    let carrier = own.unwrap_or(carrier);
    let path = Path { ipv4: carrier.ipv4, ipv6: carrier.wan.mtu, uncertain: carrier.uncertain };
    let facts = Tunnel { name: tunnel.name.clone(), mtu: tunnel.mtu, family: family(tunnel), clamped: tunnel.clamped };
    let mut advice = Advice::of(&facts, path);
    if let Some(own) = own {
        advice.why = format!("{}. It is bound to another WAN: {}", advice.why, own.wan.why);
    }
    advice
}

/// Of several peers, the one with the larger headers decides.
fn family(tunnel: &WireGuard) -> Family {
    let is = |v6: bool| tunnel.endpoints.iter().flatten().any(|address| address.is_ipv6() == v6);
    match (is(true), tunnel.endpoints.iter().any(Option::is_none), is(false)) {
        (true, _, _) => Family::Ipv6,
        (false, false, true) => Family::Ipv4,
        _ => Family::Unknown,
    }
}

fn told(mtu: &Mtu) -> String {
    let device = mtu.wan.device.as_deref().unwrap_or("not known");
    // `WireGuard` is nine letters, and the kernel takes names of fifteen.
    let width = mtu.tunnels.iter().map(|tunnel| tunnel.name.len() + 2).fold(11, usize::max);
    let mut text = labelled("WAN", width, &format!("{device}, packets up to {} bytes", mtu.wan.mtu), 80);
    text += &labelled("", width, &mtu.wan.why, 80);
    if mtu.tunnels.is_empty() {
        text += &labelled("WireGuard", width, "no tunnel is configured here", 80);
    }
    for tunnel in &mtu.tunnels {
        let action = match tunnel.action {
            Action::Lower => format!("lower the MTU from {} to {}", tunnel.mtu, tunnel.advice_mtu),
            Action::Raise => format!("raise the MTU from {} to {}", tunnel.mtu, tunnel.advice_mtu),
            Action::Keep => format!("the MTU of {} is fine", tunnel.mtu),
        };
        text += "\n";
        text += &labelled(&tunnel.name, width, &action, 80);
        text += &labelled("", width, &tunnel.why, 80);
        let mss = format!("TCP's MSS then is {} over IPv4, {} over IPv6", tunnel.mss_ipv4, tunnel.mss_ipv6);
        text += &labelled("", width, &mss, 80);
    }
    text
}
