//! The router that this program runs on.

use super::Held;
use crate::calibration::outcome::{Doubt, TrialRecord};
use crate::calibration::{self, Plan};
use crate::cli::args::{LineArgs, RouterArgs, UsageError};
use crate::cli::{held, progress, signals, state};
use crate::line::{Caveat, LineError, LinkType, Step, Stoppable};
use crate::openwrt::link::{Confidence, Kind};
use crate::openwrt::live::{Live, Probe};
use crate::openwrt::network::Pick;
use crate::openwrt::{Inventory, Root};
use crate::router::target::Choice;
use crate::router::tls::Trust;
use crate::router::{self, RouterLine, Settings, journal};
use crate::units::Rate;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub fn open(args: &RouterArgs, stop: Arc<AtomicBool>) -> Result<Held, UsageError> {
    let general = held::general(&Root::live())?;
    // What is said now goes before what is configured, all three together.
    let said = args.server.is_some() || args.upload_url.is_some() || args.download_url.is_some();
    let url = |said_now: &Option<String>, configured: Option<String>| if said { said_now.clone() } else { configured };
    let server = url(&args.server, general.server);
    let (upload, download) = (url(&args.upload_url, general.upload_url), url(&args.download_url, general.download_url));
    let reflectors = if args.reflectors.is_empty() { &general.reflectors } else { &args.reflectors };
    let server = Choice::from_args(server.as_deref(), upload.as_deref(), download.as_deref())
        .map_err(|error| UsageError(error.to_string()))?;
    let known = known(&Inventory::read(&Root::live()), args.device.as_deref());
    let line = RouterLine::new(Settings {
        device: args.device.clone().or(known.device),
        reflectors: reflectors.iter().map(ToString::to_string).collect(),
        server,
        trust: Trust { file: args.ca.clone().or(general.ca_file) },
        link: known.link,
        sync_up: known.sync_up,
        sync_down: known.sync_down,
        caveats: known.caveats,
        journal: journal::DIRECTORY.into(),
    });
    Ok(Held::of(Stoppable { inner: line, stop }))
}

/// Puts back what a killed run left; says what that was.
pub fn restore() -> Result<Vec<String>, LineError> {
    journal::restore(Path::new(journal::DIRECTORY))
}

/// What the kernel does on a device now.
pub fn live(device: &str) -> Result<Live, LineError> {
    Ok(Live::of(&state::now()?, device))
}

/// The largest IPv4 packet of at most `most` bytes that gets through a device to one of the reflectors, ours where none is
/// given, and back. `None`: none of them answers.
pub fn largest_packet(reflectors: &[IpAddr], device: &str, most: u32) -> Result<Option<u32>, LineError> {
    let by_name: Vec<String> = reflectors.iter().map(ToString::to_string).collect();
    router::largest_packet(&by_name, device, most)
}

/// A short measurement of the line as it is, under load. `None`: it could not be measured.
///
/// # Errors
/// [`LineError::Refused`]: it may not be measured, and so not be changed either.
pub fn probe(args: &LineArgs, device: &str) -> Result<Option<Probe>, LineError> {
    let args = RouterArgs { device: Some(device.into()), ..args.router.clone() };
    let mut held = open(&args, signals::flag()).map_err(|error| LineError::failed("measure the line", error))?;
    let run = calibration::measure(held.line(), &Plan::default(), &mut progress::on_stderr());
    match run.error {
        Some(refused @ LineError::Refused { .. }) => Err(refused),
        _ => Ok(probed(&run.outcome.trials)),
    }
}

fn probed(trials: &[TrialRecord]) -> Option<Probe> {
    let loaded = trials.iter().rev().find(|trial| trial.step == Step::Unshaped)?;
    Some(Probe { added_p95_ms: loaded.added_ms?, throughput_kbit: loaded.throughput_kbit })
}

/// What the router knows of the line before it is measured.
#[derive(Debug, PartialEq)]
struct Known {
    /// Where the WAN's queue belongs.
    device: Option<String>,
    link: LinkType,
    sync_up: Option<Rate>,
    sync_down: Option<Rate>,
    caveats: Vec<Caveat>,
}

/// A device that is no WAN of this router's is one of which nothing is known.
fn known(inventory: &Inventory, device: Option<&str>) -> Known {
    let pick = device.map(|device| Pick::Device(device.into()));
    let link = inventory.link(pick.as_ref()).ok();
    let sync = link.as_ref().and_then(|_| inventory.sync(pick.as_ref()).ok());
    let rate = |kbit: Option<u64>| kbit.map(Rate::from_kbit);
    let caveat = |doubt: &Doubt| Caveat { code: doubt.code.clone(), text: doubt.text.clone() };
    Known {
        device: link.as_ref().filter(|_| inventory.has_netifd).and_then(|link| link.device.clone()),
        link: link.filter(|link| link.confidence > Confidence::Unknown).map_or(LinkType::Unknown, |link| of(link.kind)),
        sync_up: sync.as_ref().and_then(|sync| rate(sync.upload_kbit)),
        sync_down: sync.as_ref().and_then(|sync| rate(sync.download_kbit)),
        caveats: sync.iter().flat_map(|sync| sync.doubts.iter().map(caveat)).collect(),
    }
}

/// What counts for a calibration is the framing: PTM, cells or frames.
fn of(kind: Kind) -> LinkType {
    match kind {
        Kind::PppoeVdsl2 | Kind::BridgedVdsl2 => LinkType::PppoeVdsl2,
        Kind::PppoeAtm | Kind::BridgedAtm | Kind::Ipoa => LinkType::PppoeAtm,
        Kind::Pppoa => LinkType::Pppoa,
        Kind::Docsis => LinkType::Docsis,
        Kind::Ethernet => LinkType::Ethernet,
        Kind::Pppoe => LinkType::Pppoe,
        Kind::Lte => LinkType::Lte,
        Kind::Unknown => LinkType::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known_of(router: &str, device: Option<&str>) -> Known {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/routers");
        known(&Inventory::read(&Root::at(&fixtures.join(router)).unwrap()), device)
    }

    #[test]
    fn what_the_router_knows_reaches_the_calibration() {
        let vdsl2 = Known {
            device: Some("pppoe-wan".into()),
            link: LinkType::PppoeVdsl2,
            sync_up: Some(Rate::from_kbit(17_999)),
            sync_down: Some(Rate::from_kbit(66_999)),
            caveats: Vec::new(),
        };
        assert_eq!(known_of("vdsl2-vlan101", None), vdsl2);
        assert_eq!(known_of("vdsl2-vlan101", Some("dsl0.101")), vdsl2);
        let guessed = known_of("other-driver-kbit", None).caveats;
        assert_eq!(guessed.iter().map(|caveat| caveat.code.as_str()).collect::<Vec<_>>(), ["unit-guessed"]);
        let nothing =
            Known { device: None, link: LinkType::Unknown, sync_up: None, sync_down: None, caveats: Vec::new() };
        assert_eq!(known_of("vdsl2-vlan101", Some("br-lan")), nothing);
        assert_eq!(known_of("atm-bridge-and-vlan", None), nothing, "a configuration alone names no device");
    }
}
