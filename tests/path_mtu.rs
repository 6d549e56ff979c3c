//! How large a packet gets through a real kernel's path: ours, a router that is narrower behind, and a reflector.
//!
//! Network namespaces; where these are not to be had, the test says so and passes; with `LAB=1` in the environment that
//! is a failure.
#![cfg(feature = "router")]

#[expect(dead_code, reason = "what others of these tests need")]
mod kernel_support;

use kernel_support::{Place, run, succeeds};
use sqm_autotune::line::LineError;
use sqm_autotune::router::largest_packet;

const REFLECTOR: &str = "10.9.0.1";

/// wan ── isp0 │ isp1 ── net0: what is behind the ISP's router has the MTU that the tests are about.
fn path(test: &str, wan: u32, behind: u32) -> Option<Place> {
    let names = [format!("{test}-isp"), format!("{test}-net")];
    let there = || names.iter().all(|name| succeeds(&format!("ip netns add {name}")));
    let place = Place::new(test, "root and network namespaces", there)?;
    let [isp, net] = &names;
    for line in [
        format!("ip link add wan type veth peer name isp0 netns {isp}"),
        format!("ip -n {isp} link add isp1 type veth peer name net0 netns {net}"),
        "ip addr add 10.1.0.2/24 dev wan".into(),
        format!("ip link set wan mtu {wan} up"),
        format!("ip -n {isp} addr add 10.1.0.1/24 dev isp0"),
        format!("ip -n {isp} link set isp0 up"),
        format!("ip -n {isp} addr add 10.9.0.254/24 dev isp1"),
        format!("ip -n {isp} link set isp1 mtu {behind} up"),
        format!("ip -n {net} addr add {REFLECTOR}/24 dev net0"),
        format!("ip -n {net} link set net0 mtu {behind} up"),
        format!("ip -n {net} route add default via 10.9.0.254"),
        format!("ip netns exec {isp} sysctl -qw net.ipv4.ip_forward=1"),
        "ip route add default via 10.1.0.1".into(),
    ] {
        run(&line);
    }
    Some(place)
}

fn gone(test: &str) {
    for name in ["isp", "net"] {
        run(&format!("ip netns del {test}-{name}"));
    }
}

fn largest(most: u32) -> Result<Option<u32>, LineError> {
    largest_packet(&[REFLECTOR.into()], "wan", most)
}

#[test]
fn what_the_path_carries_is_found_to_the_byte() {
    let Some(_place) = path("mtu-narrow", 1500, 1437) else { return };
    let (found, asked_for_less) = (largest(1500), largest(1400));
    gone("mtu-narrow");
    assert_eq!((found, asked_for_less), (Ok(Some(1437)), Ok(Some(1400))));
}

#[test]
fn a_device_that_takes_less_is_no_error() {
    let Some(_place) = path("mtu-device", 1380, 1500) else { return };
    let found = largest(1500);
    gone("mtu-device");
    assert_eq!(found, Ok(Some(1380)));
}

#[test]
fn where_nobody_answers_nothing_is_claimed() {
    let Some(_place) = path("mtu-silent", 1500, 1500) else { return };
    run("ip netns exec mtu-silent-net sysctl -qw net.ipv4.icmp_echo_ignore_all=1");
    let found = largest(1500);
    gone("mtu-silent");
    assert_eq!(found, Ok(None));
}
