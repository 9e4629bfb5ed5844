//! After `kill -9` every acknowledged record is there, and no call is there in part.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use crate::common::{everything, place, record};
use keylane_stream::Position;
use keylane_stream::journal::{Journal, JournalOpenError, RetentionPolicy};
use keylane_stream::tracker::{OffsetMapLimit, Tracker};

/// Variable with the path of the child's journal. Set only for a child.
const CHILD: &str = "KEYLANE_JOURNAL_OF_CHILD";

const PRODUCERS: u64 = 4;

fn child(path: &Path) -> Child {
    Command::new(env::current_exe().unwrap())
        .args(["--exact", "journal_crash::writes_until_it_is_killed", "--nocapture"])
        .env(CHILD, path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Body of the child process, not a test of its own.
#[test]
fn writes_until_it_is_killed() {
    let Some(path) = env::var_os(CHILD) else { return };
    let journal = Journal::open(path).unwrap();
    thread::scope(|scope| {
        for producer in 0..PRODUCERS {
            let journal = journal.clone();
            scope.spawn(move || produce(&journal, producer));
        }
        scope.spawn(|| consume(&journal));
    });
}

/// Prints each acknowledgement: the positions, and the number of the first record.
fn produce(journal: &Journal, producer: u64) {
    for call in 0.. {
        let numbers = (0..=call % 3).map(|i| producer * 1_000_000 + call * 3 + i);
        let records: Vec<_> = numbers.map(record).collect();
        let positions = journal.append_all(&records).unwrap();
        let number = producer * 1_000_000 + call * 3;
        say(format_args!("ack {} {} {number}", positions.start, positions.end));
    }
}

/// Completes records out of order, commits, and prints each commit.
fn consume(journal: &Journal) {
    let mut tracker = match journal.committed("group").unwrap() {
        Some(progress) => Tracker::resume(&progress, OffsetMapLimit::JOURNAL),
        None => Tracker::new(journal.begin().unwrap(), OffsetMapLimit::JOURNAL),
    };
    let mut next = tracker.watermark();
    loop {
        journal.wait_for(next, std::time::Duration::from_secs(60));
        for delivered in journal.read(next, 7).unwrap() {
            next = delivered.position.next();
            // One in five stays incomplete, so that there is a map.
            if tracker.take(delivered.position) == keylane_stream::tracker::TakeOutcome::New
                && !delivered.position.get().is_multiple_of(5)
            {
                tracker.complete(delivered.position).unwrap();
            }
        }
        journal.commit("group", &tracker.progress()).unwrap();
        say(format_args!("done {} {}", tracker.watermark(), tracker.end()));
    }
}

/// Writes a line with one call, so that no other thread can write in the middle of it.
fn say(line: std::fmt::Arguments<'_>) {
    let mut line = line.to_string();
    line.push('\n');
    std::io::stdout().write_all(line.as_bytes()).unwrap();
}

/// Output of a child before it was killed.
#[derive(Default)]
struct Said {
    acknowledged: Vec<(u64, u64, u64)>,
    done: Option<(u64, u64)>,
}

/// Kills a child at a random point after `lines` lines of output.
fn killed_after(path: &Path, lines: usize) -> Said {
    let mut child = child(path);
    let mut said = Said::default();
    let mut heard = 0;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        let words: Vec<_> = line.split(' ').collect();
        let number = |i: usize| words[i].parse::<u64>().unwrap();
        match words[0] {
            // The kill may have cut the last line.
            "ack" if words.len() == 4 => said.acknowledged.push((number(1), number(2), number(3))),
            "done" if words.len() == 3 => said.done = Some((number(1), number(2))),
            _ => continue,
        }
        heard += 1;
        if heard == lines {
            // On Unix this is SIGKILL. Output from before it can still be read.
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    assert!(heard >= lines, "the child ended by itself");
    said
}

#[test]
fn kill_9_loses_nothing_acknowledged() {
    let (_folder, path) = place();
    let mut all = Vec::new();
    for round in 0..12 {
        let said = killed_after(&path, 40 + round * 23);
        let journal = Journal::open(&path).unwrap();
        all.extend(&said.acknowledged);
        let there = everything(&journal);
        assert!(there.iter().map(|delivered| delivered.position.get()).eq(0..journal.end().get()));
        for (from, until, number) in &all {
            for (position, number) in (*from..*until).zip(*number..) {
                assert_eq!(there[position as usize].record, record(number), "position {position}");
            }
        }
        assert_calls_are_whole(&there);
        if let Some((watermark, end)) = said.done {
            let committed = journal.committed("group").unwrap().unwrap();
            assert!(committed.watermark().get() >= watermark && committed.end().get() >= end);
            let undone = (0..end).filter(|position| position.is_multiple_of(5));
            assert!(undone.clone().all(|position| !committed.is_done(Position::new(position))));
            let done = (0..end).filter(|position| !position.is_multiple_of(5));
            assert!(done.clone().all(|position| committed.is_done(Position::new(position))));
        }
        assert_eq!(journal.check().unwrap().damage, []);
    }
    assert!(all.len() > 1000, "{}", all.len());
}

/// Checks that no call is there in part: the calls append one, two or three records, in turn.
fn assert_calls_are_whole(there: &[keylane_stream::DeliveredRecord]) {
    let mut rest = there.iter().map(|delivered| {
        let number = delivered.record.headers[0].1.as_ref().unwrap();
        u64::from_le_bytes(number[..].try_into().unwrap())
    });
    while let Some(first) = rest.next() {
        let call = first % 1_000_000 / 3;
        assert_eq!(first % 1_000_000, call * 3, "a call begins with its first record");
        for i in 1..=call % 3 {
            assert_eq!(rest.next(), Some(first + i), "call {call} is there in part");
        }
    }
}

#[test]
fn a_killed_owner_leaves_no_lock_and_a_living_one_keeps_others_out() {
    let (_folder, path) = place();
    let mut child = child(&path);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let begun = lines.find(|line| line.as_ref().unwrap().starts_with("ack"));
    assert!(begun.is_some());
    let refused = Journal::open(&path);
    let by = child.id();
    assert!(
        matches!(refused, Err(JournalOpenError::InUse { by: Some(pid), .. }) if pid == by),
        "{refused:?}"
    );
    child.kill().unwrap();
    child.wait().unwrap();
    let journal = Journal::open(&path).unwrap();
    journal.retain(RetentionPolicy::Newest(1)).unwrap();
    assert_eq!(journal.check().unwrap().damage, []);
}
