//! Everything that a diagnosis looks at, read once.

use crate::calibration::outcome::Outcome;
use crate::openwrt::inventory::Inventory;
use crate::openwrt::root::{Root, RootError};
use crate::openwrt::state::RouterState;
use crate::openwrt::uci::Config;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::SystemTime;

/// The files that decide about SQM.
const CONFIGS: [&str; 4] = ["sqm", "network", "firewall", "sqm-autotune"];
/// `/var` is `/tmp` on OpenWrt; a copy of a router may have either.
const LOCKS: [&str; 3] = ["var/run/sqm/sqm-run.lock", "tmp/run/sqm/sqm-run.lock", "run/sqm/sqm-run.lock"];

#[derive(Debug)]
pub struct Facts {
    pub sqm: Option<Config>,
    pub firewall: Option<Config>,
    /// The configurations that libuci rejects, and why.
    pub unreadable: Vec<(String, String)>,
    pub inventory: Inventory,
    /// All network devices; `None`: nobody knows which there are.
    pub ports: Option<BTreeMap<String, Port>>,
    /// What there is in `/usr/lib/sqm` and `/etc/rc.d`.
    pub scripts: Option<Vec<String>>,
    pub started_at_boot: Option<Vec<String>>,
    /// procd's services.
    pub services: Option<Value>,
    /// What the other programs that set rates are configured with.
    pub others: BTreeMap<String, Config>,
    /// The command lines of all processes, by their number; `None`: unknown.
    pub processes: Option<BTreeMap<u32, String>>,
    /// Who holds SQM's run lock.
    pub lock: Option<u32>,
    /// Kernel modules, loaded or there to be loaded; `None`: unknown.
    pub modules: Option<Vec<String>>,
    pub loaded: Vec<String>,
    /// Packets that a device has received since it came to be.
    pub received: BTreeMap<String, u64>,
    /// The kernel's own list has one; `None`: nobody has looked.
    pub default_route: Option<bool>,
    pub machine: Machine,
    pub live: RouterState,
    /// Of calibrations, the last one first.
    pub outcomes: Vec<Outcome>,
}

/// What only the running machine has, and no directory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Machine {
    pub now: Option<SystemTime>,
    /// Bytes free where `/etc` is kept.
    pub free_bytes: Option<u64>,
}

/// What `/sys/class/net/DEV` says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Port {
    /// Mbit/s; `None` where the kernel does not know, as without a cable.
    pub speed: Option<u64>,
    pub mtu: Option<u32>,
    pub is_down: bool,
}

impl Facts {
    /// `live` is the running kernel's state, or the directory's.
    pub fn read(root: &Root, live: RouterState, machine: Machine, outcomes: Vec<Outcome>) -> Self {
        let mut unreadable = Vec::new();
        for name in CONFIGS {
            if let Err(RootError::Config { cause, .. }) = root.config(name) {
                unreadable.push((name.to_owned(), cause.to_string()));
            }
        }
        let config = |name: &str| root.config(name).ok().flatten();
        let others = super::owners::CONFIGURED.into_iter().filter_map(|name| Some((name.to_owned(), config(name)?)));
        Self {
            sqm: config("sqm"),
            firewall: config("firewall"),
            unreadable,
            inventory: Inventory::read(root),
            ports: ports(root),
            scripts: root.names("usr/lib/sqm"),
            started_at_boot: root.names("etc/rc.d"),
            services: root.ubus("service", "list").ok().flatten(),
            others: others.collect(),
            processes: processes(root),
            lock: LOCKS.iter().find_map(|lock| holder(root, lock)),
            modules: modules(root),
            loaded: loaded(root),
            received: received(root),
            default_route: default_route(root),
            machine,
            live,
            outcomes,
        }
    }
}

/// Devices as in `/sys/class/net`. A list without an entry is no list.
pub fn ports(root: &Root) -> Option<BTreeMap<String, Port>> {
    let names = root.names("sys/class/net").filter(|names| !names.is_empty())?;
    let port = |name: &String| {
        let text = |file: &str| root.text(&format!("sys/class/net/{name}/{file}"));
        let number = |file: &str| text(file)?.trim().parse::<i64>().ok();
        // -1 and its unsigned forms are the kernel's "unknown".
        let speed = number("speed")
            .filter(|mbit| (1..i64::from(u16::MAX)).contains(mbit) || (65_536..1_000_000).contains(mbit));
        Port {
            speed: speed.map(|mbit| mbit as u64),
            mtu: number("mtu").and_then(|mtu| u32::try_from(mtu).ok()),
            is_down: text("operstate").is_some_and(|state| matches!(state.trim(), "down" | "lowerlayerdown")),
        }
    };
    Some(names.iter().map(|name| (name.clone(), port(name))).collect())
}

fn processes(root: &Root) -> Option<BTreeMap<u32, String>> {
    let numbers = root.names("proc")?.into_iter().filter_map(|name| name.parse().ok());
    // A copy may have only the short name.
    let file = |number: u32, name: &str| root.text(&format!("proc/{number}/{name}")).filter(|text| !text.is_empty());
    let words =
        |number| file(number, "cmdline").or_else(|| file(number, "comm")).unwrap_or_default().replace('\0', " ");
    Some(numbers.map(|number| (number, words(number))).collect())
}

/// A directory with the holder's number in it; old versions had a file.
fn holder(root: &Root, lock: &str) -> Option<u32> {
    let text = root.text(&format!("{lock}/pid")).or_else(|| root.text(lock))?;
    text.trim().parse().ok()
}

/// OpenWrt has all modules of its kernel in one directory.
fn modules(root: &Root) -> Option<Vec<String>> {
    let kernels = root.names("lib/modules")?;
    let kernel = kernels.first().filter(|_| kernels.len() == 1)?;
    let files = root.names(&format!("lib/modules/{kernel}"))?;
    let mut modules: Vec<String> =
        files.iter().filter_map(|file| file.strip_suffix(".ko").map(str::to_owned)).collect();
    if modules.is_empty() {
        return None;
    }
    let built_in = root.text(&format!("lib/modules/{kernel}/modules.builtin")).unwrap_or_default();
    let name = |line: &str| Some(line.rsplit('/').next()?.strip_suffix(".ko")?.to_owned());
    modules.extend(built_in.lines().filter_map(name));
    Some(modules)
}

fn loaded(root: &Root) -> Vec<String> {
    let text = root.text("proc/modules").unwrap_or_default();
    text.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

fn received(root: &Root) -> BTreeMap<String, u64> {
    let text = root.text("proc/net/dev").unwrap_or_default();
    let line = |line: &str| {
        let (name, numbers) = line.split_once(':')?;
        Some((name.trim().to_owned(), numbers.split_whitespace().nth(1)?.parse().ok()?))
    };
    let by_device = |name: String| {
        let packets = root.text(&format!("sys/class/net/{name}/statistics/rx_packets"))?.trim().parse().ok()?;
        Some((name, packets))
    };
    let devices = root.names("sys/class/net").unwrap_or_default().into_iter();
    devices.filter_map(by_device).chain(text.lines().filter_map(line)).collect()
}

/// Destination and mask of IPv4's list, destination and prefix of IPv6's. IPv6's has an entry for the loopback that
/// stands for "unreachable".
fn default_route(root: &Root) -> Option<bool> {
    let v4 = root.text("proc/net/route")?;
    let v6 = root.text("proc/net/ipv6_route").unwrap_or_default();
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let of_v4 = v4.lines().map(words).any(|w| w.len() > 7 && w[1] == "00000000" && w[7] == "00000000");
    let of_v6 = v6
        .lines()
        .map(words)
        .any(|w| w.len() > 9 && w[0].bytes().all(|digit| digit == b'0') && w[1] == "00" && w[9] != "lo");
    Some(of_v4 || of_v6)
}
