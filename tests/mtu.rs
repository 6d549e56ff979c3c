//! `mtu` for routers made here: every line of what is known of WireGuard's MTU.

use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const WIREGUARD: &str = "config interface 'wg0'\n\toption proto 'wireguard'\n";

fn written(name: &str, files: &[(&str, &str)]) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mtu").join(name);
    let _ = fs::remove_dir_all(&dir);
    for (path, text) in files {
        let path = dir.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    dir
}

fn run(args: &[&str], root: &Path) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sqm-autotune"));
    let output = command.arg("mtu").args(args).arg("--root").arg(root).output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
    String::from_utf8(output.stdout).unwrap()
}

fn asked(name: &str, files: &[(&str, &str)]) -> Value {
    serde_json::from_str(&run(&["--json"], &written(name, files))).unwrap()
}

/// One tunnel `wg0`, whose peer is at an address or a name, on a WAN.
fn tunnel(name: &str, wan: &str, mtu: Option<u32>, endpoint: &str, files: &[(&str, &str)]) -> (Value, Value) {
    let mtu = mtu.map(|mtu| format!("\toption mtu '{mtu}'\n")).unwrap_or_default();
    let network = format!("{wan}\n{WIREGUARD}{mtu}\nconfig wireguard_wg0\n\toption endpoint_host '{endpoint}'\n");
    let all = [&[("etc/config/network", network.as_str())], files].concat();
    let answer = asked(name, &all);
    assert_eq!((&answer["format"], answer["tunnels"].as_array().unwrap().len()), (&json!(1), 1));
    (answer["wan"].clone(), answer["tunnels"][0].clone())
}

fn advised(tunnel: &Value) -> (u64, u64, u64, &str) {
    let number = |key: &str| tunnel[key].as_u64().unwrap();
    (number("ipv4_mtu"), number("ipv6_mtu"), number("advice_mtu"), tunnel["action"].as_str().unwrap())
}

const IPV4: &str = "192.0.2.1";
const IPV6: &str = "2001:db8::1";
const NAME: &str = "vpn.example.net";
const DHCP: &str = "config interface 'wan'\n\toption device 'eth1'\n\toption proto 'dhcp'\n";
const PPPOE: &str = "config interface 'wan'\n\toption device 'eth1'\n\toption proto 'pppoe'\n";
const PPPOE_1500: &str =
    "config interface 'wan'\n\toption device 'eth1'\n\toption proto 'pppoe'\n\toption mtu '1500'\n";
const JUMBO: &str = "config device\n\toption name 'eth1'\n\toption mtu '1508'\n\n";

#[test]
fn the_answer_has_the_arithmetic() {
    let (wan, tunnel) = tunnel("arithmetic", PPPOE_1500, None, NAME, &[]);
    let why = "PPPoE on eth1: the smaller of 1500 (configured) and 1500 - 8 = 1492; 1500 would need 1508 on eth1";
    assert_eq!(wan, json!({ "device": "pppoe-wan", "mtu": 1492, "configured": 1500, "why": why }));
    let why = "1492 - 60 = 1432 over IPv4, 1492 - 80 = 1412 over IPv6 (outer IP 20 or 40, UDP 8, WireGuard 32); which of \
               them the endpoint uses is not known, and 1412 fits both. With 1420, full packets do not fit and are cut in two \
               or lost";
    let expected = json!({
        "name": "wg0", "mtu": 1420, "endpoint_family": "unknown", "ipv4_mtu": 1432, "ipv6_mtu": 1412, "advice_mtu": 1412,
        "mss_ipv4": 1372, "mss_ipv6": 1352, "action": "lower", "why": why,
    });
    assert_eq!(tunnel, expected);
}

#[test]
fn ethernet_and_pppoe() {
    for (wan, mtu, over_ipv4, over_ipv6) in [(DHCP, 1500, 1440, 1420), (PPPOE, 1492, 1432, 1412)] {
        for (endpoint, family, fits) in
            [(IPV4, "ipv4", over_ipv4), (IPV6, "ipv6", over_ipv6), (NAME, "unknown", over_ipv6)]
        {
            let (effective, tunnel) = tunnel(&format!("{mtu}-{family}"), wan, Some(1450), endpoint, &[]);
            assert_eq!((&effective["mtu"], &tunnel["endpoint_family"]), (&json!(mtu), &json!(family)));
            assert_eq!(advised(&tunnel), (over_ipv4, over_ipv6, fits, "lower"), "{family} over {mtu}");
            assert_eq!((&tunnel["mss_ipv4"], &tunnel["mss_ipv6"]), (&json!(fits - 40), &json!(fits - 60)));
        }
    }
}

#[test]
fn baby_jumbo_frames_give_pppoe_its_eight_bytes_back() {
    let (wan, _) = tunnel("jumbo", &format!("{JUMBO}{PPPOE_1500}"), None, NAME, &[]);
    assert_eq!((&wan["mtu"], &wan["configured"]), (&json!(1500), &json!(1500)));
    // A larger frame alone is not asked for.
    let (wan, _) = tunnel("jumbo-unasked", &format!("{JUMBO}{PPPOE}"), None, NAME, &[]);
    assert_eq!((&wan["mtu"], &wan["configured"]), (&json!(1492), &json!(null)));
    // The VLAN on it has it too.
    let vlan = PPPOE_1500.replace("'eth1'", "'eth1.7'");
    let (wan, _) = tunnel("jumbo-vlan", &format!("{JUMBO}{vlan}"), None, NAME, &[]);
    assert_eq!(wan["mtu"], 1500);
    // The device as it really is goes before what is configured.
    let real = [("sys/class/net/eth1/mtu", "1500\n"), ("sys/class/net/pppoe-wan/mtu", "1480\n")];
    let (wan, _) = tunnel("jumbo-refused", &format!("{JUMBO}{PPPOE_1500}"), None, NAME, &real);
    assert_eq!(wan["mtu"], 1480);
}

#[test]
fn what_is_configured_is_told() {
    let small = JUMBO.replace("1508", "1400");
    let (wan, _) = tunnel("small-device", &format!("{small}{DHCP}"), None, NAME, &[]);
    assert_eq!(
        (&wan["mtu"], &wan["configured"], &wan["why"]),
        (&json!(1400), &json!(1400), &json!("eth1: 1400, configured"))
    );
    let (wan, _) = tunnel(
        "small-interface",
        &format!("{DHCP}\toption mtu '1380'\n"),
        None,
        NAME,
        &[("sys/class/net/eth1/mtu", "1500\n")],
    );
    assert_eq!((&wan["mtu"], &wan["configured"]), (&json!(1380), &json!(1380)));
}

#[test]
fn inside_ds_lite_and_map_ipv4_has_less() {
    let dslite =
        "\nconfig interface 'ds'\n\toption proto 'dslite'\n\toption peeraddr '2001:db8::2'\n\toption mtu '1460'\n";
    for (name, wan, softwire, ipv4, ipv6) in [
        ("dslite", DHCP, dslite.to_owned(), 1400, 1420),
        ("dslite-pppoe", PPPOE, dslite.replace("1460", "1452"), 1392, 1412),
        ("dslite-unset", PPPOE, dslite.replace("\toption mtu '1460'\n", ""), 1392, 1412),
        ("dslite-small", DHCP, dslite.replace("1460", "1280"), 1220, 1420),
        (
            "map-e",
            DHCP,
            "\nconfig interface 'm'\n\toption proto 'map'\n\toption type 'map-e'\n\toption mtu '1460'\n".into(),
            1400,
            1420,
        ),
        ("map-t", DHCP, "\nconfig interface 'm'\n\toption proto 'map'\n\toption type 'map-t'\n".into(), 1420, 1420),
    ] {
        let wan = format!("{wan}{softwire}");
        for (endpoint, fits) in [(IPV4, ipv4), (IPV6, ipv6), (NAME, ipv4.min(ipv6))] {
            let (_, tunnel) = tunnel(&format!("{name}-{endpoint}").replace(':', "_"), &wan, Some(1450), endpoint, &[]);
            assert_eq!(advised(&tunnel), (ipv4, ipv6, fits, "lower"), "{name} to {endpoint}");
        }
    }
    let (wan, _) =
        tunnel("dslite-said", &format!("{PPPOE}{}", dslite.replace("\toption mtu '1460'\n", "")), None, NAME, &[]);
    let why = wan["why"].as_str().unwrap();
    assert!(why.contains("1492 - 40 = 1452") && why.contains("set mtu '1452' for ds: the default is 1280"), "{why}");
}

#[test]
fn a_mobile_network_is_to_be_measured() {
    let lte = "config interface 'wan'\n\toption proto 'qmi'\n\toption device '/dev/cdc-wdm0'\n";
    let (_, tunnel) = tunnel("lte", lte, Some(1280), IPV4, &[]);
    assert_eq!(advised(&tunnel), (1440, 1420, 1280, "keep"));
    assert!(tunnel["why"].as_str().unwrap().contains("measure; 1280 always works"), "{tunnel}");
}

/// C43.
#[test]
fn what_works_stays() {
    let small = [("sys/class/net/eth1/mtu", "1380\n")];
    for (name, wan, mtu, endpoint, files, expected) in [
        ("c43", DHCP, Some(1300), IPV4, &small[..], (1320, 1300, 1300, "keep")),
        ("report", PPPOE, Some(1412), IPV4, &[], (1432, 1412, 1412, "keep")),
        ("kernel", PPPOE, None, IPV4, &[], (1432, 1412, 1420, "keep")),
        ("unset", PPPOE, None, NAME, &[], (1432, 1412, 1412, "lower")),
        ("tiny", DHCP, Some(1280), IPV6, &[], (1440, 1420, 1420, "raise")),
        ("tiny-unknown", DHCP, Some(1280), NAME, &[], (1440, 1420, 1280, "keep")),
        ("running", DHCP, None, IPV4, &[("sys/class/net/wg0/mtu", "1441\n")], (1440, 1420, 1440, "lower")),
    ] {
        let (_, tunnel) = tunnel(&format!("stays-{name}"), wan, mtu, endpoint, files);
        assert_eq!(advised(&tunnel), expected, "{name}");
    }
}

#[test]
fn the_peer_with_the_larger_headers_decides_and_disabled_ones_do_not() {
    let network = |peers: &[(&str, &str)]| {
        let peer =
            |(host, more): &(&str, &str)| format!("\nconfig wireguard_wg0\n\toption endpoint_host '{host}'\n{more}");
        format!("{DHCP}\n{WIREGUARD}{}", peers.iter().map(peer).collect::<String>())
    };
    for (name, peers, family) in [
        ("mixed", &[(IPV4, ""), (IPV6, "")][..], "ipv6"),
        ("name", &[(IPV4, ""), (NAME, "")], "unknown"),
        ("bracket", &[("[2001:db8::9]", "")], "ipv6"),
        ("disabled", &[(IPV4, ""), (IPV6, "\toption disabled '1'\n")], "ipv4"),
        ("called", &[], "unknown"),
    ] {
        let answer = asked(&format!("peers-{name}"), &[("etc/config/network", &network(peers))]);
        assert_eq!(answer["tunnels"][0]["endpoint_family"], family, "{name}");
    }
}

#[test]
fn other_tunnels_and_no_wan() {
    let off = "config interface 'wg1'\n\toption proto 'wireguard'\n\toption disabled '1'\n";
    let lan = "config interface 'lan'\n\toption device 'br-lan'\n\toption proto 'static'\n";
    let files = [
        ("etc/config/network", &*format!("{lan}\n{off}")),
        ("sys/class/net/wgquick/uevent", "DEVTYPE=wireguard\nINTERFACE=wgquick\n"),
        ("sys/class/net/wgquick/mtu", "1420\n"),
        ("sys/class/net/eth0/uevent", "INTERFACE=eth0\n"),
    ];
    let answer = asked("others", &files);
    assert_eq!((&answer["wan"]["device"], &answer["wan"]["mtu"]), (&json!(null), &json!(1500)));
    assert_eq!((&answer["tunnels"][0]["name"], answer["tunnels"].as_array().unwrap().len()), (&json!("wgquick"), 1));
}

#[test]
fn a_tunnel_bound_to_another_wan_has_that_ones_numbers() {
    let network = format!(
        "{DHCP}\nconfig interface 'wan2'\n\toption device 'eth2'\n\toption proto 'pppoe'\n\n{WIREGUARD}\toption tunlink 'wan2'\n"
    );
    let answer = asked("tunlink", &[("etc/config/network", &network)]);
    assert_eq!(advised(&answer["tunnels"][0]), (1432, 1412, 1412, "lower"));
    assert!(answer["tunnels"][0]["why"].as_str().unwrap().contains("another WAN"), "{answer}");
}

#[test]
fn the_firewall_should_clamp() {
    let zone = "config zone\n\toption name 'vpn'\n\tlist network 'wg0'\n";
    let why = |name: &str, zone: &str| {
        let (_, tunnel) = tunnel(name, DHCP, Some(1420), IPV6, &[("etc/config/firewall", zone)]);
        tunnel["why"].as_str().unwrap().to_owned()
    };
    assert!(why("clamp-off", zone).contains("set mtu_fix '1'"));
    assert!(why("clamp-on", &format!("{zone}\toption mtu_fix '1'\n")).contains("clamps the MSS to it"));
}

#[test]
fn people_get_words() {
    let network = format!("{PPPOE}\n{WIREGUARD}");
    let text = run(&[], &written("people", &[("etc/config/network", &network)]));
    assert!(text.starts_with("WAN        pppoe-wan, packets up to 1492 bytes\n"), "{text}");
    assert!(text.contains("\nwg0        lower the MTU from 1420 to 1412\n"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let text = run(&[], &written("people-none", &[("etc/config/network", PPPOE)]));
    assert!(text.contains("WireGuard  no tunnel is configured here\n"), "{text}");
}
