//! A reader that has had enough ends the run quietly, whatever is left of an
//! endless input.

use std::io::{BufRead, BufReader, Write};
use std::thread;

use crate::common::{finish, keylane};

fn ends_quietly(words: &[&str]) {
    let mut child = keylane(words).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let source = thread::spawn(move || while stdin.write_all(b"record\n").is_ok() {});
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    assert_eq!(line, "record\n");
    drop(stdout);
    let outcome = finish(child);
    // A machine that stands still for seconds may have it wonder about its workers.
    let said =
        outcome.stderr.lines().find(|line| !line.contains("note: a worker has not answered"));
    assert_eq!((outcome.code, said), (141, None));
    source.join().unwrap();
}

#[test]
fn with_a_process_per_record() {
    ends_quietly(&["-j2", "--key", "1", "--", "echo"]);
}

#[test]
fn with_workers() {
    ends_quietly(&["-j2", "--worker", "--key", "1", "--", "cat"]);
}
