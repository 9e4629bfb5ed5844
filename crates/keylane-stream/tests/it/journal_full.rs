//! A full journal refuses writes without leaving parts of them, and accepts them again once there
//! is room. A disk that fails ends the journal until it is reopened.

use std::env;
use std::path::Path;
use std::process::Command;

use crate::common::{everything, place, record};
use keylane_stream::journal::{Journal, JournalSettings, RetentionPolicy, WriteError};
use keylane_stream::tracker::Progress;
use keylane_stream::{Position, Record};

const PATH: &str = "KEYLANE_JOURNAL_ON_A_FAILING_DISK";

fn at(number: u64) -> Position {
    Position::new(number)
}

#[test]
fn a_full_journal_says_so_and_has_nothing_in_part() {
    let (_folder, path) = place();
    let settings = JournalSettings { max_bytes: Some(2_000_000) };
    let journal = Journal::open_with(&path, &settings).unwrap();
    let batch = vec![Record::without_key(vec![7; 10_000]); 10];
    let mut batches = 0;
    while journal.append_all(&batch).is_ok() {
        batches += 1;
    }
    assert!((10..20).contains(&batches), "{batches}");
    assert_eq!(journal.append_all(&batch), Err(WriteError::Full));
    let end = journal.end();
    assert_eq!((end, everything(&journal).len()), (at(batches * 10), batches as usize * 10));
    assert_eq!(journal.check().unwrap().damage, []);

    // A group can still commit its progress, and make room by that.
    journal.commit("group", &Progress::up_to(end)).unwrap();
    assert_eq!(journal.retain(RetentionPolicy::Unfinished), Ok(end));
    assert_eq!(journal.append_all(&batch), Ok(end..end.after(10).unwrap()));
    drop(journal);
    let journal = Journal::open_with(&path, &settings).unwrap();
    assert_eq!(everything(&journal).len(), 10);
    assert_eq!(journal.check().unwrap().damage, []);
}

/// Regression: a call that does not fit would fail the calls of the same transaction, if they were
/// not retried one by one.
#[test]
fn what_does_not_fit_does_not_keep_others_out() {
    let (_folder, path) = place();
    let settings = JournalSettings { max_bytes: Some(1_000_000) };
    let journal = Journal::open_with(&path, &settings).unwrap();
    let large = [Record::without_key(vec![7; 2_000_000])];
    for _ in 0..20 {
        let pending: Vec<_> = (0..9)
            .map(|i| {
                let records = if i % 3 == 1 { large.to_vec() } else { vec![record(i)] };
                journal.append_later(&records).unwrap()
            })
            .collect();
        for (i, pending) in pending.into_iter().enumerate() {
            let answer = pending.wait();
            if i % 3 == 1 {
                assert_eq!(answer, Err(WriteError::Full));
            } else {
                assert!(answer.is_ok(), "{answer:?}");
            }
        }
    }
    let numbers = everything(&journal).into_iter().map(|delivered| delivered.record);
    let expected = (0..20).flat_map(|_| [0, 2, 3, 5, 6, 8]).map(record);
    assert!(numbers.eq(expected));
}

/// A limit on the file size makes the system refuse the child's writes within a transaction, as a
/// broken disk would.
#[test]
fn a_failed_write_ends_it_until_it_is_opened_again() {
    let (_folder, path) = place();
    let shell = "trap '' XFSZ; ulimit -f 300; \
                 exec \"$0\" --exact journal_full::writes_until_the_disk_fails --nocapture";
    let child = Command::new("bash")
        .args(["-c", shell])
        .arg(env::current_exe().unwrap())
        .env(PATH, &path)
        .output()
        .unwrap();
    let said = String::from_utf8(child.stdout).unwrap();
    assert!(child.status.success(), "{said}{}", String::from_utf8_lossy(&child.stderr));
    let line = said.lines().find_map(|line| line.strip_prefix("acknowledged "));
    let acknowledged: u64 = line.unwrap_or_else(|| panic!("{said}")).parse().unwrap();
    assert!(acknowledged > 5, "{acknowledged}");

    let journal = Journal::open(&path).unwrap();
    let all = everything(&journal);
    // The record of the failed call may be there; those that were refused afterwards may not.
    assert!([acknowledged, acknowledged + 1].contains(&(all.len() as u64)), "{}", all.len());
    assert!((0..).zip(&all).all(|(number, delivered)| delivered.record == large(number)));
    assert_eq!(journal.append(&large(0)), Ok(at(all.len() as u64)));
    assert_eq!(journal.check().unwrap().damage, []);
}

fn large(number: u64) -> Record {
    Record::new(number.to_string(), vec![number as u8; 10_000])
}

/// Body of the child process, not a test of its own.
#[test]
fn writes_until_the_disk_fails() {
    let Some(path) = env::var_os(PATH) else { return };
    // On one processor the harness has begun a line, which this ends.
    println!();
    let journal = Journal::open(Path::new(&path)).unwrap();
    let mut acknowledged = 0;
    let failure = loop {
        match journal.append(&large(acknowledged)) {
            Ok(position) => assert_eq!(position, at(acknowledged)),
            Err(error) => break error,
        }
        acknowledged += 1;
    };
    let WriteError::Failed { cause } = &failure else { panic!("{failure:?}") };
    assert!(cause.contains("I/O"), "{cause}");
    // Every write fails from now on with the same reason, and the records can still be read.
    assert_eq!(journal.append(&Record::default()), Err(failure.clone()));
    assert_eq!(journal.commit("group", &Progress::up_to(at(0))), Err(failure.clone()));
    assert_eq!(journal.retain(RetentionPolicy::Newest(0)), Err(failure));
    assert_eq!(journal.end(), at(acknowledged));
    assert_eq!(everything(&journal).len() as u64, acknowledged);
    println!("acknowledged {acknowledged}");
}
