use super::*;
use crate::openwrt::settings::Window;

/// Monday 30 November 2026, midnight UTC; the router is there.
const MIDNIGHT: u64 = 1_795_996_800;
const MINUTE: u64 = 60;
const HOUR: u64 = 3600;

fn auto() -> General {
    General { enabled: true, apply: ApplyMode::Auto, ..General::default() }
}

fn seen(now_s: u64, upload: u64) -> Seen {
    Seen {
        now_s,
        minute: (now_s % DAY_S / 60) as u16,
        device: Some("pppoe-wan".into()),
        link: Kind::PppoeVdsl2,
        modem: State::Showtime,
        sync_upload_kbit: Some(upload),
        sync_download_kbit: Some(67_000),
        metered: false,
        basis: Some(Basis {
            interface: Some("wan".into()),
            device: "pppoe-wan".into(),
            link: Kind::PppoeVdsl2,
            sync_upload_kbit: Some(18_000),
            sync_download_kbit: Some(67_000),
            measured_s: MIDNIGHT - 30 * DAY_S,
            bytes: 85_000_000,
        }),
        edited: None,
        set_upload_kbit: Some(17_260),
    }
}

/// A line that changes over a day, and an agent that is called at every event.
struct Day {
    memory: Memory,
    basis: Basis,
    /// When it re-tuned, in minutes since midnight.
    runs: Vec<u64>,
    warnings: u32,
    whys: Vec<String>,
}

impl Day {
    fn new() -> Self {
        let basis = seen(MIDNIGHT, 18_000).basis.unwrap();
        Self { memory: Memory::default(), basis, runs: Vec::new(), warnings: 0, whys: Vec::new() }
    }

    fn event(&mut self, settings: &General, minute: u64, upload: Option<u64>) {
        let now = MIDNIGHT + minute * MINUTE;
        let mut seen = Seen { basis: Some(self.basis.clone()), ..seen(now, 0) };
        seen.sync_upload_kbit = upload;
        if upload.is_none() {
            (seen.modem, seen.sync_download_kbit) = (State::Training, None);
        }
        let decision = decide(settings, &seen, &mut self.memory, &mut || 0.01);
        self.warnings += u32::from(decision.warning.is_some());
        if self.whys.last() != Some(&decision.why) {
            self.whys.push(decision.why);
        }
        if decision.due {
            self.runs.push(minute);
            self.memory.run_begins(now);
            self.memory.run_has_moved(85_000_000, now);
            self.basis.sync_upload_kbit = upload;
            self.basis.measured_s = now;
        }
    }
}

#[test]
fn a_day_of_spurious_events_and_one_change_is_one_run_inside_the_window() {
    // The change comes at 10:00, the window is 03:00-06:00: it has to wait for the next night.
    let line = |minute: u64| match minute {
        // Three minutes of training in the morning, then at a poor rate, then as before.
        420..423 => None,
        423..426 => Some(9000),
        // 1 % of difference after an ordinary retrain.
        500..600 => Some(17_830),
        600.. => Some(15_000),
        _ => Some(18_000),
    };
    let mut day = Day::new();
    let mut spurious = 0;
    for minute in 0..(29 * 60) {
        let cron = minute % 15 == 0;
        let hotplug = minute % 14 == 3;
        spurious += u32::from(hotplug && minute < 24 * 60);
        if cron || hotplug || (419..430).contains(&minute) {
            day.event(&auto(), minute, line(minute));
        }
    }
    assert_eq!(spurious, 103);
    for minute in 29 * 60..30 * 60 {
        day.event(&auto(), minute, line(minute));
    }
    assert_eq!(day.runs, [27 * 60], "{:#?}", day.whys);
    assert_eq!(day.warnings, 2, "the poor rate of the retrain and the new one, once each");
}

#[test]
fn a_retrain_of_three_minutes_is_no_change_even_where_everything_is_allowed() {
    let settings = General { window: None, ..auto() };
    for poor in [None, Some(9000)] {
        let mut day = Day::new();
        for minute in 0..120 {
            let upload = if (30..33).contains(&minute) { poor } else { Some(18_000) };
            day.event(&settings, minute, upload);
        }
        assert!(day.runs.is_empty(), "{:#?}", day.whys);
    }
    // Eleven minutes are a change: the debounce is what held the other back.
    let mut day = Day::new();
    (0..120).for_each(|minute| day.event(&settings, minute, Some(if minute >= 30 { 15_000 } else { 18_000 })));
    assert_eq!(day.runs, [40], "{:#?}", day.whys);
}

/// C31.
#[test]
fn a_hundred_identical_events_remember_nothing_new() {
    let mut memory = Memory::default();
    let mut decide = |n: u64| decide(&auto(), &seen(MIDNIGHT + 4 * HOUR + n, 18_000), &mut memory, &mut || 0.0);
    let first = decide(0);
    assert!(!first.due);
    for n in 1..100 {
        assert_eq!(decide(n), first);
    }
    assert_eq!(memory, Memory::default(), "nothing to write");
}

/// The change has lasted and everything is allowed.
fn settled(change: impl FnOnce(&mut General, &mut Seen, &mut Memory)) -> (bool, String) {
    let mut settings = auto();
    let mut memory = Memory::default();
    let mut later = seen(MIDNIGHT + 4 * HOUR, 15_000);
    change(&mut settings, &mut later, &mut memory);
    let earlier = Seen { now_s: later.now_s - 20 * MINUTE, ..later.clone() };
    decide(&settings, &earlier, &mut memory, &mut || 0.0);
    let decision = decide(&settings, &later, &mut memory, &mut || 0.05);
    (decision.due, decision.why)
}

type Against = fn(&mut General, &mut Seen, &mut Memory);

#[test]
fn each_thing_that_speaks_against_a_run_is_said() {
    assert_eq!(settled(|_, _, _| {}), (true, "upload sync went from 18000 to 15000 kbit/s".into()));
    let against: [(&str, Against); 13] = [
        ("switched off", |settings, _, _| settings.enabled = false),
        ("the clock", |_, seen, _| seen.now_s = 86_400),
        ("nothing has been written", |_, seen, _| seen.basis = None),
        ("the line is down", |_, seen, _| seen.device = None),
        ("no connection", |_, seen, _| seen.modem = State::Training),
        ("nothing has changed", |settings, _, _| settings.threshold = 0.17),
        ("the owner has set other rates since the last write (upload 12000)", |_, seen, _| {
            seen.edited = Some("upload 12000".into());
        }),
        ("run `sqm-autotune calibrate --apply`", |settings, _, _| settings.apply = ApplyMode::Ask),
        ("metered", |_, seen, _| seen.metered = true),
        ("the next one in 5 h", |_, seen, memory| memory.tried_s = Some(seen.now_s - HOUR)),
        ("waiting for the window 01:00-02:00", |settings, _, _| {
            settings.window = Some(Window { from: 60, to: 120 });
        }),
        ("of today's 100 MB only 20 MB are left", |settings, seen, memory| {
            settings.daily_bytes = 100_000_000;
            (memory.day, memory.bytes_today) = (seen.now_s / DAY_S, 80_000_000);
        }),
        ("others use 5 % of the line", |settings, _, _| settings.quiet_share = 0.04),
    ];
    for (needed, change) in against {
        let (due, why) = settled(change);
        assert!(!due && why.contains(needed), "{needed}: {why}");
    }
}

#[test]
fn a_driver_that_does_not_answer_has_not_changed_the_link() {
    let silent = |seen: &mut Seen| {
        (seen.modem, seen.link) = (State::Unknown, Kind::Ethernet);
        (seen.sync_upload_kbit, seen.sync_download_kbit) = (None, None);
    };
    let mut here = seen(MIDNIGHT, 0);
    silent(&mut here);
    let mut elsewhere = Seen { device: Some("eth1".into()), ..here.clone() };
    elsewhere.now_s += MINUTE;
    let why = |seen: &Seen| decide(&auto(), seen, &mut Memory::default(), &mut || 0.0).why;
    assert!(why(&here).contains("nothing has changed"), "{}", why(&here));
    assert!(why(&elsewhere).contains("is ethernet"), "{}", why(&elsewhere));
}

#[test]
fn other_changes_count_too() {
    let why = |change: fn(&mut General, &mut Seen, &mut Memory)| {
        let (due, why) = settled(change);
        assert!(due, "{why}");
        why
    };
    assert!(why(|_, seen, _| seen.sync_upload_kbit = Some(19_000)).contains("18000 to 19000"));
    assert!(why(|_, seen, _| seen.sync_download_kbit = Some(60_000)).contains("download sync"));
    assert!(why(|_, seen, _| seen.link = Kind::PppoeAtm).contains("the link was pppoe-vdsl2 and is pppoe-atm"));
    assert!(why(|_, seen, _| seen.device = Some("eth1".into())).contains("was on pppoe-wan and is on eth1"));
    let old = why(|settings, seen, _| {
        settings.max_age = Some(std::time::Duration::from_secs(30 * DAY_S));
        seen.sync_upload_kbit = Some(18_000);
    });
    assert_eq!(old, "the last calibration is 30 days old");
    let yesterday = why(|_, seen, memory| (memory.day, memory.bytes_today) = (seen.now_s / DAY_S - 1, u64::MAX));
    assert!(yesterday.contains("15000"), "the budget is a day's");
}

#[test]
fn a_rate_above_what_the_modem_sends_is_told_once() {
    let mut memory = Memory::default();
    let mut warned = |n: u64, upload: u64| {
        let settings = General { apply: ApplyMode::Ask, ..auto() };
        decide(&settings, &seen(MIDNIGHT + n, upload), &mut memory, &mut || 0.0).warning
    };
    assert_eq!(warned(0, 18_000), None);
    assert!(warned(1, 15_000).unwrap().contains("15000 kbit/s and SQM is set to 17260"));
    assert_eq!((warned(2, 15_000), warned(3, 15_010)), (None, None));
    assert!(warned(4, 14_000).is_some());
    assert_eq!(warned(5, 18_000), None);
    assert!(warned(6, 14_000).is_some(), "again, after it was well");
}

/// C30.
#[test]
fn a_queue_that_does_not_run_is_started_once_and_then_told() {
    let mut health = Health::default();
    let mut look = |running, now_s| health.look(running, now_s);
    assert_eq!((look(true, 0), look(false, 10), look(false, 69)), (Cure::Nothing, Cure::Nothing, Cure::Nothing));
    assert_eq!((look(false, 70), look(false, 71)), (Cure::Restart, Cure::Nothing));
    assert_eq!((look(false, 130), look(false, 9999)), (Cure::Tell, Cure::Nothing));
    assert_eq!(
        (look(true, 10_000), look(false, 10_001), look(false, 10_061)),
        (Cure::Nothing, Cure::Nothing, Cure::Restart)
    );
}
