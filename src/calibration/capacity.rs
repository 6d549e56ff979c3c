//! What the bottleneck drains, from the packets it delivered while it was never idle.

use super::stats::{mean, median, squares};

/// Windows differ by more than this between their middle half: the line is not steady.
const STEADY_SPREAD: f64 = 0.12;
/// A step down by at least this much, once, is a burst credit that ran out (cable: 10 s and more).
const BURST_STEP: f64 = 0.08;
/// Each side of a step must be at least so many windows.
const MIN_SIDE: usize = 2;
/// A step explains the scatter when it takes away this share of it.
const STEP_EXPLAINS: f64 = 0.7;

/// Packets per second that the line drains, and how it behaved.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Capacity {
    Steady {
        packets_per_s: f64,
    },
    /// More at first than later: what lasts is `packets_per_s`.
    Burst {
        packets_per_s: f64,
        first: f64,
    },
    Variable {
        lowest: f64,
        highest: f64,
        median: f64,
    },
}

impl Capacity {
    /// `windows`: packets per second in each second, oldest first; `overall`: over the whole time.
    pub fn of(windows: &[f64], overall: f64) -> Self {
        let Some(middle) = median(windows).filter(|m| *m > 0.0 && windows.len() >= 2 * MIN_SIDE) else {
            return Self::Steady { packets_per_s: overall };
        };
        if let Some((first, packets_per_s)) = step_down(windows) {
            return Self::Burst { packets_per_s, first };
        }
        let low = super::stats::quantile(windows, 0.1).unwrap_or(middle);
        let high = super::stats::quantile(windows, 0.9).unwrap_or(middle);
        if (high - low) / middle > STEADY_SPREAD {
            let lowest = windows.iter().copied().fold(f64::INFINITY, f64::min);
            let highest = windows.iter().copied().fold(0.0, f64::max);
            return Self::Variable { lowest, highest, median: middle };
        }
        Self::Steady { packets_per_s: overall }
    }

    pub fn packets_per_s(&self) -> f64 {
        match self {
            Self::Steady { packets_per_s } | Self::Burst { packets_per_s, .. } => *packets_per_s,
            Self::Variable { lowest, .. } => *lowest,
        }
    }
}

/// The means before and after the one step down that explains the windows, if one does.
fn step_down(windows: &[f64]) -> Option<(f64, f64)> {
    let total = squares(windows);
    let (at, rest) = (MIN_SIDE..=windows.len() - MIN_SIDE)
        .map(|at| (at, squares(&windows[..at]) + squares(&windows[at..])))
        .min_by(|a, b| a.1.total_cmp(&b.1))?;
    let (before, mut after) = (mean(&windows[..at])?, mean(&windows[at..])?);
    if before - after < BURST_STEP * before || rest > (1.0 - STEP_EXPLAINS) * total {
        return None;
    }
    // The window in which the step fell is mixed.
    if windows.len() - at > MIN_SIDE {
        after = mean(&windows[at + 1..])?;
    }
    let steady_after = windows[at..].iter().skip(1).all(|w| (w - after).abs() < STEADY_SPREAD / 2.0 * after);
    steady_after.then_some((before, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_line_scatters_a_little() {
        let windows = [1440.0, 1446.0, 1441.0, 1450.0, 1439.0, 1444.0, 1443.0];
        assert_eq!(Capacity::of(&windows, 1443.5), Capacity::Steady { packets_per_s: 1443.5 });
    }

    #[test]
    fn a_burst_credit_that_runs_out_leaves_the_sustained_rate() {
        let windows = [1800.0, 1801.0, 1799.0, 1800.0, 1802.0, 1800.0, 1340.0, 1000.0, 1001.0, 999.0];
        match Capacity::of(&windows, 1500.0) {
            Capacity::Burst { packets_per_s, first } => {
                assert!((packets_per_s - 1000.0).abs() < 3.0, "{packets_per_s}");
                assert!((1600.0..1810.0).contains(&first), "{first}");
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_line_that_goes_up_and_down_is_variable() {
        let windows = [1000.0, 1400.0, 900.0, 1600.0, 1200.0, 800.0, 1500.0];
        assert!(
            matches!(Capacity::of(&windows, 1200.0), Capacity::Variable { lowest, .. } if (lowest - 800.0).abs() < 1e-9)
        );
        let rising = [800.0, 800.0, 800.0, 1200.0, 1200.0, 1200.0];
        assert!(matches!(Capacity::of(&rising, 1000.0), Capacity::Variable { .. }));
    }

    #[test]
    fn too_few_windows_are_taken_as_they_are() {
        assert_eq!(Capacity::of(&[100.0, 50.0], 75.0), Capacity::Steady { packets_per_s: 75.0 });
    }
}
