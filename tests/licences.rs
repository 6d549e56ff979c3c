//! What we depend on: only licences that we may ship, no crate or version that we know to be bad.
//!
//! Works offline, on the lock file and on what cargo has already downloaded to build this test.

use serde_json::Value;
use std::process::Command;

const ALLOWED: &str = include_str!("licences/allowed");
const REFUSED: &str = include_str!("licences/refused");
const LOCK: &str = include_str!("../Cargo.lock");

#[test]
fn every_dependency_has_a_licence_we_may_ship() {
    let packages = packages();
    assert!(packages.len() > 20, "only {} packages were seen", packages.len());
    let offenders: Vec<String> = packages
        .iter()
        .filter(|package| !package["license"].as_str().is_some_and(allowed))
        .map(|package| format!("{} {}: licence {}", package["name"], package["version"], package["license"]))
        .collect();
    assert!(offenders.is_empty(), "not in tests/licences/allowed:\n{}", offenders.join("\n"));
}

#[test]
fn no_dependency_is_known_to_be_bad() {
    let offenders = refused(LOCK);
    assert!(offenders.is_empty(), "in Cargo.lock, against tests/licences/refused:\n{}", offenders.join("\n"));
}

#[test]
fn the_rules_can_fail() {
    for good in [
        "MIT",
        "MIT OR GPL-3.0",
        "MIT/Apache-2.0",
        "(MIT OR GPL-3.0) AND Unicode-3.0",
        "Apache-2.0 WITH LLVM-exception OR X",
    ] {
        assert!(allowed(good), "{good}");
    }
    for bad in ["GPL-3.0-only", "MIT AND GPL-3.0", "(GPL-2.0 OR LGPL-3.0) AND MIT", "", "GPL-3.0 WITH X"] {
        assert!(!allowed(bad), "{bad}");
    }
    let lock = |name: &str, version: &str| format!("[[package]]\nname = \"{name}\"\nversion = \"{version}\"\n");
    assert_eq!(refused(&lock("openssl", "9.9.9")).len(), 1);
    assert_eq!(refused(&lock("ring", "0.17.9")).len(), 1);
    assert_eq!(refused(&lock("ring", "0.17.12")), Vec::<String>::new());
    assert_eq!(refused(&lock("tokio", "2.0.0")), Vec::<String>::new());
}

/// What would be linked on this machine, with all features.
fn packages() -> Vec<Value> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let host = host(&cargo);
    let mut command = Command::new(&cargo);
    command.args(["metadata", "--offline", "--locked", "--all-features", "--format-version", "1"]);
    command.args(["--filter-platform", &host]).current_dir(env!("CARGO_MANIFEST_DIR"));
    let output = command.output().expect("run cargo metadata");
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON from cargo metadata");
    let used = metadata["resolve"]["nodes"].as_array().expect("a list of nodes");
    let used: Vec<&Value> = used.iter().map(|node| &node["id"]).collect();
    let packages = metadata["packages"].as_array().expect("a list of packages");
    packages.iter().filter(|package| used.contains(&&package["id"])).cloned().collect()
}

fn host(cargo: &str) -> String {
    let output = Command::new(cargo).arg("-vV").output().expect("run cargo");
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: ")).expect("cargo names its host");
    host.to_owned()
}

/// An SPDX expression: `OR` binds less than `AND`; older crates write `/` for `OR`.
fn allowed(expression: &str) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    either(&mut rest) && rest.is_empty()
}

fn either(rest: &mut &[&str]) -> bool {
    let mut good = both(rest);
    while let ["OR", after @ ..] = *rest {
        *rest = after;
        good |= both(rest);
    }
    good
}

fn both(rest: &mut &[&str]) -> bool {
    let mut good = one(rest);
    while let ["AND", after @ ..] = *rest {
        *rest = after;
        good &= one(rest);
    }
    good
}

fn one(rest: &mut &[&str]) -> bool {
    let licence = match *rest {
        ["(", after @ ..] => {
            *rest = after;
            let good = either(rest);
            *rest = rest.strip_prefix(&[")"]).unwrap_or_default();
            return good;
        }
        [name, "WITH", exception, after @ ..] => {
            *rest = after;
            format!("{name} WITH {exception}")
        }
        [name, after @ ..] => {
            *rest = after;
            (*name).to_owned()
        }
        [] => return false,
    };
    ALLOWED.lines().any(|line| line == licence)
}

fn refused(lock: &str) -> Vec<String> {
    let mut offenders = Vec::new();
    for (name, version) in locked(lock) {
        for rule in REFUSED.lines().filter(|line| !line.starts_with('#')) {
            let mut words = rule.split_whitespace();
            let (refused, from) = (words.next().expect("a name"), words.next().expect("any, or a version"));
            if refused == name && (from == "any" || numbers(version) < numbers(from)) {
                offenders.push(format!("{name} {version}: {}", words.collect::<Vec<_>>().join(" ")));
            }
        }
    }
    offenders
}

/// Name and version of each package in a lock file.
fn locked(lock: &str) -> Vec<(&str, &str)> {
    lock.split("[[package]]")
        .skip(1)
        .map(|package| {
            let field = |name: &str| {
                let line = package.lines().find_map(|line| line.strip_prefix(name));
                line.map(|rest| rest.trim_matches([' ', '=', '"'])).expect("a name and a version")
            };
            (field("name"), field("version"))
        })
        .collect()
}

fn numbers(version: &str) -> Vec<u64> {
    let plain = version.split(['-', '+']).next().unwrap_or_default();
    plain.split('.').map(|number| number.parse().unwrap_or(0)).collect()
}
