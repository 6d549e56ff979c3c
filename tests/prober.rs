//! The prober on loopback. Needs the right to send pings; without it the tests say "skipped".
#![cfg(feature = "router")]

use sqm_autotune::line::{LineError, PROBE_TIMEOUT};
use sqm_autotune::router::prober::{Outcome, Probe, Prober, Reflector};
use sqm_autotune::router::socket::Via;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(30);
const HOLD_UP: Duration = Duration::from_millis(50);
const INTERVAL: Duration = Duration::from_millis(20);

async fn reflectors(names: &[&str]) -> Vec<Reflector> {
    let mut found = Vec::new();
    for name in names {
        found.push(Reflector::resolve(name).await.unwrap());
    }
    found
}

async fn start(names: &[&str]) -> Option<Prober> {
    let via = Via { device: Some("lo".into()), ..Via::default() };
    match Prober::start(&reflectors(names).await, &via, INTERVAL) {
        Ok(prober) => Some(prober),
        Err(LineError::Refused { problem, .. }) => {
            eprintln!("skipped: {problem}");
            None
        }
        Err(other) => panic!("{other}"),
    }
}

async fn next(prober: &mut Prober) -> Probe {
    tokio::time::timeout(LIMIT, prober.next()).await.expect("no probe came back").expect("the prober ended")
}

#[tokio::test]
async fn both_families_answer_in_turn() {
    let began = Instant::now();
    let Some(mut prober) = start(&["127.0.0.1", "::1", "127.0.0.2"]).await else { return };
    let mut order = Vec::new();
    let mut latest = began;
    for _ in 0..30 {
        let probe = next(&mut prober).await;
        let Outcome::Reply { rtt } = probe.outcome else { panic!("lost on loopback: {probe:?}") };
        assert!(rtt > Duration::ZERO && rtt <= probe.at - began, "{probe:?}");
        latest = latest.max(probe.at);
        order.push(probe.reflector);
    }
    assert!(latest <= Instant::now(), "no reply comes from the future");
    for reflector in 0..3 {
        assert_eq!(order.iter().filter(|other| **other == reflector).count(), 10, "{order:?}");
    }
}

/// An address that nobody on loopback has. The device keeps its packets there.
#[tokio::test]
async fn what_is_not_answered_is_lost_after_the_timeout_and_only_then() {
    let began = Instant::now();
    let Some(mut prober) = start(&["203.0.113.1", "127.0.0.1"]).await else { return };
    let mut replies = 0;
    let lost = loop {
        let probe = next(&mut prober).await;
        match (probe.reflector, probe.outcome) {
            (0, Outcome::Lost) => break probe,
            (1, Outcome::Reply { .. }) => replies += 1,
            _ => panic!("{probe:?}"),
        }
    };
    assert!(replies > 0, "one that is silent does not hold the other up");
    assert!(lost.at >= began + PROBE_TIMEOUT, "given up early");
}

/// Two probers see each other's replies on a raw socket and must not take them for their own.
#[tokio::test]
async fn probers_do_not_mix_their_replies_up() {
    let (Some(mut one), Some(mut other)) = (start(&["127.0.0.1"]).await, start(&["127.0.0.1"]).await) else { return };
    for _ in 0..20 {
        for prober in [&mut one, &mut other] {
            let probe = next(prober).await;
            assert!(matches!(probe.outcome, Outcome::Reply { .. }), "{probe:?}");
        }
    }
    // A reply counted twice would come without a wait for the next turn: so many more than were sent.
    let pending = std::iter::from_fn(|| one.try_next()).count();
    assert!(pending <= 20, "{pending}");
}

/// The runtime is held up for longer than any loopback round trip: the kernel's stamp must not see it.
#[tokio::test]
async fn a_busy_processor_is_not_delay() {
    let Some(mut prober) = start(&["127.0.0.1", "::1"]).await else { return };
    let mut fastest = Duration::MAX;
    for _ in 0..20 {
        // Not a wait for anything: this is the busy processor, between a request and the reading of its reply.
        std::thread::sleep(HOLD_UP);
        tokio::task::yield_now().await;
        while let Some(probe) = prober.try_next() {
            let Outcome::Reply { rtt } = probe.outcome else { panic!("{probe:?}") };
            fastest = fastest.min(rtt);
        }
    }
    assert!(fastest < HOLD_UP, "{fastest:?} is the hold-up, not the way");
}

#[tokio::test]
async fn a_name_that_cannot_be_resolved_is_refused() {
    // No resolver is asked: a label is at most 63 bytes long.
    let name = format!("{}.invalid", "n".repeat(64));
    let said = Reflector::resolve(&name).await.unwrap_err().to_string();
    assert!(said.contains(&name) && said.contains("cannot be resolved"), "{said}");
    assert_eq!(Reflector::resolve("[::1]").await.unwrap().address, std::net::Ipv6Addr::LOCALHOST);
}

#[tokio::test]
async fn a_device_that_does_not_exist_is_named() {
    let via = Via { device: Some("nosuchdev0".into()), ..Via::default() };
    let error = Prober::start(&reflectors(&["127.0.0.1"]).await, &via, INTERVAL).map(|_| ()).unwrap_err();
    if matches!(error, LineError::Refused { .. }) {
        return eprintln!("skipped: {error}");
    }
    assert!(error.to_string().contains("nosuchdev0"), "{error}");
}

#[tokio::test(flavor = "current_thread")]
async fn a_server_is_asked_by_handshakes() {
    let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let open = Reflector::by_handshake(server.local_addr().unwrap());
    let closed = {
        let gone = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        Reflector::by_handshake(gone.local_addr().unwrap())
    };
    let via = Via { device: None, ..Via::default() };
    let mut prober = Prober::start(&[open, closed], &via, INTERVAL).unwrap();
    let mut seen = [0, 0];
    while seen.iter().any(|count| *count < 3) {
        let probe = next(&mut prober).await;
        seen[probe.reflector] += 1;
        match probe.outcome {
            Outcome::Reply { rtt } => assert!(probe.reflector == 0 && !rtt.is_zero() && rtt < LIMIT, "{probe:?}"),
            Outcome::Lost => assert_eq!(probe.reflector, 1, "{probe:?}"),
        }
    }
}
