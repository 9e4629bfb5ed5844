//! Uses of GNU parallel that its documentation shows, with the output that it documents: the same records and options
//! give the same output. Its inputs behind `:::` are lines here. Each needs an order to have one output, so each keeps
//! the order of the input.

use std::fs;
use std::path::Path;

use crate::common::{feed, keylane};

/// Runs a command on these records, and compares all of its output.
#[track_caller]
fn prints(options: &[&str], input: &str, command: &[&str], expected: &str) {
    let words = [&["-k", "--key", "/^$/"], options, &["--"], command].concat();
    let outcome = feed(keylane(words), input.as_bytes());
    outcome.expect(0, &[]);
    assert_eq!(outcome.stdout, expected, "{outcome:#?}");
}

const ABC: &str = "A\nB\nC\n";
const TSV: &str = "f1\tf2\nA\tB\nC\tD\n";

#[test]
fn records_from_standard_input_a_file_and_with_nul() {
    prints(&[], ABC, &["echo"], "A\nB\nC\n");
    prints(&["-0"], "A\0B\0C\0", &["echo"], "A\nB\nC\n");
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("abc-file"), ABC).unwrap();
    fs::write(folder.path().join("def-file"), "D\nE\nF\n").unwrap();
    let mut command = keylane(["-k", "--key", "/^$/", "abc-file", "-", "def-file", "--", "echo"]);
    command.current_dir(folder.path());
    assert_eq!(feed(command, b"x\n").stdout, "A\nB\nC\nx\nD\nE\nF\n");
}

#[test]
fn replacement_strings() {
    for (placeholder, expected) in
        [("{}", "A/B.C\n"), ("{.}", "A/B\n"), ("{/}", "B.C\n"), ("{//}", "A\n"), ("{/.}", "B\n")]
    {
        prints(&[], "A/B.C\n", &["echo", placeholder], expected);
    }
    prints(&[], ABC, &["echo", "{#}"], "1\n2\n3\n");
    prints(&[], ABC, &["echo", "{} {#} {}"], "A 1 A\nB 2 B\nC 3 C\n");
}

#[test]
fn positional_replacement_strings() {
    let command = ["echo", "/={1/} //={1//} /.={1/.} .={1.}"];
    let expected = "/=B.C //=A /.=B .=A/B\n/=E.F //=D /.=E .=D/E\n";
    prints(&[], "A/B.C\nD/E.F\n", &command, expected);
}

#[test]
fn columns_by_number_and_by_name() {
    let by_number = "1=f1 2=f2\n1=A 2=B\n1=C 2=D\n";
    prints(&["--tsv"], TSV, &["echo", "1={1} 2={2}"], by_number);
    let command = ["echo", "f1={f1} f2={f2}"];
    prints(&["--tsv", "--header"], TSV, &command, "f1=A f2=B\nf1=C f2=D\n");
}

#[test]
fn tags() {
    prints(&["--tag"], ABC, &["echo", "foo-{}"], "A\tfoo-A\nB\tfoo-B\nC\tfoo-C\n");
    let expected = "A-bar\tfoo-A\nB-bar\tfoo-B\nC-bar\tfoo-C\n";
    prints(&["--tagstring", "{}-bar"], ABC, &["echo", "foo-{}"], expected);
}

/// Three lines, the second in two parts. The first record ends last.
const START_MIDDLE_END: &str =
    "printf '%s-start\\n%s' $1 $1; $2; printf '%s\\n' -middle; echo $1-end; $3";

#[test]
fn output_keeps_the_order_of_the_input() {
    let folder = tempfile::tempdir().unwrap();
    let ended = folder.path().join("ended");
    // The first record waits for the end of the last one.
    let script = START_MIDDLE_END
        .replace("$2", "test $1 != 4 || until test -e ENDED; do :; done")
        .replace("$3", "test $1 != 1 || touch ENDED")
        .replace("ENDED", ended.to_str().unwrap());
    let group = |number| format!("{number}-start\n{number}-middle\n{number}-end\n");
    let expected = [group(4), group(2), group(1)].concat();
    prints(&["-j2"], "4\n2\n1\n", &["sh", "-c", &script, "sh", "{}"], &expected);
}

#[test]
fn results_are_in_files() {
    let folder = tempfile::tempdir().unwrap();
    let results = folder.path().join("outdir");
    let option = ["--results", results.to_str().unwrap()];
    prints(&option, ABC, &["echo"], ABC);
    let text = |path: &str| fs::read_to_string(Path::new(&results).join(path)).unwrap();
    for (number, line) in [("1", "A\n"), ("2", "B\n"), ("3", "C\n")] {
        assert_eq!(text(&format!("{number}/stdout")), line);
        assert_eq!(text(&format!("{number}/stderr")), "");
        assert_eq!(text(&format!("{number}/seq")), number);
    }
}

#[test]
fn the_exit_code_is_the_number_of_failures() {
    let failing = |input: &str| {
        let words = ["--key", "/^$/", "--", "sh", "-c", "exit $1", "sh", "{}"];
        feed(keylane(words), input.as_bytes()).code
    };
    assert_eq!(failing("0\n0\n"), 0);
    assert_eq!(failing("0\n1\n2\n3\n"), 3);
    assert_eq!(failing(&"1\n".repeat(103)), 101);
}
