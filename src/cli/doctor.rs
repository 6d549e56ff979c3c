//! `doctor`: what is wrong with the SQM configuration and with what really runs.

use super::args::{FactArgs, UsageError};
use super::exit::Exit;
use super::link::{answer, root};
use super::state;
use super::words::labelled;
use crate::line::LineError;
use crate::openwrt::doctor::{self, Diagnosis, Facts, Machine, Severity};
use crate::openwrt::state::RouterState;
use crate::openwrt::{Root, history};

pub fn doctor(args: &FactArgs) -> Result<Exit, UsageError> {
    let root = root(args)?;
    let diagnosis = diagnose(&root);
    answer(&diagnosis, args.json, || told(&diagnosis));
    Ok(Exit::Done)
}

pub fn diagnose(root: &Root) -> Diagnosis {
    let live = if root.is_live() { state::live() } else { RouterState::read(root) };
    Diagnosis::of(&facts(root, live))
}

/// Refuses a calibration that could not be true, or not be written.
pub fn unhindered(root: &Root, device: Option<&str>, is_to_be_written: bool) -> Result<(), LineError> {
    // What the kernel does now does not matter: the calibration changes it.
    let facts = facts(root, RouterState::default());
    let device = device.map(str::to_owned).or_else(|| facts.inventory.link(None).ok()?.device);
    match doctor::hindrance(&facts, device.as_deref(), is_to_be_written) {
        Some(finding) => Err(LineError::refused(finding.text, finding.fix)),
        None => Ok(()),
    }
}

fn facts(root: &Root, live: RouterState) -> Facts {
    let machine = if root.is_live() { state::machine() } else { Machine::default() };
    Facts::read(root, live, machine, history::all(root))
}

fn told(diagnosis: &Diagnosis) -> String {
    if diagnosis.findings.is_empty() {
        return "Nothing is wrong with SQM, as far as can be seen.\n".into();
    }
    let paragraphs = diagnosis.findings.iter().map(|finding| {
        let severity = match finding.severity {
            Severity::Error => "Error",
            Severity::Warning => "Warning",
            Severity::Info => "Note",
        };
        let code = serde_json::to_value(finding.code).ok();
        let code = code.as_ref().and_then(|code| code.as_str()).unwrap_or_default();
        labelled(severity, 9, &format!("{} ({code})", finding.place), 80)
            + &labelled("", 9, &finding.text, 80)
            + &labelled("  Fix", 9, &finding.fix, 80)
    });
    paragraphs.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::openwrt::doctor::{Code, Finding};

    #[test]
    fn a_finding_says_where_and_what_and_the_fix() {
        let finding = Finding {
            code: Code::MissingRate,
            severity: Severity::Error,
            place: "sqm.eth1.upload".into(),
            text: "no upload rate".into(),
            fix: "Set it".into(),
        };
        let mut diagnosis = Diagnosis { format: 1, findings: vec![finding] };
        assert_eq!(
            told(&diagnosis),
            "Error    sqm.eth1.upload (missing-rate)\n         no upload rate\n  Fix    Set it\n"
        );
        diagnosis.findings.clear();
        assert!(told(&diagnosis).starts_with("Nothing is wrong"));
    }
}
