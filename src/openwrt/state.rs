//! What the kernel really runs: the qdiscs, what they have counted, and where incoming packets are led. On a router
//! `cli` fills it from netlink; for a directory it is read from what `tc` printed.

use super::root::Root;
use crate::units::Rate;
use serde_json::Value;
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct RouterState {
    /// `None`: nobody could look.
    pub qdiscs: Option<Vec<Qdisc>>,
    /// Where what comes in on a device is led, and nothing for one without filters. A device that is not in it was not
    /// looked at.
    pub redirects: BTreeMap<String, Vec<String>>,
    /// What the qdisc of a device let through, where somebody watched for a while.
    pub throughput: BTreeMap<String, Rate>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Qdisc {
    pub device: String,
    pub kind: String,
    pub place: Place,
    /// Set by somebody: what the kernel sets by itself has no handle.
    pub set: bool,
    pub packets: u64,
    pub backlog_bytes: u64,
    pub cake: Option<Cake>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Root,
    /// `ingress` or `clsact`.
    Ingress,
    Below,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cake {
    /// `None`: unlimited.
    pub rate: Option<Rate>,
    pub diffserv: String,
    pub overhead: i32,
    pub mpu: u32,
    pub atm: bool,
    pub rtt_us: u32,
    pub ack_filter: bool,
    pub tins: Vec<Tin>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tin {
    pub packets: u64,
    pub target_us: u64,
    pub average_delay_us: u64,
}

impl RouterState {
    /// From `tc/qdisc.json` and `tc/filter.DEV.json` in a directory.
    pub fn read(root: &Root) -> Self {
        let qdiscs = root.json("tc/qdisc.json").and_then(|json| Some(json.as_array()?.iter().map(Qdisc::of).collect()));
        let filters = root.names("tc").unwrap_or_default().into_iter();
        let devices = filters.filter_map(|name| Some(name.strip_prefix("filter.")?.strip_suffix(".json")?.to_owned()));
        let redirects = devices.filter_map(|device| {
            let json = root.json(&format!("tc/filter.{device}.json"))?;
            let mut targets = Vec::new();
            redirected(&json, &mut targets);
            Some((device, targets))
        });
        Self { qdiscs, redirects: redirects.collect(), throughput: BTreeMap::new() }
    }

    pub fn at(&self, device: &str, place: Place) -> Option<&Qdisc> {
        self.qdiscs.iter().flatten().find(|qdisc| qdisc.device == device && qdisc.place == place)
    }
}

impl Qdisc {
    fn of(json: &Value) -> Self {
        let text = |key: &str| json.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let number = |key: &str| json.get(key).and_then(Value::as_u64).unwrap_or(0);
        let kind = text("kind");
        let place = match kind.as_str() {
            "ingress" | "clsact" => Place::Ingress,
            _ if json.get("root").and_then(Value::as_bool) == Some(true) => Place::Root,
            _ => Place::Below,
        };
        Self {
            device: text("dev"),
            cake: is_cake(&kind).then(|| Cake::of(json)),
            kind,
            place,
            set: !matches!(text("handle").as_str(), "" | "0:"),
            packets: number("packets"),
            backlog_bytes: number("backlog"),
        }
    }
}

/// `cake_mq` is one CAKE over several hardware queues.
pub fn is_cake(kind: &str) -> bool {
    matches!(kind, "cake" | "cake_mq")
}

impl Cake {
    fn of(json: &Value) -> Self {
        let option = |key: &str| json.get("options").and_then(|options| options.get(key));
        // Bytes a second, or the word `unlimited`.
        let bytes = option("bandwidth").and_then(Value::as_u64).filter(|bytes| *bytes > 0);
        Self {
            rate: bytes.map(|bytes| Rate::from_bits(bytes.saturating_mul(8))),
            diffserv: option("diffserv").and_then(Value::as_str).unwrap_or_default().into(),
            overhead: option("overhead").and_then(Value::as_i64).unwrap_or(0) as i32,
            mpu: option("mpu").and_then(Value::as_u64).unwrap_or(0) as u32,
            atm: option("atm").and_then(Value::as_str) == Some("atm"),
            rtt_us: option("rtt").and_then(Value::as_u64).unwrap_or(0) as u32,
            ack_filter: option("ack-filter").and_then(Value::as_str).is_some_and(|filter| filter != "disabled"),
            tins: json.get("tins").and_then(Value::as_array).into_iter().flatten().map(Tin::of).collect(),
        }
    }
}

impl Tin {
    fn of(json: &Value) -> Self {
        let number = |key: &str| json.get(key).and_then(Value::as_u64).unwrap_or(0);
        Self {
            packets: number("sent_packets"),
            target_us: number("target_us"),
            average_delay_us: number("avg_delay_us"),
        }
    }
}

/// The devices of all `mirred` actions, however deep a kind of filter has them.
fn redirected(json: &Value, targets: &mut Vec<String>) {
    match json {
        Value::Array(items) => items.iter().for_each(|item| redirected(item, targets)),
        Value::Object(members) => {
            if let (Some("redirect"), Some(device)) =
                (members.get("mirred_action").and_then(Value::as_str), members.get("to_dev").and_then(Value::as_str))
            {
                targets.push(device.into());
            }
            members.values().for_each(|member| redirected(member, targets));
        }
        _ => {}
    }
}
