//! The rate of one direction: where to look, the search, and the trial of exactly what is recommended.

use super::before::{Before, quantiles};
use super::link;
use super::outcome::{Grade, LinkSource};
use super::search::Search;
use super::session::{Attempt, Ends, Halt, Session, lasting};
use super::verdict::{CLEAN_MS, CleanBound, Doubtful, Judge, Verdict};
use super::{Progressed, estimate::Measurement};
use crate::line::{Accounting, Cake, Shaping, Step};
use crate::units::{Direction, Rate, millis};
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
/// A shaper that leaves less of the download than this costs more than the delay that it saves.
const WORTH_THE_CPU: f64 = 0.75;
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

/// How a quest ended.
pub enum Sought {
    Setting(Cake),
    /// The router's CPU would take more away than shaping gains; in words.
    TooDear(String),
}

impl Quest<'_> {
    /// Finds the setting of this direction, and writes it into `so_far`.
    pub fn run(&self, session: &mut Session, so_far: &mut Progressed) -> Result<Sought, Halt> {
        let cap = self.cap(session);
        let mut search = match self.direction {
            Direction::Upload => Search::new(cap, session.facts.sync_up),
            // The rule of the margin says where to be; the verification, whether it holds.
            Direction::Download if self.verify => Search::believing(Self::download_top(session, cap)),
            Direction::Download => Search::from_top(Self::download_top(session, cap)),
        };
        for _ in 0..VERIFICATIONS {
            match self.find(session, so_far, &mut search) {
                Ok(Some(cake)) => return Ok(Sought::Setting(cake)),
                Ok(None) => {}
                Err(Searched::Halt(halt)) => return Err(halt),
                Err(Searched::CpuFull { able }) => {
                    let what = match self.direction {
                        Direction::Upload => "",
                        Direction::Download => " of the download",
                    };
                    session.doubt("cpu-bound", format!("the router's CPU can shape no more than {able}{what}"));
                    let unshaped = self.booked(session, &self.link.accounting);
                    if self.direction == Direction::Download && able < unshaped.times(WORTH_THE_CPU) {
                        return Ok(Sought::TooDear(format!(
                            "the router's CPU can shape only {able} of {unshaped}: that would cost more than it gains"
                        )));
                    }
                    search = Search::from_top(able.times(CPU_SHARE));
                }
            }
        }
        Err(Halt::inconclusive(
            "unsteady",
            "rates that were clean at first did not stay clean: the line changes while it is measured",
        ))
    }

    /// The search, and the verification of what it recommends. `None`: that did not hold.
    fn find(
        &self,
        session: &mut Session,
        so_far: &mut Progressed,
        search: &mut Search,
    ) -> Result<Option<Cake>, Searched> {
        let was_searched = search.next().is_some();
        let highest = self.search(session, search)?;
        session.still_to_come = Duration::ZERO;
        let recommended = Rate::from_kbit(highest.times(1.0 - MARGIN).kbit());
        let mut added_ms = None;
        if self.verify {
            let (measured, verdict) = self.verification(session, recommended)?;
            if !self.holds(&verdict) {
                session.note(&format!("{recommended} did not hold when watched longer: {verdict}; looking lower"));
                search.distrust(recommended);
                return Ok(None);
            }
            added_ms = measured.added_p95_ms;
            self.keep(session, so_far, &measured);
        } else {
            session.doubt("unverified", format!("{recommended} was not watched for longer, as asked"));
        }
        let why = match self.direction {
            Direction::Upload => self.explain(session, so_far, highest),
            Direction::Download => self.explain_download(session, so_far, recommended, added_ms),
        };
        let shaped = so_far.shaped(self.direction);
        shaped.highest_clean_kbit = was_searched.then(|| highest.kbit());
        shaped.kbit = Some(recommended.kbit());
        shaped.why = why;
        Ok(Some(self.cake(recommended)))
    }

    /// Good enough? An upload has to be certainly clean. A download is shaped behind its bottleneck, where lowering the
    /// rate further gains next to nothing once the queue is gone: there it takes a certain bloat to go lower.
    fn holds(&self, verdict: &Verdict) -> bool {
        match (self.direction, verdict) {
            (_, Verdict::Clean { .. }) => true,
            (_, Verdict::Bloated(_)) => false,
            (direction, Verdict::Inconclusive(_)) => direction == Direction::Download,
        }
    }

    fn keep(&self, session: &Session, so_far: &mut Progressed, measured: &Measurement) {
        let (quantiles, grade) = (quantiles(measured), measured.added_p95_ms.map(Grade::of));
        if self.direction == Direction::Download && session.plan().wants_upload() {
            (so_far.latency.both, so_far.latency.grade_both) = (quantiles, grade);
        } else {
            (so_far.latency.tuned, so_far.latency.grade_after) = (quantiles, grade);
        }
    }

    fn search(&self, session: &mut Session, search: &mut Search) -> Result<Rate, Searched> {
        while let Some(rate) = search.next() {
            let more = search.expected_trials().saturating_sub(1);
            session.still_to_come = lasting(more, SEARCH_USUALLY) + lasting(1, VERIFY);
            let attempt = Attempt {
                step: Step::Search,
                setting: session.setting.with(self.direction, Shaping::Cake(self.cake(rate))),
                loads: vec![session.load(self.direction)],
                duration: SEARCH,
                ends: Ends::OnceCertain,
            };
            let (_, verdict) = self.trial(session, &attempt, self.bound(session, rate))?;
            search.learn(self.holds(&verdict));
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

    /// Exactly what is recommended, for longer. A download together with the upload, as it will be.
    fn verification(&self, session: &mut Session, rate: Rate) -> Result<(Measurement, Verdict), Searched> {
        let mut attempt = Attempt {
            step: Step::Verify,
            setting: session.setting.with(self.direction, Shaping::Cake(self.cake(rate))),
            loads: vec![session.load(self.direction)],
            duration: VERIFY,
            ends: Ends::UnlessClean,
        };
        let mut bound = self.bound(session, rate);
        if self.direction == Direction::Download && session.plan().wants_upload() {
            attempt.loads.push(session.load(Direction::Upload));
            bound = Self::bound_of_both(session, bound);
        }
        self.trial(session, &attempt, bound)
    }

    /// One shaped trial. A verdict of its own that proves nothing halts, but for being unsure or short of CPU.
    fn trial(
        &self,
        session: &mut Session,
        attempt: &Attempt,
        bound: CleanBound,
    ) -> Result<(Measurement, Verdict), Searched> {
        let idle = session.idle.clone().unwrap_or_default();
        let judge = Judge { bound, idle: &idle, packet_bytes: session.packet_bytes(), policed: self.policed };
        let (measured, verdict) = session.run(attempt, &judge)?;
        match verdict {
            Verdict::Inconclusive(Doubtful::CpuBound { throughput, .. }) => Err(Searched::CpuFull { able: throughput }),
            // Two loads at once compete: for the acknowledgements' way up, for the server.
            Verdict::Inconclusive(Doubtful::LoadLimited { .. }) if attempt.loads.len() > 1 => Ok((measured, verdict)),
            Verdict::Inconclusive(Doubtful::Unsure { .. }) | Verdict::Clean { .. } | Verdict::Bloated(_) => {
                Ok((measured, verdict))
            }
            Verdict::Inconclusive(why) => Err(Halt::from(why).into()),
        }
    }

    /// On a slow line a packet takes the longer, the lower the rate.
    fn bound(&self, session: &Session, rate: Rate) -> CleanBound {
        let idle = session.idle.clone().unwrap_or_default();
        let wire_bytes = self.link.accounting.wire_bytes(session.packet_bytes());
        // What comes in can only be shaped behind its bottleneck: a packet of each flow may stand there at once.
        let packets = if self.direction == Direction::Download { session.load(self.direction).flows } else { 1 };
        CleanBound::new(session.plan().max_added_ms, &idle, rate, wire_bytes * packets)
    }

    /// Each direction may add what it may add alone; and before a probe goes up there may be, beside the upload's packet,
    /// a turn of each flow's acknowledgements, which together are about as long.
    fn bound_of_both(session: &Session, alone: CleanBound) -> CleanBound {
        let upload = session.setting.upload.cake().map_or(Duration::ZERO, |cake| {
            cake.rate.time_for(2 * u64::from(cake.accounting.wire_bytes(session.packet_bytes())))
        });
        CleanBound { ms: alone.ms + millis(upload).max(CLEAN_MS), ..alone }
    }

    /// What the unshaped line delivered, as an accounting counts it.
    fn booked(&self, session: &Session, accounting: &Accounting) -> Rate {
        self.before.measured.booked(accounting, session.packet_bytes(), self.before.capacity.packets_per_s())
    }

    /// The lowest rate that is too much without trying.
    fn cap(&self, session: &mut Session) -> Rate {
        let capacity = self.booked(session, &self.link.accounting);
        let Some(sync) = *session.facts.sync(self.direction) else { return capacity };
        // Without any overhead at all: what certainly went over the wire.
        let bare = Accounting { overhead: 0, mpu: 0, ..self.link.accounting };
        let at_least = self.booked(session, &bare);
        if at_least > sync {
            let text = format!("{at_least} got through, more than the sync of {sync}: not this line's");
            session.doubt("sync-mismatch", text);
            *session.facts.sync(self.direction) = None;
            return capacity;
        }
        let counted_too_much = capacity.ratio(self.booked(session, &self.link.certain));
        let fits = sync.times(session.facts.link.framing_share() * counted_too_much);
        let measured = self.link.link.source == LinkSource::Measured;
        if capacity < fits.times(if measured { SHAPED_BELOW } else { SHAPED_BELOW_UNMEASURED }) {
            *session.facts.sync(self.direction) = None;
            session.note(&format!("the line drains {capacity} of {sync} sync: the provider shapes below it"));
        }
        capacity.min(fits)
    }

    /// The highest download rate worth trying.
    fn download_top(session: &Session, fits: Rate) -> Rate {
        let rtt_ms = session.idle.as_ref().map_or(0.0, |idle| idle.p50_ms);
        let flows = session.load(Direction::Download).flows;
        // Half the line is kept in any case: a margin larger than that is a line too slow for so many flows.
        (fits - download_room(fits, flows, session.packet_bytes(), rtt_ms)).max(fits.times(0.5))
    }

    fn explain(&self, session: &Session, so_far: &mut Progressed, highest: Rate) -> String {
        let capacity = self.booked(session, &self.link.accounting);
        let condition = if self.policed {
            "that lost no packets".into()
        } else {
            format!("that added less than {}", self.bound(session, highest))
        };
        format!(
            "the highest rate {condition} was {highest}, {:.1} % of the {capacity} that the line drains; set 1 % below \
             it, since lines breathe{}",
            highest.ratio(capacity) * 100.0,
            self.shaped_below(session, so_far, capacity),
        )
    }

    fn explain_download(
        &self,
        session: &Session,
        so_far: &mut Progressed,
        recommended: Rate,
        added_ms: Option<f64>,
    ) -> String {
        let capacity = self.booked(session, &self.link.accounting);
        let trouble = match self.before.measured.added_p95_ms {
            _ if self.policed => "drops what is too much unshaped".into(),
            added => format!("adds {:.1} ms unshaped", added.unwrap_or_default()),
        };
        let watched = match added_ms {
            Some(ms) if session.plan().wants_upload() => format!("; with both directions busy it then adds {ms:.1} ms"),
            Some(ms) => format!("; busy it then adds {ms:.1} ms"),
            None => String::new(),
        };
        format!(
            "{trouble}; {recommended} is {:.1} % of the {capacity} that the line drains: what comes in is shaped behind \
             its bottleneck and needs that room to keep the queue there empty{watched}{}",
            recommended.ratio(capacity) * 100.0,
            self.shaped_below(session, so_far, capacity),
        )
    }

    fn shaped_below(&self, session: &Session, so_far: &mut Progressed, capacity: Rate) -> String {
        let believed = match self.direction {
            Direction::Upload => session.facts.sync_up,
            Direction::Download => session.facts.sync_down,
        };
        match so_far.shaped(self.direction).sync_kbit.map(Rate::from_kbit) {
            Some(sync) if believed.is_none() && capacity < sync => {
                format!("; the provider shapes below the sync of {sync}")
            }
            _ => String::new(),
        }
    }
}

/// What a download's shaper leaves free: each flow needs room for a packet in each round trip to find its rate again
/// (CAKE's author: 8 · 1500 bytes · flows / RTT), and never less than [`DOWNLOAD_MARGIN`].
fn download_room(fits: Rate, flows: u32, packet_bytes: u32, rtt_ms: f64) -> Rate {
    let each = 8.0 * f64::from(packet_bytes) / (rtt_ms.max(1.0) / 1000.0);
    Rate::from_bits((each * f64::from(flows)) as u64).max(fits.times(DOWNLOAD_MARGIN))
}

/// Why a rate was not found.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A published case: 80 Mbit/s, 8 flows, 20 ms: 4.8 Mbit/s, which is more than five per cent.
    #[test]
    fn a_download_leaves_more_room_for_more_flows_and_shorter_paths() {
        let room = |kbit, flows, rtt_ms| download_room(Rate::from_kbit(kbit), flows, 1500, rtt_ms).kbit();
        assert_eq!(room(80_000, 8, 20.0), 4_800);
        assert_eq!(room(80_000, 8, 40.0), 4_000);
        assert_eq!(room(80_000, 1, 20.0), 4_000);
        assert_eq!(room(8_000, 1, 80.0), 400);
    }
}
