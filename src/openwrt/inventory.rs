//! Everything that is read for `sync` and `link`, once.

use super::command;
use super::link::{Known, Link};
use super::modem::Modem;
use super::network::{NoSuchWan, Pick, Wan, Wans};
use super::root::{Root, RootError};
use super::settings::{self, LineSettings};
use super::sync::{Asked, Sync};
use super::uci::Config;
use crate::calibration::outcome::Doubt;
use crate::units::Rate;
use serde_json::Value;

#[derive(Clone, Debug)]
pub struct Inventory {
    pub wans: Wans,
    pub network: Option<Config>,
    asked: Asked,
    settings: Option<Config>,
    live: bool,
    /// netifd has answered, so that the devices are those that are really there.
    pub has_netifd: bool,
    /// What is there and cannot be read.
    unreadable: Vec<String>,
}

impl Inventory {
    pub fn read(root: &Root) -> Self {
        let mut unreadable = Vec::new();
        let network = kept(root.config("network"), &mut unreadable);
        let settings = kept(root.config(settings::FILE), &mut unreadable);
        let dump: Option<Value> = kept(root.ubus("network.interface", "dump"), &mut unreadable);
        let asked = match root.ubus("dsl", "metrics") {
            Ok(None) => Asked::Nobody,
            Ok(Some(metrics)) => Asked::Answered(Modem::of(&metrics)),
            Err(error) => Asked::Failed(error.to_string()),
        };
        let wans = Wans::of(dump.as_ref(), network.as_ref());
        Self { wans, network, asked, settings, live: root.is_live(), has_netifd: dump.is_some(), unreadable }
    }

    pub fn wans(&self) -> &Wans {
        &self.wans
    }

    /// Whether the owner calls it metered; `None`: no word about it.
    pub fn metered(&self, pick: &Pick) -> Option<bool> {
        let wan = self.wans.choose(Some(pick)).ok()??;
        LineSettings::of(self.settings.as_ref(), Some(wan)).metered
    }

    /// The kind of link of the wanted WAN, or of the first.
    pub fn link(&self, pick: Option<&Pick>) -> Result<Link, NoSuchWan> {
        self.about(pick, |known| {
            let mut link = Link::of(known);
            link.evidence.extend(self.unreadable.iter().cloned());
            link
        })
    }

    /// The sync rates of the wanted WAN, or of the first. Runs the user's command, if one is set and this is the router
    /// that it is meant for.
    pub fn sync(&self, pick: Option<&Pick>) -> Result<Sync, NoSuchWan> {
        self.about(pick, |known| {
            let mut sync = Sync::of(known, &self.asked, |command| self.run(command));
            let doubt = |text: &String| Doubt { code: "unreadable".into(), text: text.clone() };
            sync.doubts.extend(self.unreadable.iter().map(doubt));
            sync
        })
    }

    fn about<T>(&self, pick: Option<&Pick>, answer: impl FnOnce(&Known) -> T) -> Result<T, NoSuchWan> {
        let wan: Option<&Wan> = self.wans.choose(pick)?;
        let settings = LineSettings::of(self.settings.as_ref(), wan);
        let (modem, network) = (self.asked.modem(), self.network.as_ref());
        Ok(answer(&Known { wans: &self.wans, wan, modem, network, settings: &settings }))
    }

    fn run(&self, command: &str) -> Result<(Rate, Rate), String> {
        if self.live {
            command::rates(command)
        } else {
            Err("is not run for a directory: it belongs to a router".into())
        }
    }
}

fn kept<T>(read: Result<Option<T>, RootError>, unreadable: &mut Vec<String>) -> Option<T> {
    read.unwrap_or_else(|error| {
        unreadable.push(error.to_string());
        None
    })
}
