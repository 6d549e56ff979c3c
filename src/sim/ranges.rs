//! A set of segment numbers, kept as disjoint ranges in order.

/// Half-open ranges; few at any time, so a plain list serves.
#[derive(Clone, Debug, Default)]
pub struct Ranges {
    list: Vec<(u32, u32)>,
    count: u32,
}

impl Ranges {
    pub fn count(&self) -> u32 {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub fn contains(&self, number: u32) -> bool {
        let at = self.list.partition_point(|range| range.1 <= number);
        self.list.get(at).is_some_and(|range| range.0 <= number)
    }

    /// Adds a range and calls `fresh` for each number that was not there. Returns the range it is part of now.
    pub fn insert(&mut self, start: u32, end: u32, mut fresh: impl FnMut(u32)) -> (u32, u32) {
        // All ranges that touch the new one become one with it.
        let first = self.list.partition_point(|range| range.1 < start);
        let last = self.list.partition_point(|range| range.0 <= end);
        let (mut low, mut high, mut next) = (start, end, start);
        for &(from, to) in &self.list[first..last] {
            for number in next..from.max(next).min(end) {
                fresh(number);
                self.count += 1;
            }
            next = next.max(to);
            low = low.min(from);
            high = high.max(to);
        }
        for number in next..end.max(next) {
            fresh(number);
            self.count += 1;
        }
        self.list.splice(first..last, [(low, high)]);
        (low, high)
    }

    /// Forgets everything below `number`.
    pub fn remove_below(&mut self, number: u32) {
        let gone = self.list.partition_point(|range| range.1 <= number);
        for (from, to) in self.list.drain(..gone) {
            self.count -= to - from;
        }
        if let Some(first) = self.list.first_mut()
            && first.0 < number
        {
            self.count -= number - first.0;
            first.0 = number;
        }
    }

    /// The end of the range that holds `number`, where there is one.
    pub fn end_of(&self, number: u32) -> Option<u32> {
        let at = self.list.partition_point(|range| range.1 <= number);
        self.list.get(at).filter(|range| range.0 <= number).map(|range| range.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn agrees_with_a_plain_set() {
        let mut rng = crate::sim::rng::Rng::new(3, 0);
        let (mut ranges, mut set) = (Ranges::default(), BTreeSet::new());
        for _ in 0..2000 {
            let start = rng.uniform_ns(200) as u32;
            let end = start + 1 + rng.uniform_ns(12) as u32;
            let mut fresh = Vec::new();
            ranges.insert(start, end, |number| fresh.push(number));
            let expected: Vec<u32> = (start..end).filter(|number| set.insert(*number)).collect();
            assert_eq!(fresh, expected);
            if rng.chance(0.3) {
                let below = rng.uniform_ns(210) as u32;
                ranges.remove_below(below);
                set.retain(|number| *number >= below);
            }
            assert_eq!(ranges.count() as usize, set.len());
            assert!((0..215).all(|number| ranges.contains(number) == set.contains(&number)));
        }
    }
}
