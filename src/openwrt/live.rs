//! Whether what the kernel does is what was written, and whether the line is better for it. Pure: the command line asks the
//! router and hands its answer in.

use super::sqm::{ChangeList, Tokens};
use super::state::{self, Place, RouterState};
use super::uci::{Config, Section};
use crate::units::{Direction, Rate};
use serde::Serialize;

/// What really runs on a device.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Live {
    /// The root qdisc; `None`: no device.
    pub egress: Option<Queue>,
    pub ingress: Ingress,
}

/// A qdisc. What is not CAKE has nothing but a kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Queue {
    pub kind: String,
    /// `None`: without a limit.
    pub kbit: Option<u64>,
    pub overhead: i32,
    pub mpu: u32,
    pub atm: bool,
    pub rtt_ms: f64,
    pub ack_filter: bool,
    /// Packets that have left it since it was set.
    pub packets: u64,
}

/// Where what comes in is led.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Ingress {
    /// Nowhere: no filter redirects it.
    #[default]
    Direct,
    /// Through this device, with this at its root.
    Through { device: String, queue: Option<Queue> },
    /// Somewhere else, in words.
    Unclear(String),
}

/// What `/etc/config/sqm` asks for on a device, as sqm-scripts read it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Wanted {
    /// `None`: not shaped.
    pub upload: Option<Queue>,
    pub download: Option<Queue>,
}

/// What a short loaded measurement showed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Probe {
    pub added_p95_ms: f64,
    pub throughput_kbit: u64,
}

/// CAKE without a word about it (`q_cake.c`).
const DEFAULT_RTT_MS: f64 = 100.0;
/// Below half of what it carried before, a setting has broken the line (tohojo/sqm-scripts#72).
const LEAST_SHARE: f64 = 0.5;
/// Two short measurements differ by about as much as separates grade A+ from A (5 ms), on slow lines by a fifth.
const WORSE_BY_MS: f64 = 5.0;
const WORSE_BY_SHARE: f64 = 0.2;
/// tc takes kbit/s as 125 bytes/s: what is read back differs by less than that.
const KBIT_TOLERANCE: u64 = 1;

impl Live {
    /// Of one device of a router.
    pub fn of(state: &RouterState, device: &str) -> Self {
        let root = |device: &str| state.at(device, Place::Root).map(Queue::of);
        // A device that was never up may show no root.
        let up = || state.redirects.contains_key(device).then(|| Queue { kind: "noop".into(), ..Queue::default() });
        let targets = state.redirects.get(device).map_or(&[][..], Vec::as_slice);
        let ingress = match (state.at(device, Place::Ingress), targets) {
            (None, _) => Ingress::Direct,
            (Some(_), [first, rest @ ..]) if rest.iter().all(|other| other == first) => {
                Ingress::Through { device: first.clone(), queue: root(first) }
            }
            (Some(_), _) => {
                Ingress::Unclear(format!("{device} has filters for what comes in that lead to no one device"))
            }
        };
        Self { egress: root(device).or_else(up), ingress }
    }
}

impl Wanted {
    /// `None`: the queue is off.
    pub fn of(section: &Section) -> Option<Self> {
        if !super::sqm::is_on(section) {
            return None;
        }
        let rate =
            |option: &str, missing: u64| section.get(option).map_or(Some(missing), |rate| rate.trim().parse().ok());
        let layer = section.get("linklayer").unwrap_or("none");
        let number = |option: &str| section.get(option).and_then(|text| text.trim().parse().ok());
        let queue = |kbit: Option<u64>, options: &str| {
            let options = Tokens::of(section.get(options).unwrap_or_default()).unwrap_or_default();
            kbit.filter(|kbit| *kbit > 0).map(|kbit| Queue {
                kind: "cake".into(),
                kbit: Some(kbit),
                // `none` drops both; only the literal `atm` is atm.
                overhead: number("overhead").filter(|_| layer != "none").unwrap_or(0),
                mpu: number("tcMPU").filter(|_| layer != "none").unwrap_or(0) as u32,
                atm: layer == "atm",
                rtt_ms: options.argument("rtt").and_then(milliseconds).unwrap_or(DEFAULT_RTT_MS),
                ack_filter: options.has("ack-filter") || options.has("ack-filter-aggressive"),
                packets: 0,
            })
        };
        Some(Self {
            upload: queue(rate("upload", 2302), "eqdisc_opts"),
            download: queue(rate("download", 14_698), "iqdisc_opts"),
        })
    }

    /// What a change list leads to.
    pub fn after(list: &ChangeList, before: Option<&Config>) -> Option<Self> {
        let known = before.and_then(|config| super::sqm::section(config, &list.section));
        let mut section = known.cloned().unwrap_or_else(|| Section::new("queue", Some(&list.section)));
        for change in &list.changes {
            section.set(&change.option, change.new.as_deref());
        }
        Self::of(&section)
    }

    /// Whether SQM has set CAKE for all that is wanted, at whatever rate.
    pub fn runs(&self, live: &Live) -> bool {
        let cake = |queue: Option<&Queue>| queue.is_some_and(|queue| queue.kind.starts_with("cake"));
        let download = match &live.ingress {
            Ingress::Through { queue, .. } => queue.as_ref(),
            Ingress::Direct | Ingress::Unclear(_) => None,
        };
        (self.upload.is_none() || cake(live.egress.as_ref())) && (self.download.is_none() || cake(download))
    }

    /// What the kernel does otherwise. Empty: all as written.
    pub fn differences(&self, live: &Live) -> Vec<String> {
        let mut differences = Vec::new();
        if let Some(wanted) = &self.upload {
            match &live.egress {
                None => differences.push("upload: the device is gone".into()),
                Some(queue) => wanted.compare(queue, Direction::Upload, &mut differences),
            }
        }
        match (&self.download, &live.ingress) {
            (None, _) => {}
            (Some(wanted), Ingress::Through { queue: Some(queue), .. }) => {
                wanted.compare(queue, Direction::Download, &mut differences);
            }
            (Some(_), Ingress::Through { device, queue: None }) => {
                differences.push(format!("download: nothing shapes on {device}"));
            }
            (Some(_), Ingress::Direct) => differences.push("download: no filter leads to an IFB".into()),
            (Some(_), Ingress::Unclear(what)) => differences.push(format!("download: {what}")),
        }
        differences
    }

    /// After a load, which sends acknowledgements back: whether packets really take the way through the queues. Below a
    /// PPPoE device each packet is 8 bytes longer and the overhead another one, so a queue that nothing feeds (C28) is not
    /// moved there unmeasured.
    pub fn unfed(&self, live: &Live) -> Option<String> {
        let upload = live.egress.as_ref().filter(|_| self.upload.is_some());
        let download = match &live.ingress {
            Ingress::Through { queue, .. } if self.download.is_some() => queue.as_ref(),
            _ => None,
        };
        let idle = |queue: Option<&Queue>| queue.is_some_and(|queue| queue.packets == 0);
        if idle(upload) {
            return Some("no packet has passed the upload's queue: hardware offload goes around it".into());
        }
        idle(download).then(|| "no packet has passed the download's queue: nothing feeds the IFB".into())
    }
}

impl Queue {
    fn of(qdisc: &state::Qdisc) -> Self {
        let bare = Self { kind: qdisc.kind.clone(), packets: qdisc.packets, ..Self::default() };
        let Some(cake) = &qdisc.cake else { return bare };
        let (kbit, rtt_ms) = (cake.rate.map(Rate::kbit), f64::from(cake.rtt_us) / 1000.0);
        let state::Cake { overhead, mpu, atm, ack_filter, .. } = *cake;
        Self { kbit, overhead, mpu, atm, rtt_ms, ack_filter, ..bare }
    }

    fn compare(&self, is: &Self, direction: Direction, differences: &mut Vec<String>) {
        let mut say = |what: &str, is: &str, wanted: &str| {
            differences.push(format!("{direction}: {what} is {is}, not {wanted}"));
        };
        if is.kind != self.kind && is.kind != "cake_mq" {
            return say("the queue", &is.kind, &self.kind);
        }
        let kbit = |queue: &Self| queue.kbit.map_or_else(|| "unlimited".into(), |kbit| format!("{kbit} kbit/s"));
        if is.kbit.is_none_or(|kbit| kbit.abs_diff(self.kbit.unwrap_or(0)) > KBIT_TOLERANCE) {
            say("the rate", &kbit(is), &kbit(self));
        }
        let accounting = |queue: &Self| {
            format!("overhead {} mpu {}{}", queue.overhead, queue.mpu, if queue.atm { " atm" } else { "" })
        };
        if (is.overhead, is.mpu, is.atm) != (self.overhead, self.mpu, self.atm) {
            say("the accounting", &accounting(is), &accounting(self));
        }
        if is.ack_filter != self.ack_filter {
            let word = |on: bool| if on { "on" } else { "off" };
            say("the ACK filter", word(is.ack_filter), word(self.ack_filter));
        }
        if (is.rtt_ms - self.rtt_ms).abs() > 0.5 {
            say("rtt", &format!("{:.0} ms", is.rtt_ms), &format!("{:.0} ms", self.rtt_ms));
        }
    }
}

/// tc's times: a bare number is microseconds.
fn milliseconds(text: &str) -> Option<f64> {
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: f64 = number.parse().ok()?;
    match unit {
        "s" | "sec" | "secs" => Some(number * 1000.0),
        "ms" | "msec" | "msecs" => Some(number),
        "us" | "usec" | "usecs" | "" => Some(number / 1000.0),
        _ => None,
    }
}

/// Whether the settings stay. `Err`: why not.
pub fn verdict(before: Option<Probe>, after: Option<Probe>) -> Result<(), String> {
    match (before, after) {
        // What could not be measured before either proves nothing against the settings.
        (None, _) => Ok(()),
        (Some(_), None) => Err("the line cannot be measured any more".into()),
        (Some(before), Some(after)) => {
            let share = after.throughput_kbit as f64 / before.throughput_kbit.max(1) as f64;
            if share < LEAST_SHARE {
                return Err(format!(
                    "only {} kbit/s get through, and {} did before",
                    after.throughput_kbit, before.throughput_kbit
                ));
            }
            let allowed = before.added_p95_ms + WORSE_BY_MS.max(before.added_p95_ms * WORSE_BY_SHARE);
            if after.added_p95_ms > allowed {
                return Err(format!(
                    "a load adds {:.1} ms of delay, and {:.1} before",
                    after.added_p95_ms, before.added_p95_ms
                ));
            }
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(options: &str) -> Option<Wanted> {
        let text = format!("config queue\n\toption enabled '1'\n\toption upload '17236'\n{options}");
        Wanted::of(&Config::parse(text.as_bytes()).unwrap().sections[0])
    }

    fn cake(kbit: u64) -> Queue {
        let (kind, kbit) = ("cake".to_owned(), Some(kbit));
        Queue { kind, kbit, overhead: 38, mpu: 84, atm: false, rtt_ms: 100.0, ack_filter: false, packets: 5 }
    }

    const LAYER: &str = "\toption linklayer 'ethernet'\n\toption overhead '38'\n\toption tcMPU '84'\n";

    #[test]
    fn sqm_reads_options_in_its_own_way() {
        let both = wanted(LAYER).unwrap();
        assert_eq!(both.upload, Some(Queue { packets: 0, ..cake(17_236) }));
        assert_eq!(both.download.unwrap().kbit, Some(14_698), "a missing rate");
        let off = wanted("\toption download '0'\n\toption linklayer 'none'\n\toption overhead '44'\n").unwrap();
        assert_eq!((off.download, off.upload.unwrap().overhead), (None, 0));
        let long = wanted("\toption eqdisc_opts 'nat rtt 160ms'\n\toption linklayer 'atm'\n").unwrap().upload.unwrap();
        assert_eq!((long.rtt_ms, long.atm), (160.0, true));
        assert_eq!(wanted("\toption enabled 'on'\n"), None);
        assert_eq!((milliseconds("1.5s"), milliseconds("300"), milliseconds("1h")), (Some(1500.0), Some(0.3), None));
    }

    #[test]
    fn a_device_is_found_in_the_state_of_all() {
        let qdisc = |device: &str, kind: &str, place, kbit| state::Qdisc {
            device: device.into(),
            kind: kind.into(),
            place,
            set: true,
            packets: 5,
            backlog_bytes: 0,
            cake: (kind == "cake").then(|| state::Cake {
                rate: Some(Rate::from_kbit(kbit)),
                overhead: 38,
                mpu: 84,
                rtt_us: 100_000,
                ..state::Cake::default()
            }),
        };
        let qdiscs = vec![
            qdisc("eth1", "cake", Place::Root, 17_236),
            qdisc("eth1", "ingress", Place::Ingress, 0),
            qdisc("ifb4eth1", "cake", Place::Root, 60_000),
            qdisc("eth2", "fq_codel", Place::Root, 0),
        ];
        let led = |targets: &[&str]| {
            let to = targets.iter().map(ToString::to_string).collect();
            let redirects = [("eth1".into(), to), ("eth2".into(), vec![]), ("eth3".into(), vec![])].into();
            RouterState { qdiscs: Some(qdiscs.clone()), redirects, ..RouterState::default() }
        };
        let fed = Ingress::Through { device: "ifb4eth1".into(), queue: Some(cake(60_000)) };
        let state = led(&["ifb4eth1", "ifb4eth1"]);
        assert_eq!(Live::of(&state, "eth1"), Live { egress: Some(cake(17_236)), ingress: fed });
        let other = Live::of(&state, "eth2");
        assert_eq!((other.egress.unwrap().kind.as_str(), other.ingress), ("fq_codel", Ingress::Direct));
        assert_eq!(Live::of(&state, "eth3").egress.unwrap().kind, "noop");
        assert_eq!(Live::of(&state, "eth4"), Live::default());
        for unclear in [&[][..], &["ifb4eth1", "eth2"]] {
            assert!(matches!(Live::of(&led(unclear), "eth1").ingress, Ingress::Unclear(_)), "{unclear:?}");
        }
    }

    #[test]
    fn each_thing_that_is_not_as_written_is_told() {
        let both = wanted(&format!("{LAYER}\toption download '60000'\n")).unwrap();
        let through = |queue| Ingress::Through { device: "ifb4eth1".into(), queue };
        let live = |egress, ingress| Live { egress: Some(egress), ingress };
        let fine = live(cake(17_236), through(Some(cake(60_000))));
        assert_eq!((both.differences(&fine), both.unfed(&fine), both.runs(&fine)), (vec![], None, true));
        assert!(!both.runs(&live(cake(17_236), Ingress::Direct)) && !both.runs(&Live::default()));
        let told = |live: &Live| both.differences(live).join("; ");
        let swapped = live(cake(60_000), through(Some(cake(17_236))));
        assert_eq!(
            told(&swapped),
            "upload: the rate is 60000 kbit/s, not 17236 kbit/s; download: the rate is 17236 kbit/s, not 60000 kbit/s"
        );
        for (egress, ingress, needed) in [
            (
                Queue { kind: "fq_codel".into(), ..Queue::default() },
                through(Some(cake(60_000))),
                "upload: the queue is fq_codel",
            ),
            (
                Queue { overhead: 44, ..cake(17_236) },
                through(Some(cake(60_000))),
                "overhead 44 mpu 84, not overhead 38 mpu 84",
            ),
            (Queue { atm: true, ..cake(17_236) }, through(Some(cake(60_000))), "mpu 84 atm, not"),
            (Queue { rtt_ms: 160.0, ..cake(17_236) }, through(Some(cake(60_000))), "rtt is 160 ms, not 100 ms"),
            (Queue { ack_filter: true, ..cake(17_236) }, through(Some(cake(60_000))), "the ACK filter is on, not off"),
            (Queue { kbit: None, ..cake(17_236) }, through(Some(cake(60_000))), "unlimited"),
            (cake(17_236), Ingress::Direct, "no filter leads to an IFB"),
            (cake(17_236), through(None), "nothing shapes on ifb4eth1"),
            (cake(17_236), Ingress::Unclear("two filters".into()), "two filters"),
        ] {
            let said = told(&live(egress, ingress));
            assert!(said.contains(needed) && !said.contains("; "), "{said}");
        }
        assert!(told(&Live::default()).starts_with("upload: the device is gone"));
        let unfed = live(cake(17_236), through(Some(Queue { packets: 0, ..cake(60_000) })));
        assert!(both.unfed(&unfed).unwrap().contains("IFB"));
        let around = live(Queue { packets: 0, ..cake(17_236) }, Ingress::Direct);
        assert!(both.unfed(&around).unwrap().contains("offload"));
        let upload = wanted(&format!("{LAYER}\toption download '0'\n")).unwrap();
        assert_eq!(upload.differences(&live(cake(17_236), Ingress::Direct)), Vec::<String>::new());
    }

    /// C46.
    #[test]
    fn settings_stay_unless_the_line_is_worse_for_them() {
        let probe = |added_p95_ms, throughput_kbit| Some(Probe { added_p95_ms, throughput_kbit });
        let unshaped = probe(167.0, 17_000);
        assert_eq!(verdict(unshaped, probe(2.0, 16_500)), Ok(()));
        assert_eq!(verdict(unshaped, probe(2.0, 8500)), Ok(()));
        assert!(verdict(unshaped, probe(2.0, 8499)).unwrap_err().contains("8499"));
        assert!(verdict(unshaped, probe(201.0, 17_000)).unwrap_err().contains("201.0 ms"));
        assert_eq!(verdict(probe(2.0, 15_000), probe(6.9, 17_000)), Ok(()));
        assert!(verdict(probe(2.0, 15_000), probe(7.1, 17_000)).is_err());
        assert!(verdict(unshaped, None).is_err());
        assert_eq!(verdict(None, None), Ok(()));
    }
}
