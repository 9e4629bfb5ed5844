//! `keylane consume --worker-timeout`: a worker that never answers is ended, and its record is tried again.

use crate::common::{feed, subcommand};

fn consume(words: &[&str], worker: &str) -> crate::common::Outcome {
    let folder = tempfile::tempdir().unwrap();
    let base = ["-", "--order", "none", "-j", "1", "--backoff", "1ms", "--worker"];
    let words = [&base[..], words, &["--", "sh", "-c", worker]].concat();
    let mut command = subcommand("consume", words);
    command.current_dir(folder.path());
    feed(command, b"one\ntwo\nthree\n")
}

/// The first one hangs at the second record, in a process of its own, which would outlive it.
const HANGS: &str = "while read -r l; do
    if test $l = two && mkdir hung 2> /dev/null; then sleep 1000; fi
    echo $l
done";

#[test]
fn a_worker_that_never_answers_is_ended_and_another_one_goes_on() {
    // Where a shell is slow to start, others may be ended as well.
    let outcome = consume(&["--worker-timeout", "300ms", "--attempts", "50"], HANGS);
    outcome.expect(0, &["has not answered the record at 1 in time; it is ended", "3 handled"]);
    assert_eq!(outcome.sorted(), ["one", "three", "two"]);
}

#[test]
fn a_worker_that_answers_in_time_is_left_alone() {
    let outcome = consume(&["--worker-timeout", "1m"], "cat");
    outcome.expect(0, &["3 handled"]);
    assert_eq!(outcome.sorted(), ["one", "three", "two"]);
}

#[test]
fn only_workers_have_it() {
    let words = ["-", "--order", "none", "--worker-timeout", "1s", "--", "echo"];
    feed(subcommand("consume", words), b"").expect(255, &["add --worker"]);
}
