//! UCI against what the real `uci` program printed for small files: `tests/fixtures/uci-probes`.

use sqm_autotune::openwrt::uci::{Config, Value};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

fn probes() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/uci-probes")
}

/// As `uci show` prints a package of the name `sqm`, all of whose sections have names.
fn shown(config: &Config) -> String {
    let quoted = |text: &str| format!("'{}'", text.replace('\'', r"'\''"));
    let mut text = String::new();
    for section in &config.sections {
        let name = section.name.as_deref().expect("the probes name their sections");
        let _ = writeln!(text, "sqm.{name}={}", section.kind);
        for (option, value) in section.options() {
            let value = match value {
                Value::Text(text) => quoted(text),
                Value::List(items) => items.iter().map(|item| quoted(item)).collect::<Vec<_>>().join(" "),
            };
            let _ = writeln!(text, "sqm.{name}.{option}={value}");
        }
    }
    text
}

/// The program's message without the byte, which depends on how it buffers.
fn message(truth: &str) -> (&str, u32) {
    let (problem, place) =
        truth.trim().strip_prefix("uci: Parse error (").and_then(|rest| rest.rsplit_once(") at line ")).expect(truth);
    (problem, place.split(',').next().unwrap().parse().expect(truth))
}

#[test]
fn every_probe_is_read_as_the_real_program_reads_it() {
    let (mut read, mut rejected) = (0, 0);
    for entry in fs::read_dir(probes()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "uci") {
            continue;
        }
        let name = path.file_stem().unwrap().to_str().unwrap();
        let truth = |extension: &str| fs::read_to_string(probes().join("truth").join(format!("{name}.{extension}")));
        match (Config::parse(&fs::read(&path).unwrap()), truth("err")) {
            (Ok(config), Err(_)) => {
                assert_eq!(shown(&config), truth("show").unwrap(), "{name}");
                read += 1;
            }
            (Err(error), Ok(truth)) => {
                assert_eq!((error.problem.to_string().as_str(), error.line), message(&truth), "{name}");
                rejected += 1;
            }
            (ours, theirs) => panic!("{name}: we say {ours:?}, uci says {theirs:?}"),
        }
    }
    assert_eq!((read, rejected), (28, 16));
}
