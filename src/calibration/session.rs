//! Runs trials, watches them, keeps the records: everything that each step of a calibration shares.

use super::estimate::{Measurement, Observation, PROBE_BYTES};
use super::extent;
use super::idle::Idle;
use super::observer::Observer;
use super::outcome::{Cost, Doubt, TrialRecord, VerdictWord};
use super::verdict::{Doubtful, Judge, Verdict};
use super::watcher::{Pace, Watcher};
use super::{Plan, Wish, verdict};
use crate::line::{Cake, Caveat, Facts, Line, LineError, Load, Origin, Seen, Shaping, Step, Trial};
use crate::units::{Direction, Rate};
use std::time::Duration;

/// Each reflector is asked at most this often: five a second is what public ones bear (facts G).
const PROBE_INTERVAL: Duration = Duration::from_millis(200);
/// Probes take no more than this share of a slow line: what they cost on the wire is only guessed …
const PROBE_SHARE: f64 = 0.01;
/// … but each reflector is asked at least this often.
const PROBE_INTERVAL_SLOW: Duration = Duration::from_secs(1);
/// Bulk flows: enough to fill a line, few enough for a small router.
const FLOWS: u32 = 4;
/// A trial that said nothing for a reason that may pass is run again this often.
const REPEATS: u32 = 2;
/// One look at the idle line on the watch for a quiet moment …
const LOOK: Duration = Duration::from_secs(5);
/// … and so long is waited for one in a whole calibration: longer than a page or a photo takes, shorter than a film.
const PATIENCE: Duration = Duration::from_secs(120);
/// A pause between trials: connections, netlink, the queue running empty.
const BETWEEN: Duration = Duration::from_secs(1);

/// Why a calibration ends before its last step.
#[derive(Debug)]
pub enum Halt {
    Line(LineError),
    Inconclusive(Doubt),
}

impl Halt {
    pub fn inconclusive(code: &str, text: impl Into<String>) -> Self {
        Self::Inconclusive(Doubt { code: code.into(), text: text.into() })
    }
}

impl From<LineError> for Halt {
    fn from(error: LineError) -> Self {
        match error {
            LineError::Disturbed { .. } => Self::inconclusive("disturbed", format!("{error}, and again when repeated")),
            other => Self::Line(other),
        }
    }
}

impl From<Doubtful> for Halt {
    fn from(why: Doubtful) -> Self {
        Self::inconclusive(why.code(), why.to_string())
    }
}

/// When a trial may end before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// When nothing can come of it any more.
    IfInvalid,
    /// As soon as the verdict is certain.
    OnceCertain,
    /// As soon as it is certainly not clean; a clean one is watched to its end.
    UnlessClean,
}

/// What shapes both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    pub upload: Shaping,
    pub download: Shaping,
}

impl Setting {
    pub fn with(self, direction: Direction, shaping: Shaping) -> Self {
        match direction {
            Direction::Upload => Self { upload: shaping, ..self },
            Direction::Download => Self { download: shaping, ..self },
        }
    }

    fn of(&self, direction: Direction) -> &Shaping {
        match direction {
            Direction::Upload => &self.upload,
            Direction::Download => &self.download,
        }
    }
}

/// What to try.
#[derive(Clone, Debug)]
pub struct Attempt {
    pub step: Step,
    pub setting: Setting,
    /// The first one's direction is the one that is judged.
    pub loads: Vec<Load>,
    pub duration: Duration,
    pub ends: Ends,
}

impl Attempt {
    /// The CAKE of ours in the judged direction.
    pub fn cake(&self) -> Option<&Cake> {
        self.setting.of(self.loads.first()?.direction).cake()
    }
}

/// The queue on the other side of the download's bottleneck: how long it gets, and what drains it.
#[derive(Clone, Copy, Debug)]
pub struct Provider {
    pub queue: Duration,
    pub drains: Rate,
}

pub struct Session<'a> {
    line: &'a mut dyn Line,
    plan: &'a Plan,
    observer: &'a mut dyn Observer,
    pub facts: Facts,
    /// What the line carries, once it has been measured.
    pub line_rate: Option<Rate>,
    /// What stands ahead of an unshaped download, once it has been measured.
    pub provider: Option<Provider>,
    /// Known after the baseline.
    pub idle: Option<Idle>,
    pub records: Vec<TrialRecord>,
    /// What has been found for each direction so far; the other direction of a trial has this.
    pub setting: Setting,
    pub doubts: Vec<Doubt>,
    pub cost: Cost,
    /// What the rest of the running step will probably take after the running trial.
    pub still_to_come: Duration,
    /// Steps of the plan that the data cap has no room for.
    left_out: Vec<Wish>,
    /// What the steps after the running one will probably take.
    pub later: Duration,
    /// Spent on waiting for a quiet moment.
    waited: Duration,
}

impl<'a> Session<'a> {
    pub fn new(line: &'a mut dyn Line, plan: &'a Plan, observer: &'a mut dyn Observer) -> Result<Self, LineError> {
        let mut facts = line.facts()?;
        facts.sync_up = plan.sync_up.or(facts.sync_up);
        facts.sync_down = plan.sync_down.or(facts.sync_down);
        observer.starts(&facts);
        let doubt = |caveat: &Caveat| Doubt { code: caveat.code.clone(), text: caveat.text.clone() };
        Ok(Self {
            doubts: facts.caveats.iter().map(doubt).collect(),
            line,
            plan,
            observer,
            facts,
            line_rate: None,
            provider: None,
            idle: None,
            records: Vec::new(),
            setting: Setting { upload: Shaping::AsIs, download: Shaping::AsIs },
            cost: Cost::default(),
            still_to_come: Duration::ZERO,
            left_out: Vec::new(),
            later: Duration::ZERO,
            waited: Duration::ZERO,
        })
    }

    pub fn plan(&self) -> &Plan {
        self.plan
    }

    /// Is this step asked for, and is there room for it?
    pub fn wants(&self, wish: Wish) -> bool {
        self.plan.wants(wish) && !self.left_out.contains(&wish)
    }

    pub fn wants_download(&self) -> bool {
        self.plan.wants_download() && !self.left_out.contains(&Wish::Download)
    }

    pub fn leave_out(&mut self, wish: Wish, why: &str) {
        self.left_out.push(wish);
        self.doubt("data-cap", why);
    }

    pub fn note(&mut self, text: &str) {
        self.observer.note(text);
    }

    pub fn doubt(&mut self, code: &str, text: impl Into<String>) {
        let text = text.into();
        self.observer.note(&text);
        self.doubts.push(Doubt { code: code.into(), text });
    }

    /// The packets of a full-size load on this line, IP bytes.
    pub fn packet_bytes(&self) -> u32 {
        self.facts.mtu
    }

    /// How often to ask each reflector, given what the line carries as far as that is known.
    pub fn probe_interval(&self) -> Duration {
        let reflectors = self.reflectors().len() as u32;
        let probe = self.facts.link.prior().wire_bytes(PROBE_BYTES);
        let affordable =
            self.line_rate.or(self.facts.sync_up).map(|r| r.times(PROBE_SHARE).time_for(u64::from(probe * reflectors)));
        affordable.unwrap_or_default().clamp(PROBE_INTERVAL, PROBE_INTERVAL_SLOW)
    }

    fn reflectors(&self) -> Vec<usize> {
        self.idle.as_ref().map_or_else(|| (0..self.facts.reflectors.len()).collect(), Idle::good)
    }

    /// A few bulk flows of full-size packets.
    pub fn load(&self, direction: Direction) -> Load {
        Load { direction, flows: FLOWS, mss: self.facts.mtu - 40, origin: Origin::Local }
    }

    /// The idle line, all reflectors.
    pub fn run_idle(&mut self, duration: Duration) -> Result<Observation, Halt> {
        let attempt = self.idle_attempt(duration);
        let observation = self.observe(&attempt, None)?;
        self.record(&attempt, &observation, &observation.measure(None), None);
        Ok(observation)
    }

    fn idle_attempt(&self, duration: Duration) -> Attempt {
        Attempt { step: Step::Baseline, setting: self.setting, loads: Vec::new(), duration, ends: Ends::IfInvalid }
    }

    /// A loaded trial. Repeats it when it was disturbed or says nothing for a reason that may pass.
    pub fn run(&mut self, attempt: &Attempt, judge: &Judge) -> Result<(Measurement, Verdict), Halt> {
        let conclude = |measured: &Measurement| judge.final_verdict(measured, attempt.cake());
        let (_, measured) = self.repeated(attempt, judge, |measured| Some(conclude(measured)))?;
        let verdict = conclude(&measured);
        Ok((measured, verdict))
    }

    /// A loaded trial whose verdict is not asked for; only one that proves nothing halts.
    pub fn run_unjudged(&mut self, attempt: &Attempt, judge: &Judge) -> Result<(Observation, Measurement), Halt> {
        let conclude = |measured: &Measurement| verdict::invalid(measured).map(Verdict::Inconclusive);
        let (observation, measured) = self.repeated(attempt, judge, conclude)?;
        match verdict::invalid(&measured) {
            Some(why) => Err(why.into()),
            None => Ok((observation, measured)),
        }
    }

    fn repeated(
        &mut self,
        attempt: &Attempt,
        judge: &Judge,
        conclude: impl Fn(&Measurement) -> Option<Verdict>,
    ) -> Result<(Observation, Measurement), Halt> {
        let mut repeats = 0;
        loop {
            let observation = match self.observe(attempt, Some(judge)) {
                Err(Halt::Line(LineError::Disturbed { what })) if repeats == 0 => {
                    repeats += 1;
                    self.note(&format!("{what} changed during the trial; repeating it"));
                    continue;
                }
                Err(Halt::Line(error)) => return Err(error.into()),
                other => other?,
            };
            let measured = observation.measure(self.idle.as_ref().or(Some(judge.idle)));
            let verdict = conclude(&measured);
            self.record(attempt, &observation, &measured, verdict.as_ref());
            self.quarantine(&measured.sick);
            match verdict {
                Some(Verdict::Inconclusive(why)) if why.worth_a_repeat() && repeats < REPEATS => {
                    repeats += 1;
                    self.note(&format!("{why}; repeating the trial"));
                    if let Doubtful::LineBusy { .. } = why {
                        let most = measured.throughput.times(verdict::MAX_FOREIGN);
                        self.await_quiet(observation.direction(), most)?;
                    }
                }
                _ => return Ok((observation, measured)),
            }
        }
    }

    /// Waits until others use less than `most` of a direction.
    fn await_quiet(&mut self, direction: Direction, most: Rate) -> Result<(), Halt> {
        loop {
            let attempt = self.idle_attempt(LOOK);
            let foreign = self.observe(&attempt, None)?.foreign(direction);
            if foreign < most {
                return Ok(());
            }
            self.be_patient(foreign, LOOK)?;
        }
    }

    /// The line was not quiet for so long; is there patience left to look again?
    pub fn be_patient(&mut self, foreign: Rate, looked: Duration) -> Result<(), Halt> {
        self.waited += looked;
        if self.waited >= PATIENCE {
            return Err(Doubtful::LineBusy { foreign }.into());
        }
        self.note(&format!("others use {foreign} of the line right now; waiting for a quiet moment"));
        Ok(())
    }

    fn observe(&mut self, attempt: &Attempt, judge: Option<&Judge>) -> Result<Observation, Halt> {
        let trial = self.trial(attempt);
        let budget = self.budget_left();
        if budget == Some(0) && !attempt.loads.is_empty() {
            return Err(out_of_budget(self.plan));
        }
        self.observer.trial_begins(&trial, attempt.duration + self.still_to_come + self.later);
        let settle = self.settle(attempt);
        let mut watcher = Watcher {
            observation: Observation::new(&trial).settling(settle),
            judge,
            idle: self.idle.as_ref(),
            attempt,
            budget,
            over_budget: false,
            observer: &mut *self.observer,
            pace: Pace::new(settle),
        };
        let ended = self.line.run(&trial, &mut |sample| watcher.see(sample));
        let Watcher { observation, over_budget, .. } = watcher;
        self.charge(&observation, attempt);
        ended.map_err(Halt::Line)?;
        if over_budget { Err(out_of_budget(self.plan)) } else { Ok(observation) }
    }

    /// What is left out at the beginning of a trial.
    fn settle(&self, attempt: &Attempt) -> Duration {
        let shaped = attempt
            .setting
            .download
            .cake()
            .filter(|_| attempt.loads.iter().any(|load| load.direction == Direction::Download));
        shaped.zip(self.provider).map_or(extent::SETTLE, |(cake, provider)| {
            extent::settle_behind(provider.queue, cake.rate.ratio(provider.drains))
        })
    }

    fn trial(&self, attempt: &Attempt) -> Trial {
        let mut reflectors = self.reflectors();
        if attempt.step == Step::Unshaped {
            reflectors.extend(self.idle.as_ref().and_then(Idle::witness).map(|witness| witness.reflector));
        }
        Trial {
            number: self.records.len() as u32 + 1,
            step: attempt.step,
            upload: attempt.setting.upload,
            download: attempt.setting.download,
            loads: attempt.loads.clone(),
            reflectors,
            probe_interval: self.probe_interval(),
            duration: attempt.duration,
        }
    }

    /// While the line is loaded, everybody's bytes count, since ours cannot be told from them to the byte; while it is
    /// only watched, none but the probes are ours.
    fn charge(&mut self, observation: &Observation, attempt: &Attempt) {
        let seconds = observation.at.as_secs_f64();
        self.cost.seconds += seconds + BETWEEN.as_secs_f64();
        let (up, down) = if attempt.loads.is_empty() {
            let probes = observation.probe_bytes();
            (probes, probes)
        } else {
            self.cost.load_seconds += seconds;
            observation.device_bytes()
        };
        self.cost.upload_bytes += up;
        self.cost.download_bytes += down;
    }

    /// Bytes that may still be moved; `None`: as many as it takes.
    pub fn budget_left(&self) -> Option<u64> {
        let spent = self.cost.upload_bytes + self.cost.download_bytes;
        self.plan.max_bytes.map(|max| max.saturating_sub(spent))
    }

    fn quarantine(&mut self, sick: &[usize]) {
        for &reflector in sick {
            if self.idle.as_mut().is_some_and(|idle| idle.quarantine(reflector)) {
                let name = self.facts.reflectors.get(reflector).cloned().unwrap_or_default();
                self.doubt("reflectors", format!("{name} went slow or silent while the others did not; left out"));
            }
        }
    }

    /// Judges by the second witness from now on.
    pub fn distrust_pings(&mut self) {
        if let Some(idle) = &mut self.idle {
            idle.hear_only_the_witness();
        }
        self.doubt(
            "icmp",
            "pings go ahead of other traffic on this line, so they do not show what it waits for: TCP handshakes with \
             the load server are timed instead",
        );
    }

    /// A load that could not come from behind the router behaves otherwise than a client's; said once.
    fn doubt_the_origin(&mut self, seen: &Observation) {
        let why = seen.samples.iter().find_map(|sample| match &sample.seen {
            Seen::NotForwarded { why } => Some(why.clone()),
            _ => None,
        });
        if let Some(why) = why.filter(|_| self.doubts.iter().all(|doubt| doubt.code != "local-load")) {
            self.doubt("local-load", format!("the load came from the router itself, not from behind it: {why}"));
        }
    }

    fn record(&mut self, attempt: &Attempt, seen: &Observation, m: &Measurement, verdict: Option<&Verdict>) {
        let cake = attempt.cake();
        let load = attempt.loads.first();
        let record = TrialRecord {
            n: self.records.len() as u32 + 1,
            step: attempt.step,
            shaper_kbit: cake.map(|c| c.rate.kbit()),
            overhead: cake.map(|c| c.accounting.overhead),
            flows: attempt.loads.iter().map(|load| load.flows).sum(),
            mss: load.map(|load| load.mss),
            direction: load.map(|load| load.direction),
            both: attempt.loads.iter().any(|other| load.is_some_and(|load| load.direction != other.direction)),
            seconds: tenths(seen.at.as_secs_f64()),
            probe_p50_ms: m.rtt_p50_ms.map(tenths),
            probe_p95_ms: m.rtt_p95_ms.map(tenths),
            added_ms: m.added_p95_ms.map(tenths),
            throughput_kbit: m.throughput.kbit(),
            packets_per_s: tenths(m.packets_per_s),
            lost_percent: (m.line_loss * 10_000.0).round() / 100.0,
            backlog: m.backlog_share.map(|share| share > 0.5),
            verdict: match verdict {
                None => VerdictWord::None,
                Some(Verdict::Clean { .. }) => VerdictWord::Clean,
                Some(Verdict::Bloated(_)) => VerdictWord::Bloated,
                Some(Verdict::Inconclusive(_)) => VerdictWord::Inconclusive,
            },
            why: verdict.map_or_else(
                || String::from(if load.is_none() { "the idle line" } else { "compared" }),
                ToString::to_string,
            ),
        };
        self.observer.trial_ends(&record);
        self.doubt_the_origin(seen);
        self.records.push(record);
    }
}

/// One decimal is what people and their clocks can use.
pub fn tenths(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

fn out_of_budget(plan: &Plan) -> Halt {
    let megabytes = plan.max_bytes.unwrap_or(0) / 1_000_000;
    Halt::inconclusive("data-cap", format!("the {megabytes} MB allowed are used up: allow more with --max-mbytes"))
}

/// How long so many more trials of this length will take.
pub fn lasting(trials: u32, each: Duration) -> Duration {
    (each + BETWEEN) * trials
}
