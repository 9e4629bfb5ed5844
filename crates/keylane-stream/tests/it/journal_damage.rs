//! Data that differs from the written data is named in an error, and never skipped silently.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{copy_as_is, everything, place, record};
use keylane_stream::Position;
use keylane_stream::journal::{Journal, JournalDamage, JournalOpenError, JournalReadError};
use keylane_stream::tracker::Progress;
use rusqlite::Connection;

fn at(number: u64) -> Position {
    Position::new(number)
}

/// Returns a closed journal of ten chunks of ten records.
fn ten_chunks() -> (tempfile::TempDir, PathBuf) {
    let (folder, path) = place();
    let journal = Journal::open(&path).unwrap();
    for chunk in 0..10 {
        let records: Vec<_> = (chunk * 10..chunk * 10 + 10).map(record).collect();
        journal.append_all(&records).unwrap();
    }
    journal.commit("group", &Progress::with_map(at(5), at(9), vec![at(7)])).unwrap();
    (folder, path)
}

fn change(path: &Path, sql: &str) {
    let connection = Connection::open(path).unwrap();
    connection.execute_batch(sql).unwrap();
}

/// Changes the last byte of each copy of `what`, as SQLite leaves copies in free space.
fn flip_in_all_copies(file: &mut [u8], what: &str) {
    let copies = file.windows(what.len()).enumerate();
    let copies: Vec<_> = copies.filter(|(_, window)| *window == what.as_bytes()).collect();
    let copies: Vec<_> = copies.into_iter().map(|(at, _)| at + what.len() - 1).collect();
    assert!(!copies.is_empty(), "{what} is not there");
    copies.into_iter().for_each(|byte| file[byte] ^= 0x10);
}

/// Reads from the beginning. Returns the number of records, and the error that ended the reading.
fn read_until_damage(journal: &Journal) -> (u64, Option<JournalReadError>) {
    let mut next = journal.begin().unwrap();
    loop {
        match journal.read(next, 1000) {
            Ok(records) if records.is_empty() => return (next.get(), None),
            Ok(records) => {
                for delivered in records {
                    assert_eq!(delivered.position, next);
                    assert_eq!(delivered.record, record(next.get()));
                    next = next.next();
                }
            }
            Err(error) => return (next.get(), Some(error)),
        }
    }
}

#[test]
fn a_flipped_byte_in_the_file_names_its_chunk() {
    let (_folder, path) = ten_chunks();
    let mut file = fs::read(&path).unwrap();
    flip_in_all_copies(&mut file, "<payload 000000042>");
    fs::write(&path, file).unwrap();

    let journal = Journal::open(&path).unwrap();
    let damage = JournalDamage::Chunk { first: at(40) };
    assert_eq!(read_until_damage(&journal), (40, Some(JournalReadError::Damaged(damage.clone()))));
    // A read from any record of the chunk fails, not only from the damaged one; later chunks are
    // intact.
    assert_eq!(journal.read(at(49), 1), Err(JournalReadError::Damaged(damage.clone())));
    assert_eq!(journal.read(at(50), 1000).unwrap().len(), 50);
    let report = journal.check().unwrap();
    assert_eq!((report.chunks, report.damage), (10, vec![damage]));
}

#[test]
fn each_number_of_a_row_is_covered() {
    for column in
        ["written_ms = written_ms + 1", "crc = crc + 1", "crc = -1", "count = 9", "count = -1"]
    {
        let (_folder, path) = ten_chunks();
        change(&path, &format!("UPDATE chunk SET {column} WHERE first = 30"));
        let journal = Journal::open(&path).unwrap();
        let damage = JournalReadError::Damaged(JournalDamage::Chunk { first: at(30) });
        assert_eq!(read_until_damage(&journal), (30, Some(damage)), "{column}");
        assert_eq!(
            journal.check().unwrap().damage,
            [JournalDamage::Chunk { first: at(30) }],
            "{column}"
        );
    }
}

#[test]
fn a_missing_chunk_is_named() {
    let (_folder, path) = ten_chunks();
    change(&path, "DELETE FROM chunk WHERE first IN (30, 40)");
    let journal = Journal::open(&path).unwrap();
    let (until, error) = read_until_damage(&journal);
    let missing = JournalDamage::Missing { from: at(30), until: at(50) };
    assert_eq!((until, error), (30, Some(JournalReadError::Damaged(missing.clone()))));
    // Also from the middle of the missing range.
    assert!(matches!(
        journal.read(at(44), 1),
        Err(JournalReadError::Damaged(JournalDamage::Missing { .. }))
    ));
    assert_eq!(journal.read(at(50), 1000).unwrap().len(), 50);
    assert_eq!(journal.check().unwrap().damage, [missing]);
}

#[test]
fn a_chunk_in_anothers_place_is_named() {
    let (_folder, path) = ten_chunks();
    change(
        &path,
        "UPDATE chunk SET first = 1000 WHERE first = 20; UPDATE chunk SET first = 20 WHERE first = 30;
         UPDATE chunk SET first = 30 WHERE first = 1000",
    );
    let journal = Journal::open(&path).unwrap();
    let named = [JournalDamage::Chunk { first: at(20) }, JournalDamage::Chunk { first: at(30) }];
    assert_eq!(journal.check().unwrap().damage, named);
    assert_eq!(read_until_damage(&journal).0, 20);
}

/// The last chunk determines the next position, so without it appends are refused.
#[test]
fn a_damaged_beginning_or_end_is_not_opened_and_can_be_inspected() {
    let (_folder, path) = ten_chunks();
    change(&path, "UPDATE chunk SET count = 11 WHERE first = 90");
    let refused = Journal::open(&path);
    let damage = JournalDamage::Chunk { first: at(90) };
    assert!(
        matches!(&refused, Err(JournalOpenError::Damaged(found)) if *found == damage),
        "{refused:?}"
    );
    assert_eq!(Journal::inspect(&path).unwrap().damage, [damage]);

    let (_folder, path) = ten_chunks();
    change(&path, "DELETE FROM chunk WHERE first = 0");
    let refused = Journal::open(&path);
    assert!(matches!(refused, Err(JournalOpenError::Damaged(JournalDamage::Head))), "{refused:?}");
    let missing = JournalDamage::Missing { from: at(0), until: at(10) };
    assert_eq!(Journal::inspect(&path).unwrap().damage, [missing]);
}

#[test]
fn lost_records_at_the_end_are_noticed() {
    let (_folder, path) = ten_chunks();
    change(&path, "DELETE FROM chunk WHERE first >= 80");
    let refused = Journal::open(&path);
    let lost = |refused: &Result<Journal, JournalOpenError>| match refused {
        Err(JournalOpenError::Lost { from, acknowledged, mark }) => {
            Some((from.get(), acknowledged.get(), mark.clone()))
        }
        _ => None,
    };
    let (from, until, mark) = lost(&refused).unwrap_or_else(|| panic!("{refused:?}"));
    assert_eq!((from, until), (80, 100));
    // Deleting the mark accepts the loss.
    fs::remove_file(mark).unwrap();
    assert_eq!(Journal::open(&path).unwrap().end(), at(80));
}

/// SQLite takes a damaged frame for the end of its log, and does not report the frames after it.
#[test]
fn a_flipped_byte_in_the_log_is_noticed() {
    let (_folder, path) = ten_chunks();
    let journal = Journal::open(&path).unwrap();
    for number in 100..160 {
        journal.append(&record(number)).unwrap();
    }
    let (_copied, copy) = copy_as_is(&path);
    let log = PathBuf::from(format!("{}-wal", copy.display()));
    let whole = fs::read(&log).unwrap();
    assert_eq!(Journal::open(&copy).unwrap().end(), at(160), "undamaged, it is whole");
    let (mut refused, mut same) = (0, 0);
    for byte in (0..whole.len()).step_by(whole.len() / 60) {
        let (_copied, copy) = copy_as_is(&path);
        let mut damaged = whole.clone();
        damaged[byte] ^= 0x40;
        fs::write(PathBuf::from(format!("{}-wal", copy.display())), damaged).unwrap();
        match Journal::open(&copy) {
            Err(JournalOpenError::Lost { acknowledged, .. }) => {
                assert_eq!(acknowledged, at(160));
                refused += 1;
            }
            // A frame that a later one of the same page supersedes, or bytes of an earlier round:
            // no record is missing.
            Ok(journal) => {
                assert_eq!(everything(&journal).len(), 160);
                assert_eq!(journal.check().unwrap().damage, []);
                same += 1;
            }
            Err(error) => panic!("byte {byte}: {error:?}"),
        }
    }
    assert!(refused > 10, "{refused} refused, {same} unharmed");
}

#[test]
fn a_log_that_was_not_copied_is_noticed() {
    let (_folder, path) = ten_chunks();
    let journal = Journal::open(&path).unwrap();
    journal.append(&record(100)).unwrap();
    let (_copied, copy) = copy_as_is(&path);
    fs::remove_file(format!("{}-wal", copy.display())).unwrap();
    let refused = Journal::open(&copy);
    assert!(
        matches!(refused, Err(JournalOpenError::Lost { from, .. }) if from == at(100)),
        "{refused:?}"
    );
}

#[test]
fn a_mark_that_is_damaged_or_anothers_is_noticed_and_a_blank_one_is_none() {
    let (_folder, path) = ten_chunks();
    let mark = PathBuf::from(format!("{}-mark", path.display()));
    let whole = fs::read(&mark).unwrap();
    for byte in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[byte] ^= 1;
        fs::write(&mark, damaged).unwrap();
        let refused = Journal::open(&path);
        assert!(matches!(refused, Err(JournalOpenError::ForeignMark { .. })), "{refused:?}");
    }
    let (_other_folder, other) = ten_chunks();
    fs::copy(format!("{}-mark", other.display()), &mark).unwrap();
    let refused = Journal::open(&path).unwrap_err();
    let expected = format!("{} belongs to another journal or is damaged", mark.display());
    assert!(refused.to_string().starts_with(&expected), "{refused}");
    fs::write(&mark, [0; 32]).unwrap();
    assert_eq!(Journal::open(&path).unwrap().end(), at(100));
    assert_eq!(fs::read(&mark).unwrap(), whole);
}

#[test]
fn damaged_progress_is_named_and_not_used() {
    for sql in [
        "UPDATE progress SET watermark = 6",
        "UPDATE progress SET map = ''",
        "UPDATE progress SET map = substr(map, 1, length(map) - 1)",
        "UPDATE progress SET map = 'KL2:' || substr(map, 5)",
        "UPDATE progress SET name = 'other'",
    ] {
        let (_folder, path) = ten_chunks();
        change(&path, sql);
        let journal = Journal::open(&path).unwrap();
        let name = if sql.contains("other") { "other" } else { "group" };
        let damage = JournalDamage::Group { name: name.to_owned() };
        assert_eq!(
            journal.committed(name),
            Err(JournalReadError::Damaged(damage.clone())),
            "{sql}"
        );
        assert_eq!(journal.check().unwrap().damage, [damage], "{sql}");
    }
}

/// Wherever a byte of the file is changed, each record is returned as written or refused: none is
/// wrong, and none is skipped.
#[test]
fn no_flipped_byte_anywhere_changes_or_hides_a_record() {
    let (_folder, path) = ten_chunks();
    let whole = fs::read(&path).unwrap();
    let mut noticed = 0;
    for byte in (0..whole.len()).step_by(97) {
        let (_copied, copy) = copy_as_is(&path);
        let mut damaged = whole.clone();
        damaged[byte] ^= 0x21;
        fs::write(&copy, damaged).unwrap();
        let Ok(journal) = Journal::open(&copy) else {
            noticed += 1;
            continue;
        };
        if journal.begin().is_err() {
            noticed += 1;
            continue;
        }
        let (until, error) = read_until_damage(&journal);
        assert!(error.is_some() || until == 100, "byte {byte}: silently ended at {until}");
        noticed += u64::from(error.is_some());
    }
    assert!(noticed > 20, "{noticed}");
}
