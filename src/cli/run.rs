//! `calibrate` and `measure`: open the line, ask, run, show.

use super::apply::{self, How};
use super::args::{RunArgs, UsageError, Wanted};
use super::clock::Utc;
use super::exit::Exit;
use super::job::{Job, What};
use super::style::Style;
use super::watch::Watched;
use super::words::{clean, megabytes};
use super::{complain, held, json, line, print, progress, question, result, signals, uci_text};
use crate::calibration::forecast::Forecast;
use crate::calibration::outcome::{Outcome, Status};
use crate::calibration::{self, Plan, Run};
use crate::line::{Facts, Line, LineError, LinkType};
use crate::openwrt::settings::General;
use crate::openwrt::{Root, history};
use crate::units::Direction;

pub fn calibrate(args: &RunArgs) -> Result<Exit, UsageError> {
    let root = held::root(args.root.as_deref())?;
    match (line::is_real(&args.line), &args.root) {
        (true, Some(_)) => return Err(UsageError("--root is for simulated lines: leave it out".into())),
        (false, None) if args.apply => {
            let why = "--apply is not for a simulated line and this router: name another tree with --root DIR";
            return Err(UsageError(why.into()));
        }
        _ => {}
    }
    // Better now than after a minute of load.
    if args.apply
        && let Err(refusal) = apply::preflight(&root)
    {
        return Ok(apply::ended(Err(refusal), args.json));
    }
    let general = if line::is_real(&args.line) { held::general(&root)? } else { General::default() };
    let args = &RunArgs { max_added_ms: args.max_added_ms.or(general.max_added_ms), ..args.clone() };
    let mut held = line::open_to_calibrate(&args.line, args.apply, signals::flag())?;
    if line::is_real(&args.line) && !args.yes && !agreed(held.line(), args) {
        complain("nothing was done");
        return Ok(Exit::Stopped);
    }
    let mut job = match keeps(args).then(|| Job::begin(&root, What::Calibrate)).transpose() {
        Err(refusal) if refusal.exit == Exit::Refused => return Ok(apply::ended(Err(refusal), args.json)),
        // Who cannot be watched is told by the line what else is missing.
        job => job.unwrap_or(None),
    };
    signals::catch();
    let mut view = progress::on_stderr();
    let plan = plan(args, &root);
    let mut watched = Watched::new(&mut view, job.as_mut(), &plan);
    let mut run = calibration::calibrate(held.line(), &plan, &mut watched);
    run.outcome.uci = uci_text::section(&run.outcome, interface(&run.outcome, view.link));
    drop((view, held));
    let view = if args.apply { result::evidence } else { result::calibration };
    let exit = finish(&run, args, view);
    remember(&root, &run.outcome, args, general.keep_last);
    let mut reason = run.outcome.reason.clone();
    let exit = if args.apply && exit == Exit::Done && run.outcome.outcome == Status::Tuned {
        // With --json, stdout has the outcome already.
        let how = How { dry_run: false, ask: false, json: args.json };
        let applied = apply::write_outcome(&root, &run.outcome, &args.line, how);
        reason = applied.as_ref().err().map(|refusal| refusal.why.clone());
        apply::ended(applied, false)
    } else {
        exit
    };
    if let Some(mut job) = job {
        job.seen().close();
        job.end(exit, reason.as_deref(), Some(&run.outcome.id));
    }
    Ok(exit)
}

/// A mere machine that tries a simulated line keeps nothing.
fn keeps(args: &RunArgs) -> bool {
    args.root.is_some() || line::is_real(&args.line) || line::on_openwrt()
}

/// For `apply`, `history` and the page.
fn remember(root: &Root, outcome: &Outcome, args: &RunArgs, on_flash: bool) {
    if !keeps(args) {
        return;
    }
    if let Err(error) = history::keep(root, outcome, on_flash) {
        complain(&clean(&error.to_string()));
    }
}

pub fn measure(args: &RunArgs) -> Result<Exit, UsageError> {
    let mut held = line::open(&args.line, signals::flag())?;
    signals::catch();
    let run = calibration::measure(held.line(), &plan(args, &Root::live()), &mut progress::on_stderr());
    Ok(finish(&run, args, result::grading))
}

fn plan(args: &RunArgs, root: &Root) -> Plan {
    let now = Utc::now();
    Plan {
        id: now.id(history::next_number(root, &now.minute())),
        started: now.rfc3339(),
        sync_up: args.sync_up,
        sync_down: args.sync_down,
        max_added_ms: args.max_added_ms,
        max_bytes: args.max_bytes,
        direction: match args.direction {
            Some(Wanted::Upload) => Some(Direction::Upload),
            Some(Wanted::Download) => Some(Direction::Download),
            Some(Wanted::Both) | None => None,
        },
        target_time: args.steps.as_ref().map_or(Plan::default().target_time, |_| Plan::TARGET_ASKED),
        steps: args.steps.clone().unwrap_or_else(|| Plan::default().steps),
    }
}

fn finish(run: &Run, args: &RunArgs, view: fn(&Outcome, Style) -> String) -> Exit {
    if args.json {
        print(&json::lines(&run.outcome));
    } else {
        print(&view(&run.outcome, Style::of(&std::io::stdout())));
    }
    match &run.error {
        Some(LineError::Stopped) => complain("stopped; the line is as it was"),
        // The view has said it already.
        Some(error) if args.json => complain(&clean(&error.to_string())),
        None if args.json && run.outcome.outcome == Status::Inconclusive => {
            complain(&clean(run.outcome.reason.as_deref().unwrap_or("the measurements cannot be relied on")));
        }
        Some(_) | None => {}
    }
    Exit::of(run)
}

/// Where the queue belongs. A simulated line has no device; the name shown is what such a line usually has.
fn interface(outcome: &Outcome, link: Option<LinkType>) -> &str {
    match link {
        _ if !outcome.line.starts_with("sim:") => &outcome.line,
        Some(LinkType::PppoeVdsl2 | LinkType::PppoeAtm | LinkType::Pppoa | LinkType::Pppoe) => "pppoe-wan",
        _ => "wan",
    }
}

/// What is wrong with the line is for the calibration to say.
fn agreed(line: &mut dyn Line, args: &RunArgs) -> bool {
    question::agreed(|| line.facts().ok().map(|facts| question(&facts, args)))
}

fn question(facts: &Facts, args: &RunArgs) -> String {
    let plan = plan(args, &Root::live());
    let forecast = Forecast::of(&plan, facts);
    let capped = args.max_bytes.filter(|most| forecast.is_none_or(|forecast| forecast.bytes() > *most));
    let amount = match (capped, forecast) {
        (Some(most), _) => format!("at most {}", megabytes(most)),
        (None, Some(forecast)) => {
            let ways = [(forecast.upload_bytes, "up"), (forecast.download_bytes, "down")];
            let some = ways.iter().filter(|way| way.0 > 0).map(|way| format!("{} {}", megabytes(way.0), way.1));
            format!("about {}", some.collect::<Vec<_>>().join(" and "))
        }
        (None, None) => "as much as the line carries in a minute, less if it is fast".into(),
    };
    let minutes = forecast.map_or(1, |forecast| (forecast.load.as_secs() / 60).max(1));
    let how_long = if minutes == 1 { "a minute or two".into() } else { format!("about {minutes} minutes") };
    format!(
        "This moves {amount} ({} over {}). The connection is slow for everybody for {how_long}. Go on?",
        clean(&facts.server),
        clean(&facts.name),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::sample;
    use crate::units::Rate;

    fn facts(sync: Option<(u64, u64)>) -> Facts {
        Facts {
            name: "pppoe-wan".into(),
            link: LinkType::PppoeVdsl2,
            sync_up: sync.map(|sync| Rate::from_kbit(sync.0)),
            sync_down: sync.map(|sync| Rate::from_kbit(sync.1)),
            mtu: 1492,
            reflectors: Vec::new(),
            witness: None,
            server: "speed.example.net".into(),
            caveats: Vec::new(),
        }
    }

    #[test]
    fn the_question_names_the_server_and_the_megabytes() {
        let known = facts(Some((18_000, 67_000)));
        let asked = question(&known, &RunArgs::default());
        assert!(
            asked.contains(" MB up and ") && asked.contains(" MB down (speed.example.net over pppoe-wan)"),
            "{asked}"
        );
        let capped = |bytes| question(&known, &RunArgs { max_bytes: Some(bytes), ..RunArgs::default() });
        assert!(capped(50_000_000).contains("at most 50 MB"));
        assert!(capped(5_000_000_000).contains("about "), "the cap is no estimate");
        assert!(question(&facts(None), &RunArgs::default()).contains("as much as the line carries"));
    }

    #[test]
    fn a_queue_belongs_to_the_device_or_to_what_such_a_line_has() {
        let mut outcome = sample::tuned();
        assert_eq!(interface(&outcome, Some(LinkType::PppoeVdsl2)), "pppoe-wan");
        assert_eq!(interface(&outcome, Some(LinkType::Docsis)), "wan");
        outcome.line = "eth4.7".into();
        assert_eq!(interface(&outcome, Some(LinkType::PppoeVdsl2)), "eth4.7");
    }
}
