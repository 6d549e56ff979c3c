//! What can be wrong in a scenario file, said with key, line and remedy.

use super::scenario::{Habit, LinkRate, Scenario};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScenarioError {
    #[error("cannot read {file}: {cause}")]
    Unreadable { file: String, cause: String },
    #[error("{file}, line {line}: {problem}")]
    Wrong { file: String, line: usize, problem: String },
}

/// A value that reads but cannot be: where, and what is wrong with it.
struct Wrong {
    path: Vec<Step>,
    problem: String,
}

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Key(&'static str),
    Item(usize),
}

pub fn parse(file: &str, text: &str) -> Result<Scenario, ScenarioError> {
    let wrong = |line, problem: String| ScenarioError::Wrong { file: file.to_owned(), line, problem };
    let root = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        wrong(line_at(text, at), one_line(error.message()))
    })?;
    let scenario: Scenario = toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        let problem = one_line(error.message());
        let problem = if problem.contains("missing field `upload`") {
            "there is no [upload]; write one with the rate that the bottleneck drains, e.g. rate_kbit = 18000".into()
        } else if let Some(field) = problem.strip_prefix("missing field ") {
            let field = field.trim_matches('`');
            format!("there is no {field}; write {}", remedy(field).unwrap_or("one"))
        } else {
            match key_at(root.get_ref(), at) {
                Some(key) if problem.starts_with("unknown field") => format!("{key}: {problem}"),
                Some(key) => format!("{key}: {problem}; write {}", remedy(&key).unwrap_or("another value")),
                None => problem,
            }
        };
        wrong(line_at(text, at), problem)
    })?;
    match check(&scenario) {
        None => Ok(scenario),
        Some(Wrong { path, problem }) => {
            let line = line_at(text, offset_of(root.get_ref(), &path));
            Err(wrong(line, format!("{}: {problem}", dotted(&path))))
        }
    }
}

/// What to write, by the last part of a key.
fn remedy(key: &str) -> Option<&'static str> {
    Some(match key.rsplit('.').next()? {
        "rate_kbit" => "a whole number of kbit/s above 0, e.g. 18000",
        "sync_up_kbit" | "sync_down_kbit" => "a whole number of kbit/s, or leave it out: unknown",
        "shaper_cpu_kbit" => "a whole number of kbit/s, 0 for a CPU that never limits",
        "burst_kbit" | "kbit" => "a whole number of kbit/s, 0 for none",
        "buffer_packets" | "flows" | "limit_per_s" | "seed" => "a whole number, 0 for none",
        "overhead" => "the bytes each IP packet costs more on the wire, 0 to 256",
        "icmp" => "\"fair\", \"first\" or \"blocked\"",
        "tcp" => "true for one that answers TCP handshakes instead of pings",
        "cell" => "\"none\", \"atm\" or \"ptm\"",
        "link" => "one of pppoe-vdsl2, pppoe-atm, pppoa, docsis, ethernet, pppoe, lte, unknown",
        "mtu" => "the largest IP packet in bytes, 576 to 9000",
        "loss" => "a share between 0 and 1, e.g. 0.01 for one packet in a hundred",
        "buffer_ms" | "aqm_ms" | "grant_ms" | "rtt_ms" | "jitter_ms" | "extra_ms" => "milliseconds, 0 or more",
        "burst_s" | "at_s" | "from_s" | "to_s" | "silent_from_s" => "seconds, 0 or more",
        "policer_burst_kb" => "kilobytes, 0 for no policer",
        "name" | "about" => "a text in quotes",
        _ => return None,
    })
}

/// The first value that makes no line.
fn check(scenario: &Scenario) -> Option<Wrong> {
    use Step::{Item, Key};
    let mut checks = Checks::default();
    if scenario.name.is_empty() || scenario.name.contains(char::is_whitespace) {
        checks.say(&[Key("name")], "must be one word; write e.g. \"my-line\"");
    }
    for (section, link) in [("upload", &scenario.upload), ("download", &scenario.download)] {
        check_link(&mut checks, section, link);
    }
    let path = &scenario.path;
    let at = |key| [Key("path"), Key(key)];
    if !(576..=9000).contains(&path.mtu) {
        checks.needs(&at("mtu"), path.mtu);
    }
    checks.not_negative(&at("rtt_ms"), path.rtt_ms);
    checks.not_negative(&at("jitter_ms"), path.jitter_ms);
    checks.share(&at("loss"), path.loss);
    for (section, habits) in [("upload", &scenario.household.upload), ("download", &scenario.household.download)] {
        for (number, habit) in habits.iter().enumerate() {
            check_habit(&mut checks, &[Key("household"), Key(section), Item(number)], habit);
        }
    }
    if scenario.reflectors.is_empty() {
        checks.say(&[Key("reflector")], "none is left; leave it out for four healthy ones");
    }
    for (number, reflector) in scenario.reflectors.iter().enumerate() {
        let at = |key| [Key("reflector"), Item(number), Key(key)];
        if reflector.name.is_empty() {
            checks.say(&at("name"), "is empty; write a name");
        }
        if scenario.reflectors[..number].iter().any(|other| other.name == reflector.name) {
            checks.say(&at("name"), "is taken by an earlier reflector; write another");
        }
        checks.not_negative(&at("extra_ms"), reflector.extra_ms);
        checks.share(&at("loss"), reflector.loss);
        checks.not_negative(&at("silent_from_s"), reflector.silent_from_s);
    }
    checks.first
}

fn check_link(checks: &mut Checks, section: &'static str, link: &LinkRate) {
    use Step::{Item, Key};
    let at = |key| [Key(section), Key(key)];
    if link.rate_kbit == 0 {
        checks.say(&at("rate_kbit"), "is missing or 0; write what the bottleneck drains in kbit/s, e.g. 18000");
    }
    if link.rate_kbit > 100_000_000 {
        checks.say(&at("rate_kbit"), "is more than 100 Gbit/s; write kbit/s, not bit/s");
    }
    if link.overhead > 256 {
        checks.needs(&at("overhead"), link.overhead);
    }
    let values = [
        ("buffer_ms", link.buffer_ms),
        ("aqm_ms", link.aqm_ms),
        ("policer_burst_kb", link.policer_burst_kb),
        ("burst_s", link.burst_s),
        ("grant_ms", link.grant_ms),
    ];
    for (key, value) in values {
        checks.not_negative(&at(key), value);
    }
    if link.policer_burst_kb > 0.0 && link.policer_burst_kb < 3.0 {
        checks
            .say(&at("policer_burst_kb"), "lets no full packet through reliably; write 3 or more, or 0 for no policer");
    }
    if (link.burst_kbit > 0) != (link.burst_s > 0.0) {
        checks.say(&at("burst_kbit"), "needs burst_s, and burst_s needs burst_kbit; write both or neither");
    }
    if link.burst_kbit > 0 && link.burst_kbit <= link.rate_kbit {
        checks.say(&at("burst_kbit"), "is not above rate_kbit; write a higher rate, or 0 for no burst");
    }
    let mut before_s = 0.0;
    for (number, change) in link.changes.iter().enumerate() {
        let at = |key| [Key(section), Key("changes"), Item(number), Key(key)];
        checks.not_negative(&at("at_s"), change.at_s);
        if change.at_s < before_s {
            checks.say(&at("at_s"), "is earlier than the change before it; write them in order of time");
        }
        if change.rate_kbit == 0 {
            checks.say(&at("rate_kbit"), "is 0; write what the bottleneck drains from then on");
        }
        before_s = change.at_s;
    }
}

fn check_habit(checks: &mut Checks, place: &[Step; 3], habit: &Habit) {
    let at = |key| [place[0].clone(), place[1].clone(), place[2].clone(), Step::Key(key)];
    checks.not_negative(&at("from_s"), habit.from_s);
    checks.not_negative(&at("to_s"), habit.to_s);
    if habit.to_s < habit.from_s {
        checks.say(&at("to_s"), "is before from_s; write a later time");
    }
}

/// Keeps the first complaint.
#[derive(Default)]
struct Checks {
    first: Option<Wrong>,
}

impl Checks {
    fn say(&mut self, path: &[Step], problem: &str) {
        if self.first.is_none() {
            self.first = Some(Wrong { path: path.to_vec(), problem: problem.to_owned() });
        }
    }

    fn needs(&mut self, path: &[Step], value: impl std::fmt::Display) {
        let remedy = remedy(&dotted(path)).unwrap_or("another value");
        self.say(path, &format!("{value} cannot be; write {remedy}"));
    }

    fn not_negative(&mut self, path: &[Step], value: f64) {
        if !(value >= 0.0 && value.is_finite()) {
            self.needs(path, value);
        }
    }

    fn share(&mut self, path: &[Step], value: f64) {
        if !(0.0..=1.0).contains(&value) {
            self.needs(path, value);
        }
    }
}

fn dotted(path: &[Step]) -> String {
    let parts = path.iter().filter_map(|step| match step {
        Step::Key(key) => Some(*key),
        Step::Item(_) => None,
    });
    parts.collect::<Vec<_>>().join(".")
}

fn one_line(message: &str) -> String {
    message.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn line_at(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|byte| *byte == b'\n').count()
}

/// Where the innermost part of `path` that the file has begins.
fn offset_of(root: &DeTable<'_>, path: &[Step]) -> usize {
    let (mut offset, mut table, mut value): (usize, Option<&DeTable<'_>>, Option<&DeValue<'_>>) = (0, Some(root), None);
    for step in path {
        let found = match step {
            Step::Key(key) => {
                table.and_then(|table| table.get_key_value(*key)).map(|(key, value)| (key.span().start, value))
            }
            Step::Item(number) => value
                .and_then(|value| value.as_array())
                .and_then(|items| items.get(*number))
                .map(|item| (item.span().start, item)),
        };
        let Some((at, inner)) = found else { return offset };
        offset = at;
        value = Some(inner.get_ref());
        table = inner.get_ref().as_table();
    }
    offset
}

/// The key whose name or value is at `offset`.
fn key_at(table: &DeTable<'_>, offset: usize) -> Option<String> {
    table.iter().find_map(|(key, value)| {
        let name: &str = key.get_ref();
        if key.span().contains(&offset) {
            return Some(name.to_owned());
        }
        let inner = key_in(value, offset);
        match inner {
            Some(inner) if inner.is_empty() => Some(name.to_owned()),
            Some(inner) => Some(format!("{name}.{inner}")),
            None => None,
        }
    })
}

/// The key within `value` that is at `offset`; empty for the value itself.
fn key_in(value: &Spanned<DeValue<'_>>, offset: usize) -> Option<String> {
    let here = value.span().contains(&offset);
    let inner = match value.get_ref() {
        DeValue::Table(table) => key_at(table, offset),
        DeValue::Array(items) => items.iter().find_map(|item| key_in(item, offset)),
        _ => None,
    };
    inner.or_else(|| here.then(String::new))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaint(text: &str) -> String {
        let error = parse("f.toml", text).expect_err(text).to_string();
        assert!(!error.contains('\n'), "{error}");
        error
    }

    #[test]
    fn every_mistake_names_its_key_its_line_and_a_remedy() {
        let line = "name = \"x\"\n[upload]\nrate_kbit = 1000\n";
        let cases = [
            ("name = \"x\"\n", "f.toml, line 1: there is no [upload]; write"),
            ("name = \"x\"\n[upload]\nbuffer_ms = 5\n", "f.toml, line 2: upload.rate_kbit: is missing or 0; write"),
            ("name = \"x\"\n[upload]\nrate_kbit = 0\n", "line 3: upload.rate_kbit: is missing or 0; write"),
            (
                "name = \"x\"\n[upload]\nrate_kbit = -3\n",
                "line 3: upload.rate_kbit: invalid value: integer `-3`, expected u64; write a whole",
            ),
            (
                "name = \"x\"\n[upload]\nrate_kbit = \"fast\"\n",
                "line 3: upload.rate_kbit: invalid type: string \"fast\", expected u64; write a whole",
            ),
            (
                "name = \"x\"\n[upload]\nrate = 5\n",
                "line 3: upload.rate: unknown field `rate`, expected one of `rate_kbit`",
            ),
            ("[upload]\nrate_kbit = 1000\n", "there is no name; write"),
            ("name = \"x\n", "line 1: "),
        ];
        for (text, expected) in cases {
            assert!(complaint(text).contains(expected), "{}", complaint(text));
        }
        let more = [
            (
                "cell = \"frames\"\n",
                "line 4: upload.cell: unknown variant `frames`, expected one of `none`, `atm`, `ptm`; write",
            ),
            ("buffer_ms = -1\n", "line 4: upload.buffer_ms: -1 cannot be; write milliseconds"),
            (
                "changes = [ { at_s = 1, rate_kbit = 5 },\n { at_s = 0.5, rate_kbit = 5 } ]\n",
                "line 5: upload.changes.at_s: is earlier",
            ),
            ("burst_kbit = 900\nburst_s = 3\n", "line 4: upload.burst_kbit: is not above rate_kbit"),
            ("[path]\nloss = 1.5\n", "line 5: path.loss: 1.5 cannot be; write a share between 0 and 1"),
            ("[router]\nlink = \"cable\"\n", "line 5: router.link: unknown variant `cable`"),
            ("[[reflector]]\nname = \"a\"\n[[reflector]]\nname = \"a\"\n", "line 7: reflector.name: is taken"),
            (
                "[household]\nupload = [ { from_s = 5.0, to_s = 1.0, kbit = 3 } ]\n",
                "line 5: household.upload.to_s: is before from_s",
            ),
        ];
        for (text, expected) in more {
            let text = format!("{line}{text}");
            assert!(complaint(&text).contains(expected), "{}", complaint(&text));
        }
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = Scenario::from_file(std::path::Path::new("/nowhere/x.toml")).expect_err("not there");
        assert!(error.to_string().starts_with("cannot read /nowhere/x.toml: "), "{error}");
    }
}
