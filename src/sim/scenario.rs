//! The truth about a line, as a file tells it. The agent never sees it; the simulated line and the kernel lab do.

use super::lines;
use super::mistake::{self, ScenarioError};
use crate::line::{Accounting, Cells, LinkType};
use crate::units::{Direction, Rate};
use serde::Deserialize;
use std::path::Path;

/// Each key is described in `contract.md`, "Line scenario". What is left out has its neutral value.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    pub name: String,
    #[serde(default)]
    pub about: String,
    /// What chance starts from, unless the user says otherwise.
    #[serde(default)]
    pub seed: u64,
    #[serde(default)]
    pub router: RouterTruth,
    pub upload: LinkRate,
    #[serde(default = "LinkRate::unlimited")]
    pub download: LinkRate,
    #[serde(default)]
    pub path: PathTruth,
    #[serde(default)]
    pub household: Household,
    /// Left out: four healthy ones.
    #[serde(default = "healthy_reflectors", rename = "reflector")]
    pub reflectors: Vec<ReflectorTruth>,
}

/// What the router knows, and can do.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RouterTruth {
    /// 0: unknown.
    pub sync_up_kbit: u64,
    pub sync_down_kbit: u64,
    pub link: LinkType,
    /// The most CAKE can shape, both directions together; 0: any rate.
    pub shaper_cpu_kbit: u64,
}

/// One direction's bottleneck.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LinkRate {
    /// Drained, counted with the overhead and cells below.
    pub rate_kbit: u64,
    /// Bytes per IP packet.
    pub overhead: u32,
    pub cell: Cells,
    /// Drop-tail FIFO, in bytes at `rate_kbit`.
    pub buffer_ms: f64,
    /// >0: that FIFO counts packets instead.
    pub buffer_packets: u32,
    /// >0: that FIFO has an AQM with this target.
    pub aqm_ms: f64,
    /// >0: no FIFO, a token bucket of so many times 1000 wire bytes that drops.
    pub policer_burst_kb: f64,
    /// Up to this while a credit of `(burst_kbit - rate_kbit) * burst_s` lasts.
    pub burst_kbit: u64,
    pub burst_s: f64,
    /// Each packet waits for its grant, 0 to this, in parallel, in order.
    pub grant_ms: f64,
    pub changes: Vec<RateChange>,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateChange {
    /// Seconds of the line's life.
    pub at_s: f64,
    pub rate_kbit: u64,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PathTruth {
    /// The IP packet of a full-size segment.
    pub mtu: u32,
    pub rtt_ms: f64,
    /// Mean of an exponential tail on each round trip.
    pub jitter_ms: f64,
    /// Per packet and direction, 0 to 1.
    pub loss: f64,
    /// What becomes of pings.
    pub icmp: Icmp,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Icmp {
    /// They queue like everybody.
    #[default]
    Fair,
    /// They go ahead of the upload's queue.
    First,
    Blocked,
}

/// Traffic that is not ours.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Household {
    pub upload: Vec<Habit>,
    pub download: Vec<Habit>,
}

/// Someone at home, from then until then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Habit {
    /// Seconds of the line's life.
    pub from_s: f64,
    pub to_s: f64,
    /// IP bytes; of TCP, the most it wants (0: all it can get).
    pub kbit: u64,
    /// TCP flows; 0: a steady stream that nobody answers.
    pub flows: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReflectorTruth {
    pub name: String,
    #[serde(default)]
    pub extra_ms: f64,
    #[serde(default)]
    pub loss: f64,
    /// >0: answers at most this many pings a second.
    #[serde(default)]
    pub limit_per_s: u32,
    /// >0: stops answering.
    #[serde(default)]
    pub silent_from_s: f64,
    /// Answers TCP handshakes, as the load server does, not pings.
    #[serde(default)]
    pub tcp: bool,
}

impl Scenario {
    /// # Errors
    /// Names the file and what cannot be read of it.
    pub fn from_file(path: &Path) -> Result<Self, ScenarioError> {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|error| ScenarioError::Unreadable { file: file.clone(), cause: error.to_string() })?;
        Self::parse(&file, &text)
    }

    /// # Errors
    /// Names the key, its line in `file`, and what to write instead.
    pub fn parse(file: &str, text: &str) -> Result<Self, ScenarioError> {
        mistake::parse(file, text)
    }

    /// A line that ships.
    pub fn builtin(name: &str) -> Option<Self> {
        lines::SHIPPED.iter().find(|(shipped, _)| *shipped == name).map(|(name, text)| {
            Self::parse(name, text).unwrap_or_else(|error| unreachable!("a test reads every shipped line: {error}"))
        })
    }

    /// The lines that ship: name and `about`.
    pub fn builtin_names() -> Vec<(String, String)> {
        let about = |name: &str| Self::builtin(name).map(|scenario| scenario.about).unwrap_or_default();
        lines::SHIPPED.iter().map(|(name, _)| ((*name).to_owned(), about(name))).collect()
    }

    pub fn link(&self, direction: Direction) -> &LinkRate {
        match direction {
            Direction::Upload => &self.upload,
            Direction::Download => &self.download,
        }
    }

    /// The highest CAKE rate, with that accounting, that full-size packets do not overrun the bottleneck with.
    pub fn fits(&self, direction: Direction, accounting: &Accounting) -> Rate {
        let link = self.link(direction);
        let here = f64::from(link.accounting().wire_bytes(self.path.mtu));
        Rate::from_kbit(link.rate_kbit).times(f64::from(accounting.wire_bytes(self.path.mtu)) / here)
    }
}

impl LinkRate {
    pub fn accounting(&self) -> Accounting {
        Accounting { overhead: self.overhead as i32, mpu: 0, cells: self.cell }
    }

    /// What a direction that is left out has.
    fn unlimited() -> Self {
        Self { rate_kbit: 1_000_000, ..Self::default() }
    }
}

impl Default for LinkRate {
    fn default() -> Self {
        Self {
            rate_kbit: 0,
            overhead: 0,
            cell: Cells::None,
            buffer_ms: 0.0,
            buffer_packets: 0,
            aqm_ms: 0.0,
            policer_burst_kb: 0.0,
            burst_kbit: 0,
            burst_s: 0.0,
            grant_ms: 0.0,
            changes: Vec::new(),
        }
    }
}

impl Default for RouterTruth {
    fn default() -> Self {
        Self { sync_up_kbit: 0, sync_down_kbit: 0, link: LinkType::Unknown, shaper_cpu_kbit: 0 }
    }
}

impl Default for PathTruth {
    fn default() -> Self {
        Self { mtu: 1500, rtt_ms: 0.0, jitter_ms: 0.0, loss: 0.0, icmp: Icmp::Fair }
    }
}

fn healthy_reflectors() -> Vec<ReflectorTruth> {
    ["a", "b", "c", "d"].map(|name| ReflectorTruth { name: name.to_owned(), ..ReflectorTruth::default() }).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_neutral() {
        let scenario =
            Scenario::parse("f.toml", "name = \"x\"\n[upload]\nrate_kbit = 1000\n").expect("the least there is");
        assert_eq!(scenario.download.rate_kbit, 1_000_000);
        assert_eq!(scenario.router.link, LinkType::Unknown);
        assert_eq!(scenario.path, PathTruth { mtu: 1500, rtt_ms: 0.0, jitter_ms: 0.0, loss: 0.0, icmp: Icmp::Fair });
        assert_eq!(scenario.reflectors.len(), 4);
        assert_eq!(scenario.upload.cell, Cells::None);
    }

    #[test]
    fn what_fits_counts_both_accountings() {
        let scenario = Scenario::builtin("vdsl2-pppoe").expect("it ships");
        let frames = |overhead| Accounting { overhead, mpu: 84, cells: Cells::None };
        assert_eq!(scenario.fits(Direction::Upload, &frames(44)).kbit(), 17_838);
        assert_eq!(scenario.fits(Direction::Upload, &frames(34)).kbit(), 17_723);
        let ptm = Accounting { overhead: 34, mpu: 0, cells: Cells::Ptm };
        assert_eq!(scenario.fits(Direction::Upload, &ptm).kbit(), 17_723 * 1558 / 1534);
    }

    #[test]
    fn every_shipped_line_reads_and_says_what_it_is() {
        let names = Scenario::builtin_names();
        assert_eq!(names.len(), 12);
        for (name, about) in names {
            let scenario = Scenario::builtin(&name).expect("listed");
            assert_eq!(scenario.name, name);
            assert!(about.len() > 20, "{name}: {about}");
            assert_eq!(scenario.path.mtu, 1500);
        }
        assert_eq!(Scenario::builtin("no-such-line"), None);
    }
}
