//! The command line, parsed once: what comes out needs no further checks.

use super::doc::{self, CommandDoc};
use crate::calibration::Wish;
use crate::openwrt::network::Pick;
use crate::units::Rate;
use lexopt::{Arg, Parser};
use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

#[derive(Debug, PartialEq)]
pub enum Command {
    Calibrate(RunArgs),
    Measure(RunArgs),
    Lines,
    Serve {
        listen: SocketAddr,
    },
    Restore(FactArgs),
    Apply(ApplyArgs),
    Revert(FactArgs),
    Check(FactArgs),
    Status(FactArgs),
    History(HistoryArgs),
    Report(FactArgs),
    Sync(FactArgs),
    Link(FactArgs),
    Doctor(FactArgs),
    Mtu(FactArgs),
    Rpcd(RpcdArgs),
    /// Print this and be done.
    Print(String),
}

/// What `calibrate` and `measure` are told.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunArgs {
    pub line: LineArgs,
    pub direction: Option<Wanted>,
    pub sync_up: Option<Rate>,
    pub sync_down: Option<Rate>,
    pub max_bytes: Option<u64>,
    pub max_added_ms: Option<f64>,
    pub steps: Option<Vec<Wish>>,
    pub json: bool,
    pub yes: bool,
    pub apply: bool,
    /// Where the outcome is kept and written: another tree than this router.
    pub root: Option<PathBuf>,
}

/// What `apply` is told.
#[derive(Debug, Default, PartialEq)]
pub struct ApplyArgs {
    /// An outcome in the history, or a file with one; `None`: the last that has settings.
    pub id: Option<String>,
    pub root: Option<PathBuf>,
    pub line: LineArgs,
    pub dry_run: bool,
    pub json: bool,
    pub yes: bool,
}

/// What `history` is told.
#[derive(Debug, Default, PartialEq)]
pub struct HistoryArgs {
    /// This one in full; `None`: all in short.
    pub id: Option<String>,
    pub root: Option<PathBuf>,
    pub json: bool,
}

/// What `rpcd` is told.
#[derive(Debug, Default, PartialEq)]
pub struct RpcdArgs {
    /// `None`: list them.
    pub method: Option<Method>,
    pub root: Option<PathBuf>,
    /// Handed on to the process that does the work: which tree, and which line.
    pub tree: Vec<OsString>,
    pub line: Vec<OsString>,
    pub named: LineArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Status,
    Start,
    Cancel,
    Apply,
    Revert,
    History,
    Outcome,
    Advice,
    Findings,
}

impl Method {
    pub const ALL: [(&str, Self); 9] = [
        ("status", Self::Status),
        ("start", Self::Start),
        ("cancel", Self::Cancel),
        ("apply", Self::Apply),
        ("revert", Self::Revert),
        ("history", Self::History),
        ("outcome", Self::Outcome),
        ("advice", Self::Advice),
        ("findings", Self::Findings),
    ];
}

/// Whose facts, and of which WAN.
#[derive(Debug, Default, PartialEq)]
pub struct FactArgs {
    /// `None`: the router that this runs on.
    pub root: Option<PathBuf>,
    pub pick: Option<Pick>,
    pub json: bool,
}

/// Which line, and what only one kind of line understands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LineArgs {
    pub line: Option<LineName>,
    pub simulation: SimulationArgs,
    pub router: RouterArgs,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct SimulationArgs {
    pub seed: Option<u64>,
    pub pace: Option<f64>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct RouterArgs {
    pub device: Option<String>,
    pub reflectors: Vec<IpAddr>,
    pub upload_url: Option<String>,
    /// The certificate authorities to trust with HTTPS.
    pub ca: Option<PathBuf>,
    pub download_url: Option<String>,
    pub server: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum LineName {
    Router,
    Builtin(String),
    File(PathBuf),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Wanted {
    Upload,
    Download,
    Both,
}

/// One line that says what is wrong and what to write instead.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);

const DEFAULT_LISTEN: &str = "0.0.0.0:8080";

/// 10 Gbit/s. Above, somebody has written bit/s.
const MOST_KBIT: u64 = 10_000_000;

pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Command, UsageError> {
    let mut parser = Parser::from_args(args);
    let name = match next(&mut parser)? {
        None => return Err(UsageError("say what to do, for example: sqm-autotune calibrate (see --help)".into())),
        Some(Arg::Long("help") | Arg::Short('h')) => return Ok(Command::Print(doc::overview())),
        Some(Arg::Long("version") | Arg::Short('V')) => return Ok(Command::Print(version())),
        Some(Arg::Value(name)) => name.to_string_lossy().into_owned(),
        Some(Arg::Long(flag)) => return Err(unexpected(&format!("--{flag}"), "name a command before its options")),
        Some(Arg::Short(flag)) => return Err(unexpected(&format!("-{flag}"), "name a command before its options")),
    };
    let Some(command) = CommandDoc::named(&name) else {
        let names = || doc::COMMANDS.iter().map(|command| command.name);
        let advice = doc::closest(&name, names())
            .map_or_else(|| format!("known are {}", join(names())), |name| format!("did you mean {name}?"));
        return Err(UsageError(format!("there is no command {name:?}: {advice}")));
    };
    let mut run = RunArgs::default();
    let mut writing = None;
    let mut listen = None;
    let mut operands = Vec::new();
    let mut line_words = Vec::new();
    let (mut root, mut interface) = (None, None);
    while let Some(arg) = next(&mut parser)? {
        let flag = match arg {
            Arg::Long("help") | Arg::Short('h') => return Ok(Command::Print(command.help())),
            Arg::Long("version") | Arg::Short('V') => return Ok(Command::Print(version())),
            Arg::Long(flag) => command.flag(flag).ok_or_else(|| unknown_flag(command, flag))?,
            Arg::Short(flag) => return Err(unexpected(&format!("-{flag}"), "options have long names, see --help")),
            Arg::Value(value) if operands.len() < command.operands() => {
                operands.push(value.to_string_lossy().into_owned());
                continue;
            }
            Arg::Value(value) => return Err(unexpected(&value.to_string_lossy(), "options begin with --")),
        };
        let value = if flag.value.is_empty() { String::new() } else { value(&mut parser, flag)? };
        if let "line" | "seed" | "pace" = flag.name {
            line_words.extend([format!("--{}", flag.name).into(), OsString::from(&value)]);
        }
        let value = Value { flag: flag.name, text: &value };
        let RunArgs { line: LineArgs { line, simulation, router }, .. } = &mut run;
        match flag.name {
            "line" => *line = Some(line_name(value)?),
            "seed" => simulation.seed = Some(value.parse("a whole number, for example 1")?),
            "pace" => simulation.pace = Some(value.positive("how many times as fast as real time, for example 10")?),
            "device" => router.device = Some(value.device()?),
            "reflector" => router.reflectors.push(value.parse("an IPv4 or IPv6 address, for example 9.9.9.9")?),
            "upload-url" => router.upload_url = Some(value.url()?),
            "download-url" => router.download_url = Some(value.url()?),
            "server" => router.server = Some(value.url()?),
            "ca" => router.ca = Some(PathBuf::from(value.text)),
            "direction" => run.direction = Some(direction(value)?),
            "sync-up" => run.sync_up = Some(value.rate()?),
            "sync-down" => run.sync_down = Some(value.rate()?),
            "max-mbytes" => run.max_bytes = Some(value.count("whole megabytes, for example 200")? * 1_000_000),
            "max-added-ms" => run.max_added_ms = Some(value.positive("milliseconds, for example 10")?),
            "steps" => run.steps = Some(steps(value)?),
            "json" => run.json = true,
            "yes" => run.yes = true,
            "apply" | "dry-run" => set_once(&mut writing, flag.name)?,
            "root" => root = Some(PathBuf::from(value.text)),
            "interface" => interface = Some(value.text.to_owned()),
            "listen" => listen = Some(value.parse("an address and a port, for example 0.0.0.0:8080")?),
            unread => unreachable!("--{unread} is documented and not parsed"),
        }
    }
    let operand = operands.first().cloned();
    match command.name {
        "calibrate" => {
            (run.apply, run.root) = (writing == Some("apply"), root);
            Ok(Command::Calibrate(run))
        }
        "measure" => Ok(Command::Measure(run)),
        "apply" => Ok(Command::Apply(ApplyArgs {
            id: operand,
            root,
            line: run.line,
            dry_run: writing == Some("dry-run"),
            json: run.json,
            yes: run.yes,
        })),
        "lines" => Ok(Command::Lines),
        "serve" => Ok(Command::Serve { listen: listen.unwrap_or_else(|| DEFAULT_LISTEN.parse().expect("an address")) }),
        "restore" => Ok(Command::Restore(facts(run, root, interface)?)),
        "status" => Ok(Command::Status(facts(run, root, interface)?)),
        "report" => Ok(Command::Report(facts(run, root, interface)?)),
        "history" => Ok(Command::History(HistoryArgs { id: operand, root, json: run.json })),
        "check" => Ok(Command::Check(facts(run, root, interface)?)),
        "revert" => Ok(Command::Revert(facts(run, root, interface)?)),
        "sync" => Ok(Command::Sync(facts(run, root, interface)?)),
        "link" => Ok(Command::Link(facts(run, root, interface)?)),
        "doctor" => Ok(Command::Doctor(facts(run, root, interface)?)),
        "mtu" => Ok(Command::Mtu(facts(run, root, interface)?)),
        "rpcd" => Ok(Command::Rpcd(RpcdArgs {
            method: method(&operands)?,
            tree: root.iter().flat_map(|root| [OsString::from("--root"), root.into()]).collect(),
            root,
            line: line_words,
            named: run.line,
        })),
        unread => unreachable!("{unread} is documented and not a command"),
    }
}

/// The kernel puts the file's own name first where that begins with `#!`.
fn method(words: &[String]) -> Result<Option<Method>, UsageError> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let known = || join(Method::ALL.into_iter().map(|(name, _)| name));
    match words.as_slice() {
        [file, rest @ ..] if file.contains('/') => method(&rest.iter().map(ToString::to_string).collect::<Vec<_>>()),
        ["list"] => Ok(None),
        ["call", name] => match Method::ALL.into_iter().find(|(method, _)| method == name) {
            Some((_, method)) => Ok(Some(method)),
            None => Err(UsageError(format!("there is no method {name:?}: known are {}", known()))),
        },
        _ => Err(UsageError(format!("write rpcd list, or rpcd call and one of {}", known()))),
    }
}

fn facts(run: RunArgs, root: Option<PathBuf>, interface: Option<String>) -> Result<FactArgs, UsageError> {
    let pick = match (interface, run.line.router.device) {
        (Some(_), Some(_)) => {
            return Err(UsageError("--interface and --device both name the WAN: write one of them".into()));
        }
        (interface, device) => interface.map(Pick::Interface).or(device.map(Pick::Device)),
    };
    Ok(FactArgs { root, pick, json: run.json })
}

fn next(parser: &mut Parser) -> Result<Option<Arg<'_>>, UsageError> {
    parser.next().map_err(|error| UsageError(format!("{error}: that option takes no value")))
}

fn value(parser: &mut Parser, flag: &doc::Flag) -> Result<String, UsageError> {
    let missing = || UsageError(format!("--{} needs a value: {} ({})", flag.name, flag.value, flag.about));
    let value = parser.value().map_err(|_| missing())?.to_string_lossy().into_owned();
    // `--json --line` and the like: an option where its value should be.
    if value.is_empty() || value.starts_with("--") { Err(missing()) } else { Ok(value) }
}

fn version() -> String {
    format!("sqm-autotune {}\n", env!("CARGO_PKG_VERSION"))
}

fn unexpected(what: &str, advice: &str) -> UsageError {
    UsageError(format!("{what:?} is not expected here: {advice}"))
}

fn unknown_flag(command: &CommandDoc, flag: &str) -> UsageError {
    let elsewhere = doc::COMMANDS.iter().find(|other| other.flag(flag).is_some());
    let advice = match (doc::closest(flag, command.all_flags().map(|flag| flag.name)), elsewhere) {
        (_, Some(other)) => format!("it belongs to {}", other.name),
        (Some(close), None) => format!("did you mean --{close}?"),
        (None, None) => format!("see sqm-autotune {} --help", command.name),
    };
    UsageError(format!("{} knows no --{flag}: {advice}", command.name))
}

fn set_once(writing: &mut Option<&'static str>, flag: &'static str) -> Result<(), UsageError> {
    if writing.replace(flag).is_some_and(|before| before != flag) {
        return Err(UsageError("--apply and --dry-run contradict each other: write one of them".into()));
    }
    Ok(())
}

fn line_name(value: Value) -> Result<LineName, UsageError> {
    match value.text.strip_prefix("sim:") {
        _ if value.text == "router" => Ok(LineName::Router),
        Some(file) if file.contains('/') || PathBuf::from(file).extension().is_some() => {
            Ok(LineName::File(file.into()))
        }
        Some(name) if !name.is_empty() => Ok(LineName::Builtin(name.into())),
        _ => Err(value.wrong("router, sim:NAME (see `sqm-autotune lines`) or sim:FILE.toml")),
    }
}

fn direction(value: Value) -> Result<Wanted, UsageError> {
    match value.text {
        "upload" => Ok(Wanted::Upload),
        "download" => Ok(Wanted::Download),
        "both" => Ok(Wanted::Both),
        _ => Err(value.wrong("upload, download or both")),
    }
}

fn steps(value: Value) -> Result<Vec<Wish>, UsageError> {
    let named = |step: &str| Wish::ALL.into_iter().find(|(name, _)| *name == step).map(|(_, wish)| wish);
    if let Some(steps) = value.text.split(',').map(named).collect() {
        Ok(steps)
    } else {
        Err(value.wrong(&format!("some of {}, with commas between them", Wish::ALL.map(|(name, _)| name).join(","))))
    }
}

/// A flag's value before it is understood.
#[derive(Clone, Copy)]
struct Value<'a> {
    flag: &'static str,
    text: &'a str,
}

impl Value<'_> {
    fn wrong(self, instead: &str) -> UsageError {
        UsageError(format!("--{} cannot be {:?}: write {instead}", self.flag, self.text))
    }

    fn parse<T: FromStr>(self, instead: &str) -> Result<T, UsageError> {
        self.text.parse().map_err(|_| self.wrong(instead))
    }

    fn count(self, instead: &str) -> Result<u64, UsageError> {
        // The bound keeps megabytes as bytes within a u64.
        let count = self.parse(instead)?;
        if (1..=1_000_000_000_000).contains(&count) { Ok(count) } else { Err(self.wrong(instead)) }
    }

    fn positive(self, instead: &str) -> Result<f64, UsageError> {
        let number: f64 = self.parse(instead)?;
        if number.is_finite() && number > 0.0 { Ok(number) } else { Err(self.wrong(instead)) }
    }

    fn rate(self) -> Result<Rate, UsageError> {
        let kbit = self.count("a rate in kbit/s above zero, for example 18000")?;
        if kbit > MOST_KBIT {
            return Err(self.wrong(&format!("kbit/s, not bit/s: {} perhaps", kbit / 1000)));
        }
        Ok(Rate::from_kbit(kbit))
    }

    fn url(self) -> Result<String, UsageError> {
        let host = self.text.strip_prefix("http://").or_else(|| self.text.strip_prefix("https://"));
        match host {
            Some(host) if !host.is_empty() && !self.text.contains(char::is_whitespace) => Ok(self.text.into()),
            _ => Err(self.wrong("an address that begins with http:// or https://")),
        }
    }

    /// As Linux allows device names: at most 15 bytes, no slash, no white space (`dev_valid_name`).
    fn device(self) -> Result<String, UsageError> {
        if self.text.len() > 15 || self.text.contains(|c: char| c == '/' || c.is_whitespace() || c.is_control()) {
            return Err(self.wrong("the name of a network device, for example pppoe-wan"));
        }
        Ok(self.text.into())
    }
}

fn join<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Command, UsageError> {
        parse(line.split_whitespace().map(OsString::from))
    }

    fn wrong(line: &str) -> String {
        parsed(line).expect_err(line).0
    }

    #[test]
    fn everything_said_arrives() {
        let Ok(Command::Calibrate(run)) = parsed(
            "calibrate --line router --device pppoe-wan --reflector 9.9.9.9 --reflector 2620:fe::fe --server http://box:8080 \
             --upload-url=https://a/up --download-url https://a/down --ca /etc/ours.pem --sync-up 18000 --sync-down 67000 --max-mbytes 200 \
             --max-added-ms 7.5 --direction both --json --yes --dry-run",
        ) else {
            panic!("not parsed")
        };
        assert_eq!(run.line.line, Some(LineName::Router));
        assert_eq!(run.line.router.device.as_deref(), Some("pppoe-wan"));
        assert_eq!(run.line.router.reflectors.len(), 2);
        assert_eq!(run.line.router.upload_url.as_deref(), Some("https://a/up"));
        assert_eq!(run.line.router.ca.as_deref(), Some("/etc/ours.pem".as_ref()));
        assert_eq!((run.sync_up, run.sync_down), (Some(Rate::from_kbit(18_000)), Some(Rate::from_kbit(67_000))));
        assert_eq!((run.max_bytes, run.max_added_ms), (Some(200_000_000), Some(7.5)));
        assert!(run.json && run.yes && run.direction == Some(Wanted::Both));
    }

    #[test]
    fn a_line_is_a_router_a_name_or_a_file() {
        let line = |text: &str| match parsed(&format!("measure --line {text} --seed 7 --pace 2.5")) {
            Ok(Command::Measure(run)) => run.line,
            other => panic!("{other:?}"),
        };
        assert_eq!(line("sim:docsis").line, Some(LineName::Builtin("docsis".into())));
        assert_eq!(line("sim:my.toml").line, Some(LineName::File("my.toml".into())));
        assert_eq!(line("sim:lines/mine").line, Some(LineName::File("lines/mine".into())));
        assert_eq!(line("router").simulation, SimulationArgs { seed: Some(7), pace: Some(2.5) });
    }

    #[test]
    fn facts_are_asked_of_a_router_or_a_directory() {
        let picked = |pick| FactArgs { root: Some("/tmp/router".into()), pick: Some(pick), json: true };
        let link = parsed("link --root /tmp/router --device eth1 --json");
        assert_eq!(link, Ok(Command::Link(picked(Pick::Device("eth1".into())))));
        let sync = parsed("sync --json --interface wan2 --root=/tmp/router");
        assert_eq!(sync, Ok(Command::Sync(picked(Pick::Interface("wan2".into())))));
        assert_eq!(parsed("sync"), Ok(Command::Sync(FactArgs::default())));
        assert!(wrong("link --interface wan --device eth1").contains("one of them"));
        assert!(wrong("measure --root /").contains("it belongs to calibrate"));
    }

    #[test]
    fn a_wrong_value_names_the_flag_the_value_and_the_cure() {
        for (line, flag, value, cure) in [
            ("calibrate --sync-up 0", "--sync-up", "\"0\"", "18000"),
            ("calibrate --sync-up -5", "--sync-up", "\"-5\"", "18000"),
            ("calibrate --sync-up 18mbit", "--sync-up", "\"18mbit\"", "18000"),
            ("calibrate --sync-down 66999000", "--sync-down", "\"66999000\"", "66999 perhaps"),
            ("calibrate --max-mbytes 0", "--max-mbytes", "\"0\"", "200"),
            ("calibrate --max-mbytes 99999999999999999999", "--max-mbytes", "\"9999", "200"),
            ("calibrate --max-added-ms 0", "--max-added-ms", "\"0\"", "milliseconds"),
            ("calibrate --max-added-ms NaN", "--max-added-ms", "\"NaN\"", "milliseconds"),
            ("calibrate --pace inf", "--pace", "\"inf\"", "10"),
            ("calibrate --seed one", "--seed", "\"one\"", "1"),
            ("calibrate --line dsl", "--line", "\"dsl\"", "sim:NAME"),
            ("calibrate --line sim:", "--line", "\"sim:\"", "sim:NAME"),
            ("calibrate --direction up", "--direction", "\"up\"", "upload, download or both"),
            ("calibrate --steps link,sirch", "--steps", "\"link,sirch\"", "search"),
            ("measure --reflector dns", "--reflector", "\"dns\"", "9.9.9.9"),
            ("measure --server box:8080", "--server", "\"box:8080\"", "http://"),
            ("measure --device wan/0", "--device", "\"wan/0\"", "pppoe-wan"),
            ("serve --listen 8080", "--listen", "\"8080\"", "0.0.0.0:8080"),
        ] {
            let error = wrong(line);
            assert!(error.contains(flag) && error.contains(value) && error.contains(cure), "{line}: {error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }

    #[test]
    fn a_wrong_word_is_answered_with_a_near_one() {
        assert!(wrong("calibrat").contains("did you mean calibrate?"));
        assert!(wrong("sorcery").contains("known are calibrate, measure, lines, serve, restore, "));
        assert!(wrong("calibrate --jsn").contains("did you mean --json?"));
        assert!(wrong("measure --listen 1.2.3.4:5").contains("it belongs to serve"));
        assert!(wrong("calibrate --wireguard").contains("--help"));
        assert!(wrong("--json calibrate").contains("\"--json\""));
        assert!(wrong("calibrate now").contains("\"now\""));
        assert!(wrong("calibrate -x").contains("\"-x\""));
        assert!(wrong("calibrate --json=yes").contains("--json"));
        assert!(wrong("calibrate --line").contains("--line needs a value"));
        assert!(wrong("calibrate --line --json").contains("--line needs a value"));
    }

    #[test]
    fn writing_is_asked_for_or_only_shown() {
        let Ok(Command::Calibrate(run)) = parsed("calibrate --apply --root /tmp/router") else { panic!() };
        assert!(run.apply && run.root == Some("/tmp/router".into()));
        let Ok(Command::Calibrate(run)) = parsed("calibrate --dry-run") else { panic!() };
        assert!(!run.apply);
        assert!(wrong("calibrate --apply --dry-run").contains("contradict"));
        let Ok(Command::Apply(apply)) = parsed("apply 20261130-0912-1 --dry-run --device eth1 --yes --json") else {
            panic!()
        };
        assert_eq!(apply.id.as_deref(), Some("20261130-0912-1"));
        assert!(apply.dry_run && apply.yes && apply.json && apply.line.router.device.as_deref() == Some("eth1"));
        assert!(wrong("apply 1 2").contains("\"2\""));
        assert!(wrong("revert 1").contains("\"1\""));
        let history = HistoryArgs { id: Some("1".into()), root: None, json: true };
        assert_eq!(parsed("history 1 --json"), Ok(Command::History(history)));
    }

    #[test]
    fn help_and_version_are_answered_anywhere() {
        let printed = |line: &str| match parsed(line) {
            Ok(Command::Print(text)) => text,
            other => panic!("{line}: {other:?}"),
        };
        assert!(printed("--version").starts_with("sqm-autotune "));
        assert!(printed("calibrate --help").contains("--max-added-ms"));
        assert!(printed("serve -h").contains("--listen"));
        assert!(printed("--help").contains("calibrate"));
    }
}
