//! The progress of a run shows the hottest key, its records that are still to be read, and the time left.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::process::{Command, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::common::{keylane, named_pipe};

/// The first records end, and the next ones wait until the test has seen them.
#[test]
fn the_bar_shows_the_hottest_key_what_is_to_come_of_it_and_the_time_left() {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let terminal = openpt(flags).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let end = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    let columns =
        Command::new("stty").args(["cols", "120"]).stdin(end.try_clone().unwrap()).status();
    assert!(columns.unwrap().success());

    let folder = tempfile::tempdir().unwrap();
    named_pipe(&folder.path().join("go"));
    // Long lines, so that most of the file is not read yet.
    let line = |place: usize| {
        let key = if place.is_multiple_of(2) { "hot".to_owned() } else { format!("cold{place}") };
        format!("{key} {}\n", "x".repeat(4_000))
    };
    fs::write(folder.path().join("input"), (0..200).map(line).collect::<String>()).unwrap();
    let script = "test $KEYLANE_SEQ -le 6 || test -e open || read line < go";
    let words = [
        "-j2",
        "--buffer",
        "8",
        "--progress",
        "bar",
        "--key",
        "1",
        "input",
        "--",
        "sh",
        "-c",
        script,
    ];
    let mut command = keylane(words);
    command.current_dir(folder.path()).stdin(Stdio::null()).stderr(end);
    let mut run = command.spawn().unwrap();
    drop(command);

    let mut terminal = File::from(terminal);
    let (mut shown, mut part) = (String::new(), [0; 4096]);
    let is_seen = |shown: &str| {
        shown.contains("hottest: key hot with ")
            && shown.contains(" to come")
            && shown.contains(" left")
    };
    while !is_seen(&shown) {
        // An error means that the run has ended.
        let length = terminal.read(&mut part).unwrap_or_else(|error| panic!("{error}: {shown}"));
        shown.push_str(&String::from_utf8_lossy(&part[..length]));
    }

    fs::write(folder.path().join("open"), "").unwrap();
    let mut go = File::options().read(true).write(true).open(folder.path().join("go")).unwrap();
    go.write_all(b"\n\n").unwrap();
    // The terminal is read on, or the run could not write any more.
    while terminal.read(&mut part).is_ok_and(|length| length > 0) {}
    assert_eq!(run.wait().unwrap().code(), Some(0), "{shown}");
}
