//! The outcome: settings, evidence and reasons. Its JSON is what everything reads (`format` 1).
//!
//! Rates are kbit/s, delays ms, sizes bytes. A value that was not determined is `null`; a rate of 0 means "do not shape".

use crate::line::{Cells, Step};
use crate::units::Direction;
use serde::{Deserialize, Serialize};

pub const FORMAT: u32 = 1;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    pub format: u32,
    /// Version of the agent that wrote it.
    pub agent: String,
    pub id: String,
    /// `sim:NAME` or the device.
    pub line: String,
    /// RFC 3339, UTC.
    pub started: String,
    pub outcome: Status,
    /// Why it is not `tuned`; `None` where it is.
    pub reason: Option<String>,
    pub upload: Shaped,
    pub download: Shaped,
    pub link: Link,
    pub target: Target,
    /// `None`: not looked at.
    #[serde(default)]
    pub ack_filter: Option<AckFilter>,
    pub latency: Latency,
    pub cost: Cost,
    pub doubts: Vec<Doubt>,
    pub trials: Vec<TrialRecord>,
    /// The `config queue` section that would be written; `None` where nothing would.
    pub uci: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// There are settings, and a trial of exactly these was clean.
    Tuned,
    /// The line is good as it is.
    Unneeded,
    /// Measured as asked, nothing recommended: `measure`, or steps without a search.
    Graded,
    /// Measured, but not to be relied on.
    Inconclusive,
    /// Broke off.
    Failed,
    /// Not started: something must be put right first.
    Refused,
}

/// One direction. All rates are counted with the accounting of [`Link`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Shaped {
    /// What to set.
    pub kbit: Option<u64>,
    pub sync_kbit: Option<u64>,
    /// What the bottleneck drains.
    pub capacity_kbit: Option<u64>,
    pub highest_clean_kbit: Option<u64>,
    /// The added delay (p95) below which a trial counts as clean.
    pub clean_below_ms: Option<f64>,
    pub why: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Link {
    pub layer: Layer,
    pub overhead: Option<i32>,
    pub overhead_low: Option<i32>,
    pub overhead_high: Option<i32>,
    pub mpu: u32,
    pub source: LinkSource,
    /// For `/etc/config/sqm`: `ethernet` or `atm`.
    pub write_layer: Layer,
    pub write_overhead: i32,
    pub write_mpu: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layer {
    Ethernet,
    Atm,
    Ptm,
    Unknown,
}

impl From<Cells> for Layer {
    fn from(cells: Cells) -> Self {
        match cells {
            Cells::None => Self::Ethernet,
            Cells::Atm => Self::Atm,
            Cells::Ptm => Self::Ptm,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkSource {
    Measured,
    #[serde(rename = "link type")]
    LinkType,
    User,
    Default,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Target {
    pub target_ms: Option<f64>,
    pub rtt_ms: Option<f64>,
    pub decided_by: TargetSource,
    pub why: String,
    pub trials: Vec<TargetTrial>,
}

/// CAKE's `ack-filter` on the upload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AckFilter {
    pub recommended: bool,
    pub why: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TargetSource {
    Measured,
    #[serde(rename = "too slow")]
    TooSlow,
    Skipped,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TargetTrial {
    pub target_ms: f64,
    pub flows: u32,
    pub goodput_kbit: u64,
    /// What CAKE says its packets waited.
    pub queue_ms: f64,
    /// The flows' own round trips, and the sparse probe's.
    pub flows_ms: f64,
    pub probe_p95_ms: f64,
    /// Packets that CAKE dropped while it was judged.
    pub drops: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    pub idle: Option<Quantiles>,
    pub unshaped: Option<Quantiles>,
    pub tuned: Option<Quantiles>,
    /// Both directions loaded at once under the final settings.
    pub both: Option<Quantiles>,
    pub grade_before: Option<Grade>,
    pub grade_after: Option<Grade>,
    pub grade_both: Option<Grade>,
}

/// Round-trip times.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    pub p50: f64,
    pub p95: f64,
}

/// Grades of added delay as bufferbloat tests give them: A+ below 5 ms, A 30, B 60, C 200, D 400, else F.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Grade {
    #[serde(rename = "A+")]
    APlus,
    A,
    B,
    C,
    D,
    F,
}

impl Grade {
    pub fn of(added_ms: f64) -> Self {
        match added_ms {
            ms if ms < 5.0 => Self::APlus,
            ms if ms < 30.0 => Self::A,
            ms if ms < 60.0 => Self::B,
            ms if ms < 200.0 => Self::C,
            ms if ms < 400.0 => Self::D,
            _ => Self::F,
        }
    }
}

impl std::fmt::Display for Grade {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::APlus => "A+",
            Self::A => "A",
            Self::B => "B",
            Self::C => "C",
            Self::D => "D",
            Self::F => "F",
        })
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    pub seconds: f64,
    /// Time in which the line was under our load.
    pub load_seconds: f64,
    /// IP bytes.
    pub upload_bytes: u64,
    pub download_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Doubt {
    pub code: String,
    pub text: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialRecord {
    pub n: u32,
    pub step: Step,
    pub shaper_kbit: Option<u64>,
    pub overhead: Option<i32>,
    pub flows: u32,
    pub mss: Option<u32>,
    /// `None`: the idle line.
    pub direction: Option<Direction>,
    /// Was the other direction loaded too?
    #[serde(default)]
    pub both: bool,
    pub seconds: f64,
    pub probe_p50_ms: Option<f64>,
    pub probe_p95_ms: Option<f64>,
    pub added_ms: Option<f64>,
    pub throughput_kbit: u64,
    pub packets_per_s: f64,
    /// Packets lost beyond those that our CAKE dropped, in per cent of the load's.
    pub lost_percent: f64,
    /// Did CAKE hold a queue for most of the trial? `None`: no CAKE of ours.
    pub backlog: Option<bool>,
    pub verdict: VerdictWord,
    /// The rule that decided, in words.
    pub why: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VerdictWord {
    /// Not judged: the idle line, or a trial for another purpose.
    None,
    Clean,
    Bloated,
    Inconclusive,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grades_change_at_their_limits() {
        assert_eq!(Grade::of(4.99), Grade::APlus);
        assert_eq!(Grade::of(5.0), Grade::A);
        assert_eq!(Grade::of(59.9), Grade::B);
        assert_eq!(Grade::of(199.9), Grade::C);
        assert_eq!(Grade::of(400.0), Grade::F);
        assert_eq!(serde_json::to_string(&Grade::APlus).unwrap(), "\"A+\"");
    }
}
