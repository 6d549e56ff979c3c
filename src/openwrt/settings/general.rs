//! What the user wants of unattended runs and of measurements: `config autotune` in `/etc/config/sqm-autotune`. Every
//! option has a default; a wrong value is an error that names its line.

use super::{FILE, kbit};
use crate::openwrt::link::Kind;
use crate::openwrt::uci::{Config, Section};
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Everything that is not about one line.
#[derive(Clone, Debug, PartialEq)]
pub struct General {
    /// Whether `check` does anything.
    pub enabled: bool,
    pub apply: ApplyMode,
    pub window: Option<Window>,
    /// Both directions, in a day, by unattended runs.
    pub daily_bytes: u64,
    /// How much the sync rate must change, as a share.
    pub threshold: f64,
    /// How long it must stay changed.
    pub settle: Duration,
    /// A result older than this is measured again; `None`: never for its age.
    pub max_age: Option<Duration>,
    /// A line of which others use more than this share is busy.
    pub quiet_share: f64,
    pub max_added_ms: Option<f64>,
    pub reflectors: Vec<IpAddr>,
    pub server: Option<String>,
    pub upload_url: Option<String>,
    pub download_url: Option<String>,
    /// Certificate authorities in PEM; `None`: the system's.
    pub ca_file: Option<PathBuf>,
    /// Keep the last outcome on flash.
    pub keep_last: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ApplyMode {
    /// Tell the owner, load and change nothing.
    #[default]
    Ask,
    Auto,
}

/// Minutes of the day, local time. The end is not in it; it may lie beyond midnight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub from: u16,
    pub to: u16,
}

/// One wrong value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Wrong {
    pub line: u32,
    pub option: String,
    pub value: Option<String>,
    pub instead: String,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, option, value, instead } = self;
        write!(f, "/etc/config/{FILE}, line {line}: ")?;
        match value {
            Some(value) => write!(f, "option {option} is {value:?}: write {instead}"),
            None => write!(f, "there is no {option}: {instead}"),
        }
    }
}

impl Default for General {
    fn default() -> Self {
        Self {
            enabled: false,
            apply: ApplyMode::Ask,
            window: Some(Window { from: 3 * 60, to: 6 * 60 }),
            daily_bytes: 1_000_000_000,
            threshold: 0.05,
            settle: Duration::from_secs(10 * 60),
            max_age: None,
            quiet_share: 0.1,
            max_added_ms: None,
            reflectors: Vec::new(),
            server: None,
            upload_url: None,
            download_url: None,
            ca_file: None,
            keep_last: false,
        }
    }
}

const GENERAL: [&str; 15] = [
    "enabled",
    "apply",
    "window",
    "daily_mbytes",
    "threshold_percent",
    "settle_minutes",
    "max_age_days",
    "quiet_percent",
    "max_added_ms",
    "reflector",
    "server",
    "upload_url",
    "download_url",
    "ca_file",
    "keep_last",
];
/// The init script reads this one for its cron line.
const CHECK_MINUTES: &str = "check_minutes";
const LINE: [&str; 6] = ["interface", "link", "sync_upload_kbit", "sync_download_kbit", "sync_command", "metered"];

impl General {
    /// Reads the section, and looks at every other option of the file too.
    ///
    /// # Errors
    /// All that is wrong, in the order of the file.
    pub fn of(config: Option<&Config>) -> Result<Self, Vec<Wrong>> {
        let mut general = Self::default();
        let mut wrong = Vec::new();
        for section in config.into_iter().flat_map(|config| &config.sections) {
            let mut reader = Reader { section, wrong: &mut wrong };
            match section.kind.as_str() {
                "autotune" => general.read(&mut reader),
                "line" => check_line(&mut reader),
                kind => reader.unknown(&format!("section of type {kind}"), "there are autotune and line", ""),
            }
        }
        wrong.sort_by_key(|wrong| wrong.line);
        if wrong.is_empty() { Ok(general) } else { Err(wrong) }
    }

    fn read(&mut self, reader: &mut Reader) {
        reader.known(&GENERAL, Some(CHECK_MINUTES));
        let positive = |text: &str| text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
        let share = |text: &str| text.parse().ok().filter(|n: &f64| (0.0..=100.0).contains(n)).map(|n| n / 100.0);
        let whole = |most: u64| move |text: &str| text.parse::<u64>().ok().filter(|number| *number <= most);
        let url = |text: &str| {
            let host = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"))?;
            (!host.is_empty() && !host.contains(char::is_whitespace)).then(|| text.to_owned())
        };
        reader.option("enabled", "1 or 0", switch, |value| self.enabled = value);
        reader.option("apply", "ask or auto", ApplyMode::of, |value| self.apply = value);
        if reader.section.get("window") == Some("always") {
            self.window = None;
        } else {
            let instead = "HH:MM-HH:MM in local time, for example 03:00-06:00, or always";
            reader.option("window", instead, Window::of, |value| self.window = Some(value));
        }
        reader.option("daily_mbytes", "whole megabytes, for example 1000", whole(1_000_000), |value| {
            self.daily_bytes = value * 1_000_000;
        });
        reader.option("threshold_percent", "a share of the sync rate, 0 to 100, for example 5", share, |value| {
            self.threshold = value;
        });
        reader.option("settle_minutes", "whole minutes up to 1440, for example 10", whole(1440), |value| {
            self.settle = Duration::from_secs(value * 60);
        });
        reader.option("max_age_days", "whole days, for example 30, or 0 for never", whole(3650), |value| {
            self.max_age = (value > 0).then(|| Duration::from_secs(value * 86_400));
        });
        reader.option("quiet_percent", "a share of the line, 0 to 100, for example 10", share, |value| {
            self.quiet_share = value;
        });
        reader
            .option("max_added_ms", "milliseconds, for example 10", positive, |value| self.max_added_ms = Some(value));
        reader.option("keep_last", "1 or 0", switch, |value| self.keep_last = value);
        reader.option(
            CHECK_MINUTES,
            "1 to 59 minutes, for example 15",
            |text| whole(59)(text).filter(|n| *n > 0),
            drop,
        );
        let address = "a URL that begins with http:// or https://";
        reader.option("server", address, url, |value| self.server = Some(value));
        reader.option("upload_url", address, url, |value| self.upload_url = Some(value));
        reader.option("download_url", address, url, |value| self.download_url = Some(value));
        let absolute = |text: &str| text.starts_with('/').then(|| text.into());
        reader.option("ca_file", "a file with its whole path, for example /etc/ssl/ours.pem", absolute, |value| {
            self.ca_file = Some(value);
        });
        for word in reader.section.words("reflector") {
            match word.parse() {
                Ok(address) => self.reflectors.push(address),
                Err(_) => reader.say("reflector", word, "an IPv4 or IPv6 address, for example 9.9.9.9"),
            }
        }
    }
}

/// What [`super::LineSettings`] reads.
fn check_line(reader: &mut Reader) {
    reader.known(&LINE, None);
    let rate = "a rate in kbit/s, for example 18000";
    reader.option("sync_upload_kbit", rate, kbit, drop);
    reader.option("sync_download_kbit", rate, kbit, drop);
    reader.option("link", "a kind of link, for example pppoe-vdsl2 (see the README)", Kind::named, drop);
    reader.option("metered", "1 or 0", switch, drop);
}

struct Reader<'a> {
    section: &'a Section,
    wrong: &'a mut Vec<Wrong>,
}

impl Reader<'_> {
    fn option<T>(&mut self, name: &str, instead: &str, parse: impl FnOnce(&str) -> Option<T>, set: impl FnOnce(T)) {
        let Some(text) = self.section.get(name) else { return };
        match parse(text.trim()) {
            Some(value) => set(value),
            None => self.say(name, text, instead),
        }
    }

    fn say(&mut self, option: &str, value: &str, instead: &str) {
        let (option, value) = (option.to_owned(), Some(value.to_owned()));
        self.wrong.push(Wrong { line: self.section.line(&option), option, value, instead: instead.into() });
    }

    /// A misspelt option would be one without effect.
    fn known(&mut self, known: &[&str], and: Option<&str>) {
        let section = self.section;
        for (option, _) in section.options() {
            if !known.contains(&option) && and != Some(option) {
                let advice = format!("section {} knows {}", section.kind, known.join(", "));
                self.unknown(&format!("option {option}"), &advice, option);
            }
        }
    }

    fn unknown(&mut self, what: &str, advice: &str, at: &str) {
        self.wrong.push(Wrong {
            line: self.section.line(at),
            option: what.into(),
            value: None,
            instead: advice.into(),
        });
    }
}

pub fn switch(text: &str) -> Option<bool> {
    match text {
        "1" | "yes" | "on" | "true" => Some(true),
        "0" | "no" | "off" | "false" => Some(false),
        _ => None,
    }
}

impl ApplyMode {
    fn of(text: &str) -> Option<Self> {
        match text {
            "ask" => Some(Self::Ask),
            "auto" => Some(Self::Auto),
            _ => None,
        }
    }
}

impl Window {
    fn of(text: &str) -> Option<Self> {
        let minute = |text: &str| {
            let (hour, minute) = text.trim().split_once(':')?;
            let (hour, minute): (u16, u16) = (hour.parse().ok()?, minute.parse().ok()?);
            (hour < 24 && minute < 60).then_some(hour * 60 + minute)
        };
        let (from, to) = text.split_once('-')?;
        let window = Self { from: minute(from)?, to: minute(to)? };
        (window.from != window.to).then_some(window)
    }

    pub fn contains(self, minute: u16) -> bool {
        if self.from < self.to {
            (self.from..self.to).contains(&minute)
        } else {
            minute >= self.from || minute < self.to
        }
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let clock = |minute: u16| format!("{:02}:{:02}", minute / 60, minute % 60);
        write!(f, "{}-{}", clock(self.from), clock(self.to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHIPPED: &str =
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/openwrt-package/files/etc/config/sqm-autotune"));

    fn read(text: &str) -> Result<General, Vec<String>> {
        let config = Config::parse(text.as_bytes()).unwrap();
        General::of(Some(&config)).map_err(|wrong| wrong.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn the_file_that_ships_says_the_defaults_and_documents_every_option() {
        assert_eq!(read(SHIPPED), Ok(General::default()));
        assert_eq!(General::of(None), Ok(General::default()));
        for option in GENERAL.iter().chain(&LINE).chain([&CHECK_MINUTES]) {
            let shown = |line: &str| line.trim_start_matches(['#', '\t', ' ']).split(' ').nth(1) == Some(option);
            assert!(SHIPPED.lines().any(shown), "{option} is not in the file that ships");
        }
    }

    #[test]
    fn everything_said_arrives() {
        let general = read(
            "config autotune\n\toption enabled 'yes'\n\toption apply 'auto'\n\toption window '22:30-05:00'\n\
             \toption daily_mbytes '300'\n\toption threshold_percent '2.5'\n\toption settle_minutes '0'\n\
             \toption max_age_days '30'\n\toption quiet_percent '20'\n\toption max_added_ms '7.5'\n\
             \tlist reflector '9.9.9.9'\n\tlist reflector '2620:fe::fe'\n\toption server 'http://box:8080'\n\
             \toption ca_file '/etc/ours.pem'\n\toption keep_last '1'\n\toption check_minutes '5'\n",
        )
        .unwrap();
        assert!(general.enabled && general.keep_last && general.apply == ApplyMode::Auto, "{general:?}");
        assert_eq!((general.daily_bytes, general.threshold, general.quiet_share), (300_000_000, 0.025, 0.2));
        assert_eq!((general.settle, general.max_age), (Duration::ZERO, Some(Duration::from_secs(30 * 86_400))));
        assert_eq!((general.max_added_ms, general.reflectors.len()), (Some(7.5), 2));
        assert_eq!(general.server.as_deref(), Some("http://box:8080"));
        assert_eq!(general.ca_file.as_deref(), Some("/etc/ours.pem".as_ref()));
        let window = general.window.unwrap();
        assert_eq!(window.to_string(), "22:30-05:00");
        let within = [22 * 60 + 29, 22 * 60 + 30, 0, 299, 300].map(|minute| window.contains(minute));
        assert_eq!(within, [false, true, true, true, false]);
        assert_eq!(read("config autotune\n\toption window 'always'\n").unwrap().window, None);
    }

    #[test]
    fn a_wrong_value_is_told_with_its_line_and_option() {
        for (option, value) in [
            ("enabled", "2"),
            ("apply", "never"),
            ("window", "3-6"),
            ("window", "03:00-24:00"),
            ("window", "03:00-03:00"),
            ("daily_mbytes", "-1"),
            ("threshold_percent", "101"),
            ("settle_minutes", "1.5"),
            ("max_age_days", "a month"),
            ("quiet_percent", "nan"),
            ("max_added_ms", "0"),
            ("reflector", "one.one.one.one"),
            ("server", "box:8080"),
            ("upload_url", "ftp://box"),
            ("download_url", "https://"),
            ("ca_file", "ours.pem"),
            ("keep_last", "maybe"),
            ("check_minutes", "60"),
        ] {
            let told = read(&format!("\n# words\nconfig autotune\n\toption {option} '{value}'\n")).unwrap_err();
            let begins = format!("/etc/config/sqm-autotune, line 4: option {option} is {value:?}: write ");
            assert!(told.len() == 1 && told[0].starts_with(&begins), "{told:?}");
        }
        let line = "config line\n\toption link 'dsl'\n\toption metered 'x'\n\toption sync_upload_kbit '18mbit'\n";
        let lines: Vec<u32> = General::of(Some(&Config::parse(line.as_bytes()).unwrap()))
            .unwrap_err()
            .iter()
            .map(|wrong| wrong.line)
            .collect();
        assert_eq!(lines, [2, 3, 4]);
        let told = read("config autotune\n\toption aply 'auto'\nconfig wan\n").unwrap_err();
        assert!(told[0].starts_with("/etc/config/sqm-autotune, line 2: there is no option aply: "), "{told:?}");
        assert!(told[1].starts_with("/etc/config/sqm-autotune, line 3: there is no section of type wan"), "{told:?}");
    }
}
