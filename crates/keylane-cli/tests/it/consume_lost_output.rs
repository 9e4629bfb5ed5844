//! A record is done when what its command printed is written to standard output, and not before. It was done also
//! when its reader was gone, or the disk was full: printed output was lost, and a full disk was not even
//! an error.

use std::fs::{self, File};
use std::io;
use std::process::Stdio;

use crate::common::{Outcome, finish, subcommand};
use tempfile::TempDir;

/// The ways in which a command gets records. Each prints them, a line each.
const HANDLERS: [&[&str]; 3] = [
    &["--", "echo", "{}"],
    &["--worker", "--", "sh", "-c", "while read line; do echo \"$line\"; done"],
    &["--batch", "4", "--", "cat"],
];

/// A folder with 20 lines with 4 keys.
fn with_lines() -> (TempDir, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let lines: Vec<_> = (10..30).map(|number| format!("{number} {}", number % 4)).collect();
    fs::write(folder.path().join("in"), lines.join("\n") + "\n").unwrap();
    (folder, lines)
}

/// Consumes them, skipping whatever fails.
fn consume(folder: &TempDir, words: &[&str], stdout: Stdio) -> Outcome {
    let base = ["file:in", "-j", "2", "--attempts", "1", "--on-fail", "skip"];
    let mut command = subcommand("consume", [&base, words].concat());
    command.current_dir(folder.path()).stdin(Stdio::null()).stdout(stdout);
    finish(command.spawn().unwrap())
}

fn by_key(handler: &[&'static str]) -> Vec<&'static str> {
    [&["--key", "2"], handler].concat()
}

fn full() -> Stdio {
    File::options().write(true).open("/dev/full").unwrap().into()
}

fn closed() -> Stdio {
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    writer.into()
}

#[test]
fn a_record_with_lost_output_is_delivered_again() {
    for handler in HANDLERS {
        let (folder, lines) = with_lines();
        let words = by_key(handler);
        // As with `keylane run`.
        let said = "keylane: cannot write to standard output: No space left on device";
        consume(&folder, &words, full()).expect(255, &[said, " 0 handled", " 0 skipped"]);
        consume(&folder, &words, closed()).expect(141, &[" 0 handled", " 0 skipped"]);
        let outcome = consume(&folder, &words, Stdio::piped());
        assert_eq!(outcome.expect(0, &[" 20 handled"]).sorted(), lines);
    }
}

#[test]
fn a_command_without_output_needs_no_reader() {
    let (folder, lines) = with_lines();
    let silent = "case $1 in 10*|11*|12*) ;; *) echo \"$1\" ;; esac";
    let words = ["--order", "partition", "--", "sh", "-c", silent, "sh", "{}"];
    consume(&folder, &words, closed()).expect(141, &[" 3 handled"]);
    let outcome = consume(&folder, &words, Stdio::piped());
    assert_eq!(outcome.expect(0, &[" 17 handled"]).sorted(), lines[3..]);
    // So are those that fail, whose failures say more than that.
    let (folder, _) = with_lines();
    consume(&folder, &[&words[..3], &["false"]].concat(), closed()).expect(20, &[" 20 skipped"]);
}
