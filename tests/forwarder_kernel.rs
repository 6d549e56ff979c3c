//! The forwarder against a real kernel, behind a firewall like OpenWrt's, with `ip` as the second witness.
//!
//! Each test has a router, an internet and, where it matters, clients of its own, all in network namespaces. Where these
//! are not to be had, the tests say so and pass; with `LAB=1` in the environment that is a failure.
#![cfg(all(feature = "router", feature = "server"))]

mod kernel_support;

use kernel_support::{Place, run, succeeds};
use sqm_autotune::line::{
    Accounting, Cake, Cells, Line, LineError, LinkType, Load, Origin, Sample, Seen, Shaping, Step,
};
use sqm_autotune::line::{Trial, Watch};
use sqm_autotune::router::device::{self, Device};
use sqm_autotune::router::forwarder::{Forwarder, Namespace};
use sqm_autotune::router::journal::{self, Journal};
use sqm_autotune::router::netlink::Socket;
use sqm_autotune::router::socket::Via;
use sqm_autotune::router::target::Choice;
use sqm_autotune::router::tls::Trust;
use sqm_autotune::router::{RouterLine, Settings};
use sqm_autotune::server::{Limits, serve};
use sqm_autotune::units::{Direction, Rate};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::process::Child;
use std::sync::Arc;
use std::time::{Duration, Instant};

const FIREWALL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/lab/guest/firewall.nft");
/// The router's, on the internet; whatever is masqueraded has it.
const WAN: &str = "10.1.0.2";
const SERVER: &str = "10.1.0.1:80";
const SERVER_V6: &str = "[2001:db8::1]:80";

/// A router (the namespace of the test's thread) with wan and br-lan, and an internet of one machine.
struct Lab {
    place: Place,
    internet: Namespace,
}

/// `None`: skipped.
fn lab(test: &str) -> Option<Lab> {
    let there = || succeeds("ip link add br-lan type bridge") && succeeds(&format!("nft -f {FIREWALL}"));
    let place = Place::new(test, "root, bridges and nftables", there)?;
    let internet = Namespace::new().unwrap();
    // One test wants it.
    ipv6(false);
    run("ip link set lo up");
    run("ip link add wan type veth peer name net0");
    give("net0", &internet);
    within(&internet, &["ip addr add 10.1.0.1/24 dev net0", "ip link set net0 up"]);
    each(&[&format!("ip addr add {WAN}/24 dev wan"), "ip link set wan up", "ip route add default via 10.1.0.1"]);
    each(&["ip addr add 192.168.1.1/24 dev br-lan", "ip link set br-lan up"]);
    wire("port", &internet);
    run("ip link set port master br-lan");
    std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
    kernel_asks_every(100);
    Some(Lab { place, internet })
}

impl Lab {
    fn journal(&self) -> Arc<Journal> {
        self.place.journal()
    }

    fn open(&self) -> Result<Forwarder, LineError> {
        Forwarder::open(&wan(), &self.journal())
    }

    fn refused(&self) -> String {
        let before = shown();
        let refused = self.open().err().unwrap();
        assert!(matches!(refused, LineError::Refused { .. }), "{refused:?}");
        assert_eq!((changed(&before), self.records()), (vec![], 0));
        refused.to_string()
    }

    fn records(&self) -> usize {
        self.place.records()
    }

    fn server(&self) -> TcpListener {
        self.internet.within(|| TcpListener::bind(SERVER)).unwrap()
    }

    /// Another process of this test, in this namespace: see [`child`].
    fn child(&self, ready_at: &str) -> Child {
        self.place.child(&[], ready_at)
    }
}

fn each(lines: &[&str]) {
    for line in lines {
        run(line);
    }
}

/// Only of the devices to come, and br-lan.
fn ipv6(on: bool) {
    for conf in ["default", "br-lan", "wan"] {
        let path = format!("/proc/sys/net/ipv6/conf/{conf}/disable_ipv6");
        if std::fs::exists(&path).unwrap() {
            std::fs::write(path, if on { "0" } else { "1" }).unwrap();
        }
    }
}

/// Who has an address: the kernel asks three times, so far apart. By itself it takes a second each.
fn kernel_asks_every(ms: u64) {
    std::fs::write("/proc/sys/net/ipv4/neigh/br-lan/retrans_time_ms", ms.to_string()).unwrap();
}

/// A device whose other end is somewhere else and nobody uses.
fn wire(name: &str, elsewhere: &Namespace) {
    let end = format!("{name}-end");
    run(&format!("ip link add {name} type veth peer name {end}"));
    give(&end, elsewhere);
    run(&format!("ip link set {name} up"));
    within(elsewhere, &[&format!("ip link set {end} up")]);
}

fn within(space: &Namespace, lines: &[&str]) {
    let all = || {
        each(lines);
        Ok(())
    };
    space.within(all).unwrap();
}

fn give(device: &str, space: &Namespace) {
    let path = format!("/proc/{}/fd/{}", std::process::id(), space.as_fd().as_raw_fd());
    run(&format!("ip link set {device} netns {path}"));
}

/// Everything of the router that a host in its LAN could have changed. Not in it: what comes and goes by itself.
fn shown() -> Vec<String> {
    let all = ["ip -o link", "ip -o -4 addr", "ip route show table all", "ip rule", "ip neigh", "bridge vlan"];
    let all = all.map(run).concat().replace("NO-CARRIER,", "").replace(",LOWER_UP", "");
    let passing =
        |line: &&str| !line.starts_with("10.1.0.1 dev wan lladdr") && !line.starts_with("2001:db8::1 dev wan");
    let lines = all.lines().filter(passing);
    lines.map(|line| line.split(" state ").next().unwrap().to_owned()).collect()
}

/// What is only in one of `before` and now.
fn changed(before: &[String]) -> Vec<String> {
    let now = shown();
    let gone = before.iter().filter(|line| !now.contains(line)).map(|line| format!("- {line}"));
    let came = now.iter().filter(|line| !before.contains(line)).map(|line| format!("+ {line}"));
    gone.chain(came).collect()
}

/// As [`changed`], where a host of ours has gone while packets were under way to it: the kernel asks for it in vain, and
/// forgets that by itself.
fn left(before: &[String]) -> Vec<String> {
    let question = |line: &String| line.contains("INCOMPLETE") || line.contains("FAILED");
    changed(before).into_iter().filter(|line| !question(line)).collect()
}

fn wan() -> Device {
    device::by_name(&mut Socket::open().unwrap(), "wan").unwrap()
}

fn reach(forwarder: &mut Forwarder, to: &str) -> Result<(), LineError> {
    runtime().block_on(forwarder.reach(to.parse().unwrap()))
}

fn connect(via: &Via, to: &str) -> std::io::Result<TcpStream> {
    let runtime = runtime();
    runtime.block_on(async { via.connect(to.parse().unwrap(), Some(1460)).await?.into_std() })
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// A client of the LAN, or of whatever is named.
fn client(name: &str, address: &str, bridge: Option<&str>) -> Namespace {
    let space = Namespace::new().unwrap();
    run(&format!("ip link add {name} type veth peer name eth0"));
    give("eth0", &space);
    if let Some(bridge) = bridge {
        run(&format!("ip link set {name} master {bridge}"));
    }
    run(&format!("ip link set {name} up"));
    within(&space, &["ip link set lo up", &format!("ip addr add {address} dev eth0"), "ip link set eth0 up"]);
    space
}

#[test]
fn our_host_goes_out_through_firewall_and_masquerade_and_leaves_no_trace() {
    let Some(lab) = lab("passes") else { return };
    // As long as it takes on a router.
    kernel_asks_every(1000);
    let server = lab.server();
    let before = shown();
    let mut forwarder = lab.open().unwrap();
    assert_eq!((forwarder.address().to_string().as_str(), lab.records()), ("192.168.1.254", 1));
    reach(&mut forwarder, SERVER).unwrap();
    let (_probe, from) = server.accept().unwrap();
    assert_eq!(from.ip().to_string(), WAN);

    let mut ours = connect(&forwarder.via(), SERVER).unwrap();
    assert_eq!(ours.local_addr().unwrap().ip().to_string(), "192.168.1.254");
    let (mut theirs, _) = server.accept().unwrap();
    ours.set_nonblocking(false).unwrap();
    ours.write_all(b"up").unwrap();
    let mut word = [0; 2];
    theirs.read_exact(&mut word).unwrap();
    assert_eq!(&word, b"up");
    // What the router makes of it: a host on the bridge, in its neighbour table.
    assert!(run("ip neigh show dev br-lan").contains("192.168.1.254"), "{}", run("ip neigh"));
    assert!(run("ip -o link show master br-lan").contains("sqmtune-lan"));
    forwarder.undisturbed().unwrap();

    forwarder.put_back().unwrap();
    forwarder.put_back().unwrap();
    assert_eq!((changed(&before), lab.records()), (vec![], 0));
    drop((ours, forwarder));
    assert_eq!(changed(&before), [""; 0]);
}

#[test]
fn a_host_on_an_interface_of_its_own_is_rejected() {
    // That the firewall would do that is why ours joins the bridge.
    let Some(lab) = lab("rejected") else { return };
    let _server = lab.server();
    let guest = client("guest0", "192.168.7.2/24", None);
    run("ip addr add 192.168.7.1/24 dev guest0");
    within(&guest, &["ip route add default via 192.168.7.1"]);
    let refused = connect(&Via { space: Some(guest), ..Via::default() }, SERVER).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused, "{refused}");
}

#[test]
fn a_firewall_that_does_not_let_it_pass_is_told() {
    let Some(lab) = lab("firewall") else { return };
    let _server = lab.server();
    run("nft insert rule inet fw4 from_lan ip saddr 192.168.1.254 goto refuse");
    let before = shown();
    let mut forwarder = lab.open().unwrap();
    let refused = reach(&mut forwarder, SERVER).unwrap_err().to_string();
    assert!(refused.contains("192.168.1.254") && refused.contains("firewall"), "{refused}");
    drop(forwarder);
    assert_eq!(changed(&before), [""; 0]);
}

#[test]
fn an_address_that_somebody_has_is_not_taken() {
    let Some(lab) = lab("taken") else { return };
    let _sleepless = client("c0", "192.168.1.254/24", Some("br-lan"));
    // In the router's table, though it never answers.
    run("ip neigh add 192.168.1.253 lladdr 02:00:00:00:00:01 dev br-lan nud stale");
    let before = shown();
    let forwarder = lab.open().unwrap();
    assert_eq!(forwarder.address().to_string(), "192.168.1.252");
    drop(forwarder);
    assert_eq!(changed(&before), [""; 0]);
}

#[test]
fn the_lans_hosts_do_not_notice() {
    let Some(lab) = lab("notice") else { return };
    let _client = client("c0", "192.168.1.7/24", Some("br-lan"));
    run("ip link set c0 mtu 1400");
    // The kernel finds a bridge to be up some time after it has been set up.
    let bridge = || run("ip -o link show br-lan").replace("state UNKNOWN", "state UP");
    let before = bridge();
    let forwarder = lab.open().unwrap();
    assert_eq!(bridge(), before);
    assert!(run("ip -o link show sqmtune-lan").contains("mtu 1400"));
    drop(forwarder);
}

#[test]
fn a_vlan_of_a_filtering_bridge_is_joined() {
    let Some(lab) = lab("vlan") else { return };
    let server = lab.server();
    run("ip link del br-lan");
    if !succeeds("ip link add br-lan type bridge vlan_filtering 1 vlan_default_pvid 0") {
        println!("skipped: this kernel's bridges know no VLANs");
        return;
    }
    each(&[
        "ip link set br-lan up",
        "ip link add link br-lan name br-lan.7 type vlan id 7",
        "bridge vlan add vid 7 dev br-lan self",
        "ip addr add 192.168.1.1/24 dev br-lan.7",
        "ip link set br-lan.7 up",
    ]);
    run("nft insert rule inet fw4 forward iifname br-lan.7 oifname wan accept");
    let before = shown();
    let mut forwarder = lab.open().unwrap();
    reach(&mut forwarder, SERVER).unwrap();
    server.accept().unwrap();
    drop(forwarder);
    assert_eq!(changed(&before), [""; 0]);
}

#[test]
fn ipv6_where_the_lan_has_it() {
    let Some(lab) = lab("v6") else { return };
    ipv6(true);
    if !std::fs::exists("/proc/sys/net/ipv6").unwrap() || !succeeds("ip addr add 2001:db8:1::1/64 dev br-lan nodad") {
        println!("skipped: this kernel has no IPv6");
        return;
    }
    within(
        &lab.internet,
        &["ip addr add 2001:db8::1/64 dev net0 nodad", "ip route add 2001:db8:1::/64 via 2001:db8::2"],
    );
    each(&["ip addr add 2001:db8::2/64 dev wan nodad", "ip addr add fe80::1/64 dev br-lan nodad"]);
    std::fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1").unwrap();
    run("nft insert rule inet fw4 input meta l4proto icmpv6 accept");
    let server = lab.internet.within(|| TcpListener::bind(SERVER_V6)).unwrap();
    let mut forwarder = lab.open().unwrap();
    reach(&mut forwarder, SERVER_V6).unwrap();
    let (_, from) = server.accept().unwrap();
    assert!(from.ip().to_string().starts_with("2001:db8:1:"), "{from}");
    let refused = reach(&mut forwarder, "[2001:db8:9::1]:80").err();
    assert!(refused.is_some(), "{refused:?}");
}

#[test]
fn without_ipv6_in_the_lan_a_server_that_has_nothing_else_is_refused() {
    let Some(lab) = lab("v4only") else { return };
    let mut forwarder = lab.open().unwrap();
    let refused = reach(&mut forwarder, "[2001:db8::1]:80").unwrap_err().to_string();
    assert!(refused.contains("IPv6"), "{refused}");
}

#[test]
fn where_it_is_not_possible_it_says_why() {
    let Some(lab) = lab("impossible") else { return };
    // A plain interface, and a bridge that is the line itself or has a public address.
    run("ip link del br-lan");
    wire("lan", &lab.internet);
    run("ip addr add 192.168.1.1/24 dev lan");
    each(&["ip link add br-pub type bridge", "ip addr add 203.0.113.1/24 dev br-pub", "ip link set br-pub up"]);
    assert!(lab.refused().contains("no bridge"));
    each(&["ip addr add 10.9.0.1/24 dev br-pub", "ip link set br-pub down"]);
    assert!(lab.refused().contains("no bridge"));
    run("ip link set br-pub up");
    let line = device::by_name(&mut Socket::open().unwrap(), "br-pub").unwrap();
    let refused = Forwarder::open(&line, &lab.journal()).err().unwrap().to_string();
    assert!(refused.contains("no bridge"), "{refused}");
    // Room for nobody: the only other address has an owner.
    run("ip addr del 10.9.0.1/24 dev br-pub");
    run("ip addr add 10.9.0.1/30 dev br-pub");
    let _owner = client("c0", "10.9.0.2/30", Some("br-pub"));
    assert!(lab.refused().contains("no address of br-pub"));
}

#[test]
fn without_privileges_it_is_refused() {
    let Some(lab) = lab("privileges") else { return };
    let (journal, wan) = (lab.journal(), wan());
    let refused = std::thread::spawn(move || {
        // SAFETY: no pointers. The raw call changes this thread only.
        assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, 65_534, 65_534, 65_534) }, 0);
        Forwarder::open(&wan, &journal).err()
    });
    let refused = refused.join().unwrap();
    assert!(matches!(&refused, Some(LineError::Refused { fix, .. }) if fix.contains("root")), "{refused:?}");
}

#[test]
fn lan_hosts_that_leave_by_another_line_are_no_load_on_this_one() {
    let Some(lab) = lab("elsewhere") else { return };
    let _server = lab.server();
    wire("lte", &lab.internet);
    each(&["ip rule add iif br-lan lookup 100", "ip route add default dev lte table 100"]);
    let mut forwarder = lab.open().unwrap();
    let refused = reach(&mut forwarder, SERVER).unwrap_err().to_string();
    assert!(refused.contains("does not lead br-lan out by wan"), "{refused}");
    run("ip rule del iif br-lan lookup 100");
    reach(&mut forwarder, SERVER).unwrap();
}

#[test]
fn who_takes_our_host_out_of_the_lan_is_noticed() {
    let Some(lab) = lab("disturbed") else { return };
    let before = shown();
    for taken in ["ip link set sqmtune-lan nomaster", "ip link del sqmtune-lan"] {
        let mut forwarder = lab.open().unwrap();
        forwarder.undisturbed().unwrap();
        run(taken);
        let disturbed = forwarder.undisturbed();
        assert!(matches!(disturbed, Err(LineError::Disturbed { .. })), "{taken}: {disturbed:?}");
        forwarder.put_back().unwrap();
        assert_eq!((changed(&before), lab.records()), (vec![], 0), "{taken}");
    }
}

#[test]
fn a_panic_takes_it_away() {
    let Some(lab) = lab("panic") else { return };
    let before = shown();
    let forwarder = std::panic::AssertUnwindSafe(lab.open().unwrap());
    let result = std::panic::catch_unwind(move || {
        let _forwarder = forwarder;
        panic!("in the middle");
    });
    assert!(result.is_err());
    assert_eq!((changed(&before), lab.records()), (vec![], 0));
}

/// No test of its own: what [`Lab::child`] runs. Sends to a server that does not read, so that all buffers are full.
#[test]
fn child() {
    let Some(directory) = std::env::var_os("CHILD_DIRECTORY") else { return };
    let journal = Journal::open(&PathBuf::from(directory)).unwrap();
    println!("\nbegins");
    let forwarder = Forwarder::open(&wan(), &journal).unwrap();
    println!("\nstands");
    let mut flows: Vec<_> = (0..4).map(|_| connect(&forwarder.via(), SERVER).unwrap()).collect();
    let data = vec![0; 65_536];
    for flow in &mut flows {
        while flow.write(&data).is_ok() {}
    }
    println!("\nsends");
    std::thread::sleep(Duration::from_secs(600));
}

fn ours_is_there() -> bool {
    run("ip -o link").contains("sqmtune-lan")
}

#[test]
fn killed_under_load_it_vanishes_by_itself() {
    let Some(lab) = lab("vanishes") else { return };
    let _server = lab.server();
    let before = shown();
    let mut child = lab.child("sends");
    assert!(ours_is_there());
    child.kill().unwrap();
    child.wait().unwrap();
    let killed = Instant::now();
    while ours_is_there() {
        assert!(killed.elapsed() < Duration::from_secs(5), "still there");
        std::thread::sleep(Duration::from_millis(20));
    }
    println!("gone after {:?}", killed.elapsed());
    assert_eq!(lab.records(), 1);
    let said = journal::restore(&lab.place.directory).unwrap();
    assert_eq!((changed(&before), lab.records()), (vec![], 0), "{said:?}");
}

#[test]
fn killed_at_any_moment_it_is_gone_after_a_restore() {
    let Some(lab) = lab("moments") else { return };
    let _server = lab.server();
    let before = shown();
    let mut there = 0;
    for round in 0..12_u64 {
        let mut child = lab.child(if round % 2 == 0 { "begins" } else { "stands" });
        // The search for an address is most of it: 0.4 s; then the devices are made.
        let wait = if round % 2 == 0 { 330 + round * 20 } else { round };
        std::thread::sleep(Duration::from_millis(wait));
        child.kill().unwrap();
        child.wait().unwrap();
        there += u32::from(ours_is_there());
        let said = journal::restore(&lab.place.directory).unwrap();
        assert_eq!((left(&before), lab.records()), (vec![], 0), "round {round}: {said:?}");
    }
    println!("there right after the kill in {there} rounds");
}

/// The samples of one trial with a forwarded load, and whether our host was in the LAN meanwhile.
fn trial(line: &mut RouterLine) -> (Vec<Seen>, bool) {
    let (mut seen, mut there) = (Vec::new(), false);
    let load = Load { direction: Direction::Upload, flows: 2, mss: 1460, origin: Origin::Forwarded };
    let accounting = Accounting { overhead: 44, mpu: 84, cells: Cells::None };
    let trial = Trial {
        number: 1,
        step: Step::Target,
        upload: Shaping::Cake(Cake::new(Rate::from_kbit(20_000), accounting)),
        download: Shaping::AsIs,
        loads: vec![load],
        reflectors: vec![0],
        probe_interval: Duration::from_millis(100),
        duration: Duration::from_secs(20),
    };
    let enough = |sample: &Sample| {
        there |= ours_is_there();
        let moved = matches!(&sample.seen, Seen::Flows(flows) if flows.alive == 2 && flows.payload_bytes > 500_000);
        seen.push(sample.seen.clone());
        if moved { Watch::Enough } else { Watch::Continue }
    };
    line.run(&trial, &mut { enough }).unwrap();
    (seen, there)
}

#[test]
fn the_line_forwards_and_where_it_cannot_it_says_so_and_loads_all_the_same() {
    let Some(lab) = lab("line") else { return };
    if !succeeds("tc qdisc add dev wan root cake") {
        assert!(std::env::var_os("LAB").is_none(), "needs a kernel with CAKE");
        println!("skipped: needs a kernel with CAKE (see tests/lab)");
        return;
    }
    run("tc qdisc del dev wan root");
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let internet = lab.internet.clone();
    let server = std::thread::spawn(move || {
        let until = async {
            let _ = stopped.await;
        };
        let serve = || runtime().block_on(serve(SERVER.parse().unwrap(), Limits::default(), until));
        internet.within(serve).unwrap();
    });
    while connect(&Via::default(), SERVER).is_err() {
        std::thread::sleep(Duration::from_millis(50));
    }
    let before = shown();
    let open = || {
        RouterLine::new(Settings {
            device: Some("wan".into()),
            reflectors: vec!["10.1.0.1".into()],
            server: Choice::from_args(Some(&format!("http://{SERVER}")), None, None).unwrap(),
            trust: Trust::default(),
            link: LinkType::Unknown,
            sync_up: None,
            sync_down: None,
            caveats: Vec::new(),
            journal: lab.place.directory.clone(),
        })
    };
    let troubled = |seen: &Seen| matches!(seen, Seen::NotForwarded { .. } | Seen::Trouble(_));

    let mut line = open();
    for _ in 0..2 {
        let (seen, there) = trial(&mut line);
        assert!(there && !seen.iter().any(troubled), "{seen:?}");
    }
    assert!(ours_is_there(), "kept for the next trial");
    line.put_back().unwrap();
    assert_eq!((left(&before), lab.records()), (vec![], 0));
    let (_, there) = trial(&mut line);
    assert!(there, "made again after it was put back");
    drop(line);
    assert_eq!((left(&before), lab.records()), (vec![], 0));

    run("ip addr del 192.168.1.1/24 dev br-lan");
    let mut line = open();
    let (seen, there) = trial(&mut line);
    let said = seen.iter().filter(|seen| troubled(seen)).collect::<Vec<_>>();
    assert!(!there && said == [&seen[0]], "{seen:?}");
    assert!(matches!(&seen[0], Seen::NotForwarded { why } if why.contains("bridge")), "{seen:?}");
    drop(line);
    stop.send(()).unwrap();
    server.join().unwrap();
}
