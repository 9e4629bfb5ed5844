//! Forms of the output of a run: tags, whole lines as soon as they are complete, JSON, and files.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};
use std::thread;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::common::{feed, finish, keylane, named_pipe, run};

/// The lines of JSON on standard output.
fn json(stdout: &str) -> Vec<Value> {
    stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn full() -> File {
    File::options().write(true).open("/dev/full").unwrap()
}

#[test]
fn each_line_of_both_streams_has_its_tag() {
    let script = "echo a; echo e >&2; printf 'b\\n\\nc'";
    let words = ["-j1", "--tag", "--key", "1", "--", "sh", "-c", script, "sh", "{}"];
    let outcome = run(&words, "x 1\ny\n");
    outcome.expect(0, &[]);
    assert_eq!(outcome.stdout, "x 1\ta\nx 1\tb\nx 1\t\nx 1\tcy\ta\ny\tb\ny\t\ny\tc");
    assert_eq!(outcome.stderr, "x 1\te\ny\te\n");
}

#[test]
fn a_tag_can_be_any_template() {
    let options = ["-j1", "--tagstring", "{key}#{#}", "--key", "1"];
    for form in [&[][..], &["--line-buffer"], &["-k"]] {
        let words = [&options[..], form, &["--", "echo"]].concat();
        let outcome = run(&words, "x 1\ny 2\n");
        assert_eq!(outcome.expect(0, &[]).stdout, "x#1\tx 1\ny#2\ty 2\n");
    }
    let words = [&options[..], &["--worker", "--", "cat"]].concat();
    assert_eq!(run(&words, "x 1\ny 2\n").expect(0, &[]).stdout, "x#1\tx 1\ny#2\ty 2\n");
    // A line end in a tag would begin a line without one.
    let words = ["-0", "--tag", "--key", "1", "--", "echo", "{#}"];
    assert_eq!(run(&words, "a\nb\0").expect(0, &[]).stdout, "a b\t1\n");
    let unknown = ["--tagstring", "{x}", "--key", "1", "--", "echo"];
    run(&unknown, "a\n").expect(255, &["--tagstring {x}", "`x` is no number"]);
}

#[test]
fn lines_appear_while_their_commands_run() {
    let folder = tempfile::tempdir().unwrap();
    let gate = folder.path().join("gate");
    named_pipe(&gate);
    let script = "echo begin $1; printf 'half of '; read word < GATE; echo $1; printf end-$1";
    let script = script.replace("GATE", gate.to_str().unwrap());
    let words = ["-j2", "--line-buffer", "--key", "1", "--", "sh", "-c", &script, "sh", "{}"];
    let mut run = keylane(words).spawn().unwrap();
    run.stdin.take().unwrap().write_all(b"1\n2\n").unwrap();
    let mut stdout = BufReader::new(run.stdout.take().unwrap());
    let mut begun: Vec<_> = stdout.by_ref().lines().take(2).map(Result::unwrap).collect();
    begun.sort_unstable();
    assert_eq!(begun, ["begin 1", "begin 2"]);
    let mut gate = OpenOptions::new().read(true).write(true).open(gate).unwrap();
    gate.write_all(b"go\ngo\n").unwrap();
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    finish(run).expect(0, &[]);
    // The last lines have no end, and come when their commands end.
    assert_eq!(
        ["half of 1\n", "half of 2\n"].map(|line| rest.matches(line).count()),
        [1, 1],
        "{rest}"
    );
    assert_eq!(["end-1", "end-2"].map(|end| rest.matches(end).count()), [1, 1], "{rest}");
}

#[test]
fn lines_of_several_commands_are_whole() {
    let script =
        r#"for i in 1 2 3 4 5 6 7 8; do printf $1; printf $1; echo $1; echo $1$1$1 >&2; done"#;
    let words = ["-j4", "--line-buffer", "--key", "1", "--", "sh", "-c", script, "sh", "{}"];
    let outcome = run(&words, "a\nb\nc\nd\n");
    outcome.expect(0, &[]);
    for text in [&outcome.stdout, &outcome.stderr] {
        let count = |line: &str| text.lines().filter(|one| *one == line).count();
        assert_eq!(["aaa", "bbb", "ccc", "ddd"].map(count), [8; 4], "{text}");
        assert_eq!(text.lines().count(), 32);
    }
}

#[test]
fn a_line_beyond_what_memory_should_hold_is_whole() {
    let script = r#"i=0; while [ $i -lt 300 ]; do printf "%10000s" "$1"; i=$((i + 1)); done; echo"#;
    let words = ["-j2", "--lb", "--tag", "--key", "1", "--", "sh", "-c", script, "sh", "{}"];
    let outcome = run(&words, "a\nb\n");
    outcome.expect(0, &[]);
    let lines: Vec<_> = outcome.stdout.lines().collect();
    assert_eq!(lines.len(), 2);
    for line in lines {
        let (tag, text) = line.split_once('\t').unwrap();
        assert!(text.len() == 3_000_000 && text.split_whitespace().all(|word| word == tag));
    }
}

#[test]
fn a_line_of_json_has_all_of_an_attempt() {
    let script = r#"printf 'out "%s"\n' "$1"; printf 'err' >&2; test $KEYLANE_ATTEMPT = 2"#;
    let words = ["--output-format", "ndjson", "--attempts", "2", "--backoff", "1ms", "--key", "1"];
    let words = [&words[..], &["--", "sh", "-c", script, "sh", "{2}"]].concat();
    let outcome = run(&words, "k é\t\n");
    outcome.expect(0, &["record 1 (line 1, key k): attempt 1 of 2 failed: exit status 1"]);
    assert!(!outcome.stderr.contains("err\n"), "{outcome:#?}");
    let lines = json(&outcome.stdout);
    assert_eq!(lines.len(), 2);
    for (line, (attempt, exit)) in lines.iter().zip([(1, 1), (2, 0)]) {
        assert_eq!(line["place"], 1);
        assert_eq!(
            (&line["key"], &line["stdout"], &line["stderr"]),
            (&"k".into(), &"out \"é\"\n".into(), &"err".into())
        );
        assert_eq!((&line["attempt"], &line["exit"]), (&attempt.into(), &exit.into()));
        assert!(line["start_us"].as_u64() > Some(1_600_000_000_000_000), "{line}");
        assert!(line["start_us"].as_u64() <= line["end_us"].as_u64(), "{line}");
    }
}

#[test]
fn json_has_other_bytes_signals_and_reasons() {
    let script = r#"case $1 in 1) printf 'a\377';; 2) kill -KILL $$;; esac"#;
    let words = ["-k", "--output-format", "ndjson", "--csv", "--key", "1"];
    let words = [&words[..], &["--", "sh", "-c", script, "sh", "{2}"]].concat();
    let outcome = run(&words, b"\xffx,1\n,2\nk,\0\n");
    outcome.expect(2, &[]);
    let lines = json(&outcome.stdout);
    let decoded = STANDARD.decode(lines[0]["stdout_base64"].as_str().unwrap()).unwrap();
    assert_eq!((decoded.as_slice(), &lines[0]["key_hex"]), (&b"a\xff"[..], &"ff78".into()));
    assert_eq!(
        (&lines[1]["signal"], lines[1].get("exit"), lines[1].get("key")),
        (&9.into(), None, None)
    );
    assert!(lines[2]["error"].as_str().unwrap().contains("it has a NUL byte"), "{}", lines[2]);
    let words = ["--output-format", "ndjson", "--ndjson", "--key", ".k", "--", "echo", "{v}"];
    let outcome = run(&words, "{\"k\":1}\n");
    outcome.expect(1, &[]);
    assert_eq!(
        json(&outcome.stdout)[0]["error"].as_str().unwrap().split(';').next(),
        Some("it has no field `v`")
    );
}

#[test]
fn answers_of_workers_are_lines_of_json() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let script =
        r#"while read -r line; do case $line in *end*) exit;; *) echo "<$line>";; esac; done"#;
    // With a log, a record of the key is sent after the end of the one before.
    let words = ["-k", "-j1", "--output-format", "ndjson", "--key", "1", "--worker", "--log"];
    let words = [&words[..], &[log.to_str().unwrap(), "--", "sh", "-c", script]].concat();
    let outcome = run(&words, "a 1\na 2\na end\na 4\n");
    outcome.expect(1, &["record 3 (line 3, key a): its worker ended"]);
    let lines = json(&outcome.stdout);
    let of = |name: &str| lines.iter().map(|line| line[name].clone()).collect::<Vec<_>>();
    assert_eq!(of("place"), [1, 2, 3, 4]);
    assert_eq!(of("key"), ["a"; 4]);
    assert_eq!(lines[3]["stdout"], "<a 4>\n");
    assert!(lines[2]["error"].as_str().unwrap().starts_with("its worker ended without answering"));
}

#[test]
fn results_are_in_a_folder_for_each_record_whatever_its_key_is() {
    let folder = tempfile::tempdir().unwrap();
    let results = folder.path().join("results");
    fs::create_dir_all(results.join("2")).unwrap();
    fs::write(results.join("2/stdout"), "a longer text of an earlier run").unwrap();
    let script = r#"echo out $KEYLANE_ATTEMPT; echo err >&2; test $1 != 2 -o $KEYLANE_ATTEMPT = 2"#;
    let mut command =
        keylane(["-j1", "--attempts", "2", "--backoff", "1ms", "--key", "1", "--results"]);
    command.arg(&results).args(["--", "sh", "-c", script, "sh", "{2}"]);
    let outcome = feed(command, b"../../x 1\n/\xff 2\n");
    outcome.expect(0, &[]);
    assert_eq!(outcome.stdout, "out 1\nout 1\nout 2\n");
    let read = |path: &str| fs::read_to_string(results.join(path)).unwrap();
    assert_eq!([read("1/stdout"), read("1/stderr"), read("1/seq")], ["out 1\n", "err\n", "1"]);
    assert_eq!([read("2/stdout"), read("2/seq")], ["out 2\n", "2"]);
    let report = |path: &str| serde_json::from_str::<Value>(&read(path)).unwrap();
    assert_eq!(
        (&report("1/result.json")["key"], &report("1/result.json")["exit"]),
        (&"../../x".into(), &0.into())
    );
    assert_eq!(
        (&report("2/result.json")["key_hex"], &report("2/result.json")["attempt"]),
        (&"2fff".into(), &2.into())
    );
    let mut names: Vec<_> =
        fs::read_dir(&results).unwrap().map(|one| one.unwrap().file_name()).collect();
    names.sort();
    assert!(names.iter().map(|name| name.as_bytes()).eq([b"1", b"2"]), "{names:?}");
}

/// What appears has the form of the run, and files have what the command printed.
#[test]
fn results_come_beside_every_form_of_output() {
    let json = r#""exit":0,"stdout":"x\ny","stderr":"e\n"}"#;
    for (options, expected) in [
        (&["--line-buffer"][..], "x\ny"),
        (&["-k", "--tag"], "a 1\tx\na 1\ty"),
        (&["--lb", "--tagstring", "{#}"], "1\tx\n1\ty"),
        (&["-k", "--output-format", "ndjson"], json),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let script = r"printf 'x\ny'; echo e >&2";
        let mut command = keylane([&["--key", "1"][..], options, &["--results"]].concat());
        command.arg(folder.path()).args(["--", "sh", "-c", script]);
        let outcome = feed(command, b"a 1\n");
        outcome.expect(0, &[]);
        assert!(outcome.stdout.trim_end().ends_with(expected), "{options:?} {outcome:#?}");
        let read = |name: &str| fs::read_to_string(folder.path().join("1").join(name)).unwrap();
        assert_eq!([read("stdout"), read("stderr")], ["x\ny", "e\n"], "{options:?}");
        let report: Value = serde_json::from_str(&read("result.json")).unwrap();
        assert_eq!((&report["place"], &report["exit"]), (&1.into(), &0.into()));
    }
}

/// GNU parallel writes its results to such a file.
#[test]
fn the_name_of_a_file_is_no_folder_for_results() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["r.csv", "r.tsv", "r.json"] {
        let results = folder.path().join(name);
        let words = ["--key", "1", "--results", results.to_str().unwrap(), "--", "echo"];
        run(&words, "a\n").expect(255, &[name, "name of a file", "--output-format ndjson"]);
        assert!(!results.exists());
        // A folder of this name is one.
        fs::create_dir(&results).unwrap();
        run(&words, "a\n").expect(0, &[]);
    }
}

#[test]
fn results_that_cannot_be_written_end_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let words = ["--key", "1", "--results", file.to_str().unwrap(), "--", "echo"];
    let outcome = run(&words, "a\n");
    outcome.expect(255, &["--results: cannot create the folder", "name another"]);
    assert_eq!(outcome.stdout, "");
    let script =
        "ulimit -f 100; exec \"$0\" run --key 1 --results \"$1\" -- head -c 900000 /dev/zero";
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_keylane")]).arg(folder.path().join("results"));
    command.env("TMPDIR", folder.path()).stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    feed(command, b"1\n")
        .expect(255, &["cannot write results to", "results/1; make room on its disk"]);
}

#[test]
fn options_that_contradict_each_other_are_refused_with_the_reason() {
    for (options, said) in [
        ("--lb --output-format ndjson", "a line for each attempt that has ended; keep one"),
        ("--tag --output-format ndjson", "--tag and --tagstring are for --output-format text"),
        (
            "--tagstring x --output-format ndjson",
            "--tag and --tagstring are for --output-format text",
        ),
        ("--tag --tagstring x", "cannot be used with"),
        ("--lb --worker", "--line-buffer cannot be used with --worker: each answer is a line"),
        ("--results /tmp/x --worker", "--results cannot be used with --worker"),
    ] {
        let words: Vec<_> = options.split(' ').chain(["--key", "1", "--", "cat"]).collect();
        let outcome = run(&words, "a\n");
        outcome.expect(255, &[said]);
        assert_eq!(outcome.stdout, "", "{options}");
    }
}

#[test]
fn a_reader_that_has_had_enough_ends_a_run_of_any_form_quietly() {
    for options in [&["--line-buffer"][..], &["--tag"], &["--output-format", "ndjson"]] {
        let words = [&["-j2", "--key", "1"][..], options, &["--", "echo"]].concat();
        let mut child = keylane(words).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let source = thread::spawn(move || while stdin.write_all(b"record\n").is_ok() {});
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        drop(stdout);
        let outcome = finish(child);
        assert!(line.contains("record") && outcome.code == 141, "{options:?} {line} {outcome:#?}");
        source.join().unwrap();
    }
}

#[test]
fn a_full_disk_is_named_in_any_form() {
    for options in [&["--line-buffer"][..], &["--tag"], &["--output-format", "ndjson"]] {
        let words = [&["--key", "1"][..], options, &["--", "echo"]].concat();
        let mut command = keylane(words);
        command.stdout(full());
        feed(command, b"a\nb\n").expect(255, &["cannot write to standard output"]);
    }
}
