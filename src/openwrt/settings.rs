//! What the user has told us about a line, in `/etc/config/sqm-autotune`:
//!
//! ```text
//! config line
//!     option interface 'wan'              # only this WAN; left out: every WAN
//!     option link 'docsis'                # what the router cannot see
//!     option sync_upload_kbit '18000'
//!     option sync_download_kbit '67000'
//!     option sync_command '/root/ask-the-modem'
//!     option metered '1'                  # no unattended runs
//! ```
//!
//! What is not about one line is in [`General`].

mod general;

pub use general::{ApplyMode, General, Window, Wrong};

use super::network::Wan;
use super::uci::{Config, Section};
use crate::units::Rate;

pub const FILE: &str = "sqm-autotune";

/// 10 Gbit/s. Above, somebody has written bit/s.
const MOST_KBIT: u64 = 10_000_000;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineSettings {
    pub link: Option<String>,
    pub sync: Option<SyncSetting>,
    /// `None`: what lines of its kind are.
    pub metered: Option<bool>,
}

/// Where the user wants the sync rates from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyncSetting {
    Rates {
        upload: Option<Rate>,
        download: Option<Rate>,
    },
    /// A shell command that prints them.
    Command(String),
    /// Names the option and what is wrong with it.
    Invalid(String),
}

impl LineSettings {
    /// The section for this WAN goes before one for every WAN.
    pub fn of(config: Option<&Config>, wan: Option<&Wan>) -> Self {
        let lines = || config.into_iter().flat_map(|config| config.of_kind("line"));
        let names = |section: &&Section| {
            wan.is_some_and(|wan| section.get("interface").is_some_and(|name| wan.is_called(name)))
        };
        let section = lines().find(names).or_else(|| lines().find(|section| section.get("interface").is_none()));
        let Some(section) = section else { return Self::default() };
        let link = section.get("link").map(str::to_owned);
        let metered = section.get("metered").and_then(general::switch);
        Self { link, sync: sync(section), metered }
    }
}

fn sync(section: &Section) -> Option<SyncSetting> {
    let rates = rate(section, "sync_upload_kbit").and_then(|up| Ok((up, rate(section, "sync_download_kbit")?)));
    match rates {
        Err(wrong) => Some(SyncSetting::Invalid(wrong)),
        Ok((None, None)) => section.get("sync_command").map(|command| SyncSetting::Command(command.into())),
        Ok((upload, download)) => Some(SyncSetting::Rates { upload, download }),
    }
}

fn rate(section: &Section, option: &str) -> Result<Option<Rate>, String> {
    let Some(text) = section.get(option) else { return Ok(None) };
    kbit(text).map(Some).ok_or_else(|| {
        format!("{option} in /etc/config/{FILE} is {text:?}, which is no rate in kbit/s (for example 18000)")
    })
}

/// A plausible rate in kbit/s.
pub fn kbit(text: &str) -> Option<Rate> {
    text.parse().ok().filter(|kbit| (1..=MOST_KBIT).contains(kbit)).map(Rate::from_kbit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> LineSettings {
        LineSettings::of(Some(&Config::parse(text.as_bytes()).unwrap()), None)
    }

    #[test]
    fn numbers_go_before_a_command_and_nonsense_is_told() {
        assert_eq!(LineSettings::of(None, None), LineSettings::default());
        let both = "config line\n\toption sync_command 'ask'\n\toption sync_upload_kbit '18000'\n";
        let rates = SyncSetting::Rates { upload: Some(Rate::from_kbit(18_000)), download: None };
        assert_eq!(settings(both).sync, Some(rates));
        let command = settings("config line\n\toption sync_command 'ask -v'\n").sync;
        assert_eq!(command, Some(SyncSetting::Command("ask -v".into())));
        for wrong in ["0", "-1", "18mbit", "66999000", "18000.5"] {
            let sync = settings(&format!("config line\n\toption sync_upload_kbit '{wrong}'\n")).sync;
            assert!(matches!(&sync, Some(SyncSetting::Invalid(why)) if why.contains(wrong)), "{wrong}: {sync:?}");
        }
    }

    #[test]
    fn a_section_for_another_wan_says_nothing_here() {
        assert_eq!(settings("config line\n\toption interface 'wan2'\n\toption link 'docsis'\n").link, None);
        assert_eq!(settings("config line\n\toption link 'docsis'\n").link.as_deref(), Some("docsis"));
    }
}
