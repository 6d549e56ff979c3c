//! What a stranger may read: addresses and names taken out, everything else as it is. Pure.

use super::uci::{Config, Section, Value};
use std::net::{IpAddr, Ipv6Addr};

/// Options of `/etc/config` whose values are somebody's.
const PRIVATE: [&str; 14] = [
    "hostname",
    "username",
    "password",
    "ssid",
    "key",
    "private_key",
    "preshared_key",
    "public_key",
    "endpoint_host",
    "serial",
    "mac",
    "macaddr",
    "clientid",
    "auth",
];
/// Shorter ones are in too many words.
const SHORTEST: usize = 3;

#[derive(Clone, Debug, Default)]
pub struct Redactor {
    names: Vec<String>,
}

impl Redactor {
    /// Knows the names in these configurations.
    pub fn of<'a>(configs: impl IntoIterator<Item = &'a Config>) -> Self {
        let mut redactor = Self::default();
        for (option, value) in configs.into_iter().flat_map(|config| &config.sections).flat_map(Section::options) {
            if PRIVATE.contains(&option) {
                match value {
                    Value::Text(text) => redactor.know(text),
                    Value::List(items) => items.iter().for_each(|item| redactor.know(item)),
                }
            }
        }
        redactor
    }

    pub fn know(&mut self, name: &str) {
        if name.len() >= SHORTEST {
            self.names.push(name.into());
            // Of two that begin alike the longer one goes first.
            self.names.sort_by_key(|name| std::cmp::Reverse(name.len()));
        }
    }

    pub fn text(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for name in &self.names {
            text = text.replace(name, "<name>");
        }
        hosts(&addresses(&text))
    }

    /// Every text in a JSON value; keys stay.
    pub fn json(&self, value: &mut serde_json::Value) {
        match value {
            serde_json::Value::String(text) => *text = self.text(text),
            serde_json::Value::Array(items) => items.iter_mut().for_each(|item| self.json(item)),
            serde_json::Value::Object(members) => members.values_mut().for_each(|member| self.json(member)),
            _ => {}
        }
    }
}

/// IPv4, IPv6 and hardware addresses. A time of day has colons, too, and is none.
fn addresses(text: &str) -> String {
    let part = |c: char| c.is_ascii_hexdigit() || matches!(c, '.' | ':');
    let mut redacted = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(part) {
        let (before, from) = rest.split_at(start);
        let end = from.find(|c| !part(c)).unwrap_or(from.len());
        let (word, after) = from.split_at(end);
        redacted.push_str(before);
        let within = before.ends_with(|c: char| c.is_alphanumeric() || c == '_')
            || after.starts_with(|c: char| c.is_alphanumeric() || c == '_');
        redacted.push_str(&if within { word.into() } else { address(word) });
        rest = after;
    }
    redacted + rest
}

fn address(word: &str) -> String {
    // A full stop or a colon may be the sentence's; a port the address's.
    let bare = word.trim_end_matches(['.', ':']);
    let tail = &word[bare.len()..];
    let is_mac = bare.split(':').count() == 6 && bare.split(':').all(|byte| byte.len() == 2);
    let is_ip = |text: &str| text.parse::<IpAddr>().is_ok_and(|ip| !ip.is_loopback() && !ip.is_unspecified());
    let ipv4 = bare.split_once(':').map_or(bare, |(host, _)| host);
    match () {
        () if is_mac => format!("<mac>{tail}"),
        () if bare.parse::<Ipv6Addr>().is_ok() && is_ip(bare) => format!("<ipv6>{tail}"),
        () if is_ip(ipv4) => format!("<ipv4>{}{tail}", &bare[ipv4.len()..]),
        () => word.into(),
    }
}

/// The host of a URL.
fn hosts(text: &str) -> String {
    let mut redacted = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        let end =
            after.find(|c: char| c.is_whitespace() || matches!(c, '/' | '\'' | '"' | ',' | ')')).unwrap_or(after.len());
        redacted.push_str(before);
        redacted.push_str("<host>");
        rest = &after[end..];
    }
    redacted + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_names_go_and_numbers_stay() {
        let config = "config system\n\toption hostname 'smiths'\nconfig interface 'wan'\n\toption username 'joe@isp.example'\n\
            \toption password 'ab'\n\tlist macaddr 'box'\n";
        let redactor = Redactor::of([&Config::parse(config.as_bytes()).unwrap()]);
        for (text, redacted) in [
            ("from 203.0.113.7 to 9.9.9.9.", "from <ipv4> to <ipv4>."),
            ("at 203.0.113.7:8080, [2001:db8::1]:80", "at <ipv4>:8080, [<ipv6>]:80"),
            ("fe80::1%eth0 and 02:00:5e:10:00:01", "<ipv6>%eth0 and <mac>"),
            ("on smiths as joe@isp.example", "on <name> as <name>"),
            ("https://box.example:8080/up?x=1 fails", "https://<host>/up?x=1 fails"),
            ("started 2026-11-30T09:12:05Z, 09:12", "started 2026-11-30T09:12:05Z, 09:12"),
            ("17,236 kbit/s, 1.9 ms, version 24.10.1, ::", "17,236 kbit/s, 1.9 ms, version 24.10.1, ::"),
            ("127.0.0.1 is everybody's", "127.0.0.1 is everybody's"),
            ("interface 'pppoe-wan' dsl0.101 eth0.2 ab", "interface 'pppoe-wan' dsl0.101 eth0.2 ab"),
        ] {
            assert_eq!(redactor.text(text), redacted);
        }
        let mut json = serde_json::json!({"smiths": ["smiths", 1, {"a": "9.9.9.9"}]});
        redactor.json(&mut json);
        assert_eq!(json, serde_json::json!({"smiths": ["<name>", 1, {"a": "<ipv4>"}]}));
    }
}
