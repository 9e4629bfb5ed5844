//! Records with several keys, shared keys, barriers, limits and replacements keep the order that the
//! options promise.

use std::fs;
use std::io::{BufRead, BufReader, Write};

use serde_json::Value;

use crate::common::{finish, keylane, named_pipe, run, subcommand};

/// Lines of a log without its header, by the number of the record.
fn logged(path: &std::path::Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    let mut lines: Vec<Value> =
        text.lines().skip(1).map(|line| serde_json::from_str(line).unwrap()).collect();
    lines.sort_by_key(|line| line["place"].as_u64());
    lines
}

#[test]
fn a_record_waits_for_the_earlier_ones_of_all_its_keys() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    // Two accounts and a list of further ones in each, of 7 in total.
    let record = |n: u32| {
        let account = |factor: u32| n.wrapping_mul(2_654_435_761).rotate_left(factor * 5) % 7;
        serde_json::json!({"from": account(1), "to": [account(2), account(3)], "n": n}).to_string()
    };
    let input: String = (0..300).map(|n| record(n) + "\n").collect();
    let path = log.to_str().unwrap();
    let words =
        ["-j8", "--ndjson", "--key", ".from", "--key", ".to[]", "--log", path, "--", "true"];
    run(&words, &input).expect(0, &[]);
    let lines = logged(&log);
    assert_eq!(lines.len(), 300);
    assert!(lines.iter().any(|line| line["keys"].as_array().is_some_and(|keys| keys.len() > 1)));
    for (line, n) in lines.iter().zip(0..) {
        let record: Value = serde_json::from_str(&record(n)).unwrap();
        let text = |value: &Value| value.to_string();
        let keys: Vec<_> = std::iter::once(text(&record["from"]))
            .chain(record["to"].as_array().unwrap().iter().map(text))
            .collect();
        let logged = line["keys"].as_array().expect("several keys").iter();
        assert_eq!(logged.map(|key| key.as_str().unwrap()).collect::<Vec<_>>(), keys);
    }
    finish(subcommand("verify", [path]).spawn().unwrap()).expect(0, &[]);
}

#[test]
fn records_that_share_a_key_run_together_and_wait_for_one_that_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let (pipe, log) = (folder.path().join("pipe"), folder.path().join("log"));
    named_pipe(&pipe);
    // Readers 1 and 2 meet, so they run at the same time. The writer comes after both.
    let meet = r#"
        case $2 in
            1) echo met > "$1" ;;
            2) read -r word < "$1" ;;
        esac"#;
    let input = "1 read - d\n2 read - d\n3 write d -\n4 read - d\n";
    let words = [
        "-j4",
        "--key",
        "3",
        "--shared-key",
        "4",
        "--null-value",
        "-",
        "--log",
        log.to_str().unwrap(),
        "--",
        "sh",
        "-c",
        meet,
        "sh",
        pipe.to_str().unwrap(),
        "{1}",
    ];
    run(&words, input).expect(0, &[]);
    let lines = logged(&log);
    let time = |n: usize, name: &str| lines[n - 1][name].as_i64().unwrap();
    assert_eq!(lines[0]["shared_keys"], serde_json::json!(["d"]));
    assert_eq!(lines[2]["key"], "d");
    assert!(time(3, "start_us") >= time(1, "end_us").max(time(2, "end_us")));
    assert!(time(4, "start_us") >= time(3, "end_us"));
}

#[test]
fn a_barrier_is_alone_between_all_before_and_all_behind() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let input: String = (1..=60)
        .map(|n| if n % 20 == 0 { format!("end {n}\n") } else { format!("k{} {n}\n", n % 6) })
        .collect();
    for condition in ["1=end", "/^end /"] {
        let path = log.to_str().unwrap();
        let words =
            ["-j6", "--key", "1", "--barrier", condition, "--log", path, "--", "true", "{}"];
        run(&words, &input).expect(0, &[]);
        let lines = logged(&log);
        for barrier in [20, 40, 60] {
            let time = |line: &Value, name: &str| line[name].as_i64().unwrap();
            let it = &lines[barrier - 1];
            assert_eq!(it["barrier"], true);
            assert!(lines[..barrier - 1].iter().all(|e| time(e, "end_us") <= time(it, "start_us")));
            assert!(lines[barrier..].iter().all(|l| time(l, "start_us") >= time(it, "end_us")));
        }
        finish(subcommand("verify", [path]).spawn().unwrap()).expect(0, &[]);
        fs::remove_file(&log).unwrap();
    }
}

#[test]
fn a_limit_lets_that_many_records_of_a_key_run_at_once_and_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    named_pipe(&pipe);
    // The first two records of each key meet; a third one beside them would find both seats taken.
    let seats = r#"
        if mkdir "$1/seat1" 2> /dev/null; then seat=seat1
        elif mkdir "$1/seat2" 2> /dev/null; then seat=seat2
        else exit 1
        fi
        case $2 in
            1) echo met > "$1/pipe" ;;
            2) read -r word < "$1/pipe" ;;
        esac
        rmdir "$1/$seat""#;
    let input: String = (1..=40).map(|n| format!("k {n}\n")).collect();
    let path = folder.path().to_str().unwrap();
    let words =
        ["-j6", "--key", "1", "--limit-per-key", "2", "--", "sh", "-c", seats, "sh", path, "{2}"];
    run(&words, input).expect(0, &[]);
}

#[test]
fn the_latest_record_of_a_key_replaces_the_one_that_waits() {
    let folder = tempfile::tempdir().unwrap();
    let (begun, pipe) = (folder.path().join("begun"), folder.path().join("pipe"));
    named_pipe(&begun);
    named_pipe(&pipe);
    // `b` is read after all records of `a`, of which the first runs until then.
    let meet = r#"
        case $2 in
            a1) echo yes > "$1/begun"; read -r word < "$1/pipe" ;;
            b) echo met > "$1/pipe" ;;
        esac
        echo "$2""#;
    let path = folder.path().to_str().unwrap();
    let words = ["-j2", "--key", "/^./", "--latest", "--", "sh", "-c", meet, "sh", path, "{}"];
    let mut child = keylane(words).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"a1\n").unwrap();
    assert_eq!(fs::read_to_string(&begun).unwrap(), "yes\n");
    stdin.write_all(b"a2\na3\na4\nb\n").unwrap();
    drop(stdin);
    let outcome = finish(child);
    outcome.expect(0, &["replaced: 2 records by a later one of the key"]);
    assert_eq!(outcome.sorted(), ["a1", "a4", "b"]);
}

#[test]
fn a_rate_holds_records_back() {
    for rate in ["--rate", "--rate-per-key"] {
        let words = ["-j2", "--key", "1", rate, "1/h", "--", "echo", "{}"];
        let mut child = keylane(words).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(b"a\na\n").unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        assert_eq!(line, "a\n");
        let pid = rustix::process::Pid::from_child(&child);
        // Not INT, which everything that a shell starts in the background ignores.
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        drop(stdin);
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut stdout, &mut rest).unwrap();
        assert_eq!(rest, "");
        finish(child).expect(143, &["not run: 1 record that had been read ahead"]);
    }
}

#[test]
fn options_that_contradict_each_other_are_refused_with_the_remedy() {
    let refused = |words: &[&str], said: &[&str]| {
        let words = words.iter().copied().chain(["--", "true"]).collect::<Vec<_>>();
        run(&words, "").expect(255, said);
    };
    refused(&["--key", "1", "--key", "2", "--latest"], &["give --key once"]);
    refused(&["--key", "1", "--latest", "--limit-per-key", "2"], &["cannot be used with"]);
    refused(&["--key", "1", "--barrier", "end"], &["--barrier end", "FIELD=VALUE"]);
    refused(&["--key", ".a[]"], &["--key .a[]", "--ndjson"]);
    refused(&["--key", "1", "--rate", "5"], &["100/s"]);
    refused(
        &["--key", "1", "--timeout", "1s", "--worker"],
        &["--timeout is for commands, and a worker runs on; give --worker-timeout"],
    );
    refused(&["--barrier", "1=end"], &["--key <KEY>"]);
}
