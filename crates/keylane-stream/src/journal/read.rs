//! Reads of a journal: records, progress, and checks for damage. Each reader has its own
//! connection, and sees the transactions that were committed when it started.

use std::path::Path;

use keylane_storage::sqlite;
use rusqlite::{Connection, OptionalExtension};

use super::error::{JournalDamage, JournalOpenError, JournalReadError};
use super::store;
use super::{CheckReport, JournalInfo};
use crate::tracker::{self, ForeignMapPolicy, OffsetMapPolicy, Progress, UnreadableMapPolicy};
use crate::{DeliveredRecord, Position};

/// Size at which a read ends, in bytes. It bounds the memory of a read.
const MAX_READ_BYTES: usize = 8 * 1024 * 1024;

const CHUNKS_FROM: &str = "SELECT first, count, written_ms, crc, body FROM chunk
    WHERE first >= coalesce((SELECT max(first) FROM chunk WHERE first <= ?1), ?1) ORDER BY first";

/// Reads records from `from` on that were on the disk when `durable` was read.
pub(super) fn read(
    connection: &Connection,
    from: Position,
    max: usize,
    durable: Position,
) -> Result<Vec<DeliveredRecord>, JournalReadError> {
    let mut records = Vec::new();
    if max == 0 {
        return Ok(records);
    }
    // One snapshot for both statements: retention may run concurrently.
    let snapshot = connection.unchecked_transaction()?;
    let head = head(&snapshot)?;
    if from < head {
        return Err(JournalReadError::Gone { head });
    }
    let mut expected = from;
    let mut bytes = 0;
    let mut statement = snapshot.prepare_cached(CHUNKS_FROM)?;
    let mut rows = statement.query([from.signed()])?;
    while expected < durable && records.len() < max && bytes < MAX_READ_BYTES {
        let delivered = rows.next().map_err(JournalReadError::from).and_then(|row| {
            let Some(row) = row else {
                let missing = JournalDamage::Missing { from: expected, until: durable };
                return Err(JournalReadError::Damaged(missing));
            };
            bytes += row.get_ref(4)?.as_blob().map_or(0, <[u8]>::len);
            next_chunk(row, expected, max - records.len())
        });
        match delivered {
            Ok((delivered, end)) => {
                records.extend(delivered);
                // A chunk that ends before `expected` advances nothing; the next row shows the gap.
                expected = expected.max(end);
            }
            // Return the records before the damage. The next read starts with it and fails.
            Err(_) if !records.is_empty() => break,
            Err(error) => return Err(error),
        }
    }
    Ok(records)
}

/// Decodes the records of a row from `expected` on, and returns one past its last.
fn next_chunk(
    row: &rusqlite::Row<'_>,
    expected: Position,
    max: usize,
) -> Result<(Vec<DeliveredRecord>, Position), JournalReadError> {
    let first = Position::checked(row.get(0)?).unwrap_or(Position::END);
    if first > expected {
        return Err(JournalReadError::Damaged(JournalDamage::Missing {
            from: expected,
            until: first,
        }));
    }
    let read =
        store::chunk_of(row)?.and_then(|chunk| Some((chunk.records(expected, max)?, chunk.end()?)));
    read.ok_or(JournalReadError::Damaged(JournalDamage::Chunk { first }))
}

pub(super) fn head(connection: &Connection) -> Result<Position, JournalReadError> {
    let head = connection.query_row("SELECT head FROM journal", [], |row| row.get(0))?;
    Position::checked(head).ok_or(JournalReadError::Damaged(JournalDamage::Head))
}

/// Only this crate writes these maps, so anything else is damage.
const MAP_POLICY: OffsetMapPolicy = OffsetMapPolicy {
    parallel_consumer: ForeignMapPolicy::Distrust,
    unreadable: UnreadableMapPolicy::Refuse,
};

/// Reads the last committed progress of a group.
pub(super) fn committed(
    connection: &Connection,
    id: &[u8; 16],
    group: &str,
) -> Result<Option<Progress>, JournalReadError> {
    let sql = "SELECT watermark, map FROM progress WHERE name = ?1";
    let mut statement = connection.prepare_cached(sql)?;
    let row = statement.query_row([group], |row| Ok((row.get(0)?, row.get::<_, String>(1)?)));
    let Some((watermark, map)) = row.optional()? else { return Ok(None) };
    let damaged = || JournalReadError::Damaged(JournalDamage::Group { name: group.to_owned() });
    let watermark = Position::checked(watermark).ok_or_else(damaged)?;
    // An empty map would be accepted as no progress, but every commit writes one.
    if map.is_empty() {
        return Err(damaged());
    }
    let found = tracker::decode(watermark, &map, &stream(id, group), MAP_POLICY);
    Ok(Some(found.map_err(|_| damaged())?.into_progress()))
}

/// Returns the identity of a group's progress: the journal and the group.
pub(super) fn stream(id: &[u8; 16], group: &str) -> Vec<u8> {
    [&id[..], group.as_bytes()].concat()
}

/// Checks the whole journal.
pub(super) fn check(
    connection: &Connection,
    id: &[u8; 16],
    durable: Option<Position>,
) -> Result<CheckReport, JournalReadError> {
    let snapshot = connection.unchecked_transaction()?;
    let head = head(&snapshot)?;
    let mut report = CheckReport { begin: head, end: head, ..CheckReport::default() };
    check_chunks(&snapshot, &mut report)?;
    if let Some(durable) = durable.filter(|durable| report.end < *durable) {
        report.damage.push(JournalDamage::Missing { from: report.end, until: durable });
    }
    for name in names(&snapshot)? {
        report.groups += 1;
        match committed(&snapshot, id, &name) {
            Ok(_) => {}
            Err(JournalReadError::Damaged(damage)) => report.damage.push(damage),
            Err(error) => return Err(error),
        }
    }
    check_file(&snapshot, &mut report)?;
    Ok(report)
}

fn check_chunks(connection: &Connection, report: &mut CheckReport) -> Result<(), JournalReadError> {
    let all = "SELECT first, count, written_ms, crc, body FROM chunk ORDER BY first";
    let mut statement = connection.prepare(all)?;
    let mut rows = statement.query([])?;
    // `None` after a damaged chunk, whose end is unknown.
    let mut expected = Some(report.begin);
    while let Some(row) = rows.next()? {
        let first = Position::checked(row.get(0)?).unwrap_or(Position::END);
        match expected {
            Some(expected) if first > expected => {
                report.damage.push(JournalDamage::Missing { from: expected, until: first });
            }
            Some(expected) if first < expected => report.damage.push(JournalDamage::Head),
            _ => {}
        }
        report.chunks += 1;
        let chunk = store::chunk_of(row)?;
        let intact = chunk.and_then(|chunk| {
            let records = chunk.records(chunk.first, 0).is_some();
            records.then_some((chunk.end()?, chunk.body.len()))
        });
        match intact {
            Some((end, bytes)) => {
                report.bytes += bytes as u64;
                (report.end, expected) = (end, Some(end));
            }
            None => {
                report.damage.push(JournalDamage::Chunk { first });
                (report.end, expected) = (first, None);
            }
        }
    }
    Ok(())
}

fn names(connection: &Connection) -> Result<Vec<String>, JournalReadError> {
    let mut names = connection.prepare("SELECT name FROM progress ORDER BY name")?;
    let names = names.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    Ok(names)
}

/// Reads the range of a journal and the progress of its groups.
pub(super) fn info(path: &Path) -> Result<JournalInfo, JournalOpenError> {
    let failed = |error: JournalReadError| match error {
        JournalReadError::Damaged(damage) => JournalOpenError::Damaged(damage),
        error => JournalOpenError::Sqlite { path: path.to_owned(), why: error.to_string().into() },
    };
    let connection = sqlite::reader(path).map_err(|error| failed(error.into()))?;
    let snapshot = connection.unchecked_transaction().map_err(|error| failed(error.into()))?;
    let (id, end) = store::examine(&snapshot, path)?;
    let mut info = JournalInfo { begin: head(&snapshot).map_err(failed)?, end, groups: Vec::new() };
    for name in names(&snapshot).map_err(failed)? {
        if let Some(progress) = committed(&snapshot, &id, &name).map_err(failed)? {
            info.groups.push((name, progress));
        }
    }
    Ok(info)
}

/// Runs SQLite's own check, which covers the pages around the chunks.
fn check_file(connection: &Connection, report: &mut CheckReport) -> Result<(), JournalReadError> {
    let mut statement = connection.prepare("PRAGMA quick_check(100)")?;
    for line in statement.query_map([], |row| row.get::<_, String>(0))? {
        let why = line?;
        if why != "ok" {
            report.damage.push(JournalDamage::File { why });
        }
    }
    Ok(())
}

/// Checks a journal that may be too damaged to be opened.
pub(super) fn inspect(path: &Path) -> Result<CheckReport, JournalOpenError> {
    let failed = |error: rusqlite::Error| JournalOpenError::Sqlite {
        path: path.to_owned(),
        why: error.to_string().into(),
    };
    let connection = sqlite::reader(path).map_err(failed)?;
    let id = match store::examine(&connection, path) {
        Ok((id, _)) => id,
        // The report includes this damage.
        Err(JournalOpenError::Damaged(_)) => {
            connection.query_row("SELECT id FROM journal", [], |row| row.get(0)).map_err(failed)?
        }
        Err(error) => return Err(error),
    };
    check(&connection, &id, None).map_err(|error| match error {
        JournalReadError::Damaged(damage) => JournalOpenError::Damaged(damage),
        error => JournalOpenError::Sqlite { path: path.to_owned(), why: error.to_string().into() },
    })
}
