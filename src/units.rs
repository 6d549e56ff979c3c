//! Numbers that know their unit.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// A data rate. People, UCI and JSON speak kbit/s (1000 bit/s); inside we keep bit/s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Rate {
    bits_per_second: u64,
}

impl Rate {
    pub const fn from_bits(bits_per_second: u64) -> Self {
        Self { bits_per_second }
    }

    pub const fn from_kbit(kbit: u64) -> Self {
        Self::from_bits(kbit * 1000)
    }

    pub const fn bits(self) -> u64 {
        self.bits_per_second
    }

    /// Rounded down, as `sync` and the UCI options want it: a rate is never made higher by rounding.
    pub const fn kbit(self) -> u64 {
        self.bits_per_second / 1000
    }

    pub fn times(self, factor: f64) -> Self {
        Self::from_bits((self.bits_per_second as f64 * factor).round() as u64)
    }

    /// This rate as a share of `other`; 0 where `other` is zero.
    pub fn ratio(self, other: Self) -> f64 {
        if other.bits_per_second == 0 { 0.0 } else { self.bits_per_second as f64 / other.bits_per_second as f64 }
    }

    /// How long `bytes` take at this rate. A zero rate never delivers.
    pub fn time_for(self, bytes: u64) -> Duration {
        if self.bits_per_second == 0 {
            return Duration::MAX;
        }
        Duration::from_nanos((bytes as u128 * 8_000_000_000 / self.bits_per_second as u128) as u64)
    }

    /// What it moves in this time, bytes.
    pub fn bytes_in(self, time: Duration) -> u64 {
        (self.bits_per_second as f64 / 8.0 * time.as_secs_f64()) as u64
    }

    /// What so many bytes in so much time amount to. No time, no rate.
    pub fn of(bytes: f64, time: Duration) -> Self {
        let seconds = time.as_secs_f64();
        if seconds <= 0.0 { Self::default() } else { Self::from_bits((bytes * 8.0 / seconds).round() as u64) }
    }
}

impl Add for Rate {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self::from_bits(self.bits_per_second + other.bits_per_second)
    }
}

/// Saturates at zero: there is no negative rate.
impl Sub for Rate {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self::from_bits(self.bits_per_second.saturating_sub(other.bits_per_second))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} kbit/s", self.kbit())
    }
}

/// As a person sees it from home.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    Upload,
    Download,
}

impl Direction {
    pub fn other(self) -> Self {
        match self {
            Self::Upload => Self::Download,
            Self::Download => Self::Upload,
        }
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Upload => "upload",
            Self::Download => "download",
        })
    }
}

pub const MILLISECOND: Duration = Duration::from_millis(1);

/// Milliseconds with their fraction, as reports and statistics use them.
pub fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_times_a_time_is_a_number_of_bytes() {
        assert_eq!(Rate::from_kbit(12_000).time_for(1500), MILLISECOND);
        assert_eq!(Rate::of(1500.0, MILLISECOND), Rate::from_kbit(12_000));
        assert_eq!(Rate::default().time_for(1), Duration::MAX);
        assert_eq!(Rate::of(1500.0, Duration::ZERO), Rate::default());
    }

    #[test]
    fn kbit_rounds_down() {
        assert_eq!(Rate::from_bits(17_999_999).kbit(), 17_999);
    }
}
