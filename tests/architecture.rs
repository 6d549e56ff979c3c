//! The rules of the architecture page, read from the sources themselves.
//!
//! Every rule is a function from a source text to its offences, so that each can be seen to fail on a line that breaks it.

use std::fs;
use std::path::{Path, PathBuf};

/// Which part may name which other part of the crate. A part that is not here is not in the picture.
const MAY_USE: [(&str, &[&str]); 12] = [
    ("lib", &[]),
    ("main", &["cli"]),
    ("units", &[]),
    ("durable", &[]),
    ("line", &["units"]),
    ("calibration", &["line", "units"]),
    ("sim", &["line", "units"]),
    ("router", &["durable", "line", "units"]),
    ("openwrt", &["durable", "units", "calibration::outcome"]),
    ("advice", &["units"]),
    ("server", &["units"]),
    ("cli", &["advice", "calibration", "durable", "line", "openwrt", "router", "server", "sim", "units"]),
];

/// What would make the deciding core depend on when and where it runs.
const IMPURE: [&str; 9] = [
    "std::fs",
    "std::net",
    "std::process",
    "std::thread",
    "std::env",
    "std::time::SystemTime",
    "std::os",
    "tokio",
    "libc",
];

const LONGEST_FILE: usize = 400;

#[test]
fn arrows_only_point_down() {
    check(wrong_arrows);
}

#[test]
fn the_core_is_pure() {
    check(impure);
}

#[test]
fn nothing_needs_64_bit_atomics() {
    check(wide_atomics);
}

#[test]
fn no_file_is_too_long() {
    check(too_long);
}

#[test]
fn each_rule_can_fail() {
    let caught = |rule: fn(&Source) -> Vec<String>, path: &str, text: &str| {
        let offences = rule(&Source { path: path.into(), text: text.into() });
        assert_eq!(offences.len(), 1, "{path}: {text}: {offences:?}");
    };
    let fine = |rule: fn(&Source) -> Vec<String>, path: &str, text: &str| {
        assert_eq!(rule(&Source { path: path.into(), text: text.into() }), Vec::<String>::new(), "{path}: {text}");
    };
    caught(wrong_arrows, "sim/world.rs", "use crate::calibration::Plan;");
    caught(wrong_arrows, "sim.rs", "fn f() { crate::router::shaper::set() }");
    caught(wrong_arrows, "router/load.rs", "use crate::{line::Line, sim};");
    caught(wrong_arrows, "openwrt/uci.rs", "use crate::calibration::{Plan, outcome::Outcome};");
    caught(wrong_arrows, "openwrt/uci.rs", "use crate::calibration::*;");
    caught(wrong_arrows, "calibration/search.rs", "use super::super::cli::print;");
    caught(wrong_arrows, "units.rs", "use super::line;");
    caught(wrong_arrows, "line.rs", "pub use crate :: /* down? */ router::Router;");
    caught(wrong_arrows, "surprise.rs", "fn nothing() {}");
    fine(wrong_arrows, "openwrt/uci.rs", "use crate::{calibration::outcome::{Layer, Outcome}, units::Rate};");
    fine(wrong_arrows, "line.rs", "//! See [`crate::router`].\nuse crate::units::{Direction, Rate};");
    fine(wrong_arrows, "sim/cake.rs", "use super::packet::Packet; const S: &str = \"crate::router\";");
    fine(wrong_arrows, "cli/line.rs", "use crate::sim::SimLine; use super::args;");

    caught(impure, "calibration/search.rs", "let now = std::time::Instant::now();");
    caught(impure, "calibration/search.rs", "use std::{fmt, fs};");
    caught(impure, "calibration.rs", "use tokio::time::sleep;");
    caught(impure, "calibration.rs", "use std::time::{Duration, SystemTime};");
    fine(impure, "calibration.rs", "use std::time::Duration; // std::fs\n#[cfg(test)] mod tests { use std::fs; }");
    fine(impure, "cli/clock.rs", "use std::time::SystemTime;");

    caught(wide_atomics, "router/load.rs", "use std::sync::atomic::AtomicU64;");
    fine(wide_atomics, "router/load.rs", "use std::sync::atomic::AtomicUsize; // not AtomicU64");

    caught(too_long, "sim.rs", &"let a = 1;\n".repeat(LONGEST_FILE + 1));
    fine(too_long, "sim.rs", &"let a = 1;\n\n// words\n".repeat(LONGEST_FILE));
    fine(too_long, "sim.rs", &format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "let a = '{';\n".repeat(LONGEST_FILE + 1)));
}

fn wrong_arrows(source: &Source) -> Vec<String> {
    let part = source.part();
    let Some((_, allowed)) = MAY_USE.iter().find(|(name, _)| *name == part) else {
        return vec![format!("{part} is not in the picture of the architecture")];
    };
    let known = |path: &str| MAY_USE.iter().any(|(name, _)| path.split("::").next() == Some(name));
    let used = source.crate_paths().into_iter().filter(|path| known(path));
    used.filter(|path| path.split("::").next() != Some(&part))
        .filter(|path| !allowed.iter().any(|allowed| within(path, allowed)))
        .map(|path| format!("{part} must not see {path}"))
        .collect()
}

fn impure(source: &Source) -> Vec<String> {
    if source.part() != "calibration" {
        return Vec::new();
    }
    let code = without_tests(&code_only(&source.text));
    let paths = ["std", "tokio", "libc"].into_iter().flat_map(|root| paths_from(&code, root));
    paths
        .filter(|path| IMPURE.iter().any(|impure| within(path, impure)) || path.ends_with("Instant::now"))
        .map(|path| format!("the core uses {path}"))
        .collect()
}

fn wide_atomics(source: &Source) -> Vec<String> {
    let code = code_only(&source.text);
    ["AtomicU64", "AtomicI64"]
        .into_iter()
        .filter(|name| code.contains(name))
        .map(|name| format!("{name} does not exist on 32-bit MIPS"))
        .collect()
}

fn too_long(source: &Source) -> Vec<String> {
    let code = without_tests(&code_only(&source.text));
    let lines = code.lines().filter(|line| !line.trim().is_empty()).count();
    if lines > LONGEST_FILE { vec![format!("{lines} lines of code: look for the second noun")] } else { Vec::new() }
}

/// Is `path` the thing `root`, or something in it?
fn within(path: &str, root: &str) -> bool {
    path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// A file below `src`.
struct Source {
    path: PathBuf,
    text: String,
}

impl Source {
    fn modules(&self) -> Vec<String> {
        let path = self.path.with_extension("");
        path.iter().map(|name| name.to_string_lossy().into_owned()).collect()
    }

    /// The top-level module it belongs to.
    fn part(&self) -> String {
        self.modules()[0].clone()
    }

    /// Everything it names of this crate, from the root: `line::Trial`.
    fn crate_paths(&self) -> Vec<String> {
        let code = code_only(&self.text);
        let mut paths = paths_from(&code, "crate");
        paths.extend(paths_from(&code, "sqm_autotune"));
        let mut paths: Vec<_> = paths.iter().filter_map(|path| Some(path.split_once("::")?.1.to_owned())).collect();
        let modules = self.modules();
        for path in paths_from(&code, "super") {
            let rest = path.split("::").skip_while(|name| *name == "super").collect::<Vec<_>>().join("::");
            let up = path.split("::").take_while(|name| *name == "super").count();
            // In an inline module `super` reaches less far; then what follows is no part of the crate.
            if up == modules.len() && !code.contains(&format!("mod {rest};")) {
                paths.push(rest);
            }
        }
        paths
    }
}

fn check(rule: fn(&Source) -> Vec<String>) {
    let sources = sources();
    assert!(sources.len() > 10, "too few sources found");
    let offences: Vec<_> = sources
        .iter()
        .flat_map(|source| rule(source).into_iter().map(|offence| format!("src/{}: {offence}", source.path.display())))
        .collect();
    assert!(offences.is_empty(), "\n{}", offences.join("\n"));
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut folders = vec![root.clone()];
    let mut sources = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                sources.push(Source { path: path.strip_prefix(&root).unwrap().into(), text });
            }
        }
    }
    sources
}

/// All paths in `code` that begin with the name `root`, groups spelled out: `std::{fmt, fs}` gives two.
fn paths_from(code: &str, root: &str) -> Vec<String> {
    let tokens = tokens(code);
    let mut paths = Vec::new();
    for start in 0..tokens.len() {
        let begins = tokens[start] == root && (start == 0 || tokens[start - 1] != "::");
        if begins && tokens.get(start + 1).is_some_and(|next| next == "::") {
            path(&tokens, start, "", &mut paths);
        }
    }
    paths
}

/// Reads one path or group from `at`, returns where it ends.
fn path(tokens: &[String], mut at: usize, before: &str, paths: &mut Vec<String>) -> usize {
    let mut name = before.to_owned();
    loop {
        match tokens.get(at).map(String::as_str) {
            Some("{") => {
                at += 1;
                while at < tokens.len() && tokens[at] != "}" {
                    at = if tokens[at] == "," { at + 1 } else { path(tokens, at, &name, paths).max(at + 1) };
                }
                return at + 1;
            }
            Some(word) => {
                let separator = if name.is_empty() { "" } else { "::" };
                name = format!("{name}{separator}{word}");
                at += 1;
            }
            None => return at,
        }
        if tokens.get(at).is_some_and(|next| next == "::") {
            at += 1;
        } else {
            paths.push(name);
            return at;
        }
    }
}

/// Words, `::`, and every other character alone.
fn tokens(code: &str) -> Vec<String> {
    let mut tokens: Vec<String> = Vec::new();
    let mut in_word = false;
    let mut chars = code.chars().peekable();
    while let Some(c) = chars.next() {
        let word = c.is_alphanumeric() || c == '_';
        if word && in_word {
            tokens.last_mut().unwrap().push(c);
        } else if c == ':' && chars.next_if_eq(&':').is_some() {
            tokens.push("::".into());
        } else if !c.is_whitespace() {
            tokens.push(c.into());
        }
        in_word = word;
    }
    tokens
}

/// The text without comments and without what is in quotes.
fn code_only(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut code = String::new();
    let mut at = 0;
    while at < chars.len() {
        let rest = &chars[at..];
        at += match rest {
            ['/', '/', ..] => until(rest, &['\n']),
            ['/', '*', ..] => until(rest, &['*', '/']) + 2,
            ['r', '#', '"', ..] => until(rest, &['"', '#']) + 2,
            ['b', '\'', ..] | ['\'', '\\', ..] | ['"', ..] => quoted(rest),
            ['\'', _, '\'', ..] => 3,
            [c, ..] => {
                code.push(*c);
                1
            }
            [] => unreachable!(),
        };
    }
    code
}

/// How far it is to `end`, from the third character on.
fn until(rest: &[char], end: &[char]) -> usize {
    let from = 2.min(rest.len());
    rest[from..].windows(end.len()).position(|window| window == end).map_or(rest.len(), |position| from + position)
}

/// The length of a quoted string or character, its quotes included.
fn quoted(rest: &[char]) -> usize {
    let open = rest.iter().position(|c| matches!(c, '"' | '\'')).unwrap_or(0);
    let mut at = open + 1;
    while at < rest.len() && rest[at] != rest[open] {
        at += if rest[at] == '\\' { 2 } else { 1 };
    }
    at + 1
}

/// Code without what follows `#[cfg(test)]` up to its closing brace or semicolon.
fn without_tests(code: &str) -> String {
    let mut kept = String::new();
    let mut rest = code;
    while let Some(at) = rest.find("#[cfg(test)]") {
        kept.push_str(&rest[..at]);
        rest = &rest[at..];
        let mut depth = 0;
        let end = rest.find(|c| {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            depth == 0 && matches!(c, '}' | ';')
        });
        rest = &rest[end.map_or(rest.len(), |end| end + 1)..];
    }
    kept + rest
}
