//! The program as a person, a script and a pipe meet it.
#![cfg(feature = "sim")]

use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A good run and a wrong word, as the shell would start them.
fn agent(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sqm-autotune"));
    command.args(line.split_whitespace()).stdin(Stdio::null());
    command.env_remove("NO_COLOR").env_remove("LC_ALL").env_remove("LC_CTYPE").env_remove("RUST_BACKTRACE");
    command.env("LANG", "C.UTF-8").env("TERM", "xterm");
    command
}

fn run(line: &str) -> (i32, String, String) {
    let Output { status, stdout, stderr } = agent(line).output().expect("start the program");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (status.code().expect("an exit code"), text(stdout), text(stderr))
}

fn calibrated(line: &str) -> (i32, Value) {
    let (code, stdout, stderr) = run(&format!("calibrate --json {line}"));
    let outcome = serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}\n{stderr}"));
    (code, outcome)
}

#[test]
fn the_line_this_project_comes_from_is_tuned() {
    let (code, outcome) = calibrated("--line sim:vdsl2-pppoe");
    assert_eq!((code, &outcome["outcome"]), (0, &"tuned".into()), "{outcome:#}");
    // The bottleneck drains 17,723 kbit/s with 34 bytes a packet: 17,839 as counted with the 44 of the link type.
    let kbit = outcome["upload"]["kbit"].as_u64().expect("a rate");
    assert!((16_900..=17_800).contains(&kbit), "{kbit}");
    let added = |trial: &Value| trial["added_ms"].as_f64().expect("a delay");
    let trials = outcome["trials"].as_array().expect("trials");
    let verified = trials.iter().rfind(|trial| trial["step"] == "verify").expect("a last check");
    assert!(added(verified) < 5.0, "{verified}");
    assert_eq!(verified["shaper_kbit"], kbit);
    let uci = outcome["uci"].as_str().expect("a section");
    assert!(uci.starts_with("config queue\n") && uci.contains(&format!("\toption upload '{kbit}'\n")), "{uci}");
    assert!(uci.contains("\toption interface 'pppoe-wan'\n") && uci.contains("\toption download '0'\n"), "{uci}");
}

#[test]
fn the_outcome_has_every_member_the_contract_names() {
    let (_, outcome) = calibrated("--line sim:vdsl2-pppoe");
    assert_eq!(outcome["format"], 1);
    for member in [
        "agent", "id", "line", "started", "reason", "upload", "download", "link", "target", "latency", "cost",
        "doubts", "trials", "uci",
    ] {
        assert!(outcome.get(member).is_some(), "{member} is missing in {outcome:#}");
    }
    let id = outcome["id"].as_str().unwrap();
    let digits: String = id.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    assert_eq!(digits, "00000000-0000-0");
    let started = outcome["started"].as_str().unwrap();
    assert!(started.len() == 20 && started.ends_with('Z') && started.as_bytes()[10] == b'T', "{started}");
    assert_eq!(started[..16].replace(['-', ':'], "").replace('T', "-"), id[..13], "one moment");
}

#[test]
fn the_same_seed_gives_the_same_outcome_and_another_one_does_not() {
    let timeless = |line: &str| {
        let (_, mut outcome) = calibrated(line);
        outcome["id"] = Value::Null;
        outcome["started"] = Value::Null;
        outcome
    };
    assert_eq!(timeless("--line sim:docsis --seed 7"), timeless("--line sim:docsis --seed 7"));
    assert_ne!(timeless("--line sim:docsis --seed 7")["trials"], timeless("--line sim:docsis --seed 8")["trials"]);
}

#[test]
fn every_ending_has_its_exit_code() {
    for (line, code, word) in [
        ("--line sim:good-modem", 0, "unneeded"),
        ("--line sim:lte", 3, "inconclusive"),
        ("--line sim:vdsl2-pppoe --max-mbytes 5", 3, "inconclusive"),
    ] {
        let (seen, outcome) = calibrated(line);
        assert_eq!((seen, outcome["outcome"].as_str()), (code, Some(word)), "{line}: {outcome:#}");
        assert_eq!(outcome["uci"], Value::Null, "{line}");
        assert!(outcome["reason"].is_string(), "{line}");
    }
}

#[test]
fn measure_grades_and_recommends_nothing() {
    let (code, stdout, _) = run("measure --line sim:vdsl2-pppoe --json");
    let outcome: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(code, 0);
    assert_eq!((&outcome["latency"]["grade_before"], &outcome["uci"]), (&"C".into(), &Value::Null), "{outcome:#}");
    assert_eq!(outcome["upload"]["kbit"], Value::Null);
    let (_, words, _) = run("measure --line sim:vdsl2-pppoe");
    assert!(words.contains("Grade C: while the upload is busy"), "{words}");
}

#[test]
fn in_a_pipe_there_are_plain_lines_and_no_codes() {
    let (code, stdout, stderr) = run("calibrate --line sim:vdsl2-pppoe");
    assert_eq!(code, 0);
    assert!(!stdout.contains('\x1b') && !stderr.contains(['\x1b', '\r']), "{stderr}");
    assert!(stdout.contains("config queue") && stdout.lines().all(|line| line.chars().count() <= 80), "{stdout}");
    assert!(stdout.contains("adds only 3."), "{stdout}");
    let trials = stderr.lines().filter(|line| line.starts_with("trial ")).count();
    let rows = stdout.lines().skip_while(|line| !line.contains("kbit/s")).skip(1).take_while(|line| !line.is_empty());
    let rows = rows.filter(|row| row.trim_start().starts_with(|first: char| first.is_ascii_digit()));
    assert_eq!(trials, rows.count(), "{stderr}{stdout}");
    let ascii = agent("calibrate --line sim:vdsl2-pppoe --direction upload").env("LANG", "C").output().unwrap();
    assert!(ascii.stdout.is_ascii() && ascii.stderr.is_ascii());
}

#[test]
fn on_a_terminal_one_line_is_rewritten_in_colour_unless_that_is_unwanted() {
    let shown = on_terminal(&mut agent("calibrate --line sim:vdsl2-pppoe"));
    assert!(shown.contains("\r\x1b[2K") && shown.contains("trying 17,100 kbit/s"), "{shown}");
    assert!(shown.contains("\x1b[32m") && !shown.contains("\ntrial 3"), "{shown}");
    let plain = on_terminal(agent("calibrate --line sim:vdsl2-pppoe").env("NO_COLOR", "1"));
    assert!(plain.replace("\r\x1b[2K", "").find('\x1b').is_none(), "{plain}");
    let dumb = on_terminal(agent("calibrate --line sim:vdsl2-pppoe").env("TERM", "dumb"));
    assert!(!dumb.contains('\x1b') && dumb.contains("trial 5: search"), "{dumb}");
}

#[test]
fn a_signal_stops_it_within_a_moment_and_what_was_seen_survives() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let mut child = agent("calibrate --line sim:vdsl2-pppoe --pace 4 --json")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut told = String::new();
        while !told.contains("trial 1") {
            assert!(stderr.read_line(&mut told).unwrap() > 0, "it ended early: {told}");
        }
        // SAFETY: the child has not been waited for, so its number is still its own.
        unsafe { libc::kill(child.id() as libc::pid_t, signal) };
        let sent = Instant::now();
        let (code, stdout) = ended(child);
        assert!(sent.elapsed() < Duration::from_secs(2), "took {:?}", sent.elapsed());
        stderr.read_to_string(&mut told).unwrap();
        assert_eq!(code, 130, "{told}");
        assert!(told.contains("stopped; the line is as it was"), "{told}");
        let outcome: Value = serde_json::from_str(&stdout).unwrap();
        assert_eq!(outcome["outcome"], "failed");
        assert!(!outcome["trials"].as_array().unwrap().is_empty(), "{outcome:#}");
    }
}

#[test]
fn a_reader_who_leaves_is_no_error() {
    let mut child = agent("lines").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let mut told = String::new();
    child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    assert_eq!((child.wait().unwrap().code(), told.as_str()), (Some(0), ""));
}

#[test]
fn wrong_usage_is_one_line_on_stderr() {
    for (line, needed) in [
        ("", "calibrate"),
        ("calibrat", "did you mean calibrate?"),
        ("sorcery", "known are"),
        ("calibrate --line sim:vdsl2", "did you mean --line sim:vdsl2-pppoe?"),
        ("calibrate --line sim:moon", "known are vdsl2-pppoe, "),
        ("calibrate --line sim:missing.toml", "missing.toml"),
        ("calibrate --line sim:vdsl2-pppoe --sync-up 0", "--sync-up"),
        ("calibrate --line sim:vdsl2-pppoe --device wan", "--device is for a router"),
        ("calibrate --line router --root /tmp", "--root is for simulated lines"),
        ("calibrate --line router --seed 1", "--seed is for simulated lines"),
        ("calibrate --line sim:vdsl2-pppoe --apply", "--root DIR"),
        ("calibrate --line sim:vdsl2-pppoe --steps link,sirch", "link,confirm,search"),
    ] {
        let (code, stdout, stderr) = run(line);
        assert_eq!((code, stdout.as_str()), (2, ""), "{line}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{line}: {stderr}");
        assert!(stderr.starts_with("sqm-autotune: ") && stderr.contains(needed), "{line}: {stderr}");
    }
}

#[test]
fn away_from_a_router_the_line_has_to_be_named() {
    if std::path::Path::new("/etc/openwrt_release").exists() {
        println!("skipped: this is a router");
        return;
    }
    let (code, _, stderr) = run("calibrate");
    assert_eq!(code, 2);
    assert!(stderr.contains("--line sim:vdsl2-pppoe"), "{stderr}");
}

#[test]
fn a_scenario_file_is_a_line_and_a_misspelt_key_is_named() {
    let folder = std::env::temp_dir().join(format!("sqm-autotune-cli-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("mine.toml");
    let scenario =
        |key: &str| format!("name = \"mine\"\n[upload]\n{key} = 10000\nbuffer_ms = 200\n[path]\nrtt_ms = 20.0\n");
    std::fs::write(&file, scenario("rate_kbit")).unwrap();
    let (code, outcome) = calibrated(&format!("--line sim:{}", file.display()));
    assert_eq!((code, &outcome["outcome"]), (0, &"tuned".into()), "{outcome:#}");
    std::fs::write(&file, scenario("rate_kbits")).unwrap();
    let (code, _, stderr) = run(&format!("calibrate --line sim:{}", file.display()));
    assert!(code == 2 && stderr.contains("rate_kbits") && stderr.lines().count() == 1, "{code}: {stderr}");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn help_and_version_are_for_stdout() {
    let (code, stdout, stderr) = run("--version");
    assert_eq!((code, stdout, stderr), (0, format!("sqm-autotune {}\n", env!("CARGO_PKG_VERSION")), String::new()));
    for command in ["calibrate", "measure", "lines", "serve", "restore"] {
        let (code, overview, _) = run("--help");
        assert!(code == 0 && overview.contains(&format!("\n  {command} ")), "{overview}");
        let (code, help, _) = run(&format!("{command} --help"));
        assert!(code == 0 && help.contains(&format!("Usage: sqm-autotune {command}")), "{help}");
    }
    let (code, lines, _) = run("lines");
    assert!(code == 0 && lines.contains("sim:vdsl2-pppoe  ") && lines.contains("sim:good-modem"), "{lines}");
}

fn ended(mut child: Child) -> (i32, String) {
    let mut stdout = String::new();
    child.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
    (child.wait().unwrap().code().expect("an exit code"), stdout)
}

/// What a person would see: stdout and stderr on one terminal of 80 columns.
fn on_terminal(command: &mut Command) -> String {
    let (mut ours, mut theirs) = (0, 0);
    let size = libc::winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    let null = std::ptr::null_mut();
    // SAFETY: all pointers are to values that outlive the call, or null where openpty allows it.
    let opened = unsafe { libc::openpty(&raw mut ours, &raw mut theirs, null, std::ptr::null(), &raw const size) };
    assert_eq!(opened, 0, "open a terminal");
    // SAFETY: openpty has just given us both.
    let (ours, theirs) = unsafe { (OwnedFd::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)) };
    let mut child = command.stdout(theirs.try_clone().unwrap()).stderr(theirs).spawn().unwrap();
    // The command holds the terminal open as long as it lives.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut shown = Vec::new();
    // Linux ends the reading with an error when the last writer has gone.
    let _ = std::fs::File::from(ours).read_to_end(&mut shown);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    String::from_utf8(shown).unwrap()
}
