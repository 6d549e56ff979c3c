//! `doctor` for routers in text files (`tests/fixtures/doctor`), as a script meets it.
//!
//! A file says in its first line what it is about, then what makes the router and what is to be found on it:
//!
//! ```text
//! router NAME            all files of tests/fixtures/routers/NAME
//! base NAME              all files of another one of these, without its findings
//! replace PATH | A | B   A, which must be there, becomes B
//! remove PATH
//! file PATH TEXT         a file of one line
//! expect CODE WHERE      a finding; these and no others
//! == PATH                a file: the lines up to the next ==
//! ```

use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

type Files = BTreeMap<String, String>;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

#[derive(Default)]
struct Router {
    files: Files,
    expected: Vec<String>,
}

impl Router {
    fn named(name: &str) -> Self {
        let path = fixtures().join("doctor").join(format!("{name}.txt"));
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut router = Self::default();
        let mut parts = text.split("\n== ");
        for line in parts.next().unwrap().lines().skip(1) {
            router.obey(name, line);
        }
        for part in parts {
            let (path, text) = part.split_once('\n').unwrap();
            router.files.insert(path.into(), format!("{}\n", text.trim_end_matches('\n')));
        }
        router
    }

    fn obey(&mut self, name: &str, line: &str) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "" => {}
            "router" => add_all(&fixtures().join("routers").join(rest), "", &mut self.files),
            "base" => self.files.extend(Self::named(rest).files),
            "remove" => assert!(self.files.remove(rest).is_some(), "{name}: there is no {rest} to remove"),
            "file" => {
                let (path, text) = rest.split_once(' ').unwrap();
                self.files.insert(path.into(), format!("{text}\n"));
            }
            "replace" => {
                let [path, from, to] = rest.split(" | ").collect::<Vec<_>>()[..] else { panic!("{name}: {line}") };
                let unescaped = |text: &str| text.replace("\\n", "\n").replace("\\t", "\t");
                let (file, from) =
                    (self.files.get_mut(path).unwrap_or_else(|| panic!("{name}: no {path}")), unescaped(from));
                assert!(file.contains(&from), "{name}: {path} has no {from:?}");
                *file = file.replace(&from, &unescaped(to));
            }
            "expect" => self.expected.push(rest.into()),
            _ => panic!("{name}: {line:?} is none of the words"),
        }
    }

    fn written(&self, name: &str) -> PathBuf {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("doctor").join(name);
        let _ = fs::remove_dir_all(&dir);
        for (path, text) in &self.files {
            let path = dir.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        dir
    }
}

fn add_all(dir: &Path, below: &str, files: &mut Files) {
    for entry in fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display())) {
        let entry = entry.unwrap();
        let path = format!("{below}{}", entry.file_name().to_str().unwrap());
        if entry.path().is_dir() {
            add_all(&entry.path(), &format!("{path}/"), files);
        } else {
            files.insert(path, fs::read_to_string(entry.path()).unwrap());
        }
    }
}

fn run(root: &Path, json: bool) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sqm-autotune"));
    command.arg("doctor").args(json.then_some("--json")).arg("--root").arg(root);
    let Output { status, stdout, stderr } = command.output().expect("start the program");
    assert_eq!((status.code(), stderr.as_slice()), (Some(0), &b""[..]), "{}", root.display());
    String::from_utf8(stdout).unwrap()
}

fn findings(root: &Path) -> Vec<Value> {
    let diagnosis: Value = serde_json::from_str(&run(root, true)).unwrap();
    assert_eq!(diagnosis["format"], 1);
    diagnosis["findings"].as_array().unwrap().clone()
}

fn found(root: &Path) -> Vec<String> {
    let words =
        |finding: &Value| format!("{} {}", finding["code"].as_str().unwrap(), finding["where"].as_str().unwrap());
    findings(root).iter().map(words).collect()
}

/// The contract's table.
const CODES: [(&str, &str); 35] = [
    ("config-unreadable", "error"),
    ("bit-per-s", "error"),
    ("missing-rate", "error"),
    ("not-enabled", "error"),
    ("disabled-init", "error"),
    ("second-queue", "error"),
    ("unknown-device", "error"),
    ("logical-name", "error"),
    ("lan-queue", "warning"),
    ("layer-none-drops-overhead", "warning"),
    ("overhead-range", "error"),
    ("atm-on-frames", "warning"),
    ("frames-on-atm", "error"),
    ("script-qdisc-mismatch", "warning"),
    ("unknown-script", "error"),
    ("dead-option", "info"),
    ("bad-opts", "error"),
    ("flags-hide-options", "info"),
    ("not-running", "error"),
    ("not-cake", "error"),
    ("rate-differs", "warning"),
    ("directions-swapped", "error"),
    ("ifb-not-fed", "error"),
    ("no-redirect", "error"),
    ("hardware-offload", "error"),
    ("other-owner", "warning"),
    ("stale-lock", "error"),
    ("slower-than-rate", "warning"),
    ("bulk-tin-flood", "warning"),
    ("nested-queues", "info"),
    ("above-sync", "warning"),
    ("port-speed", "warning"),
    ("bad-rate", "error"),
    ("missing-module", "error"),
    ("no-default-route", "warning"),
];

fn names() -> Vec<String> {
    let entries = fs::read_dir(fixtures().join("doctor")).unwrap();
    let name = |entry: fs::DirEntry| entry.file_name().to_str().unwrap().strip_suffix(".txt").map(str::to_owned);
    let mut names: Vec<String> = entries.filter_map(|entry| name(entry.unwrap())).collect();
    names.sort();
    names
}

#[test]
fn each_router_has_exactly_its_findings() {
    let wrong: Vec<String> = names()
        .iter()
        .filter_map(|name| {
            let router = Router::named(name);
            let mut found = found(&router.written(name));
            let mut expected = router.expected;
            found.sort();
            expected.sort();
            (found != expected).then(|| format!("{name}:\n  expected {expected:?}\n  found    {found:?}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn each_finding_has_a_router_that_gives_it_alone_and_says_what_to_do() {
    let mut alone = BTreeSet::new();
    for name in names() {
        let found = findings(&Router::named(&name).written(&format!("alone-{name}")));
        let codes: BTreeSet<&str> = found.iter().map(|finding| finding["code"].as_str().unwrap()).collect();
        if let (1, Some(code)) = (codes.len(), codes.first()) {
            alone.insert((*code).to_owned());
        }
        for finding in &found {
            let word = |key: &str| finding[key].as_str().unwrap();
            let severity = CODES.iter().find(|(code, _)| *code == word("code")).expect("a known code").1;
            assert_eq!(word("severity"), severity, "{name}");
            for key in ["text", "fix", "where"] {
                assert!(!word(key).is_empty() && !word(key).contains('\n'), "{name}: {finding}");
            }
        }
    }
    let missing: Vec<&str> = CODES.iter().map(|(code, _)| *code).filter(|code| !alone.contains(*code)).collect();
    assert_eq!(missing, Vec::<&str>::new());
}

/// None of the routers of the other tests has a queue; the files of one cannot be read.
#[test]
fn a_router_without_sqm_is_healthy() {
    for entry in fs::read_dir(fixtures().join("routers")).unwrap() {
        let path = entry.unwrap().path();
        let expected: &[&str] =
            if path.ends_with("broken-replies") { &["config-unreadable /etc/config/network"] } else { &[] };
        assert_eq!(found(&path), expected, "{}", path.display());
    }
}

#[test]
fn the_numbers_are_in_the_words() {
    for (name, words) in [
        ("bit-per-s", &["17100 Mbit/s", "uci set sqm.@queue[0].upload='17100'"][..]),
        ("logical-name", &["pppoe-wan", "uci set sqm.@queue[0].interface='pppoe-wan'"]),
        ("c07-another-owner", &["200000 kbit/s and 700000", "cake-autorate runs"]),
        ("c10-no-redirect", &["no filter leads", "ifb4eth0"]),
        ("c23-five-queues", &["an @ name is known to the network configuration only"]),
        ("c28-vendor-kernel", &["none of them reaches ifb4pppoe-wan", "the queue on wan below"]),
        ("c35-targets", &["rtt 160ms"]),
        ("c49-port", &["wait 483 ms", "9750 kbit/s"]),
        ("missing-module", &["opkg update && opkg install kmod-sched-cake", "apk add kmod-sched-cake"]),
        ("missing-rate", &["2302 kbit/s", "14698 kbit/s"]),
        ("stale-lock", &["process 4711"]),
        ("unreadable", &["EOF with unterminated ' at line 6"]),
    ] {
        let text = run(&Router::named(name).written(&format!("words-{name}")), true);
        for word in words {
            assert!(text.contains(word), "{name}: {word:?} is not in {text}");
        }
    }
}

#[test]
fn people_get_lines_that_fit() {
    let text = run(&Router::named("missing-rate").written("people"), false);
    assert!(text.starts_with("Error    sqm.@queue[0].upload (missing-rate)\n"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let healthy = run(&Router::named("healthy-docsis").written("people-healthy"), false);
    assert_eq!(healthy, "Nothing is wrong with SQM, as far as can be seen.\n");
    let json: Value = serde_json::from_str(&run(&Router::named("healthy-docsis").written("json"), true)).unwrap();
    assert_eq!(json, json!({ "format": 1, "findings": [] }));
}

/// What a directory does not have: the last outcome, the machine's clock and flash.
mod with_more_than_files {
    use super::*;
    use sqm_autotune::calibration::outcome::Outcome;
    use sqm_autotune::openwrt::Root;
    use sqm_autotune::openwrt::doctor::{self, Code, Diagnosis, Facts, Machine};
    use sqm_autotune::openwrt::state::RouterState;
    use sqm_autotune::units::Rate;
    use std::time::{Duration, UNIX_EPOCH};

    fn diagnosed(name: &str, change: impl FnOnce(&mut Facts)) -> Vec<(Code, String)> {
        let root = Root::at(&Router::named(name).written(&format!("more-{name}"))).unwrap();
        let mut facts = Facts::read(&root, RouterState::read(&root), Machine::default(), Vec::new());
        change(&mut facts);
        Diagnosis::of(&facts).findings.into_iter().map(|finding| (finding.code, finding.text)).collect()
    }

    /// A real one, of a line that drains as much as is said.
    fn outcome(upload: u64, download: u64) -> Outcome {
        let mut agent = Command::new(env!("CARGO_BIN_EXE_sqm-autotune"));
        let output = agent.args(["calibrate", "--line", "sim:vdsl2-pppoe", "--json"]).output().unwrap();
        let mut outcome: Outcome = serde_json::from_slice(&output.stdout).unwrap();
        outcome.line = "wan".into();
        (outcome.upload.capacity_kbit, outcome.download.capacity_kbit) = (Some(upload), Some(download));
        outcome
    }

    /// C53: 240/20 measured, 90/17.5 set.
    #[test]
    fn a_rate_far_below_the_line_is_given_away() {
        let last = outcome(20_000, 240_000);
        let set = |facts: &mut Facts| {
            let text = "config queue\n\toption enabled '1'\n\toption interface 'wan'\n\toption upload '17500'\n\toption download '90000'\n";
            facts.sqm = Some(sqm_autotune::openwrt::uci::Config::parse(text.as_bytes()).unwrap());
            facts.live = RouterState::default();
        };
        let found = diagnosed("healthy-docsis", |facts| {
            set(facts);
            facts.outcomes = vec![last.clone()];
        });
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].0, Code::FarBelowLine);
        assert!(found[0].1.contains("90000 kbit/s is 37 % of the 240000"), "{}", found[0].1);
        let elsewhere = diagnosed("healthy-docsis", |facts| {
            set(facts);
            facts.outcomes = vec![Outcome { line: "eth7".into(), ..last }];
        });
        assert_eq!(elsewhere, []);

        let mut router = Router::named("healthy-docsis");
        let kept = serde_json::to_string(&outcome(23_500, 640_000)).unwrap();
        router.files.insert("etc/sqm-autotune/last.json".into(), kept);
        assert_eq!(super::found(&router.written("last-on-flash")), ["far-below-line sqm.@queue[0].download"]);
    }

    #[test]
    fn a_wrong_clock_and_a_full_flash_are_told() {
        let with = |seconds, free| {
            let machine = Machine { now: Some(UNIX_EPOCH + Duration::from_secs(seconds)), free_bytes: Some(free) };
            let found = diagnosed("healthy-docsis", |facts| facts.machine = machine);
            found.into_iter().map(|(code, _)| code).collect::<Vec<_>>()
        };
        assert_eq!(with(1_800_000_000, 1 << 20), []);
        assert_eq!(with(900, 1 << 20), [Code::WrongClock]);
        assert_eq!(with(1_800_000_000, 4096), [Code::NoSpace]);
    }

    /// C07, C25: what a calibration cannot go beside, on the device that it is about; more, if it is to be written.
    #[test]
    fn a_calibration_that_could_not_be_true_is_refused() {
        let hindrance = |name: &str, device: Option<&str>, is_to_be_written: bool| {
            let root = Root::at(&Router::named(name).written(&format!("hindrance-{name}"))).unwrap();
            let mut facts = Facts::read(&root, RouterState::default(), Machine::default(), Vec::new());
            // A router that is tuned for the first time has no queue yet.
            facts.sqm = None;
            doctor::hindrance(&facts, device, is_to_be_written).map(|finding| finding.code)
        };
        let known = |name: &str, is_to_be_written| hindrance(name, Some("pppoe-wan"), is_to_be_written);
        assert_eq!(known("healthy-pppoe-vdsl2", true), None);
        for name in ["hardware-offload", "hardware-offload-module"] {
            assert_eq!(known(name, false), Some(Code::HardwareOffload), "{name}");
            assert_eq!(hindrance(name, None, false), Some(Code::HardwareOffload), "{name}");
        }
        for name in ["other-owner", "other-owner-service", "other-owner-name", "c07-another-owner"] {
            let root = Root::at(&Router::named(name).written(&format!("device-{name}"))).unwrap();
            let facts = Facts::read(&root, RouterState::default(), Machine::default(), Vec::new());
            let queue = facts.sqm.as_ref().and_then(|sqm| sqm.sections[0].get("interface")).unwrap();
            assert_eq!(hindrance(name, Some(queue), false), Some(Code::OtherOwner), "{name}");
        }
        assert_eq!(known("other-owner-elsewhere", true), None);
        assert_eq!((known("stale-lock", false), known("stale-lock", true)), (None, Some(Code::StaleLock)));
        assert_eq!(known("lock-held", true), None);
    }

    /// What was seen to get through goes before what waits.
    #[test]
    fn a_second_look_decides_who_makes_the_queue() {
        let with = |kbit| {
            let seen = |facts: &mut Facts| {
                facts.live.throughput.insert("pppoe-wan".into(), Rate::from_kbit(kbit));
            };
            diagnosed("c49-port", seen).into_iter().map(|(code, _)| code).collect::<Vec<_>>()
        };
        assert_eq!(with(9700), []);
        assert_eq!(with(7000), [Code::SlowerThanRate]);
    }
}
