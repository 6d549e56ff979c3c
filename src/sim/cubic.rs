//! How a TCP sender's window grows and shrinks: CUBIC with HyStart as Linux has it, and Reno.
//!
//! After RFC 9438 and the behaviour of `net/ipv4/tcp_cubic.c` (Linux 6.1), whose constants are cited.

/// The congestion window, in segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub size: u32,
    pub threshold: u32,
    counted: u32,
}

/// RFC 6928.
const INITIAL_WINDOW: u32 = 10;

impl Default for Window {
    fn default() -> Self {
        Self { size: INITIAL_WINDOW, threshold: u32::MAX, counted: 0 }
    }
}

impl Window {
    pub fn in_slow_start(&self) -> bool {
        self.size < self.threshold
    }

    /// Returns the acknowledged segments that slow start had no use for.
    fn slow_start(&mut self, acked: u32) -> u32 {
        let grown = self.size.saturating_add(acked).min(self.threshold);
        let used = grown - self.size;
        self.size = grown;
        acked - used
    }

    /// One segment more for every `per` acknowledged.
    fn avoid_congestion(&mut self, per: u32, acked: u32) {
        let per = per.max(1);
        if self.counted >= per {
            self.counted = 0;
            self.size += 1;
        }
        self.counted += acked;
        self.size += self.counted / per;
        self.counted %= per;
    }
}

/// What one acknowledgement brought.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    pub now_ns: u64,
    pub acked: u32,
    pub rtt_ns: Option<u64>,
    /// First unacknowledged segment, and the next new one.
    pub una: u32,
    pub next: u32,
}

#[derive(Clone, Debug)]
pub enum Congestion {
    Cubic(Cubic),
    Reno,
}

impl Congestion {
    /// Every acknowledgement's round-trip time, in any state.
    pub fn on_rtt(&mut self, window: &mut Window, progress: &Progress) {
        if let Self::Cubic(cubic) = self {
            cubic.on_rtt(window, progress);
        }
    }

    /// New data was acknowledged, nothing is being repaired and the window was in full use.
    pub fn grow(&mut self, window: &mut Window, progress: &Progress) {
        let mut acked = progress.acked;
        if window.in_slow_start() {
            acked = window.slow_start(acked);
        }
        if acked == 0 {
            return;
        }
        let per = match self {
            Self::Cubic(cubic) => cubic.acked_per_segment(window.size, acked, progress.now_ns),
            Self::Reno => window.size,
        };
        window.avoid_congestion(per, acked);
    }

    /// The threshold after a loss.
    pub fn on_loss(&mut self, window: &Window) -> u32 {
        match self {
            Self::Cubic(cubic) => cubic.on_loss(window.size),
            Self::Reno => (window.size / 2).max(2),
        }
    }

    /// A timeout: forget what was learnt about the path.
    pub fn on_timeout(&mut self) {
        if let Self::Cubic(cubic) = self {
            *cubic = Cubic { delay_min_ns: cubic.delay_min_ns, ..Cubic::default() };
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Cubic {
    last_max: u32,
    epoch_ns: Option<u64>,
    origin: u32,
    k_s: f64,
    per: u32,
    acked: u32,
    reno_window: u32,
    last_window: u32,
    last_ns: u64,
    delay_min_ns: Option<u64>,
    hystart: HyStart,
}

/// β = 717/1024 and C = 0.4, as in `tcp_cubic.c`.
const BETA: f64 = 717.0 / 1024.0;
const C: f64 = 0.4;
/// Reno with β grows one segment in so many windows: 8·(1024+β)/3/(1024−β), in eighths.
const RENO_EIGHTHS: u32 = 15;
const NS: f64 = 1e9;

impl Cubic {
    fn on_loss(&mut self, window: u32) -> u32 {
        self.epoch_ns = None;
        // Fast convergence: a flow that lost ground makes room for new ones.
        self.last_max =
            if window < self.last_max { (f64::from(window) * f64::midpoint(1.0, BETA)) as u32 } else { window };
        ((f64::from(window) * BETA) as u32).max(2)
    }

    fn acked_per_segment(&mut self, window: u32, acked: u32, now_ns: u64) -> u32 {
        self.acked += acked;
        if self.last_window == window && now_ns.saturating_sub(self.last_ns) <= 1_000_000_000 / 32 {
            return self.per;
        }
        self.last_window = window;
        self.last_ns = now_ns;
        let epoch_ns = *self.epoch_ns.get_or_insert_with(|| {
            self.acked = acked;
            self.reno_window = window;
            self.origin = self.last_max.max(window);
            self.k_s = (f64::from(self.origin - window) / C).cbrt();
            now_ns
        });
        // Where the curve will be one round trip from now.
        let t_s = (now_ns - epoch_ns + self.delay_min_ns.unwrap_or(0)) as f64 / NS - self.k_s;
        let aim = f64::from(self.origin) + C * t_s.powi(3);
        let ahead = aim.floor() - f64::from(window);
        let mut per = if ahead >= 1.0 { (f64::from(window) / ahead) as u32 } else { 100 * window };
        if self.last_max == 0 {
            per = per.min(20);
        }
        // The Reno-friendly region.
        let step = (window * RENO_EIGHTHS) >> 3;
        while self.acked > step {
            self.acked -= step;
            self.reno_window += 1;
        }
        if self.reno_window > window {
            per = per.min(window / (self.reno_window - window));
        }
        self.per = per.max(2);
        self.per
    }

    fn on_rtt(&mut self, window: &mut Window, progress: &Progress) {
        let Some(rtt_ns) = progress.rtt_ns else { return };
        // The first second after a loss says nothing about the path.
        if self.epoch_ns.is_some_and(|epoch_ns| progress.now_ns - epoch_ns < 1_000_000_000) {
            return;
        }
        let delay_min_ns = self.delay_min_ns.map_or(rtt_ns, |least| least.min(rtt_ns));
        self.delay_min_ns = Some(delay_min_ns);
        if window.in_slow_start()
            && window.size >= HyStart::LEAST_WINDOW
            && self.hystart.should_leave(progress, rtt_ns, delay_min_ns)
        {
            window.threshold = window.size;
        }
    }
}

/// Leaves slow start before it loses: when a round's acknowledgements span half the path, or its delay climbs.
#[derive(Clone, Debug, Default)]
struct HyStart {
    round_end: u32,
    round_began_ns: u64,
    last_ack_ns: u64,
    least_rtt_ns: Option<u64>,
    samples: u32,
    found: bool,
}

impl HyStart {
    const LEAST_WINDOW: u32 = 16;
    const TRAIN_GAP_NS: u64 = 2_000_000;
    const SAMPLES: u32 = 8;
    const DELAY_RISE_NS: (u64, u64) = (4_000_000, 16_000_000);

    fn should_leave(&mut self, progress: &Progress, rtt_ns: u64, delay_min_ns: u64) -> bool {
        if self.found {
            return false;
        }
        if progress.una > self.round_end {
            *self = Self {
                round_end: progress.next,
                round_began_ns: progress.now_ns,
                last_ack_ns: progress.now_ns,
                ..Self::default()
            };
        }
        if progress.now_ns - self.last_ack_ns <= Self::TRAIN_GAP_NS {
            self.last_ack_ns = progress.now_ns;
            self.found |= progress.now_ns - self.round_began_ns > delay_min_ns / 2;
        }
        let least_ns = self.least_rtt_ns.map_or(rtt_ns, |least| least.min(rtt_ns));
        self.least_rtt_ns = Some(least_ns);
        if self.samples < Self::SAMPLES {
            self.samples += 1;
        } else {
            let rise_ns = (delay_min_ns / 8).clamp(Self::DELAY_RISE_NS.0, Self::DELAY_RISE_NS.1);
            self.found |= least_ns > delay_min_ns + rise_ns;
        }
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A path of `rtt_ms` whose sender is never short of data: the window after each round trip.
    fn grow(congestion: &mut Congestion, window: &mut Window, rtt_ms: u64, rounds: u64) -> Vec<u32> {
        let mut una = 0;
        (0..rounds)
            .map(|round| {
                let end = una + window.size;
                while una < end {
                    let acked = 2.min(end - una);
                    una += acked;
                    let now_ns = (round + 1) * rtt_ms * MS;
                    let progress = Progress { now_ns, acked, rtt_ns: Some(rtt_ms * MS), una, next: end };
                    congestion.grow(window, &progress);
                }
                window.size
            })
            .collect()
    }

    #[test]
    fn slow_start_doubles_and_reno_adds_one() {
        let (mut reno, mut window) = (Congestion::Reno, Window::default());
        assert_eq!(grow(&mut reno, &mut window, 10, 3), [20, 40, 80]);
        window.threshold = reno.on_loss(&window);
        window.size = window.threshold;
        assert_eq!(grow(&mut reno, &mut window, 10, 3), [41, 42, 43]);
    }

    #[test]
    fn cubic_returns_to_its_plateau_in_k_seconds_and_goes_on() {
        let (mut cubic, mut window) = (Congestion::Cubic(Cubic::default()), Window::default());
        window.size = 1000;
        window.threshold = cubic.on_loss(&window);
        assert_eq!(window.threshold, 700);
        window.size = 700;
        // K = cbrt(300 / 0.4) = 9.09 s: 91 rounds of 100 ms.
        let sizes = grow(&mut cubic, &mut window, 100, 150);
        assert!((985..=1000).contains(&sizes[80]), "{}", sizes[80]);
        assert!((998..=1006).contains(&sizes[95]), "{}", sizes[95]);
        assert!((1050..1120).contains(&sizes[149]), "{}", sizes[149]);
    }

    #[test]
    fn on_short_paths_cubic_is_as_fast_as_reno() {
        let (mut cubic, mut window) = (Congestion::Cubic(Cubic::default()), Window::default());
        window.size = 30;
        window.threshold = cubic.on_loss(&window);
        window.size = window.threshold;
        let sizes = grow(&mut cubic, &mut window, 12, 40);
        // One segment in 15/8 windows.
        assert!((38..=44).contains(&sizes[39]), "{sizes:?}");
    }

    #[test]
    fn hystart_leaves_when_the_delay_climbs() {
        let mut cubic = Cubic::default();
        let mut window = Window { size: 32, ..Window::default() };
        let mut left_at_ms = None;
        for round in 0..8u64 {
            for ack in 0..10u32 {
                let rtt_ms = 20 + 2 * round;
                let una = round as u32 * 32 + ack;
                let now_ns = (1000 + round * 100 + u64::from(ack) * 5) * MS;
                cubic.on_rtt(
                    &mut window,
                    &Progress { now_ns, acked: 1, rtt_ns: Some(rtt_ms * MS), una, next: una + 32 },
                );
                if !window.in_slow_start() {
                    left_at_ms.get_or_insert(rtt_ms);
                }
            }
        }
        // Twenty milliseconds and the least rise of four, seen in eight samples of a round.
        assert!(matches!(left_at_ms, Some(26..=28)), "{left_at_ms:?}");
    }
}
