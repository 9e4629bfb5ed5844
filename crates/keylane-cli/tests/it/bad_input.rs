//! What cannot be read ends the run with 255, the file, the line, what is
//! wrong and what to do, after what was accepted before it has run.

use std::fs;
use std::io::Write;

use crate::common::{feed, run, subcommand};

const ECHO: [&str; 3] = ["--", "echo", "{#}"];

fn records(options: &[&'static str], input: impl AsRef<[u8]>, ran: &[&str], said: &[&str]) {
    let words = [options, &ECHO].concat();
    let outcome = run(&words, input);
    outcome.expect(255, said);
    assert_eq!(outcome.sorted(), ran, "{outcome:#?}");
}

#[test]
fn a_wrong_column_lists_the_columns_there_are() {
    let said = ["there is no column `tail`; the columns are tailnum, origin"];
    records(&["--csv", "--header", "--key", "tail"], "tailnum,origin\nN1,EWR\n", &[], &said);
    records(&["--csv", "--header", "--key", "3"], "a,b\n1,2\n", &[], &["no column `3`"]);
    records(&["--csv", "--key", "3"], "1,2\n", &[], &["there is no column 3; the rows have 2"]);
    let named = run(&["--csv", "--header", "--key", "a", "--", "echo", "{c}"], "a,b\n1,2\n");
    named.expect(255, &["cannot fill in `{c}`", "the columns are a, b"]);
}

#[test]
fn a_table_that_lacks_its_header_is_refused() {
    records(
        &["--csv", "--header", "--key", "a"],
        "",
        &[],
        &["standard input:1: the header line is missing, because the input has no rows"],
    );
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty.csv");
    fs::write(&empty, "\n").unwrap();
    let words = ["--csv", "--header", "--key", "a", empty.to_str().unwrap(), "--", "true"];
    run(&words, "").expect(255, &["empty.csv:1: the header line is missing"]);
}

#[test]
fn bad_json_names_the_line_and_the_column() {
    let said = ["standard input:3: not valid JSON", "at column 6"];
    records(&["--ndjson", "--key", "a"], "{\"a\":1}\n\n{\"a\":}\n{\"a\":2}\n", &["1"], &said);
}

#[test]
fn json_that_is_not_utf8_names_the_byte() {
    let said = ["standard input:2: not valid UTF-8 from byte 7 of the line on", "iconv"];
    records(&["--ndjson", "--key", "a"], b"{\"a\":1}\n{\"a\":\"\xff\"}\n", &["1"], &said);
}

#[test]
fn bytes_that_are_not_utf8_are_fine_elsewhere() {
    let outcome = run(&["--csv", "--key", "1", "--", "printf", "%s", "{2}"], b"k,\xff\xfe\n");
    outcome.expect(0, &[]);
}

#[test]
fn a_missing_file_and_a_folder_are_named() {
    run(&["--key", "1", "no-such-file", "--", "true"], "")
        .expect(255, &["cannot open no-such-file", "check the name"]);
    run(&["--key", "1", "/", "--", "true"], "").expect(255, &["cannot read /: it is a folder"]);
}

/// The positions of a consumer are those of the bytes in its file.
#[test]
fn compressed_input_of_a_consumer_is_refused_with_the_remedy() {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(b"a\nb\n").unwrap();
    let packed = packed.finish().unwrap();
    let said = ["it is compressed with gzip", "`gzip -dc FILE | keylane"];
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.gz"), &packed).unwrap();
    for (source, input) in [("-", &packed[..]), ("file:a.gz", b"")] {
        let mut command = subcommand("consume", [source, "--order", "none", "--", "echo"]);
        command.current_dir(folder.path());
        let outcome = feed(command, input);
        outcome.expect(255, &said);
        assert_eq!(outcome.stdout, "");
    }
}

#[test]
fn a_byte_order_mark_is_no_part_of_the_first_key() {
    let lines = "\u{feff}ann 1\nann 2\n";
    let words = ["-j1", "--key", "1", "--", "sh", "-c", "echo $KEYLANE_KEY {2}"];
    assert_eq!(run(&words, lines).stdout, "ann 1\nann 2\n");
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a"), lines).unwrap();
    for source in ["file:a", "-"] {
        let words = [source, "--key", "1", "--", "sh", "-c", "echo $KEYLANE_KEY {2}"];
        let mut command = subcommand("consume", words);
        command.current_dir(folder.path());
        assert_eq!(feed(command, lines.as_bytes()).stdout, "ann 1\nann 2\n", "{source}");
    }
}

#[test]
fn a_single_record_without_a_key_is_noted() {
    let outcome = run(&["--ndjson", "--key", "a", "--", "echo"], "[{\"a\":1},{\"a\":2}]\n");
    outcome.expect(0, &["note: the only record had no key; check --key"]);
    let outcome = run(&["--key", "1", "--", "echo"], "a\n");
    assert_eq!(outcome.expect(0, &[]).stderr, "");
}

#[test]
fn an_open_quote_names_the_line_where_it_begins() {
    let said = ["standard input:2: a quoted field begins in this record and never ends"];
    records(&["--csv", "--key", "1"], "a,b\nc,\"d\ne,f\n", &["1"], &said);
}

#[test]
fn a_ragged_row_names_both_widths() {
    let said = ["standard input:3: the record has 3 fields where the first line has 2"];
    records(&["--csv", "--header", "--key", "a"], "a,b\n1,2\n1,2,3\n4,5\n", &["1"], &said);
}

#[test]
fn an_endless_line_is_refused() {
    let said = ["standard input:2: the record is longer than 16 MiB"];
    let mut input = b"a\n".to_vec();
    input.resize(18 << 20, b'x');
    records(&["--key", "1"], input, &["1"], &said);
}

#[test]
fn a_record_without_key_can_be_an_error() {
    let said = ["standard input:2: the record has no key", "--no-key unordered"];
    records(&["--csv", "--key", "1", "--no-key", "error"], "a,b\n,c\nd,e\n", &["1"], &said);
}

#[test]
fn a_json_record_that_lacks_a_field_fails_alone() {
    let words = ["-j1", "--ndjson", "--key", "a", "--", "echo", "{a}{b}"];
    let outcome = run(&words, "{\"a\":1,\"b\":2}\n{\"a\":1}\n{\"a\":1,\"b\":null}\n");
    outcome.expect(1, &["record 2 (line 2, key 1): it has no field `b`"]);
    assert_eq!(outcome.stdout, "12\n1\n");
}

#[test]
fn a_buffer_of_zero_is_refused_in_plain_words() {
    let words = ["--key", "1", "--buffer", "0", "--", "true"];
    run(&words, "").expect(255, &["--buffer", "give a number of at least 1"]);
}
