//! How the simulated line keeps to the seam.
#![cfg(feature = "sim")]

mod sim_support;

use sim_support::{cake, frames, idle, load, loaded, run, samples, scenario, seeded, shipped, summary};
use sqm_autotune::line::{Line, LineError, Load, Origin, Sample, Seen, Shaping, Trial, Watch};
use sqm_autotune::sim::SimLine;
use sqm_autotune::units::Direction::{Download, Upload};
use std::time::Duration;

#[test]
fn the_same_seed_repeats_every_sample_and_another_does_not() {
    let play = |name: &str, seed| {
        let mut line = seeded(name, seed);
        let unshaped = loaded(&mut line, Shaping::Unshaped, &[load(Upload, 4, 1460)], 3.0);
        let both = [load(Upload, 3, 536), load(Download, 3, 1460)];
        let shaped = loaded(&mut line, cake(10_000, frames(44)), &both, 3.0);
        [samples(&mut line, &unshaped), samples(&mut line, &shaped)].concat()
    };
    for name in ["vdsl2-pppoe", "docsis", "busy-home", "sick-reflectors", "lte"] {
        let first = play(name, 1);
        assert!(first.len() > 200);
        assert_eq!(first, play(name, 1), "{name}");
        assert_ne!(first, play(name, 2), "{name}");
    }
}

#[test]
fn samples_come_in_order_and_as_often_as_agreed() {
    let mut line = shipped("vdsl2-pppoe");
    let trial = loaded(&mut line, cake(17_100, frames(44)), &[load(Upload, 4, 1460)], 5.0);
    let all = samples(&mut line, &trial);
    assert!(all.windows(2).all(|pair| pair[0].at <= pair[1].at));
    assert!(all.iter().all(|sample| sample.at <= trial.duration));
    let count = |is: fn(&Seen) -> bool| all.iter().filter(|sample| is(&sample.seen)).count();
    assert_eq!(count(|seen| matches!(seen, Seen::Flows(_))), 50);
    assert_eq!(count(|seen| matches!(seen, Seen::Device { .. })), 50);
    assert_eq!(count(|seen| matches!(seen, Seen::Queue(_))), 50);
    assert_eq!(count(|seen| matches!(seen, Seen::Cpu { .. })), 25);
    assert_eq!(count(|seen| matches!(seen, Seen::Lost { .. })), 0);
    // 20 a second, less the one or two under way at the end.
    assert!((97..=100).contains(&count(|seen| matches!(seen, Seen::Reply { .. }))));
}

#[test]
fn counters_agree_with_each_other() {
    let mut line = shipped("vdsl2-pppoe");
    let trial = loaded(&mut line, cake(15_000, frames(44)), &[load(Upload, 4, 536)], 6.0);
    let all = samples(&mut line, &trial);
    let last = |pick: fn(&Seen) -> bool| {
        all.iter().rev().find(|sample| pick(&sample.seen)).map(|sample| sample.seen.clone()).expect("there is one")
    };
    let (Seen::Flows(flows), Seen::Queue(queue), Seen::Device { sent_bytes, received_bytes }) = (
        last(|seen| matches!(seen, Seen::Flows(_))),
        last(|seen| matches!(seen, Seen::Queue(_))),
        last(|seen| matches!(seen, Seen::Device { .. })),
    ) else {
        unreachable!("picked by their kind")
    };
    assert_eq!(flows.ip_bytes, flows.packets * 576);
    assert_eq!(flows.payload_bytes, flows.packets * 524);
    assert_eq!((flows.alive, flows.direction), (4, Upload));
    // All that was sent was delivered, dropped, or is still under way; probes are 84 bytes, 20 a second.
    assert_eq!(queue.sent_bytes, sent_bytes);
    let under_way = flows.sent_ip_bytes - flows.ip_bytes - 576 * queue.dropped_packets;
    assert!(under_way < 60_000, "{under_way} bytes");
    let others = sent_bytes + queue.backlog_bytes + 576 * queue.dropped_packets - flows.sent_ip_bytes;
    assert!((9_000..=10_200).contains(&others), "{others} bytes of probes");
    assert!(flows.retransmits <= queue.dropped_packets && queue.dropped_packets < flows.retransmits + 20);
    // An acknowledgement for every second packet.
    let acks = (received_bytes - 10_000) as f64 / 52.0 / flows.packets as f64;
    assert!((0.49..0.62).contains(&acks), "{acks} acknowledgements per packet");
    // CAKE was the narrow place: 15,000 kbit/s at 620 bytes per packet.
    let rate = ((queue.sent_packets - 120) as f64 * 620.0 + 120.0 * 128.0) * 8.0 / 6000.0;
    assert!((14_200.0..15_000.0).contains(&rate), "{rate} kbit/s");
    assert!(flows.sender_limited < 0.02 && flows.srtt_ms.is_some_and(|ms| (12.0..40.0).contains(&ms)));
}

#[test]
fn a_download_is_shaped_behind_its_bottleneck() {
    let mut line = shipped("busy-home");
    let bloated = loaded(&mut line, Shaping::Unshaped, &[load(Download, 4, 1460)], 4.0);
    let bloated = run(&mut line, &bloated);
    let trial = Trial {
        download: cake(55_000, frames(34)),
        ..loaded(&mut line, Shaping::Unshaped, &[load(Download, 4, 1460)], 4.0)
    };
    let all = samples(&mut line, &trial);
    let shaped = summary(&all, Duration::from_millis(1500));
    assert!(bloated.p50_ms > 30.0 && shaped.p50_ms < 18.0, "{} and {}", bloated.p50_ms, shaped.p50_ms);
    assert!((48_000.0..54_000.0).contains(&shaped.received_kbit), "{}", shaped.received_kbit);
    assert!(all.iter().all(|sample| match sample.seen {
        Seen::Queue(queue) => queue.direction == Download,
        Seen::Flows(flows) => flows.direction == Download && flows.sent_ip_bytes == 0,
        _ => true,
    }));
}

#[test]
fn enough_is_enough() {
    let mut line = shipped("fibre-pppoe");
    let trial = loaded(&mut line, Shaping::Unshaped, &[load(Upload, 4, 1460)], 60.0);
    let mut last = Duration::ZERO;
    line.run(&trial, &mut |sample: &Sample| {
        last = sample.at;
        if sample.at >= Duration::from_secs(2) { Watch::Enough } else { Watch::Continue }
    })
    .expect("it stops");
    assert!(last < Duration::from_millis(2100), "{last:?}");
    // And a pause, in which its queue drains.
    assert!((3.0..3.6).contains(&line.age_s()), "{}", line.age_s());
    let trial = idle(&mut line, 2.0);
    let quiet = run(&mut line, &trial);
    assert!(quiet.p95_ms < 11.0 && quiet.sent_kbit < 20.0, "{} ms, {} kbit/s", quiet.p95_ms, quiet.sent_kbit);
}

#[test]
fn shaping_stays_until_it_is_put_back() {
    let mut line = shipped("vdsl2-pppoe");
    let queues = |all: &[Sample]| all.iter().filter(|sample| matches!(sample.seen, Seen::Queue(_))).count();
    let trial = loaded(&mut line, cake(17_100, frames(44)), &[], 1.0);
    assert_eq!(queues(&samples(&mut line, &trial)), 10);
    let as_is = Trial { upload: Shaping::AsIs, download: Shaping::AsIs, ..idle(&mut line, 1.0) };
    let again = samples(&mut line, &as_is);
    assert_eq!(queues(&again), 10);
    let Some(Seen::Queue(queue)) =
        again.iter().map(|sample| &sample.seen).find(|seen| matches!(seen, Seen::Queue(_))).cloned()
    else {
        unreachable!("counted")
    };
    assert!(queue.sent_packets <= 3, "counters begin with the trial: {queue:?}");
    line.put_back().expect("once");
    line.put_back().expect("and twice");
    assert_eq!(queues(&samples(&mut line, &as_is)), 0);
}

#[test]
fn a_local_socket_is_pushed_back_by_its_own_queue() {
    let repeats = |origin| {
        let mut line = shipped("vdsl2-pppoe");
        let upload = Load { origin, ..load(Upload, 4, 1460) };
        let trial = loaded(&mut line, cake(17_100, frames(44)), &[upload], 10.0);
        let showed = run(&mut line, &trial);
        assert!((15_000.0..16_700.0).contains(&showed.ip_kbit), "{origin:?}: {}", showed.ip_kbit);
        showed.retransmits
    };
    let (local, forwarded) = (repeats(Origin::Local), repeats(Origin::Forwarded));
    assert!(local < 0.85 * forwarded && local > 0.1 * forwarded, "{local} local, {forwarded} forwarded");
}

#[test]
fn loss_on_the_path_is_repaired() {
    let mut truth = scenario("vdsl2-pppoe");
    truth.path.loss = 0.01;
    let mut line = SimLine::new(truth, 1);
    let trial = loaded(&mut line, Shaping::Unshaped, &[load(Upload, 4, 1460)], 10.0);
    let showed = run(&mut line, &trial);
    let share = showed.retransmits / (showed.packets_per_s * 10.0);
    assert!((0.007..0.02).contains(&share), "{share}");
    // A probe crosses the line twice.
    let lost = showed.lost.iter().sum::<usize>();
    assert!((0..=10).contains(&lost) && showed.replies.iter().sum::<usize>() > 150);
}

#[test]
fn a_reflector_that_is_not_there_is_an_error() {
    let mut line = shipped("vdsl2-pppoe");
    let trial = Trial { reflectors: vec![0, 4], ..idle(&mut line, 1.0) };
    let error = line.run(&trial, &mut |_| Watch::Continue).expect_err("there are four");
    assert_eq!(error, LineError::failed("probe the line", "it has no reflector number 4"));
}
