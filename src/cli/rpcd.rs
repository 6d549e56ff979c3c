//! `rpcd`: what the LuCI page asks. One method, JSON on stdin, JSON on stdout; nothing here takes long: work is done by a
//! process of its own, which [`super::job`] lets be watched.

mod show;

use super::args::{Method, RpcdArgs};
use super::doctor::diagnose;
use super::exit::Exit;
use super::job::{Phase, State};
use super::words::clean;
use super::{held, history, json, mtu, print};
use crate::calibration::outcome::FORMAT;
use crate::openwrt::{Root, history as kept};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::FromRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// rpcd itself takes no more.
const LONGEST_QUESTION: u64 = 64 * 1024;
/// A modem's driver may take its time to tell the rates; a browser waits 20 s.
const PATIENCE: Duration = Duration::from_secs(15);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Why a method did not do what it was asked.
#[derive(Debug, Serialize)]
pub struct Wrong {
    /// `bad-argument`, `busy`, `not-running`, `unknown`, `refused` or `failed`.
    code: &'static str,
    text: String,
}

impl Wrong {
    fn new(code: &'static str, text: impl std::fmt::Display) -> Self {
        Self { code, text: clean(&text.to_string()) }
    }
}

#[derive(Debug, Serialize)]
struct Outcomes {
    format: u32,
    outcomes: Vec<history::Entry>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Start {
    direction: Option<String>,
    max_mbytes: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    id: Option<String>,
}

pub fn rpcd(args: &RpcdArgs) -> Exit {
    let Some(method) = args.method else {
        print(&(methods().to_string() + "\n"));
        return Exit::Done;
    };
    let reply = held::root(args.root.as_deref()).map_err(|error| Wrong::new("failed", error)).and_then(|root| {
        let question = question()?;
        match method {
            Method::Status => read(question).map(|Nothing {}| json::text(&show::status(&root))),
            Method::Outcome => {
                let Named { id } = read(question)?;
                Ok(json::text(&show::outcome(&root, args, id.as_deref())?))
            }
            Method::History => {
                let Nothing {} = read(question)?;
                Ok(json::text(&Outcomes { format: FORMAT, outcomes: history::entries(&root) }))
            }
            Method::Findings => read(question).map(|Nothing {}| json::text(&diagnose(&root))),
            Method::Advice => {
                let Nothing {} = read(question)?;
                Ok(json::text(&mtu::advise(&root, None, &|_| None).map_err(|error| Wrong::new("failed", error))?))
            }
            Method::Start => start(&root, args, &read(question)?),
            Method::Apply => apply(&root, args, &read(question)?),
            Method::Revert => read(question).and_then(|Nothing {}| work(&root, args, &["revert"], false)),
            Method::Cancel => read(question).and_then(|Nothing {}| cancel(&root)),
        }
    });
    let reply = reply.unwrap_or_else(|wrong| json!({ "format": FORMAT, "error": wrong }).to_string());
    print(&(reply + "\n"));
    Exit::Done
}

/// As ubus wants it: an example of each argument tells its type.
fn methods() -> Value {
    let methods = Method::ALL.map(|(name, method)| {
        let arguments = match method {
            Method::Start => json!({ "direction": "both", "max_mbytes": 0 }),
            Method::Apply | Method::Outcome => json!({ "id": "" }),
            _ => json!({}),
        };
        (name.to_owned(), arguments)
    });
    Value::Object(Map::from_iter(methods))
}

fn question() -> Result<Value, Wrong> {
    let mut text = String::new();
    let wrong =
        |error: &dyn std::fmt::Display| Wrong::new("bad-argument", format!("the arguments are no JSON: {error}"));
    std::io::stdin().lock().take(LONGEST_QUESTION).read_to_string(&mut text).map_err(|error| wrong(&error))?;
    if text.trim().is_empty() {
        return Ok(json!({}));
    }
    let mut question: Value = serde_json::from_str(&text).map_err(|error| wrong(&error))?;
    if let Some(arguments) = question.as_object_mut() {
        // The gateway adds the caller's session to what it hands on.
        arguments.remove("ubus_rpc_session");
    }
    Ok(question)
}

fn read<T: DeserializeOwned>(question: Value) -> Result<T, Wrong> {
    if !question.is_object() {
        return Err(Wrong::new("bad-argument", "the arguments are no JSON object"));
    }
    serde_json::from_value(question).map_err(|error| Wrong::new("bad-argument", error))
}

fn start(root: &Root, args: &RpcdArgs, asked: &Start) -> Result<String, Wrong> {
    let direction = asked.direction.as_deref().unwrap_or("both");
    if !["upload", "download", "both"].contains(&direction) {
        let text = format!("direction cannot be {direction:?}: write upload, download or both");
        return Err(Wrong::new("bad-argument", text));
    }
    let most = match asked.max_mbytes {
        None => None,
        Some(most @ 1..=1_000_000) => Some(most.to_string()),
        Some(most) => {
            let text = format!("max_mbytes cannot be {most}: write whole megabytes, for example 200");
            return Err(Wrong::new("bad-argument", text));
        }
    };
    let mut words = vec!["calibrate", "--json", "--yes", "--direction", direction];
    if let Some(most) = &most {
        words.extend(["--max-mbytes", most]);
    }
    work(root, args, &words, true)
}

fn apply(root: &Root, args: &RpcdArgs, asked: &Named) -> Result<String, Wrong> {
    let Some(id) = &asked.id else {
        return Err(Wrong::new("bad-argument", "id is missing: name an outcome of the history"));
    };
    let outcome = kept::get(root, id).map_err(|error| Wrong::new("unknown", error))?;
    work(root, args, &["apply", &outcome.id, "--json", "--yes"], false)
}

/// Starts ourselves once more, in a session of its own, and waits only until it can be watched.
fn work(root: &Root, args: &RpcdArgs, words: &[&str], measures: bool) -> Result<String, Wrong> {
    if State::running(root).is_some() {
        return Err(busy());
    }
    let failed = |error| Wrong::new("failed", format!("cannot start: {error}"));
    let mut said = nowhere().map_err(failed)?;
    let child = spawn(args, words, measures, &said).map_err(failed)?;
    begun(root, child, &mut said)
}

fn begun(root: &Root, mut leader: Child, said: &mut File) -> Result<String, Wrong> {
    let is_seen = |leader: &Child| State::read(root).is_some_and(|state| state.was_started_by(leader.id()));
    let since = Instant::now();
    loop {
        if is_seen(&leader) {
            return Ok(json!({ "format": FORMAT, "started": true }).to_string());
        }
        match leader.try_wait() {
            // It may have been quick, and it may have lost against somebody else.
            Ok(Some(_)) if is_seen(&leader) => {}
            Ok(Some(_)) if State::running(root).is_some() => return Err(busy()),
            Ok(Some(_)) => return Err(Wrong::new("failed", told(said))),
            Ok(None) if since.elapsed() < PATIENCE => std::thread::sleep(LOOK_EVERY),
            Ok(None) => return Ok(json!({ "format": FORMAT, "started": true }).to_string()),
            Err(error) => return Err(Wrong::new("failed", error)),
        }
    }
}

fn busy() -> Wrong {
    Wrong::new("busy", "another run is going on: wait for its end, or stop it")
}

fn spawn(args: &RpcdArgs, words: &[&str], measures: bool, said: &File) -> std::io::Result<Child> {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("sqm-autotune").args(words).args(&args.tree);
    if measures {
        command.args(&args.line);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said.try_clone()?);
    // SAFETY: setsid is a bare system call, allowed between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::setsid();
            Ok(())
        });
    }
    command.spawn()
}

/// What the new process says goes where nobody has to read it: a pipe would end with us.
fn nowhere() -> std::io::Result<File> {
    // SAFETY: the name is a C string, and a descriptor that is not negative is ours alone.
    let file = unsafe { libc::memfd_create(c"said".as_ptr(), libc::MFD_CLOEXEC) };
    if file < 0 { Err(std::io::Error::last_os_error()) } else { Ok(unsafe { File::from_raw_fd(file) }) }
}

fn told(said: &mut File) -> String {
    let mut text = String::new();
    let read = said.rewind().and_then(|()| said.take(LONGEST_QUESTION).read_to_string(&mut text));
    let last = text.lines().rfind(|line| !line.trim().is_empty()).filter(|_| read.is_ok());
    last.map_or("it ended at once", |line| line.trim_start_matches("sqm-autotune: ")).into()
}

fn cancel(root: &Root) -> Result<String, Wrong> {
    let Some(state) = State::read(root).filter(|state| state.phase() == Phase::Running) else {
        return Err(Wrong::new("not-running", "nothing is running that could be stopped"));
    };
    // SAFETY: only a signal. The process puts everything back before it ends.
    if unsafe { libc::kill(state.pid as libc::pid_t, libc::SIGTERM) } != 0 {
        return Err(Wrong::new("failed", std::io::Error::last_os_error()));
    }
    Ok(json!({ "format": FORMAT, "stopping": true }).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Where a parent watches the work, as on a router, what is seen is a child of what was started. It may be over soon.
    #[test]
    fn what_a_child_of_the_started_one_does_is_seen() {
        let dir = std::env::temp_dir().join(format!("sqm-autotune-begun-{}", std::process::id()));
        let place = dir.join("var/run/sqm-autotune");
        fs::create_dir_all(&place).unwrap();
        let root = Root::at(&dir).unwrap();
        let job = |session: &str| {
            format!(
                r#"{{"format":1,"what":"revert","pid":1,"session":{session},"born":1,"began":"","at":"","line":null,"server":null,
                "stages":[],"now":null,"delays":[],"points":[],"notes":[],"left_s":null,"end":{{"exit":"done","reason":null,"outcome":null}}}}"#
            )
        };
        let mut said = nowhere().unwrap();
        let mut reply = |words: &str| {
            let leader = Command::new("sh").args(["-c", words]).current_dir(&place).spawn().unwrap();
            begun(&root, leader, &mut said)
        };
        fs::write(place.join("job.json"), job("1")).unwrap();
        assert_eq!(reply("exit 0").unwrap_err().code, "failed", "that of another session is not its own");
        fs::write(place.join("form"), job("$$")).unwrap();
        let started = reply("sed \"s/[$][$]/$$/\" form >new; mv new job.json");
        assert!(started.unwrap().contains("\"started\":true"));
        fs::remove_dir_all(&dir).unwrap();
    }
}
