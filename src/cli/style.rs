//! What the reader's terminal can show: colour, UTF-8, width.

use std::io::IsTerminal;

/// How to write for one stream.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    pub colour: bool,
    pub utf8: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tint {
    Bold,
    Dim,
    Good,
    Bad,
    Doubtful,
}

impl Style {
    pub const PLAIN: Self = Self { colour: false, utf8: false };

    pub fn of(stream: &impl IsTerminal) -> Self {
        Self { colour: stream.is_terminal() && std::env::var_os("NO_COLOR").is_none() && !dumb(), utf8: utf8_locale() }
    }

    pub fn paint(self, tint: Tint, text: &str) -> String {
        let code = match tint {
            Tint::Bold => "1",
            Tint::Dim => "2",
            Tint::Good => "32",
            Tint::Bad => "31",
            Tint::Doubtful => "33",
        };
        if self.colour && !text.is_empty() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.into() }
    }

    /// The first where the terminal can show it, else the second.
    pub fn glyph(self, utf8: &'static str, ascii: &'static str) -> &'static str {
        if self.utf8 { utf8 } else { ascii }
    }
}

/// A terminal that cannot go back to the start of its line.
pub fn dumb() -> bool {
    std::env::var("TERM").is_ok_and(|term| term == "dumb")
}

/// Columns of the terminal behind stderr.
pub fn width() -> usize {
    // SAFETY: TIOCGWINSZ writes one `winsize` to the address it is given.
    let (result, size) = unsafe {
        let mut size: libc::winsize = std::mem::zeroed();
        (libc::ioctl(libc::STDERR_FILENO, libc::TIOCGWINSZ, &raw mut size), size)
    };
    if result == 0 && size.ws_col > 0 { size.ws_col as usize } else { 80 }
}

/// As the C library would decide: the first of these that is set.
fn utf8_locale() -> bool {
    let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set).unwrap_or_default().to_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}
