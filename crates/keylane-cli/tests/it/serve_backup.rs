//! `keylane backup`: a copy of a running server's store, from which another server goes on.

use std::fs;

use crate::common::served::{Place, Served, run_at};
use crate::common::{finish, subcommand};

#[test]
fn a_server_goes_on_from_a_copy_of_a_running_one() {
    let mut place = Place::new("");
    let server = Served::start(&place, &[]);
    let done = server.submit(&["alone", "--key", "ann"]);
    place.next();
    place.let_end("well");
    server.run(&["watch", &done]).expect(0, &[]);
    let running = server.submit(&["wait", "--key", "ben"]);
    place.next();
    let copy = place.path("copy.db");
    let name = copy.to_str().unwrap();
    server.run(&["backup", name]).expect(0, &[]);
    finish(subcommand("store", ["check", "--store", name]).spawn().unwrap()).expect(0, &[]);
    // The copy stays as it is, and a second one needs a name of its own.
    server.run(&["backup", name]).expect(255, &["copy.db exists; name a new file"]);
    server.kill();
    place.wait_until_nobody_is_left();

    let config = fs::read_to_string(place.path("config.toml")).unwrap();
    fs::write(place.path("config.toml"), config.replace("tasks.db", "copy.db")).unwrap();
    let server = Served::start(&place, &[]);
    assert!(server.run(&["results", &done]).expect(0, &[]).stdout.contains("well"));
    // The interrupted attempt counts.
    assert!(place.next().ends_with(" 2"));
    place.let_end("again");
    server.run(&["watch", &running]).expect(0, &[]);
}

#[test]
fn a_copy_that_cannot_be_made_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy.db");
    run_at("127.0.0.1:1", &["backup", copy.to_str().unwrap()]).expect(5, &["was not reached"]);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    run_at("127.0.0.1:1", &["backup", "/no/such/folder/copy.db"]).expect(255, &["/no/such/folder"]);
}
