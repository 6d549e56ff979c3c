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
            Self::Unterminated(quote) => return write!(f, "EOF with unterminated {quote}"),
        })
    }
}

pub fn parse(text: &[u8]) -> Result<Config, UciError> {
    let mut reader = Reader { rest: text, line: Vec::new(), at: 0, number: 0 };
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
                required(reader.argument()?)?;
                reader.end()
            }
            Command::Config => self.section(reader),
            Command::Option => self.option(reader, false),
            Command::List => self.option(reader, true),
        }
    }

    fn section(&mut self, reader: &mut Reader) -> Result<(), Problem> {
        let kind = required(reader.argument()?)?;
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
            None => sections.push(Section { kind, name, options: Vec::new() }),
        }
        self.current = Some(before.unwrap_or(sections.len() - 1));
        Ok(())
    }

    fn option(&mut self, reader: &mut Reader, list: bool) -> Result<(), Problem> {
        let section = self.current.ok_or(Problem::BeforeFirstSection)?;
        let name = named(&required(reader.argument()?)?)?;
        let value = text(&reader.argument()?);
        reader.end()?;
        let options = &mut self.config.sections[section].options;
        let before = options.iter().position(|(known, _)| *known == name);
        match (before, list) {
            (Some(at), true) => options[at].1.push(value),
            (None, true) => options.push((name, Value::List(vec![value]))),
            // An empty value takes the option away.
            (Some(at), false) if value.is_empty() => drop(options.remove(at)),
            (Some(at), false) => options[at].1 = Value::Text(value),
            (None, false) if value.is_empty() => {}
            (None, false) => options.push((name, Value::Text(value))),
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

fn required(argument: Vec<u8>) -> Result<Vec<u8>, Problem> {
    if argument.is_empty() { Err(Problem::MissingArgument) } else { Ok(argument) }
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
}

impl Reader<'_> {
    fn next_line(&mut self) -> bool {
        self.line.clear();
        self.at = 0;
        self.append_line()
    }

    /// Adds a line, its end included. A NUL byte hides the rest of its line and the line's end, so that the next line
    /// is read as its continuation.
    fn append_line(&mut self) -> bool {
        let before = self.line.len();
        while !self.rest.is_empty() {
            let end = self.rest.iter().position(|byte| *byte == b'\n').map_or(self.rest.len(), |at| at + 1);
            let (line, rest) = self.rest.split_at(end);
            self.rest = rest;
            let visible = line.iter().position(|byte| *byte == 0).unwrap_or(line.len());
            self.line.extend_from_slice(&line[..visible]);
            if line[..visible].ends_with(b"\n") {
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

    /// The next command of this line; `None` at its end or at a comment. Only a blank or a tab ends the word.
    fn command(&mut self) -> Option<Vec<u8>> {
        self.skip_space();
        if self.peek().is_none_or(|byte| byte == b'#') {
            return None;
        }
        let from = self.at;
        while self.peek().is_some_and(|byte| byte != b' ' && byte != b'\t') {
            self.at += 1;
        }
        Some(self.line[from..self.at].to_vec())
    }

    /// The next argument, quotes resolved; empty where there is none.
    fn argument(&mut self) -> Result<Vec<u8>, Problem> {
        self.skip_space();
        let mut word = Vec::new();
        while let Some(byte) = self.peek() {
            match byte {
                b'\'' | b'"' => self.quoted(byte, &mut word)?,
                b'\\' => self.escaped(&mut word),
                b'#' => self.line.truncate(self.at),
                b';' => break,
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
        }
        Ok(())
    }
}

/// As C's `isspace`.
fn is_space(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}
