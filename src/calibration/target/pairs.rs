//! Does the second of two settings carry more? A paired test that may be looked at more than once.
//!
//! Each pair is one trial of either setting, one right after the other, in turns the one or the other first. The
//! pairs' own scatter says how far chance goes (Student's t). A gain is only ever called certain at one of
//! [`LOOKS`], each time against its share of 5 % (Bonferroni), so the error of the whole is known, however much
//! the line scatters. To give up early costs no error of that kind: it only ever keeps what there was.

use crate::calibration::stats::{mean, squares, student};

/// Goodput that makes another setting worth having.
pub const WORTH: f64 = 0.03;
/// Goodput that the other load may lose.
const MOST_LOST: f64 = 0.01;
/// A gain may be called certain after so many pairs: even numbers, so that either order came as often.
const LOOKS: [usize; 3] = [4, 6, 10];
/// The normal quantile of 5 % / (2 loads · 3 looks): so often at most chance alone calls a gain certain.
const GAIN_Z: f64 = 2.394;
/// One-sided 90 %: at each pair one in ten of those gains is overlooked that are just worth it.
const FUTILE_Z: f64 = 1.282;
/// Degrees of freedom that the usual scatter counts for beside the pairs' own. Only to give up sooner.
const USUAL_DEGREES: f64 = 3.0;

/// 8 ms against 5 ms: the second minus the first.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pair {
    /// Logarithm of the goodputs' ratio.
    pub gain: f64,
    pub probe_ms: f64,
    pub flows_ms: f64,
    pub queue_ms: f64,
    /// Packets dropped by the first and by the second.
    pub drops: [f64; 2],
}

#[derive(Clone, Debug, PartialEq)]
pub struct Pairs {
    pairs: Vec<Pair>,
    /// What one pair's gain usually scatters by on such a path.
    usual_scatter: f64,
}

impl Pairs {
    pub fn new(usual_scatter: f64) -> Self {
        Self { pairs: Vec::new(), usual_scatter }
    }

    /// After so many the answer is what it is.
    pub const MOST: usize = LOOKS[LOOKS.len() - 1];

    pub fn add(&mut self, pair: Pair) {
        self.pairs.push(pair);
    }

    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    pub fn gain(&self) -> f64 {
        self.mean(|pair| pair.gain)
    }

    pub fn mean(&self, of: impl Fn(&Pair) -> f64) -> f64 {
        mean(&self.pairs.iter().map(of).collect::<Vec<_>>()).unwrap_or(0.0)
    }

    /// Worth it, and not by chance.
    pub fn certainly_gains(&self) -> bool {
        LOOKS.contains(&self.len()) && self.gain() >= WORTH && self.gain() > self.uncertainty()
    }

    /// So far from being worth it that more pairs would hardly change it.
    pub fn is_futile(&self) -> bool {
        self.len() > 0 && self.highest() < WORTH
    }

    pub fn certainly_loses(&self) -> bool {
        self.len() > 0 && self.gain() < -MOST_LOST && self.highest() < 0.0
    }

    /// The gain is hardly more than this. The usual scatter helps where there are few pairs.
    fn highest(&self) -> f64 {
        let n = self.len() as f64;
        let degrees = n - 1.0 + USUAL_DEGREES;
        let variance = (self.squares() + USUAL_DEGREES * self.usual_scatter.powi(2)) / degrees;
        self.gain() + student(FUTILE_Z, degrees) * (variance / n).sqrt()
    }

    /// What chance does to the mean gain, at the level at which a gain counts as certain.
    pub fn uncertainty(&self) -> f64 {
        let n = self.len() as f64;
        if n < 2.0 {
            return f64::INFINITY;
        }
        student(GAIN_Z, n - 1.0) * (self.squares() / (n - 1.0) / n).sqrt()
    }

    fn squares(&self) -> f64 {
        squares(&self.pairs.iter().map(|pair| pair.gain).collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Draws: even between -1 and 1, or a bell of width 1. (The core has no chance of its own.)
    struct Chance(u64);

    impl Chance {
        fn even(&mut self) -> f64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
        }

        fn bell(&mut self) -> f64 {
            (0..12).map(|_| self.even()).sum::<f64>() / 2.0
        }
    }

    fn pairs(gains: &[f64]) -> Pairs {
        let mut pairs = Pairs::new(0.012);
        for gain in gains {
            pairs.add(Pair { gain: *gain, ..Pair::default() });
        }
        pairs
    }

    /// How often, of 1000 comparisons, 8 ms wins in either load when each pair's gain is `gain` and a draw.
    fn wins(gain: f64, mut draw: impl FnMut() -> f64) -> usize {
        let mut one = || {
            let mut sides = [Pairs::new(0.012), Pairs::new(0.012)];
            (0..Pairs::MOST).any(|_| {
                for side in sides.iter_mut().filter(|side| !side.is_futile()) {
                    side.add(Pair { gain: gain + draw(), ..Pair::default() });
                }
                sides.iter().any(Pairs::certainly_gains)
            })
        };
        (0..1000).filter(|_| one()).count()
    }

    #[test]
    fn chance_alone_wins_in_5_percent_at_most() {
        let mut chance = Chance(42);
        for scatter in [0.003, 0.012, 0.025, 0.05, 0.1] {
            let bell = wins(0.0, || scatter * chance.bell());
            assert!(bell <= 50, "{bell} of 1000 at {scatter}");
            let heavy = wins(0.0, || 2.0 * scatter * chance.bell().powi(3) / 3.0);
            assert!(heavy <= 50, "{heavy} of 1000 at {scatter}, heavy-tailed");
        }
        // What two pairs show, taken at its word, would flip the answer far more often.
        let mut both = || pairs(&[0.05 * chance.bell(), 0.05 * chance.bell()]);
        let greedy = (0..1000).filter(|_| both().gain() > WORTH).count();
        assert!(greedy > 100, "{greedy}");
    }

    #[test]
    fn a_real_gain_wins_and_a_small_one_is_given_up() {
        let mut chance = Chance(7);
        assert!(wins(0.08, || 0.025 * chance.bell()) > 950);
        assert!(wins(0.01, || 0.01 * chance.bell()) < 50);
        assert!(pairs(&[0.004]).is_futile());
        assert!(!pairs(&[0.02]).is_futile());
    }

    #[test]
    fn a_gain_is_certain_after_four_pairs_not_before() {
        assert!(!pairs(&[0.05, 0.051, 0.049]).certainly_gains());
        assert!(pairs(&[0.05, 0.051, 0.049, 0.05]).certainly_gains());
        assert!(!pairs(&[0.15, -0.05, 0.15, -0.05]).certainly_gains());
        assert!(!pairs(&[0.02, 0.021, 0.02, 0.021]).certainly_gains());
    }

    #[test]
    fn a_loss_counts_where_it_is_no_chance() {
        assert!(pairs(&[-0.03, -0.031]).certainly_loses());
        assert!(!pairs(&[-0.1, 0.06]).certainly_loses());
        assert!(!pairs(&[-0.005, -0.005, -0.005, -0.005]).certainly_loses());
    }
}
