//! The traffic of those who live there.

use super::{World, nanos};
use crate::line::Origin;
use crate::sim::cubic::Congestion;
use crate::sim::event::{Event, Side};
use crate::sim::packet::{Kind, Packet};
use crate::sim::scenario::{Habit, Scenario};

/// One habit and what it has going on.
#[derive(Debug)]
pub struct Resident {
    side: Side,
    habit: Habit,
    mss: u32,
    /// Its TCP flows, or the one number its datagrams go by.
    flows: Vec<u32>,
}

/// What a video call sends, about.
const DATAGRAM_BYTES: u32 = 1200;
const START_WITHIN_NS: u64 = 50_000_000;

impl World {
    /// Plans what the scenario's household does.
    pub(super) fn move_in(&mut self, scenario: &Scenario) {
        let mss = scenario.path.mtu.saturating_sub(40);
        for (side, habits) in [(Side::Up, &scenario.household.upload), (Side::Down, &scenario.household.download)] {
            for habit in habits.iter().filter(|habit| habit.to_s > habit.from_s) {
                let number = self.residents.len() as u32;
                self.residents.push(Resident { side, habit: *habit, mss, flows: Vec::new() });
                self.events.plan(nanos(habit.from_s * 1000.0), Event::HouseholdBegin(number));
                self.events.plan(nanos(habit.to_s * 1000.0), Event::HouseholdEnd(number));
            }
        }
    }

    pub(super) fn begin_habit(&mut self, number: u32) {
        let Resident { side, habit, mss, .. } = self.residents[number as usize];
        let flows = if habit.flows == 0 {
            self.events.plan(self.now_ns, Event::HouseholdPacket(number));
            vec![self.new_id()]
        } else {
            let each = habit.kbit * 1000 / u64::from(habit.flows);
            (0..habit.flows)
                .map(|_| {
                    // Homes are mixed; what is not Linux is Reno here.
                    let id = self.open(side, Origin::Forwarded, mss, Congestion::Reno, START_WITHIN_NS);
                    if each > 0 {
                        self.set_pace(id, each);
                    }
                    id
                })
                .collect()
        };
        self.residents[number as usize].flows = flows;
    }

    pub(super) fn end_habit(&mut self, number: u32) {
        for id in std::mem::take(&mut self.residents[number as usize].flows) {
            self.close(id);
        }
    }

    /// The next datagram of a steady stream.
    pub(super) fn continue_habit(&mut self, number: u32) {
        let Resident { side, habit, ref flows, .. } = self.residents[number as usize];
        let (Some(flow), true) = (flows.first().copied(), habit.kbit > 0) else { return };
        let packet = Packet { flow, ip_bytes: DATAGRAM_BYTES, kind: Kind::Datagram, queued_ns: 0 };
        match side {
            Side::Up => self.send_up(packet),
            Side::Down => self.send_down(packet),
        }
        let gap_ns = u64::from(DATAGRAM_BYTES) * 8_000_000 / habit.kbit;
        self.events.plan(self.now_ns + gap_ns, Event::HouseholdPacket(number));
    }
}
