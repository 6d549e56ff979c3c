//! What happens next: a queue in order of virtual time, ties in the order in which they were planned.

use crate::units::Direction;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// All that can happen on a line by itself; everything else follows from one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// A packet of the LAN client reaches the router.
    LanArrival,
    /// CAKE may send.
    Shaper(Side),
    /// The bottleneck has sent its packet.
    Bottleneck(Side),
    /// A packet has crossed the path.
    PathArrival(Side),
    /// A packet has waited for its grant, on the way down.
    Granted,
    /// The server gets round to a packet.
    Server,
    FlowStart(u32),
    FlowTimer(u32),
    DelayedAck(u32),
    /// The application has more to send.
    Application(u32),
    HouseholdBegin(u32),
    HouseholdEnd(u32),
    HouseholdPacket(u32),
    RateChange(Side, u32),
    ProbeSend(u32),
    /// A reflector answers probe number so-and-so.
    ProbeReply {
        number: u64,
        reflector: u32,
    },
    ProbeTimeout,
    /// Time to read the counters, or the CPU.
    Counters,
    Cpu,
}

impl Event {
    /// Whether it ends with the trial that planned it.
    fn is_of_trial(self) -> bool {
        matches!(self, Self::ProbeSend(_) | Self::ProbeTimeout | Self::Counters | Self::Cpu)
    }
}

/// The direction a packet travels in, as an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    Up = 0,
    Down = 1,
}

impl Side {
    pub const BOTH: [Self; 2] = [Self::Up, Self::Down];

    pub fn direction(self) -> Direction {
        match self {
            Self::Up => Direction::Upload,
            Self::Down => Direction::Download,
        }
    }
}

impl From<Direction> for Side {
    fn from(direction: Direction) -> Self {
        match direction {
            Direction::Upload => Self::Up,
            Direction::Download => Self::Down,
        }
    }
}

#[derive(Debug, Default)]
pub struct EventQueue {
    heap: BinaryHeap<Reverse<(u64, u64, Event)>>,
    planned: u64,
}

impl EventQueue {
    pub fn plan(&mut self, at_ns: u64, event: Event) {
        self.planned += 1;
        self.heap.push(Reverse((at_ns, self.planned, event)));
    }

    /// The next event that is due by `until_ns`.
    pub fn pop_until(&mut self, until_ns: u64) -> Option<(u64, Event)> {
        let Reverse((at_ns, ..)) = self.heap.peek()?;
        if *at_ns > until_ns {
            return None;
        }
        self.heap.pop().map(|Reverse((at_ns, _, event))| (at_ns, event))
    }

    pub fn forget_trial(&mut self) {
        self.heap.retain(|Reverse((_, _, event))| !event.is_of_trial());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_in_order_of_time_then_of_planning() {
        let mut queue = EventQueue::default();
        queue.plan(20, Event::Cpu);
        queue.plan(10, Event::Shaper(Side::Up));
        queue.plan(20, Event::LanArrival);
        queue.plan(30, Event::Granted);
        let mut seen = Vec::new();
        while let Some(event) = queue.pop_until(20) {
            seen.push(event);
        }
        assert_eq!(seen, [(10, Event::Shaper(Side::Up)), (20, Event::Cpu), (20, Event::LanArrival)]);
        assert_eq!(queue.pop_until(29), None);
    }

    #[test]
    fn a_trial_takes_its_own_events_with_it() {
        let mut queue = EventQueue::default();
        queue.plan(1, Event::Counters);
        queue.plan(2, Event::LanArrival);
        queue.forget_trial();
        assert_eq!(queue.pop_until(9), Some((2, Event::LanArrival)));
        assert_eq!(queue.pop_until(9), None);
    }
}
