//! The shaper against a real kernel, with `tc` as the second witness.
//!
//! Each test has a network namespace of its own. Where that or CAKE is not to be had, the tests say so and pass;
//! with `LAB=1` in the environment that is a failure. `LAB_NO_CAKE=1` runs the one test that wants a kernel without it.
#![cfg(feature = "router")]

mod kernel_support;

use kernel_support::{Place, run, succeeds};
use sqm_autotune::line::{Accounting, Cake, Cells, LineError, Seen, Shaping};
use sqm_autotune::router::cake;
use sqm_autotune::router::counters::Counters;
use sqm_autotune::router::device;
use sqm_autotune::router::download::Download;
use sqm_autotune::router::journal::{self, Journal};
use sqm_autotune::router::netlink::Socket;
use sqm_autotune::router::qdisc::Handle;
use sqm_autotune::router::redirect;
use sqm_autotune::router::shaper::Shaper;
use sqm_autotune::router::snapshot::Snapshot;
use sqm_autotune::units::{Direction, Rate};
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::Child;
use std::sync::Arc;
use std::time::Duration;

const FRAMES: Accounting = Accounting { overhead: 44, mpu: 84, cells: Cells::None };
const CELLS: Accounting = Accounting { overhead: -4, mpu: 0, cells: Cells::Atm };

fn cake(kbit: u64, accounting: Accounting) -> Shaping {
    Shaping::Cake(Cake::new(Rate::from_kbit(kbit), accounting))
}

/// A namespace with a device, and a directory for the journal.
struct Lab {
    place: Place,
}

/// `None`: skipped.
fn lab(test: &str) -> Option<Lab> {
    let cake = || succeeds("tc qdisc add dev lo root cake") && succeeds("tc qdisc del dev lo root");
    Place::new(test, "root and a kernel with CAKE", cake).map(|place| Lab { place })
}

impl Lab {
    fn journal(&self) -> Arc<Journal> {
        self.place.journal()
    }

    fn shaper(&self, device: &str) -> Shaper {
        Shaper::open(device, Direction::Upload, &self.journal()).unwrap()
    }

    fn records(&self) -> usize {
        self.place.records()
    }

    /// Another process of this test, in this namespace: see [`child`].
    fn child(&self, device: &str, does: &str) -> Child {
        self.place.child(&[("CHILD_DEVICE", device), ("CHILD_DOES", does)], "ready")
    }
}

/// Everything tc shows of a device's qdiscs but counters.
fn shown(device: &str) -> String {
    run(&format!("tc -d qdisc show dev {device}"))
}

fn dummy(name: &str) {
    add(&format!("{name} type dummy"));
}

fn ifb(name: &str, queues: u32) {
    add(&format!("{name} numtxqueues {queues} type ifb"));
}

fn add(link: &str) {
    let name = link.split(' ').next().unwrap();
    run(&format!("ip link add {link}"));
    // Where there is IPv6: not a packet of its own.
    succeeds(&format!("ip link set {name} addrgenmode none"));
    run(&format!("ip link set {name} up"));
}

/// Through all that a calibration does.
fn exercise(shaper: &mut Shaper, device: &str) {
    shaper.shape(cake(17_100, FRAMES)).unwrap();
    // How many transmit queues refer to it is the device's affair.
    let tc = shown(device).replace("refcnt 5", "refcnt 2");
    let wanted = "qdisc cake 5351: root refcnt 2 bandwidth 17100Kbit besteffort triple-isolate nat nowash \
                  no-ack-filter split-gso rtt 100ms noatm overhead 44 mpu 84 ";
    assert_eq!(tc.trim_end(), wanted.trim_end(), "{device}");
    shaper.undisturbed().unwrap();

    let long = Cake { rtt: Cake::LONG_RTT, ..Cake::new(Rate::from_kbit(900), CELLS) };
    shaper.shape(Shaping::Cake(long)).unwrap();
    assert!(shown(device).contains("900Kbit"), "{}", shown(device));
    assert!(shown(device).contains("rtt 160ms atm overhead -4"), "{}", shown(device));
    assert!(!shown(device).contains("mpu"), "{}", shown(device));

    shaper.shape(Shaping::Unshaped).unwrap();
    assert!(!shown(device).contains("cake"), "{}", shown(device));
    shaper.undisturbed().unwrap();
    shaper.shape(Shaping::Unshaped).unwrap();

    let cells = Accounting { cells: Cells::Ptm, ..FRAMES };
    shaper.shape(cake(50_000, cells)).unwrap();
    assert!(shown(device).contains("50Mbit") && shown(device).contains("ptm overhead 44 mpu 84"), "{}", shown(device));
}

/// Sets what `arguments` say at the root, goes through everything, and compares.
fn comes_back(lab: &Lab, device: &str, arguments: &str) {
    if !arguments.is_empty() {
        run(&format!("tc qdisc replace dev {device} root {arguments}"));
    }
    let before = shown(device);
    let mut shaper = lab.shaper(device);
    exercise(&mut shaper, device);
    assert_eq!(lab.records(), 1);
    shaper.put_back().unwrap();
    assert_eq!(shown(device), before, "{arguments}");
    assert_eq!(lab.records(), 0);
    shaper.put_back().unwrap();
    shaper.shape(cake(2_000, FRAMES)).unwrap();
    shaper.shape(Shaping::AsIs).unwrap();
    assert_eq!((shown(device), lab.records()), (before.clone(), 0), "{arguments}, as it was");
    shaper.shape(Shaping::AsIs).unwrap();
    // And again, this time left to `Drop`.
    shaper.shape(cake(1_000, FRAMES)).unwrap();
    drop(shaper);
    assert_eq!(shown(device), before, "{arguments}, dropped");
}

#[test]
fn the_kernels_defaults_come_back() {
    let Some(lab) = lab("defaults") else { return };
    dummy("d0");
    run("ip link add i0 type ifb");
    comes_back(&lab, "i0", "");
    run("ip link set i0 up");
    ifb("m0", 4);
    assert!(shown("d0").contains("noqueue 0:") && shown("i0").contains("fq_codel 0:") && shown("m0").contains("mq 0:"));
    for device in ["d0", "i0", "m0"] {
        comes_back(&lab, device, "");
    }
}

#[test]
fn a_cake_comes_back_with_every_odd_option() {
    let Some(lab) = lab("cakes") else { return };
    dummy("d0");
    for arguments in [
        "cake",
        "handle 8: cake bandwidth 17100kbit besteffort nat overhead 44 mpu 84",
        "cake bandwidth 9mbit diffserv4 nat memlimit 3mb ack-filter ptm overhead 30",
        "cake bandwidth 1200kbit diffserv8 wash atm overhead 40 rtt 33ms ingress",
        "cake unlimited raw precedence dual-srchost ack-filter-aggressive no-split-gso fwmark 0xf0",
        "cake bandwidth 20mbit autorate-ingress flowblind overhead -64 mpu 256",
        "cake bandwidth 3gbit diffserv3 hosts docsis rtt 1ms",
    ] {
        comes_back(&lab, "d0", arguments);
        run("tc qdisc del dev d0 root");
    }
}

#[test]
fn other_classless_kinds_come_back() {
    let Some(lab) = lab("kinds") else { return };
    ifb("i0", 1);
    for arguments in [
        "handle 12: fq_codel limit 500",
        "fq_codel limit 1000 target 8ms interval 160ms ce_threshold 3ms noecn memory_limit 4mb",
        "codel target 7ms interval 90ms ecn ce_threshold 2ms",
        "fq maxrate 20mbit flow_limit 50 refill_delay 30ms ce_threshold 4ms",
        "fq",
        "sfq perturb 10 divisor 256",
        "sfq limit 3000 flows 512 redflowlimit 100000 min 8000 max 60000 probability 0.20 ecn headdrop",
        "pfifo limit 77",
        "handle 9: bfifo limit 99999",
        "pfifo_head_drop limit 5",
        "pfifo_fast",
    ] {
        comes_back(&lab, "i0", arguments);
        run("tc qdisc del dev i0 root");
    }
}

#[test]
fn what_could_not_be_put_back_is_refused_untouched() {
    let Some(lab) = lab("refused") else { return };
    ifb("i0", 4);
    for arguments in [
        "handle 1: htb default 10",
        "handle 1: prio",
        "hfsc",
        "handle 1: mq",
        "tbf rate 1mbit burst 10k latency 50ms",
        "stab overhead 22 mpu 64 mtu 2047 tsize 128 linklayer ethernet fq_codel",
    ] {
        run(&format!("tc qdisc replace dev i0 root {arguments}"));
        let before = shown("i0");
        let refused = Shaper::open("i0", Direction::Upload, &lab.journal()).err();
        assert!(matches!(&refused, Some(LineError::Refused { fix, .. }) if fix.contains("sqm stop")), "{refused:?}");
        assert_eq!((shown("i0"), lab.records()), (before, 0));
        run("tc qdisc del dev i0 root");
    }
    run("tc qdisc replace dev i0 root handle 7: cake");
    run("tc filter add dev i0 parent 7: matchall action skbedit priority 1");
    let refused = Shaper::open("i0", Direction::Upload, &lab.journal()).err();
    assert!(matches!(&refused, Some(LineError::Refused { problem, .. }) if problem.contains("filters")), "{refused:?}");
}

#[test]
fn a_device_that_is_not_there_is_refused_with_those_that_are() {
    let Some(lab) = lab("device") else { return };
    dummy("wan7");
    let refused = Shaper::open("eth9", Direction::Upload, &lab.journal()).err().unwrap().to_string();
    assert!(refused.contains("eth9") && refused.contains("wan7"), "{refused}");
}

#[test]
fn without_privileges_it_is_refused() {
    let Some(lab) = lab("privileges") else { return };
    dummy("d0");
    // In a thread: it is the thread that loses its rights, for good.
    let journal = lab.journal();
    let refused = std::thread::spawn(move || {
        // SAFETY: no pointers. The raw call changes this thread only.
        assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, 65_534, 65_534, 65_534) }, 0);
        Shaper::open("d0", Direction::Upload, &journal).err()
    });
    let refused = refused.join().unwrap();
    assert!(matches!(&refused, Some(LineError::Refused { fix, .. }) if fix.contains("root")), "{refused:?}");
}

#[test]
fn a_kernel_without_cake_is_refused() {
    if std::env::var_os("LAB_NO_CAKE").is_none() {
        println!("skipped: needs root and a kernel without CAKE (LAB_NO_CAKE=1)");
        return;
    }
    let directory = std::env::temp_dir().join("sqm-autotune-no-cake");
    dummy("d0");
    let before = shown("d0");
    let refused = Shaper::open("d0", Direction::Upload, &Journal::open(&directory).unwrap()).err().unwrap().to_string();
    assert!(
        refused.contains("opkg install kmod-sched-cake") && refused.contains("apk add kmod-sched-cake"),
        "{refused}"
    );
    assert_eq!(shown("d0"), before);
}

#[test]
fn the_kernel_has_nothing_to_complain_about() {
    let Some(lab) = lab("complaints") else { return };
    dummy("dummy0");
    let complaints = || run("dmesg").matches("netlink: '").count();
    let before = complaints();
    let mut shaper = lab.shaper("dummy0");
    exercise(&mut shaper, "dummy0");
    drop(shaper);
    assert_eq!(complaints(), before);
    assert!(!shown("lo").contains("cake"), "{}", shown("lo"));
}

#[test]
fn settings_that_cake_would_take_otherwise_are_refused() {
    let Some(lab) = lab("settings") else { return };
    dummy("d0");
    let before = shown("d0");
    let mut shaper = lab.shaper("d0");
    for (kbit, overhead, mpu) in [(0, 44, 84), (1000, 257, 0), (1000, -65, 0), (1000, 44, 257)] {
        let error = shaper.shape(cake(kbit, Accounting { overhead, mpu, cells: Cells::None })).unwrap_err();
        assert!(matches!(error, LineError::Failed { .. }), "{error}");
        assert_eq!((shown("d0"), lab.records()), (before.clone(), 0));
    }
}

#[test]
fn what_others_set_meanwhile_is_seen_and_stays() {
    let Some(lab) = lab("disturbed") else { return };
    dummy("d0");
    run("tc qdisc add dev d0 root cake bandwidth 5mbit");
    let mut shaper = lab.shaper("d0");
    for cake in [cake(17_100, FRAMES), Shaping::Unshaped] {
        shaper.shape(cake).unwrap();
        // SQM, restarted by a hotplug event.
        succeeds("tc qdisc del dev d0 root");
        run("tc qdisc add dev d0 root cake bandwidth 6mbit");
        let theirs = shown("d0");
        assert!(matches!(shaper.undisturbed(), Err(LineError::Disturbed { .. })));
        assert!(matches!(shaper.shape(cake), Err(LineError::Disturbed { .. })));
        assert_eq!(lab.records(), 1);
        shaper.put_back().unwrap();
        assert_eq!((shown("d0"), lab.records()), (theirs, 0));
        shaper = {
            drop(shaper);
            lab.shaper("d0")
        };
    }
}

#[test]
fn a_changed_option_is_named_and_a_vanished_device_too() {
    let Some(lab) = lab("changed") else { return };
    dummy("d0");
    let before = shown("d0");
    let mut shaper = lab.shaper("d0");
    shaper.shape(cake(17_100, FRAMES)).unwrap();
    run("tc qdisc change dev d0 root cake bandwidth 1mbit");
    let disturbed = shaper.undisturbed().unwrap_err().to_string();
    assert!(disturbed.contains("rate (bytes/s) is 125000, not 2137500"), "{disturbed}");
    shaper.put_back().unwrap();
    assert_eq!(shown("d0"), before);
    shaper.shape(cake(17_100, FRAMES)).unwrap();
    run("ip link del d0");
    dummy("d0");
    let disturbed = shaper.undisturbed().unwrap_err().to_string();
    assert!(disturbed.contains("gone"), "{disturbed}");
    shaper.put_back().unwrap();
    assert_eq!((shown("d0"), lab.records()), (before, 0));
}

/// As when the provider hangs up and the modem dials again.
#[test]
fn an_address_that_goes_is_told_once() {
    let Some(lab) = lab("address") else { return };
    dummy("d0");
    run("ip addr add 10.7.0.2/24 dev d0");
    let mut shaper = lab.shaper("d0");
    shaper.shape(cake(17_100, FRAMES)).unwrap();
    run("ip addr add 10.7.0.3/24 dev d0");
    shaper.undisturbed().unwrap();
    run("ip addr del 10.7.0.2/24 dev d0");
    run("ip addr add 10.7.0.4/24 dev d0");
    let disturbed = shaper.undisturbed().unwrap_err();
    assert_eq!(disturbed, LineError::Disturbed { what: "the address of d0 (was 10.7.0.2)".into() });
    shaper.shape(cake(17_200, FRAMES)).unwrap();
    shaper.undisturbed().unwrap();
}

#[test]
fn a_panic_puts_back() {
    let Some(lab) = lab("panic") else { return };
    dummy("d0");
    run("tc qdisc add dev d0 root cake bandwidth 5mbit diffserv4");
    let before = shown("d0");
    let shaper = std::panic::AssertUnwindSafe(lab.shaper("d0"));
    let result = std::panic::catch_unwind(move || {
        let mut shaper = shaper;
        shaper.shape(Shaping::Unshaped).unwrap();
        panic!("in the middle");
    });
    assert!(result.is_err());
    assert_eq!((shown("d0"), lab.records()), (before, 0));
}

/// No test of its own: what [`Lab::child`] runs.
#[test]
fn child() {
    let Ok(device) = std::env::var("CHILD_DEVICE") else { return };
    let journal = Journal::open(&PathBuf::from(std::env::var("CHILD_DIRECTORY").unwrap())).unwrap();
    let does = std::env::var("CHILD_DOES").unwrap();
    if does == "download" {
        let mut download = Download::open(&device, &journal).unwrap();
        for kbit in 1000.. {
            download.shape(if kbit % 3 == 2 { Shaping::Unshaped } else { cake(kbit, FRAMES) }).unwrap();
            if kbit == 1000 {
                println!("\nready");
            }
        }
    }
    let mut shaper = Shaper::open(&device, Direction::Upload, &journal).unwrap();
    let mut step = 0_u64;
    loop {
        match does.as_str() {
            "shaped" => shaper.shape(cake(17_100, FRAMES)).unwrap(),
            "unshaped" => shaper.shape(Shaping::Unshaped).unwrap(),
            _ if step % 5 == 4 => shaper.put_back().unwrap(),
            _ if step % 5 == 2 => shaper.shape(Shaping::Unshaped).unwrap(),
            _ => shaper.shape(cake(1_000 + step, FRAMES)).unwrap(),
        }
        if step == 0 {
            println!("\nready");
        }
        step += 1;
        if does != "everything" {
            std::thread::sleep(Duration::from_secs(600));
        }
    }
}

#[test]
fn what_a_killed_run_left_is_put_back() {
    let Some(lab) = lab("killed") else { return };
    for (number, (arguments, does)) in [
        ("", "shaped"),
        ("", "unshaped"),
        ("cake bandwidth 5mbit diffserv4 raw", "shaped"),
        ("cake bandwidth 5mbit diffserv4 raw", "unshaped"),
        ("fq_codel limit 300", "shaped"),
        ("fq_codel limit 300", "unshaped"),
    ]
    .into_iter()
    .enumerate()
    {
        let device = format!("d{number}");
        dummy(&device);
        if !arguments.is_empty() {
            run(&format!("tc qdisc add dev {device} root {arguments}"));
        }
        let before = shown(&device);
        let mut child = lab.child(&device, does);
        let during = shown(&device);
        assert_eq!(during == before, arguments.is_empty() && does == "unshaped", "{arguments} {does}");
        let refused = journal::restore(&lab.place.directory).unwrap_err();
        assert!(matches!(&refused, LineError::Refused { problem, .. } if problem.contains(&child.id().to_string())));
        assert_eq!(shown(&device), during);
        child.kill().unwrap();
        child.wait().unwrap();
        let said = journal::restore(&lab.place.directory).unwrap();
        assert_eq!((said.len(), shown(&device), lab.records()), (1, before, 0), "{arguments} {does}: {said:?}");
    }
}

#[test]
fn killed_at_any_moment_everything_comes_back() {
    let Some(lab) = lab("moments") else { return };
    let rounds: u32 = std::env::var("LAB_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(20);
    dummy("d0");
    run("tc qdisc add dev d0 root cake bandwidth 5mbit diffserv4 memlimit 3mb");
    let before = shown("d0");
    let mut changed = 0;
    for round in 0..rounds {
        let mut child = lab.child("d0", "everything");
        std::thread::sleep(Duration::from_micros(u64::from(round * 739 % 20_000)));
        child.kill().unwrap();
        child.wait().unwrap();
        changed += u32::from(shown("d0") != before);
        journal::restore(&lab.place.directory).unwrap();
        assert_eq!(shown("d0"), before, "round {round}");
        let left = std::fs::read_dir(&lab.place.directory)
            .unwrap()
            .filter(|file| file.as_ref().unwrap().path().extension().is_some_and(|e| e == "json"));
        assert_eq!(left.count(), 0, "round {round}");
    }
    assert!(changed * 2 > rounds, "killed in the middle only {changed} times of {rounds}");
}

#[test]
fn what_somebody_set_after_the_kill_stays() {
    let Some(lab) = lab("later") else { return };
    dummy("d0");
    let mut child = lab.child("d0", "shaped");
    child.kill().unwrap();
    child.wait().unwrap();
    run("tc qdisc replace dev d0 root handle 99: cake bandwidth 6mbit");
    let theirs = shown("d0");
    let said = journal::restore(&lab.place.directory).unwrap();
    assert!(said[0].contains("somebody"), "{said:?}");
    assert_eq!((shown("d0"), lab.records()), (theirs, 0));
}

#[test]
fn the_next_run_begins_with_putting_back() {
    let Some(lab) = lab("next") else { return };
    dummy("d0");
    run("tc qdisc add dev d0 root cake bandwidth 5mbit");
    let before = shown("d0");
    let mut child = lab.child("d0", "shaped");
    child.kill().unwrap();
    child.wait().unwrap();
    let shaper = lab.shaper("d0");
    assert_eq!(shown("d0"), before);
    assert!(shaper.before().to_string().starts_with("cake 80"), "{}", shaper.before());
}

#[test]
fn counters_agree_with_what_was_sent() {
    // All of them fit into a socket's send buffer: the sender must not wait for the queue.
    const PACKETS: u64 = 60;
    const IP_BYTES: u64 = 1000;
    let Some(lab) = lab("counters") else { return };
    dummy("d0");
    run("ip addr add 10.9.0.1/24 dev d0");
    let mut shaper = lab.shaper("d0");
    let mut counters = Counters::open(shaper.device(), &[(Direction::Upload, shaper.device())]).unwrap();
    let socket = UdpSocket::bind("10.9.0.1:0").unwrap();
    let transmit = |counters: &mut Counters| {
        for _ in 0..PACKETS {
            socket.send_to(&[0; IP_BYTES as usize - 28], "10.9.0.2:9").unwrap();
        }
        std::thread::sleep(Duration::from_millis(300));
        let mut seen: Vec<_> = counters.read().unwrap().into_iter().map(|(_, seen)| seen).collect();
        let Some(Seen::Device { sent_bytes, received_bytes: 0 }) = seen.pop() else { panic!("no device") };
        (sent_bytes, seen.pop())
    };
    assert_eq!(transmit(&mut counters), (PACKETS * IP_BYTES, None));

    shaper.shape(cake(100_000, FRAMES)).unwrap();
    assert!(matches!(counters.read(), Err(LineError::Disturbed { .. })));
    for _ in 0..2 {
        counters.start().unwrap();
        let (sent_bytes, Some(Seen::Queue(queue))) = transmit(&mut counters) else { panic!("no queue") };
        assert_eq!((queue.sent_bytes, queue.sent_packets * IP_BYTES), (sent_bytes, sent_bytes));
        assert_eq!(queue.sent_packets + queue.dropped_packets, PACKETS, "{queue:?}");
        assert!(queue.dropped_packets < 5 && (queue.target_ms - 5.0).abs() < 0.01, "{queue:?}");
        assert_eq!((queue.direction, queue.backlog_bytes), (Direction::Upload, 0));
    }

    // At 80 kbit/s it stands in the queue, and the target is 1.5 packets' time.
    shaper.shape(cake(80, FRAMES)).unwrap();
    counters.start().unwrap();
    let (sent_bytes, Some(Seen::Queue(queue))) = transmit(&mut counters) else { panic!("no queue") };
    let all = queue.sent_packets + queue.dropped_packets + queue.backlog_bytes / (IP_BYTES + 14);
    assert!(all.abs_diff(PACKETS) <= 1 && queue.sent_bytes.abs_diff(sent_bytes) <= IP_BYTES, "{queue:?}");
    assert!((3..30).contains(&queue.sent_packets) && queue.target_ms > 200.0, "{queue:?}");
    let shown: serde_json::Value = serde_json::from_str(&run("tc -s -j qdisc show dev d0")).unwrap();
    let tin = &shown[0]["tins"][0];
    assert!((queue.target_ms - tin["target_us"].as_f64().unwrap() / 1000.0).abs() < 0.01, "{tin}");
}

/// All devices with their qdiscs and what is done with what comes in.
fn all_shown(device: &str) -> String {
    let filters = run(&format!("tc filter show dev {device} ingress"));
    run("ip -o link show") + &run("tc -d qdisc show") + &filters
}

/// What SQM makes for download.
fn sqm_download(device: &str) {
    ifb(&format!("ifb4{device}"), 1);
    run(&format!("tc qdisc add dev ifb4{device} root cake bandwidth 60mbit besteffort wash"));
    run(&format!("tc qdisc add dev {device} handle ffff: ingress"));
    run(&format!(
        "tc filter add dev {device} parent ffff: protocol all prio 10 u32 match u32 0 0 flowid 1:1 \
         action mirred egress redirect dev ifb4{device}"
    ));
}

#[test]
fn download_goes_through_an_ifb_of_ours_only_while_it_is_shaped() {
    let Some(lab) = lab("download") else { return };
    dummy("d0");
    let before = all_shown("d0");
    let mut download = Download::open("d0", &lab.journal()).unwrap();
    assert!(download.through().is_none());
    download.shape(Shaping::Unshaped).unwrap();
    assert_eq!(all_shown("d0"), before);
    download.shape(cake(50_000, FRAMES)).unwrap();
    let ifb = download.through().unwrap().name.clone();
    assert!(shown(&ifb).contains("bandwidth 50Mbit besteffort triple-isolate nat wash ingress"), "{}", shown(&ifb));
    let filters = run("tc filter show dev d0 ingress");
    assert!(filters.contains(&format!("Egress Redirect to device {ifb}")), "{filters}");
    assert_eq!(lab.records(), 2);
    download.shape(cake(40_000, CELLS)).unwrap();
    assert!(shown(&ifb).contains("40Mbit"), "{}", shown(&ifb));
    download.shape(Shaping::Unshaped).unwrap();
    assert_eq!((all_shown("d0"), lab.records()), (before.clone(), 0));
    download.shape(cake(50_000, FRAMES)).unwrap();
    drop(download);
    assert_eq!((all_shown("d0"), lab.records()), (before, 0));
}

#[test]
fn download_through_sqms_ifb_leaves_it_as_it_was() {
    let Some(lab) = lab("ifb") else { return };
    dummy("d0");
    sqm_download("d0");
    let before = all_shown("d0");
    let mut download = Download::open("d0", &lab.journal()).unwrap();
    assert_eq!(download.through().unwrap().name, "ifb4d0");
    download.shape(Shaping::Unshaped).unwrap();
    assert!(!shown("ifb4d0").contains("cake"));
    download.shape(cake(50_000, FRAMES)).unwrap();
    assert!(shown("ifb4d0").contains("cake 5351: root refcnt 2 bandwidth 50Mbit"));
    download.shape(Shaping::AsIs).unwrap();
    assert_eq!((all_shown("d0"), lab.records()), (before.clone(), 0));
    download.shape(Shaping::Unshaped).unwrap();
    run("tc qdisc del dev d0 ingress");
    assert!(matches!(download.undisturbed(), Err(LineError::Disturbed { .. })));
    download.put_back().unwrap();
    assert!(before.starts_with(&run("ip -o link show")) && shown("ifb4d0").contains("bandwidth 60Mbit"));
}

/// What `doctor` sees.
#[test]
fn a_snapshot_has_all_that_runs() {
    let Some(_lab) = lab("snapshot") else { return };
    dummy("d0");
    dummy("d1");
    sqm_download("d0");
    run("tc qdisc add dev d0 root cake bandwidth 17100kbit diffserv3 overhead 44 mpu 84");
    let seen = Snapshot::take(&mut Socket::open().unwrap()).unwrap();
    let index = |name: &str| seen.devices.iter().find(|device| device.name == name).unwrap().index;
    assert_eq!(seen.redirects, [(index("d0"), vec![index("ifb4d0")])]);
    let root = |name: &str| {
        let mut roots = seen.qdiscs.iter().filter(|qdisc| qdisc.parent == Handle::ROOT);
        roots.find(|qdisc| seen.name(qdisc.device) == Some(name)).cloned()
    };
    let rate = |name: &str| cake::decode(&root(name).unwrap().options).unwrap().rate();
    assert_eq!((rate("d0"), rate("ifb4d0")), (Some(Rate::from_kbit(17_100)), Some(Rate::from_kbit(60_000))));
    let tins = |name: &str| cake::tins(&root(name).unwrap().statistics).unwrap().len();
    assert_eq!((tins("d0"), tins("ifb4d0")), (3, 1));
    let ingress: Vec<_> = seen.qdiscs.iter().filter(|qdisc| redirect::is_ingress(qdisc)).collect();
    assert_eq!((ingress.len(), ingress[0].device), (1, index("d0")));
    // Nobody has set anything on d1.
    assert!(root("d1").is_none_or(|root| root.handle == Handle::DEFAULT));
}

#[test]
fn download_beside_somebody_elses_filters_is_refused() {
    let Some(lab) = lab("filters") else { return };
    dummy("d0");
    run("tc qdisc add dev d0 clsact");
    run("tc filter add dev d0 ingress matchall action skbedit priority 1");
    let before = all_shown("d0");
    let refused = Download::open("d0", &lab.journal()).err();
    assert!(matches!(&refused, Some(LineError::Refused { problem, .. }) if problem.contains("d0")), "{refused:?}");
    assert_eq!((all_shown("d0"), lab.records()), (before, 0));
}

#[test]
fn our_ifb_gives_way_to_sqm() {
    let Some(lab) = lab("giveway") else { return };
    dummy("d0");
    let mut download = Download::open("d0", &lab.journal()).unwrap();
    download.shape(cake(50_000, FRAMES)).unwrap();
    let ours = download.through().unwrap().name.clone();
    run("tc qdisc del dev d0 ingress");
    sqm_download("d0");
    let theirs = shown("d0") + &shown("ifb4d0") + &run("tc filter show dev d0 ingress");
    assert!(matches!(download.shape(Shaping::Unshaped), Err(LineError::Disturbed { .. })));
    download.put_back().unwrap();
    assert_eq!(shown("d0") + &shown("ifb4d0") + &run("tc filter show dev d0 ingress"), theirs);
    assert!(!run("ip -o link show").contains(&ours));
    assert_eq!(lab.records(), 0);
}

#[test]
fn a_download_killed_at_any_moment_comes_back() {
    let Some(lab) = lab("download-killed") else { return };
    dummy("d0");
    let before = all_shown("d0");
    for round in 0..12_u64 {
        let mut child = lab.child("d0", "download");
        std::thread::sleep(Duration::from_micros(round * 7_390 % 50_000));
        child.kill().unwrap();
        child.wait().unwrap();
        let said = journal::restore(&lab.place.directory).unwrap();
        assert_eq!(all_shown("d0"), before, "round {round}: {said:?}");
    }
}

#[test]
fn what_comes_in_is_counted_behind_its_shaper() {
    const PACKETS: u64 = 60;
    const IP_BYTES: u64 = 1000;
    let Some(lab) = lab("incoming") else { return };
    run("ip link add v0 type veth peer name v1");
    // A thread in a network namespace of its own is the provider.
    let (tell, told) = std::sync::mpsc::channel::<i32>();
    let (go, went) = std::sync::mpsc::channel::<()>();
    let provider = std::thread::spawn(move || {
        // SAFETY: no pointers.
        let thread = unsafe { if libc::unshare(libc::CLONE_NEWNET) == 0 { libc::gettid() } else { panic!("unshare") } };
        tell.send(thread).unwrap();
        went.recv().unwrap();
        // IPv6 would talk of itself in between.
        run("ip link set v1 addrgenmode none");
        run("ip addr add 10.9.0.2/24 dev v1");
        run("ip link set v1 up");
        let socket = UdpSocket::bind("10.9.0.2:0").unwrap();
        tell.send(thread).unwrap();
        went.recv().unwrap();
        for _ in 0..PACKETS {
            socket.send_to(&[0; IP_BYTES as usize - 28], "10.9.0.1:9").unwrap();
        }
        // With the thread its namespace goes, and the device.
        went.recv().unwrap();
    });
    run(&format!("ip link set v1 netns {}", told.recv().unwrap()));
    run("ip addr add 10.9.0.1/24 dev v0");
    run("ip link set v0 up");
    go.send(()).unwrap();
    told.recv().unwrap();
    let listener = UdpSocket::bind("10.9.0.1:9").unwrap();
    // An emulated clock runs on while the programs are read.
    listener.set_read_timeout(Some(Duration::from_secs(60))).unwrap();

    let mut download = Download::open("v0", &lab.journal()).unwrap();
    download.shape(cake(50_000, FRAMES)).unwrap();
    let device = device::by_name(&mut Socket::open().unwrap(), "v0").unwrap();
    let queues = [(Direction::Upload, &device), (Direction::Download, download.through().unwrap())];
    let mut counters = Counters::open(&device, &queues).unwrap();
    std::thread::sleep(Duration::from_secs(2));
    counters.start().unwrap();
    go.send(()).unwrap();
    let received = (0..PACKETS).take_while(|_| listener.recv(&mut [0; 2000]).is_ok()).count();
    let seen: Vec<_> = counters.read().unwrap().into_iter().map(|(_, seen)| seen).collect();
    go.send(()).unwrap();
    provider.join().unwrap();
    let [Seen::Queue(queue), Seen::Device { received_bytes, .. }] = seen[..] else { panic!("{seen:?}") };
    // A machine that stands still for a moment is a standing queue to CAKE.
    assert_eq!(received as u64 + queue.dropped_packets, PACKETS, "{queue:?}");
    assert!(queue.dropped_packets < 5 && queue.direction == Direction::Download, "{queue:?}");
    // ARP is a few packets more.
    let more = |bytes: u64, packets: u64| (packets * IP_BYTES..packets * IP_BYTES + 500).contains(&bytes);
    assert!(more(received_bytes, PACKETS) && more(queue.sent_bytes, received as u64), "{seen:?}");
}

#[test]
fn devices_addresses_and_the_default_route_are_those_that_ip_set() {
    let Some(_lab) = lab("devices") else { return };
    dummy("wan");
    dummy("lte");
    run("ip link add link wan name wan.7 mtu 1492 type vlan id 7");
    run("ip link set wan.7 addrgenmode none");
    run("ip link set wan.7 up");
    run("ip addr add 10.9.0.1/24 dev wan.7");
    run("ip addr add 2001:db8::1/64 dev wan.7 nodad");
    let mut socket = Socket::open().unwrap();
    assert_eq!(device::of_default_route(&mut socket).unwrap(), None);
    let vlan = device::by_name(&mut socket, "wan.7").unwrap();
    assert_eq!(
        (vlan.mtu, vlan.kind.as_deref(), vlan.qdisc.as_str(), vlan.is_up()),
        (1492, Some("vlan"), "noqueue", true)
    );
    let addresses = device::addresses(&mut socket, vlan.index).unwrap();
    let addresses: Vec<_> = addresses.iter().map(|address| format!("{}/{}", address.ip, address.prefix)).collect();
    assert_eq!(addresses, ["10.9.0.1/24", "2001:db8::1/64"]);
    let lte = device::by_name(&mut socket, "lte").unwrap();
    run("ip route add default dev lte metric 20");
    assert_eq!(device::of_default_route(&mut socket).unwrap(), Some(lte.index));
    run("ip route add default via 10.9.0.2 dev wan.7 metric 10");
    run("ip route add default dev wan table 100");
    assert_eq!(device::of_default_route(&mut socket).unwrap(), Some(vlan.index));
    run("ip link add ppp type dummy");
    assert!(!device::by_name(&mut socket, "ppp").unwrap().is_up());
}
