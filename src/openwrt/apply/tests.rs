use super::*;
use crate::openwrt::sqm::Change;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

const OLD: &[u8] = b"# mine\nconfig queue 'wan'\n\toption interface 'eth1'\n\toption upload '15000'\n";
const NEW: &[u8] = b"\nconfig queue 'wan'\n\toption interface 'eth1'\n\toption upload '17236'\n\n";

/// A router with SQM's programs as they behave: `start` takes what the file says then, `stop` takes it away.
struct Router {
    dir: PathBuf,
}

/// Everything that must be all old or all new.
#[derive(Clone, Debug, PartialEq, Eq)]
struct State {
    file: Option<Vec<u8>>,
    enabled: bool,
    running: Option<Vec<u8>>,
}

impl Router {
    fn new(dir: &Path) -> Self {
        let _ = fs::remove_dir_all(dir);
        for below in ["etc/config", "etc/init.d", "usr/lib/sqm", "var/run/sqm"] {
            fs::create_dir_all(dir.join(below)).unwrap();
        }
        let router = Self { dir: dir.into() };
        router.program(
            "etc/init.d/sqm",
            "case $1 in enabled) test -e link;; enable) : >link;; disable) rm -f link;; esac",
        );
        router.program(
            "usr/lib/sqm/run.sh",
            "case $1 in start) cp etc/config/sqm live && : >var/run/sqm/$2.state;; stop) rm -f live var/run/sqm/$2.state;; esac",
        );
        fs::write(dir.join("etc/config/sqm"), OLD).unwrap();
        router
    }

    fn program(&self, path: &str, script: &str) {
        let path = self.dir.join(path);
        fs::write(&path, format!("#!/bin/sh\ncd {} || exit 9\n{script}\n", self.dir.display())).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn root(&self) -> Root {
        Root::at(&self.dir).unwrap()
    }

    fn state(&self) -> State {
        let bytes = |path: &str| fs::read(self.dir.join(path)).ok();
        State { file: bytes("etc/config/sqm"), enabled: self.dir.join("link").exists(), running: bytes("live") }
    }

    fn notes(&self) -> Vec<String> {
        let entries = fs::read_dir(self.dir.join("etc/sqm-autotune")).into_iter().flatten();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn list() -> ChangeList {
    let change = Change { option: "upload".into(), old: Some("15000".into()), new: Some("17236".into()) };
    ChangeList {
        format: 1,
        device: "eth1".into(),
        section: "wan".into(),
        new: false,
        changes: vec![change],
        notes: Vec::new(),
    }
}

fn write() -> Write {
    let basis = Basis {
        interface: None,
        device: "eth1".into(),
        link: crate::openwrt::link::Kind::Docsis,
        sync_upload_kbit: None,
        sync_download_kbit: None,
        measured_s: 0,
        bytes: 0,
    };
    Write { id: "id".into(), at: "2026-11-30T09:12:05Z".into(), basis }
}

fn begun<'a>(root: &'a Root, service: &'a Service) -> Apply<'a> {
    let edit = Edit { before: Some(OLD.into()), after: NEW.into() };
    Apply::begin(root, Some(service), &list(), edit, &write()).unwrap()
}

/// What a child process does before it is killed in the middle of it.
fn course(name: &str, root: &Root) {
    let service = Service::within(root).unwrap();
    match name {
        "keep" => {
            let apply = begun(root, &service);
            apply.carry_out().unwrap();
            apply.keep().unwrap();
        }
        "undo" => {
            let apply = begun(root, &service);
            apply.carry_out().unwrap();
            apply.undo().unwrap();
        }
        "revert" => drop(revert(root, Some(&service)).unwrap()),
        _ => panic!("{name}"),
    }
}

/// Not a test: what [`killed_anywhere`] starts and kills.
#[test]
fn child() {
    if let (Ok(name), Ok(dir)) = (std::env::var("APPLY_COURSE"), std::env::var("APPLY_DIR")) {
        course(&name, &Root::at(Path::new(&dir)).unwrap());
    }
}

/// Whether it was killed before its end.
fn killed(name: &str, dir: &Path, at: u32) -> bool {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "openwrt::apply::tests::child"]).stdout(Stdio::null()).stderr(Stdio::null());
    child.env("APPLY_COURSE", name).env("APPLY_DIR", dir).env("SQM_AUTOTUNE_KILL_AT", at.to_string());
    let status = child.status().unwrap();
    assert!(
        status.success() || std::os::unix::process::ExitStatusExt::signal(&status) == Some(libc::SIGKILL),
        "{status}"
    );
    !status.success()
}

fn scratch(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("sqm-autotune-apply-{name}-{}", std::process::id()))
}

/// Kills a course at every point, one after the other; `prepare` makes the router for it. Returns how many points there were.
fn killed_anywhere(course: &str, running: bool, enabled: bool) -> u32 {
    let dir = scratch(&format!("{course}-{running}-{enabled}"));
    let prepare = || {
        let router = Router::new(&dir);
        let (root, old) = (router.root(), running.then(|| OLD.to_vec()));
        let service = Service::within(&root).unwrap();
        if enabled {
            service.enable(true).unwrap();
        }
        if running {
            service.start("eth1").unwrap();
        }
        let before = State { file: Some(OLD.into()), enabled, running: old };
        assert_eq!(router.state(), before);
        if course == "revert" {
            let apply = begun(&root, &service);
            apply.carry_out().unwrap();
            apply.keep().unwrap();
        }
        (router, before)
    };
    let after = State { file: Some(NEW.into()), enabled: true, running: Some(NEW.into()) };
    let mut seen = Vec::new();
    for at in 1.. {
        let (router, before) = prepare();
        let died = killed(course, &dir, at);
        let root = router.root();
        let service = Service::within(&root).unwrap();
        restore(&root, Some(&service)).unwrap();
        let state = router.state();
        assert!(state == before || state == after, "{course} killed at {at}: {state:?}");
        let kept = if state == after { vec!["written.eth1.json".to_owned()] } else { Vec::new() };
        assert_eq!(router.notes(), kept, "{course} killed at {at}");
        assert_eq!(restore(&root, Some(&service)).unwrap(), Vec::<String>::new());
        assert_eq!(fs::read_dir(dir.join("etc/config")).unwrap().count(), 1, "{course} killed at {at}: half a file");
        seen.push(state == after);
        if !died {
            assert_eq!(seen.last(), Some(&(course == "keep")), "{course} at its end");
            fs::remove_dir_all(&dir).unwrap();
            return at - 1;
        }
    }
    unreachable!()
}

#[test]
fn killed_at_any_point_there_is_the_old_state_or_the_new_one() {
    let points = ["keep", "undo", "revert"].map(|course| killed_anywhere(course, true, true));
    assert_eq!(points, [17, 20, 13], "files written, renamed, removed; SQM stopped and started");
}

#[test]
fn killed_at_any_point_where_sqm_was_off_before() {
    let points = ["keep", "undo", "revert"].map(|course| killed_anywhere(course, false, false));
    assert_eq!(points, [17, 20, 13]);
}

#[test]
fn what_is_dropped_is_undone_and_what_somebody_else_wrote_stays() {
    let router = Router::new(&scratch("drop"));
    let root = router.root();
    let service = Service::within(&root).unwrap();
    let before = router.state();
    let apply = begun(&root, &service);
    apply.carry_out().unwrap();
    assert_ne!(router.state(), before);
    drop(apply);
    assert_eq!(router.state(), before);
    assert_eq!(router.notes(), Vec::<String>::new());

    let apply = begun(&root, &service);
    apply.carry_out().unwrap();
    fs::write(router.dir.join("etc/config/sqm"), "theirs").unwrap();
    assert!(apply.undo().unwrap()[0].contains("somebody else"));
    assert_eq!(router.state().file.unwrap(), b"theirs");
    fs::remove_dir_all(&router.dir).unwrap();
}

#[test]
fn revert_refuses_what_is_no_longer_ours() {
    let router = Router::new(&scratch("revert-theirs"));
    let root = router.root();
    let service = Service::within(&root).unwrap();
    assert!(matches!(revert(&root, Some(&service)), Err(ApplyError::NothingWritten)));
    let apply = begun(&root, &service);
    apply.carry_out().unwrap();
    apply.keep().unwrap();
    fs::write(router.dir.join("etc/config/sqm"), "theirs").unwrap();
    assert!(matches!(revert(&root, Some(&service)), Err(ApplyError::Write(WriteError::Changed))));
    let kept = all(&root).unwrap();
    assert_eq!(kept.len(), 1);
    let queue = |text: &str| Config::parse(text.as_bytes()).unwrap().sections.into_iter().next();
    let ours = "config queue\n\toption upload '17236'\n\toption overhead '44'\n";
    assert_eq!(kept[0].edited(queue(ours).as_ref()), None, "other options are the owner's business");
    let theirs = kept[0].edited(queue("config queue\n\toption upload '12000'\n\toption enabled '0'\n").as_ref());
    assert_eq!(theirs.as_deref(), Some("enabled 0, upload 12000"));
    assert!(kept[0].edited(None).is_some());
    fs::remove_dir_all(&router.dir).unwrap();
}

#[test]
fn a_file_that_was_not_there_goes_and_bytes_that_are_no_text_come_back() {
    for before in [None, Some(vec![b'#', 0xff, 0xfe, b'\n'])] {
        let router = Router::new(&scratch("bytes"));
        let (root, file) = (router.root(), router.dir.join("etc/config/sqm"));
        match &before {
            Some(bytes) => fs::write(&file, bytes).unwrap(),
            None => fs::remove_file(&file).unwrap(),
        }
        let edit = Edit { before: before.clone(), after: NEW.into() };
        let apply = Apply::begin(&root, None, &list(), edit, &write()).unwrap();
        apply.carry_out().unwrap();
        assert_eq!(fs::read(&file).unwrap(), NEW);
        std::mem::forget(apply);
        restore(&root, None).unwrap();
        assert_eq!(fs::read(&file).ok(), before);
        fs::remove_dir_all(&router.dir).unwrap();
    }
}

#[test]
fn a_note_that_makes_no_sense_is_kept_and_told() {
    let router = Router::new(&scratch("note"));
    let root = router.root();
    fs::create_dir_all(router.dir.join("etc/sqm-autotune")).unwrap();
    for text in ["{", "{}", r#"{"version":1}"#] {
        fs::write(router.dir.join("etc/sqm-autotune/begun.json"), text).unwrap();
        assert!(matches!(restore(&root, None), Err(ApplyError::Unreadable { .. })), "{text}");
        assert_eq!(router.notes(), ["begun.json"]);
    }
    fs::remove_dir_all(&router.dir).unwrap();
}
