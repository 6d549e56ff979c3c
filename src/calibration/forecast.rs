//! What a calibration will probably cost, by the rates that are known: for the question before it starts, and to leave
//! out in good time what a data cap has no room for.

use super::before::UNSHAPED;
use super::rate::VERIFY;
use super::session::{Halt, Session};
use super::verdict::MIN_BLOCKS;
use super::{Plan, Wish, acks, extent, link};
use crate::line::{Facts, Step};
use crate::units::Rate;
use std::time::Duration;

/// What is given up first when a cap has no room for everything: CAKE's usual target is good, a download that is left
/// alone does no harm, the link type's usual overhead is safe. A rate that nobody watched would be none.
const LEFT_OUT_FIRST: [(Wish, &str); 4] = [
    (Wish::Target, "the target is not compared"),
    (Wish::Confirm, "the overhead is not confirmed"),
    (Wish::Download, "the download is left as it is"),
    (Wish::Link, "the overhead is not measured"),
];
/// Of the target's trials: two loads, a pair each, unless the first ones promise something.
const TARGET: (u32, Duration) = (4, Duration::from_secs(5));
/// Of the link's and the confirmation's trials.
const LINK: u32 = 2;
const CONFIRM: u32 = 3;
/// Rates tried before one is found, unless the line surprises.
const SEARCHED: u32 = 3;
/// Beside the payload of one direction the other one carries its acknowledgements, and some of it is sent twice.
const BESIDE: f64 = 1.05;

/// What two directions that are loaded at once carry of what each carries alone, less the room of the download's shaper.
const TOGETHER: f64 = 0.8;

/// Seconds under load, and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Forecast {
    pub load: Duration,
    pub upload_bytes: u64,
    pub download_bytes: u64,
}

impl Forecast {
    /// All of it; `None` where a rate that matters is not known.
    pub fn of(plan: &Plan, facts: &Facts) -> Option<Self> {
        let rates = Rates { up: plan.sync_up.or(facts.sync_up), down: plan.sync_down.or(facts.sync_down) };
        let known = (rates.up.is_some() || !plan.wants_upload()) && (rates.down.is_some() || !plan.wants_download());
        known.then(|| rates.forecast(|wish| plan.wants(wish), plan.wants_upload(), plan.wants_download(), false))
    }

    pub fn bytes(&self) -> u64 {
        self.upload_bytes + self.download_bytes
    }

    fn add(&mut self, trials: u32, each: Duration, up: Rate, down: Rate) {
        let bytes = |rate: Rate| (rate.bits() as f64 / 8.0 * each.as_secs_f64() * f64::from(trials) * BESIDE) as u64;
        self.load += each * trials;
        self.upload_bytes += bytes(up);
        self.download_bytes += bytes(down);
    }
}

/// Leaves out steps until what is still to come has room under the user's cap; the upload's first load may be over.
pub fn make_room(session: &mut Session, unshaped_done: bool) -> Result<(), Halt> {
    let Some(left) = session.budget_left() else { return Ok(()) };
    let rates = Rates { up: session.line_rate.or(session.facts.sync_up), down: session.facts.sync_down };
    let upload = session.plan().wants_upload();
    if rates.up.is_none() && upload {
        return Ok(());
    }
    let needed = |session: &Session, but: Option<Wish>| {
        let download = session.wants_download() && but != Some(Wish::Download);
        let wants = |wish| session.wants(wish) && but != Some(wish);
        rates.forecast(wants, upload, download, unshaped_done).bytes()
    };
    for (wish, text) in LEFT_OUT_FIRST {
        let all = needed(session, None);
        let is_all_there_is = wish == Wish::Download && !upload;
        if all > left && needed(session, Some(wish)) < all && !is_all_there_is {
            session.leave_out(wish, &format!("{text}: the data allowed has no room for it (--max-mbytes)"));
        }
    }
    has_room(needed(session, None), left)
}

/// Is there room for the verification of a download that carries `down`?
pub fn make_room_for_download(session: &Session, down: Rate) -> Result<(), Halt> {
    let up = session.line_rate.filter(|_| session.plan().wants_upload()).unwrap_or_default();
    let mut verification = Forecast::default();
    verification.add(1, extent::expected(Step::Verify, VERIFY, up + down), up, down);
    session.budget_left().map_or(Ok(()), |left| has_room(verification.bytes(), left))
}

fn has_room(needed: u64, left: u64) -> Result<(), Halt> {
    if needed <= left {
        return Ok(());
    }
    let (needed, left) = (needed.div_ceil(1_000_000), left / 1_000_000);
    let text =
        format!("it takes about {needed} MB more, and {left} MB of those allowed are left: --max-mbytes allows more");
    Err(Halt::inconclusive("data-cap", text))
}

/// What is known of the line; an unknown rate counts as none.
struct Rates {
    up: Option<Rate>,
    down: Option<Rate>,
}

impl Rates {
    fn forecast(&self, wants: impl Fn(Wish) -> bool, upload: bool, download: bool, unshaped_done: bool) -> Forecast {
        let (up, down, none) = (self.up.unwrap_or_default(), self.down.unwrap_or_default(), Rate::default());
        let mut all = Forecast::default();
        let decided = |rate| extent::SETTLE + extent::block(rate) * MIN_BLOCKS as u32;
        if upload {
            let whole = |step, longest| extent::expected(step, longest, up);
            if !unshaped_done {
                all.add(1, whole(Step::Unshaped, UNSHAPED), up, none);
            }
            let steps = [
                (Wish::Link, LINK, whole(Step::Link, link::EACH)),
                (Wish::Confirm, CONFIRM, decided(up)),
                (Wish::Search, SEARCHED, decided(up)),
                (Wish::Target, TARGET.0, TARGET.1),
                (Wish::Verify, 1, whole(Step::Verify, VERIFY)),
            ];
            for (wish, trials, each) in steps {
                if wants(wish) && (wish == Wish::Link || wish == Wish::Confirm || wants(Wish::Search)) {
                    all.add(trials, each, up, none);
                }
            }
        }
        if download {
            all.add(1, extent::expected(Step::Unshaped, UNSHAPED, down), none, down);
            let up = if upload { up } else { none };
            let (up_too, down_too) = (up.times(TOGETHER), down.times(TOGETHER));
            all.add(1, extent::expected(Step::Verify, VERIFY, up + down), up_too, down_too);
            if let Some((trials, each)) = acks::trials(up, down).filter(|_| upload) {
                all.add(trials, each, up_too, down_too);
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::LinkType;
    use crate::units::Direction;

    fn facts(up: u64, down: u64) -> Facts {
        let known = |kbit| (kbit > 0).then(|| Rate::from_kbit(kbit));
        Facts {
            name: "pppoe-wan".into(),
            link: LinkType::PppoeVdsl2,
            sync_up: known(up),
            sync_down: known(down),
            mtu: 1492,
            reflectors: Vec::new(),
            server: "speed.example.net".into(),
            witness: None,
            caveats: Vec::new(),
        }
    }

    #[test]
    fn a_rate_that_is_not_known_cannot_be_forecast() {
        let both = Plan { direction: None, steps: Wish::ALL.map(|(_, wish)| wish).to_vec(), ..Plan::default() };
        assert_eq!(Forecast::of(&both, &facts(18_000, 0)), None);
        assert_eq!(Forecast::of(&both, &facts(0, 67_000)), None);
        assert!(Forecast::of(&both, &facts(18_000, 67_000)).is_some());
        let upload = Plan { direction: Some(Direction::Upload), ..both.clone() };
        let forecast = Forecast::of(&upload, &facts(18_000, 0)).unwrap();
        assert_eq!(forecast.download_bytes, 0);
        assert!(forecast.upload_bytes > 0);
        let told = Plan { sync_down: Some(Rate::from_kbit(67_000)), ..both };
        assert!(Forecast::of(&told, &facts(18_000, 0)).is_some());
    }

    #[test]
    fn a_line_ten_times_as_fast_costs_little_more() {
        let both = Plan { steps: vec![Wish::Download, Wish::Verify], ..Plan::default() };
        let bytes = |down| Forecast::of(&both, &facts(18_000, down)).unwrap().download_bytes / 1_000_000;
        assert!((100..140).contains(&bytes(67_000)), "{}", bytes(67_000));
        assert!((300..450).contains(&bytes(670_000)), "{}", bytes(670_000));
    }
}
