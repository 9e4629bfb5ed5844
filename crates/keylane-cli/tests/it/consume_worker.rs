//! `keylane consume --worker`: an answer is the end of a record, and the end of a child a failed attempt.

use std::collections::{BTreeSet, HashMap};
use std::io::{BufReader, Read};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::common::{Outcome, feed, finish, hears, subcommand};
use keylane_stream::journal::Journal;
use keylane_stream::{DeliveredRecord, Position, Record};
use tempfile::TempDir;

/// Taken by each test: while one has a journal open, no other may start a process, which would hold its lock
/// until it has become another program.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A folder with a journal of 200 records with 4 keys.
fn with_journal() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::open(folder.path().join("j")).unwrap();
    let record = |n| Record::new(format!("c{}", n % 4), format!("c{} {n}", n % 4));
    journal.append_all(&(0..200).map(record).collect::<Vec<_>>()).unwrap();
    folder
}

fn command(folder: &TempDir, more: &[&str], worker: &str) -> Command {
    let words = ["journal:j", "--group", "g", "--to-the-end", "--backoff", "1ms", "--worker"];
    let words = [&words[..], more, &["--", "sh", "-c", worker]].concat();
    let mut command = subcommand("consume", words);
    command.current_dir(folder.path());
    command
}

fn consume(folder: &TempDir, more: &[&str], worker: &str) -> Outcome {
    feed(command(folder, more, worker), b"")
}

/// What is stored as done.
fn committed(folder: &TempDir) -> u64 {
    let journal = Journal::open(folder.path().join("j")).unwrap();
    journal.committed("g").unwrap().map_or(0, |progress| progress.watermark().get())
}

/// Checks that each key's numbers come one after another; gives them all.
fn in_order<'l>(lines: impl IntoIterator<Item = &'l str>) -> Vec<u64> {
    let mut last = HashMap::new();
    let each = |line: &str| {
        let (key, number) = line.split_once(' ').unwrap();
        let number: u64 = number.parse().unwrap();
        let before = last.insert(key.to_owned(), number);
        assert!(before < Some(number), "{before:?} before {line}");
        number
    };
    let mut all: Vec<_> = lines.into_iter().map(each).collect();
    all.sort_unstable();
    all
}

#[test]
fn each_answer_ends_its_record_and_keys_are_in_order() {
    let _alone = alone();
    let folder = with_journal();
    let echo = "while read line; do echo \"$line $$\"; done";
    let outcome = consume(&folder, &["-j", "3"], echo);
    outcome.expect(0, &["200 handled, 0 failed attempts"]);
    let (lines, children): (Vec<_>, BTreeSet<_>) =
        outcome.stdout.lines().map(|line| line.rsplit_once(' ').unwrap()).unzip();
    assert!(children.len() <= 3, "{children:?}");
    assert_eq!(in_order(lines), (0..200).collect::<Vec<_>>());
    consume(&folder, &[], echo).expect(0, &["0 handled"]);
}

#[test]
fn a_key_always_has_the_same_child_and_its_loss_is_reported() {
    let _alone = alone();
    let folder = with_journal();
    let counts = "while read k n; do eval \"c_$k=\\$((c_$k + 1))\"; eval \"echo $k \\$c_$k\"; done";
    let outcome = consume(&folder, &["-j", "3"], counts);
    let mut seen = HashMap::new();
    for line in outcome.expect(0, &["200 handled"]).stdout.lines() {
        let (key, count) = line.split_once(' ').unwrap();
        let right = seen.entry(key).or_insert(0);
        *right += 1;
        assert_eq!(count, right.to_string(), "{key}");
    }
    let folder = with_journal();
    let dies =
        "while read k n; do test $n != 100 -o -e died || { : > died; exit 3; }; echo $k; done";
    let lost = " of 2 has ended (exit status 3); its state of its keys is lost";
    let outcome = consume(&folder, &["-j", "2"], dies);
    outcome.expect(0, &["200 handled", lost, "state of keys lost: 1 worker ended early"]);
    let folder = with_journal();
    let outcome = consume(&folder, &["-j", "2", "--worker-keys", "any"], dies);
    assert!(!outcome.expect(0, &["200 handled"]).stderr.contains("state"), "{outcome:#?}");
}

#[test]
fn a_child_that_ends_fails_what_it_had_and_another_takes_its_place() {
    let _alone = alone();
    let folder = with_journal();
    let dies = "while read line; do case \"$line\" in
        *' '*5) test -e \"$line\" || { : > \"$line\"; exit 3; };;
        esac; echo \"$line\"; done";
    let outcome = consume(&folder, &["-j", "2"], dies);
    let lost = "its worker ended without answering it (exit status 3); retrying";
    outcome.expect(0, &["200 handled", lost]);
    assert_eq!(in_order(outcome.stdout.lines()), (0..200).collect::<Vec<_>>());
}

#[test]
fn a_record_that_ends_every_child_goes_by_the_policy() {
    let _alone = alone();
    let folder = with_journal();
    let dies = "while read line; do test \"$line\" != 'c2 102' || exit 1; echo \"$line\"; done";
    let more = ["-j", "2", "--attempts", "8", "--on-fail", "skip"];
    let outcome = consume(&folder, &more, dies);
    outcome.expect(1, &["at 102, attempt 8: its worker ended", "skipped", "199 handled"]);
    let all = in_order(outcome.stdout.lines());
    assert_eq!(all, (0..200).filter(|n| *n != 102).collect::<Vec<_>>());
}

#[test]
fn answers_are_appended_with_the_keys_of_their_records() {
    let _alone = alone();
    let folder = with_journal();
    let echo = "while read key n; do test $n != 7 && echo \"$key $n\" || echo; done";
    let outcome = consume(&folder, &["-j", "2", "--output", "journal:out"], echo);
    outcome.expect(0, &["200 handled"]);
    assert_eq!(outcome.stdout, "");
    let out = Journal::open(folder.path().join("out")).unwrap();
    let records = out.read(Position::default(), 1_000).unwrap();
    let records: Vec<_> = records.into_iter().map(|delivered| delivered.record).collect();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let lines: Vec<_> = records.iter().map(|record| text(record.payload())).collect();
    assert_eq!(in_order(lines.iter().map(String::as_str)).len(), 199);
    for (record, line) in records.iter().zip(&lines) {
        let (key, number) = line.split_once(' ').unwrap();
        assert_eq!(record.key.as_deref(), Some(key.as_bytes()));
        // What was made of a record is not mistaken for another's.
        assert_eq!(text(record.headers[2].1.as_ref().unwrap()), number);
    }
}

#[test]
fn answers_that_come_together_are_told_apart() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::open(folder.path().join("j")).unwrap();
    let record = |n: u32| Record::new(n.to_string(), format!("{n} of many"));
    journal.append_all(&(0..3_000).map(record).collect::<Vec<_>>()).unwrap();
    drop(journal);
    // It writes at once what it has read at once.
    let outcome = consume(&folder, &["-j", "1", "--output", "journal:out"], "exec cat");
    outcome.expect(0, &["3000 handled"]);
    let out = Journal::open(folder.path().join("out")).unwrap();
    let records = out.read(Position::default(), 5_000).unwrap();
    assert_eq!(records.len(), 3_000);
    for DeliveredRecord { record, .. } in records {
        let key = String::from_utf8(record.key.unwrap().into()).unwrap();
        assert_eq!(
            String::from_utf8(record.payload.unwrap().into()).unwrap(),
            format!("{key} of many")
        );
    }
}

#[test]
fn a_child_that_answers_twice_is_not_believed() {
    let _alone = alone();
    let folder = with_journal();
    let twice = "while read line; do printf '%s\\n%s\\n' \"$line\" \"$line\"; done";
    let outcome = consume(&folder, &["-j", "1", "--attempts", "3"], twice);
    let why = "a worker printed more lines than it was given";
    outcome.expect(255, &[why, "attempt 3: its worker ended without answering it"]);
}

#[test]
fn payloads_with_line_ends_and_workers_with_an_address_are_refused() {
    let _alone = alone();
    let folder = with_journal();
    let journal = Journal::open(folder.path().join("j")).unwrap();
    journal.append(&Record::new("c0", "two\nlines")).unwrap();
    drop(journal);
    let echo = "while read line; do echo \"$line\"; done";
    let outcome = consume(&folder, &["--on-refused", "skip"], echo);
    outcome.expect(
        1,
        &["200 handled", "attempt 1: it contains a line end, and its handler gets a line"],
    );

    let words = ["journal:j", "--group", "g", "--worker", "--http", "http://localhost"];
    let mut command = subcommand("consume", words);
    command.current_dir(folder.path());
    feed(command, b"").expect(255, &["an address is no worker"]);
}

/// Interrupts a consumer, and again when it says that it stops. Returns what it says until its end.
fn interrupt_twice(child: &Child, stderr: &mut BufReader<ChildStderr>) -> String {
    let interrupt = || {
        let pid = child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    };
    interrupt();
    hears(stderr, "interrupt again to end it");
    interrupt();
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).unwrap();
    rest
}

/// What is ended by force has not failed: whatever the policy says about failures, it comes again.
#[test]
fn records_ended_by_the_second_signal_are_not_skipped() {
    let _alone = alone();
    for worker in [true, false] {
        let folder = with_journal();
        let waits = "read line <&0; echo it waits >&2; exec sleep 1000";
        let more = ["-j", "1", "--attempts", "1", "--on-fail", "skip"];
        let mut waiting = command(&folder, &more, waits);
        if !worker {
            // What a command says is shown when it has ended, so it says so by a file.
            let words = ["journal:j", "--group", "g", "-j", "1", "--attempts", "1"];
            let more =
                ["--on-fail", "skip", "--", "sh", "-c", "echo it waits > said; exec sleep 1000"];
            waiting = subcommand("consume", [&words[..], &more].concat());
            crate::common::named_pipe(&folder.path().join("said"));
            waiting.current_dir(folder.path());
        }
        let mut child = waiting.stdin(Stdio::null()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        if worker {
            // A note that the worker is slow may come before.
            hears(&mut stderr, "it waits");
        } else {
            let said = std::fs::read_to_string(folder.path().join("said")).unwrap();
            assert_eq!(said, "it waits\n");
        }
        let rest = interrupt_twice(&child, &mut stderr);
        assert!(rest.contains("0 handled, 0 failed attempts, 0 skipped"), "{rest}");
        assert_eq!(finish(child).code, 143);
        assert_eq!(committed(&folder), 0);
    }
}

/// Also one that has no record, because all are handled: it was waited for without a bound.
#[test]
fn the_second_signal_ends_workers_that_ignore_the_end_of_their_input() {
    let _alone = alone();
    for reads in ["read line", "while read line; do echo ok; done"] {
        let folder = with_journal();
        let stays = format!("{reads}; echo it stays >&2; exec sleep 1000");
        let mut child =
            command(&folder, &["-j", "1"], &stays).stdin(Stdio::null()).spawn().unwrap();
        let mut output = child.stdout.take().unwrap();
        let output = std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        hears(&mut stderr, "it stays");
        let rest = interrupt_twice(&child, &mut stderr);
        assert_eq!(finish(child).code, 143, "{rest}");
        output.join().unwrap().unwrap();
    }
}
