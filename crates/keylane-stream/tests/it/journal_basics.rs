//! The journal returns the appended records in order, to many readers at a time, and retains them
//! as configured.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use crate::common::{everything, place, record};
use keylane_stream::journal::{
    Journal, JournalOpenError, JournalReadError, RetentionPolicy, WriteError,
};
use keylane_stream::tracker::{OffsetMapLimit, Progress, TakeOutcome, Tracker};
use keylane_stream::{Position, Record};

fn at(number: u64) -> Position {
    Position::new(number)
}

#[test]
fn appended_records_are_read_also_after_reopening() {
    let (_folder, path) = place();
    let records: Vec<_> = (0..5000).map(record).collect();
    let journal = Journal::open(&path).unwrap();
    assert_eq!((journal.begin().unwrap(), journal.end()), (at(0), at(0)));
    assert_eq!(journal.append_all(&[]).unwrap(), at(0)..at(0));
    assert_eq!(journal.append(&records[0]).unwrap(), at(0));
    assert_eq!(journal.append_all(&records[1..]).unwrap(), at(1)..at(5000));
    let all = everything(&journal);
    assert!(all.iter().map(|delivered| &delivered.record).eq(&records));
    assert!(all.iter().map(|delivered| delivered.position.get()).eq(0..5000));
    drop(journal);
    let journal = Journal::open(&path).unwrap();
    assert!(everything(&journal).into_iter().map(|delivered| delivered.record).eq(records));
    assert_eq!(journal.append(&record(0)).unwrap(), at(5000));
    assert_eq!(journal.check().unwrap().damage, []);
}

#[test]
fn odd_records_come_back_as_they_were() {
    let (_folder, path) = place();
    let journal = Journal::open(&path).unwrap();
    let large = vec![7; 3_000_000];
    let odd = [
        Record::default(),
        Record::new("", ""),
        Record::without_key(large.clone()),
        Record::new(&large[..], ""),
        Record {
            headers: vec![("é".into(), Some(vec![0])), ("é".into(), Some(large))],
            ..Record::default()
        },
    ];
    journal.append_all(&odd).unwrap();
    assert!(everything(&journal).into_iter().map(|delivered| delivered.record).eq(odd));
    let huge = Record::without_key(vec![0; Journal::MAX_BYTES]);
    assert!(matches!(journal.append(&huge), Err(WriteError::TooLarge { .. })));
    assert_eq!(journal.end(), at(5));
}

#[test]
fn a_read_begins_and_ends_anywhere() {
    let (_folder, path) = place();
    let journal = Journal::open(&path).unwrap();
    journal.append_all(&(0..3000).map(record).collect::<Vec<_>>()).unwrap();
    for (from, most) in
        [(0, 1), (1023, 2), (1024, 1024), (2999, 10), (500, 2000), (3000, 5), (9, 0)]
    {
        let read = journal.read(at(from), most).unwrap();
        let expected: Vec<_> = (from..3000).take(most).collect();
        let positions: Vec<_> = read.iter().map(|delivered| delivered.position.get()).collect();
        assert_eq!(positions, expected);
        assert!(read.iter().all(|delivered| delivered.record == record(delivered.position.get())));
    }
    assert_eq!(journal.read(Position::END, 1), Ok(vec![]));
}

/// Many producers and consumers at once: the records of a producer stay in order, those of one call
/// are adjacent, and each consumer sees all of them.
#[test]
fn many_producers_and_consumers() {
    const PRODUCERS: u64 = 8;
    const CALLS: u64 = 60;
    const TOGETHER: u64 = 5;
    let (_folder, path) = place();
    let journal = Journal::open(&path).unwrap();
    thread::scope(|scope| {
        for producer in 0..PRODUCERS {
            let journal = journal.clone();
            scope.spawn(move || {
                for call in 0..CALLS {
                    let numbers = call * TOGETHER..(call + 1) * TOGETHER;
                    let records: Vec<_> =
                        numbers.map(|number| record(producer * 1_000_000 + number)).collect();
                    let positions = journal.append_all(&records).unwrap();
                    assert_eq!(positions.end.get() - positions.start.get(), TOGETHER);
                    assert!(journal.end() >= positions.end, "acknowledged and not to be read");
                    let read = journal.read(positions.start, TOGETHER as usize).unwrap();
                    assert!(read.into_iter().map(|delivered| delivered.record).eq(records));
                }
            });
        }
        for _ in 0..3 {
            let journal = journal.clone();
            scope.spawn(move || {
                let mut next = at(0);
                let mut last = [None; PRODUCERS as usize];
                while next < at(PRODUCERS * CALLS * TOGETHER) {
                    assert!(journal.wait_for(next, Duration::from_secs(60)) > next, "nothing came");
                    for delivered in journal.read(next, 64).unwrap() {
                        assert_eq!(delivered.position, next);
                        let number = delivered.record.headers[0].1.as_ref().unwrap();
                        let number = u64::from_le_bytes(number[..].try_into().unwrap());
                        let last = &mut last[(number / 1_000_000) as usize];
                        assert!(last.is_none_or(|last| last + 1 == number));
                        *last = Some(number);
                        next = next.next();
                    }
                }
            });
        }
    });
    assert_eq!(journal.check().unwrap().damage, []);
}

#[test]
fn appends_can_be_under_way_while_others_are_made() {
    let (_folder, path) = place();
    let journal = Journal::open(&path).unwrap();
    let pending: Vec<_> =
        (0..500).map(|number| journal.append_later(&[record(number)]).unwrap()).collect();
    for (number, pending) in (0..).zip(pending) {
        assert_eq!(pending.wait().unwrap(), at(number)..at(number + 1));
    }
    // The handle is dropped without a wait, and the record is written all the same.
    drop(journal.append_later(&[record(500)]).unwrap());
    drop(journal);
    assert_eq!(Journal::open(&path).unwrap().end(), at(501));
}

/// Regression: a checkpoint ran only when no call waited, so the log grew by all writes of a busy
/// journal.
#[test]
fn the_log_stays_small_however_much_waits() {
    let (_folder, path) = place();
    let journal = Journal::open(&path).unwrap();
    let megabyte = vec![Record::without_key(vec![1; 100_000]); 10];
    let pending: Vec<_> = (0..100).map(|_| journal.append_later(&megabyte).unwrap()).collect();
    for pending in pending {
        let _positions = pending.wait().unwrap();
    }
    let log = std::fs::metadata(format!("{}-wal", path.display())).unwrap().len();
    // The size that makes a checkpoint due, the transaction that reaches it, and SQLite's own
    // overhead.
    assert!(log < 32 * 1024 * 1024, "{log}");
}

#[test]
fn progress_is_kept_for_each_group_and_does_not_go_back() {
    let (_folder, path) = place();
    let journal = Journal::open(&path).unwrap();
    journal.append_all(&(0..100).map(record).collect::<Vec<_>>()).unwrap();
    let mut tracker = Tracker::new(at(0), OffsetMapLimit::JOURNAL);
    for number in 0..50 {
        assert_eq!(tracker.take(at(number)), TakeOutcome::New);
    }
    for number in (0..50).filter(|number| number % 3 != 2) {
        tracker.complete(at(number)).unwrap();
    }
    assert_eq!(journal.committed("a").unwrap(), None);
    journal.commit("a", &tracker.progress()).unwrap();
    journal.commit("b", &Progress::up_to(at(100))).unwrap();

    let back = journal.commit("b", &Progress::up_to(at(99)));
    assert_eq!(back, Err(WriteError::Stale { committed: at(100) }));
    let beyond = journal.commit("a", &Progress::up_to(at(101)));
    assert_eq!(beyond, Err(WriteError::BeyondEnd { end: at(100) }));
    drop(journal);

    let journal = Journal::open(&path).unwrap();
    assert_eq!(journal.committed("a").unwrap(), Some(tracker.progress()));
    assert_eq!(journal.committed("b").unwrap(), Some(Progress::up_to(at(100))));
    // Committing the same progress again is valid, and after `forget` any progress is.
    journal.commit("b", &Progress::up_to(at(100))).unwrap();
    assert_eq!((journal.forget("b"), journal.forget("b")), (Ok(true), Ok(false)));
    assert_eq!(journal.committed("b").unwrap(), None);
    journal.commit("b", &Progress::up_to(at(1))).unwrap();
}

#[test]
fn retention_removes_whole_chunks_and_says_what_is_gone() {
    let (_folder, path) = place();
    let journal = Journal::open(&path).unwrap();
    // Chunks of 10 records each.
    for chunk in 0..100 {
        let records: Vec<_> = (chunk * 10..chunk * 10 + 10).map(record).collect();
        journal.append_all(&records).unwrap();
    }
    assert_eq!(
        journal.retain(RetentionPolicy::Unfinished),
        Ok(at(0)),
        "without groups all is unfinished"
    );
    journal.commit("a", &Progress::up_to(at(57))).unwrap();
    journal.commit("b", &Progress::up_to(at(890))).unwrap();
    assert_eq!(journal.retain(RetentionPolicy::Unfinished), Ok(at(50)));
    assert_eq!(journal.begin(), Ok(at(50)));
    assert_eq!(journal.read(at(49), 1), Err(JournalReadError::Gone { head: at(50) }));
    assert_eq!(journal.read(at(50), 1).unwrap()[0].record, record(50));
    assert_eq!(
        journal.retain(RetentionPolicy::From(at(20))),
        Ok(at(50)),
        "what is gone stays gone"
    );
    assert_eq!(journal.retain(RetentionPolicy::Newest(201)), Ok(at(790)));
    assert_eq!(journal.retain(RetentionPolicy::WrittenSince(SystemTime::UNIX_EPOCH)), Ok(at(790)));
    drop(journal);

    let journal = Journal::open(&path).unwrap();
    assert_eq!(journal.begin(), Ok(at(790)));
    assert_eq!(journal.check().unwrap().damage, []);
    let tomorrow = SystemTime::now() + Duration::from_secs(86_400);
    assert_eq!(journal.retain(RetentionPolicy::WrittenSince(tomorrow)), Ok(at(1000)));
    assert_eq!(journal.append(&record(1000)).unwrap(), at(1000), "positions go on");
    assert_eq!(everything(&journal).len(), 1);
    drop(journal);
    assert_eq!(Journal::open(&path).unwrap().end(), at(1001));
}

#[test]
fn a_long_retention_is_done_in_steps() {
    let (_folder, path) = place();
    let journal = Journal::open(&path).unwrap();
    // One chunk each, and more chunks than one step removes.
    (0..1100).for_each(|number| assert_eq!(journal.append(&record(number)), Ok(at(number))));
    assert_eq!(journal.retain(RetentionPolicy::Newest(1)), Ok(at(1099)));
    assert_eq!(everything(&journal).len(), 1);
    let report = journal.check().unwrap();
    assert_eq!((report.chunks, report.damage), (1, vec![]));
}

#[test]
fn a_second_opening_is_refused_and_names_the_process() {
    let (_folder, path) = place();
    let journal = Journal::open(&path).unwrap();
    let refused = Journal::open(&path);
    let me = std::process::id();
    assert!(
        matches!(refused, Err(JournalOpenError::InUse { by: Some(by), .. }) if by == me),
        "{refused:?}"
    );
    assert!(matches!(Journal::inspect(&path), Err(JournalOpenError::InUse { .. })));
    // A clone keeps the journal open; dropping the last one closes it.
    let clone = journal.clone();
    drop(journal);
    assert!(matches!(Journal::open(&path), Err(JournalOpenError::InUse { .. })));
    drop(clone);
    Journal::open(&path).unwrap();
}

#[cfg(unix)]
#[test]
fn a_link_leads_to_the_same_journal_and_its_lock() {
    let (folder, path) = place();
    let journal = Journal::open(&path).unwrap();
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let refused = Journal::open(&link);
    assert!(matches!(refused, Err(JournalOpenError::InUse { .. })), "{refused:?}");
    journal.append(&record(0)).unwrap();
    drop(journal);
    assert_eq!(Journal::open(&link).unwrap().end(), at(1));
}

#[test]
fn other_files_are_left_alone() {
    let (folder, path) = place();
    std::fs::write(&path, "not a database, but long enough to look like something").unwrap();
    let refused = Journal::open(&path);
    assert!(matches!(refused, Err(JournalOpenError::NotAJournal { .. })), "{refused:?}");
    let other = folder.path().join("other.sqlite");
    let connection = rusqlite::Connection::open(&other).unwrap();
    connection.execute_batch("CREATE TABLE important (it TEXT)").unwrap();
    let refused = Journal::open(&other);
    assert!(matches!(refused, Err(JournalOpenError::NotAJournal { .. })), "{refused:?}");
    drop(connection);

    let later = folder.path().join("later.journal");
    drop(Journal::open(&later).unwrap());
    let connection = rusqlite::Connection::open(&later).unwrap();
    connection.pragma_update(None, "user_version", 2).unwrap();
    drop(connection);
    let refused = Journal::open(&later);
    assert!(matches!(refused, Err(JournalOpenError::NotAJournal { .. })), "{refused:?}");
    assert!(Journal::inspect(folder.path().join("absent")).is_err());
}

/// Another program with SQLite's own tools delays writes only briefly, and meanwhile the error says
/// so.
#[test]
fn a_foreign_lock_on_the_file_delays_the_journal_and_breaks_nothing() {
    let (_folder, path) = place();
    let journal = Journal::open(&path).unwrap();
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert_eq!(journal.append(&record(0)), Err(WriteError::Busy));
    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!(journal.append(&record(0)), Ok(at(0)));
}

#[test]
fn an_outline_is_read_while_the_journal_is_open() {
    let (_folder, path) = place();
    let journal = Journal::open(&path).unwrap();
    journal.append_all(&(0..5).map(record).collect::<Vec<_>>()).unwrap();
    let progress = Progress::up_to(Position::new(3));
    journal.commit("b", &progress).unwrap();
    journal.commit("a", &Progress::up_to(Position::new(5))).unwrap();
    let open = Journal::info(&path).unwrap();
    drop(journal);
    assert_eq!(Journal::info(&path).unwrap(), open);
    assert_eq!((open.begin, open.end), (Position::ZERO, Position::new(5)));
    let names: Vec<_> = open.groups.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(open.groups[1].1, progress);
    let other = path.with_file_name("no such journal");
    assert!(Journal::info(&other).is_err() && !other.exists());
}

#[test]
fn its_files_are_for_their_owner_and_open_once() {
    let (folder, path) = place();
    let journal = Journal::open(&path).unwrap();
    journal.append(&record(0)).unwrap();
    for file in fs::read_dir(folder.path()).unwrap() {
        let file = file.unwrap();
        let mode = file.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{:?}", file.file_name());
    }
    let linked = folder.path().join("linked");
    fs::hard_link(&path, &linked).unwrap();
    fs::remove_file(format!("{}-lock", path.display())).unwrap();
    for path in [&path, &linked] {
        let error = Journal::open(path).unwrap_err();
        assert!(matches!(error, JournalOpenError::InUse { .. }), "{error}");
    }
    assert_eq!(journal.append(&record(1)), Ok(at(1)));
}

/// Regression: successive readers left no moment without a reader, and the log grew with every
/// write.
#[test]
fn readers_do_not_keep_its_log_from_being_bounded() {
    const MIB: usize = 1024 * 1024;
    let (_folder, path) = place();
    let journal = Journal::open(&path).unwrap();
    journal.append_all(&(0..100).map(record).collect::<Vec<_>>()).unwrap();
    let is_over = AtomicBool::new(false);
    let most = thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    journal.read(at(0), 100).unwrap();
                }
            });
        }
        let appended: Vec<u64> = (0..64)
            .map(|_| {
                let appended = journal.append(&Record::new("key", vec![7; 2 * MIB]));
                let log = fs::metadata(format!("{}-wal", path.display())).unwrap().len();
                appended.map_or(u64::MAX, |_| log)
            })
            .collect();
        is_over.store(true, Ordering::Relaxed);
        appended.into_iter().max().unwrap()
    });
    // On an overloaded machine a reader can be suspended for longer than the checkpoint waits for
    // it.
    assert!(most < 96 * MIB as u64, "{most}");
}
