//! ATM cells or PTM frames on a DSL line, by the first of these that tells: the live mode, `xfer_mode` (and
//! `line_mode`), the protocol, a VLAN, the device's name, an `atm-bridge` section.
//!
//! The section comes last because configurations of PTM lines often still carry one.

use super::link::Confidence;
use super::modem::{Mode, Modem, State};
use super::network::Wan;
use super::uci::{Config, Section};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    Atm,
    Ptm,
    Unknown,
}

/// How packets are wrapped into cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encapsulation {
    Llc,
    VcMux,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub transfer: Transfer,
    pub confidence: Confidence,
    /// What decided, then what spoke against it.
    pub evidence: Vec<String>,
}

impl Finding {
    fn new(transfer: Transfer, confidence: Confidence, decided: impl Into<String>) -> Self {
        Self { transfer, confidence, evidence: vec![decided.into()] }
    }

    pub fn of(wan: &Wan, modem: Option<&Modem>, network: Option<&Config>) -> Self {
        let bridge = atm_bridge(network, wan);
        let by_mode = modem.and_then(live_mode);
        let mut finding = by_mode
            .or_else(|| configured_mode(network?))
            .or_else(|| protocol(wan))
            .or_else(|| vlan(wan, bridge.is_some()))
            .or_else(|| name(wan))
            .unwrap_or_else(|| by_bridge(wan, bridge, network.is_some()));
        if finding.transfer == Transfer::Ptm && bridge.is_some() {
            finding
                .evidence
                .push("an atm-bridge section is there too, as on many PTM lines: it decides nothing".into());
        }
        finding
    }
}

pub fn live_mode(modem: &Modem) -> Option<Finding> {
    let mode = modem.mode.filter(|_| modem.state == State::Showtime)?;
    let said = modem.mode_said.as_deref().unwrap_or("VDSL2");
    let (transfer, meaning) = match mode {
        Mode::Adsl => (Transfer::Atm, "ADSL, so ATM cells"),
        Mode::Vdsl => (Transfer::Ptm, "VDSL, so PTM frames"),
    };
    Some(Finding::new(transfer, Confidence::Sure, format!("the modem is up as {said}: {meaning}")))
}

fn configured_mode(network: &Config) -> Option<Finding> {
    let option = |name: &str| dsl_sections(network).find_map(|section| section.get(name).map(str::to_lowercase));
    let of = |name: &str, atm: &str, ptm: &str| {
        let value = option(name)?;
        let transfer = if value == atm { Transfer::Atm } else { Transfer::Ptm };
        let said = format!("the configuration says {name} {value}");
        (value == atm || value == ptm).then(|| Finding::new(transfer, Confidence::Likely, said))
    };
    of("xfer_mode", "atm", "ptm").or_else(|| of("line_mode", "adsl", "vdsl"))
}

fn protocol(wan: &Wan) -> Option<Finding> {
    let only_atm = matches!(wan.protocol.as_str(), "pppoa" | "ipoa");
    let said = || format!("the protocol is {}, which exists on ATM only", wan.protocol);
    only_atm.then(|| Finding::new(Transfer::Atm, Confidence::Sure, said()))
}

/// Tags are the custom on PTM lines. But ATM lines with a tag exist, and an `atm-bridge` section then makes both equally
/// likely.
fn vlan(wan: &Wan, bridge: bool) -> Option<Finding> {
    let vlan = wan.stack.vlans.first()?;
    let said = format!("VLAN {vlan} on {}", wan.stack.bottom());
    if wan.stack.bottom().starts_with("ptm") || wan.stack.bottom().starts_with("nas") {
        return None;
    }
    if bridge {
        let mut finding = Finding::new(Transfer::Unknown, Confidence::Unknown, format!("{said} speaks for PTM"));
        finding.evidence.push("an atm-bridge section speaks for ATM; the modem's live mode would decide".into());
        return Some(finding);
    }
    Some(Finding::new(Transfer::Ptm, Confidence::Likely, format!("{said}, as on PTM lines")))
}

fn name(wan: &Wan) -> Option<Finding> {
    let device = wan.stack.bottom();
    let of =
        |transfer, kind| Some(Finding::new(transfer, Confidence::Likely, format!("{device} is a name for {kind}")));
    if device.starts_with("ptm") {
        of(Transfer::Ptm, "PTM")
    } else if device.starts_with("nas") || device.starts_with("atm") {
        of(Transfer::Atm, "ATM")
    } else {
        None
    }
}

fn by_bridge(wan: &Wan, bridge: Option<&Section>, known: bool) -> Finding {
    let device = wan.stack.bottom();
    match bridge {
        Some(_) => Finding::new(
            Transfer::Atm,
            Confidence::Likely,
            format!("an atm-bridge section, and nothing about {device} that speaks for PTM"),
        ),
        None if known => {
            Finding::new(Transfer::Ptm, Confidence::Likely, format!("{device} has no atm-bridge section, so it is PTM"))
        }
        None => Finding::new(
            Transfer::Unknown,
            Confidence::Unknown,
            format!("{device} belongs to a DSL modem, and nothing tells its mode"),
        ),
    }
}

/// From the `atm-bridge` section, for PPPoA from the interface itself. Unsaid it is LLC: OpenWrt's default, and the
/// larger of the two.
pub fn encapsulation(wan: &Wan, network: Option<&Config>) -> (Encapsulation, bool) {
    let interface = network.and_then(|network| network.named("interface", &wan.interface));
    let of_interface = interface.and_then(|interface| interface.get("encaps"));
    let of_bridge = || atm_bridge(network, wan).and_then(|bridge| bridge.get("encaps"));
    let said = if wan.protocol == "pppoa" { of_interface.or_else(of_bridge) } else { of_bridge() };
    match said {
        Some("vc" | "vcmux" | "1") => (Encapsulation::VcMux, true),
        said => (Encapsulation::Llc, said.is_some()),
    }
}

/// IP straight in cells (`payload routed`) instead of Ethernet frames in cells.
pub fn is_routed(wan: &Wan, network: Option<&Config>) -> bool {
    wan.protocol == "ipoa"
        || atm_bridge(network, wan).and_then(|bridge| bridge.get("payload")).is_some_and(|p| p == "routed" || p == "0")
}

fn dsl_sections(network: &Config) -> impl Iterator<Item = &Section> {
    network.sections.iter().filter(|section| matches!(section.kind.as_str(), "dsl" | "vdsl" | "adsl"))
}

/// The section that makes the WAN's device, unless its name says that it makes another one.
fn atm_bridge<'a>(network: Option<&'a Config>, wan: &Wan) -> Option<&'a Section> {
    let makes = |section: &Section| {
        let unit = section.get("unit").unwrap_or("0");
        let named = section.get("nameprefix").map(|prefix| format!("{prefix}{unit}"));
        named.is_none_or(|device| wan.stack.devices.contains(&device) || wan.stack.devices.is_empty())
    };
    network?.of_kind("atm-bridge").find(|section| section.get("disabled") != Some("1") && makes(section))
}
