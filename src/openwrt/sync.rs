//! The rates that the modem reports. An upper bound: the provider may shape below it.

use super::device::Medium;
use super::link::Known;
use super::modem::{Modem, State, Unit};
use super::settings::SyncSetting;
use crate::calibration::outcome::{Doubt, FORMAT};
use crate::units::Rate;
use serde::Serialize;

/// `sync --json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Sync {
    pub format: u32,
    pub source: Source,
    pub state: State,
    pub upload_kbit: Option<u64>,
    pub download_kbit: Option<u64>,
    pub doubts: Vec<Doubt>,
    /// Why a rate is missing.
    pub reason: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    Dsl,
    User,
    Command,
    None,
}

/// What came of asking the modem's driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// No driver has an object of that name.
    Nobody,
    Failed(String),
    Answered(Modem),
}

impl Asked {
    pub fn modem(&self) -> Option<&Modem> {
        match self {
            Self::Answered(modem) => Some(modem),
            Self::Nobody | Self::Failed(_) => None,
        }
    }
}

impl Sync {
    /// `run` runs a command of the user's; it is asked only where the user has set one.
    pub fn of(known: &Known, asked: &Asked, run: impl FnOnce(&str) -> Result<(Rate, Rate), String>) -> Self {
        match &known.settings.sync {
            Some(SyncSetting::Rates { upload, download }) => {
                let missing = "only one of sync_upload_kbit and sync_download_kbit is set";
                let reason = (upload.is_none() || download.is_none()).then(|| missing.into());
                Self { reason, ..Self::found(Source::User, State::Unknown, *upload, *download) }
            }
            Some(SyncSetting::Invalid(wrong)) => Self::nothing(Source::User, State::Unknown, wrong.clone()),
            Some(SyncSetting::Command(command)) => match run(command) {
                Ok((upload, download)) => Self::found(Source::Command, State::Unknown, Some(upload), Some(download)),
                Err(why) => Self::nothing(Source::Command, State::Unknown, format!("sync_command {why}")),
            },
            None => Self::of_modem(known, asked),
        }
    }

    fn of_modem(known: &Known, asked: &Asked) -> Self {
        let modem = match asked {
            Asked::Nobody => return Self::nothing(Source::None, State::Unknown, nobody(known)),
            Asked::Failed(why) => return Self::nothing(Source::Dsl, State::Unknown, why.clone()),
            Asked::Answered(modem) => modem,
        };
        if let Some(wan) = known.wan.filter(|_| modem.state == State::Showtime && !known.on_modem()) {
            let why = format!("{wan} does not go over this router's modem");
            return Self::nothing(Source::None, State::Unknown, why);
        }
        let said = modem.said.as_ref().map(|said| format!(" ({said})")).unwrap_or_default();
        let none = |why: &str| Self::nothing(Source::Dsl, modem.state, format!("{why}{said}"));
        match (modem.state, modem.upload, modem.download) {
            (State::Training, _, _) => none("the modem is training"),
            (State::Down, _, _) => none("the modem has no connection"),
            (State::Unknown, _, _) => none("the modem does not say whether it is connected"),
            (State::Showtime, None, None) => none("the modem reports no rates"),
            (State::Showtime, upload, download) => {
                let mut sync = Self::found(Source::Dsl, State::Showtime, upload, download);
                sync.doubts.extend(modem.unit_guessed.map(guessed));
                sync.reason = match (upload, download) {
                    (Some(_), Some(_)) => None,
                    (None, _) => Some("the modem reports no upload rate".into()),
                    (_, None) => Some("the modem reports no download rate".into()),
                };
                sync
            }
        }
    }

    fn found(source: Source, state: State, upload: Option<Rate>, download: Option<Rate>) -> Self {
        let (upload_kbit, download_kbit) = (upload.map(Rate::kbit), download.map(Rate::kbit));
        Self { format: FORMAT, source, state, upload_kbit, download_kbit, doubts: Vec::new(), reason: None }
    }

    fn nothing(source: Source, state: State, why: String) -> Self {
        Self { reason: Some(why), ..Self::found(source, state, None, None) }
    }
}

fn nobody(known: &Known) -> String {
    let where_it_is = match known.wan.and_then(|wan| wan.medium) {
        Some(Medium::Mobile) => "a mobile line has no sync rate",
        Some(Medium::Dsl) => "the DSL modem's driver does not answer on ubus (object dsl)",
        _ => "no DSL modem in this router; an external one has no common language",
    };
    format!("{where_it_is}: set sync_upload_kbit and sync_download_kbit, or the measured capacity is used")
}

fn guessed(unit: Unit) -> Doubt {
    let unit = match unit {
        Unit::Bit => "bit/s",
        Unit::Kbit => "kbit/s",
    };
    let text = format!("the modem's driver does not say its unit: the numbers only make sense as {unit}");
    Doubt { code: "unit-guessed".into(), text }
}
