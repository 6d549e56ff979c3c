//! What a calibration is doing right now, on stderr: one line that is rewritten on a terminal, one plain line
//! for each trial in a pipe.

use super::style::{self, Style, Tint};
use super::trials;
use super::words::{self, bare_ms, clean, grouped, kbit};
use crate::calibration::observer::{Observer, Progress};
use crate::calibration::outcome::TrialRecord;
use crate::line::{Cake, Facts, LinkType, Step, Trial};
use crate::units::Direction;
use std::collections::VecDeque;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Often enough to look alive, seldom enough for a slow SSH session.
const REWRITE_EVERY: Duration = Duration::from_millis(100);
/// Readings in the small curve.
const CURVE: usize = 10;

pub struct View<W: Write> {
    out: W,
    style: Style,
    /// Columns of the terminal; `None`: a pipe.
    terminal: Option<usize>,
    trial: Option<Running>,
    rewritten: Option<Instant>,
    /// Known once the calibration has started.
    pub link: Option<LinkType>,
}

struct Running {
    words: String,
    left: Duration,
    delays: VecDeque<f64>,
}

/// On stderr, as it is.
pub fn on_stderr() -> View<std::io::Stderr> {
    let stderr = std::io::stderr();
    let style = Style::of(&stderr);
    let terminal = (stderr.is_terminal() && !style::dumb()).then(style::width);
    View::new(stderr, style, terminal)
}

impl<W: Write> View<W> {
    fn new(out: W, style: Style, terminal: Option<usize>) -> Self {
        Self { out, style, terminal, trial: None, rewritten: None, link: None }
    }

    /// A line that stays. Nobody reading stderr any more is no reason to stop.
    fn say(&mut self, text: &str) {
        self.clear();
        let _ = writeln!(self.out, "{text}");
    }

    fn clear(&mut self) {
        if self.rewritten.take().is_some() {
            let _ = write!(self.out, "\r\x1b[2K");
            let _ = self.out.flush();
        }
    }

    fn rewrite(&mut self, progress: &Progress) {
        let (Some(width), Some(trial)) = (self.terminal, &mut self.trial) else { return };
        if let Some(delay) = progress.added_now_ms.or(progress.rtt_now_ms) {
            if trial.delays.len() == CURVE {
                trial.delays.pop_front();
            }
            trial.delays.push_back(delay);
        }
        if self.rewritten.is_some_and(|before| before.elapsed() < REWRITE_EVERY) {
            return;
        }
        let line: String = moment(trial, progress, self.style).chars().take(width.saturating_sub(1)).collect();
        let _ = write!(self.out, "\r\x1b[2K{}", self.style.paint(Tint::Bold, &line));
        let _ = self.out.flush();
        self.rewritten = Some(Instant::now());
    }
}

impl<W: Write> Observer for View<W> {
    fn starts(&mut self, facts: &Facts) {
        self.link = Some(facts.link);
        let sync = match (facts.sync_up, facts.sync_down) {
            (None, None) => "The modem's rates are not known".into(),
            (up, down) => {
                let rate = |rate: Option<crate::units::Rate>| rate.map_or("?".into(), |rate| grouped(rate.kbit()));
                format!("Modem: {} kbit/s up, {} down", rate(up), rate(down))
            }
        };
        self.say(&format!("{} ({}). {sync}.", clean(&facts.name), words::link(facts.link)));
        self.say(&format!(
            "Load goes to {}; pings go to {}.",
            clean(&facts.server),
            clean(&facts.reflectors.join(", "))
        ));
    }

    fn trial_begins(&mut self, trial: &Trial, left: Duration) {
        self.trial = Some(Running { words: doing(trial), left, delays: VecDeque::new() });
        // The first line of a trial shows at once.
        self.rewritten = self.rewritten.and_then(|before| before.checked_sub(REWRITE_EVERY));
        self.rewrite(&Progress::default());
    }

    fn progress(&mut self, progress: &Progress) {
        self.rewrite(progress);
    }

    fn trial_ends(&mut self, record: &TrialRecord) {
        self.trial = None;
        if self.terminal.is_none() {
            self.say(&trials::sentence(record));
        }
    }

    fn note(&mut self, text: &str) {
        self.say(&clean(text));
    }
}

/// The rewritten line goes; what follows starts on a clean one. In a panic too.
impl<W: Write> Drop for View<W> {
    fn drop(&mut self) {
        self.clear();
    }
}

/// The step in words.
pub fn doing(trial: &Trial) -> String {
    let loaded = trial.loads.first();
    let shaper = loaded.and_then(|load| match load.direction {
        Direction::Upload => trial.upload.cake(),
        Direction::Download => trial.download.cake(),
    });
    let rate = shaper.map_or_else(|| "the line".into(), |cake| kbit(cake.rate.kbit()));
    let words = match trial.step {
        Step::Baseline => "the idle line".into(),
        Step::Unshaped if shaper.is_none() && loaded.is_some_and(|load| load.direction == Direction::Download) => {
            "the download without a limit".into()
        }
        Step::Unshaped if shaper.is_none() => "the line without a limit".into(),
        Step::Unshaped => format!("the line at {rate}"),
        Step::Link => {
            format!("packets of {} bytes", loaded.map_or(0, |load| load.mss + 40))
        }
        Step::Confirm => format!("overhead at {rate}"),
        Step::Search => format!("trying {rate}"),
        Step::Target => format!("a target of {}", target(shaper)),
        Step::Acks => {
            let with = if shaper.is_some_and(|cake| cake.ack_filter) { "with" } else { "without" };
            format!("acknowledgements {with} a filter")
        }
        Step::Verify if trial.loads.len() > 1 => "both directions at once".into(),
        Step::Verify => format!("checking {rate}"),
    };
    format!("{}. {words}", trial.number)
}

fn target(shaper: Option<&Cake>) -> String {
    shaper.map_or_else(|| "?".into(), |cake| format!("{} ms", cake.target().as_millis()))
}

fn moment(trial: &Running, progress: &Progress, style: Style) -> String {
    let delay = match (progress.added_now_ms, progress.rtt_now_ms) {
        (Some(added), _) if added >= 0.0 => format!("+{} ms", bare_ms(added)),
        (Some(delay), _) | (None, Some(delay)) => format!("{} ms", bare_ms(delay)),
        (None, None) => String::new(),
    };
    let curve = if style.utf8 { curve(&trial.delays) } else { String::new() };
    let through = match progress.throughput_kbit {
        0 => String::new(),
        rate => kbit(rate),
    };
    let left = trial.left.saturating_sub(progress.at).as_secs();
    let (minutes, seconds) = (left / 60, left % 60);
    format!("{:<28} {delay:>9} {curve:<CURVE$}  {through:>15}  {minutes}:{seconds:02} left", trial.words)
}

/// The last delays as a row of bars, logarithmic up to 200 ms.
fn curve(delays: &VecDeque<f64>) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    delays.iter().map(|delay| BARS[((delay.max(0.0).ln_1p() / 200_f64.ln_1p() * 8.0) as usize).min(7)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::sample;
    use crate::line::{Accounting, Cells, Load, Origin, Shaping};
    use crate::units::{Direction, Rate};

    fn facts() -> Facts {
        Facts {
            name: "sim:vdsl2-pppoe".into(),
            link: LinkType::PppoeVdsl2,
            sync_up: Some(Rate::from_kbit(18_000)),
            sync_down: None,
            mtu: 1500,
            reflectors: vec!["a".into(), "b\x1b[2J".into()],
            witness: None,
            server: "a simulated server".into(),
            caveats: Vec::new(),
        }
    }

    fn search() -> Trial {
        let accounting = Accounting { overhead: 38, mpu: 84, cells: Cells::None };
        Trial {
            number: 4,
            step: Step::Search,
            upload: Shaping::Cake(Cake::new(Rate::from_kbit(17_100), accounting)),
            download: Shaping::Unshaped,
            loads: vec![Load { direction: Direction::Upload, flows: 4, mss: 1460, origin: Origin::Local }],
            reflectors: vec![0, 1],
            probe_interval: Duration::from_millis(50),
            duration: Duration::from_secs(6),
        }
    }

    fn watched(terminal: Option<usize>, style: Style) -> String {
        let mut out = Vec::new();
        let mut view = View::new(&mut out, style, terminal);
        view.starts(&facts());
        view.trial_begins(&search(), Duration::from_secs(34));
        view.progress(&Progress {
            at: Duration::from_secs(2),
            added_now_ms: Some(1.8),
            rtt_now_ms: Some(14.7),
            throughput_kbit: 16_552,
        });
        view.note("trial 4 is repeated");
        view.trial_ends(&sample::tuned().trials[3]);
        drop(view);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_pipe_gets_one_plain_line_for_each_trial() {
        assert_eq!(
            watched(None, Style::PLAIN),
            "sim:vdsl2-pppoe (VDSL2 with PPPoE). Modem: 18,000 kbit/s up, ? down.\n\
             Load goes to a simulated server; pings go to a, b [2J.\n\
             trial 4 is repeated\n\
             trial 4: search at 17,100 kbit/s, 16,552 kbit/s through, 1.8 ms added, clean\n"
        );
    }

    #[test]
    fn a_terminal_gets_one_line_that_is_rewritten_and_cleared() {
        let shown = watched(Some(60), Style { colour: false, utf8: true });
        let rewrites: Vec<_> = shown.split("\r\x1b[2K").collect();
        assert!(rewrites[1].starts_with("4. trying 17,100 kbit/s"), "{shown:?}");
        assert!(rewrites[1..].iter().all(|line| line.lines().next().unwrap_or("").chars().count() < 60), "{shown:?}");
        assert!(rewrites.last().unwrap().starts_with("trial 4 is repeated\n"), "{shown:?}");
        assert!(!shown.contains("16,552 kbit/s through, 1.8"), "{shown:?}");
    }

    #[test]
    fn a_moment_shows_delay_throughput_and_time_left() {
        let trial = Running { words: doing(&search()), left: Duration::from_secs(34), delays: [0.0, 199.0].into() };
        let progress = Progress {
            at: Duration::from_secs(2),
            added_now_ms: Some(1.8),
            rtt_now_ms: Some(14.7),
            throughput_kbit: 16_552,
        };
        let style = Style { colour: false, utf8: true };
        assert_eq!(
            moment(&trial, &progress, style),
            "4. trying 17,100 kbit/s        +1.8 ms ▁█            16,552 kbit/s  0:32 left"
        );
        assert!(moment(&trial, &progress, Style::PLAIN).is_ascii());
    }
}
