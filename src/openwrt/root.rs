//! Where facts are read: this router, or a directory with a router's files and the replies of its programs.

use super::uci::{Config, UciError};
use serde_json::Value;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Seconds that the router's `ubus` waits for an answer. A modem that is being asked much takes a few.
const UBUS_TIMEOUT_S: &str = "10";
/// A configuration in memory hides that on flash (uci of OpenWrt 25.12).
const HIDING: &str = "var/run/uci";
/// `UBUS_STATUS_METHOD_NOT_FOUND` and `UBUS_STATUS_NOT_FOUND` (ubusmsg.h), the exit codes of `ubus call`.
const NO_SUCH_METHOD: i32 = 3;
const NO_SUCH_OBJECT: i32 = 4;

#[derive(Clone, Debug)]
pub struct Root {
    dir: PathBuf,
    live: bool,
}

/// Why something that is there cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RootError {
    /// The path is that from the root.
    #[error("cannot read {}: {cause}", path.display())]
    File { path: PathBuf, cause: io::Error },
    #[error("no program on the router accepts {}: {cause}", path.display())]
    Config { path: PathBuf, cause: UciError },
    #[error("cannot ask `ubus call {call}`: {cause}")]
    Ubus { call: String, cause: String },
    #[error("{} leads out of {}: nothing is written there", path.display(), dir.display())]
    Outside { path: PathBuf, dir: PathBuf },
}

impl Root {
    /// The router that this runs on.
    pub fn live() -> Self {
        Self { dir: "/".into(), live: true }
    }

    /// A directory that looks like a router. The directory `/` is the router itself.
    ///
    /// # Errors
    /// Where there is no such directory.
    pub fn at(dir: &Path) -> Result<Self, RootError> {
        let error = |cause| RootError::File { path: dir.into(), cause };
        let dir = dir.canonicalize().map_err(error)?;
        if !dir.is_dir() {
            return Err(error(io::ErrorKind::NotADirectory.into()));
        }
        Ok(Self { live: dir == Path::new("/"), dir })
    }

    /// Whether programs may be asked. A directory is only read: what it says comes from somebody else's router.
    pub fn is_live(&self) -> bool {
        self.live
    }

    /// `etc/config/NAME`; `None` where there is no such file.
    pub fn config(&self, name: &str) -> Result<Option<Config>, RootError> {
        // In a copy of a router this may lead out of it, and then it is not part of the copy.
        let hiding = Path::new(HIDING).join(name);
        let (path, text) = if let Ok(Some(text)) = self.read(&hiding) {
            (hiding, text)
        } else {
            let path = Path::new("etc/config").join(name);
            let Some(text) = self.read(&path)? else { return Ok(None) };
            (path, text)
        };
        Config::parse(&text).map(Some).map_err(|cause| RootError::Config { path, cause })
    }

    /// What `ubus call OBJECT METHOD` answers; `None` where there is no such object.
    pub fn ubus(&self, object: &str, method: &str) -> Result<Option<Value>, RootError> {
        self.ask(object, method, None)
    }

    /// The same with one argument: `ubus call OBJECT METHOD '{"KEY":"VALUE"}'`, or the file `OBJECT.METHOD.VALUE.json`.
    pub fn ubus_of(&self, object: &str, method: &str, key: &str, value: &str) -> Result<Option<Value>, RootError> {
        self.ask(object, method, Some((key, value)))
    }

    /// A file's text from the root; `None` where it cannot be read.
    pub fn text(&self, path: &str) -> Option<String> {
        fs::read(self.within(path)?).ok().map(|text| String::from_utf8_lossy(&text).into_owned())
    }

    /// The names in a directory, in order; `None` where it cannot be read.
    pub fn names(&self, path: &str) -> Option<Vec<String>> {
        let entries = fs::read_dir(self.within(path)?).ok()?;
        let mut names: Vec<String> =
            entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort_unstable();
        Some(names)
    }

    /// A file of JSON; `None` where there is none.
    pub fn json(&self, path: &str) -> Option<Value> {
        serde_json::from_str(&self.text(path)?).ok()
    }

    /// A link in a router's copy (`/var`) must not lead to this machine's own files.
    fn within(&self, path: &str) -> Option<PathBuf> {
        self.dir.join(path).canonicalize().ok().filter(|real| real.starts_with(&self.dir))
    }

    fn ask(&self, object: &str, method: &str, argument: Option<(&str, &str)>) -> Result<Option<Value>, RootError> {
        let reply = if self.live {
            asked(object, method, argument)?
        } else {
            let argument = argument.map_or_else(String::new, |(_, value)| format!(".{value}"));
            self.read(&Path::new("ubus").join(format!("{object}.{method}{argument}.json")))?
        };
        let call = || format!("{object} {method}");
        let json = |cause: serde_json::Error| RootError::Ubus { call: call(), cause: format!("no JSON, {cause}") };
        reply.map(|reply| serde_json::from_slice(&reply).map_err(json)).transpose()
    }

    /// Where a file of the router is, for one who writes it: whatever links there are, it is within the directory.
    ///
    /// # Errors
    /// [`RootError::Outside`]
    pub fn path(&self, path: impl AsRef<Path>) -> Result<PathBuf, RootError> {
        let full = self.dir.join(path.as_ref());
        let outside = || RootError::Outside { path: full.clone(), dir: self.dir.clone() };
        let mut parts = full.ancestors();
        // What does not exist yet cannot lead anywhere.
        let exists = parts.find_map(|part| match part.symlink_metadata() {
            Ok(_) => Some(part.canonicalize()),
            Err(_) => None,
        });
        match exists {
            Some(Ok(real)) if real.starts_with(&self.dir) => Ok(full),
            _ => Err(outside()),
        }
    }

    /// Whether there is such a file.
    pub fn has(&self, path: &str) -> bool {
        self.dir.join(path).exists()
    }

    /// The bytes of a file; `None` where there is none.
    pub fn bytes(&self, path: impl AsRef<Path>) -> Result<Option<Vec<u8>>, RootError> {
        self.read(path.as_ref())
    }

    fn read(&self, path: &Path) -> Result<Option<Vec<u8>>, RootError> {
        match fs::read(self.dir.join(path)) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(cause) => Err(RootError::File { path: path.into(), cause }),
        }
    }
}

/// Asks the router's own `ubus`. A machine without that program has no objects either.
fn asked(object: &str, method: &str, argument: Option<(&str, &str)>) -> Result<Option<Vec<u8>>, RootError> {
    let mut ubus = Command::new("ubus");
    ubus.args(["-S", "-t", UBUS_TIMEOUT_S, "call", object, method]).stdin(Stdio::null());
    if let Some((key, value)) = argument {
        ubus.arg(Value::from_iter([(key, value)]).to_string());
    }
    let failed = |cause: String| Err(RootError::Ubus { call: format!("{object} {method}"), cause });
    match ubus.output() {
        Ok(output) if output.status.success() => Ok(Some(output.stdout)),
        Ok(output) => match output.status.code() {
            Some(NO_SUCH_METHOD | NO_SUCH_OBJECT) => Ok(None),
            _ => failed(String::from_utf8_lossy(&output.stderr).trim().into()),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => failed(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_directory_answers_with_its_files_and_runs_nothing() {
        let dir = std::env::temp_dir().join(format!("sqm-autotune-root-{}", std::process::id()));
        fs::create_dir_all(dir.join("ubus")).unwrap();
        fs::write(dir.join("ubus/network.device.status.json"), "{}").unwrap();
        fs::write(dir.join("ubus/network.device.status.eth0.7.json"), r#"{"type":"VLAN"}"#).unwrap();
        fs::write(dir.join("ubus/dsl.metrics.json"), "{").unwrap();
        let root = Root::at(&dir).unwrap();
        assert_eq!(root.ubus("network.device", "status").unwrap(), Some(json!({})));
        let vlan = root.ubus_of("network.device", "status", "name", "eth0.7").unwrap();
        assert_eq!(vlan, Some(json!({"type": "VLAN"})));
        assert_eq!(root.ubus_of("network.device", "status", "name", "eth1").unwrap(), None);
        assert_eq!(root.ubus("uci", "get").unwrap(), None);
        assert!(
            root.ubus("dsl", "metrics")
                .unwrap_err()
                .to_string()
                .starts_with("cannot ask `ubus call dsl metrics`: no JSON")
        );
        assert_eq!(root.config("network").unwrap(), None);
        for (place, text) in [("etc/config", "config a"), ("var/run/uci", "config b")] {
            fs::create_dir_all(dir.join(place)).unwrap();
            fs::write(dir.join(place).join("firewall"), text).unwrap();
            assert_eq!(root.config("firewall").unwrap().unwrap().sections[0].kind, text[7..]);
        }
        fs::remove_dir_all(dir.join("var")).unwrap();
        fs::create_dir_all(dir.join("etc/config/sqm")).unwrap();
        let directory = root.config("sqm").unwrap_err().to_string();
        assert!(directory.starts_with("cannot read etc/config/sqm: "), "{directory}");
        fs::create_dir_all(dir.join("tmp")).unwrap();
        fs::write(dir.join("tmp/here"), "yes").unwrap();
        std::os::unix::fs::symlink("tmp", dir.join("run")).unwrap();
        std::os::unix::fs::symlink("/proc", dir.join("proc")).unwrap();
        assert_eq!((root.text("run/here").as_deref(), root.names("run")), (Some("yes"), Some(vec!["here".into()])));
        assert_eq!((root.text("proc/version"), root.names("proc"), root.names("none")), (None, None, None));
        assert!(!root.is_live() && Root::at(Path::new("/")).unwrap().is_live());
        std::os::unix::fs::symlink("/tmp", dir.join("var")).unwrap();
        assert!(root.path("var/run/x").is_err_and(|error| error.to_string().contains("leads out of")));
        assert!(root.path("etc/config/new").is_ok() && root.path("neither/nor").is_ok());
        fs::remove_dir_all(&dir).unwrap();
        assert!(Root::at(&dir).is_err());
    }
}
