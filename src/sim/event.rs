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

    /// The place in [`STATIONS`] of one that moves the packet at the head of a queue on the way.
    fn station(self) -> Option<usize> {
        match self {
            Self::LanArrival => Some(0),
            Self::Granted => Some(1),
            Self::Server => Some(2),
            Self::Shaper(side) => Some(3 + side as usize),
            Self::Bottleneck(side) => Some(5 + side as usize),
            Self::PathArrival(side) => Some(7 + side as usize),
            _ => None,
        }
    }
}

/// Where a packet waits for its turn.
const STATIONS: [Event; 9] = [
    Event::LanArrival,
    Event::Granted,
    Event::Server,
    Event::Shaper(Side::Up),
    Event::Shaper(Side::Down),
    Event::Bottleneck(Side::Up),
    Event::Bottleneck(Side::Down),
    Event::PathArrival(Side::Up),
    Event::PathArrival(Side::Down),
];

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

#[derive(Debug)]
pub struct EventQueue {
    /// When each station's packet is due; no station waits for two. They are nearly all that happens, and a look at
    /// nine times is quicker than a heap that holds them among everything else.
    stations: [Turn; STATIONS.len()],
    heap: BinaryHeap<Reverse<(Turn, Event)>>,
    planned: u64,
}

/// A time, and a number that tells which of two at the same time was planned first.
type Turn = (u64, u64);

const NEVER: Turn = (u64::MAX, u64::MAX);

impl Default for EventQueue {
    fn default() -> Self {
        Self { stations: [NEVER; STATIONS.len()], heap: BinaryHeap::new(), planned: 0 }
    }
}

impl EventQueue {
    /// A station that is planned again forgets what was planned before: that was for a shaper that is gone.
    pub fn plan(&mut self, at_ns: u64, event: Event) {
        self.planned += 1;
        let turn = (at_ns, self.planned);
        match event.station() {
            Some(station) => self.stations[station] = turn,
            None => self.heap.push(Reverse((turn, event))),
        }
    }

    /// The next event that is due by `until_ns`.
    pub fn pop_until(&mut self, until_ns: u64) -> Option<(u64, Event)> {
        // Twice over the nine, since it is a guess for the processor which of them is next.
        let soonest = self.stations.iter().fold(u64::MAX, |least, (at_ns, _)| least.min(*at_ns));
        let due = (0..STATIONS.len()).filter(|station| self.stations[*station].0 == soonest);
        let station = due.min_by_key(|station| self.stations[*station].1).unwrap_or(0);
        let first = self.stations[station];
        let other = self.heap.peek().map_or(NEVER, |Reverse((turn, _))| *turn);
        if first.0.min(other.0) > until_ns {
            return None;
        }
        if other < first {
            return self.heap.pop().map(|Reverse((turn, event))| (turn.0, event));
        }
        self.stations[station] = NEVER;
        Some((first.0, STATIONS[station]))
    }

    pub fn forget_trial(&mut self) {
        self.heap.retain(|Reverse((_, event))| !event.is_of_trial());
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
    fn each_station_finds_its_own_event_again() {
        let mut queue = EventQueue::default();
        for (at_ns, event) in (1..).zip(STATIONS) {
            queue.plan(at_ns, event);
        }
        let seen: Vec<Event> = std::iter::from_fn(|| queue.pop_until(99)).map(|(_, event)| event).collect();
        assert_eq!(seen, STATIONS);
    }

    #[test]
    fn a_station_planned_again_forgets_what_was_planned_before() {
        let mut queue = EventQueue::default();
        queue.plan(5, Event::Shaper(Side::Up));
        queue.plan(9, Event::Shaper(Side::Up));
        assert_eq!((queue.pop_until(99), queue.pop_until(99)), (Some((9, Event::Shaper(Side::Up))), None));
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
