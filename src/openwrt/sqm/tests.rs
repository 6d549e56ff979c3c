use super::*;
use crate::calibration::outcome::*;

/// The settings of the line this project comes from; everything that is not written is left out.
fn tuned() -> Outcome {
    let shaped = |kbit| Shaped { kbit, ..Shaped::default() };
    Outcome {
        format: FORMAT,
        agent: String::new(),
        id: "20261130-0912-1".into(),
        line: "pppoe-wan".into(),
        started: String::new(),
        outcome: Status::Tuned,
        reason: None,
        upload: shaped(Some(17_236)),
        download: shaped(None),
        link: Link {
            layer: Layer::Ethernet,
            overhead: Some(34),
            overhead_low: Some(33),
            overhead_high: Some(35),
            mpu: 0,
            source: LinkSource::Measured,
            write_layer: Layer::Ethernet,
            write_overhead: 38,
            write_mpu: 84,
        },
        target: Target {
            target_ms: None,
            rtt_ms: None,
            decided_by: TargetSource::Skipped,
            why: String::new(),
            trials: Vec::new(),
        },
        ack_filter: None,
        latency: Latency::default(),
        cost: Cost::default(),
        doubts: Vec::new(),
        trials: Vec::new(),
        uci: None,
    }
}

fn with_target(ms: f64) -> Outcome {
    let mut outcome = tuned();
    outcome.target = Target { target_ms: Some(ms), decided_by: TargetSource::Measured, ..outcome.target };
    outcome
}

fn config(text: &str) -> Config {
    Config::parse(text.as_bytes()).unwrap()
}

fn place() -> Place {
    let mut place = Place::of_device("pppoe-wan");
    place.aliases = ["wan", "@wan", "dsl0.101"].map(String::from).to_vec();
    place
}

fn list(text: &str, outcome: &Outcome) -> ChangeList {
    ChangeList::of(Some(&config(text)), &place(), outcome).unwrap()
}

fn said(list: &ChangeList) -> Vec<String> {
    let shown = |value: &Option<String>| value.clone().unwrap_or("-".into());
    list.changes.iter().map(|c| format!("{} {} {}", c.option, shown(&c.old), shown(&c.new))).collect()
}

const OURS: &str = "config queue\n\toption enabled '1'\n\toption interface 'pppoe-wan'\n\toption upload '17236'\n\
    \toption download '0'\n\toption qdisc 'cake'\n\toption script 'piece_of_cake.qos'\n\toption linklayer 'ethernet'\n\
    \toption overhead '38'\n\toption linklayer_advanced '1'\n\toption tcMPU '84'\n\
    \toption linklayer_adaptation_mechanism 'default'\n";

#[test]
fn a_router_without_a_queue_gets_one_with_a_name_and_every_option() {
    for (text, name) in [("", "pppoe_wan"), ("config queue pppoe_wan\n\toption interface 'eth1'\n", "pppoe_wan_2")] {
        let list = list(text, &tuned());
        assert!(list.new && list.section == name && list.device == "pppoe-wan", "{list}");
        assert_eq!(
            said(&list),
            [
                "enabled - 1",
                "interface - pppoe-wan",
                "upload - 17236",
                "download - 0",
                "qdisc - cake",
                "script - piece_of_cake.qos",
                "linklayer - ethernet",
                "overhead - 38",
                "linklayer_advanced - 1",
                "tcMPU - 84",
                "linklayer_adaptation_mechanism - default"
            ]
        );
    }
    assert!(ChangeList::of(None, &place(), &tuned()).unwrap().new);
}

#[test]
fn what_is_there_already_is_no_change() {
    let list = list(OURS, &tuned());
    assert!(list.is_empty() && list.notes.is_empty(), "{list}");
    assert_eq!(list.section, "@queue[0]");
}

#[test]
fn only_what_differs_of_our_queue_is_changed_and_the_owners_choices_stay() {
    let text = OURS.replace("17236", "15000").replace("piece_of", "layer_of").replace("layer_of_cake", "layer_cake")
        + "\toption squash_dscp '0'\n\toption verbosity '5'\n\toption delay_thr_ms '30.0'\n"
        + "config queue 'other'\n\toption interface 'eth9'\n\toption upload '1'\n";
    let list = list(&text, &tuned());
    assert_eq!(said(&list), ["upload 15000 17236"]);
    assert_eq!(list.batch("sqm"), "set sqm.@queue[0].upload='17236'\ncommit sqm\n");
    let kept = ["layer_cake.qos", "cake"];
    let before = config(&text);
    let section = section(&before, "@queue[0]");
    assert_eq!(kept.map(Some), [list.value(section, "script"), list.value(section, "qdisc")]);
    assert_eq!(list.value(section, "upload"), Some("17236"));
}

#[test]
fn a_rate_that_was_not_tuned_stays_and_a_missing_one_is_nought() {
    let shaped = list(&OURS.replace("download '0'", "download '60000'"), &tuned());
    assert!(shaped.changes.is_empty() && shaped.notes[0].contains("60000"), "{shaped}");
    let missing = list(&OURS.replace("\toption download '0'\n", ""), &tuned());
    assert_eq!(said(&missing), ["download - 0"]);
    let mut both = tuned();
    both.download.kbit = Some(0);
    assert_eq!(said(&list(&OURS.replace("download '0'", "download '60000'"), &both)), ["download 60000 0"]);
}

#[test]
fn wrong_pairs_are_put_right() {
    let text = OURS
        .replace("'cake'", "'fq_codel'")
        .replace("enabled '1'", "enabled 'on'")
        .replace("'ethernet'", "'none'")
        .replace("mechanism 'default'", "mechanism 'tc_stab'")
        .replace("piece_of_cake", "simple");
    let list = list(&text, &tuned());
    assert_eq!(
        said(&list),
        [
            "enabled on 1",
            "qdisc fq_codel cake",
            "script simple.qos piece_of_cake.qos",
            "linklayer none ethernet",
            "linklayer_adaptation_mechanism tc_stab default"
        ]
    );
    assert!(list.notes.iter().any(|note| note.contains("off for SQM")), "{list}");
}

#[test]
fn cells_have_no_least_size() {
    let mut outcome = tuned();
    (outcome.link.write_layer, outcome.link.write_overhead, outcome.link.write_mpu) = (Layer::Atm, 44, 0);
    assert_eq!(said(&list(OURS, &outcome)), ["linklayer ethernet atm", "overhead 38 44", "tcMPU 84 0"]);
    assert!(!said(&list("", &outcome)).iter().any(|change| change.contains("tcMPU")));
}

#[test]
fn the_target_goes_into_the_options_of_the_upload_beside_the_owners_words() {
    let flags = ["qdisc_advanced - 1", "qdisc_really_really_advanced - 1"];
    let long = |text: &str| said(&list(text, &with_target(8.0)));
    assert_eq!(long(OURS), [&flags[..], &["eqdisc_opts - rtt 160ms"]].concat());
    let users = OURS.to_owned() + "\toption eqdisc_opts 'nat dual-srchost'\n\toption iqdisc_opts 'nat'\n";
    assert_eq!(long(&users), [&flags[..], &["eqdisc_opts nat dual-srchost nat dual-srchost rtt 160ms"]].concat());
    let ours = users.replace("dual-srchost", "dual-srchost rtt 160ms");
    assert_eq!(long(&ours), Vec::<String>::new(), "the words are there; which flags show them is the owner's");
    let short = |text: &str| said(&list(text, &with_target(5.0)));
    assert_eq!(short(&ours), [&flags[..], &["eqdisc_opts nat dual-srchost rtt 160ms nat dual-srchost"]].concat());
    assert_eq!(short(&(OURS.to_owned() + "\toption eqdisc_opts 'rtt 160ms'\n")), ["eqdisc_opts rtt 160ms -"]);
    assert_eq!(said(&list(&ours, &tuned())), Vec::<String>::new(), "not compared: not ours to decide");
    let filter = |recommended, text: &str| {
        let ack_filter = Some(AckFilter { recommended, why: String::new() });
        said(&list(text, &Outcome { ack_filter, ..with_target(8.0) }))
    };
    assert_eq!(filter(true, OURS), [&flags[..], &["eqdisc_opts - rtt 160ms ack-filter"]].concat());
    let theirs = OURS.to_owned() + "\toption eqdisc_opts 'ack-filter rtt 160ms'\n";
    assert_eq!((filter(true, &theirs).len(), filter(false, &theirs).len()), (0, 0));
}

#[test]
fn options_that_a_shell_would_act_on_are_refused() {
    for option in ["eqdisc_opts", "iqdisc_opts"] {
        let text = format!("{OURS}\toption {option} 'nat; reboot'\n");
        let error = ChangeList::of(Some(&config(&text)), &place(), &tuned()).unwrap_err().to_string();
        assert!(error.contains(option) && error.contains("sqm.@queue[0]"), "{error}");
    }
    for device in ["", "a b", "x;y", "eth0'", "-x", "sixteen_letters_", "a/b"] {
        let place = Place::of_device(device);
        assert!(matches!(ChangeList::of(None, &place, &tuned()), Err(Unwritable::Device { .. })), "{device}");
    }
}

#[test]
fn only_a_tuned_line_has_something_to_write() {
    for status in [Status::Unneeded, Status::Graded, Status::Inconclusive, Status::Failed, Status::Refused] {
        let outcome = Outcome { outcome: status, ..tuned() };
        assert!(matches!(ChangeList::of(None, &place(), &outcome), Err(Unwritable::NotTuned { .. })), "{status:?}");
    }
}

#[test]
fn the_queue_is_the_one_that_sqm_would_start() {
    let queues = |interfaces: &[(&str, &str)]| {
        let section =
            |(name, on): &(&str, &str)| format!("config queue\n\toption interface '{name}'\n\toption enabled '{on}'\n");
        config(&interfaces.iter().map(section).collect::<String>())
    };
    let found = |interfaces: &[(&str, &str)]| find(&queues(interfaces), &place()).map(|(reference, _)| reference);
    assert_eq!(found(&[("eth1", "1"), ("pppoe-wan", "0")]).as_deref(), Some("@queue[1]"));
    assert_eq!(found(&[("pppoe-wan", "0"), ("pppoe-wan", "1")]).as_deref(), Some("@queue[1]"));
    assert_eq!(found(&[("wan", "1"), ("pppoe-wan", "1")]).as_deref(), Some("@queue[1]"));
    assert_eq!(found(&[("wan", "1"), ("pppoe-wan", "0")]).as_deref(), Some("@queue[0]"), "one queue for one line");
    assert_eq!(found(&[("eth1", "1"), ("pppoe-wan2", "1")]), None);
    let logical = ChangeList::of(Some(&queues(&[("wan", "1")])), &place(), &tuned()).unwrap();
    assert_eq!(said(&logical)[0], "interface wan pppoe-wan");
    assert!(logical.notes[0].contains("\"wan\" means the line of pppoe-wan"), "{logical}");
    let named = "config queue\n\toption interface 'eth1'\nconfig thing 'x'\n\toption interface 'pppoe-wan'\n";
    assert_eq!(find(&config(named), &place()).map(|(reference, _)| reference).as_deref(), Some("x"));
}

/// C51: three WANs on the VLANs of one port, one of them bridged.
#[test]
fn a_port_of_the_bridge_keeps_its_queue_and_everybodys_port_is_nobodys() {
    let text = "config interface 'wan1'\n\toption proto 'dhcp'\n\toption ifname 'eth0.2'\n\
        config interface 'wan2'\n\toption proto 'dhcp'\n\toption type 'bridge'\n\toption ifname 'eth0.3'\n\
        config interface 'pp'\n\toption proto 'pppoe'\n\toption ifname 'eth1'\n";
    let wans = Wans::of(None, Some(&config(text)));
    let bridged = Place::of_wan("br-wan2", &wans);
    assert_eq!((bridged.ports, bridged.aliases), (vec!["eth0.3".to_owned()], vec!["wan2".into(), "@wan2".into()]));
    let pppoe = Place::of_wan("pppoe-pp", &wans);
    assert_eq!((pppoe.ports.len(), pppoe.aliases), (0, vec!["pp".into(), "@pp".into(), "eth1".into()]));
    let queue = config("config queue\n\toption interface 'eth0.3'\n\toption enabled '1'\n");
    let list = ChangeList::of(Some(&queue), &Place::of_wan("br-wan2", &wans), &tuned()).unwrap();
    assert!(!list.new && list.device == "eth0.3", "{list}");
    assert!(!said(&list).iter().any(|change| change.starts_with("interface")), "{list}");
    assert!(find(&config("config queue\n\toption interface 'eth0'\n"), &Place::of_wan("br-wan2", &wans)).is_none());
}

#[test]
fn a_difference_is_shown_old_and_new_and_checked_against_what_came_of_it() {
    let text = OURS.replace("17236", "15000") + "\toption eqdisc_opts 'rtt 160ms'\n";
    let list = list(&text, &with_target(5.0));
    assert_eq!(
        list.to_string(),
        "/etc/config/sqm, the queue @queue[0] (pppoe-wan)\n  upload       '15000' -> '17236'\n  eqdisc_opts  'rtt 160ms' -> (none)\n"
    );
    let json = serde_json::to_value(&list).unwrap();
    assert_eq!(json["changes"][1], serde_json::json!({"option": "eqdisc_opts", "old": "rtt 160ms", "new": null}));
    let (before, after) = (config(&text), config(OURS));
    assert!(list.leads_from(&before, &after));
    assert!(!list.leads_from(&before, &before));
    let moved = OURS.replace("\toption upload '17236'\n", "") + "\toption upload '17236'\n";
    assert!(list.leads_from(&before, &config(&moved)), "older libuci puts what it sets at the end");
    assert!(!list.leads_from(&before, &config(&OURS.replace("'84'", "'64'"))));
    assert!(!list.leads_from(&before, &config(&(OURS.to_owned() + "config queue\n"))));
}
