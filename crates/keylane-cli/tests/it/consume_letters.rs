//! `keylane consume letters:PATH`: dead letters are handled again, in order per key.

use std::fs;

use tempfile::TempDir;

use crate::common::{Outcome, feed, subcommand};

fn consume(folder: &TempDir, words: &[&str], command: &[&str], input: &str) -> Outcome {
    let words = [words, &["--"], command].concat();
    let mut consume = subcommand("consume", words);
    consume.current_dir(folder.path());
    feed(consume, input.as_bytes())
}

/// Leaves dead letters of four lines, with the keys `a` and `b`.
fn with_letters() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("lines"), "a 1\nb 2\na 3\na 4\n").unwrap();
    let fails = ["file:lines", "--key", "1", "--attempts", "1", "--on-fail", "dead-letter"];
    let words = [&fails[..], &["--dead-letters", "file:dead.ndjson"]].concat();
    consume(&folder, &words, &["false"], "").expect(4, &["4 dead-lettered"]);
    folder
}

const REDRIVE: [&str; 5] = ["letters:dead.ndjson", "--key", "1", "--attempts", "1"];

#[test]
fn dead_letters_are_handled_again_with_their_place_and_once() {
    let folder = with_letters();
    let print = ["sh", "-c", "echo \"$KEYLANE_STREAM $KEYLANE_POSITION $0\""];
    let outcome = consume(&folder, &REDRIVE, &print, "");
    outcome.expect(0, &["all records are processed: 4 handled"]);
    let own: Vec<_> = outcome.stdout.lines().filter(|line| line.contains(" a ")).collect();
    assert_eq!(own, ["lines 0 a 1", "lines 2 a 3", "lines 3 a 4"]);
    consume(&folder, &REDRIVE, &print, "").expect(0, &["0 handled"]);
    assert!(folder.path().join("dead.ndjson.redriven").exists());
}

#[test]
fn a_letter_that_fails_again_holds_its_key_until_its_payload_is_edited() {
    let folder = with_letters();
    let handle = ["sh", "-c", "test \"$0\" != 'a 1' && echo \"$0\""];
    let outcome = consume(&folder, &REDRIVE, &handle, "");
    outcome.expect(1, &["lines[0] at 0 was not handled, and the later records of its key wait"]);
    assert_eq!(outcome.stdout, "b 2\n");
    let path = folder.path().join("dead.ndjson");
    let edited = fs::read_to_string(&path).unwrap().replace("\"a 1\"", "\"a one\"");
    fs::write(&path, edited).unwrap();
    let outcome = consume(&folder, &REDRIVE, &handle, "");
    outcome.expect(0, &["3 handled"]);
    assert_eq!(outcome.stdout, "a one\na 3\na 4\n");
}

#[test]
fn letters_are_not_written_to_the_file_that_is_read() {
    let folder = with_letters();
    let letters = ["letters:dead.ndjson", "--on-fail", "dead-letter", "--dead-letters"];
    let to = |place: &str| consume(&folder, &[&letters[..], &[place]].concat(), &["false"], "");
    to("file:./dead.ndjson").expect(255, &["the dead letters are the source"]);
    let endless = ["letters:dead.ndjson", "--to-the-end=false"];
    consume(&folder, &endless, &["true"], "").expect(255, &["leave out --to-the-end"]);
    fs::write(folder.path().join("dead.ndjson"), "{}\n").unwrap();
    consume(&folder, &REDRIVE, &["true"], "")
        .expect(255, &["line 1 is not a dead letter: `stream`", "correct the line, or remove it"]);
}

/// Letters of a journal are records: their copy as lines of JSON can be edited and handled again.
#[test]
fn letters_of_a_journal_become_a_file_that_can_be_edited() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("lines"), "a 1\na 2\n").unwrap();
    let fails = ["file:lines", "--key", "1", "--attempts", "1", "--on-fail", "dead-letter"];
    let words = [&fails[..], &["--dead-letters", "journal:dead"]].concat();
    consume(&folder, &words, &["false"], "").expect(2, &["2 dead-lettered"]);
    let copy = ["journal:dead", "--group", "edit", "--to-the-end", "--payload", "json", "-j", "1"];
    let outcome = consume(&folder, &copy, &["cat"], "");
    outcome.expect(0, &["2 handled"]);
    fs::write(folder.path().join("dead.ndjson"), &outcome.stdout).unwrap();
    let outcome = consume(&folder, &REDRIVE, &["echo"], "");
    outcome.expect(0, &["2 handled"]);
    assert_eq!(outcome.stdout, "a 1\na 2\n");
}
