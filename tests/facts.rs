//! `sync` and `link` for routers in directories (`tests/fixtures/routers`), as a script meets them.

use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn run(line: &str, router: &str) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sqm-autotune"));
    command.args(line.split_whitespace()).arg("--root").arg(fixture("routers").join(router));
    let Output { status, stdout, stderr } = command.output().expect("start the program");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (status.code().expect("an exit code"), text(stdout), text(stderr))
}

fn asked(line: &str, router: &str) -> Value {
    let (code, stdout, stderr) = run(&format!("{line} --json"), router);
    assert_eq!((code, stderr.as_str()), (0, ""), "{line} of {router}");
    serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{line} of {router}: {error}: {stdout}"))
}

/// Interface and device, type, layer, overhead and MPU, confidence, evidence.
type Link<'a> = ((&'a str, &'a str), &'a str, &'a str, (i32, u32), &'a str, &'a [&'a str]);

fn link_is(command: &str, router: &str, link: Link) {
    let ((interface, device), kind, layer, (overhead, mpu), confidence, evidence) = link;
    let expected = json!({
        "format": 1, "interface": interface, "device": device, "type": kind, "layer": layer, "overhead": overhead,
        "mpu": mpu, "confidence": confidence, "evidence": evidence,
    });
    assert_eq!(asked(command, router), expected, "{router}");
}

fn synced(source: &str, state: &str, upload: Option<u64>, download: Option<u64>, reason: Option<&str>) -> Value {
    json!({
        "format": 1, "source": source, "state": state, "upload_kbit": upload, "download_kbit": download, "doubts": [],
        "reason": reason,
    })
}

fn showtime(upload: u64, download: u64) -> Value {
    synced("dsl", "showtime", Some(upload), Some(download), None)
}

fn no_sync(source: &str, state: &str, reason: &str) -> Value {
    synced(source, state, None, None, Some(reason))
}

const PPPOE_WAN: (&str, &str) = ("wan", "pppoe-wan");
const VDSL2: &str = "the modem is up as G.993.2 (VDSL2, Profile 17a): VDSL, so PTM frames";
const LEFT_OVER: &str = "an atm-bridge section is there too, as on many PTM lines: it decides nothing";
const PORT: &str = "overhead 44, MPU 84: what is safe behind an Ethernet port";
const NOTHING_KNOWN: &str = "overhead 44, MPU 84: what is safe where nothing is known";
const BEHIND_PPPOE: &str = "the modem or fibre terminal behind it cannot be seen from here";
const BEHIND_DHCP: &str = "whether cable, fibre or another router is behind it cannot be seen from here";
const NO_MODEM: &str = "no DSL modem in this router; an external one has no common language: set sync_upload_kbit and \
                        sync_download_kbit, or the measured capacity is used";
const NO_ANSWER: &str = "the DSL modem's driver does not answer on ubus (object dsl): set sync_upload_kbit and \
                         sync_download_kbit, or the measured capacity is used";

#[test]
fn vdsl2_with_a_vlan_and_pppoe() {
    let evidence = ["wan speaks pppoe over dsl0.101", VDSL2, LEFT_OVER, "overhead 34: PPPoE on PTM 30 + VLAN 101 4"];
    link_is("link", "vdsl2-vlan101", (PPPOE_WAN, "pppoe-vdsl2", "ptm", (34, 0), "sure", &evidence));
    // 17,999,999 bit/s; the attainable download is below the actual one.
    assert_eq!(asked("sync", "vdsl2-vlan101"), showtime(17_999, 66_999));
}

#[test]
fn a_vlan_under_a_name_of_its_own() {
    let evidence = [
        "internet speaks pppoe over telekom",
        "the modem is up as G.993.2 (VDSL2, Profile 35b, with down- and upstream vectoring): VDSL, so PTM frames",
        "overhead 34: PPPoE on PTM 30 + VLAN 7 4",
    ];
    let wan = ("internet", "pppoe-internet");
    link_is("link", "vdsl2-vlan7-named", (wan, "pppoe-vdsl2", "ptm", (34, 0), "sure", &evidence));
    assert_eq!(asked("sync", "vdsl2-vlan7-named"), showtime(46_719, 292_110));
}

#[test]
fn vdsl2_without_pppoe() {
    let evidence = ["wan speaks dhcp over dsl0.101", VDSL2, "overhead 26: Ethernet on PTM 22 + VLAN 101 4"];
    link_is("link", "vdsl2-dhcp", (("wan", "dsl0.101"), "bridged-vdsl2", "ptm", (26, 0), "sure", &evidence));
    assert_eq!(asked("sync", "vdsl2-dhcp"), showtime(9999, 39_998));
}

#[test]
fn adsl_in_cells() {
    let evidence = [
        "wan speaks pppoe over dsl0",
        "the modem is up as G.992.5 (ADSL2+): ADSL, so ATM cells",
        "overhead 40: PPPoE on ATM 40 (LLC)",
    ];
    link_is("link", "adsl-llc-pppoe", (PPPOE_WAN, "pppoe-atm", "atm", (40, 0), "sure", &evidence));
    assert_eq!(asked("sync", "adsl-llc-pppoe"), showtime(1021, 17_530));

    let evidence = [
        "wan speaks pppoa over pppoa-wan",
        "the protocol is pppoa, which exists on ATM only",
        "overhead 10: PPPoA on ATM 10 (VC multiplexing)",
    ];
    link_is("link", "pppoa-vcmux", (("wan", "pppoa-wan"), "pppoa", "atm", (10, 0), "sure", &evidence));
    assert_eq!(asked("sync", "pppoa-vcmux"), no_sync("none", "unknown", NO_ANSWER));

    let evidence = ["wan speaks static over nas0", "nas0 is a name for ATM", "overhead 16: IP on ATM 16 (LLC)"];
    link_is("link", "ipoa-llc", (("wan", "nas0"), "ipoa", "atm", (16, 0), "likely", &evidence));
}

#[test]
fn another_driver_with_kbit_and_device_names_of_its_own() {
    let evidence = [
        "wan speaks pppoe over lan0.2000.835",
        "the modem is up as VDSL2: VDSL, so PTM frames",
        "no other WAN than that on lan0 can be on this router's modem",
        "overhead 38: PPPoE on PTM 30 + VLAN 835 and 2000 8",
    ];
    link_is("link", "other-driver-kbit", (PPPOE_WAN, "pppoe-vdsl2", "ptm", (38, 0), "likely", &evidence));
    let mut expected = showtime(31_000, 109_344);
    let text = "the modem's driver does not say its unit: the numbers only make sense as kbit/s";
    expected["doubts"] = json!([{ "code": "unit-guessed", "text": text }]);
    assert_eq!(asked("sync", "other-driver-kbit"), expected);

    let evidence = [
        "wan speaks pppoe over lan0.835",
        "the modem is up as G.993.2: VDSL, so PTM frames",
        "no other WAN than that on lan0 can be on this router's modem",
        "overhead 34: PPPoE on PTM 30 + VLAN 835 4",
        "not the only WAN: tv (lan0.836) can be chosen with --interface",
    ];
    link_is("link", "two-vlans-one-modem", (PPPOE_WAN, "pppoe-vdsl2", "ptm", (34, 0), "likely", &evidence));
    let one = synced("dsl", "showtime", Some(31_000), None, Some("the modem reports no download rate"));
    assert_eq!(asked("sync", "two-vlans-one-modem"), one);
}

#[test]
fn without_showtime_there_are_no_rates() {
    let evidence = [
        "wan speaks pppoe over dsl0.101",
        "the configuration says xfer_mode ptm",
        "overhead 34: PPPoE on PTM 30 + VLAN 101 4",
    ];
    for (router, state, why) in [
        ("training", "training", "the modem is training (Full init)"),
        // It still has the rates of the last connection.
        ("down", "down", "the modem has no connection (Idle)"),
        ("empty-reply", "unknown", "the modem does not say whether it is connected"),
    ] {
        assert_eq!(asked("sync", router), no_sync("dsl", state, why), "{router}");
        link_is("link", router, (PPPOE_WAN, "pppoe-vdsl2", "ptm", (34, 0), "likely", &evidence));
    }
}

#[test]
fn what_cannot_be_read_is_told() {
    let config = "no program on the router accepts etc/config/network: EOF with unterminated ' at line 2";
    let mut expected = no_sync(
        "dsl",
        "unknown",
        "cannot ask `ubus call dsl metrics`: no JSON, EOF while parsing a value at line 1 column 10",
    );
    expected["doubts"] = json!([{ "code": "unreadable", "text": config }]);
    assert_eq!(asked("sync", "broken-replies"), expected);
    let expected = json!({
        "format": 1, "interface": null, "device": null, "type": "unknown", "layer": "unknown", "overhead": 44, "mpu": 84,
        "confidence": "unknown", "evidence": ["no WAN is known here", NOTHING_KNOWN, config],
    });
    assert_eq!(asked("link", "broken-replies"), expected);
    let (code, stdout, stderr) = run("sync", "no-such-router");
    assert_eq!((code, stdout.as_str()), (2, ""));
    assert!(stderr.starts_with("sqm-autotune: --root: cannot read ") && stderr.lines().count() == 1, "{stderr}");
}

#[test]
fn a_modem_of_which_nobody_says_what_it_is_for() {
    let expected = json!({
        "format": 1, "interface": null, "device": null, "type": "pppoe-vdsl2", "layer": "ptm", "overhead": 30, "mpu": 0,
        "confidence": "likely",
        "evidence": ["no WAN is known here", VDSL2, "PPPoE is assumed", "overhead 30: PPPoE on PTM 30"],
    });
    assert_eq!(asked("link", "modem-and-nothing-else"), expected);
    assert_eq!(asked("sync", "modem-and-nothing-else"), showtime(19_999, 79_999));
}

#[test]
fn behind_an_ethernet_port_the_router_sees_nothing() {
    let evidence = ["wan speaks PPPoE through the Ethernet device eth0.7", BEHIND_PPPOE, PORT];
    link_is("link", "external-modem", (PPPOE_WAN, "pppoe", "ethernet", (44, 84), "likely", &evidence));
    assert_eq!(asked("sync", "external-modem"), synced("user", "unknown", Some(18_000), Some(67_000), None));

    let evidence = ["wan speaks PPPoE through the Ethernet device wan", BEHIND_PPPOE, PORT];
    link_is("link", "fibre-pppoe", (PPPOE_WAN, "pppoe", "ethernet", (44, 84), "likely", &evidence));
    assert_eq!(asked("sync", "fibre-pppoe"), no_sync("none", "unknown", NO_MODEM));

    let evidence = ["wan speaks dhcp through the Ethernet device wan", BEHIND_DHCP, PORT];
    link_is("link", "dhcp-wan", (("wan", "wan"), "ethernet", "ethernet", (44, 84), "likely", &evidence));
    assert_eq!(asked("sync", "dhcp-wan"), no_sync("none", "unknown", NO_MODEM));
}

#[test]
fn the_user_may_know_better() {
    let evidence = ["link docsis is set in /etc/config/sqm-autotune", "overhead 18: DOCSIS 18"];
    link_is("link", "docsis", (("wan", "wan"), "docsis", "ethernet", (18, 64), "sure", &evidence));
    let not_run = "sync_command is not run for a directory: it belongs to a router";
    assert_eq!(asked("sync", "external-modem-command"), no_sync("command", "unknown", not_run));
    assert!(!Path::new("it-ran").exists(), "a command from a directory was run");
}

#[test]
fn a_queue_belongs_below_a_tunnel() {
    let below = "the default route goes into the tunnel ds-wan6_4; the queue belongs on pppoe-wan below it";
    let evidence = ["wan speaks pppoe over dsl0.7", VDSL2, "overhead 34: PPPoE on PTM 30 + VLAN 7 4", below];
    link_is("link", "dslite-over-pppoe", (PPPOE_WAN, "pppoe-vdsl2", "ptm", (34, 0), "sure", &evidence));

    let below = "the default route goes into the tunnel map-wan6_4; the queue belongs on wan below it";
    let evidence = ["wan6 speaks dhcpv6 through the Ethernet device wan", BEHIND_DHCP, PORT, below];
    link_is("link", "map-over-ipoe", (("wan6", "wan"), "ethernet", "ethernet", (44, 84), "likely", &evidence));

    let below = "the default route goes into the tunnel warp; the queue belongs on pppoe-wan below it";
    let evidence = ["wan speaks pppoe over dsl0.101", VDSL2, "overhead 34: PPPoE on PTM 30 + VLAN 101 4", below];
    link_is("link", "vpn-default-route", (PPPOE_WAN, "pppoe-vdsl2", "ptm", (34, 0), "sure", &evidence));
    assert_eq!(asked("sync", "vpn-default-route"), showtime(17_999, 66_999));
}

#[test]
fn an_atm_bridge_section_alone_decides_only_where_nothing_else_does() {
    let pppoe = "wan speaks pppoe over dsl0";
    let evidence = [pppoe, "the configuration says xfer_mode ptm", LEFT_OVER, "overhead 30: PPPoE on PTM 30"];
    link_is("link", "atm-bridge-on-ptm", (PPPOE_WAN, "pppoe-vdsl2", "ptm", (30, 0), "likely", &evidence));

    let bridge = "an atm-bridge section, and nothing about dsl0 that speaks for PTM";
    let evidence = [pppoe, bridge, "overhead 40: PPPoE on ATM 40 (LLC)"];
    link_is("link", "atm-bridge-without-mode", (PPPOE_WAN, "pppoe-atm", "atm", (40, 0), "likely", &evidence));
}

#[test]
fn an_atm_bridge_section_beside_a_vlan_is_for_the_live_mode_to_decide() {
    let pppoe = "wan speaks pppoe over dsl0.7";
    let evidence = [
        pppoe,
        "VLAN 7 on dsl0 speaks for PTM",
        "an atm-bridge section speaks for ATM; the modem's live mode would decide",
        NOTHING_KNOWN,
    ];
    link_is("link", "atm-bridge-and-vlan", (PPPOE_WAN, "unknown", "unknown", (44, 84), "unknown", &evidence));

    let evidence = [pppoe, VDSL2, LEFT_OVER, "overhead 34: PPPoE on PTM 30 + VLAN 7 4"];
    link_is("link", "atm-bridge-and-vlan-live", (PPPOE_WAN, "pppoe-vdsl2", "ptm", (34, 0), "sure", &evidence));

    let evidence = [
        pppoe,
        "the modem is up as G.992.5 (ADSL2+): ADSL, so ATM cells",
        "overhead 44: PPPoE on ATM 40 (LLC) + VLAN 7 4",
    ];
    link_is("link", "atm-bridge-and-vlan-adsl", (PPPOE_WAN, "pppoe-atm", "atm", (44, 0), "sure", &evidence));
}

#[test]
fn each_of_three_wans_can_be_chosen() {
    let first = [
        "wan speaks dhcp through the Ethernet device eth0.2",
        BEHIND_DHCP,
        PORT,
        "not the only WAN: wan2 (br-wan2), wan3 (eth0.4) can be chosen with --interface",
    ];
    link_is("link", "three-wans", (("wan", "eth0.2"), "ethernet", "ethernet", (44, 84), "likely", &first));
    // The bridge and its port are one WAN.
    let second = [
        "wan2 speaks dhcp through the Ethernet device br-wan2",
        BEHIND_DHCP,
        PORT,
        "not the only WAN: wan (eth0.2), wan3 (eth0.4) can be chosen with --interface",
    ];
    for command in ["link --interface wan2", "link --device br-wan2", "link --device eth0.3"] {
        link_is(command, "three-wans", (("wan2", "br-wan2"), "ethernet", "ethernet", (44, 84), "likely", &second));
    }
    let (code, stdout, stderr) = run("link --device eth0.1 --json", "three-wans");
    assert_eq!((code, stdout.as_str()), (2, ""));
    let known = "there is no WAN \"eth0.1\": known are wan (eth0.2), wan2 (br-wan2), wan3 (eth0.4)";
    assert_eq!(stderr, format!("sqm-autotune: {known}\n"));
}

#[test]
fn a_mobile_line_has_no_sync_and_no_overhead_to_know() {
    let no_sync = no_sync(
        "none",
        "unknown",
        "a mobile line has no sync rate: set sync_upload_kbit and sync_download_kbit, or the measured capacity is used",
    );
    let evidence = ["wan speaks qmi over wwan0: a mobile network", NOTHING_KNOWN];
    link_is("link", "lte-qmi", (("wan", "wwan0"), "lte", "unknown", (44, 84), "likely", &evidence));
    assert_eq!(asked("sync", "lte-qmi"), no_sync);
    for (protocol, device) in [("mbim", "wwan0"), ("ncm", "wwan0"), ("modemmanager", "wwan0"), ("3g", "3g-mobile")] {
        let router = format!("lte-{protocol}");
        let said = format!("mobile speaks {protocol} over {device}: a mobile network");
        let link = (("mobile", device), "lte", "unknown", (44, 84), "likely", &[said.as_str(), NOTHING_KNOWN][..]);
        link_is("link", &router, link);
        assert_eq!(asked("sync", &router), no_sync);
    }
}

#[test]
fn the_modem_belongs_to_the_wan_that_is_on_it() {
    assert_eq!(asked("sync", "dsl-with-lte-backup"), showtime(17_999, 66_999));
    let why = "mobile (wwan0) does not go over this router's modem";
    assert_eq!(asked("sync --interface mobile", "dsl-with-lte-backup"), no_sync("none", "unknown", why));

    let why = "wan (wan) does not go over this router's modem";
    assert_eq!(asked("sync", "fibre-beside-dsl"), no_sync("none", "unknown", why));
    assert_eq!(asked("sync --device dsl0.101", "fibre-beside-dsl"), showtime(17_999, 66_999));
    assert_eq!(asked("link", "fibre-beside-dsl")["type"], "ethernet");
    assert_eq!(asked("link --interface old", "fibre-beside-dsl")["type"], "pppoe-vdsl2");
}

#[test]
fn a_lan_bridge_is_no_wan() {
    let link = asked("link", "dumb-access-point");
    assert_eq!((&link["interface"], &link["device"], &link["type"]), (&json!(null), &json!(null), &json!("unknown")));
}

#[test]
fn people_get_words() {
    let (code, stdout, _) = run("sync", "vdsl2-vlan101");
    assert_eq!(code, 0);
    assert!(stdout.contains("17,999 kbit/s") && stdout.contains("an upper bound"), "{stdout}");
    let (_, stdout, _) = run("link", "vdsl2-vlan101");
    assert!(stdout.contains("VDSL2 with PPPoE\n") && stdout.contains("34 bytes a packet"), "{stdout}");
    assert!(stdout.lines().all(|line| line.chars().count() <= 80), "{stdout}");
}
