//! Answers as JSON text. Each kind of serialiser is made anew for every type of an answer, so that there is one kind only,
//! and lines and indents come afterwards: a router's flash is small.

use serde::Serialize;

/// On one line.
///
/// # Panics
/// If `answer` is more than plain data.
pub fn text(answer: &impl Serialize) -> String {
    serde_json::to_string(answer).expect("an answer is plain data")
}

/// For people, with the end of the last line.
pub fn lines(answer: &impl Serialize) -> String {
    indented(&text(answer)) + "\n"
}

fn indented(json: &str) -> String {
    let mut out = String::with_capacity(2 * json.len());
    let mut depth = 0;
    let mut rest = json;
    while let Some(next) = rest.chars().next() {
        // Texts and numbers as they are, up to what gives the structure.
        let whole = if next == '"' { quoted(rest) } else { next.len_utf8() };
        out.push_str(&rest[..whole]);
        rest = &rest[whole..];
        match next {
            '{' | '[' if !rest.starts_with(['}', ']']) => depth += 1,
            ',' => {}
            ':' => {
                out.push(' ');
                continue;
            }
            _ if rest.starts_with(['}', ']']) && !matches!(next, '{' | '[') => depth -= 1,
            _ => continue,
        }
        out.push('\n');
        out.extend(std::iter::repeat_n("  ", depth));
    }
    out
}

/// How long the text at the beginning is, with both quotation marks.
fn quoted(json: &str) -> usize {
    let mut escaped = false;
    let end = json[1..].find(|c| {
        let closes = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        closes
    });
    end.map_or(json.len(), |end| end + 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn lines_are_those_that_everybody_knows() {
        for value in [
            json!(null),
            json!([]),
            json!({}),
            json!([[], {}, [[1]], "", -1.5e-7]),
            json!({ "a": { "b": [1, 2, { "c": [] }] }, "d": {}, "{\"[,:]}": "x: {\"y\\\", [z]\\\\", "ü\u{1}\n": true }),
        ] {
            assert_eq!(lines(&value), serde_json::to_string_pretty(&value).unwrap() + "\n");
        }
    }

    #[test]
    fn a_whole_outcome_too() {
        let outcome = crate::cli::sample::tuned();
        assert_eq!(lines(&outcome), serde_json::to_string_pretty(&outcome).unwrap() + "\n");
        assert!(serde_json::from_str::<Value>(&text(&outcome)).is_ok());
    }
}
