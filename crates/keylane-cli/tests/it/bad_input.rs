//! What cannot be read ends the run with 255, the file, the line, what is
//! wrong and what to do, after what was accepted before it has run.

use crate::common::run;

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
        &["standard input:1: the header line is missing"],
    );
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
