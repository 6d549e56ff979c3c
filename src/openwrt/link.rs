//! The kind of link, and what a packet costs on it before anybody has measured.
//!
//! The overheads are those of tc's keywords (`q_cake.c`): bridged-ptm 22, pppoe-ptm 30, docsis 18 with an MPU of 64, and
//! one for each way into ATM cells. Behind an Ethernet port anything may follow: 44 and 84 are what the community uses
//! there, since too much costs half a percent and too little brings the delay back.

use super::device::Medium;
use super::modem::{Modem, State};
use super::network::{Wan, Wans};
use super::settings::{FILE, LineSettings};
use super::transfer::{self, Encapsulation, Finding, Transfer};
use super::uci::Config;
use crate::calibration::outcome::{FORMAT, Layer};
use serde::{Deserialize, Serialize};

/// `link --json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Link {
    pub format: u32,
    pub interface: Option<String>,
    /// Where a queue belongs.
    pub device: Option<String>,
    #[serde(rename = "type")]
    pub kind: Kind,
    pub layer: Layer,
    pub overhead: i32,
    pub mpu: u32,
    pub confidence: Confidence,
    pub evidence: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    #[serde(rename = "pppoe-vdsl2")]
    PppoeVdsl2,
    /// VDSL2 without PPPoE: Ethernet frames in PTM.
    #[serde(rename = "bridged-vdsl2")]
    BridgedVdsl2,
    PppoeAtm,
    Pppoa,
    BridgedAtm,
    Ipoa,
    Docsis,
    Ethernet,
    /// PPPoE through an Ethernet port: a modem or a fibre terminal is at its other end.
    Pppoe,
    Lte,
    Unknown,
}

/// How much the type and the layer can be relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Confidence {
    Unknown,
    /// The configuration or a name says so.
    Likely,
    /// The modem, the protocol or the user says so.
    Sure,
}

/// What one packet costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cost {
    layer: Layer,
    overhead: i32,
    mpu: u32,
}

const VLAN_TAG: i32 = 4;
const BEHIND_A_PORT: Cost = Cost { layer: Layer::Ethernet, overhead: 44, mpu: 84 };

/// What is known of the line that a WAN goes over.
#[derive(Clone, Copy)]
pub struct Known<'a> {
    pub wans: &'a Wans,
    pub wan: Option<&'a Wan>,
    pub modem: Option<&'a Modem>,
    pub network: Option<&'a Config>,
    pub settings: &'a LineSettings,
}

impl Known<'_> {
    /// Whether the WAN goes over the router's own modem. Its device may have any name; if the modem is up and no other
    /// device can be the one on it, this one is.
    pub fn on_modem(&self) -> bool {
        let Some(wan) = self.wan else { return self.modem.is_some() };
        let could = |wan: &Wan| matches!(wan.medium, Some(Medium::Dsl | Medium::Ethernet) | None);
        let up = self.modem.is_some_and(|modem| modem.state == State::Showtime);
        let same = |other: &Wan| other.stack.bottom() == wan.stack.bottom();
        wan.medium == Some(Medium::Dsl)
            || up && could(wan) && self.wans.found.iter().filter(|other| could(other)).all(same)
    }
}

impl Link {
    pub fn of(known: &Known) -> Self {
        let mut told = Told::default();
        let (kind, confidence) = match kind_said(known, &mut told) {
            Some(kind) => (kind, Confidence::Sure),
            None => kind_seen(known, &mut told),
        };
        let cost = cost(kind, known, &mut told);
        context(known, &mut told);
        Self {
            format: FORMAT,
            interface: known.wan.map(|wan| wan.interface.clone()),
            device: known.wan.and_then(|wan| wan.device.clone()),
            kind,
            layer: cost.layer,
            overhead: cost.overhead,
            mpu: cost.mpu,
            confidence,
            evidence: told.0,
        }
    }
}

#[derive(Default)]
struct Told(Vec<String>);

impl Told {
    fn say(&mut self, text: impl Into<String>) {
        self.0.push(text.into());
    }
}

/// What the user says goes before what anybody sees.
fn kind_said(known: &Known, told: &mut Told) -> Option<Kind> {
    let said = known.settings.link.as_deref()?;
    let kind = Kind::named(said);
    match kind {
        Some(_) => told.say(format!("link {said} is set in /etc/config/{FILE}")),
        None => told.say(format!("link {said:?} in /etc/config/{FILE} is no type of link and is left out of account")),
    }
    kind
}

fn kind_seen(known: &Known, told: &mut Told) -> (Kind, Confidence) {
    let Some(wan) = known.wan else {
        told.say("no WAN is known here");
        return of_mere_modem(known.modem, told);
    };
    if known.on_modem() {
        return on_modem(wan, known, told);
    }
    let device = wan.over();
    let name = &wan.interface;
    match (wan.medium, wan.protocol.as_str()) {
        (Some(Medium::Mobile), protocol) => {
            told.say(format!("{name} speaks {protocol} over {device}: a mobile network"));
            (Kind::Lte, Confidence::Likely)
        }
        (Some(Medium::WiFi), _) => {
            told.say(format!("{name} goes over Wi-Fi ({device}), and what follows there cannot be seen from here"));
            (Kind::Unknown, Confidence::Unknown)
        }
        (Some(_), "pppoe") => {
            told.say(format!("{name} speaks PPPoE through the Ethernet device {device}"));
            told.say("the modem or fibre terminal behind it cannot be seen from here");
            (Kind::Pppoe, Confidence::Likely)
        }
        (Some(_), protocol) => {
            told.say(format!("{name} speaks {protocol} through the Ethernet device {device}"));
            told.say("whether cable, fibre or another router is behind it cannot be seen from here");
            (Kind::Ethernet, Confidence::Likely)
        }
        (None, protocol) => {
            told.say(format!("{name} speaks {protocol} and has no device yet"));
            (Kind::Unknown, Confidence::Unknown)
        }
    }
}

/// A modem is up and nobody knows what for: PPPoE has the larger overhead, and is what most have.
fn of_mere_modem(modem: Option<&Modem>, told: &mut Told) -> (Kind, Confidence) {
    let Some(Finding { transfer, evidence, .. }) = modem.and_then(transfer::live_mode) else {
        return (Kind::Unknown, Confidence::Unknown);
    };
    told.0.extend(evidence);
    told.say("PPPoE is assumed");
    (if transfer == Transfer::Atm { Kind::PppoeAtm } else { Kind::PppoeVdsl2 }, Confidence::Likely)
}

fn on_modem(wan: &Wan, known: &Known, told: &mut Told) -> (Kind, Confidence) {
    let named = wan.medium == Some(Medium::Dsl);
    told.say(format!("{} speaks {} over {}", wan.interface, wan.protocol, wan.over()));
    let Finding { transfer, mut confidence, evidence } = Finding::of(wan, known.modem, known.network);
    told.0.extend(evidence);
    if !named {
        told.say(format!("no other WAN than that on {} can be on this router's modem", wan.stack.bottom()));
        confidence = confidence.min(Confidence::Likely);
    }
    let kind = match (transfer, wan.protocol.as_str()) {
        (Transfer::Ptm, "pppoe") => Kind::PppoeVdsl2,
        (Transfer::Ptm, _) => Kind::BridgedVdsl2,
        (Transfer::Atm, "pppoe") => Kind::PppoeAtm,
        (Transfer::Atm, "pppoa") => Kind::Pppoa,
        (Transfer::Atm, _) if transfer::is_routed(wan, known.network) => Kind::Ipoa,
        (Transfer::Atm, _) => Kind::BridgedAtm,
        (Transfer::Unknown, _) => Kind::Unknown,
    };
    (kind, confidence)
}

fn cost(kind: Kind, known: &Known, told: &mut Told) -> Cost {
    let tags = known.wan.filter(|_| kind.is_dsl()).map_or(0, |wan| wan.stack.vlans.len() as i32);
    let (base, layer, mpu, keyword) = match kind {
        Kind::PppoeVdsl2 => (30, Layer::Ptm, 0, "PPPoE on PTM"),
        Kind::BridgedVdsl2 => (22, Layer::Ptm, 0, "Ethernet on PTM"),
        Kind::PppoeAtm | Kind::Pppoa | Kind::BridgedAtm | Kind::Ipoa => return atm_cost(kind, tags, known, told),
        Kind::Docsis => (18, Layer::Ethernet, 64, "DOCSIS"),
        Kind::Ethernet | Kind::Pppoe => {
            told.say("overhead 44, MPU 84: what is safe behind an Ethernet port");
            return BEHIND_A_PORT;
        }
        Kind::Lte | Kind::Unknown => {
            told.say("overhead 44, MPU 84: what is safe where nothing is known");
            return Cost { layer: Layer::Unknown, ..BEHIND_A_PORT };
        }
    };
    let overhead = base + tags * VLAN_TAG;
    told.say(format!("overhead {overhead}: {keyword} {base}{}", tag_words(tags, known)));
    Cost { layer, overhead, mpu }
}

fn atm_cost(kind: Kind, tags: i32, known: &Known, told: &mut Told) -> Cost {
    let (encapsulation, said) =
        known.wan.map_or((Encapsulation::Llc, false), |wan| transfer::encapsulation(wan, known.network));
    let llc = encapsulation == Encapsulation::Llc;
    let (base, keyword) = match kind {
        Kind::Pppoa => (if llc { 14 } else { 10 }, "PPPoA"),
        Kind::Ipoa => (if llc { 16 } else { 8 }, "IP"),
        Kind::BridgedAtm => (if llc { 32 } else { 24 }, "Ethernet"),
        _ => (if llc { 40 } else { 32 }, "PPPoE"),
    };
    let wrapped = match (llc, said) {
        (true, true) => "LLC",
        (true, false) => "LLC, the larger way, since nothing says which",
        (false, _) => "VC multiplexing",
    };
    let overhead = base + tags * VLAN_TAG;
    told.say(format!("overhead {overhead}: {keyword} on ATM {base} ({wrapped}){}", tag_words(tags, known)));
    Cost { layer: Layer::Atm, overhead, mpu: 0 }
}

fn tag_words(tags: i32, known: &Known) -> String {
    let named = known.wan.map(|wan| wan.stack.vlans.join(" and ")).unwrap_or_default();
    if tags == 0 { String::new() } else { format!(" + VLAN {named} {}", tags * VLAN_TAG) }
}

/// What else a reader should know.
fn context(known: &Known, told: &mut Told) {
    if let (Some(tunnel), Some(wan)) = (&known.wans.tunnel, known.wan) {
        let device = wan.device.as_deref().unwrap_or(&wan.interface);
        told.say(format!("the default route goes into the tunnel {tunnel}; the queue belongs on {device} below it"));
    }
    let others = known.wans.found.iter().filter(|other| Some(*other) != known.wan);
    let others: Vec<String> = others.map(ToString::to_string).collect();
    if known.wan.is_some() && !others.is_empty() {
        told.say(format!("not the only WAN: {} can be chosen with --interface", others.join(", ")));
    }
}

impl Kind {
    /// As JSON has it.
    pub fn named(name: &str) -> Option<Self> {
        serde_json::from_value(name.into()).ok()
    }

    fn is_dsl(self) -> bool {
        matches!(
            self,
            Self::PppoeVdsl2 | Self::BridgedVdsl2 | Self::PppoeAtm | Self::Pppoa | Self::BridgedAtm | Self::Ipoa
        )
    }
}
