//! tc's words in `iqdisc_opts` and `eqdisc_opts`: ours are put in and taken out, the owner's stay in their order.

use std::fmt;

/// Words of which CAKE follows the last: one of a family replaces the others (tc-cake(8)). `rtt` takes an argument.
const FAMILIES: [&[&str]; 3] = [
    &["rtt", "datacentre", "lan", "metro", "regional", "internet", "oceanic", "satellite", "interplanetary"],
    &["ack-filter", "ack-filter-aggressive", "no-ack-filter"],
    &["nat", "nonat"],
];
/// Words with an argument.
const WITH_ARGUMENT: [&str; 7] = ["rtt", "overhead", "mpu", "bandwidth", "memlimit", "fwmark", "target"];

/// Words, each with its argument.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tokens(Vec<String>);

impl Tokens {
    /// `None` where there is a character that a shell might act on.
    pub fn of(text: &str) -> Option<Self> {
        let safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, ' ' | '.' | '-');
        text.chars().all(safe).then(|| {
            let mut tokens: Vec<String> = Vec::new();
            let mut words = text.split_whitespace();
            while let Some(word) = words.next() {
                let argument = words.clone().next().filter(|_| WITH_ARGUMENT.contains(&word));
                tokens.push(match argument {
                    Some(argument) => {
                        words.next();
                        format!("{word} {argument}")
                    }
                    None => word.into(),
                });
            }
            Self(tokens)
        })
    }

    /// In place of its family, or at the end.
    pub fn put(&mut self, token: &str) {
        if self.0.iter().filter(|known| related(known, token)).eq([token]) {
            return;
        }
        self.take(token);
        self.0.push(token.into());
    }

    /// Takes the whole family of a word away.
    pub fn take(&mut self, token: &str) {
        self.0.retain(|known| !related(known, token));
    }

    /// The last argument of a word, which is the one that counts.
    pub fn argument(&self, word: &str) -> Option<&str> {
        self.0.iter().rev().find_map(|token| token.strip_prefix(word)?.strip_prefix(' '))
    }

    pub fn has(&self, word: &str) -> bool {
        self.0.iter().any(|token| first(token) == word)
    }
}

impl fmt::Display for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(" "))
    }
}

fn related(one: &str, other: &str) -> bool {
    let (one, other) = (first(one), first(other));
    one == other || FAMILIES.iter().any(|family| family.contains(&one) && family.contains(&other))
}

fn first(token: &str) -> &str {
    token.split(' ').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(text: &str, token: &str) -> String {
        let mut tokens = Tokens::of(text).unwrap();
        tokens.put(token);
        tokens.to_string()
    }

    #[test]
    fn a_word_replaces_its_family_and_nothing_else() {
        assert_eq!(put("", "rtt 160ms"), "rtt 160ms");
        assert_eq!(put("nat dual-srchost  rtt 50ms", "rtt 160ms"), "nat dual-srchost rtt 160ms");
        assert_eq!(put("oceanic nat", "rtt 160ms"), "nat rtt 160ms");
        assert_eq!(put("rtt 160ms nat", "rtt 160ms"), "rtt 160ms nat", "what is there stays where it is");
        assert_eq!(put("no-ack-filter mpu 64", "ack-filter"), "mpu 64 ack-filter");
        assert_eq!(put("nonat", "nat"), "nat");
        let mut tokens = Tokens::of("nat rtt 160ms wash").unwrap();
        tokens.take("rtt");
        assert_eq!(tokens.to_string(), "nat wash");
        assert_eq!(Tokens::of("rtt 60ms rtt 80ms").unwrap().argument("rtt"), Some("80ms"));
    }

    #[test]
    fn what_a_shell_would_act_on_is_no_token() {
        for text in ["nat; reboot", "$(id)", "nat`id`", "a|b", "a\nb", "a\tb", "'nat'", "a&b", "a>b", "ä", "a*", "a_b"]
        {
            assert_eq!(Tokens::of(text), None, "{text:?}");
        }
        assert!(Tokens::of("nat dual-dsthost rtt 1.5s ack-filter").is_some());
    }
}
