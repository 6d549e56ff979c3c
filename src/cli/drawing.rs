//! Drawings as geometry, in a frame of a fixed size: whoever shows one only has to put the parts where they say.
//!
//! Pure: points go in, places come out.

use super::watch::Tried;
use super::words::{bare_ms, grouped, ms};
use crate::calibration::outcome::{Latency, VerdictWord};
use serde::Serialize;

/// Near a phone's width, so that letters are legible there without being scaled.
const WIDTH: f64 = 340.0;
const HEIGHT: f64 = 170.0;
const LEFT: f64 = 34.0;
const RIGHT: f64 = 8.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 22.0;
/// Room at the right for trials without a limit.
const UNLIMITED: f64 = 80.0;
const DELAY_TICKS: [f64; 10] = [0.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 2000.0];

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Drawing {
    pub width: f64,
    pub height: f64,
    /// For those who cannot see it.
    pub text: String,
    /// Horizontal lines with a label at the left.
    pub rows: Vec<Tick>,
    /// Labels below.
    pub columns: Vec<Tick>,
    /// Where clean ends.
    pub bound: Option<f64>,
    /// Where the chosen rate is.
    pub chosen: Option<f64>,
    /// Points of one line: `x,y x,y`.
    pub curve: String,
    pub points: Vec<Mark>,
    pub bars: Vec<Bar>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tick {
    pub at: f64,
    pub text: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Mark {
    pub x: f64,
    pub y: f64,
    pub kind: VerdictWord,
    pub last: bool,
    pub text: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bar {
    pub name: &'static str,
    pub x: f64,
    pub y: f64,
    pub width: f64,
    pub text: String,
}

/// The added delay since the beginning, the last minute or so of it.
pub fn over_time(delays: &[(f64, f64)]) -> Option<Drawing> {
    let ((first, _), (last, now)) = (*delays.first()?, *delays.last()?);
    let up = Scale::delays(delays.iter().map(|(_, ms)| *ms));
    let across = Scale::linear(first, last.max(first + 10.0), WIDTH - RIGHT - 12.0);
    let points = delays.iter().map(|(at, ms)| format!("{},{}", across.at(*at), up.at(*ms)));
    let most = delays.iter().map(|(_, ms)| *ms).fold(0.0, f64::max);
    Some(Drawing {
        text: format!("Added delay over time: now {}, at most {} since {first:.0} s", ms(now), ms(most)),
        columns: [first, f64::midpoint(first, last), last]
            .map(|at| Tick { at: across.at(at), text: format!("{at:.0} s") })
            .into(),
        curve: points.collect::<Vec<_>>().join(" "),
        ..Drawing::with_rows(&up)
    })
}

/// The added delay of every rate that was tried.
pub fn against_rate(tried: &[Tried], clean_below_ms: Option<f64>, chosen_kbit: Option<u64>) -> Option<Drawing> {
    let last = tried.last()?.n;
    let chosen = chosen_kbit.filter(|kbit| *kbit > 0);
    let rates = || tried.iter().filter_map(|trial| trial.kbit).chain(chosen);
    let (low, high) = (rates().min().unwrap_or(0), rates().max().unwrap_or(0));
    // Never so narrow that two trials a kbit apart look like day and night.
    let missing = (high / 20).max(1).saturating_sub(high - low).div_ceil(2);
    let (low, high) = (low.saturating_sub(missing), high + missing);
    let room = if tried.iter().any(|trial| trial.kbit.is_none()) { UNLIMITED } else { 0.0 };
    let across = Scale::linear(low as f64, high as f64, WIDTH - RIGHT - room - 14.0);
    let up = Scale::delays(tried.iter().map(|trial| trial.added_ms).chain(clean_below_ms.map(|bound| bound * 1.5)));
    let x = |kbit: Option<u64>| kbit.map_or(WIDTH - RIGHT - UNLIMITED / 2.0, |kbit| across.at(kbit as f64));
    let mut columns = Vec::new();
    if rates().next().is_some() {
        let ticks = [low, u64::midpoint(low, high), high];
        columns.extend(ticks.map(|kbit| Tick { at: x(Some(kbit)), text: grouped(kbit) }));
    }
    if room > 0.0 {
        columns.push(Tick { at: x(None), text: "no limit".into() });
    }
    let points: Vec<_> = tried
        .iter()
        .map(|trial| {
            let rate = trial.kbit.map_or_else(|| "no limit".into(), |kbit| format!("{} kbit/s", grouped(kbit)));
            Mark {
                x: x(trial.kbit),
                y: up.at(trial.added_ms),
                kind: trial.verdict,
                last: trial.n == last,
                text: format!("{rate}: {} added, {}", ms(trial.added_ms), word(trial.verdict)),
            }
        })
        .collect();
    let all = points.iter().map(|point| point.text.as_str()).collect::<Vec<_>>().join("; ");
    Some(Drawing {
        text: format!("Added delay of each rate tried. {all}"),
        columns,
        bound: clean_below_ms.map(|bound| up.at(bound)),
        chosen: chosen.map(|kbit| x(Some(kbit))),
        points,
        ..Drawing::with_rows(&up)
    })
}

/// Where half and where 95 % of the replies lie: idle, busy as it was, busy as it will be.
pub fn before_and_after(latency: &Latency) -> Option<Drawing> {
    let kinds = [("idle", latency.idle), ("before", latency.unshaped), ("after", latency.tuned)];
    let kinds: Vec<_> = kinds.into_iter().filter_map(|(name, found)| Some((name, found?))).collect();
    let most = kinds.iter().map(|(_, found)| found.p95).reduce(f64::max)?;
    let ticks: Vec<_> = DELAY_TICKS.into_iter().filter(|tick| *tick <= most * 1.3).collect();
    let across =
        Scale { low: 0.0, high: most.max(1.0).ln_1p(), start: LEFT + 20.0, end: WIDTH - RIGHT - 14.0, log: true };
    let bars = kinds.iter().enumerate().map(|(n, (name, found))| Bar {
        name,
        x: across.at(found.p50),
        y: TOP + 8.0 + n as f64 * 30.0,
        width: round((across.at(found.p95) - across.at(found.p50)).max(3.0)),
        text: format!("{} to {} ms", bare_ms(found.p50), bare_ms(found.p95)),
    });
    let bars: Vec<_> = bars.collect();
    let words = bars.iter().map(|bar| format!("{}: {}", bar.name, bar.text)).collect::<Vec<_>>().join("; ");
    let mut columns: Vec<Tick> = Vec::new();
    for tick in ticks {
        let at = across.at(tick);
        if columns.last().is_none_or(|last| at - last.at > 24.0) && at <= WIDTH - RIGHT {
            columns.push(Tick { at, text: format!("{tick:.0}") });
        }
    }
    Some(Drawing {
        width: WIDTH,
        height: TOP + 30.0 * bars.len() as f64 + BOTTOM + 8.0,
        text: format!("Round-trip times, median to 95 %. {words}"),
        columns,
        bars,
        ..Drawing::default()
    })
}

impl Drawing {
    fn with_rows(up: &Scale) -> Self {
        let mut rows: Vec<Tick> = Vec::new();
        for tick in DELAY_TICKS {
            let at = up.at(tick);
            if at >= TOP && rows.last().is_none_or(|last| last.at - at > 14.0) {
                rows.push(Tick { at, text: format!("{tick:.0}") });
            }
        }
        Self { width: WIDTH, height: HEIGHT, rows, ..Self::default() }
    }
}

fn word(verdict: VerdictWord) -> &'static str {
    match verdict {
        VerdictWord::Clean => "clean",
        VerdictWord::Bloated => "bloated",
        VerdictWord::Inconclusive => "cannot tell",
        VerdictWord::None => "not judged",
    }
}

/// Values to places.
struct Scale {
    low: f64,
    high: f64,
    start: f64,
    end: f64,
    log: bool,
}

impl Scale {
    /// Logarithmic, from zero at the bottom.
    fn delays(delays: impl Iterator<Item = f64>) -> Self {
        let most = delays.fold(10.0, f64::max);
        Self { low: 0.0, high: most.ln_1p(), start: HEIGHT - BOTTOM, end: TOP, log: true }
    }

    fn linear(low: f64, high: f64, end: f64) -> Self {
        Self { low, high, start: LEFT + 8.0, end, log: false }
    }

    fn at(&self, value: f64) -> f64 {
        let value = if self.log { value.max(0.0).ln_1p() } else { value };
        let share = (value - self.low) / (self.high - self.low).max(f64::MIN_POSITIVE);
        round(self.start + share * (self.end - self.start))
    }
}

fn round(place: f64) -> f64 {
    (place * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::sample;
    use crate::units::Direction;

    fn tried(n: u32, kbit: Option<u64>, added_ms: f64, verdict: VerdictWord) -> Tried {
        Tried { n, direction: Direction::Upload, kbit, added_ms, verdict }
    }

    #[test]
    fn every_part_lies_within_the_frame_and_a_worse_delay_lies_higher() {
        let points = [
            tried(1, None, 167.0, VerdictWord::Bloated),
            tried(2, Some(17_100), 1.8, VerdictWord::Clean),
            tried(3, Some(17_720), 31.0, VerdictWord::Bloated),
            tried(4, Some(17_410), -2.0, VerdictWord::Clean),
        ];
        let drawing = against_rate(&points, Some(6.0), Some(17_236)).unwrap();
        let [free, low, high, below] = &drawing.points[..] else { panic!("{drawing:?}") };
        assert!(free.y < high.y && high.y < drawing.bound.unwrap() && drawing.bound.unwrap() < low.y);
        assert!(low.x < drawing.chosen.unwrap() && drawing.chosen.unwrap() < high.x && high.x < free.x);
        assert!(below.last && !high.last);
        for point in &drawing.points {
            assert!((LEFT..=WIDTH).contains(&point.x) && (TOP..=HEIGHT - BOTTOM).contains(&point.y), "{point:?}");
        }
        assert!(drawing.text.contains("17,720 kbit/s: 31.0 ms added, bloated"), "{}", drawing.text);
    }

    /// In a common font of the page's 11 px a digit is 7 wide, and what else is there about 5.
    #[test]
    fn the_labels_below_keep_apart() {
        for kbit in [1_200, 17_100, 110_000, 2_300_000] {
            let points = [tried(1, None, 9.0, VerdictWord::Bloated), tried(2, Some(kbit), 1.8, VerdictWord::Clean)];
            let columns = against_rate(&points, None, None).unwrap().columns;
            let wide = |c: char| if c.is_ascii_digit() { 7.0 } else { 5.0 };
            let half = |tick: &Tick| tick.text.chars().map(wide).sum::<f64>() / 2.0;
            for pair in columns.windows(2) {
                assert!(pair[0].at + half(&pair[0]) < pair[1].at - half(&pair[1]), "{kbit}: {pair:?}");
            }
            assert!(
                columns[0].at - half(&columns[0]) >= 0.0 && columns[3].at + half(&columns[3]) <= WIDTH,
                "{columns:?}"
            );
        }
    }

    #[test]
    fn nothing_gives_no_drawing_and_one_reading_gives_one() {
        assert_eq!(over_time(&[]), None);
        assert_eq!(against_rate(&[], None, None), None);
        assert_eq!(before_and_after(&Latency::default()), None);
        let one = over_time(&[(0.2, 3.0)]).unwrap();
        assert!(!one.curve.contains("NaN"), "{one:?}");
        let one = against_rate(&[tried(1, None, 0.0, VerdictWord::Clean)], None, None).unwrap();
        assert_eq!(one.columns.len(), 1);
    }

    #[test]
    fn a_bar_reaches_from_the_median_to_the_tail() {
        let drawing = before_and_after(&sample::tuned().latency).unwrap();
        let [idle, before, after] = &drawing.bars[..] else { panic!("{drawing:?}") };
        assert!(before.x > after.x && after.x >= idle.x, "{drawing:?}");
        assert!(drawing.bars.iter().all(|bar| bar.width >= 3.0 && bar.x + bar.width <= WIDTH));
        assert!(after.y + 30.0 < drawing.height);
    }
}
