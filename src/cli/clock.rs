//! The wall clock, as ids and time stamps need it. UTC, no time zones.

use std::time::{SystemTime, UNIX_EPOCH};

/// A moment in UTC, to the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Utc {
    seconds: u64,
}

impl Utc {
    /// A router without a battery clock starts in 1970; that is no error.
    pub fn now() -> Self {
        Self { seconds: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()) }
    }

    /// `20261130-0912-1`: the `number`th calibration of that minute.
    pub fn id(self, number: u32) -> String {
        format!("{}-{number}", self.minute())
    }

    /// `20261130-0912`
    pub fn minute(self) -> String {
        let (year, month, day) = self.date();
        let (hour, minute, _) = self.time();
        format!("{year:04}{month:02}{day:02}-{hour:02}{minute:02}")
    }

    /// `2026-11-30T09:12:05Z`
    pub fn rfc3339(self) -> String {
        let (year, month, day) = self.date();
        let (hour, minute, second) = self.time();
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }

    fn time(self) -> (u64, u64, u64) {
        let second_of_day = self.seconds % 86_400;
        (second_of_day / 3600, second_of_day / 60 % 60, second_of_day % 60)
    }

    /// Takes whole Gregorian cycles, centuries, leap cycles and years off, counting from 1 January of year 1,
    /// where each kind of cycle ends with its leap day.
    fn date(self) -> (u64, u64, u64) {
        const DAYS_BEFORE_1970: u64 = 719_162;
        let mut day = self.seconds / 86_400 + DAYS_BEFORE_1970;
        let mut year = 1;
        for (years, days) in [(400, 146_097), (100, 36_524), (4, 1461), (1, 365)] {
            // The last century of a cycle and the last year of four own the leap day: never a fifth one.
            let whole = if years == 100 || years == 1 { (day / days).min(3) } else { day / days };
            year += whole * years;
            day -= whole * days;
        }
        let leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
        let mut month = 1;
        for days in [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
            if day < days {
                break;
            }
            day -= days;
            month += 1;
        }
        (year, month, day + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> String {
        Utc { seconds }.rfc3339()
    }

    #[test]
    fn dates_agree_with_the_calendar() {
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(978_220_800), "2000-12-31T00:00:00Z");
        assert_eq!(at(1_709_164_800), "2024-02-29T00:00:00Z");
        assert_eq!(at(1_735_603_200), "2024-12-31T00:00:00Z");
        assert_eq!(at(1_796_029_925), "2026-11-30T09:12:05Z");
        assert_eq!(at(4_107_542_400), "2100-03-01T00:00:00Z");
    }

    #[test]
    fn an_id_is_the_minute_and_a_number() {
        assert_eq!(Utc { seconds: 1_796_029_925 }.id(1), "20261130-0912-1");
    }
}
