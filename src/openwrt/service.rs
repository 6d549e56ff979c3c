//! SQM's own programs: the init script, and `run.sh`, which starts and stops one device.
//!
//! `run.sh` is never killed: the lock it would leave stops SQM for good. That it ended well says nothing, since
//! `start-sqm` ends with 0 even where tc failed: who wants to know reads the qdisc back.

use super::root::{Root, RootError};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Programs of a router that may be run. A directory that only looks like a router has none.
#[derive(Clone, Debug)]
pub struct Service {
    init: PathBuf,
    run: PathBuf,
    /// Where sqm-scripts note what they have started, as `DEVICE.state`.
    state: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    #[error("SQM is not installed (there is no {}): opkg install sqm-scripts, or with apk: apk add sqm-scripts", .0.display())]
    Missing(PathBuf),
    #[error("cannot {operation}: {cause}")]
    Failed { operation: String, cause: String },
    #[error(transparent)]
    Root(#[from] RootError),
}

impl Service {
    /// `None`: not on this machine.
    ///
    /// # Errors
    /// Where this is a router without SQM.
    pub fn of(root: &Root) -> Result<Option<Self>, ServiceError> {
        if root.is_live() { Self::within(root).map(Some) } else { Ok(None) }
    }

    pub(super) fn within(root: &Root) -> Result<Self, ServiceError> {
        let path = |path: &str| root.path(path);
        let service =
            Self { init: path("etc/init.d/sqm")?, run: path("usr/lib/sqm/run.sh")?, state: path("var/run/sqm")? };
        let missing = [&service.init, &service.run].into_iter().find(|program| !program.exists()).cloned();
        missing.map_or(Ok(service), |missing| Err(ServiceError::Missing(missing)))
    }

    /// Whether SQM starts at boot. Hotplug asks the same before it restarts anything.
    pub fn is_enabled(&self) -> Result<bool, ServiceError> {
        Ok(call(&self.init, &["enabled"])?.status.success())
    }

    /// As LuCI does.
    pub fn enable(&self, enabled: bool) -> Result<(), ServiceError> {
        let word = if enabled { "enable" } else { "disable" };
        call(&self.init, &[word])?;
        // `enable` may end with any code; what counts is the link.
        if self.is_enabled()? == enabled {
            return Ok(());
        }
        let operation = format!("{word} {}", self.init.display());
        Err(ServiceError::Failed { operation, cause: "it has no effect".into() })
    }

    /// Whether SQM has started something on this device.
    pub fn runs_on(&self, device: &str) -> bool {
        self.state.join(format!("{device}.state")).exists()
    }

    /// Only this device: the others keep their queues.
    pub fn stop(&self, device: &str) -> Result<(), ServiceError> {
        call(&self.run, &["stop", device]).map(drop)
    }

    pub fn start(&self, device: &str) -> Result<(), ServiceError> {
        call(&self.run, &["start", device]).map(drop)
    }

    /// For one whose queue has gone: as long as SQM believes that it runs, `start` alone does nothing.
    pub fn restart(&self, device: &str) -> Result<(), ServiceError> {
        self.stop(device)?;
        self.start(device)
    }
}

fn call(program: &Path, words: &[&str]) -> Result<Output, ServiceError> {
    let mut command = Command::new(program);
    // In a group of its own: Ctrl-C is for us, and `run.sh` must end by itself.
    command.args(words).process_group(0).stdin(Stdio::null());
    command.output().map_err(|error| ServiceError::Failed {
        operation: format!("run {} {}", program.display(), words.join(" ")),
        cause: error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    /// As SQM does it: what has a state file is not started.
    const RUN: &str = "#!/bin/sh\ncd \"$(dirname \"$0\")/../../../var/run/sqm\" || exit\ncase $1 in\n\
        start) [ -e \"$2.state\" ] || { echo \"$2\" >>started; : >\"$2.state\"; } ;;\nstop) rm -f \"$2.state\" ;;\nesac\n";

    #[test]
    fn one_that_sqm_believes_to_run_is_started_anew() {
        let dir = std::env::temp_dir().join(format!("sqm-autotune-service-{}", std::process::id()));
        for (path, text) in [("usr/lib/sqm/run.sh", RUN), ("etc/init.d/sqm", ""), ("var/run/sqm/wan.state", "")] {
            fs::create_dir_all(dir.join(path).parent().unwrap()).unwrap();
            fs::write(dir.join(path), text).unwrap();
        }
        fs::set_permissions(dir.join("usr/lib/sqm/run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
        let service = Service::within(&Root::at(&dir).unwrap()).unwrap();
        let started = || fs::read_to_string(dir.join("var/run/sqm/started")).unwrap_or_default();
        service.start("wan").unwrap();
        assert_eq!(started(), "");
        service.restart("wan").unwrap();
        assert_eq!((started().as_str(), service.runs_on("wan")), ("wan\n", true));
        fs::remove_dir_all(&dir).unwrap();
    }
}
