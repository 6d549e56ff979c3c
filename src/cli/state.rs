//! The kernel's state as `openwrt` takes it, from what `router` reads over netlink.

use crate::openwrt::doctor::Machine;
use crate::openwrt::state::RouterState;
use std::time::SystemTime;

/// What runs on this machine; without a word where the kernel cannot be asked.
#[cfg(feature = "router")]
pub fn live() -> RouterState {
    kernel::state().unwrap_or_else(|error| {
        log::warn!("{error}: what really runs is not looked at");
        RouterState::default()
    })
}

#[cfg(not(feature = "router"))]
pub fn live() -> RouterState {
    RouterState::default()
}

/// The same at this moment, for one who must know.
#[cfg(feature = "router")]
pub use kernel::now;

pub fn machine() -> Machine {
    Machine { now: Some(SystemTime::now()), free_bytes: free_bytes() }
}

/// Where OpenWrt keeps what is written; only there, since other systems have no such place.
fn free_bytes() -> Option<u64> {
    // SAFETY: a statvfs is plain numbers, all zeros is one, and the call fills no more than it.
    let mut stat: libc::statvfs = unsafe { std::mem::zeroed() };
    let done = unsafe { libc::statvfs(c"/overlay".as_ptr(), &raw mut stat) };
    // Their types differ between systems.
    #[allow(clippy::useless_conversion, clippy::unnecessary_cast)]
    (done == 0).then(|| (stat.f_bavail as u64).saturating_mul(stat.f_frsize as u64))
}

#[cfg(feature = "router")]
mod kernel {
    use crate::openwrt::doctor::worth_a_second_look;
    use crate::openwrt::state::{Cake, Place, Qdisc, RouterState, Tin};
    use crate::router::cake;
    use crate::router::netlink::{Error, Socket};
    use crate::router::qdisc::{self, Handle};
    use crate::router::redirect;
    use crate::router::snapshot::Snapshot;
    use crate::units::Rate;
    use std::thread;
    use std::time::{Duration, Instant};

    /// How long the counters are watched, where it matters.
    const WATCHED: Duration = Duration::from_secs(2);

    pub fn now() -> Result<RouterState, Error> {
        Ok(of(&Snapshot::take(&mut Socket::open()?)?))
    }

    pub fn state() -> Result<RouterState, Error> {
        let mut socket = Socket::open()?;
        let (first, begun) = (Snapshot::take(&mut socket)?, Instant::now());
        let mut state = of(&first);
        if worth_a_second_look(&state) {
            thread::sleep(WATCHED);
            let second = Snapshot::take(&mut socket)?;
            let time = begun.elapsed();
            for before in &first.qdiscs {
                let same = |after: &&qdisc::Qdisc| (after.device, after.handle) == (before.device, before.handle);
                let after = second.qdiscs.iter().find(|after| before.parent == Handle::ROOT && same(after));
                if let (Some(after), Some(name)) = (after, first.name(before.device)) {
                    let bytes = after.counted.sent_bytes.saturating_sub(before.counted.sent_bytes);
                    state.throughput.insert(name.into(), Rate::of(bytes as f64, time));
                }
            }
        }
        Ok(state)
    }

    pub fn of(snapshot: &Snapshot) -> RouterState {
        let qdiscs = snapshot.qdiscs.iter();
        let qdiscs = qdiscs.filter_map(|qdisc| Some(of_qdisc(qdisc, snapshot.name(qdisc.device)?)));
        let redirects = snapshot.devices.iter().map(|device| {
            let led = snapshot.redirects.iter().filter(|(from, _)| *from == device.index).flat_map(|(_, to)| to);
            let targets = led.filter_map(|target| snapshot.name(*target)).map(str::to_owned);
            (device.name.clone(), targets.collect())
        });
        RouterState { qdiscs: Some(qdiscs.collect()), redirects: redirects.collect(), ..RouterState::default() }
    }

    fn of_qdisc(qdisc: &qdisc::Qdisc, device: &str) -> Qdisc {
        let place = match qdisc.parent {
            Handle::ROOT => Place::Root,
            _ if redirect::is_ingress(qdisc) => Place::Ingress,
            _ => Place::Below,
        };
        Qdisc {
            device: device.into(),
            kind: qdisc.kind.clone(),
            place,
            set: qdisc.handle != Handle::DEFAULT,
            packets: qdisc.counted.sent_packets,
            backlog_bytes: qdisc.counted.backlog_bytes.into(),
            cake: cake::is_cake(&qdisc.kind).then(|| of_cake(qdisc)),
        }
    }

    /// Options of a future kernel that make no sense to us are no options.
    fn of_cake(qdisc: &qdisc::Qdisc) -> Cake {
        let options = cake::decode(&qdisc.options).unwrap_or_default();
        let tins = cake::tins(&qdisc.statistics).unwrap_or_default().into_iter().map(|tin| Tin {
            packets: tin.sent_packets.into(),
            target_us: tin.target.as_micros() as u64,
            average_delay_us: tin.average_delay.as_micros() as u64,
        });
        Cake {
            rate: options.rate(),
            diffserv: cake::diffserv_name(options.diffserv).into(),
            overhead: options.overhead,
            mpu: options.mpu,
            atm: options.atm == 1,
            rtt_us: options.rtt_us,
            ack_filter: options.ack_filter != 0,
            tins: tins.collect(),
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::line::{Accounting, Cake as Setting, Cells};
        use crate::router::device::Device;
        use crate::units::Direction;

        #[test]
        fn what_netlink_shows_is_what_tc_prints() {
            let device = |index, name: &str| Device { index, name: name.into(), ..Device::default() };
            let setting = Setting {
                rate: Rate::from_kbit(17_100),
                accounting: Accounting { overhead: 44, mpu: 84, cells: Cells::None },
                rtt: Duration::from_millis(100),
                ack_filter: false,
            };
            let root = qdisc::Qdisc {
                device: 4,
                kind: "cake".into(),
                handle: Handle(0x8001_0000),
                parent: Handle::ROOT,
                options: cake::encode(&setting, Direction::Upload),
                ..qdisc::Qdisc::default()
            };
            let ingress = qdisc::Qdisc {
                device: 4,
                kind: "ingress".into(),
                handle: Handle(0xffff_0000),
                parent: Handle(0xffff_fff1),
                ..qdisc::Qdisc::default()
            };
            let plain = qdisc::Qdisc { device: 9, kind: "fq_codel".into(), parent: Handle::ROOT, ..root.clone() };
            let plain = qdisc::Qdisc { handle: Handle::DEFAULT, ..plain };
            let snapshot = Snapshot {
                devices: vec![device(4, "eth4"), device(7, "ifb4eth4"), device(9, "eth0")],
                qdiscs: vec![root, ingress, plain],
                redirects: vec![(4, vec![7])],
            };
            let state = of(&snapshot);
            assert_eq!(state.redirects["eth4"], ["ifb4eth4"]);
            assert_eq!(state.redirects["eth0"], [""; 0]);
            let cake = state.at("eth4", Place::Root).unwrap().cake.as_ref().unwrap();
            assert_eq!((cake.rate, cake.diffserv.as_str()), (Some(Rate::from_kbit(17_100)), "besteffort"));
            let accounting = (cake.overhead, cake.mpu, cake.atm, cake.rtt_us, cake.ack_filter);
            assert_eq!(accounting, (44, 84, false, 100_000, false));
            assert!(state.at("eth4", Place::Ingress).unwrap().set);
            assert!(!state.at("eth0", Place::Root).unwrap().set);
        }
    }
}
