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

    /// Since 1970.
    pub fn seconds(self) -> u64 {
        self.seconds
    }

    /// What [`Utc::rfc3339`] writes.
    pub fn parse(text: &str) -> Option<Self> {
        let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
        let mut date = date.split('-').map(|part| part.parse::<u64>().ok());
        let (year, month, day) = (date.next()??, date.next()??, date.next()??);
        let mut time = time.split(':').map(|part| part.parse::<u64>().ok());
        let second = (time.next()?? * 60 + time.next()??) * 60 + time.next()??;
        // Found by what it has to come out as: a month is at most 31 days too far.
        let days = (year.checked_sub(1970)? * 365 + year.checked_sub(1969)? / 4 + month * 28).saturating_sub(60);
        let mut days = days..days + 90;
        days.find_map(|days| {
            let utc = Self { seconds: days * 86_400 + second };
            (utc.date() == (year, month, day)).then_some(utc)
        })
    }

    /// Minutes since midnight where the router stands. musl reads `TZ` only; OpenWrt keeps it in a file.
    pub fn local_minute(self) -> u16 {
        if std::env::var_os("TZ").is_none()
            && let Ok(zone) = std::fs::read_to_string("/etc/TZ")
        {
            // SAFETY: called where there is only one thread.
            unsafe { std::env::set_var("TZ", zone.trim()) };
        }
        let now = self.seconds as libc::time_t;
        // SAFETY: all zeros is a valid `tm`; both pointers outlive the call.
        let local = unsafe {
            let mut local: libc::tm = std::mem::zeroed();
            libc::localtime_r(&raw const now, &raw mut local);
            local
        };
        (local.tm_hour * 60 + local.tm_min) as u16
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
        for seconds in (0..1_000).map(|n| n * 4_107_549).chain([951_782_399, 951_782_400, 1_709_164_800]) {
            assert_eq!(Utc::parse(&at(seconds)), Some(Utc { seconds }));
        }
        for wrong in ["", "2026-11-30", "2026-13-01T00:00:00Z", "2026-02-30T00:00:00Z", "2026-11-30T09:12:05"] {
            assert_eq!(Utc::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn an_id_is_the_minute_and_a_number() {
        assert_eq!(Utc { seconds: 1_796_029_925 }.id(1), "20261130-0912-1");
    }
}
