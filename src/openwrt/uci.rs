//! UCI as libuci reads it, so that what we see is what the router's own scripts see.

mod parse;

pub use parse::{Problem, UciError};

/// One file of `/etc/config`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    pub sections: Vec<Section>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Section {
    /// `queue` in `config queue 'eth1'`.
    pub kind: String,
    /// `None`: anonymous.
    pub name: Option<String>,
    options: Vec<(String, Value)>,
    /// Where each of them was set last.
    lines: Vec<u32>,
    line: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Text(String),
    List(Vec<String>),
}

impl Config {
    /// # Errors
    /// Where libuci would reject the file: then it does not exist for any program on the router.
    pub fn parse(text: &[u8]) -> Result<Self, UciError> {
        parse::parse(text)
    }

    pub fn of_kind<'a, 'k>(&'a self, kind: &'k str) -> impl Iterator<Item = &'a Section> + use<'a, 'k> {
        self.sections.iter().filter(move |section| section.kind == kind)
    }

    pub fn named(&self, kind: &str, name: &str) -> Option<&Section> {
        self.of_kind(kind).find(|section| section.name.as_deref() == Some(name))
    }
}

impl Section {
    pub fn new(kind: &str, name: Option<&str>) -> Self {
        Self { kind: kind.into(), name: name.map(str::to_owned), ..Self::default() }
    }

    /// As `uci set` and `uci delete` do: a new option comes last. Nothing is written anywhere.
    pub fn set(&mut self, option: &str, value: Option<&str>) {
        let at = self.options.iter().position(|(name, _)| name == option);
        match (at, value.map(|text| Value::Text(text.into()))) {
            (Some(at), Some(value)) => self.options[at].1 = value,
            (Some(at), None) => {
                self.options.remove(at);
                self.lines.remove(at);
            }
            (None, Some(value)) => {
                self.options.push((option.into(), value));
                self.lines.push(0);
            }
            (None, None) => {}
        }
    }

    /// The same options with the same values, in any order.
    pub fn says_the_same(&self, other: &Self) -> bool {
        (&self.kind, &self.name, self.options.len()) == (&other.kind, &other.name, other.options.len())
            && self.options.iter().all(|(name, value)| other.value(name) == Some(value))
    }

    /// The text of an option; `None` where it is absent or a list.
    pub fn get(&self, option: &str) -> Option<&str> {
        match self.value(option)? {
            Value::Text(text) => Some(text),
            Value::List(_) => None,
        }
    }

    /// The words of a list. A plain option counts as one, split at white space, as OpenWrt's scripts take it.
    pub fn words(&self, option: &str) -> Vec<&str> {
        match self.value(option) {
            None => Vec::new(),
            Some(Value::Text(text)) => text.split_whitespace().collect(),
            Some(Value::List(items)) => items.iter().map(String::as_str).collect(),
        }
    }

    pub fn options(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.options.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// In which line of the file an option was set last, or the section begins.
    pub fn line(&self, option: &str) -> u32 {
        self.options.iter().position(|(name, _)| name == option).map_or(self.line, |at| self.lines[at])
    }

    pub fn value(&self, option: &str) -> Option<&Value> {
        self.options.iter().find(|(name, _)| name == option).map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_and_lists_are_found_by_name() {
        let text = b"config interface wan\n\toption ifname 'eth0 eth1'\n\tlist dns '1.1.1.1'\n\tlist dns 'a b'\n\nconfig device\n";
        let config = Config::parse(text).unwrap();
        let wan = config.named("interface", "wan").unwrap();
        assert_eq!((wan.get("ifname"), wan.get("dns"), wan.get("proto")), (Some("eth0 eth1"), None, None));
        assert_eq!((wan.words("ifname"), wan.words("dns")), (vec!["eth0", "eth1"], vec!["1.1.1.1", "a b"]));
        assert_eq!(wan.options().count(), 2);
        assert_eq!(["ifname", "dns", "none"].map(|option| wan.line(option)), [2, 4, 1]);
        assert_eq!(config.of_kind("device").map(|device| device.name.as_deref()).collect::<Vec<_>>(), [None]);
    }
}
