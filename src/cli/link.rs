//! `link`: the kind of link and the overhead that belongs to it, before anything is measured.

use super::args::{FactArgs, UsageError};
use super::exit::Exit;
use super::words::{clean, labelled};
use super::{json, print};
use crate::calibration::outcome::Layer;
use crate::openwrt::link::{Confidence, Kind, Link};
use crate::openwrt::{Inventory, Root};
use serde::Serialize;

pub fn link(args: &FactArgs) -> Result<Exit, UsageError> {
    let link = inventory(args)?.link(args.pick.as_ref()).map_err(|error| UsageError(error.to_string()))?;
    answer(&link, args.json, || told(&link));
    Ok(Exit::Done)
}

/// What this router, or the directory that stands for one, says.
pub fn inventory(args: &FactArgs) -> Result<Inventory, UsageError> {
    Ok(Inventory::read(&root(args)?))
}

/// This router, or the directory that stands for one.
pub fn root(args: &FactArgs) -> Result<Root, UsageError> {
    match &args.root {
        None => Ok(Root::live()),
        Some(dir) => Root::at(dir).map_err(|error| UsageError(format!("--root: {}", clean(&error.to_string())))),
    }
}

/// As JSON, or in words.
pub fn answer(value: &impl Serialize, json: bool, told: impl FnOnce() -> String) {
    print(&if json { json::lines(value) } else { told() });
}

fn told(link: &Link) -> String {
    let mut text = String::new();
    let mut row = |label: &str, words: &str| text.push_str(&labelled(label, 10, words, 80));
    let confidence = match link.confidence {
        Confidence::Sure => "",
        Confidence::Likely => ", probably",
        Confidence::Unknown => " for certain",
    };
    let kind = if link.confidence == Confidence::Unknown { "nothing" } else { kind(link.kind) };
    let wan = [&link.interface, &link.device].map(|name| name.as_deref().unwrap_or("not known"));
    row("WAN", &format!("{}, queue on {}", wan[0], wan[1]));
    row("Link", &format!("{kind}{confidence}"));
    let layer = match link.layer {
        Layer::Atm => "ATM cells",
        Layer::Ptm => "PTM frames",
        Layer::Ethernet => "frames",
        Layer::Unknown => "layer unknown",
    };
    let mpu = if link.mpu > 0 { format!(", at least {} bytes", link.mpu) } else { String::new() };
    row("Overhead", &format!("{} bytes a packet{mpu}, {layer}", link.overhead));
    for (n, evidence) in link.evidence.iter().enumerate() {
        row(if n == 0 { "Evidence" } else { "" }, evidence);
    }
    text
}

pub fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::PppoeVdsl2 => "VDSL2 with PPPoE",
        Kind::BridgedVdsl2 => "VDSL2 without PPPoE",
        Kind::PppoeAtm => "ADSL with PPPoE",
        Kind::Pppoa => "ADSL with PPPoA",
        Kind::BridgedAtm => "ADSL with Ethernet frames in cells",
        Kind::Ipoa => "ADSL with IP in cells",
        Kind::Docsis => "cable",
        Kind::Ethernet => "an Ethernet port",
        Kind::Pppoe => "PPPoE through an Ethernet port",
        Kind::Lte => "a mobile network",
        Kind::Unknown => "not known",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibration::outcome::FORMAT;

    #[test]
    fn a_link_is_told_with_its_evidence() {
        let mut link = Link {
            format: FORMAT,
            interface: Some("wan".into()),
            device: Some("pppoe-wan".into()),
            kind: Kind::PppoeVdsl2,
            layer: Layer::Ptm,
            overhead: 34,
            mpu: 0,
            confidence: Confidence::Sure,
            evidence: vec!["the modem is up".into(), "overhead 34".into()],
        };
        assert_eq!(
            told(&link),
            "WAN       wan, queue on pppoe-wan\nLink      VDSL2 with PPPoE\nOverhead  34 bytes a packet, PTM frames\n\
             Evidence  the modem is up\n          overhead 34\n"
        );
        (link.kind, link.layer, link.mpu) = (Kind::Unknown, Layer::Unknown, 84);
        (link.device, link.confidence, link.evidence) = (None, Confidence::Unknown, Vec::new());
        assert_eq!(
            told(&link),
            "WAN       wan, queue on not known\nLink      nothing for certain\n\
             Overhead  34 bytes a packet, at least 84 bytes, layer unknown\n"
        );
    }
}
