//! Does a recommendation hold? Loads the line with it for a minute, with another seed, and judges in the plainest way,
//! independently of the code that recommended it.

use sqm_autotune::line::{Accounting, Cake, Line, Load, Origin, Sample, Seen, Shaping, Step, Trial, Watch};
use sqm_autotune::sim::{Scenario, SimLine};
use sqm_autotune::units::{Direction, Rate};
use std::time::Duration;

const SETTLE: Duration = Duration::from_millis(1500);

/// The 95th percentile of the added delay at `rate`: each reply minus its reflector's own idle 95th percentile.
pub fn added_p95_ms(scenario: &Scenario, rate: Rate, accounting: Accounting, seed: u64, reflectors: &[usize]) -> f64 {
    let mut line = SimLine::new(scenario.clone(), seed);
    let idle = replies(&mut line, Shaping::Unshaped, 0, 20, reflectors);
    let cake = Cake::new(rate, accounting);
    let loaded = replies(&mut line, Shaping::Cake(cake), 4, 60, reflectors);
    let added: Vec<f64> = reflectors
        .iter()
        .flat_map(|r| {
            let own = |all: &[(usize, f64)]| all.iter().filter(|x| x.0 == *r).map(|x| x.1).collect::<Vec<_>>();
            let p95 = p95(own(&idle));
            own(&loaded).into_iter().map(move |rtt| rtt - p95)
        })
        .collect();
    p95(added)
}

fn replies(line: &mut SimLine, upload: Shaping, flows: u32, seconds: u64, reflectors: &[usize]) -> Vec<(usize, f64)> {
    let load = Load { direction: Direction::Upload, flows, mss: 1460, origin: Origin::Local };
    let trial = Trial {
        number: 1,
        step: Step::Verify,
        upload,
        download: Shaping::AsIs,
        loads: if flows == 0 { vec![] } else { vec![load] },
        reflectors: reflectors.to_vec(),
        // So slow that the probes themselves do not load the slowest line.
        probe_interval: Duration::from_secs(1),
        duration: SETTLE + Duration::from_secs(seconds),
    };
    let mut replies = Vec::new();
    line.run(&trial, &mut |sample: &Sample| {
        if let Seen::Reply { reflector, rtt_ms } = sample.seen
            && sample.at >= SETTLE
        {
            replies.push((reflector, rtt_ms));
        }
        Watch::Continue
    })
    .expect("the simulated line runs");
    replies
}

fn p95(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let position = (values.len() - 1) as f64 * 0.95;
    let (low, high) = (position.floor() as usize, position.ceil() as usize);
    values[low] + (values[high] - values[low]) * position.fract()
}

/// The judge itself can tell: far below what fits it finds little, above it much.
#[test]
fn the_judge_sees_both_kinds_of_rates() {
    let scenario = super::scenario("vdsl2-pppoe");
    let accounting = scenario.router.link.prior();
    let fits = scenario.fits(Direction::Upload, &accounting);
    let below = added_p95_ms(&scenario, fits.times(0.9), accounting, 77, &[0, 1, 2, 3]);
    let above = added_p95_ms(&scenario, fits.times(1.02), accounting, 77, &[0, 1, 2, 3]);
    assert!(below < 4.0, "{below}");
    assert!(above > 8.0, "{above}");
}
