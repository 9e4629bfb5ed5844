//! `keylane consume --batch`: several records of a key for one command.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::common::{Outcome, feed, subcommand};
use keylane_stream::Record;
use keylane_stream::journal::Journal;
use tempfile::TempDir;

/// Taken by each test: while one has a journal open, no other may start a process, which would hold its lock
/// until it has become another program.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A folder with a journal of 20 records with 4 keys.
fn with_journal() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let lines: String =
        (0..20).map(|n| format!("{{\"client\":\"c{}\",\"n\":{n}}}\n", n % 4)).collect();
    let words = ["journal:j", "--ndjson", "--key", ".client"];
    let mut produce = subcommand("produce", words);
    produce.current_dir(folder.path());
    feed(produce, lines.as_bytes()).expect(0, &[]);
    folder
}

fn consume(folder: &TempDir, words: &[&str]) -> Outcome {
    let base = ["journal:j", "--group", "g", "--to-the-end", "--ndjson", "--backoff", "1ms"];
    let mut command = subcommand("consume", [&base, words].concat());
    command.current_dir(folder.path());
    feed(command, b"")
}

const SHOW: &str = "echo $KEYLANE_KEY $KEYLANE_POSITION $KEYLANE_LAST_POSITION $KEYLANE_COUNT $KEYLANE_ATTEMPT $(cat)";

#[test]
fn a_command_gets_the_records_of_a_key_as_lines_on_its_input() {
    let _alone = alone();
    let folder = with_journal();
    let words = ["--batch", "5", "--linger", "1h", "-j", "2", "--", "sh", "-c", SHOW];
    let outcome = consume(&folder, &words);
    outcome.expect(0, &["20 handled"]);
    let expected = |key: usize| {
        let lines: Vec<_> = (0..5)
            .map(|i| i * 4 + key)
            .map(|n| format!("{{\"client\":\"c{key}\",\"n\":{n}}}"))
            .collect();
        format!("c{key} {key} {} 5 1 {}", 16 + key, lines.join(" "))
    };
    assert_eq!(outcome.sorted(), (0..4).map(expected).collect::<Vec<_>>());
    consume(&folder, &words).expect(0, &["0 handled"]);
}

#[test]
fn a_part_of_a_batch_is_handled_when_its_first_has_waited() {
    let _alone = alone();
    let folder = with_journal();
    let words = ["--batch", "1000", "--linger", "2ms", "--", "cat"];
    let outcome = consume(&folder, &words);
    outcome.expect(0, &["20 handled"]);
    assert_eq!(outcome.stdout.lines().count(), 20);
}

#[test]
fn one_that_is_bad_fails_alone() {
    let _alone = alone();
    let folder = with_journal();
    let words = ["--batch", "5", "--linger", "1h", "--attempts", "2"];
    let bad = ["--on-fail", "dead-letter", "--dead-letters", "file:dead"];
    let command = ["--", "sh", "-c", "! grep '\"n\":9}'"];
    consume(&folder, &[&words[..], &bad, &command].concat()).expect(1, &["19 handled"]);
    let letters = std::fs::read_to_string(folder.path().join("dead")).unwrap();
    assert_eq!(letters.lines().count(), 1);
    assert!(letters.contains("\"position\":9,"), "{letters}");
}

#[test]
fn settings_that_conflict_with_batches_are_refused() {
    let _alone = alone();
    let folder = with_journal();
    let batch = ["--batch", "5", "--"];
    consume(&folder, &[&batch[..], &["echo", "{}"]].concat()).expect(255, &["leave out {}"]);
    let words = ["--worker", "--batch", "5", "--", "cat"];
    consume(&folder, &words).expect(255, &["leave out --batch or --worker"]);
    let words = ["--output", "journal:o", "--batch", "5", "--", "cat"];
    consume(&folder, &words).expect(255, &["leave out --batch or --output"]);
    let words = ["--order", "none", "--batch", "5", "--", "cat"];
    consume(&folder, &words).expect(255, &["leave out --batch or --order none"]);
    consume(&folder, &["--linger", "1s", "--", "cat"]).expect(255, &["add --batch"]);
    consume(&folder, &["--batch", "0", "--", "cat"]).expect(255, &["--batch is 1 at least"]);
}

#[test]
fn a_payload_that_is_no_line_is_refused_and_those_around_it_are_handled() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::open(folder.path().join("j")).unwrap();
    let payloads = ["1", "2", "[3,\n3]", "4"];
    journal.append_all(&payloads.map(|payload| Record::new("k", payload))).unwrap();
    drop(journal);
    let words = ["--batch", "4", "--linger", "1h", "--on-refused", "skip", "--", "cat"];
    let outcome = consume(&folder, &words);
    outcome.expect(1, &["at 2, attempt 1: it contains a line end", "3 handled"]);
    assert_eq!(outcome.stdout, "1\n2\n4\n");
}
