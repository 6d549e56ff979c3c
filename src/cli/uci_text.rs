//! The `config queue` section that would be written, from an outcome. Pure.

use crate::calibration::outcome::{Layer, Outcome, Status};
use std::fmt::Write;

/// tc's `rtt` for a target of 8 ms; 5 ms is what CAKE does unasked.
const LONG_RTT: &str = "rtt 160ms";
const ACK_FILTER: &str = "ack-filter";

/// `None` where the outcome is no reason to write anything.
pub fn section(outcome: &Outcome, interface: &str) -> Option<String> {
    if outcome.outcome != Status::Tuned {
        return None;
    }
    let link = &outcome.link;
    let mut section = Section { text: "config queue\n".into() };
    section.option("enabled", "1");
    section.option("interface", interface);
    // sqm-scripts takes a missing rate for 2302 and 14698; only 0 leaves the direction alone.
    section.option("upload", outcome.upload.kbit.unwrap_or(0));
    section.option("download", outcome.download.kbit.unwrap_or(0));
    section.option("qdisc", "cake");
    section.option("script", "piece_of_cake.qos");
    section.option("linklayer", if link.write_layer == Layer::Atm { "atm" } else { "ethernet" });
    section.option("overhead", link.write_overhead);
    if link.write_mpu > 0 {
        // The flag is for LuCI, which deletes what it hides.
        section.option("linklayer_advanced", "1");
        section.option("tcMPU", link.write_mpu);
    }
    let filter = outcome.ack_filter.as_ref().is_some_and(|filter| filter.recommended);
    let wanted = [(outcome.target.target_ms == Some(8.0), LONG_RTT), (filter, ACK_FILTER)];
    let options: Vec<&str> = wanted.into_iter().filter(|(wanted, _)| *wanted).map(|(_, option)| option).collect();
    if !options.is_empty() {
        section.option("qdisc_advanced", "1");
        section.option("qdisc_really_really_advanced", "1");
        section.option("eqdisc_opts", options.join(" "));
    }
    Some(section.text)
}

struct Section {
    text: String,
}

impl Section {
    fn option(&mut self, name: &str, value: impl std::fmt::Display) {
        let _ = writeln!(self.text, "\toption {name} '{value}'");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibration::outcome::AckFilter;
    use crate::cli::sample;

    #[test]
    fn frames_and_the_default_target() {
        assert_eq!(
            section(&sample::tuned(), "pppoe-wan").unwrap(),
            "config queue\n\toption enabled '1'\n\toption interface 'pppoe-wan'\n\toption upload '17236'\n\
             \toption download '0'\n\toption qdisc 'cake'\n\toption script 'piece_of_cake.qos'\n\
             \toption linklayer 'ethernet'\n\toption overhead '38'\n\toption linklayer_advanced '1'\n\
             \toption tcMPU '84'\n"
        );
    }

    #[test]
    fn cells_and_the_long_target() {
        let mut outcome = sample::tuned();
        outcome.download.kbit = Some(14_500);
        outcome.link.write_layer = Layer::Atm;
        outcome.link.write_overhead = 44;
        outcome.link.write_mpu = 0;
        outcome.target.target_ms = Some(8.0);
        outcome.ack_filter = Some(AckFilter { recommended: true, why: String::new() });
        let text = section(&outcome, "pppoe-wan").unwrap();
        assert!(text.contains("option linklayer 'atm'\n\toption overhead '44'\n\toption qdisc_advanced '1'"), "{text}");
        assert!(
            text.contains("option qdisc_really_really_advanced '1'\n\toption eqdisc_opts 'rtt 160ms ack-filter'\n"),
            "{text}"
        );
        assert!(text.contains("option download '14500'") && !text.contains("MPU"), "{text}");
    }

    #[test]
    fn nothing_is_written_for_a_line_that_was_not_tuned() {
        assert_eq!(section(&sample::unneeded(), "wan"), None);
        assert_eq!(section(&sample::refused(), "wan"), None);
        let mut inconclusive = sample::tuned();
        inconclusive.outcome = Status::Inconclusive;
        assert_eq!(section(&inconclusive, "wan"), None);
    }
}
