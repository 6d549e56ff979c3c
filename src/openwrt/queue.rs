//! A section of `/etc/config/sqm` as sqm-scripts take it, which is not always as it reads.

use super::uci::{Config, Section};
use crate::units::Direction;

/// What sqm-scripts shape with where a rate is absent (`defaults.sh`).
pub const MISSING_DOWNLOAD_KBIT: u64 = 14_698;
pub const MISSING_UPLOAD_KBIT: u64 = 2302;
/// Linux allows 15 bytes for a device's name (`IFNAMSIZ`).
const LONGEST_NAME: usize = 15;
const IFB: &str = "ifb4";

#[derive(Clone, Debug)]
pub struct Queue<'a> {
    pub section: &'a Section,
    /// `sqm.@queue[0]`, `sqm.eth1`.
    pub path: String,
    pub enabled: Enabled,
    pub interface: &'a str,
    pub upload: Setting,
    pub download: Setting,
    pub cells: Cells,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enabled {
    Yes,
    No,
    /// Meant as yes, and read as no: only the number 1 counts.
    Misread,
}

/// A rate as written, and as it acts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Setting {
    Missing {
        acts_as_kbit: u64,
    },
    /// The shell takes it for "do not shape".
    NoNumber(String),
    /// 0 does not shape.
    Kbit(u64),
}

/// How packets are counted in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cells {
    /// IP bytes only: an overhead is dropped.
    None,
    Frames,
    Atm,
}

/// Every section, whatever its type: sqm-scripts do not look at it.
pub fn queues(sqm: &Config) -> Vec<Queue<'_>> {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    let paths = sqm.sections.iter().map(|section| {
        let at = counts.iter().position(|(kind, _)| *kind == section.kind).unwrap_or_else(|| {
            counts.push((&section.kind, 0));
            counts.len() - 1
        });
        counts[at].1 += 1;
        match &section.name {
            Some(name) => format!("sqm.{name}"),
            None => format!("sqm.@{}[{}]", section.kind, counts[at].1 - 1),
        }
    });
    paths.zip(&sqm.sections).map(|(path, section)| Queue::of(section, path)).collect()
}

impl<'a> Queue<'a> {
    fn of(section: &'a Section, path: String) -> Self {
        let enabled = match section.get("enabled").map(|text| (text, text.trim().parse::<i64>())) {
            Some((_, Ok(1))) => Enabled::Yes,
            None | Some((_, Ok(0)) | ("off" | "no" | "false" | "disabled", _)) => Enabled::No,
            Some(_) => Enabled::Misread,
        };
        let rate = |direction| Setting::of(section.get(option_of(direction)), direction);
        let egress = section.get("eqdisc_opts").unwrap_or_default();
        let layer = match section.get("linklayer") {
            None | Some("none") => Cells::None,
            Some("atm") => Cells::Atm,
            Some(_) => Cells::Frames,
        };
        Self {
            enabled,
            interface: section.get("interface").unwrap_or_default(),
            upload: rate(Direction::Upload),
            download: rate(Direction::Download),
            // Appended last, so that it wins.
            cells: egress.split_whitespace().filter_map(Cells::of_keyword).next_back().unwrap_or(layer),
            section,
            path,
        }
    }

    pub fn at(&self, option: &str) -> String {
        format!("{}.{option}", self.path)
    }

    pub fn setting(&self, direction: Direction) -> &Setting {
        match direction {
            Direction::Upload => &self.upload,
            Direction::Download => &self.download,
        }
    }

    /// What the shaper is to be set to; `None`: not shaped. The queue's own options come last and win.
    pub fn acts_as_kbit(&self, direction: Direction) -> Option<u64> {
        let options = match direction {
            Direction::Upload => "eqdisc_opts",
            Direction::Download => "iqdisc_opts",
        };
        let set = match *self.setting(direction) {
            Setting::Missing { acts_as_kbit } => acts_as_kbit,
            Setting::Kbit(kbit) => kbit,
            Setting::NoNumber(_) => 0,
        };
        let own = self.section.get(options).and_then(bandwidth_kbit).filter(|_| self.has_cake_script());
        (set > 0).then(|| own.unwrap_or(set))
    }

    /// A rate that somebody has written and that shapes.
    pub fn written_kbit(&self, direction: Direction) -> Option<u64> {
        match self.setting(direction) {
            Setting::Kbit(kbit) if *kbit > 0 => self.acts_as_kbit(direction),
            _ => None,
        }
    }

    pub fn script(&self) -> Option<&str> {
        self.section.get("script")
    }

    /// These put CAKE at the root whatever `qdisc` says.
    pub fn has_cake_script(&self) -> bool {
        self.script().is_some_and(|script| script.contains("cake"))
    }

    /// Whether CAKE reads the options.
    pub fn is_cake(&self) -> bool {
        self.has_cake_script() || self.section.get("qdisc").is_some_and(super::state::is_cake)
    }

    /// The names that sqm-scripts may give to the IFB: versions differ in which end they cut.
    pub fn ifbs(&self) -> [String; 2] {
        let room = LONGEST_NAME - IFB.len();
        let name = self.interface;
        let (head, tail) = (room.min(name.len()), name.len().saturating_sub(room));
        [name.get(tail..), name.get(..head)].map(|part| format!("{IFB}{}", part.unwrap_or(name)))
    }
}

pub fn option_of(direction: Direction) -> &'static str {
    match direction {
        Direction::Upload => "upload",
        Direction::Download => "download",
    }
}

impl Setting {
    fn of(text: Option<&str>, direction: Direction) -> Self {
        let acts_as_kbit = match direction {
            Direction::Upload => MISSING_UPLOAD_KBIT,
            Direction::Download => MISSING_DOWNLOAD_KBIT,
        };
        match text.map(|text| (text, text.trim().parse())) {
            None => Self::Missing { acts_as_kbit },
            Some((_, Ok(kbit))) => Self::Kbit(kbit),
            Some((text, Err(_))) => Self::NoNumber(text.into()),
        }
    }
}

impl Cells {
    /// The keywords of tc that decide about cells (`q_cake.c`).
    fn of_keyword(word: &str) -> Option<Self> {
        match word {
            "atm" | "conservative" | "ipoa-vcmux" | "ipoa-llcsnap" | "pppoa-vcmux" | "pppoa-llc" | "pppoe-vcmux"
            | "pppoe-llcsnap" | "bridged-vcmux" | "bridged-llcsnap" => Some(Self::Atm),
            "noatm" | "ptm" | "pppoe-ptm" | "bridged-ptm" | "docsis" | "ethernet" => Some(Self::Frames),
            "raw" => Some(Self::None),
            _ => None,
        }
    }
}

/// The last `bandwidth` among tc's words, in its units: `950mbit`, `2mbps` (bytes), bare bits.
fn bandwidth_kbit(options: &str) -> Option<u64> {
    let words: Vec<&str> = options.split_whitespace().collect();
    let text = words.windows(2).rev().find(|pair| pair[0] == "bandwidth")?[1].to_ascii_lowercase();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..digits].parse().ok()?;
    let bits = match &text[digits..] {
        "" | "bit" => 1.0,
        "kbit" | "k" => 1e3,
        "mbit" | "m" => 1e6,
        "gbit" | "g" => 1e9,
        "kbps" => 8e3,
        "mbps" => 8e6,
        _ => return None,
    };
    Some((number * bits / 1000.0) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with<T>(text: &str, look: impl FnOnce(&[Queue]) -> T) -> T {
        let config = Config::parse(text.as_bytes()).unwrap();
        look(&queues(&config))
    }

    #[test]
    fn a_queue_acts_as_the_scripts_read_it() {
        let text = "config queue\n\toption enabled '1'\n\toption interface 'eth1'\n\toption upload '0'\n\nconfig queue 'b'\n\
                    \toption enabled 'on'\n\toption upload '10mbit'\n\nconfig other\n\nconfig queue\n\toption enabled '0'\n";
        with(text, |queues| {
            let paths: Vec<&str> = queues.iter().map(|queue| queue.path.as_str()).collect();
            assert_eq!(paths, ["sqm.@queue[0]", "sqm.b", "sqm.@other[0]", "sqm.@queue[2]"]);
            let enabled: Vec<Enabled> = queues.iter().map(|queue| queue.enabled).collect();
            assert_eq!(enabled, [Enabled::Yes, Enabled::Misread, Enabled::No, Enabled::No]);
            assert_eq!(queues[0].acts_as_kbit(Direction::Upload), None);
            assert_eq!(queues[0].acts_as_kbit(Direction::Download), Some(14_698));
            assert_eq!(queues[0].written_kbit(Direction::Download), None);
            assert_eq!(queues[1].upload, Setting::NoNumber("10mbit".into()));
        });
    }

    #[test]
    fn the_last_option_wins() {
        let text = "config queue\n\toption upload '9000'\n\toption script 'piece_of_cake.qos'\n\toption linklayer 'atm'\n\
                    \toption eqdisc_opts 'bandwidth 1mbit noatm bandwidth 2.5mbit'\n";
        with(text, |queues| {
            assert_eq!((queues[0].acts_as_kbit(Direction::Upload), queues[0].cells), (Some(2500), Cells::Frames));
        });
        for (text, kbit) in [("bandwidth 950mbit", Some(950_000)), ("bandwidth 1mbps", Some(8000)), ("rtt 5ms", None)] {
            assert_eq!(bandwidth_kbit(text), kbit, "{text}");
        }
    }

    #[test]
    fn an_ifb_is_called_after_its_device_as_far_as_a_name_may_go() {
        with("config queue\n\toption interface 'pppoe-internet'\n", |queues| {
            assert_eq!(queues[0].ifbs(), ["ifb4oe-internet", "ifb4pppoe-inter"]);
        });
        with("config queue\n\toption interface 'eth1'\n", |queues| assert_eq!(queues[0].ifbs()[0], "ifb4eth1"));
    }
}
