//! Tables in `keylane consume` and `keylane produce`: rows as records, with the meaning that they have in
//! `keylane run`, and progress at rows.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use crate::common::{Outcome, feed, subcommand};
use tempfile::TempDir;

fn keylane(folder: &TempDir, name: &str, words: &[&str], input: &str) -> Outcome {
    let mut command = subcommand(name, words);
    command.current_dir(folder.path());
    feed(command, input.as_bytes())
}

/// Consumes rows with the columns `k` and `n`, and prints a line for each.
fn consume(folder: &TempDir, options: &[&str], input: &str) -> Outcome {
    let words = [options, &["--key", "k", "-j", "4", "--", "echo", "{k}:{n}:{#}"]].concat();
    keylane(folder, "consume", &words, input)
}

fn append(path: &Path, text: &str) {
    File::options().append(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
}

const FILE: [&str; 3] = ["file:in.csv", "--csv", "--header"];

#[test]
fn a_table_is_consumed_as_run_reads_it_and_gone_on_with_at_a_row() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.csv");
    // A byte order mark, blank lines, a row of two lines, quotes, both line ends.
    fs::write(&path, "\u{feff}k,n\r\n\r\na,1\r\nb,\"2\nand \"\"more\"\"\"\n\na,3\n").unwrap();
    let words = ["--csv", "--header", "--key", "k", "in.csv", "--", "echo", "{k}:{n}:{#}"];
    let by_run = keylane(&folder, "run", &words, "");
    let consumed = consume(&folder, &FILE, "");
    assert_eq!(consumed.expect(0, &["3 handled"]).sorted(), by_run.expect(0, &[]).sorted());
    assert_eq!(consumed.sorted(), ["a:1:1", "a:3:3", "and \"more\":2", "b:2"]);
    consume(&folder, &FILE, "").expect(0, &["0 handled"]);
    append(&path, "\nb,\"4\n\"\n");
    assert_eq!(consume(&folder, &FILE, "").expect(0, &["1 handled"]).stdout, "b:4\n:4\n");
}

#[test]
fn progress_of_a_table_is_no_progress_of_another_format() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.csv");
    fs::write(&path, "k,n\na,1\n").unwrap();
    consume(&folder, &FILE, "").expect(0, &["1 handled"]);
    append(&path, "a,2\n");
    let as_lines = ["file:in.csv", "--key", "/^([^,]*)/", "--", "true"];
    let refused = keylane(&folder, "consume", &as_lines, "");
    refused.expect(255, &["it was consumed as csv with a header, and is lines now"]);
    let numbered = ["file:in.csv", "--csv", "--key", "1", "--", "true"];
    let refused = keylane(&folder, "consume", &numbered, "");
    refused.expect(255, &["it was consumed as csv with a header, and is csv now"]);
    consume(&folder, &FILE, "").expect(0, &["1 handled"]);
}

/// A broken row is refused for good, as a payload that is no JSON is.
#[test]
fn a_broken_row_goes_where_refused_records_go_and_the_others_are_handled() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("in.csv"), "k,n\na,1\nb,2,3\na,4\nb,\"5\n").unwrap();
    let letters = ["--on-refused", "dead-letter", "--dead-letters", "file:dead"];
    let words = [&FILE[..], &letters].concat();
    let outcome = consume(&folder, &words, "");
    outcome.expect(2, &["the record has 3 fields where the first line has 2", "2 dead-lettered"]);
    outcome.expect(2, &["a quoted field begins in this record and never ends"]);
    assert_eq!(outcome.sorted(), ["a:1:1", "a:4:3"]);
    let dead = fs::read_to_string(folder.path().join("dead")).unwrap();
    let payload = |line: &str| {
        let letter: serde_json::Value = serde_json::from_str(line).unwrap();
        letter["payload"].as_str().unwrap().to_owned()
    };
    let mut payloads: Vec<_> = dead.lines().map(payload).collect();
    payloads.sort();
    assert_eq!(payloads, ["b,\"5", "b,2,3"]);
    consume(&folder, &words, "").expect(0, &["0 handled"]);
}

#[test]
fn a_pipe_has_a_header_too_and_columns_are_checked_before_the_first_row() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = ["-", "--tsv", "--header"];
    let outcome = consume(&folder, &pipe, "k\tn\nx\t\"1\ny\t2\n");
    assert_eq!(outcome.expect(0, &["2 handled"]).sorted(), ["x:\"1:1", "y:2:2"]);
    consume(&folder, &pipe, "").expect(255, &["the header line is missing"]);
    consume(&folder, &pipe, "k\tm\n1\t2\n").expect(255, &["no column `n`; the columns are k, m"]);
    let numbered = ["-", "--csv", "--key", "2", "--", "echo", "{2}"];
    let outcome = keylane(&folder, "consume", &numbered, "a,\"1\n1\"\nb,2\n");
    assert_eq!(outcome.expect(0, &["2 handled"]).sorted(), ["1", "1", "2"]);
}

#[test]
fn formats_that_contradict_each_other_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("in.csv"), "k,n\n").unwrap();
    let refused = |words: &[&str], why: &str| {
        consume(&folder, words, "").expect(255, &[why]);
    };
    refused(&["file:in.csv", "--csv", "--ndjson"], "exclude each other");
    refused(&["file:in.csv", "--header"], "--header is for tables; add --csv or --tsv");
    refused(
        &["journal:j", "--group", "g", "--csv", "--header"],
        "--header is for a file or a pipe",
    );
}

#[test]
fn rows_are_produced_and_are_payloads_of_a_journal() {
    let folder = tempfile::tempdir().unwrap();
    let words = ["journal:j", "--csv", "--header", "--key", "k"];
    let produced = keylane(&folder, "produce", &words, "k,n\na,\"1\n1\"\nb,2\n");
    produced.expect(0, &["2 records are in j"]);
    let base = ["journal:j", "--group", "g", "--to-the-end", "--csv"];
    let words = [&base[..], &["--", "sh", "-c", r#"echo "$KEYLANE_KEY=$1""#, "sh", "{2}"]].concat();
    let outcome = keylane(&folder, "consume", &words, "");
    assert_eq!(outcome.expect(0, &["2 handled"]).sorted(), ["1", "a=1", "b=2"]);
    let lines = keylane(&folder, "produce", &["journal:j", "--header"], "");
    lines.expect(255, &["--header is for tables; give --csv or --tsv as well"]);
}
