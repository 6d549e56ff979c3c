//! The rate of one direction: where to look, the search, and the trial of exactly what is recommended.

use super::before::{Before, quantiles};
use super::link;
use super::outcome::{Grade, LinkSource};
use super::search::Search;
use super::session::{Attempt, Ends, Halt, Session, lasting};
use super::verdict::{CleanBound, Doubtful, Judge, Verdict};
use super::{Progressed, estimate::Measurement};
use crate::line::{Accounting, Cake, Shaping, Step};
use crate::units::{Direction, Rate};
use std::time::Duration;

/// A trial of the search gets no more than this to make up its mind.
const SEARCH: Duration = Duration::from_millis(10_500);
/// What a trial of the search usually takes, for the time left.
pub const SEARCH_USUALLY: Duration = Duration::from_millis(4_600);
/// The recommended setting is watched longer than any other shaped trial.
pub const VERIFY: Duration = Duration::from_millis(12_500);
/// So many recommendations are verified before the line counts as unpredictable.
const VERIFICATIONS: u32 = 3;
/// Lines breathe: what is set stays this far below the highest clean rate (contract).
pub const MARGIN: f64 = 0.01;
/// A capacity below this share of what sync allows is the provider's shaper, not the modem: with a measured overhead
/// both are known to half a per cent, and a modem takes no more than that for itself; with a guessed one to a few.
const SHAPED_BELOW: f64 = 0.985;
const SHAPED_BELOW_UNMEASURED: f64 = 0.93;
/// Of what a busy CPU can shape, so much is asked of it: the rest of the router wants to live too.
const CPU_SHARE: f64 = 0.95;
/// What a download's shaper leaves free at least: its queue stands before us, and only the senders' patience drains it.
const DOWNLOAD_MARGIN: f64 = 0.05;

/// What is being looked for.
pub struct Quest<'a> {
    pub direction: Direction,
    pub link: &'a link::Found,
    pub before: &'a Before,
    /// The line drops instead of delaying.
    pub policed: bool,
    /// Is the result to be watched for longer?
    pub verify: bool,
}

impl Quest<'_> {
    /// Finds the setting of this direction, and writes it into `so_far`.
    pub fn run(&self, session: &mut Session, so_far: &mut Progressed) -> Result<Cake, Halt> {
        let mut search = match self.direction {
            Direction::Upload => {
                let cap = self.upload_cap(session);
                Search::new(cap, session.facts.sync_up)
            }
            Direction::Download => Search::from_top(self.download_top(session)),
        };
        for _ in 0..VERIFICATIONS {
            let highest = match self.search(session, &mut search) {
                Err(Searched::CpuFull { able }) => {
                    session.doubt("cpu-bound", format!("the router's CPU can shape no more than {able}"));
                    search = Search::from_top(able.times(CPU_SHARE));
                    continue;
                }
                Err(Searched::Halt(halt)) => return Err(halt),
                Ok(highest) => highest,
            };
            let recommended = Rate::from_kbit(highest.times(1.0 - MARGIN).kbit());
            session.still_to_come = Duration::ZERO;
            let cake = self.cake(recommended);
            if self.verify {
                let (measured, verdict) = self.trial(session, Step::Verify, recommended)?;
                if !verdict.is_clean() {
                    session.note(&format!("{recommended} did not hold when watched longer: {verdict}; looking lower"));
                    search.distrust(recommended);
                    continue;
                }
                so_far.latency.tuned = quantiles(&measured);
                so_far.latency.grade_after = measured.added_p95_ms.map(Grade::of);
            } else {
                session.doubt("unverified", format!("{recommended} was not watched for longer, as asked"));
            }
            let why = self.explain(session, so_far, highest);
            let shaped = so_far.shaped(self.direction);
            shaped.highest_clean_kbit = Some(highest.kbit());
            shaped.kbit = Some(recommended.kbit());
            shaped.why = why;
            return Ok(cake);
        }
        Err(Halt::inconclusive(
            "unsteady",
            "rates that were clean at first did not stay clean: the line changes while it is measured",
        ))
    }

    fn search(&self, session: &mut Session, search: &mut Search) -> Result<Rate, Searched> {
        while let Some(rate) = search.next() {
            let more = search.expected_trials().saturating_sub(1);
            session.still_to_come = lasting(more, SEARCH_USUALLY) + lasting(1, VERIFY);
            let (_, verdict) = self.trial(session, Step::Search, rate)?;
            if let Verdict::Inconclusive(Doubtful::CpuBound { throughput, .. }) = verdict {
                return Err(Searched::CpuFull { able: throughput });
            }
            search.learn(verdict.is_clean());
        }
        search.highest_clean().ok_or_else(|| {
            Searched::Halt(Halt::inconclusive(
                "no-clean-rate",
                "lowering the rate does not make the line clean: the delay comes from somewhere else",
            ))
        })
    }

    fn cake(&self, rate: Rate) -> Cake {
        Cake::new(rate, self.link.accounting)
    }

    /// One shaped trial. A verdict of its own that proves nothing halts, but for being unsure or short of CPU.
    fn trial(&self, session: &mut Session, step: Step, rate: Rate) -> Result<(Measurement, Verdict), Halt> {
        let (duration, ends) = match step {
            Step::Verify => (VERIFY, Ends::UnlessClean),
            _ => (SEARCH, Ends::OnceCertain),
        };
        let attempt = Attempt {
            step,
            setting: session.setting.with(self.direction, Shaping::Cake(self.cake(rate))),
            loads: vec![session.load(self.direction)],
            duration,
            ends,
        };
        let idle = session.idle.clone().unwrap_or_default();
        let packet_bytes = session.packet_bytes();
        let judge = Judge { bound: self.bound(session, rate), idle: &idle, packet_bytes, policed: self.policed };
        let (measured, verdict) = session.run(&attempt, &judge)?;
        match verdict {
            Verdict::Inconclusive(Doubtful::Unsure { .. } | Doubtful::CpuBound { .. })
            | Verdict::Clean { .. }
            | Verdict::Bloated(_) => Ok((measured, verdict)),
            Verdict::Inconclusive(why) => Err(why.into()),
        }
    }

    /// On a slow line a packet takes the longer, the lower the rate.
    fn bound(&self, session: &Session, rate: Rate) -> CleanBound {
        let idle = session.idle.clone().unwrap_or_default();
        let wire_bytes = self.link.accounting.wire_bytes(session.packet_bytes());
        CleanBound::new(session.plan().max_added_ms, &idle, rate, wire_bytes)
    }

    /// What the unshaped line delivered, as an accounting counts it.
    fn booked(&self, session: &Session, accounting: &Accounting) -> Rate {
        self.before.measured.booked(accounting, session.packet_bytes(), self.before.capacity.packets_per_s())
    }

    /// The lowest upload rate that is too much without trying.
    fn upload_cap(&self, session: &mut Session) -> Rate {
        let capacity = self.booked(session, &self.link.accounting);
        let Some(sync) = session.facts.sync_up else { return capacity };
        // Without any overhead at all: what certainly went over the wire.
        let bare = Accounting { overhead: 0, mpu: 0, ..self.link.accounting };
        let at_least = self.booked(session, &bare);
        if at_least > sync {
            let text = format!("{at_least} got through, more than the sync of {sync}: not this line's");
            session.doubt("sync-mismatch", text);
            session.facts.sync_up = None;
            return capacity;
        }
        let counted_too_much = capacity.ratio(self.booked(session, &self.link.certain));
        let fits = sync.times(session.facts.link.framing_share() * counted_too_much);
        let measured = self.link.link.source == LinkSource::Measured;
        if capacity < fits.times(if measured { SHAPED_BELOW } else { SHAPED_BELOW_UNMEASURED }) {
            session.facts.sync_up = None;
            session.note(&format!("the line drains {capacity} of {sync} sync: the provider shapes below it"));
        }
        capacity.min(fits)
    }

    /// The highest download rate worth trying: each flow needs room for a packet in each round trip to find its
    /// rate again (CAKE's author: 8 · 1500 bytes · flows / RTT), and never less than five per cent.
    fn download_top(&self, session: &Session) -> Rate {
        let capacity = self.booked(session, &self.link.accounting);
        let rtt = session.idle.as_ref().map_or(0.0, |idle| idle.p50_ms / 1000.0).max(0.001);
        let per_flow = 8.0 * f64::from(session.packet_bytes()) / rtt;
        let room = (per_flow * f64::from(session.load(Direction::Download).flows))
            .max(capacity.bits() as f64 * DOWNLOAD_MARGIN);
        // Half the line is kept in any case: a margin larger than that is a line too slow for so many flows.
        (capacity - Rate::from_bits(room as u64)).max(capacity.times(0.5))
    }

    fn explain(&self, session: &Session, so_far: &mut Progressed, highest: Rate) -> String {
        let capacity = self.booked(session, &self.link.accounting);
        let sync = so_far.shaped(self.direction).sync_kbit.map(Rate::from_kbit);
        let limit = match sync.filter(|_| self.direction == Direction::Upload && session.facts.sync_up.is_none()) {
            Some(sync) if capacity < sync => format!("; the provider shapes below the sync of {sync}"),
            _ => String::new(),
        };
        let condition = if self.policed {
            "that lost no packets".into()
        } else {
            format!("that added less than {}", self.bound(session, highest))
        };
        format!(
            "the highest rate {condition} was {highest}, {:.1} % of the {capacity} that the line drains; set 1 % below \
             it, since lines breathe{limit}",
            highest.ratio(capacity) * 100.0,
        )
    }
}

/// Why a search ended without a rate.
enum Searched {
    CpuFull { able: Rate },
    Halt(Halt),
}

impl From<Halt> for Searched {
    fn from(halt: Halt) -> Self {
        Self::Halt(halt)
    }
}

/// For the time left.
pub fn usual_time() -> Duration {
    lasting(3, SEARCH_USUALLY) + lasting(1, VERIFY)
}
