//! `keylane run --batch`: a command gets several records of a key at once, in order.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout};

use rustix::process::{Pid, Signal, kill_process};

use crate::common::{finish, hears, keylane, named_pipe, run};

/// Prints what the command knows of its batch, and the records.
const SHOW: &str =
    "echo $KEYLANE_KEY $KEYLANE_SEQ $KEYLANE_LAST_SEQ $KEYLANE_COUNT $KEYLANE_ATTEMPT: $(cat)";

/// A run whose input stays open.
struct OpenRun {
    run: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    said: BufReader<ChildStderr>,
}

impl OpenRun {
    fn new(options: &[&str], command: &[&str]) -> Self {
        let words = [&["--key", "1"], options, &["--"], command].concat();
        let mut run = keylane(words).spawn().unwrap();
        let input = run.stdin.take().unwrap();
        let output = BufReader::new(run.stdout.take().unwrap()).lines();
        let said = BufReader::new(run.stderr.take().unwrap());
        OpenRun { run, input, output, said }
    }

    fn write(&mut self, records: &str) {
        self.input.write_all(records.as_bytes()).unwrap();
    }

    /// Waits for a line of output.
    fn line(&mut self) -> String {
        self.output.next().unwrap().unwrap()
    }

    /// Ends the input. Returns the rest of the output and the exit code.
    fn end(self) -> (Vec<String>, i32) {
        drop(self.input);
        let rest = self.output.map(Result::unwrap).collect();
        (rest, finish(self.run).code)
    }
}

/// Records of several keys, with their numbers.
fn records(count: usize, keys: usize) -> String {
    (1..=count).map(|number| format!("k{} {number}\n", number % keys)).collect()
}

#[test]
fn a_command_gets_the_records_of_a_key_as_lines_on_its_input() {
    let words = ["-j2", "--key", "1", "--batch", "5", "--linger", "1h", "--", "sh", "-c", SHOW];
    let outcome = run(&words, records(20, 4));
    outcome.expect(0, &[]);
    let expected = |key: usize| {
        let first = if key == 0 { 4 } else { key };
        let lines: Vec<_> = (0..5).map(|n| format!("k{key} {}", first + 4 * n)).collect();
        format!("k{key} {first} {} 5 1: {}", first + 16, lines.join(" "))
    };
    assert_eq!(outcome.sorted(), (0..4).map(expected).collect::<Vec<_>>());
}

#[test]
fn each_record_is_in_one_batch_in_the_order_of_its_key() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let (keys, count) = (5, 600);
    let command =
        ["--", "sh", "-c", r#"cat >> "$1/$KEYLANE_KEY"; echo $KEYLANE_COUNT"#, "sh", path];
    let options = ["-j4", "--key", "1", "--batch", "7", "--linger", "1ms", "--buffer", "100"];
    let input = records(count, keys);
    let outcome = run(&[&options[..], &command].concat(), &input);
    outcome.expect(0, &[]);
    let sizes: Vec<usize> = outcome.stdout.lines().map(|size| size.parse().unwrap()).collect();
    assert_eq!(sizes.iter().sum::<usize>(), count);
    assert!(sizes.iter().all(|size| *size <= 7) && sizes.iter().any(|size| *size > 1), "{sizes:?}");
    let mut expected = BTreeMap::<_, String>::new();
    for line in input.lines() {
        *expected.entry(line.split(' ').next().unwrap()).or_default() += &format!("{line}\n");
    }
    for (key, lines) in expected {
        assert_eq!(fs::read_to_string(folder.path().join(key)).unwrap(), lines);
    }
}

#[test]
fn a_part_of_a_batch_starts_when_its_first_record_has_lingered() {
    let mut run = OpenRun::new(&["--batch", "1000", "--linger", "1ms"], &["cat"]);
    for number in 0..5 {
        run.write(&format!("a {number}\n"));
        // The input pauses until the record has run.
        assert_eq!(run.line(), format!("a {number}"));
    }
    assert_eq!(run.end(), (Vec::new(), 0));
}

#[test]
fn a_full_batch_starts_at_once_and_others_with_the_end_of_the_input() {
    let mut run = OpenRun::new(&["--batch", "2", "--linger", "1h"], &["sh", "-c", SHOW]);
    run.write("a 1\nb 2\na 3\n");
    assert_eq!(run.line(), "a 1 3 2 1: a 1 a 3");
    let rest = vec!["b 2 2 1 1: b 2".to_owned()];
    assert_eq!(run.end(), (rest, 0));
}

#[test]
fn records_that_wait_for_the_turn_of_their_key_are_one_batch() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    named_pipe(&folder.path().join("gate"));
    let wait = format!(r#"{SHOW}; [ $KEYLANE_SEQ != 1 ] || read -r word < "$1/gate""#);
    let options = ["-j2", "--batch", "6", "--linger", "0ms", "--line-buffer"];
    let mut run = OpenRun::new(&options, &["sh", "-c", &wait, "sh", path]);
    run.write("a 1\n");
    assert_eq!(run.line(), "a 1 1 1 1: a 1");
    run.write("a 2\na 3\na 4\na 5\na 6\na 7\na 8\nb 9\n");
    // The records before it have been read.
    assert_eq!(run.line(), "b 9 9 1 1: b 9");
    fs::write(folder.path().join("gate"), "go\n").unwrap();
    assert_eq!(run.line(), "a 2 7 6 1: a 2 a 3 a 4 a 5 a 6 a 7");
    assert_eq!(run.line(), "a 8 8 1 1: a 8");
    assert_eq!(run.end(), (Vec::new(), 0));
}

#[test]
fn no_record_lingers_when_the_reader_waits_for_room() {
    for order in [&[][..], &["-k"]] {
        let options = ["--batch", "100", "--linger", "1h", "--buffer", "3"];
        let mut run = OpenRun::new(&[&options, order].concat(), &["cat"]);
        run.write(&records(10, 10));
        // Of the last three the reader has not waited for any.
        let mut seen: Vec<_> = (0..7).map(|_| run.line()).collect();
        let (rest, code) = run.end();
        seen.extend(rest);
        if order.is_empty() {
            seen.sort_by_key(|line| line[3..].parse::<u32>().unwrap());
        }
        let expected = records(10, 10);
        assert_eq!((seen, code), (expected.lines().map(str::to_owned).collect(), 0));
    }
}

#[test]
fn records_without_a_key_are_alone_or_have_one_line() {
    let mut unordered = OpenRun::new(&["--batch", "9", "--linger", "1h"], &["sh", "-c", SHOW]);
    unordered.write("\n");
    assert_eq!(unordered.line(), "1 1 1 1:");
    assert_eq!(unordered.end(), (Vec::new(), 0));
    let serial = ["--no-key", "serial", "--batch", "9", "--linger", "1h", "--key", "2"];
    let serial = [serial.as_slice(), &["--", "sh", "-c", SHOW]].concat();
    assert_eq!(run(&serial, "a\nb\n").expect(0, &[]).stdout, "1 2 2 1: a b\n");
}

#[test]
fn the_output_of_a_batch_has_the_place_of_its_first_record() {
    let words = ["-k", "-j2", "--tagstring", "<{key}>", "--key", "1", "--batch", "3"];
    let command = ["--linger", "1h", "--", "sh", "-c", "paste -sd, -"];
    let outcome = run(&[words.as_slice(), &command].concat(), "a 1\nb 2\na 3\nc 4\nb 5\n");
    outcome.expect(0, &[]);
    assert_eq!(outcome.stdout, "<a>\ta 1,a 3\n<b>\tb 2,b 5\n<c>\tc 4\n");
}

#[test]
fn the_arguments_have_what_is_equal_for_all_records() {
    let of = |command: &[&str], input| {
        let words = ["-j1", "--key", "1", "--batch", "3", "--linger", "1h", "--"];
        run(&[words.as_slice(), command].concat(), input).expect(0, &[]).stdout.clone()
    };
    let show = ["sh", "-c", "echo $1 $2; cat", "sh", "{key}", "{%}"];
    assert_eq!(of(&show, "a 1\na 2\n"), "a 1\na 1\na 2\n");
    let xargs = ["xargs", "-d", "\\n", "printf", "<%s>"];
    assert_eq!(of(&xargs, "a 1\na 'b\n"), "<a 1><a 'b>");
}

#[test]
fn a_batch_fails_as_a_whole_and_has_its_attempts_as_a_whole() {
    let words = ["--key", "1", "--batch", "3", "--linger", "1h", "--attempts", "2"];
    let script = format!("{SHOW}; [ $KEYLANE_ATTEMPT = 2 ] && [ $KEYLANE_KEY = a ]");
    let command = ["--backoff", "1ms", "-j1", "--", "sh", "-c", &script];
    let outcome = run(&[words.as_slice(), &command].concat(), "a 1\na 2\na 3\nb 4\nb 5\n");
    let first = "batch of 3 records, 1 to 3 (line 1 to line 3, key a): attempt 1 of 2 failed";
    let second =
        "batch of 2 records, 4 to 5 (line 4 to line 5, key b): exit status 1, in attempt 2";
    outcome.expect(2, &[first, second, "2 of 5 records failed, 3 succeeded"]);
    let expected = [
        "a 1 3 3 1: a 1 a 2 a 3",
        "a 1 3 3 2: a 1 a 2 a 3",
        "b 4 5 2 1: b 4 b 5",
        "b 4 5 2 2: b 4 b 5",
    ];
    assert_eq!(outcome.sorted(), expected);
    // Killed, and refused.
    let of = |script: &'static str| [words.as_slice(), &["--", "sh", "-c", script]].concat();
    let killed = of("[ $KEYLANE_ATTEMPT = 1 ] && kill -KILL $$");
    run(&killed, "a 1\na 2\n").expect(2, &["attempt 1 of 2 failed: ended by signal 9"]);
    run(&of("exit 65"), "a 1\n").expect(1, &["record 1 (line 1, key a): exit status 65\n"]);
}

#[test]
fn a_failed_batch_stops_its_key_or_the_run_or_is_skipped() {
    let of = |policy: &str| {
        let words = ["-j1", "--key", "1", "--batch", "2", "--on-fail", policy];
        let command = ["--linger", "1h", "--", "sh", "-c", "cat; [ $KEYLANE_SEQ != 1 ]"];
        run(&[words.as_slice(), &command].concat(), "a 1\na 2\na 3\nb 4\nb 5\n")
    };
    let skipped = of("skip");
    assert_eq!(skipped.expect(0, &["exit status 1; skipped"]).sorted().len(), 5);
    let key = of("stop-key");
    key.expect(2, &["its key stops", "not run: 1 record behind a failed one of a key"]);
    assert_eq!(key.sorted(), ["a 1", "a 2", "b 4", "b 5"]);
    let stopped = of("stop");
    stopped.expect(2, &["stopping after a failure"]);
    assert_eq!(stopped.sorted(), ["a 1", "a 2"]);
}

#[test]
fn a_record_that_is_no_line_fails_alone() {
    let words = ["--csv", "--key", "1", "--batch", "9", "--", "cat"];
    let outcome = run(&words, "a,1\na,\"2\n2\"\na,3\n");
    outcome.expect(1, &["record 2 (line 2, key a): it contains a line end", "without --batch"]);
    assert_eq!(outcome.stdout, "a,1\na,3\n");
}

#[test]
fn an_interrupt_lets_running_batches_finish_and_counts_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    named_pipe(&folder.path().join("gate"));
    let wait = r#"cat; [ $KEYLANE_KEY = b ] || read -r word < "$1/gate""#;
    let options = ["-j2", "--batch", "2", "--linger", "1h", "--line-buffer"];
    let mut run = OpenRun::new(&options, &["sh", "-c", wait, "sh", path]);
    // One batch waits at the gate, one is ready, and one lingers.
    run.write("a 1\na 2\na 3\na 4\na 5\nb 6\nb 7\n");
    let mut seen: Vec<_> = (0..4).map(|_| run.line()).collect();
    seen.sort_unstable();
    assert_eq!(seen, ["a 1", "a 2", "b 6", "b 7"]);
    kill_process(Pid::from_child(&run.run), Signal::TERM).unwrap();
    hears(&mut run.said, "running may finish");
    fs::write(folder.path().join("gate"), "go\n").unwrap();
    let OpenRun { run, output, mut said, input } = run;
    assert_eq!(output.count(), 0);
    hears(&mut said, "not run: 3 records that had been read ahead");
    assert_eq!(finish(run).code, 143);
    drop(input);
}

#[test]
fn a_closed_pipe_ends_a_run_with_batches() {
    let mut run = OpenRun::new(&["-j1", "--batch", "2", "--linger", "1ms"], &["cat"]);
    run.write("a 1\n");
    assert_eq!(run.line(), "a 1");
    drop(run.output);
    run.input.write_all(b"a 2\na 3\n").unwrap();
    assert_eq!(finish(run.run).code, 141);
}

#[test]
fn paces_are_kept_and_lose_no_record() {
    for pace in [["--rate", "1000/s"], ["--delay", "1ms"]] {
        let words = ["--key", "1", "--batch", "4", "--", "cat"];
        let outcome = run(&[pace.as_slice(), &words].concat(), records(40, 3));
        assert_eq!(outcome.expect(0, &[]).stdout.lines().count(), 40);
    }
}

#[test]
fn a_dry_run_prints_the_commands_with_their_input() {
    let words = ["--dry-run", "--key", "1", "--batch", "2", "--", "./apply", "{key}"];
    let outcome = run(&words, "a 1\nb 2\na it's\na 4\n");
    // The program does not exist.
    outcome.expect(255, &["./apply"]);
    let words = ["--dry-run", "--key", "1", "--batch", "2", "--", "cat", "{key}"];
    let outcome = run(&words, "a 1\nb 2\na it's\na 4\n");
    outcome.expect(0, &[]);
    let expected = [
        r#"printf '%s\n' 'a 1' 'a it'"'"'s' | cat a"#,
        r"printf '%s\n' 'b 2' | cat b",
        r"printf '%s\n' 'a 4' | cat a",
    ];
    assert_eq!(outcome.stdout.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn options_that_conflict_with_batches_are_refused_with_the_remedy() {
    let refused = |options: &str, said: &[&str]| {
        let words = format!("--key 1 --batch 5 {options}");
        let said = [&["--batch"], said].concat();
        run(&words.split_whitespace().collect::<Vec<_>>(), "").expect(255, &said);
    };
    refused("-- echo {}", &["lines on its standard input", "xargs -d"]);
    refused("-- echo {1}", &["`{1}`"]);
    refused("--worker -- cat", &["--worker", "leave out one"]);
    refused("--key 2 -- cat", &["several --key", "give --key once"]);
    refused("--shared-key 2 -- cat", &["--shared-key", "leave out one"]);
    refused("--barrier 1=a -- cat", &["--barrier", "leave out one"]);
    refused("--limit-per-key 2 -- cat", &["--limit-per-key", "leave out one"]);
    refused("--latest -- cat", &["--latest", "leave out one"]);
    refused("--rate-per-key 1/s -- cat", &["--rate-per-key", "--delay"]);
    refused("--tag -- cat", &["--tag", "--tagstring '{key}'"]);
    refused("--tagstring {} -- cat", &["--tagstring", "{key}"]);
    refused("--results r -- cat", &["--results", "leave out one"]);
    refused("--output-format ndjson -- cat", &["--output-format ndjson", "leave out one"]);
    refused("--plan", &["--plan", "leave out one"]);
    run(&["--key", "1", "--linger", "1s", "--", "cat"], "").expect(255, &["--batch <N>"]);
    run(&["--key", "1", "--batch", "0", "--", "cat"], "").expect(255, &["at least 1"]);
    assert!(!Path::new("r").exists());
}
