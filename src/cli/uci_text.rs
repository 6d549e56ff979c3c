//! The `config queue` section that would be written where there is none yet, from an outcome. Pure.

use crate::calibration::outcome::Outcome;
use crate::openwrt::sqm::{ChangeList, Place};
use std::fmt::Write;

/// `None` where the outcome is no reason to write anything.
pub fn section(outcome: &Outcome, interface: &str) -> Option<String> {
    let list = ChangeList::of(None, &Place::of_device(interface), outcome).ok()?;
    let mut text = String::from("config queue\n");
    for change in &list.changes {
        let _ = writeln!(text, "\toption {} '{}'", change.option, change.new.as_deref()?);
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibration::outcome::{AckFilter, Layer, Status};
    use crate::cli::sample;

    #[test]
    fn frames_and_the_default_target() {
        assert_eq!(
            section(&sample::tuned(), "pppoe-wan").unwrap(),
            "config queue\n\toption enabled '1'\n\toption interface 'pppoe-wan'\n\toption upload '17236'\n\
             \toption download '0'\n\toption qdisc 'cake'\n\toption script 'piece_of_cake.qos'\n\
             \toption linklayer 'ethernet'\n\toption overhead '38'\n\toption linklayer_advanced '1'\n\
             \toption tcMPU '84'\n\toption linklayer_adaptation_mechanism 'default'\n"
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
        assert!(text.contains("option linklayer 'atm'\n\toption overhead '44'\n"), "{text}");
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
