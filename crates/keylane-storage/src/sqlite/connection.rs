//! Connections to a database, and its layout: how a file is opened, created, recognized and
//! migrated.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::files;

/// Time to wait for another program that holds SQLite's lock.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Time that a reset of the log waits for readers. The writer writes nothing meanwhile, so a slow
/// reader costs it no more than this for each try.
const RESET_TIMEOUT: Duration = Duration::from_millis(20);

/// Capacity of a connection's cache of prepared statements. Each user of a connection has fewer, so
/// that each statement is prepared once.
const MAX_STATEMENTS: usize = 64;

/// Size to which the log file shrinks when the log restarts, in bytes.
const MAX_LOG_KEPT: u64 = 16 * 1024 * 1024;

/// Error of a transaction. Nothing was written, except perhaps after `Broken`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SqliteError {
    /// The disk is full, or the file has its maximum size.
    Full,
    /// Another program holds SQLite's lock on the file.
    Busy,
    /// The state of the file is unknown: the operating system has failed a write or a sync.
    Broken(Arc<str>),
}

impl From<rusqlite::Error> for SqliteError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => SqliteError::Full,
            _ => SqliteError::Broken(error.to_string().into()),
        }
    }
}

/// Opens a reading connection.
///
/// # Errors
/// If SQLite fails.
pub fn reader(path: &Path) -> rusqlite::Result<Connection> {
    // A reader writes the log's index in shared memory, so it cannot open the file as read-only.
    let connection = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    connection.pragma_update(None, "query_only", true)?;
    Ok(connection)
}

/// Opens a connection for checkpoints beside the writer's.
///
/// # Errors
/// If SQLite fails, or there is no file.
pub(super) fn checkpointer(path: &Path) -> rusqlite::Result<Connection> {
    let connection = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "checkpoint_fullfsync", true)?;
    Ok(connection)
}

/// Copies as much of the log as readers allow, without waiting. Returns the size of the part of the
/// log that is in the file then, in bytes.
///
/// # Errors
/// If SQLite fails.
pub(super) fn checkpoint_passively(connection: &Connection) -> Result<u64, SqliteError> {
    let mut copy = connection.prepare_cached("PRAGMA wal_checkpoint(PASSIVE)")?;
    let pages: i64 = copy.query_row([], |row| row.get(2))?;
    Ok(pages_in_log(connection, pages)?)
}

/// Makes the log of an earlier process durable, before a connection shows its content: a
/// transaction that was written but not synced would be visible, and could still be lost, with all
/// later ones in the log.
///
/// # Errors
/// If the log cannot be read, written or synced.
pub fn settle_log(path: &Path) -> io::Result<()> {
    files::settle(&files::beside(path, "-wal"))
}

/// Opens the only writing connection. Its commits are on the disk when they return. The file grows
/// to at most `max_bytes`, if given.
///
/// # Errors
/// If SQLite fails.
pub fn writer(path: &Path, max_bytes: Option<u64>) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
    let connection = connect(path, flags)?;
    use_log(&connection)?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    // On macOS a plain sync leaves data in the disk's cache. Other systems ignore these settings.
    connection.pragma_update(None, "fullfsync", true)?;
    connection.pragma_update(None, "checkpoint_fullfsync", true)?;
    // Deleted content is overwritten in the file, and so in copies of it.
    connection.pragma_update_and_check(None, "secure_delete", true, |_| Ok(()))?;
    // A burst's log file shrinks when the log restarts.
    let limit = i64::try_from(MAX_LOG_KEPT).expect("a few megabytes");
    connection.pragma_update_and_check(None, "journal_size_limit", limit, |_| Ok(()))?;
    // SQLite's automatic checkpoints hide their errors.
    connection.pragma_update_and_check(None, "wal_autocheckpoint", 0, |_| Ok(()))?;
    if let Some(max_bytes) = max_bytes {
        let page: i64 = connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
        let pages = i64::try_from(max_bytes).unwrap_or(i64::MAX) / page;
        connection.pragma_update_and_check(None, "max_page_count", pages.max(1), |_| Ok(()))?;
    }
    Ok(connection)
}

/// Switches to a write-ahead log.
fn use_log(connection: &Connection) -> rusqlite::Result<()> {
    let mut switch = connection.prepare("PRAGMA journal_mode = WAL")?;
    let mut rows = switch.query([])?;
    let mut mode = String::new();
    // To the last row: the switch is written after the first one. If that fails, SQLite continues
    // with a mode in which a power failure can undo commits.
    while let Some(row) = rows.next()? {
        mode = row.get(0)?;
    }
    if mode == "wal" {
        return Ok(());
    }
    let why = format!("the file cannot have a write-ahead log; its journal mode is {mode}");
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR);
    Err(rusqlite::Error::SqliteFailure(code, Some(why)))
}

fn connect(path: &Path, flags: OpenFlags) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.set_prepared_statement_cache_capacity(MAX_STATEMENTS);
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    // The writer decides about checkpoints, and makes none after a failure.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    // Otherwise SQLite plans a statement with `LIMIT ?` for the value, and so again for each execution.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    Ok(connection)
}

/// Begins a writing transaction.
///
/// # Errors
/// If another program holds the lock, or SQLite fails.
pub fn begin(connection: &Connection) -> Result<(), SqliteError> {
    let begin = connection.prepare_cached("BEGIN IMMEDIATE");
    let begun = begin.and_then(|mut begin| begin.execute([]));
    begun.map(drop).map_err(|error| {
        let code = error.sqlite_error_code();
        let busy = matches!(code, Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked));
        if busy { SqliteError::Busy } else { error.into() }
    })
}

/// Commits the transaction.
///
/// # Errors
/// If SQLite fails. The transaction may have been rolled back.
pub fn commit(connection: &Connection) -> rusqlite::Result<()> {
    connection.prepare_cached("COMMIT")?.execute([]).map(drop)
}

/// Rolls back the transaction.
///
/// # Errors
/// If SQLite fails, which breaks the store.
pub fn roll_back(connection: &Connection) -> Result<(), SqliteError> {
    // Some failures roll back by themselves.
    if connection.is_autocommit() {
        return Ok(());
    }
    let rolled_back = connection.execute_batch("ROLLBACK");
    rolled_back.map_err(|error| SqliteError::Broken(error.to_string().into()))
}

/// Kind of a checkpoint, which copies the write-ahead log into the database file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checkpoint {
    /// Copies as much as readers allow, without waiting.
    Passive,
    /// Copies all and truncates the log, if readers leave it within 20 milliseconds.
    Reset,
    /// Copies all and truncates the log. For a store without readers.
    Full,
}

/// Copies the write-ahead log into the database file, so that the log can restart. Returns false if
/// a reader, or another checkpoint, has kept this one from its end.
///
/// # Errors
/// If SQLite fails.
pub fn checkpoint(connection: &Connection, mode: Checkpoint) -> rusqlite::Result<bool> {
    let sql = match mode {
        Checkpoint::Passive => "PRAGMA wal_checkpoint(PASSIVE)",
        Checkpoint::Reset | Checkpoint::Full => "PRAGMA wal_checkpoint(TRUNCATE)",
    };
    if mode == Checkpoint::Reset {
        connection.busy_timeout(RESET_TIMEOUT)?;
    }
    // Active readers are reported in the row, not as an error.
    let is_kept = connection.query_row(sql, [], |row| row.get::<_, bool>(0));
    if mode == Checkpoint::Reset {
        connection.busy_timeout(BUSY_TIMEOUT)?;
    }
    Ok(!is_kept?)
}

/// Returns the size of the used part of the log, in bytes. The log file can be larger.
///
/// # Errors
/// If SQLite fails.
pub fn log_bytes(connection: &Connection) -> rusqlite::Result<u64> {
    let mut look = connection.prepare_cached("PRAGMA wal_checkpoint(NOOP)")?;
    let pages = look.query_row([], |row| row.get(1))?;
    pages_in_log(connection, pages)
}

/// Returns the size of pages in the log, in bytes.
fn pages_in_log(connection: &Connection, pages: i64) -> rusqlite::Result<u64> {
    /// Header of each page in the log, in bytes.
    const FRAME_HEADER: u64 = 24;
    let page: i64 =
        connection.prepare_cached("PRAGMA page_size")?.query_row([], |row| row.get(0))?;
    // -1 stands for no log.
    Ok(pages.max(0).cast_unsigned() * (page.cast_unsigned() + FRAME_HEADER))
}

/// Returns the size of a database and its log on the disk, in bytes; 0 for a missing file.
#[must_use]
pub fn bytes_on_disk(path: &Path) -> u64 {
    let length = |path: &Path| std::fs::metadata(path).map_or(0, |file| file.len());
    length(path) + length(&files::beside(path, "-wal"))
}

/// Layout of a file, in this version of the software.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// SQLite's `application_id`, which `file` and SQLite's own tools show.
    pub application: i32,
    /// SQL that creates a file of version 1.
    pub tables: &'static str,
    /// SQL that migrates a file of version 1 to version 2, and so on. A new file runs all of them,
    /// so it equals a migrated one.
    pub migrations: &'static [&'static str],
}

/// Reason why a file does not have a layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LayoutError {
    /// The file was written by a later version, with this number.
    Later(i32),
    /// The file belongs to another application.
    Foreign,
}

impl Layout {
    /// Returns the version after all migrations.
    #[must_use]
    pub const fn version(&self) -> i32 {
        self.migrations.len() as i32 + 1
    }

    /// Creates the tables of a new file, or migrates an older one. Each step is atomic and on the
    /// disk before the next.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn prepare(&self, connection: &mut Connection) -> rusqlite::Result<()> {
        if is_new(connection)? {
            let creation = connection.transaction()?;
            creation.execute_batch(self.tables)?;
            for migration in self.migrations {
                creation.execute_batch(migration)?;
            }
            creation.pragma_update(None, "application_id", self.application)?;
            creation.pragma_update(None, "user_version", self.version())?;
            creation.commit()?;
            return checkpoint(connection, Checkpoint::Full).map(|_| ());
        }
        let (application, version) = numbers(connection)?;
        if application != self.application || !(1..self.version()).contains(&version) {
            return Ok(());
        }
        for (from, migration) in (1..).zip(self.migrations).skip(version as usize - 1) {
            let step = connection.transaction()?;
            step.execute_batch(migration)?;
            step.pragma_update(None, "user_version", from + 1)?;
            step.commit()?;
        }
        Ok(())
    }

    /// Begins a transaction in which an older file looks migrated, as by
    /// [`prepare`](Self::prepare). It must be rolled back, which leaves the file unchanged.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn preview(&self, connection: &Connection) -> rusqlite::Result<()> {
        let (application, version) = numbers(connection)?;
        if application != self.application || !(1..self.version()).contains(&version) {
            return connection.execute_batch("BEGIN");
        }
        connection.pragma_update(None, "query_only", false)?;
        connection.execute_batch("BEGIN IMMEDIATE")?;
        for migration in self.migrations.iter().skip(version as usize - 1) {
            connection.execute_batch(migration)?;
        }
        connection.pragma_update(None, "user_version", self.version())
    }

    /// Checks whether a file has this layout, and returns the reason if not.
    ///
    /// # Errors
    /// If SQLite fails to read the file.
    pub fn examine(&self, connection: &Connection) -> rusqlite::Result<Result<(), LayoutError>> {
        Ok(match numbers(connection)? {
            (application, version)
                if (application, version) == (self.application, self.version()) =>
            {
                Ok(())
            }
            (application, version) if application == self.application => {
                Err(LayoutError::Later(version))
            }
            _ => Err(LayoutError::Foreign),
        })
    }
}

fn is_new(connection: &Connection) -> rusqlite::Result<bool> {
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    Ok(tables == 0 && numbers(connection)? == (0, 0))
}

fn numbers(connection: &Connection) -> rusqlite::Result<(i32, i32)> {
    let number = |name| connection.pragma_query_value(None, name, |row| row.get(0));
    Ok((number("application_id")?, number("user_version")?))
}

/// Returns whether the error of a read means that the file is damaged, and its text.
#[must_use]
pub fn failure(error: &rusqlite::Error) -> (bool, String) {
    use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase, TypeMismatch};
    let typed = matches!(
        error,
        rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
            | rusqlite::Error::FromSqlConversionFailure(..)
    );
    let code = error.sqlite_error_code();
    let damaged = matches!(code, Some(DatabaseCorrupt | NotADatabase | TypeMismatch));
    (typed || damaged, error.to_string())
}

#[cfg(test)]
mod tests {
    use rusqlite::StatementStatus;

    use super::*;

    const FIRST: Layout = Layout {
        application: 77,
        tables: "CREATE TABLE a (x); INSERT INTO a VALUES (1)",
        migrations: &[],
    };

    const THIRD: Layout = Layout {
        migrations: &["ALTER TABLE a ADD COLUMN y", "ALTER TABLE a ADD COLUMN z"],
        ..FIRST
    };

    /// A missing sync shows only after a power failure, so the test checks the settings.
    #[test]
    fn what_the_promises_rest_on_is_set() {
        let folder = tempfile::tempdir().unwrap();
        let connection = writer(&folder.path().join("file"), None).unwrap();
        let setting = |name| -> rusqlite::types::Value {
            connection.pragma_query_value(None, name, |row| row.get(0)).unwrap()
        };
        assert_eq!(setting("journal_mode"), "wal".to_owned().into());
        assert_eq!(setting("synchronous"), 2.into());
        assert_eq!(setting("wal_autocheckpoint"), 0.into());
        // Only macOS acts on them; every system keeps their values.
        assert_eq!(setting("fullfsync"), 1.into());
        assert_eq!(setting("checkpoint_fullfsync"), 1.into());
        let closing = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
        assert_eq!(connection.db_config(closing), Ok(true));
    }

    #[test]
    fn other_values_do_not_prepare_a_statement_again() {
        let folder = tempfile::tempdir().unwrap();
        let mut connection = writer(&folder.path().join("file"), None).unwrap();
        FIRST.prepare(&mut connection).unwrap();
        let mut statement = connection.prepare("SELECT x FROM a WHERE x >= ?1 LIMIT ?2").unwrap();
        for values in [[1, 1], [1, 2], [2, 2]] {
            statement.query(values).unwrap().next().unwrap();
        }
        assert_eq!(statement.get_status(StatementStatus::RePrepare), 0);
    }

    #[test]
    fn an_older_file_is_brought_forward_and_a_later_one_refused() {
        let folder = tempfile::tempdir().unwrap();
        let mut connection = writer(&folder.path().join("file"), None).unwrap();
        FIRST.prepare(&mut connection).unwrap();
        assert_eq!(FIRST.examine(&connection), Ok(Ok(())));
        THIRD.prepare(&mut connection).unwrap();
        assert_eq!(THIRD.examine(&connection), Ok(Ok(())));
        let (x, z): (i64, Option<i64>) = connection
            .query_row("SELECT x, z FROM a", [], |row| Ok((row.get(0)?, row.get(1)?)))
            .unwrap();
        assert_eq!((x, z), (1, None));
        FIRST.prepare(&mut connection).unwrap();
        assert_eq!(FIRST.examine(&connection), Ok(Err(LayoutError::Later(3))));
        let other = Layout { application: 78, ..THIRD };
        other.prepare(&mut connection).unwrap();
        assert_eq!(other.examine(&connection), Ok(Err(LayoutError::Foreign)));
    }

    #[test]
    fn an_older_file_can_be_looked_at_without_a_change() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        FIRST.prepare(&mut writer(&path, None).unwrap()).unwrap();
        let looking = reader(&path).unwrap();
        THIRD.preview(&looking).unwrap();
        assert_eq!(THIRD.examine(&looking), Ok(Ok(())));
        let z: Option<i64> = looking.query_row("SELECT z FROM a", [], |row| row.get(0)).unwrap();
        assert_eq!(z, None);
        drop(looking);
        assert_eq!(FIRST.examine(&reader(&path).unwrap()), Ok(Ok(())));
    }

    #[test]
    fn a_new_file_is_what_an_older_one_becomes() {
        let folder = tempfile::tempdir().unwrap();
        let columns = |name: &str, layouts: &[Layout]| -> Vec<String> {
            let mut connection = writer(&folder.path().join(name), None).unwrap();
            for layout in layouts {
                layout.prepare(&mut connection).unwrap();
            }
            assert_eq!(THIRD.examine(&connection), Ok(Ok(())));
            let mut all = connection.prepare("SELECT name FROM pragma_table_info('a')").unwrap();
            let all = all.query_map([], |row| row.get(0)).unwrap();
            all.collect::<Result<_, _>>().unwrap()
        };
        assert_eq!(columns("new", &[THIRD]), ["x", "y", "z"]);
        assert_eq!(columns("old", &[FIRST, THIRD]), ["x", "y", "z"]);
    }
}
