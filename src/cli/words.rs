//! Numbers and sentences as people read them.

use crate::line::LinkType;

/// `17,305`
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

pub fn kbit(kbit: u64) -> String {
    format!("{} kbit/s", grouped(kbit))
}

/// Milliseconds without a unit: a decimal only where it says something.
pub fn bare_ms(ms: f64) -> String {
    let rounded = if ms.abs() < 99.95 { format!("{ms:.1}") } else { format!("{ms:.0}") };
    if rounded == "-0.0" { "0.0".into() } else { rounded }
}

pub fn ms(ms: f64) -> String {
    format!("{} ms", bare_ms(ms))
}

pub fn megabytes(bytes: u64) -> String {
    let mb = bytes as f64 / 1e6;
    if mb < 10.0 { format!("{mb:.1} MB") } else { format!("{} MB", grouped(mb.round() as u64)) }
}

/// `48 s`, `2 min 5 s`
pub fn seconds(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match (whole / 60, whole % 60) {
        (0, rest) => format!("{rest} s"),
        (minutes, 0) => format!("{minutes} min"),
        (minutes, rest) => format!("{minutes} min {rest} s"),
    }
}

pub fn link(link: LinkType) -> &'static str {
    match link {
        LinkType::PppoeVdsl2 => "VDSL2 with PPPoE",
        LinkType::PppoeAtm => "ADSL with PPPoE",
        LinkType::Pppoa => "ADSL with PPPoA",
        LinkType::Docsis => "cable",
        LinkType::Ethernet => "Ethernet",
        LinkType::Pppoe => "PPPoE",
        LinkType::Lte => "mobile network",
        LinkType::Unknown => "unknown kind of link",
    }
}

/// In one line, without what a terminal would act on.
pub fn clean(text: &str) -> String {
    wrapped(text, usize::MAX).concat()
}

/// Breaks a text into lines of at most `width`. What a terminal would act on is left out.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let harmless: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let mut lines = vec![String::new()];
    for word in harmless.split_whitespace() {
        let last = lines.last_mut().expect("never empty");
        if last.is_empty() {
            last.push_str(word);
        } else if last.chars().count() + 1 + word.chars().count() <= width {
            last.push(' ');
            last.push_str(word);
        } else {
            lines.push(word.into());
        }
    }
    lines
}

/// A paragraph under a label: `label  text text`, continued below the text.
pub fn labelled(label: &str, label_width: usize, text: &str, width: usize) -> String {
    let mut paragraph = String::new();
    for (n, line) in wrapped(text, width.saturating_sub(label_width)).iter().enumerate() {
        let head = if n == 0 { label } else { "" };
        paragraph.push_str(format!("{head:label_width$}{line}").trim_end());
        paragraph.push('\n');
    }
    paragraph
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!((grouped(0), grouped(999), grouped(1000)), ("0".into(), "999".into(), "1,000".into()));
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!((bare_ms(-0.04), bare_ms(99.94), bare_ms(99.95)), ("0.0".into(), "99.9".into(), "100".into()));
        assert_eq!((megabytes(850_000), megabytes(85_400_000)), ("0.8 MB".into(), "85 MB".into()));
        assert_eq!((seconds(59.6), seconds(61.0), seconds(12.2)), ("1 min".into(), "1 min 1 s".into(), "12 s".into()));
    }

    #[test]
    fn text_is_wrapped_under_its_label_and_cannot_steer_the_terminal() {
        assert_eq!(labelled(" rate", 7, "one two three", 14), " rate  one two\n       three\n");
        assert_eq!(wrapped("a\x1b[31mb\nc", 80), ["a [31mb c"]);
        assert_eq!(labelled("x", 3, "", 10), "x\n");
    }
}
