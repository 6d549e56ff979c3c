//! What is written in a queue's section, taken by itself.

use super::{Code, Findings};
use crate::calibration::outcome::Layer;
use crate::openwrt::link::{Confidence, Kind, Link};
use crate::openwrt::queue::{Cells, Queue};
use crate::openwrt::uci::Section;
use std::ops::RangeInclusive;

/// What tc accepts (`q_cake.c`); for anything else it sets no shaper.
const OVERHEADS: RangeInclusive<i64> = -64..=256;
const MPUS: RangeInclusive<i64> = 0..=256;
/// What a shell would act on in the unquoted options.
const SHELL: &str = "$`;&|<>()'\"\\*?[]{}#~!\n\t";
/// Each sets target and interval; tc accepts one (`q_cake.c`).
const PRESETS: [&str; 8] =
    ["datacentre", "lan", "metro", "regional", "internet", "oceanic", "satellite", "interplanetary"];
/// What CAKE ignores, and the values that say nothing: SQM's own defaults and those that LuCI writes.
const DEAD: [(&str, &[&str]); 9] = [
    ("itarget", &["auto", "default"]),
    ("etarget", &["auto", "default"]),
    ("target", &["auto", "default"]),
    ("ilimit", &[]),
    ("elimit", &[]),
    ("ingress_ecn", &["ECN", "default"]),
    ("egress_ecn", &["ECN", "NOECN", "default"]),
    ("tcMTU", &["2047"]),
    ("tcTSIZE", &["128"]),
];
/// Options that sqm-scripts or LuCI read.
const KNOWN: [&str; 30] = [
    "enabled",
    "interface",
    "download",
    "upload",
    "qdisc",
    "script",
    "linklayer",
    "overhead",
    "linklayer_advanced",
    "tcMTU",
    "tcTSIZE",
    "tcMPU",
    "linklayer_adaptation_mechanism",
    "qdisc_advanced",
    "squash_dscp",
    "squash_ingress",
    "qdisc_really_really_advanced",
    "iqdisc_opts",
    "eqdisc_opts",
    "debug_logging",
    "verbosity",
    "use_mq",
    "shaper_burst",
    "htb_quantum_function",
    "ingress_ecn",
    "egress_ecn",
    "itarget",
    "etarget",
    "ilimit",
    "elimit",
];
/// Names in use that nobody reads, and what was meant.
const MISTAKEN: [(&str, &str); 8] = [
    ("tsize", "tcTSIZE"),
    ("mtu", "tcMTU"),
    ("mpu", "tcMPU"),
    ("linklayer_adapt_mechanism", "linklayer_adaptation_mechanism"),
    ("qdisc_options", "iqdisc_opts and eqdisc_opts"),
    ("qdisc_opts", "iqdisc_opts and eqdisc_opts"),
    ("cake_opts", "iqdisc_opts and eqdisc_opts"),
    ("nowash_ack", "nowash in eqdisc_opts"),
];
/// LuCI's flags and what it deletes while they are off. The values are those that say nothing.
const HIDDEN: [(&str, &[&str], &[&str]); 5] = [
    ("tcMPU", &["0"], &["linklayer_advanced"]),
    ("squash_dscp", &["1"], &["qdisc_advanced"]),
    ("squash_ingress", &["1"], &["qdisc_advanced"]),
    ("iqdisc_opts", &[], &["qdisc_advanced", "qdisc_really_really_advanced"]),
    ("eqdisc_opts", &[], &["qdisc_advanced", "qdisc_really_really_advanced"]),
];

/// `link`: what is known of the line, if the queue is on a WAN.
pub fn examine(queue: &Queue, link: Option<&Link>, findings: &mut Findings) {
    layer(queue, link, findings);
    overhead(queue, findings);
    dead(queue, findings);
    misspelt(queue, findings);
    opts(queue, findings);
    hidden(queue, findings);
}

fn overhead(queue: &Queue, findings: &mut Findings) {
    let section = queue.section;
    let dropped = matches!(section.get("linklayer"), None | Some("none"));
    let written = section.get("overhead").filter(|text| *text != "0");
    // On an ATM line it is atm that is missing, which has been said.
    let said = findings.has(Code::FramesOnAtm, &queue.at("linklayer"));
    if let Some(overhead) = written.filter(|_| dropped && !said) {
        let text = format!(
            "linklayer is none, so that the overhead of {overhead} is dropped: each packet is counted too small, and small \
             packets bring the delay back"
        );
        let fix = format!("uci set {}='ethernet' (atm on ADSL)", queue.at("linklayer"));
        findings.add(Code::LayerNoneDropsOverhead, queue.at("linklayer"), text, fix);
    }
    let kept = |option: &str| section.get(option).filter(|_| !dropped).map(str::to_owned);
    let told = |option: &str, word: &str| Some((option.to_owned(), word_after(section.get(option)?, word)?.to_owned()));
    let overheads = [
        kept("overhead").map(|text| ("overhead".to_owned(), text)),
        told("eqdisc_opts", "overhead"),
        told("iqdisc_opts", "overhead"),
    ];
    let mpus =
        [kept("tcMPU").map(|text| ("tcMPU".to_owned(), text)), told("eqdisc_opts", "mpu"), told("iqdisc_opts", "mpu")];
    for (values, range, what) in [(overheads, OVERHEADS, "overhead"), (mpus, MPUS, "mpu")] {
        for (option, text) in values.into_iter().flatten() {
            if !text.trim().parse().is_ok_and(|number: i64| range.contains(&number)) {
                let text = format!(
                    "tc takes no {what} of {text} ({} to {} are possible), and SQM then sets no shaper at all",
                    range.start(),
                    range.end()
                );
                let fix = if what == "mpu" { "Set 84, or 64 on cable" } else { "Set 44, which is safe on most lines" };
                findings.add(Code::OverheadRange, queue.at(&option), text, fix);
            }
        }
    }
}

fn word_after<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    text.split_whitespace().skip_while(|found| *found != word).nth(1)
}

fn layer(queue: &Queue, link: Option<&Link>, findings: &mut Findings) {
    let place = queue.at("linklayer");
    let written = queue.section.get("linklayer").unwrap_or("none");
    let known = link.filter(|link| link.confidence > Confidence::Unknown);
    // What is behind an Ethernet port may be an ADSL modem: only what the modem, the network or the user says counts.
    let frames = known.filter(|link| {
        matches!(link.kind, Kind::PppoeVdsl2 | Kind::BridgedVdsl2 | Kind::Docsis | Kind::Lte)
            || link.layer == Layer::Ethernet && link.confidence == Confidence::Sure
    });
    let atm = known.filter(|link| link.layer == Layer::Atm);
    let said = |link: &Link| link.evidence.iter().find(|line| decides(line)).cloned().unwrap_or_default();
    if let (Some(link), Cells::Atm) = (frames, queue.cells) {
        let text = format!(
            "packets are counted in ATM cells, and this line carries frames ({}): at least 9 % of the bandwidth is given away",
            said(link)
        );
        return findings.add(Code::AtmOnFrames, place, text, format!("uci set {}='ethernet'", queue.at("linklayer")));
    }
    let fix = || {
        format!("uci set {}='atm', with the overhead {}", queue.at("linklayer"), atm.map_or(44, |link| link.overhead))
    };
    let adsl = written.eq_ignore_ascii_case("adsl") || written.eq_ignore_ascii_case("atm");
    if queue.cells == Cells::Atm || !queue.is_cake() {
        return;
    }
    if let Some(link) = atm {
        let text = format!(
            "this line carries ATM cells ({}) and packets are counted as frames: a small packet takes up to twice what SQM \
             thinks, and the delay comes back",
            said(link)
        );
        findings.add(Code::FramesOnAtm, place, text, fix());
    } else if adsl && frames.is_none() {
        let text =
            format!("linklayer is '{written}', which SQM reads as frames: only the word atm counts in ATM cells");
        findings.add(Code::FramesOnAtm, place, text, fix());
    } else if !["none", "ethernet"].contains(&written) {
        let text = format!("linklayer is '{written}', a word that SQM does not know: it is read as ethernet");
        findings.add(Code::DeadOption, place, text, "Write ethernet, atm or none");
    }
}

/// Of the evidence, the line that speaks about cells or frames.
fn decides(line: &str) -> bool {
    ["PTM", "ATM", "is set in", "mobile network"].iter().any(|word| line.contains(word))
        && !line.starts_with("overhead")
}

fn dead(queue: &Queue, findings: &mut Findings) {
    if !queue.is_cake() {
        return;
    }
    for (option, defaults) in DEAD {
        let Some(value) = queue.section.get(option).filter(|value| !defaults.contains(value)) else { continue };
        let fix = if option.ends_with("target") {
            "Delete it; CAKE's target follows from rtt (rtt 160ms in iqdisc_opts and eqdisc_opts makes it 8 ms)"
        } else {
            "Delete it"
        };
        let text = format!("{option} '{value}' does nothing: CAKE does not read it");
        findings.add(Code::DeadOption, queue.at(option), text, fix);
    }
}

/// Options of other programs are theirs; only what looks like a slip is told.
fn misspelt(queue: &Queue, findings: &mut Findings) {
    for (option, _) in queue.section.options() {
        if KNOWN.contains(&option) || DEAD.iter().any(|(dead, _)| *dead == option) {
            continue;
        }
        let mistaken = MISTAKEN.iter().find(|(wrong, _)| *wrong == option).map(|(_, meant)| *meant);
        if let Some(meant) = mistaken.or_else(|| KNOWN.into_iter().find(|known| is_slip(option, known))) {
            let text = format!("no program reads the option {option}; {meant} is probably meant");
            findings.add(Code::DeadOption, queue.at(option), text, format!("Write {meant} instead"));
        }
    }
}

/// Another case, an underscore more or less, or one letter too many, too few, wrong or swapped.
fn is_slip(written: &str, known: &str) -> bool {
    let plain = |text: &str| text.to_ascii_lowercase().replace('_', "");
    let (written, known) = (plain(written), plain(known));
    let (a, b) = (written.as_bytes(), known.as_bytes());
    if a.len() < 4 || b.len() < 4 || a.len().abs_diff(b.len()) > 1 {
        return false;
    }
    let same = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let (a, b) = (&a[same..], &b[same..]);
    let swapped = a.len() > 1 && a.len() == b.len() && a[0] == b[1] && a[1] == b[0] && a[2..] == b[2..];
    let rest = |of: usize, all: &[u8]| all.get(of..).unwrap_or(&[]).to_vec();
    swapped || [(0, 0), (0, 1), (1, 0), (1, 1)].iter().any(|(x, y)| rest(*x, a) == rest(*y, b))
}

fn opts(queue: &Queue, findings: &mut Findings) {
    for option in ["iqdisc_opts", "eqdisc_opts"] {
        let Some(text) = queue.section.get(option) else { continue };
        let place = queue.at(option);
        let presets: Vec<&str> = text.split_whitespace().filter(|word| PRESETS.contains(word)).collect();
        if let Some(bad) = text.chars().find(|c| SHELL.contains(*c)) {
            let text = format!(
                "the options contain {bad:?}, which the shell that SQM runs in acts upon: tc gets something else, or another \
                 command is run as root"
            );
            findings.add(Code::BadOpts, place, text, "Use only words, numbers, dots and hyphens that tc-cake knows");
        } else if presets.len() > 1 {
            let text =
                format!("tc takes one of {}, and with more of them SQM sets no shaper at all", presets.join(" and "));
            findings.add(Code::BadOpts, place, text, "Keep one of them");
        }
    }
}

fn hidden(queue: &Queue, findings: &mut Findings) {
    // What CAKE ignores is no loss.
    let others =
        DEAD.into_iter().filter(|(option, _)| !queue.is_cake() && *option != "target").map(|(option, defaults)| {
            let flags: &[&str] = match option {
                "tcMTU" | "tcTSIZE" => &["linklayer_advanced"],
                "ingress_ecn" | "egress_ecn" => &["qdisc_advanced"],
                _ => &["qdisc_advanced", "qdisc_really_really_advanced"],
            };
            (option, defaults, flags)
        });
    let is_on = |flag: &str| queue.section.get(flag) == Some("1");
    for (option, defaults, flags) in HIDDEN.into_iter().chain(others) {
        let set = queue.section.get(option).is_some_and(|value| !defaults.contains(&value));
        let off: Vec<&str> = flags.iter().filter(|flag| !is_on(flag)).copied().collect();
        if set && !off.is_empty() {
            let text = format!(
                "{option} acts now, and LuCI deletes it the next time somebody presses Save on the SQM page, because {} is off",
                off.join(" and ")
            );
            let fix: Vec<String> = off.iter().map(|flag| format!("uci set {}='1'", queue.at(flag))).collect();
            findings.add(Code::FlagsHideOptions, queue.at(option), text, fix.join("; "));
        }
    }
}

/// `scripts`: what there is in `/usr/lib/sqm`.
pub fn examine_script(queue: &Queue, scripts: Option<&[String]>, findings: &mut Findings) {
    let section: &Section = queue.section;
    let (Some(script), place) = (queue.script(), queue.at("script")) else { return };
    if scripts.is_some_and(|scripts| !scripts.iter().any(|name| name == script)) {
        let text = format!("there is no {script} in /usr/lib/sqm, so that SQM cannot start this queue");
        return findings.add(
            Code::UnknownScript,
            place,
            text,
            format!("uci set {}='piece_of_cake.qos'", queue.at("script")),
        );
    }
    let qdisc = section.get("qdisc").filter(|qdisc| !crate::openwrt::state::is_cake(qdisc));
    if let Some(qdisc) = qdisc.filter(|_| queue.has_cake_script()) {
        let text = format!(
            "{script} sets CAKE whatever is written: qdisc '{qdisc}' has no effect, and LuCI shows it as if it had"
        );
        findings.add(
            Code::ScriptQdiscMismatch,
            queue.at("qdisc"),
            text,
            format!("uci set {}='cake'", queue.at("qdisc")),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_one_letter_and_a_name_of_another_program_is_none() {
        for (written, known) in [
            ("tcmpu", "tcMPU"),
            ("downlaod", "download"),
            ("uplod", "upload"),
            ("overheads", "overhead"),
            ("iqdiscopts", "iqdisc_opts"),
        ] {
            assert!(is_slip(written, known), "{written}");
        }
        for written in ["autorate", "delay_thr_ms", "max_download", "mpu", "reflector_ping_interval_s"] {
            assert!(!KNOWN.iter().any(|known| is_slip(written, known)), "{written}");
        }
    }
}
