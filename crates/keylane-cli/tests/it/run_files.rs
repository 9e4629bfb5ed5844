//! Several input files of a run: numbers of records count over all of them, and messages name the file
//! and the line. Records that end with NUL.

use std::fs;
use std::path::Path;
use std::thread;

use tempfile::TempDir;

use crate::common::{Outcome, feed, keylane, named_pipe, run};

fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

fn run_in(folder: &Path, words: &[&str], input: &str) -> Outcome {
    let mut command = keylane(words);
    command.current_dir(folder);
    feed(command, input.as_bytes())
}

#[test]
fn files_are_read_one_after_the_other() {
    let folder = folder(&[("a", "x 1\nx 2"), ("b", ""), ("c", "x 4\n")]);
    let words = ["-j1", "--key", "1", "a", "b", "-", "c", "--", "echo", "{#}", "{2}"];
    let outcome = run_in(folder.path(), &words, "x 3\n");
    outcome.expect(0, &[]);
    assert_eq!(outcome.stdout, "1 1\n2 2\n3 3\n4 4\n");
}

#[test]
fn a_key_keeps_its_order_over_all_files() {
    let files = [("a", "k a1\nl a2\n"), ("b", "k b1\nl b2\n"), ("c", "l c1\nk c2\n")];
    let folder = folder(&files);
    let words = ["-j4", "--key", "1", "a", "b", "c", "--", "echo"];
    let outcome = run_in(folder.path(), &words, "");
    outcome.expect(0, &[]);
    let of =
        |key: &str| outcome.stdout.lines().filter(|line| line.starts_with(key)).collect::<Vec<_>>();
    assert_eq!(of("k"), ["k a1", "k b1", "k c2"]);
    assert_eq!(of("l"), ["l a2", "l b2", "l c1"]);
}

#[test]
fn messages_name_the_file_and_the_line() {
    let folder = folder(&[("a", "x\ny\n"), ("b", "x\nbad\n")]);
    let script = "test $1 != bad";
    let words = ["--key", "1", "a", "b", "--", "sh", "-c", script, "sh", "{}"];
    run_in(folder.path(), &words, "").expect(1, &["record 4 (b:2, key bad): exit status 1"]);
    let json = ["--ndjson", "--key", ".k", "a.json", "b.json", "--", "echo"];
    fs::write(folder.path().join("a.json"), "{\"k\":1}\n").unwrap();
    fs::write(folder.path().join("b.json"), "{\"k\":2}\n{\"k\":\n").unwrap();
    let outcome = run_in(folder.path(), &json, "");
    outcome.expect(255, &["b.json:2: not valid JSON"]);
    assert_eq!(outcome.sorted(), ["{\"k\":1}", "{\"k\":2}"]);
    let keyless = ["--no-key", "error", "--key", "2", "a", "--", "echo"];
    run_in(folder.path(), &keyless, "").expect(255, &["a:1: the record has no key"]);
}

#[test]
fn files_that_cannot_be_read_are_named_before_a_command_starts() {
    let folder = folder(&[("a", "x\n")]);
    for (files, said) in [
        (["a", "gone"], "cannot open gone; check the name"),
        (["a", "/"], "cannot read /: it is a folder"),
        (["-", "-"], "- is given twice; standard input can be read once"),
    ] {
        let words = [&["--key", "1"], &files[..], &["--", "echo"]].concat();
        let outcome = run_in(folder.path(), &words, "x\n");
        outcome.expect(255, &[said]);
        assert_eq!(outcome.stdout, "");
    }
}

#[test]
fn a_pipe_among_the_files_is_read_in_its_turn() {
    let folder = folder(&[("a", "1\n"), ("c", "3\n")]);
    let pipe = folder.path().join("pipe");
    named_pipe(&pipe);
    let writer = thread::spawn(move || fs::write(pipe, "2\n").unwrap());
    let outcome = run_in(folder.path(), &["-j1", "--key", "1", "a", "pipe", "c", "--", "echo"], "");
    outcome.expect(0, &[]);
    assert_eq!(outcome.stdout, "1\n2\n3\n");
    writer.join().unwrap();
}

#[test]
fn each_table_has_its_own_header() {
    let folder = folder(&[("a", "k,v\nx,1\n"), ("b", "\u{feff}k,v\nx,2\n"), ("c", "k,v\n")]);
    let words = ["--csv", "--header", "--key", "k", "a", "b", "c", "--", "echo", "{#}", "{v}"];
    let outcome = run_in(folder.path(), &words, "");
    outcome.expect(0, &[]);
    assert_eq!(outcome.stdout, "1 1\n2 2\n");
}

#[test]
fn a_table_with_other_columns_is_refused_in_its_turn() {
    let folder = folder(&[("a", "k,v\nx,1\n"), ("b", "v,k\n2,x\n"), ("c", "1,2,3\n")]);
    let words = ["--csv", "--header", "--key", "k", "a", "b", "--", "echo", "{v}"];
    let outcome = run_in(folder.path(), &words, "");
    let said =
        ["b:1: its header `v, k` differs from that of a, `k, v`; give all files the same columns"];
    outcome.expect(255, &said);
    assert_eq!(outcome.stdout, "1\n");
    let words = ["--csv", "--key", "1", "a", "c", "--", "echo", "{2}"];
    run_in(folder.path(), &words, "")
        .expect(255, &["c:1: its rows have 3 fields where those of a have 2"]);
}

#[test]
fn a_byte_order_mark_of_any_file_is_no_part_of_a_key() {
    let folder = folder(&[("a", "\u{feff}x 1\n"), ("b", "\u{feff}x 2\n")]);
    let words = ["--key", "1", "a", "b", "--", "sh", "-c", "echo \"<$KEYLANE_KEY>\""];
    let outcome = run_in(folder.path(), &words, "");
    assert_eq!(outcome.expect(0, &[]).stdout, "<x>\n<x>\n");
}

#[test]
fn records_can_end_with_nul() {
    for option in ["-0", "--null"] {
        let words = ["-j1", option, "--key", "1", "--", "printf", "[%s]", "{#}", "{}"];
        let outcome = run(&words, "a b\0c\nd\0\0e");
        outcome.expect(0, &[]);
        assert_eq!(outcome.stdout, "[1][a b][2][c\nd][3][][4][e]");
    }
    let words = ["-0", "--key", "1", "--worker", "--", "cat"];
    run(&words, "a\0b\nc\0").expect(1, &["record 2 (line 2, key b): its line for the worker"]);
}

#[test]
fn the_former_value_of_the_null_option_is_refused_with_the_remedy() {
    run(&["--key", "1", "--null=NA", "--", "echo"], "a\n")
        .expect(255, &["`--null` has no value", "write `--null-value NA`"]);
    run(&["--key", "1", "--null", "NA", "--", "echo"], "a\n")
        .expect(255, &["cannot open NA", "--null-value VALUE, not --null VALUE"]);
    run(&["--csv", "--key", "1", "--null", "NA", "--", "echo"], "a\n")
        .expect(255, &["-0 (--null) is for --lines", "--null-value VALUE"]);
}
