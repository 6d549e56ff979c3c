//! `sync`: the rates that the modem reports, and where they come from.

use super::args::{FactArgs, UsageError};
use super::exit::Exit;
use super::link::{answer, inventory};
use super::words::{self, labelled};
use crate::openwrt::modem::State;
use crate::openwrt::sync::{Source, Sync};

pub fn sync(args: &FactArgs) -> Result<Exit, UsageError> {
    let sync = inventory(args)?.sync(args.pick.as_ref()).map_err(|error| UsageError(error.to_string()))?;
    answer(&sync, args.json, || told(&sync));
    Ok(Exit::Done)
}

fn told(sync: &Sync) -> String {
    let mut text = String::new();
    let mut row = |label: &str, words: &str| text.push_str(&labelled(label, 10, words, 80));
    let rate = |kbit: Option<u64>| kbit.map_or_else(|| "not known".into(), words::kbit);
    row("Upload", &rate(sync.upload_kbit));
    row("Download", &rate(sync.download_kbit));
    let source = match (sync.source, sync.state) {
        (Source::Dsl, State::Showtime) => "the router's own DSL modem, which is connected",
        (Source::Dsl, _) => "the router's own DSL modem",
        (Source::User, _) => "set by you in /etc/config/sqm-autotune",
        (Source::Command, _) => "your sync_command in /etc/config/sqm-autotune",
        (Source::None, _) => "nowhere",
    };
    row("Source", source);
    if let Some(reason) = &sync.reason {
        row("Reason", reason);
    }
    for doubt in &sync.doubts {
        row("Doubt", &doubt.text);
    }
    if sync.upload_kbit.or(sync.download_kbit).is_some() {
        row("Note", "an upper bound: the provider may shape below it, which only a calibration shows");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibration::outcome::{Doubt, FORMAT};

    #[test]
    fn rates_come_with_their_source_and_what_speaks_against_them() {
        let mut sync = Sync {
            format: FORMAT,
            source: Source::Dsl,
            state: State::Showtime,
            upload_kbit: Some(17_999),
            download_kbit: Some(66_999),
            doubts: vec![Doubt { code: "unit-guessed".into(), text: "kbit/s?".into() }],
            reason: None,
        };
        assert_eq!(
            told(&sync),
            "Upload    17,999 kbit/s\nDownload  66,999 kbit/s\nSource    the router's own DSL modem, which is connected\n\
             Doubt     kbit/s?\nNote      an upper bound: the provider may shape below it, which only a\n          calibration shows\n"
        );
        (sync.upload_kbit, sync.download_kbit, sync.doubts) = (None, None, Vec::new());
        (sync.state, sync.reason) = (State::Training, Some("the modem is training".into()));
        assert_eq!(
            told(&sync),
            "Upload    not known\nDownload  not known\nSource    the router's own DSL modem\nReason    the modem is training\n"
        );
    }
}
