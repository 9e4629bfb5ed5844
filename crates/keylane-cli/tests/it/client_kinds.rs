//! `keylane kinds`: operators pause kinds and change their limits.

use crate::common::served::{Place, Served};

#[test]
fn a_kind_is_paused_changed_and_reset_from_the_command_line() {
    let mut place = Place::new("");
    let server = Served::start(&place, &[]);
    let list = |server: &Served, kind: &str| {
        let listed = server.run(&["kinds"]).expect(0, &[]).stdout.clone();
        listed.lines().find(|line| line.starts_with(kind)).unwrap().to_owned()
    };
    assert!(list(&server, "alone").contains("open"));
    let paused = server.run(&["kinds", "pause", "alone", "--reason", "the disk is replaced"]);
    assert!(paused.expect(0, &[]).stdout.contains("paused: the disk is replaced"));
    let job = server.submit(&["alone", "--key", "ann"]);
    let status = server.run(&["status", &job]).expect(0, &[]).stdout.clone();
    assert!(status.contains("`alone` is paused (the disk is replaced)"), "{status}");
    server.run(&["kinds", "resume", "alone"]).expect(0, &[]);
    place.next();
    place.let_end("well");
    server.run(&["watch", &job]).expect(0, &[]);

    let set = ["kinds", "set", "alone", "--concurrency", "3", "--rate", "30/m", "--timeout", "90s"];
    let set = server.run(&[&set[..], &["--json"]].concat()).expect(0, &[]).stdout.clone();
    for part in ["\"concurrency\":3", "\"per_second\":0.5", "\"timeout_ms\":90000"] {
        assert!(set.contains(part), "{part}: {set}");
    }
    let line = list(&server, "alone");
    assert!(line.contains("concurrency, per_second, timeout_ms"), "{line}");
    server.run(&["kinds", "reset", "alone", "--only", "per_second"]).expect(0, &[]);
    assert!(list(&server, "alone").ends_with("concurrency, timeout_ms"));
    server.run(&["kinds", "reset", "alone"]).expect(0, &[]);
    assert!(!list(&server, "alone").contains("concurrency"));
}

#[test]
fn wrong_uses_are_refused_with_the_remedy() {
    let place = Place::new("");
    let server = Served::start(&place, &[]);
    server.run(&["kinds", "set", "alone"]).expect(255, &["give a limit, such as --concurrency 4"]);
    server.run(&["kinds", "reset", "alone", "--only", "size"]).expect(255, &["the limits are"]);
    server.run(&["kinds", "set", "alone", "--concurrency", "0"]).expect(4, &["/concurrency"]);
    server
        .run(&["kinds", "set", "alone", "--burst", "3"])
        .expect(4, &["on the command line `--rate`"]);
    server
        .run(&["kinds", "pause", "nothing"])
        .expect(4, &["no kind `nothing`", "`keylane kinds` lists the kinds"]);
}
