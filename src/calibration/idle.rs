//! The idle line: what each reflector's replies look like without load, and which reflectors are worth asking.

use super::stats::{median, quantile};
use crate::line::{Sample, Seen};
use std::time::Duration;

/// A reflector that loses more than this of its idle probes is left out (facts G).
const MAX_LOSS: f64 = 0.10;
/// One whose replies spread (p95 − p5) this much more than the calmest one's is left out (facts G).
const MAX_EXTRA_SPREAD_MS: f64 = 10.0;
/// One this much slower than the fastest is left out (facts G).
const MAX_EXTRA_DELAY_MS: f64 = 40.0;
/// Fewer idle replies than this from a reflector are no profile.
const MIN_REPLIES: usize = 5;

/// The idle line as its good reflectors see it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Idle {
    /// Indexed like the line's reflectors; `None`: left out.
    reflectors: Vec<Option<Profile>>,
    /// How far an idle reply's delay climbs above its reflector's median: the 95th percentile.
    pub noise_ms: f64,
    /// Round-trip times of the good reflectors together.
    pub p50_ms: f64,
    pub p95_ms: f64,
    /// Who is asked by TCP beside them, if it answers.
    witness: Option<Witness>,
}

/// The second witness on the idle line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Witness {
    pub reflector: usize,
    pub profile: Profile,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Profile {
    pub p50_ms: f64,
    pub p95_ms: f64,
}

/// Why a reflector was left out.
#[derive(Clone, Debug, PartialEq)]
pub struct LeftOut {
    pub reflector: usize,
    pub why: String,
}

impl Idle {
    /// Judges the reflectors by what they answered during an idle trial of `duration` with one probe each
    /// per `interval`. Where no ping is answered, `witness` stands for all. `None` where that is silent too.
    pub fn judge(
        samples: &[Sample],
        count: usize,
        witness: Option<usize>,
        duration: Duration,
        interval: Duration,
    ) -> (Option<Self>, Vec<LeftOut>) {
        let replies: Vec<Vec<f64>> = (0..count).map(|r| replies_of(samples, r)).collect();
        // All are asked equally often; less than planned where the router itself stood still for a moment.
        let planned = (duration.as_secs_f64() / interval.as_secs_f64()).max(1.0);
        let ended = |r: usize| replies[r].len() + lost_of(samples, r);
        let asked = (0..count).map(ended).max().map_or(planned, |most| planned.min(most.max(1) as f64));
        let usable = |rtts: &Vec<f64>| rtts.len() >= MIN_REPLIES;
        let pinged = || replies.iter().enumerate().filter(|(r, _)| Some(*r) != witness).map(|(_, rtts)| rtts);
        let calmest = pinged().filter(|r| usable(r)).map(|r| spread(r)).fold(f64::INFINITY, f64::min);
        let fastest = pinged().filter(|r| usable(r)).filter_map(|r| median(r)).fold(f64::INFINITY, f64::min);

        let mut left_out = Vec::new();
        let mut profiles = Vec::new();
        for (reflector, rtts) in replies.iter().enumerate() {
            // The last probe may still have been under way when the trial ended.
            let lost = 1.0 - (rtts.len() as f64 + 1.0).min(asked) / asked;
            let slower = median(rtts).map_or(0.0, |p50| p50 - fastest);
            let why = if rtts.is_empty() {
                Some("does not answer".to_string())
            } else if lost > MAX_LOSS || !usable(rtts) {
                Some(format!("loses {:.0} % of the probes on the idle line", lost * 100.0))
            } else if Some(reflector) == witness {
                None
            } else if spread(rtts) > calmest + MAX_EXTRA_SPREAD_MS {
                Some(format!("spreads its replies over {:.0} ms on the idle line", spread(rtts)))
            } else if slower > MAX_EXTRA_DELAY_MS {
                Some(format!("is {slower:.0} ms farther away than the nearest"))
            } else {
                None
            };
            profiles.push(match why {
                Some(why) => {
                    left_out.push(LeftOut { reflector, why });
                    None
                }
                None => Some(Profile {
                    p50_ms: quantile(rtts, 0.5).unwrap_or_default(),
                    p95_ms: quantile(rtts, 0.95).unwrap_or_default(),
                }),
            });
        }
        let witness = witness.and_then(|reflector| {
            let profile = profiles[reflector]?;
            Some(Witness { reflector, profile })
        });
        let alone = witness.filter(|w| profiles.iter().flatten().count() == 1 && profiles[w.reflector].is_some());
        if let (Some(witness), None) = (witness, alone) {
            profiles[witness.reflector] = None;
        }
        let good = |r: &usize| profiles[*r].is_some();
        let pooled: Vec<f64> = (0..count).filter(good).flat_map(|r| replies[r].clone()).collect();
        if pooled.is_empty() {
            return (None, left_out);
        }
        let climbs: Vec<f64> = (0..count)
            .filter_map(|r| profiles[r].map(|p| (r, p)))
            .flat_map(|(r, profile)| replies[r].iter().map(move |rtt| rtt - profile.p50_ms))
            .collect();
        let idle = Self {
            noise_ms: quantile(&climbs, 0.95).unwrap_or_default().max(0.0),
            p50_ms: quantile(&pooled, 0.5).unwrap_or_default(),
            p95_ms: quantile(&pooled, 0.95).unwrap_or_default(),
            reflectors: profiles,
            witness: witness.filter(|_| alone.is_none()),
        };
        (Some(idle), left_out)
    }

    pub fn profile(&self, reflector: usize) -> Option<Profile> {
        self.reflectors.get(reflector).copied().flatten()
    }

    /// The reflectors to ask from now on.
    pub fn good(&self) -> Vec<usize> {
        (0..self.reflectors.len()).filter(|r| self.reflectors[*r].is_some()).collect()
    }

    /// Who may contradict the pings.
    pub fn witness(&self) -> Option<Witness> {
        self.witness
    }

    /// The pings do not tell what other packets meet: from now on the witness stands for all.
    pub fn hear_only_the_witness(&mut self) {
        let Some(Witness { reflector, profile }) = self.witness.take() else { return };
        self.reflectors.fill(None);
        self.reflectors[reflector] = Some(profile);
        self.noise_ms = profile.p95_ms - profile.p50_ms;
        (self.p50_ms, self.p95_ms) = (profile.p50_ms, profile.p95_ms);
    }

    /// Leaves a reflector out that turned bad later, unless it is the last one.
    pub fn quarantine(&mut self, reflector: usize) -> bool {
        let worth_it = self.profile(reflector).is_some() && self.good().len() > 1;
        if worth_it {
            self.reflectors[reflector] = None;
        }
        worth_it
    }
}

fn replies_of(samples: &[Sample], wanted: usize) -> Vec<f64> {
    samples
        .iter()
        .filter_map(|sample| match sample.seen {
            Seen::Reply { reflector, rtt_ms } if reflector == wanted => Some(rtt_ms),
            _ => None,
        })
        .collect()
}

fn lost_of(samples: &[Sample], wanted: usize) -> usize {
    samples.iter().filter(|sample| matches!(sample.seen, Seen::Lost { reflector } if reflector == wanted)).count()
}

fn spread(rtts: &[f64]) -> f64 {
    quantile(rtts, 0.95).unwrap_or_default() - quantile(rtts, 0.05).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(200);

    /// `rtt(reflector, k)` of the k-th probe, `None` where it is lost.
    fn judge(count: usize, rtt: impl Fn(usize, usize) -> Option<f64>) -> (Option<Idle>, Vec<LeftOut>) {
        let mut samples = Vec::new();
        for k in 0..25 {
            for reflector in 0..count {
                if let Some(rtt_ms) = rtt(reflector, k) {
                    samples.push(Sample { at: INTERVAL * k as u32, seen: Seen::Reply { reflector, rtt_ms } });
                }
            }
        }
        Idle::judge(&samples, count, None, INTERVAL * 25, INTERVAL)
    }

    #[test]
    fn four_healthy_ones_are_all_kept() {
        let (idle, left_out) = judge(4, |r, k| Some(12.0 + r as f64 + (k % 5) as f64 * 0.3));
        let idle = idle.unwrap();
        assert_eq!((idle.good(), left_out), (vec![0, 1, 2, 3], vec![]));
        assert!((idle.noise_ms - 0.6).abs() < 0.01, "{}", idle.noise_ms);
    }

    #[test]
    fn the_lossy_the_jumpy_the_far_and_the_silent_are_left_out() {
        let (idle, left_out) = judge(5, |r, k| match r {
            0 => Some(12.0),
            1 => (k % 3 != 0).then_some(12.0),
            2 => Some(12.0 + (k % 2) as f64 * 15.0),
            3 => Some(60.0),
            _ => None,
        });
        assert_eq!(idle.unwrap().good(), vec![0]);
        let why: Vec<_> = left_out.iter().map(|l| (l.reflector, l.why.as_str())).collect();
        assert_eq!(why.len(), 4);
        assert!(why[0].1.contains("loses"), "{why:?}");
        assert!(why[1].1.contains("spreads"), "{why:?}");
        assert!(why[2].1.contains("farther"), "{why:?}");
        assert!(why[3].1.contains("does not answer"), "{why:?}");
    }

    #[test]
    fn a_radio_line_that_jumps_everywhere_keeps_its_reflectors() {
        let (idle, _) = judge(3, |_, k| Some(40.0 + (k % 5) as f64 * 8.0));
        assert_eq!(idle.unwrap().good().len(), 3);
    }

    #[test]
    fn the_last_reflector_is_never_quarantined() {
        let (idle, _) = judge(2, |_, _| Some(12.0));
        let mut idle = idle.unwrap();
        assert!(idle.quarantine(0));
        assert!(!idle.quarantine(1));
        assert_eq!(idle.good(), vec![1]);
    }

    #[test]
    fn a_router_that_stood_still_blames_nobody() {
        let (idle, left_out) = judge(3, |_, k| (k < 16).then_some(12.0));
        assert_eq!((idle.unwrap().good(), left_out), (vec![0, 1, 2], vec![]));
    }

    #[test]
    fn silence_everywhere_is_no_profile() {
        let (idle, left_out) = judge(2, |_, _| None);
        assert_eq!((idle, left_out.len()), (None, 2));
    }
}
