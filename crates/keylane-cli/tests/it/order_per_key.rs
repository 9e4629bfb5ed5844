//! Records of a key run in order and never at the same time; records of
//! different keys do not wait for each other.

use std::fs;

use crate::common::{named_pipe, run};

/// Appends to a file per key, and complains if another record of the key is
/// running: `mkdir` fails if the folder is there already.
const LOG: &str = r#"
    mkdir "$1/$2.busy" || exit 1
    echo "$3" >> "$1/$2.log"
    rmdir "$1/$2.busy""#;

#[test]
fn one_at_a_time_is_the_order_of_the_input() {
    let lines: String = (0..400).map(|n| format!("k{} {n}\n", n % 50)).collect();
    let expected: String = (0..400).map(|n| format!("k{} {n}\n", n % 50)).collect();
    let echo = ["-j1", "--key", "1", "--", "echo", "{key}", "{2}"];
    let worker = ["-j1", "--key", "1", "--worker", "--", "cat"];
    for words in [&echo[..], &worker] {
        let outcome = run(words, &lines);
        outcome.expect(0, &[]);
        assert_eq!(outcome.stdout, expected, "{words:?}");
    }
}

#[test]
fn a_key_is_in_order_and_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let records: Vec<_> = (0..300).map(|n| (n * n % 7, n)).collect();
    let input: String = records.iter().map(|(key, n)| format!("k{key} {n}\n")).collect();
    let words = ["-j8", "--key", "1", "--", "sh", "-c", LOG, "sh", path, "{key}", "{2}"];
    run(&words, input).expect(0, &[]);
    for key in 0..7 {
        let expected: String = records
            .iter()
            .filter(|record| record.0 == key)
            .map(|record| format!("{}\n", record.1))
            .collect();
        let log = fs::read_to_string(folder.path().join(format!("k{key}.log")));
        assert_eq!(log.unwrap_or_default(), expected, "k{key}");
    }
}

#[test]
fn different_keys_run_at_the_same_time() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    named_pipe(&pipe);
    // Each side of the pipe waits for the other to be there.
    let meet = r#"if [ "$2" = a ]; then echo met > "$1"; else read -r word < "$1"; fi"#;
    let path = pipe.to_str().unwrap();
    run(&["-j2", "--key", "1", "--", "sh", "-c", meet, "sh", path, "{}"], "a\nb\n").expect(0, &[]);
}

#[test]
fn a_record_that_waits_for_its_key_holds_up_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    named_pipe(&pipe);
    // a1 ends only when b has run, although a2 and a3 are in line before b.
    let meet = r#"
        case $2 in
            a1) read -r word < "$1" ;;
            b) echo met > "$1" ;;
        esac
        echo "$2""#;
    let path = pipe.to_str().unwrap();
    let words = ["-j2", "--key", "/^./", "--", "sh", "-c", meet, "sh", path, "{}"];
    let outcome = run(&words, "a1\na2\na3\nb\n");
    outcome.expect(0, &[]);
    let of_a: Vec<_> = outcome.stdout.lines().filter(|line| line.starts_with('a')).collect();
    assert_eq!(of_a, ["a1", "a2", "a3"]);
}

#[test]
fn records_without_key_are_unordered_or_in_one_line_as_chosen() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    named_pipe(&pipe);
    let meet = r#"if [ "$2" = 1 ]; then echo met > "$1"; else read -r word < "$1"; fi"#;
    let path = pipe.to_str().unwrap();
    let words = [
        "-j2",
        "--csv",
        "--key",
        "1",
        "--null-value",
        "NA",
        "--",
        "sh",
        "-c",
        meet,
        "sh",
        path,
        "{2}",
    ];
    run(&words, "NA,1\nNA,2\n").expect(0, &[]);

    let serial = ["-j8", "--csv", "--key", "1", "--no-key", "serial", "--", "echo", "{2}"];
    let input: String = (0..50).map(|number| format!(",{number}\n")).collect();
    let expected: String = (0..50).map(|number| format!("{number}\n")).collect();
    assert_eq!(run(&serial, input).expect(0, &[]).stdout, expected);
}

#[test]
fn a_run_in_which_no_record_has_a_key_says_so() {
    let words = ["--ndjson", "--key", ".user.idd", "--", "true"];
    run(&words, "{\"user\":{\"id\":1}}\n{}\n").expect(0, &["none of the 2 records had a key"]);
}
