//! The same load from three places: a client of the LAN, the forwarder's host, the router itself. Prints what TCP and the
//! queue made of each, as JSON, one line a load. It judges nothing: that is for `tests/lab/run forwarded`, which starts
//! it in the lab's router.
#![cfg(feature = "router")]

use sqm_autotune::line::{self, Flows, Origin, Queue, Seen};
use sqm_autotune::router::counters::Counters;
use sqm_autotune::router::device;
use sqm_autotune::router::forwarder::{Forwarder, Namespace};
use sqm_autotune::router::journal::Journal;
use sqm_autotune::router::load::Load;
use sqm_autotune::router::netlink::Socket;
use sqm_autotune::router::socket::Via;
use sqm_autotune::router::target::{Choice, Server};
use sqm_autotune::router::tls::Trust;
use sqm_autotune::units::Direction;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Interleaved, so that nothing that drifts is taken for a difference.
const ROUNDS: u32 = 2;
const SETTLE: Duration = Duration::from_secs(2);
const MEASURE: Duration = Duration::from_secs(6);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// With one flow, local TCP keeps so little in the queue that CAKE never drops; with many there is enough of it.
const FLOWS: [u32; 2] = [1, 4];

#[test]
fn three_origins() {
    let (Ok(server), Ok(client)) = (std::env::var("LAB_SERVER"), std::env::var("LAB_CLIENT")) else {
        println!("skipped: tests/lab/run forwarded starts it");
        return;
    };
    let directory = std::env::temp_dir().join("sqm-autotune-compare");
    let wan = device::by_name(&mut Socket::open().unwrap(), "wan").unwrap();
    let mut counters = Counters::open(&wan, &[(Direction::Upload, &wan)]).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let local = Via { device: Some("wan".into()), ..Via::default() };
    let client = Namespace::from(OwnedFd::from(File::open(client).unwrap()));
    let client = Via { space: Some(client), ..Via::default() };
    runtime.block_on(async {
        let choice = Choice::from_args(Some(&server), None, None).unwrap();
        let address = server.trim_start_matches("http://").parse().unwrap();
        let server = Server::resolve(&choice, &local, &Trust::default()).await.unwrap();
        let mut forwarder = Forwarder::open(&wan, &Journal::open(&directory).unwrap()).unwrap();
        forwarder.reach(address).await.unwrap();
        let (ours, rounds) = (forwarder.via(), 0..ROUNDS);
        for flows in rounds.flat_map(|_| FLOWS) {
            for (origin, via) in [("client", &client), ("forwarded", &ours), ("local", &local)] {
                println!("\n{}", loaded(origin, flows, &server, via, &mut counters).await);
            }
        }
        forwarder.undisturbed().unwrap();
    });
    let _ = std::fs::remove_dir_all(directory);
}

async fn loaded(origin: &str, flows: u32, server: &Server, via: &Via, counters: &mut Counters) -> serde_json::Value {
    // What the load before has left in the queues is gone.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let plan = line::Load { direction: Direction::Upload, flows, mss: 1460, origin: Origin::Local };
    let mut load = Load::start(&plan, server, via).unwrap();
    tokio::time::sleep(SETTLE).await;
    counters.start().unwrap();
    let (began, before) = (Instant::now(), load.flows());
    let (mut delays, mut trips, mut newest) = (Vec::new(), Vec::new(), None);
    while began.elapsed() < MEASURE {
        tokio::time::sleep(LOOK_EVERY).await;
        let queue = queue(counters);
        delays.push(queue.avg_delay_ms);
        trips.extend(load.flows().srtt_ms);
        newest = Some(queue);
    }
    let seconds = began.elapsed().as_secs_f64();
    let after = load.flows();
    assert_eq!((after.alive, load.trouble()), (flows, None));
    let over = |what: fn(&Flows) -> u64| (what(&after) - what(&before)) as f64;
    serde_json::json!({
        "origin": origin,
        "flows": flows,
        "retransmits": over(|flows| flows.retransmits),
        "retransmits_from_the_start": after.retransmits,
        "queue_delay_ms": mean(&delays),
        "goodput_kbit": over(|flows| flows.payload_bytes) * 8.0 / 1000.0 / seconds,
        "drops": newest.map_or(0, |queue| queue.dropped_packets),
        "srtt_ms": mean(&trips),
    })
}

fn queue(counters: &mut Counters) -> Queue {
    let seen = counters.read().unwrap();
    let queue = seen.into_iter().find_map(|(_, seen)| if let Seen::Queue(queue) = seen { Some(queue) } else { None });
    queue.expect("there is CAKE on wan")
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}
