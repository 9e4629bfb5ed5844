//! Tables of a journal, and the effect of one transaction on them.

use std::fmt::Display;
use std::path::Path;
use std::time::SystemTime;

use keylane_storage::sqlite::{self, Checkpoint, Layout, LayoutError, SqliteError};
use rusqlite::{Connection, OptionalExtension, params};

use super::chunk::{self, EncodedRecords, JournalChunk};
use super::error::{JournalDamage, JournalOpenError, WriteError};
use super::{JournalSettings, RetentionPolicy};
use crate::Position;

/// `KLJ1`. A later version gets the next number, and a migration from this one.
const LAYOUT: Layout = Layout { application: 0x4b4c_4a31, tables: TABLES, migrations: &[] };

const TABLES: &str = "
    CREATE TABLE journal (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        id BLOB NOT NULL,
        head INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE chunk (
        first INTEGER PRIMARY KEY,
        count INTEGER NOT NULL,
        written_ms INTEGER NOT NULL,
        crc INTEGER NOT NULL,
        body BLOB NOT NULL
    ) STRICT;
    CREATE TABLE progress (
        name TEXT PRIMARY KEY,
        watermark INTEGER NOT NULL,
        map TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
    INSERT INTO journal (one, id, head) VALUES (1, randomblob(16), 0);
";

/// Maximum number of chunks removed in one transaction, so that appends are written in between.
const MAX_CHUNKS_PER_RETAIN: i64 = 1024;

/// The writing connection.
#[derive(Debug)]
pub(super) struct JournalStore {
    connection: Connection,
    id: [u8; 16],
    /// One past the last record.
    next: Position,
    /// Whether the log may contain records that were removed.
    pub(super) is_log_stale: bool,
}

/// A write operation.
#[derive(Debug)]
pub(super) enum WriteOp {
    Append(Vec<EncodedRecords>),
    Commit { group: String, watermark: Position, end: Position, map: String },
    Forget { group: String },
    Retain(RetentionPolicy),
}

/// Result of a write operation.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum WriteResult {
    Appended(Position, Position),
    Committed,
    Forgotten(bool),
    /// First position of the journal, and whether there is more to remove.
    Retained(Position, bool),
}

impl JournalStore {
    pub(super) fn open(
        path: &Path,
        settings: &JournalSettings,
    ) -> Result<JournalStore, JournalOpenError> {
        let connection = Self::connect(path, settings).map_err(sqlite(path))?;
        let (id, next) = examine(&connection, path)?;
        Ok(JournalStore { connection, id, next, is_log_stale: false })
    }

    fn connect(path: &Path, settings: &JournalSettings) -> rusqlite::Result<Connection> {
        let mut connection = sqlite::writer(path, settings.max_bytes)?;
        LAYOUT.prepare(&mut connection)?;
        Ok(connection)
    }

    pub(super) fn id(&self) -> [u8; 16] {
        self.id
    }

    pub(super) fn next(&self) -> Position {
        self.next
    }

    /// Performs all operations in one transaction, which is on the disk on return. An operation
    /// that is refused changes nothing, and does not fail the others.
    pub(super) fn write<'a>(
        &mut self,
        works: impl Iterator<Item = &'a WriteOp>,
    ) -> Result<Vec<Result<WriteResult, WriteError>>, SqliteError> {
        sqlite::begin(&self.connection)?;
        let mut draft = JournalTransaction::new(&self.connection, self.next);
        match draft.write_all(works) {
            Ok(answers) => {
                self.next = draft.next;
                self.is_log_stale |=
                    answers.iter().any(|answer| matches!(answer, Ok(WriteResult::Retained(..))));
                Ok(answers)
            }
            Err(error) => {
                sqlite::roll_back(&self.connection)?;
                Err(error)
            }
        }
    }

    /// Returns the size of the used part of the log, in bytes.
    pub(super) fn log_bytes(&self) -> u64 {
        // An error here will show in the next transaction.
        sqlite::log_bytes(&self.connection).unwrap_or(0)
    }

    /// Copies the log into the file, so that the log can restart.
    /// Returns false if a reader has kept it from its end.
    pub(super) fn checkpoint(&mut self, mode: Checkpoint) -> Result<bool, SqliteError> {
        let is_done = sqlite::checkpoint(&self.connection, mode)?;
        self.is_log_stale &= mode == Checkpoint::Passive || !is_done;
        Ok(is_done)
    }

    /// Closes the store with a full checkpoint, once there are no readers.
    pub(super) fn close(self) -> Result<(), SqliteError> {
        sqlite::checkpoint(&self.connection, Checkpoint::Full)?;
        Ok(())
    }
}

fn sqlite(path: &Path) -> impl Fn(rusqlite::Error) -> JournalOpenError {
    move |error| match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::NotADatabase) => not_a_journal(path, "it is no SQLite database"),
        Some(rusqlite::ErrorCode::DatabaseCorrupt) => {
            JournalOpenError::Damaged(JournalDamage::File { why: error.to_string() })
        }
        _ => JournalOpenError::Sqlite { path: path.to_owned(), why: error.to_string().into() },
    }
}

fn not_a_journal(path: &Path, why: impl Display) -> JournalOpenError {
    JournalOpenError::NotAJournal { path: path.to_owned(), why: why.to_string() }
}

/// Verifies the preconditions of all other code: the format, and the journal's first and last
/// chunk.
pub(super) fn examine(
    connection: &Connection,
    path: &Path,
) -> Result<([u8; 16], Position), JournalOpenError> {
    match LAYOUT.examine(connection).map_err(sqlite(path))? {
        Ok(()) => {}
        Err(LayoutError::Later(version)) => {
            return Err(not_a_journal(path, format_args!("its layout has version {version}")));
        }
        Err(LayoutError::Foreign) => {
            return Err(not_a_journal(path, "it is another application's database"));
        }
    }
    let (id, head) = connection
        .query_row("SELECT id, head FROM journal", [], |row| Ok((row.get(0)?, row.get(1)?)))
        .map_err(sqlite(path))?;
    let head = Position::checked(head).ok_or(JournalOpenError::Damaged(JournalDamage::Head))?;
    let (begins, ends) = ends(connection).map_err(sqlite(path))?.unwrap_or((head, Ok(head)));
    let next = ends.map_err(JournalOpenError::Damaged)?;
    if begins != head {
        return Err(JournalOpenError::Damaged(JournalDamage::Head));
    }
    Ok((id, next))
}

/// Returns the beginning of the first chunk and the end of the last one, if there is any. The last
/// chunk determines the next position, so it must be intact.
fn ends(
    connection: &Connection,
) -> rusqlite::Result<Option<(Position, Result<Position, JournalDamage>)>> {
    let first = "SELECT first FROM chunk ORDER BY first LIMIT 1";
    let Some(begins) = connection.query_row(first, [], |row| row.get::<_, i64>(0)).optional()?
    else {
        return Ok(None);
    };
    let begins = Position::checked(begins).unwrap_or(Position::END);
    let last = "SELECT first, count, written_ms, crc, body FROM chunk ORDER BY first DESC LIMIT 1";
    connection.query_row(last, [], |row| {
        let first = Position::checked(row.get(0)?).unwrap_or(Position::END);
        let chunk = chunk_of(row)?.filter(JournalChunk::is_intact);
        let ends = chunk.and_then(|chunk| chunk.end()).ok_or(JournalDamage::Chunk { first });
        Ok(Some((begins, ends)))
    })
}

/// Reads a row of `first, count, written_ms, crc, body`. `None` if its numbers are out of range.
pub(super) fn chunk_of<'a>(
    row: &'a rusqlite::Row<'_>,
) -> rusqlite::Result<Option<JournalChunk<'a>>> {
    let (first, count, crc): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(3)?);
    let (written_ms, body) = (row.get(2)?, row.get_ref(4)?.as_blob()?);
    let parts = (Position::checked(first), u64::try_from(count), u32::try_from(crc));
    Ok(match parts {
        (Some(first), Ok(count), Ok(crc)) => {
            Some(JournalChunk { first, count, written_ms, crc, body })
        }
        _ => None,
    })
}

/// A transaction in progress.
struct JournalTransaction<'a> {
    connection: &'a Connection,
    next: Position,
    /// Records before `next` that are in no row yet.
    open: EncodedRecords,
    written_ms: i64,
}

impl<'a> JournalTransaction<'a> {
    fn new(connection: &'a Connection, next: Position) -> Self {
        let written_ms = chunk::millis(SystemTime::now());
        JournalTransaction { connection, next, open: EncodedRecords::default(), written_ms }
    }

    fn write_all<'w>(
        &mut self,
        works: impl Iterator<Item = &'w WriteOp>,
    ) -> Result<Vec<Result<WriteResult, WriteError>>, SqliteError> {
        let answers = works.map(|work| self.write(work)).collect::<Result<_, _>>()?;
        self.put_chunk()?;
        sqlite::commit(self.connection)?;
        Ok(answers)
    }

    fn write(&mut self, work: &WriteOp) -> Result<Result<WriteResult, WriteError>, SqliteError> {
        match work {
            WriteOp::Append(segments) => self.append(segments),
            WriteOp::Commit { group, watermark, end, map } => {
                self.commit(group, *watermark, *end, map)
            }
            WriteOp::Forget { group } => {
                let mut forget =
                    self.connection.prepare_cached("DELETE FROM progress WHERE name = ?1")?;
                Ok(Ok(WriteResult::Forgotten(forget.execute([group])? > 0)))
            }
            WriteOp::Retain(what) => {
                // Retention looks at rows only.
                self.put_chunk()?;
                self.retain(*what)
            }
        }
    }

    fn append(
        &mut self,
        segments: &[EncodedRecords],
    ) -> Result<Result<WriteResult, WriteError>, SqliteError> {
        let from = self.next;
        if from.after(segments.iter().map(|segment| segment.count).sum()).is_none() {
            return Ok(Err(WriteError::Full));
        }
        for segment in segments {
            if self.open.is_full_for(segment.count, segment.bytes.len()) {
                self.put_chunk()?;
            }
            self.open.count += segment.count;
            self.open.bytes.extend(&segment.bytes);
            self.next = self.next.after(segment.count).expect("the sum was checked above");
        }
        Ok(Ok(WriteResult::Appended(from, self.next)))
    }

    /// Writes a row with the records that are in none.
    fn put_chunk(&mut self) -> rusqlite::Result<()> {
        let EncodedRecords { count, bytes } = std::mem::take(&mut self.open);
        if count == 0 {
            return Ok(());
        }
        let first = Position::new(self.next.get() - count);
        let chunk = JournalChunk::sealed(first, count, self.written_ms, &bytes);
        let mut insert = self.connection.prepare_cached(
            "INSERT INTO chunk (first, count, written_ms, crc, body) VALUES (?1, ?2, ?3, ?4, ?5)",
        )?;
        let count = count.cast_signed();
        insert.execute(params![first.signed(), count, chunk.written_ms, chunk.crc, chunk.body])?;
        Ok(())
    }

    fn commit(
        &mut self,
        group: &str,
        watermark: Position,
        end: Position,
        map: &str,
    ) -> Result<Result<WriteResult, WriteError>, SqliteError> {
        if end > self.next {
            return Ok(Err(WriteError::BeyondEnd { end: self.next }));
        }
        let mut upsert = self.connection.prepare_cached(
            "INSERT INTO progress (name, watermark, map) VALUES (?1, ?2, ?3)
             ON CONFLICT (name) DO UPDATE SET watermark = ?2, map = ?3 WHERE watermark <= ?2",
        )?;
        if upsert.execute(params![group, watermark.signed(), map])? == 0 {
            let committed = "SELECT watermark FROM progress WHERE name = ?1";
            let committed = self.connection.query_row(committed, [group], |row| row.get(0))?;
            let committed = Position::checked(committed).unwrap_or(Position::END);
            return Ok(Err(WriteError::Stale { committed }));
        }
        Ok(Ok(WriteResult::Committed))
    }

    fn retain(
        &mut self,
        what: RetentionPolicy,
    ) -> Result<Result<WriteResult, WriteError>, SqliteError> {
        let head: i64 =
            self.connection.query_row("SELECT head FROM journal", [], |row| row.get(0))?;
        let wanted = self.begin_of(what)?.min(self.next);
        // The chunk that contains the position stays, and all chunks after it.
        let chunk = "SELECT max(first) FROM chunk WHERE first <= ?1";
        let chunk: Option<i64> =
            self.connection.query_row(chunk, [wanted.signed()], |row| row.get(0))?;
        let begin = if wanted == self.next { wanted.signed() } else { chunk.unwrap_or(head) };
        // In steps of `MAX_CHUNKS_PER_RETAIN`: the first chunk that stays this time.
        let nth = "SELECT first FROM chunk ORDER BY first LIMIT 1 OFFSET ?1";
        let nth =
            self.connection.query_row(nth, [MAX_CHUNKS_PER_RETAIN], |row| row.get(0)).optional()?;
        let new_head = nth.unwrap_or(begin).min(begin).max(head);
        self.connection.execute("DELETE FROM chunk WHERE first < ?1", [new_head])?;
        self.connection.execute("UPDATE journal SET head = ?1", [new_head])?;
        let more = new_head < begin;
        Ok(Ok(WriteResult::Retained(Position::checked(new_head).unwrap_or(Position::END), more)))
    }

    /// Returns the first record that must stay.
    fn begin_of(&self, what: RetentionPolicy) -> rusqlite::Result<Position> {
        let query = |sql, parameter: Option<i64>| -> rusqlite::Result<Option<Position>> {
            let number: Option<i64> = match parameter {
                Some(parameter) => self.connection.query_row(sql, [parameter], |row| row.get(0))?,
                None => self.connection.query_row(sql, [], |row| row.get(0))?,
            };
            Ok(number.and_then(Position::checked))
        };
        match what {
            RetentionPolicy::Unfinished => {
                let lowest = query("SELECT min(watermark) FROM progress", None)?;
                Ok(lowest.unwrap_or(Position::ZERO))
            }
            RetentionPolicy::From(position) => Ok(position),
            RetentionPolicy::Newest(count) => {
                Ok(Position::new(self.next.get().saturating_sub(count)))
            }
            RetentionPolicy::WrittenSince(time) => {
                let since = "SELECT min(first) FROM chunk WHERE written_ms >= ?1";
                Ok(query(since, Some(chunk::millis(time)))?.unwrap_or(self.next))
            }
        }
    }
}
