//! Placeholders become parts of the record, as single arguments and without a
//! shell; commands learn the rest from their environment.

use crate::common::run;

#[track_caller]
fn prints(words: &[&str], input: &str, expected: &str) {
    let outcome = run(words, input);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, expected), "{outcome:#?}");
}

/// No record has a key, and all of these run in one line: the input's order.
const IN_ORDER: [&str; 4] = ["--no-key", "serial", "--key", "/no such text/"];

const SHOW: [&str; 3] = ["--", "printf", "[%s]"];

fn with<'w>(options: &[&'w str], more: &[&'w str]) -> Vec<&'w str> {
    [options, &SHOW, more].concat()
}

#[test]
fn the_record_is_added_when_nothing_asks_for_it() {
    prints(&with(&["--key", "1"], &["a"]), "x y\n", "[a][x y]");
    prints(&with(&["--key", "1"], &["a", "{#}"]), "x y\n", "[a][1]");
}

#[test]
fn parts_of_every_format_are_found() {
    let all = ["{}", "{key}", "{#}"];
    prints(&with(&["--key", "2"], &[&all[..], &["{2}"]].concat()), "x y\n", "[x y][y][1][y]");
    let csv = with(&["--csv", "--header", "--key", "a"], &[&all[..], &["{b b}", "{1}"]].concat());
    prints(&csv, "a,b b\nk,\"v,w\"\n", "[k,\"v,w\"][k][1][v,w][k]");
    prints(&with(&["--csv", "--key", "1"], &["{2}-{1}"]), "a,b\n", "[b-a]");
    prints(&with(&["--tsv", "--key", "1"], &["{2}"]), "a\t\"b\"\n", "[\"b\"]");
    let json = with(&["--ndjson", "--key", ".u.id"], &["{key}", "{n}", "{u}", "{s}"]);
    prints(
        &json,
        "{\"u\":{\"id\":7},\"n\":1.50,\"s\":\"\\u00e9\\n\"}\n",
        "[7][1.50][{\"id\":7}][é\n]",
    );
}

#[test]
fn words_are_never_split_or_expanded() {
    prints(&with(&["--key", "1"], &["{}"]), "$HOME; `ls` \"*\"\n", "[$HOME; `ls` \"*\"]");
    prints(&with(&["--key", "1"], &["{{}}", "{}"]), "x\n", "[{}][x]");
}

#[test]
fn the_program_itself_can_come_from_the_record() {
    let words = [&["--csv"], &IN_ORDER[..], &["--", "{1}", "{2}"]].concat();
    prints(&words, "echo,a\nprintf,b\n", "a\nb");
    let outcome = run(&["--csv", "--key", "1", "--", "{1}"], "no-such-program\ntrue\n");
    outcome.expect(1, &["record 1 (line 1, key no-such-program): the command cannot be run"]);
}

#[test]
fn commands_see_key_and_number_and_have_no_input() {
    let show = r#"echo "$KEYLANE_KEY $KEYLANE_SEQ"; cat"#;
    let words = ["--key", "1", "--", "sh", "-c", show, "sh", "{}"];
    prints(&words, "a b\na\n", "a 1\na 2\n");
}

#[test]
fn line_ends_are_kept_out_and_other_bytes_kept() {
    prints(&with(&IN_ORDER, &["{}"]), "a\r\n\n  b ", "[a\r][][  b ]");
    let csv = [&["--csv"], &IN_ORDER[..]].concat();
    prints(&with(&csv, &["{2}"]), "a,1\r\n\r\nb,2", "[1][2]");
}
