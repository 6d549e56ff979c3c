//! Overhead and cells, found on lines whose truth is known.

use super::{SEEDS, scenario, side_by_side, upload_only};
use sqm_autotune::calibration::outcome::{Layer, Link, LinkSource};
use sqm_autotune::line::{Cells, LinkType};
use sqm_autotune::sim::Scenario;

/// The interval must cover the truth in at least this share of the seeds.
const COVERED: f64 = 0.90;

/// A steady line of so much overhead whose router knows nothing of it.
fn line(rate_kbit: u64, overhead: u32, cell: Cells) -> Scenario {
    let mut scenario = scenario("vdsl2-pppoe");
    scenario.name = format!("{overhead} bytes {cell:?}");
    scenario.router.link = LinkType::Unknown;
    scenario.router.sync_up_kbit = 0;
    scenario.upload.rate_kbit = rate_kbit;
    scenario.upload.overhead = overhead;
    scenario.upload.cell = cell;
    scenario.upload.buffer_ms = 180.0;
    scenario
}

fn links(scenario: &Scenario) -> Vec<Link> {
    side_by_side(&(1..=SEEDS).collect::<Vec<_>>(), |seed| upload_only(scenario, seed).link)
}

fn covered(links: &[Link], truth: i32) -> f64 {
    let covers = |link: &&Link| {
        link.overhead_low.is_some_and(|low| low <= truth) && link.overhead_high.is_some_and(|high| truth <= high)
    };
    links.iter().filter(covers).count() as f64 / links.len() as f64
}

fn said(links: &[Link]) -> Vec<String> {
    links
        .iter()
        .map(|l| format!("{:?} {:?} {:?}..{:?}", l.layer, l.overhead, l.overhead_low, l.overhead_high))
        .collect()
}

#[test]
fn frames_within_two_bytes() {
    for truth in [18, 22, 26, 34, 44] {
        let links = links(&line(20_000, truth as u32, Cells::None));
        assert!(
            links.iter().all(|l| l.source == LinkSource::Measured && l.layer == Layer::Ethernet),
            "{truth}: {:?}",
            said(&links)
        );
        let near = |l: &Link| l.overhead.is_some_and(|o| (o - truth).abs() <= 2);
        assert!(links.iter().all(near), "{truth}: {:?}", said(&links));
        assert!(covered(&links, truth) >= COVERED, "{truth}: {:?}", said(&links));
        // What is written is never less than what a packet costs.
        assert!(
            links.iter().all(|l| l.write_overhead >= truth || l.overhead_high < Some(truth)),
            "{truth}: {:?}",
            said(&links)
        );
    }
}

#[test]
fn cells_with_the_right_count() {
    for (truth, rate_kbit) in [(32, 1_200), (40, 1_200)] {
        let links = links(&line(rate_kbit, truth as u32, Cells::Atm));
        assert!(
            links.iter().all(|l| l.source == LinkSource::Measured && l.layer == Layer::Atm),
            "{truth}: {:?}",
            said(&links)
        );
        let cells = |overhead: i32, ip: u32| (ip + overhead as u32).div_ceil(48);
        let right = |l: &Link| l.overhead.is_some_and(|o| cells(o, 1500) == cells(truth, 1500));
        assert!(links.iter().all(right), "{truth}: {:?}", said(&links));
        // What is written counts no packet short: a full one, a bare acknowledgement, a voice packet.
        for ip in [1500, 40, 64] {
            let enough = |l: &Link| (0..=1).contains(&(cells(l.write_overhead, ip) as i32 - cells(truth, ip) as i32));
            assert!(links.iter().all(enough), "{truth}, {ip}: {links:?}");
        }
        assert!(covered(&links, truth) >= COVERED, "{truth}: {:?}", said(&links));
    }
}
