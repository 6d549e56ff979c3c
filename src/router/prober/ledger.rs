//! Which probes are under way, and what became of them. Pure: the time is an argument.

use super::{Outcome, Probe};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Probes in the order in which they were sent.
#[derive(Debug)]
pub struct Ledger {
    timeout: Duration,
    next: u32,
    open: VecDeque<Open>,
}

#[derive(Debug)]
struct Open {
    number: u32,
    reflector: usize,
    sent: Instant,
}

impl Ledger {
    pub fn new(timeout: Duration) -> Self {
        Self { timeout, next: 0, open: VecDeque::new() }
    }

    /// The number for the next probe, which is not under way until [`Ledger::sent`].
    pub fn number(&mut self) -> u32 {
        self.next = self.next.wrapping_add(1);
        self.next
    }

    pub fn sent(&mut self, number: u32, reflector: usize, sent: Instant) {
        self.open.push_back(Open { number, reflector, sent });
    }

    /// A reply that arrived at `at`. Duplicates, and replies to what was never asked or was given up, are nothing.
    pub fn replied(&mut self, number: u32, at: Instant) -> Option<Probe> {
        let place = self.open.iter().position(|open| open.number == number)?;
        let rtt = at.saturating_duration_since(self.open[place].sent);
        // Left in place, it is given up by the next `expired`: late is lost.
        if rtt > self.timeout {
            return None;
        }
        let open = self.open.remove(place)?;
        Some(Probe { reflector: open.reflector, at, outcome: Outcome::Reply { rtt } })
    }

    /// One probe that has waited too long at `now`; call until `None`.
    pub fn expired(&mut self, now: Instant) -> Option<Probe> {
        let at = self.next_expiry().filter(|at| *at <= now)?;
        let open = self.open.pop_front()?;
        Some(Probe { reflector: open.reflector, at, outcome: Outcome::Lost })
    }

    /// When the oldest probe under way has to be given up.
    pub fn next_expiry(&self) -> Option<Instant> {
        self.open.front().map(|open| open.sent + self.timeout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::PROBE_TIMEOUT;

    #[test]
    fn every_probe_ends_exactly_once() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut ledger = Ledger::new(PROBE_TIMEOUT);
        let numbers: Vec<u32> = (0..4)
            .map(|reflector| {
                let number = ledger.number();
                ledger.sent(number, reflector, at(reflector as u64 * 100));
                number
            })
            .collect();

        let reply = |reflector, ms, rtt| {
            Some(Probe { reflector, at: at(ms), outcome: Outcome::Reply { rtt: Duration::from_millis(rtt) } })
        };
        assert_eq!(ledger.replied(numbers[1], at(160)), reply(1, 160, 60));
        assert_eq!(ledger.replied(numbers[1], at(170)), None, "a duplicate");
        assert_eq!(ledger.replied(999, at(170)), None, "never asked");
        assert_eq!(ledger.expired(at(2999)), None);
        assert_eq!(ledger.replied(numbers[2], at(3200)), reply(2, 3200, 3000));
        assert_eq!(ledger.replied(numbers[0], at(3201)), None, "later than the timeout, though nobody has looked yet");

        let lost = |reflector, ms| Some(Probe { reflector, at: at(ms), outcome: Outcome::Lost });
        assert_eq!(ledger.expired(at(4000)), lost(0, 3000));
        assert_eq!(ledger.next_expiry(), Some(at(3300)));
        assert_eq!(ledger.expired(at(4000)), lost(3, 3300));
        assert_eq!(ledger.expired(at(4000)), None);
        assert_eq!(ledger.next_expiry(), None);
    }
}
