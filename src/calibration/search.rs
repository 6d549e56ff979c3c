//! The binary search for the highest clean rate: a pure machine that asks for rates and is told verdicts.

use crate::units::Rate;

/// Where the search first looks, as a share of sync or capacity. Three reports and one kernel agree that a
/// line holds its idle delay there (VDSL2: 17,100 of 18,000).
pub const FIRST_GUESS: f64 = 0.95;
/// Neighbouring rates closer than this are not worth a trial of their own.
const RESOLUTION: f64 = 0.02;
/// A line that went back on its word once is not asked for its last percent.
const COARSE: f64 = 0.035;
/// Where to look for a clean rate when the first guess was not: shares of the first guess.
const WAY_DOWN: [f64; 5] = [0.97, 0.92, 0.83, 0.7, 0.5];

/// Owns its bounds by phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    First {
        guess: Rate,
    },
    /// Nothing was clean so far; `step` indexes [`WAY_DOWN`].
    Down {
        first: Rate,
        bloated: Rate,
        step: usize,
    },
    Between {
        clean: Rate,
        bloated: Rate,
    },
    Done {
        clean: Option<Rate>,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub struct Search {
    phase: Phase,
    /// Known not to be clean without trying: what the bottleneck drains.
    cap: Rate,
    resolution: f64,
}

impl Search {
    /// `cap`: the capacity, known to be too much. `sync`: what the modem reports, if it does and if it can be believed.
    pub fn new(cap: Rate, sync: Option<Rate>) -> Self {
        // A sync above the capacity says nothing about where to look.
        let guess = match sync.map(|sync| sync.times(FIRST_GUESS)) {
            Some(guess) if guess < cap.times(f64::midpoint(1.0, FIRST_GUESS)) => guess,
            _ => cap.times(FIRST_GUESS),
        };
        Self { phase: Phase::First { guess }, cap, resolution: RESOLUTION }
    }

    /// `rate` is believed without trying, until it is distrusted.
    pub fn believing(rate: Rate) -> Self {
        Self { phase: Phase::Done { clean: Some(rate) }, cap: rate, resolution: RESOLUTION }
    }

    /// `top` itself is the first to try; where it is clean there is nothing above it to look for.
    pub fn from_top(top: Rate) -> Self {
        Self { phase: Phase::First { guess: top }, cap: top, resolution: RESOLUTION }
    }

    /// The rate to try next; `None` when the search is over.
    pub fn next(&self) -> Option<Rate> {
        match self.phase {
            Phase::First { guess } => Some(guess),
            Phase::Down { first, step, .. } => Some(first.times(WAY_DOWN[step])),
            Phase::Between { clean, bloated } => Some(Rate::from_bits(u64::midpoint(clean.bits(), bloated.bits()))),
            Phase::Done { .. } => None,
        }
    }

    /// What the trial of [`Search::next`] showed. A trial without a clear answer counts as not clean.
    pub fn learn(&mut self, was_clean: bool) {
        let Some(rate) = self.next() else { return };
        self.phase = match (self.phase, was_clean) {
            (Phase::First { .. }, true) => self.between(rate, self.cap),
            (Phase::First { guess }, false) => Phase::Down { first: guess, bloated: guess, step: 0 },
            (Phase::Down { first, step, .. }, false) if step + 1 < WAY_DOWN.len() => {
                Phase::Down { first, bloated: rate, step: step + 1 }
            }
            (Phase::Down { .. }, false) => Phase::Done { clean: None },
            (Phase::Down { bloated, .. } | Phase::Between { bloated, .. }, true) => self.between(rate, bloated),
            (Phase::Between { clean, .. }, false) => self.between(clean, rate),
            (Phase::Done { .. }, _) => self.phase,
        };
    }

    /// `rate` was clean once and is not any more: look below it.
    pub fn distrust(&mut self, rate: Rate) {
        self.phase = Phase::Down { first: rate, bloated: rate, step: 0 };
        self.resolution = COARSE;
    }

    /// The highest rate that was clean, once the search is over.
    pub fn highest_clean(&self) -> Option<Rate> {
        match self.phase {
            Phase::Done { clean } => clean,
            _ => None,
        }
    }

    /// How many more trials there will be at most if all goes as hoped.
    pub fn expected_trials(&self) -> u32 {
        let gap = match self.phase {
            Phase::First { guess } => return 1 + self.halvings(1.0 - guess.ratio(self.cap)),
            Phase::Down { .. } => return 2,
            Phase::Between { clean, bloated } => 1.0 - clean.ratio(bloated),
            Phase::Done { .. } => return 0,
        };
        self.halvings(gap)
    }

    fn halvings(&self, mut gap: f64) -> u32 {
        let mut trials = 0;
        while gap > self.resolution {
            gap /= 2.0;
            trials += 1;
        }
        trials
    }

    fn between(&self, clean: Rate, bloated: Rate) -> Phase {
        if 1.0 - clean.ratio(bloated) <= self.resolution {
            Phase::Done { clean: Some(clean) }
        } else {
            Phase::Between { clean, bloated }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every rate that is tried on a line that is clean up to `limit`, and the answer.
    fn play(mut search: Search, limit: u64) -> (Vec<u64>, Option<u64>) {
        let mut tried = Vec::new();
        while let Some(rate) = search.next() {
            tried.push(rate.kbit());
            search.learn(rate.kbit() <= limit);
        }
        (tried, search.highest_clean().map(Rate::kbit))
    }

    #[test]
    fn a_line_that_holds_what_it_drains() {
        let search = Search::new(Rate::from_kbit(17_723), Some(Rate::from_kbit(18_000)));
        assert_eq!(search.expected_trials(), 2);
        assert_eq!(play(search, 17_700), (vec![17_100, 17_411], Some(17_411)));
    }

    #[test]
    fn the_top_is_bloated() {
        let search = Search::new(Rate::from_kbit(17_723), Some(Rate::from_kbit(18_000)));
        assert_eq!(play(search, 17_200), (vec![17_100, 17_411], Some(17_100)));
    }

    #[test]
    fn without_sync_it_starts_from_the_capacity() {
        let search = Search::new(Rate::from_kbit(50_000), None);
        assert_eq!(play(search, 49_900), (vec![47_500, 48_750, 49_375], Some(49_375)));
    }

    #[test]
    fn a_sync_above_the_capacity_does_not_lead_the_search_there() {
        let search = Search::new(Rate::from_kbit(10_000), Some(Rate::from_kbit(18_000)));
        assert_eq!(play(search, 9_990), (vec![9_500, 9_750, 9_875], Some(9_875)));
    }

    #[test]
    fn it_goes_down_when_the_first_guess_is_bloated() {
        let search = Search::new(Rate::from_kbit(10_000), None);
        assert_eq!(play(search, 8_600), (vec![9_500, 9_215, 8_740, 7_885, 8_312, 8_526, 8_633], Some(8_526)));
    }

    #[test]
    fn it_gives_up_where_lowering_does_not_help() {
        let search = Search::new(Rate::from_kbit(10_000), None);
        assert_eq!(play(search, 0), (vec![9_500, 9_215, 8_740, 7_885, 6_650, 4_750], None));
    }

    #[test]
    fn a_distrusted_rate_sends_it_below() {
        let mut search = Search::new(Rate::from_kbit(10_000), None);
        search.distrust(Rate::from_kbit(9_000));
        assert_eq!(play(search, 8_560), (vec![8_730, 8_280, 8_505], Some(8_505)));
    }

    #[test]
    fn a_believed_rate_is_not_tried_until_it_has_been_distrusted() {
        let mut search = Search::believing(Rate::from_kbit(10_000));
        assert_eq!(play(search.clone(), 0), (vec![], Some(10_000)));
        search.distrust(Rate::from_kbit(9_900));
        assert_eq!(play(search, 9_700), (vec![9_603], Some(9_603)));
    }
}
