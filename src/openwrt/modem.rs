//! What the driver of a built-in DSL modem says: the reply of `ubus call dsl metrics`.
//!
//! Keys may be absent, and objects are empty while the line trains. The names are those of Lantiq's driver; others use
//! the same ones, some with kbit/s where Lantiq has bit/s.

use crate::units::Rate;
use serde::Serialize;
use serde_json::Value;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Modem {
    pub state: State,
    /// The state in the driver's words.
    pub said: Option<String>,
    pub mode: Option<Mode>,
    /// The mode in the driver's words.
    pub mode_said: Option<String>,
    pub upload: Option<Rate>,
    pub download: Option<Rate>,
    /// The unit of the rates follows from nothing but their size.
    pub unit_guessed: Option<Unit>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Data flows.
    Showtime,
    /// On its way there.
    Training,
    Down,
    Unknown,
}

/// Which family of standards the line is trained in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Adsl,
    Vdsl,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Bit,
    Kbit,
}

impl Modem {
    pub fn of(metrics: &Value) -> Self {
        let mode_said = ["mode", "standard"].into_iter().find_map(|key| text(metrics, key));
        let profile = text(metrics, "profile").map(|_| Mode::Vdsl);
        let mode = mode_said.as_deref().and_then(Mode::said).or(profile);
        let rate = |direction: &str| metrics.get(direction)?.get("data_rate").and_then(number).filter(|rate| *rate > 0);
        let (up, down) = (rate("upstream"), rate("downstream"));
        let unit = up.max(down).map(|larger| Unit::of(larger, mode, known_for_bits(metrics)));
        let in_bits = |rate: u64| match unit {
            Some((Unit::Kbit, _)) => Rate::from_bits(rate.saturating_mul(1000)),
            _ => Rate::from_bits(rate),
        };
        Self {
            state: State::of(metrics),
            said: text(metrics, "state"),
            mode,
            mode_said,
            upload: up.map(in_bits),
            download: down.map(in_bits),
            unit_guessed: unit.and_then(|(unit, guessed)| guessed.then_some(unit)),
        }
    }
}

impl State {
    fn of(metrics: &Value) -> Self {
        let up = metrics.get("up").and_then(Value::as_bool);
        let numbered = metrics.get("state_num").and_then(number).and_then(Self::numbered);
        let said = numbered.or_else(|| text(metrics, "state").and_then(|state| Self::said(&state)));
        match (said, up) {
            // Showtime and not up cannot both be true, and a rate that may be stale is worse than none.
            (Some(Self::Showtime), Some(false)) | (None, None) => Self::Unknown,
            (Some(state), _) => state,
            (None, Some(true)) => Self::Showtime,
            (None, Some(false)) => Self::Down,
        }
    }

    /// The numbers that Lantiq's driver keeps stable. A silent modem listens for the other end: without one it goes to
    /// and fro between that and the handshake.
    fn numbered(state: u64) -> Option<Self> {
        match state {
            0..=2 => Some(Self::Down),
            3..=6 | 8 => Some(Self::Training),
            7 => Some(Self::Showtime),
            _ => None,
        }
    }

    /// States that have no number, and drivers that give none.
    fn said(state: &str) -> Option<Self> {
        let state = state.to_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| state.contains(word));
        if has(&["showtime"]) {
            return match state.as_str() {
                "showtime" | "showtime with tc-layer sync" => Some(Self::Showtime),
                _ => Some(Self::Training),
            };
        }
        if has(&["not init", "exception", "idle", "disabled", "shutdown", "down", "off", "no signal", "l3", "test"]) {
            return Some(Self::Down);
        }
        let training = ["silent", "handshake", "init", "discovery", "train", "analysis", "exchange", "sync", "bonding"];
        has(&training).then_some(Self::Training)
    }
}

impl Mode {
    fn said(mode: &str) -> Option<Self> {
        let mode = mode.to_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| mode.contains(word));
        if has(&["993", "vdsl"]) {
            Some(Self::Vdsl)
        } else if has(&["992", "adsl", "t1.413", "ts 101 388", "g.dmt", "g.lite"]) {
            Some(Self::Adsl)
        } else {
            None
        }
    }
}

impl Unit {
    /// No ADSL line has 60 Mbit/s, and none has less than 60 kbit/s; no VDSL line has 1 Gbit/s (G.993.2 ends at some
    /// 400 Mbit/s), and none less than 1 Mbit/s. Between the two, without a mode, the driver's name has to tell.
    /// The flag says whether that is a guess; bit/s is what the keys mean, so a plausible number of them is none.
    fn of(larger: u64, mode: Option<Mode>, bits_expected: bool) -> (Self, bool) {
        const ADSL: u64 = 60_000;
        const VDSL: u64 = 1_000_000;
        match (mode, larger) {
            (Some(Mode::Adsl), ADSL..) | (_, VDSL..) => (Self::Bit, false),
            (None, ADSL..) if bits_expected => (Self::Bit, true),
            _ => (Self::Kbit, true),
        }
    }
}

/// The drivers that are known to report bit/s: Lantiq's, later Intel's, now MaxLinear's.
fn known_for_bits(metrics: &Value) -> bool {
    let chipset = text(metrics, "chipset").unwrap_or_default().to_lowercase();
    ["lantiq", "intel", "maxlinear"].iter().any(|maker| chipset.contains(maker))
}

fn text(metrics: &Value, key: &str) -> Option<String> {
    metrics.get(key)?.as_str().map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned)
}

/// Some drivers print numbers as text or with a fraction.
fn number(value: &Value) -> Option<u64> {
    let number = value.as_f64().or_else(|| value.as_str()?.trim().parse().ok())?;
    (number >= 0.0).then_some(number as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn state(metrics: &Value) -> State {
        Modem::of(metrics).state
    }

    #[test]
    fn only_showtime_with_tc_layer_sync_is_showtime() {
        assert_eq!(
            state(&json!({"state_num": 7, "state": "Showtime with TC-Layer sync", "up": true})),
            State::Showtime
        );
        assert_eq!(state(&json!({"state": "Showtime"})), State::Showtime);
        assert_eq!(state(&json!({"up": true})), State::Showtime);
        assert_eq!(state(&json!({"state_num": 7, "up": false})), State::Unknown);
        for number in [3, 4, 5, 6, 8] {
            assert_eq!(state(&json!({"state_num": number, "up": false})), State::Training, "{number}");
        }
        for said in ["Handshake", "Full init", "Showtime without TC-Layer sync", "Fastretrain", "Silent", "Training"] {
            assert_eq!(state(&json!({"state": said, "up": false})), State::Training, "{said}");
        }
        for said in ["Idle", "Exception", "Not initialized", "Disabled", "Lowpower L3"] {
            assert_eq!(state(&json!({"state": said, "up": false})), State::Down, "{said}");
        }
        assert_eq!(state(&json!({})), State::Unknown);
        assert_eq!(state(&json!({"state_num": 99})), State::Unknown);
    }

    #[test]
    fn the_mode_is_read_from_whichever_key_there_is() {
        let mode = |metrics: Value| Modem::of(&metrics).mode;
        assert_eq!(mode(json!({"mode": "G.993.2 (VDSL2, Profile 17a)"})), Some(Mode::Vdsl));
        assert_eq!(mode(json!({"mode": "VDSL2"})), Some(Mode::Vdsl));
        assert_eq!(mode(json!({"profile": "17a"})), Some(Mode::Vdsl));
        assert_eq!(mode(json!({"standard": "G.992.5"})), Some(Mode::Adsl));
        assert_eq!(mode(json!({"mode": "T1.413"})), Some(Mode::Adsl));
        assert_eq!(mode(json!({"mode": "", "standard": "ADSL2+"})), Some(Mode::Adsl));
        assert_eq!(mode(json!({"mode": "unknown"})), None);
    }

    #[test]
    fn the_unit_is_the_one_that_makes_sense() {
        let seen = |mode: &str, chipset: &str, up: u64, down: u64| {
            let modem = Modem::of(&json!({"mode": mode, "chipset": chipset, "upstream": {"data_rate": up},
                "downstream": {"data_rate": down}}));
            (modem.upload.unwrap().kbit(), modem.download.unwrap().kbit(), modem.unit_guessed)
        };
        assert_eq!(seen("VDSL2", "", 17_999_999, 66_999_000), (17_999, 66_999, None));
        assert_eq!(seen("VDSL2", "", 800_000, 4_000_000), (800, 4000, None));
        assert_eq!(seen("VDSL2", "", 31_000, 109_000), (31_000, 109_000, Some(Unit::Kbit)));
        assert_eq!(seen("ADSL2+", "", 1021, 17_530), (1021, 17_530, Some(Unit::Kbit)));
        assert_eq!(seen("G.992.1 (ADSL)", "", 64_000, 256_000), (64, 256, None));
        assert_eq!(seen("", "", 17_999_000, 66_999_000), (17_999, 66_999, None));
        assert_eq!(seen("", "", 40_000, 110_000), (40_000, 110_000, Some(Unit::Kbit)));
        assert_eq!(seen("", "Lantiq-AR9", 128_000, 512_000), (128, 512, Some(Unit::Bit)));
        assert_eq!(seen("", "Lantiq-VRX200", 18_000, 47_000), (18_000, 47_000, Some(Unit::Kbit)));
    }

    #[test]
    fn missing_and_odd_rates_are_no_rates() {
        let modem = Modem::of(&json!({"up": true, "upstream": {}, "downstream": {"data_rate": "66999000"}}));
        assert_eq!((modem.upload, modem.download), (None, Some(Rate::from_kbit(66_999))));
        let odd = json!({"upstream": {"data_rate": 0}, "downstream": {"data_rate": -1}});
        assert_eq!((Modem::of(&odd).upload, Modem::of(&odd).download), (None, None));
        assert_eq!(Modem::of(&json!([1, 2])).state, State::Unknown);
    }
}
