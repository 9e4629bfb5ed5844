//! `keylane run` continues from the log of an interrupted run: each record runs once, in order per key, and an input or
//! options that do not fit are refused before any command starts.

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use flate2::Compression;
use flate2::write::GzEncoder;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::common::{Outcome, finish, keylane, named_pipe, run, subcommand};

/// A folder with an input file, and a log.
struct Stage(tempfile::TempDir);

impl Stage {
    fn new(input: &str) -> Self {
        let stage = Stage(tempfile::tempdir().unwrap());
        fs::write(stage.path("input"), input).unwrap();
        named_pipe(&stage.path("gate"));
        stage
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// The words of a run with the log, whose command is `sh -c SCRIPT sh FOLDER RECORD`.
    fn words(&self, options: &[&str], script: &str) -> Vec<String> {
        let (log, input) = (self.path("log"), self.path("input"));
        let own = ["--key", "1", "--log", log.to_str().unwrap()].map(str::to_owned);
        let command = [input.to_str().unwrap(), "--", "sh", "-c", script, "sh"];
        let command = command.into_iter().chain([self.0.path().to_str().unwrap(), "{}"]);
        own.into_iter().chain(options.iter().copied().chain(command).map(str::to_owned)).collect()
    }

    #[track_caller]
    fn run(&self, options: &[&str], script: &str) -> Outcome {
        self.finish(&mut keylane(self.words(options, script)))
    }

    /// Runs to the end. Once the run starts no further record, opens the gate.
    #[track_caller]
    fn finish(&self, command: &mut Command) -> Outcome {
        let mut child = command.spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut text = String::new();
        let mut line = 0;
        while said.read_line(&mut text).unwrap() > 0 {
            if text[line..].contains("stopping; ") {
                fs::write(self.path("gate"), "open\n").unwrap();
            }
            line = text.len();
        }
        Outcome { stderr: text, ..finish(child) }
    }

    /// Lines of the log about records.
    fn lines(&self) -> Vec<Value> {
        let text = self.text("log");
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.filter(|line| line.get("keylane_log").is_none()).collect()
    }

    /// Place and result of each line of the log.
    fn results(&self) -> Vec<(u64, String)> {
        let of = |line: &Value| {
            (line["place"].as_u64().unwrap(), line["result"].as_str().unwrap().to_owned())
        };
        self.lines().iter().map(of).collect()
    }

    fn append(&self, name: &str, text: &str) {
        let mut file = OpenOptions::new().append(true).open(self.path(name)).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    #[track_caller]
    fn verify(&self) {
        let log = self.path("log");
        finish(subcommand("verify", [&log]).spawn().unwrap()).expect(0, &[]);
    }
}

/// Notes the record, and ends the run at `stop` the first time: returns when no further record starts.
const STOP_ONCE: &str = r#"
    echo "$2" >> "$1/ran"
    case $2 in *stop*)
        if mkdir "$1/stopped" 2> /dev/null; then kill -TERM $PPID; read -r word < "$1/gate"; fi ;;
    esac
    case $2 in *fail*) exit 3 ;; esac"#;

#[test]
fn a_run_that_was_interrupted_continues_at_the_first_unfinished_record() {
    let input = "a 1\na 2 fail\na 3 stop\na 4\na 5\n";
    let stage = Stage::new(input);
    let not_run =
        "not run: 2 records that had been read ahead; the same command with --resume continues";
    stage.run(&["-j1"], STOP_ONCE).expect(143, &[not_run]);
    assert_eq!(stage.text("ran"), "a 1\na 2 fail\na 3 stop\n");
    let said =
        "continuing after 3 records that ended in earlier runs; 1 failed (--retry-failed runs";
    stage.run(&["-j1", "--resume"], STOP_ONCE).expect(0, &[said]);
    assert_eq!(stage.text("ran"), input);
    let done = |place| (place, "done".to_owned());
    let failed = (2, "failed".to_owned());
    assert_eq!(stage.results(), [done(1), failed, done(3), done(4), done(5)]);
    stage.verify();
    // Several in a row, also with nothing left.
    stage.run(&["-j1", "--resume"], STOP_ONCE).expect(0, &[]);
    assert_eq!(stage.text("ran"), input);
    // An input that has grown is continued.
    stage.append("input", "a 6\n");
    stage.run(&["-j1", "--resume"], STOP_ONCE).expect(0, &[]);
    assert_eq!(stage.text("ran"), format!("{input}a 6\n"));
}

#[test]
fn failed_records_run_again_in_order_and_alone() {
    let stage = Stage::new("a 1\na 2 fail\nb 3 fail\na 4 fail\na 5\n");
    let script = r#"echo "$2" >> "$1/ran"; case $2 in *fail*) [ -e "$1/repaired" ] ;; esac"#;
    stage.run(&["-j1"], script).expect(3, &[]);
    fs::remove_file(stage.path("ran")).unwrap();
    stage.run(&["-j1", "--retry-failed"], script).expect(3, &["; 3 failed and run again"]);
    assert_eq!(stage.text("ran"), "a 2 fail\nb 3 fail\na 4 fail\n");
    fs::write(stage.path("repaired"), "").unwrap();
    stage.run(&["-j2", "--retry-failed"], script).expect(0, &[]);
    fs::remove_file(stage.path("ran")).unwrap();
    stage.run(&["-j2", "--retry-failed"], script).expect(0, &[]);
    assert_eq!(stage.text("ran"), "");
    assert_eq!(stage.lines().last().unwrap()["rerun"], 3);
    stage.verify();
}

#[test]
fn unfinished_records_are_left_to_resume_and_both_can_run_together() {
    let input = "a 1 fail\nb 2 stop\na 3\n";
    let stage = Stage::new(input);
    stage.run(&["-j1"], STOP_ONCE).expect(143, &[]);
    stage.run(&["-j1", "--retry-failed"], STOP_ONCE).expect(1, &[]);
    assert_eq!(stage.text("ran"), "a 1 fail\nb 2 stop\na 1 fail\n");
    stage.run(&["-j1", "--retry-failed", "--resume"], STOP_ONCE).expect(1, &[]);
    assert_eq!(stage.text("ran"), "a 1 fail\nb 2 stop\na 1 fail\na 1 fail\na 3\n");
    stage.verify();
}

#[test]
fn an_input_that_was_changed_or_moved_is_refused_before_any_command_starts() {
    let input = "a 1\na 2\nb 3\na 4 stop\nb 5\n";
    for (changed, place) in [
        ("a 1\na x\nb 3\na 4 stop\nb 5\n", "input:2: this is not the record 2 of the log"),
        ("new\na 1\na 2\nb 3\na 4 stop\nb 5\n", "input:1: this is not the record 1 of the log"),
        ("a 2\nb 3\na 4 stop\nb 5\n", "input:1: this is not the record 1 of the log"),
        ("a 1\na 2\nb 3\n", "ends after record 3, and the log has record 4"),
    ] {
        let stage = Stage::new(input);
        stage.run(&["-j1"], STOP_ONCE).expect(143, &[]);
        let ran = stage.text("ran");
        let log = stage.text("log");
        fs::write(stage.path("input"), changed).unwrap();
        stage.run(&["--resume"], STOP_ONCE).expect(255, &[place, "another --log file"]);
        assert_eq!((stage.text("ran"), stage.text("log")), (ran, log));
        fs::write(stage.path("input"), input).unwrap();
        stage.run(&["--resume"], STOP_ONCE).expect(0, &[]);
    }
    // The log does not know a record that was removed, and knows one behind it.
    let stage = Stage::new("a 1 fail\na 2\nb 3 stop\nb 4\n");
    stage.run(&["-j1", "--on-fail", "stop-key"], STOP_ONCE).expect(143, &[]);
    assert_eq!(stage.results().len(), 2);
    let ran = stage.text("ran");
    fs::write(stage.path("input"), "a 1 fail\nb 3 stop\nb 4\n").unwrap();
    stage.run(&["--resume"], STOP_ONCE).expect(255, &["input:3: this is not the record 3"]);
    assert_eq!(stage.text("ran"), ran);
}

#[test]
fn other_options_for_records_and_keys_are_refused() {
    let stage = Stage::new("a 1\n");
    stage.run(&[], STOP_ONCE).expect(0, &[]);
    for (option, said) in [
        (&["--key", "2"][..], "--key was [\"1\"], and now is [\"1\",\"2\"]"),
        (&["--tsv"], "input format was \"lines\", and now is \"tsv\""),
        (&["--null-value", "x"], "--null-value was [], and now is [\"x\"]"),
        (&["--no-key", "serial"], "--no-key was \"unordered\", and now is \"serial\""),
        (&["--barrier", "1=x"], "--barrier was null, and now is \"1=x\""),
        (&["--shared-key", "2"], "--shared-key was [], and now is [\"2\"]"),
    ] {
        let words: Vec<_> = option.iter().copied().chain(["--resume"]).collect();
        stage.run(&words, STOP_ONCE).expect(255, &[said, "give the options of the first run"]);
    }
    stage.run(&["--resume", "-j3", "--on-fail", "skip"], STOP_ONCE).expect(0, &[]);
    let header: Value = serde_json::from_str(stage.text("log").lines().next().unwrap()).unwrap();
    assert_eq!((&header["keylane_log"], &header["run"]), (&2.into(), &1.into()));
    assert_eq!(stage.text("ran"), "a 1\n");
}

#[test]
fn a_renamed_column_is_refused() {
    let stage = Stage::new("k,v\na,1\nb,2\n");
    let table = ["--csv", "--header"];
    stage.run(&table, STOP_ONCE).expect(0, &[]);
    fs::write(stage.path("input"), "k,w\na,1\nb,2\n").unwrap();
    stage
        .run(&["--csv", "--header", "--resume"], STOP_ONCE)
        .expect(255, &["columns was [\"k\",\"v\"], and now is [\"k\",\"w\"]"]);
}

#[test]
fn a_torn_last_line_is_cut_and_other_damage_is_named() {
    let input = "a 1\na 2 stop\na 3\n";
    let stage = Stage::new(input);
    stage.run(&["-j1"], STOP_ONCE).expect(143, &[]);
    let whole = stage.text("log");
    // The line of record 2 is torn, so that it runs again.
    let torn = whole.trim_end().len() - 20;
    fs::write(stage.path("log"), &whole[..torn]).unwrap();
    stage.run(&["-j1", "--resume"], STOP_ONCE).expect(0, &[]);
    assert_eq!(stage.text("ran"), "a 1\na 2 stop\na 2 stop\na 3\n");
    assert_eq!(stage.results().len(), 3);
    stage.verify();
    // Not even the header was written whole.
    fs::write(stage.path("log"), &whole[..20]).unwrap();
    stage.run(&["-j1", "--resume"], STOP_ONCE).expect(0, &[]);
    assert_eq!(stage.results().len(), 3);
    for (damage, said) in [
        (whole.replacen("\"place\":1", "\"place\":", 1), "line 2: it is damaged"),
        (whole.replacen("\"place\":1,", "", 1), "line 2: `place`, `hash` or `result` is missing"),
        (
            whole.replacen("\"keylane_log\":2", "\"keylane_log\":9", 1),
            "line 1: its format has version 9",
        ),
        (whole.lines().skip(1).map(|line| line.to_owned() + "\n").collect(), "line 1: no header"),
        (
            whole.clone()
                + &whole.lines().last().unwrap().replacen("\"hash\":\"", "\"hash\":\"0", 1)
                + "\n",
            "is no hash",
        ),
    ] {
        fs::write(stage.path("log"), &damage).unwrap();
        stage.run(&["--resume"], STOP_ONCE).expect(255, &[said, "cannot continue from the log"]);
        assert_eq!(stage.text("log"), damage);
    }
}

#[test]
fn wrong_uses_are_refused_with_the_remedy() {
    let stage = Stage::new("a 1\n");
    let log = stage.path("log");
    let log = log.to_str().unwrap();
    let words = |words: &[&'static str]| {
        let end = ["--log", log, "--", "true"];
        run(&words.iter().copied().chain(end).collect::<Vec<_>>(), "a\n")
    };
    words(&["--key", "1", "--resume"]).expect(255, &["standard input cannot be read again"]);
    words(&["--key", "1", "--retry-failed", "-"]).expect(255, &["write it to a file"]);
    run(&["--key", "1", "--resume", "--", "true"], "").expect(255, &["give its file with --log"]);
    let worker = ["--key", "1", "--worker", "--joblog", log, "--", "cat"];
    run(&worker, "").expect(255, &["--joblog has a line per command", "use --log FILE"]);
    words(&["--key", "1", "--resume", "-k", "x"])
        .expect(255, &["with --keep-order", "--results DIR"]);
    let pipe = stage.path("pipe");
    named_pipe(&pipe);
    let piped = ["--key", "1", "--resume", "--log", log, pipe.to_str().unwrap(), "--", "true"];
    run(&piped, "").expect(255, &["is no regular file"]);
    stage.run(&["--retry-failed"], "true").expect(255, &["is empty", "no failed record"]);
    // A run that does not continue never overwrites.
    stage.run(&["--resume"], "true").expect(0, &[]);
    let before = stage.text("log");
    stage.run(&[], "true").expect(255, &["has the log of an earlier run; add --resume"]);
    assert_eq!(stage.text("log"), before);
}

#[test]
fn two_runs_cannot_write_one_log() {
    let stage = Stage::new("a 1\n");
    let script = r#"echo on; read -r word < "$1/gate"; true"#;
    let mut first = keylane(stage.words(&[], script)).spawn().unwrap();
    let mut said = BufReader::new(first.stderr.take().unwrap());
    // The log is locked before the header is written, which is before the command starts.
    let begun = wait_for_gate(&stage.path("gate"));
    stage.run(&["--resume"], "true").expect(255, &["another run writes to this file"]);
    drop(begun);
    let mut rest = String::new();
    said.read_line(&mut rest).unwrap();
    finish(first).expect(0, &[]);
}

/// Opens the gate for writing once a command reads from it.
fn wait_for_gate(gate: &Path) -> fs::File {
    OpenOptions::new().write(true).open(gate).unwrap()
}

#[test]
fn a_stopped_key_continues_with_the_record_that_stopped_it() {
    let input = "a 1\na 2 fail\na 3\nb 4\n";
    for policy in ["stop-key", "stop"] {
        let stage = Stage::new(input);
        let options = ["-j1", "--on-fail", policy];
        let script = r#"echo "$2" >> "$1/ran"; case $2 in *fail*) [ -e "$1/repaired" ] ;; esac"#;
        stage.run(&options, script).expect(1, &[]);
        let resume = ["-j1", "--on-fail", policy, "--resume"];
        stage.run(&resume, script).expect(1, &[]);
        assert!(!stage.text("ran").contains("a 3"), "{}", stage.text("ran"));
        fs::write(stage.path("repaired"), "").unwrap();
        fs::remove_file(stage.path("ran")).unwrap();
        stage.run(&["-j1", "--retry-failed"], script).expect(0, &[]);
        assert_eq!(stage.text("ran"), "a 2 fail\n");
        stage.run(&resume, script).expect(0, &[]);
        let last = stage.text("ran");
        assert!(last.starts_with("a 2 fail\na 3\n"), "{last}");
        stage.verify();
    }
}

#[test]
fn skipped_and_dead_lettered_records_have_ended() {
    let input = "a 1 fail\na 2 stop\na 3\n";
    let stage = Stage::new(input);
    let letters = format!("file:{}", stage.path("dead").display());
    let dead = ["-j1", "--on-fail", "dead-letter", "--dead-letters", &letters];
    stage.run(&dead, STOP_ONCE).expect(143, &[]);
    stage.run(&["-j1", "--resume", "--retry-failed"], STOP_ONCE).expect(0, &[]);
    assert_eq!(stage.text("ran"), input);
    assert_eq!(stage.results()[0], (1, "dead-letter".to_owned()));
    let stage = Stage::new(input);
    stage.run(&["-j1", "--on-fail", "skip"], STOP_ONCE).expect(143, &[]);
    stage.run(&["-j1", "--resume", "--retry-failed"], STOP_ONCE).expect(0, &[]);
    assert_eq!(stage.text("ran"), input);
    assert_eq!(stage.results()[0], (1, "skipped".to_owned()));
}

#[test]
fn attempts_are_counted_anew_and_a_failure_before_the_last_is_not_final() {
    let stage = Stage::new("a 1\na 2\n");
    // The run ends while the record waits for its second attempt.
    let script = r#"
        echo "$2 $KEYLANE_ATTEMPT" >> "$1/ran"
        if mkdir "$1/stopped" 2> /dev/null; then
            kill -TERM $PPID; read -r word < "$1/gate"; exit 1
        fi"#;
    let attempts = ["-j1", "--attempts", "5", "--backoff", "1ms"];
    stage.run(&attempts, script).expect(143, &[]);
    assert_eq!(stage.results()[0], (1, "retry".to_owned()));
    let resume = ["-j1", "--attempts", "5", "--backoff", "1ms", "--resume"];
    stage.run(&resume, script).expect(0, &[]);
    let ran = stage.text("ran");
    assert!(ran.ends_with("a 1 1\na 2 1\n"), "{ran}");
    stage.verify();
}

#[test]
fn a_command_that_the_second_interrupt_ended_runs_again() {
    let stage = Stage::new("a 1\na 2\n");
    let script = r#"echo "$2" >> "$1/ran"; [ -e "$1/repaired" ] || read -r word < "$1/gate""#;
    for policy in ["continue", "stop-key", "skip"] {
        let _ = fs::remove_file(stage.path("repaired"));
        let _ = fs::remove_file(stage.path("log"));
        let _ = fs::remove_file(stage.path("ran"));
        let mut child =
            keylane(stage.words(&["-j1", "--on-fail", policy], script)).spawn().unwrap();
        let gate = wait_for_gate(&stage.path("gate"));
        let mut said = BufReader::new(child.stderr.take().unwrap());
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        crate::common::hears(&mut said, "stopping; 1 running may finish");
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        assert_eq!(finish(child).code, 143);
        drop(gate);
        assert_eq!(stage.results(), [(1, "interrupted".to_owned())]);
        fs::write(stage.path("repaired"), "").unwrap();
        stage.run(&["-j1", "--resume"], script).expect(0, &[]);
        assert_eq!(stage.text("ran"), "a 1\na 1\na 2\n");
    }
}

#[test]
fn records_of_workers_continue_too() {
    let input: String = (1..=40).map(|n| format!("k{} {n}\n", n % 3)).collect();
    let stage = Stage::new(&input);
    let worker = |options: &[&str], script: &str| {
        let mut words = stage.words(&[options, &["--worker"]].concat(), script);
        // A worker's command has no record.
        words.pop();
        stage.finish(&mut keylane(words))
    };
    let script = r#"
        while read -r line; do
            echo "$line" >> "$1/ran"
            case $line in "k2 20")
                if mkdir "$1/stopped" 2> /dev/null; then kill -TERM $PPID; read -r word < "$1/gate"; fi ;;
            esac
            echo "did $line"
        done"#;
    worker(&["-j1"], script).expect(143, &[]);
    let before = stage.lines().len();
    assert!((1..40).contains(&before), "{before}");
    worker(&["-j2", "--resume"], script).expect(0, &[]);
    let ran = stage.text("ran");
    for key in 0..3 {
        let name = format!("k{key} ");
        let of_key = |text: &str| {
            text.lines()
                .filter(|line| line.starts_with(&name))
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(of_key(&ran), of_key(&input));
    }
    stage.verify();
}

#[test]
fn a_record_that_is_no_command_line_has_failed_in_the_log() {
    let stage = Stage::new("a 1\nb\nc 3\n");
    let (log, input) = (stage.path("log"), stage.path("input"));
    let words = |last| {
        [
            "--key",
            "1",
            "--log",
            log.to_str().unwrap(),
            input.to_str().unwrap(),
            last,
            "--",
            "echo",
            "{2}",
        ]
    };
    run(&words("-j1"), "").expect(1, &["record 2"]);
    let results: Vec<_> = stage.results().into_iter().filter(|(place, _)| *place == 2).collect();
    assert_eq!(results, [(2, "failed".to_owned())]);
    run(&words("--resume"), "").expect(0, &["; 1 failed (--retry-failed"]);
    run(&words("--retry-failed"), "").expect(1, &["record 2"]);
    stage.verify();
}

/// The first run said "continuing after 0 records that ended in earlier runs".
#[test]
fn a_new_log_is_not_continued_and_is_named() {
    let stage = Stage::new("a 1\na 2\n");
    let said =
        format!("the log {} has no record that has ended; starting", stage.path("log").display());
    let first = stage.run(&["--resume"], "true");
    first.expect(0, &[&said]);
    assert!(!first.stderr.contains("continuing"), "{}", first.stderr);
    stage.run(&["--resume"], "true").expect(0, &["continuing after 2 records"]);
}

#[test]
fn several_and_compressed_files_are_one_input() {
    let stage = Stage::new("a 1\na 2\n");
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(b"a 3 stop\nb 4\n").unwrap();
    let second = stage.path("second.gz");
    fs::write(&second, packed.finish().unwrap()).unwrap();
    let second = second.to_str().unwrap();
    stage.run(&["-j1", second], "true").expect(0, &[]);
    fs::remove_file(stage.path("log")).unwrap();
    let first = stage.path("input");
    let in_order = |option: &str| {
        let words = stage.words(&["-j1", option], STOP_ONCE);
        let at = words.iter().position(|word| Path::new(word) == first).unwrap() + 1;
        let words = [&words[..at], &[second.to_owned()], &words[at..]].concat();
        stage.finish(&mut keylane(words))
    };
    in_order("--lines").expect(143, &[]);
    in_order("--resume").expect(0, &["continuing after 3 records"]);
    assert_eq!(stage.text("ran"), "a 1\na 2\na 3 stop\nb 4\n");
    // Files in another order have other records at the places of the log.
    stage
        .run(&["--resume", second], STOP_ONCE)
        .expect(255, &["second.gz:1: this is not the record 1"]);
}

#[test]
fn records_whose_output_was_lost_run_again() {
    let stage = Stage::new("a 1\na 2\n");
    let script = r#"echo "$2" >> "$1/ran"; echo "$2""#;
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let child = keylane(stage.words(&["-j1"], script)).stdout(full).spawn().unwrap();
    finish(child).expect(255, &["cannot write to standard output"]);
    assert_eq!(stage.results(), [(1, "interrupted".to_owned())]);
    let outcome = stage.run(&["-j1", "--resume"], script);
    assert_eq!(outcome.expect(0, &[]).stdout, "a 1\na 2\n");
}

#[test]
fn a_full_disk_under_the_log_ends_the_run_and_a_later_one_continues() {
    // Keys are long, so that the log is full before the other files of the run are.
    let key = "k".repeat(2000);
    let input: String = (1..=30).map(|n| format!("{key} {n}\n")).collect();
    let stage = Stage::new(&input);
    let script = r#"echo "$2" | tail -c 3 >> "$1/ran""#;
    let limited = r#"trap '' XFSZ; ulimit -f 64; exec "$0" run "$@""#;
    let mut shell = Command::new("sh");
    shell
        .args(["-c", limited, env!("CARGO_BIN_EXE_keylane"), "-j1"])
        .args(stage.words(&[], script));
    shell.env("TMPDIR", stage.0.path()).stdout(Stdio::null()).stderr(Stdio::piped());
    stage.finish(&mut shell).expect(255, &["cannot write the log", "make room on its disk"]);
    let full = stage.text("log");
    assert!(!full.ends_with('\n') && full.lines().count() > 3, "it is not torn");
    let begun = stage.text("ran").lines().count();
    assert!(begun < 30, "{begun}");
    stage.run(&["-j1", "--resume"], script).expect(0, &[]);
    // The record whose line is torn ran again, and no other.
    let mut ran: Vec<u32> =
        stage.text("ran").lines().map(|line| line.trim().parse().unwrap()).collect();
    assert_eq!(ran.len(), 31);
    ran.dedup();
    assert!(ran.into_iter().eq(1..=30));
    stage.verify();
}
