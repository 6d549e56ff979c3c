//! The reader. What it accepts and where it stops follows the real `uci` program, whose answers to small files are in
//! `tests/fixtures/uci-probes/truth`.

use super::{Config, Section, Value};
use std::fmt;

/// Why a file is rejected, and where libuci says it noticed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem} at line {line}")]
pub struct UciError {
    pub problem: Problem,
    /// Counted in line ends, as libuci does: what follows the last one has no number of its own.
    pub line: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    InvalidCommand,
    /// The line ends with the command itself.
    MissingName(&'static str),
    MissingArgument,
    TooManyArguments,
    InvalidName,
    InvalidType,
    BeforeFirstSection,
    TypeChanged,
    Unterminated(char),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InvalidCommand => "invalid command",
            Self::MissingArgument => "insufficient arguments",
            Self::TooManyArguments => "too many arguments",
            Self::InvalidName => "invalid character in name field",
            Self::InvalidType => "invalid character in type field",
            Self::BeforeFirstSection => "option/list command found before the first section",
            Self::TypeChanged => "section of different type overwrites prior section with same name",
            Self::MissingName(command) => return write!(f, "{command} without name"),
            Self::Unterminated(quote) => return write!(f, "EOF with unterminated {quote}"),
        })
    }
}

pub fn parse(text: &[u8]) -> Result<Config, UciError> {
    let mut reader = Reader { rest: text, line: Vec::new(), at: 0, number: 0, within: false };
    let mut file = File::default();
    while reader.next_line() {
        while let Some(command) = reader.command() {
            let done = Command::of(&command).ok_or(Problem::InvalidCommand).and_then(|c| file.obey(c, &mut reader));
            done.map_err(|problem| UciError { problem, line: reader.number })?;
        }
    }
    Ok(file.config)
}

#[derive(Clone, Copy)]
enum Command {
    Package,
    Config,
    Option,
    List,
}

impl Command {
    /// A whole word or its first letter, and nothing between.
    fn of(word: &[u8]) -> Option<Self> {
        match word {
            b"package" | b"p" => Some(Self::Package),
            b"config" | b"c" => Some(Self::Config),
            b"option" | b"o" => Some(Self::Option),
            b"list" | b"l" => Some(Self::List),
            _ => None,
        }
    }
}

#[derive(Default)]
struct File {
    config: Config,
    /// Which section options belong to.
    current: Option<usize>,
}

impl File {
    fn obey(&mut self, command: Command, reader: &mut Reader) -> Result<(), Problem> {
        match command {
            // One file is one package, whatever it calls itself.
            Command::Package => {
                let name = reader.required("package")?;
                named(&name.into_iter().filter(|byte| *byte != b'-').collect::<Vec<_>>())?;
                reader.end()
            }
            Command::Config => self.section(reader),
            Command::Option => self.option(reader, false),
            Command::List => self.option(reader, true),
        }
    }

    fn section(&mut self, reader: &mut Reader) -> Result<(), Problem> {
        let kind = reader.required("config")?;
        if !kind.iter().all(u8::is_ascii_graphic) {
            return Err(Problem::InvalidType);
        }
        let (kind, name) = (text(&kind), named(&reader.argument()?)?);
        reader.end()?;
        let name = Some(name).filter(|name| !name.is_empty());
        let sections = &mut self.config.sections;
        let before = sections.iter().position(|section| name.is_some() && section.name == name);
        match before {
            Some(at) if sections[at].kind != kind => return Err(Problem::TypeChanged),
            Some(_) => {}
            None => sections.push(Section { kind, name, line: reader.number, ..Section::default() }),
        }
        self.current = Some(before.unwrap_or(sections.len() - 1));
        Ok(())
    }

    fn option(&mut self, reader: &mut Reader, list: bool) -> Result<(), Problem> {
        let section = self.current.ok_or(Problem::BeforeFirstSection)?;
        let name = named(&reader.required("option")?)?;
        let value = text(&reader.argument()?);
        reader.end()?;
        let Section { options, lines, .. } = &mut self.config.sections[section];
        let before = options.iter().position(|(known, _)| *known == name);
        match (before, list) {
            (Some(at), true) => {
                options[at].1.push(value);
                lines[at] = reader.number;
            }
            (None, true) => {
                options.push((name, Value::List(vec![value])));
                lines.push(reader.number);
            }
            // An empty value sets nothing, and takes nothing away.
            (_, false) if value.is_empty() => {}
            (Some(at), false) => {
                options[at].1 = Value::Text(value);
                lines[at] = reader.number;
            }
            (None, false) => {
                options.push((name, Value::Text(value)));
                lines.push(reader.number);
            }
        }
        Ok(())
    }
}

impl Value {
    fn push(&mut self, item: String) {
        match self {
            Self::List(items) => items.push(item),
            Self::Text(first) => *self = Self::List(vec![std::mem::take(first), item]),
        }
    }
}

fn named(name: &[u8]) -> Result<String, Problem> {
    let valid = name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    if valid { Ok(text(name)) } else { Err(Problem::InvalidName) }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The text line by line; a quote or a backslash at the end of a line calls for the next one.
struct Reader<'a> {
    rest: &'a [u8],
    line: Vec<u8>,
    at: usize,
    number: u32,
    /// A semicolon has been passed: what follows is not the beginning of a line.
    within: bool,
}

impl Reader<'_> {
    fn next_line(&mut self) -> bool {
        self.line.clear();
        (self.at, self.within) = (0, false);
        self.append_line()
    }

    /// Adds a line and its end, which is always one byte. A NUL byte hides the rest of its line and the line's end, so that the next line
    /// is read as its continuation.
    fn append_line(&mut self) -> bool {
        let before = self.line.len();
        while !self.rest.is_empty() {
            let end = self.rest.iter().position(|byte| *byte == b'\n').map_or(self.rest.len(), |at| at + 1);
            let (line, rest) = self.rest.split_at(end);
            self.rest = rest;
            let visible = line.iter().position(|byte| *byte == 0).unwrap_or(line.len());
            self.line.extend_from_slice(&line[..visible]);
            if self.line.ends_with(b"\n") {
                if self.line.ends_with(b"\r\n") {
                    self.line.truncate(self.line.len() - 2);
                    self.line.push(b'\n');
                }
                self.number += 1;
                return true;
            }
        }
        self.line.len() > before
    }

    fn peek(&self) -> Option<u8> {
        self.line.get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while self.peek().is_some_and(is_space) {
            self.at += 1;
        }
    }

    /// The next command of this line; `None` at its end or at a comment. Only a blank or a tab ends the word, and only
    /// those may be between a semicolon and the next one: the end of the line counts as a word there.
    fn command(&mut self) -> Option<Vec<u8>> {
        while self.peek().is_some_and(|byte| if self.within { is_blank(byte) } else { is_space(byte) }) {
            self.at += 1;
        }
        if self.peek().is_none_or(|byte| byte == b'#') {
            return None;
        }
        let from = self.at;
        while self.peek().is_some_and(|byte| !is_blank(byte)) {
            self.at += 1;
        }
        Some(self.line[from..self.at].to_vec())
    }

    fn required(&mut self, command: &'static str) -> Result<Vec<u8>, Problem> {
        if self.peek().is_none() {
            return Err(Problem::MissingName(command));
        }
        let argument = self.argument()?;
        if argument.is_empty() { Err(Problem::MissingArgument) } else { Ok(argument) }
    }

    /// The next argument, quotes resolved; empty where there is none. A semicolon that touches a word without quotes
    /// and backslashes hides the rest of the line.
    fn argument(&mut self) -> Result<Vec<u8>, Problem> {
        self.skip_space();
        let mut word = Vec::new();
        let from = self.at;
        while let Some(byte) = self.peek() {
            match byte {
                b'\'' | b'"' => self.quoted(byte, &mut word)?,
                b'\\' => self.escaped(&mut word),
                b'#' => break,
                b';' => {
                    if !word.is_empty() && self.line[from..self.at] == word[..] {
                        self.line.truncate(self.at);
                    }
                    break;
                }
                byte if is_space(byte) => break,
                byte => {
                    word.push(byte);
                    self.at += 1;
                }
            }
        }
        Ok(word)
    }

    fn quoted(&mut self, quote: u8, word: &mut Vec<u8>) -> Result<(), Problem> {
        self.at += 1;
        loop {
            match self.peek() {
                Some(byte) if byte == quote => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') if quote == b'"' => self.escaped(word),
                Some(byte) => {
                    word.push(byte);
                    self.at += 1;
                }
                None if self.append_line() => {}
                None => return Err(Problem::Unterminated(quote as char)),
            }
        }
    }

    /// A backslash before the end of the line takes both away, before anything else only itself.
    fn escaped(&mut self, word: &mut Vec<u8>) {
        self.at += 1;
        match self.peek() {
            None | Some(b'\n') => {
                self.line.truncate(self.at);
                self.append_line();
            }
            Some(byte) => {
                word.push(byte);
                self.at += 1;
            }
        }
    }

    /// Nothing may follow but another command after a semicolon.
    fn end(&mut self) -> Result<(), Problem> {
        if !self.argument()?.is_empty() {
            return Err(Problem::TooManyArguments);
        }
        if self.peek() == Some(b';') {
            self.at += 1;
            self.within = true;
        }
        Ok(())
    }
}

fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

/// As C's `isspace`.
fn is_space(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Name, option and value of what is read, or the problem and its line: each as the real program (of December 2025)
    /// answered it.
    fn read(text: &str) -> Result<Vec<String>, (String, u32)> {
        let config = parse(text.as_bytes()).map_err(|error| (error.problem.to_string(), error.line))?;
        let named = |section: &Section| {
            let name = section.name.clone().unwrap_or_default();
            let options = section.options().map(move |(option, value)| match value {
                Value::Text(text) => format!("{name}.{option}={text}"),
                Value::List(items) => format!("{name}.{option}={}", items.join("|")),
            });
            options.collect::<Vec<_>>()
        };
        Ok(config.sections.iter().flat_map(named).collect())
    }

    fn is(text: &str, options: &[&str]) {
        assert_eq!(read(text), Ok(options.iter().map(ToString::to_string).collect()), "{text:?}");
    }

    fn fails(text: &str, problem: &str, line: u32) {
        assert_eq!(read(text), Err((problem.into(), line)), "{text:?}");
    }

    #[test]
    fn an_empty_value_sets_nothing() {
        is("config a b\noption x 1\noption x ''\n", &["b.x=1"]);
        is("config a b\noption x 1\noption x\n", &["b.x=1"]);
        is("config a b\nlist x 1\noption x ''\n", &["b.x=1"]);
        is("config a b\noption x 1\nlist x ''\n", &["b.x=1|"]);
    }

    #[test]
    fn lines_may_end_as_on_windows_and_go_on_after_a_backslash() {
        is("config a b\r\noption x 'a\r\nb'\r\n", &["b.x=a\nb"]);
        is("config a b\noption x a\\\r\nb\n", &["b.x=ab"]);
        is("config a b\noption x \"a\\\"\\\nb\"\n", &["b.x=a\"b"]);
        is("config a b\noption x a\\", &["b.x=a"]);
    }

    #[test]
    fn a_semicolon_separates_unless_it_touches_a_bare_word() {
        is("config a 'b';option x 1 ;option y 2\n", &["b.x=1", "b.y=2"]);
        is("config a 'b';option x 1;option y 2\n", &["b.x=1"]);
        is("config a b;option x 1\n", &[]);
        is("config a 'b'; # end\n", &[]);
        fails("config a 'b';\n", "invalid command", 1);
        fails("config a 'b'; \noption x 1\n", "invalid command", 1);
        fails("config a 'b';;option x 1\n", "invalid command", 1);
    }

    #[test]
    fn what_is_missing_or_too_much_is_told_with_its_line() {
        fails("config a b\nlist", "option without name", 1);
        fails("config a b\nlist \n", "insufficient arguments", 2);
        fails("config \n", "insufficient arguments", 1);
        fails("config a '' b\n", "too many arguments", 1);
        fails("config \u{e4}\n", "invalid character in type field", 1);
        fails("package a_b.c\n", "invalid character in name field", 1);
        is("package a-b\nconfig a b ''\n", &[]);
        is("config a ''\noption x 1\nconfig a\noption x 2\n", &[".x=1", ".x=2"]);
    }
}
