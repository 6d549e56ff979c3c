//! The router that this program runs on.

use super::Held;
use crate::cli::args::{RouterArgs, UsageError};
use crate::line::{LineError, LinkType, Stoppable};
use crate::router::target::Choice;
use crate::router::tls::Trust;
use crate::router::{RouterLine, Settings, journal};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub fn open(args: &RouterArgs, stop: Arc<AtomicBool>) -> Result<Held, UsageError> {
    let url = |url: &Option<String>| url.clone();
    let (server, upload, download) = (url(&args.server), url(&args.upload_url), url(&args.download_url));
    let server = Choice::from_args(server.as_deref(), upload.as_deref(), download.as_deref())
        .map_err(|error| UsageError(error.to_string()))?;
    let line = RouterLine::new(Settings {
        device: args.device.clone(),
        reflectors: args.reflectors.iter().map(ToString::to_string).collect(),
        server,
        trust: Trust::default(),
        link: LinkType::Unknown,
        sync_up: None,
        sync_down: None,
        journal: journal::DIRECTORY.into(),
    });
    Ok(Held::of(Stoppable { inner: line, stop }))
}

/// Puts back what a killed run left; says what that was.
pub fn restore() -> Result<Vec<String>, LineError> {
    journal::restore(Path::new(journal::DIRECTORY))
}
