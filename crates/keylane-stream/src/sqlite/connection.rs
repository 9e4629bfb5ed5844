//! The file: how it is connected to, made, and known again.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

/// How long to wait for another program that looks into the file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a reset of the log waits for readers: the writer writes nothing meanwhile.
const RESET_TIMEOUT: Duration = Duration::from_millis(50);

/// How many bytes the file of a log keeps when the log begins anew.
const MAX_LOG_KEPT: u64 = 16 * 1024 * 1024;

/// Why a transaction was not written. Nothing of it was, unless it is `Broken`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SqliteError {
    /// The disk, or the size that the file may have, is full.
    Full,
    /// Another program holds SQLite's lock on the file.
    Busy,
    /// After this, what the operating system says of the file cannot be relied on.
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

/// A connection that only reads.
///
/// # Errors
/// If SQLite cannot.
pub fn reader(path: &Path) -> rusqlite::Result<Connection> {
    // The log's index is shared memory, which a reader writes too: so not opened as read-only.
    let connection = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    connection.pragma_update(None, "query_only", true)?;
    Ok(connection)
}

/// The one connection that writes: what its commits acknowledge is on the disk. The file grows up to
/// `max_bytes`, if there are any.
///
/// # Errors
/// If SQLite cannot.
pub fn writer(path: &Path, max_bytes: Option<u64>) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
    let connection = connect(path, flags)?;
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    // On macOS a sync leaves what was written in the disk's own cache, unless it is asked for more. Others have no such
    // call, and the setting does nothing there.
    connection.pragma_update(None, "fullfsync", true)?;
    connection.pragma_update(None, "checkpoint_fullfsync", true)?;
    // What is removed is overwritten, in the file and so in copies of it.
    connection.pragma_update_and_check(None, "secure_delete", true, |_| Ok(()))?;
    // A log that begins anew gives back what it needed once.
    let limit = i64::try_from(MAX_LOG_KEPT).expect("a few megabytes");
    connection.pragma_update_and_check(None, "journal_size_limit", limit, |_| Ok(()))?;
    // SQLite's own checkpoints keep their errors to themselves.
    connection.pragma_update_and_check(None, "wal_autocheckpoint", 0, |_| Ok(()))?;
    if let Some(max_bytes) = max_bytes {
        let page: i64 = connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
        let pages = i64::try_from(max_bytes).unwrap_or(i64::MAX) / page;
        connection.pragma_update_and_check(None, "max_page_count", pages.max(1), |_| Ok(()))?;
    }
    Ok(connection)
}

fn connect(path: &Path, flags: OpenFlags) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    // The writer decides when, and does not after a failure.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    Ok(connection)
}

/// Begins a transaction that writes.
///
/// # Errors
/// If another program keeps the file locked, or SQLite cannot.
pub fn begin(connection: &Connection) -> Result<(), SqliteError> {
    connection.execute_batch("BEGIN IMMEDIATE").map_err(|error| {
        let code = error.sqlite_error_code();
        let busy = matches!(code, Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked));
        if busy { SqliteError::Busy } else { error.into() }
    })
}

/// Takes back what the transaction has written.
///
/// # Errors
/// If SQLite cannot, which breaks the store.
pub fn roll_back(connection: &Connection) -> Result<(), SqliteError> {
    // Some failures have done so already.
    if connection.is_autocommit() {
        return Ok(());
    }
    let rolled_back = connection.execute_batch("ROLLBACK");
    rolled_back.map_err(|error| SqliteError::Broken(error.to_string().into()))
}

/// How much of the log is carried over into the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checkpoint {
    /// As much as readers allow, without a wait.
    Passive,
    /// All of it, and the log begins anew and is empty, if no reader keeps it for longer than a moment.
    Reset,
    /// All of it, when no reader is left: afterwards the file has everything.
    Full,
}

/// Carries the log over into the file, so that the log can begin anew.
///
/// # Errors
/// If SQLite cannot.
pub fn checkpoint(connection: &Connection, mode: Checkpoint) -> rusqlite::Result<()> {
    let sql = match mode {
        Checkpoint::Passive => "PRAGMA wal_checkpoint(PASSIVE)",
        Checkpoint::Reset | Checkpoint::Full => "PRAGMA wal_checkpoint(TRUNCATE)",
    };
    if mode == Checkpoint::Reset {
        connection.busy_timeout(RESET_TIMEOUT)?;
    }
    // That readers were in the way is said in the row, and is no error.
    let done = connection.query_row(sql, [], |_| Ok(()));
    if mode == Checkpoint::Reset {
        connection.busy_timeout(BUSY_TIMEOUT)?;
    }
    done
}

/// How many bytes of the log are in use. Its file may be larger: it keeps what an earlier round needed.
///
/// # Errors
/// If SQLite cannot.
pub fn log_bytes(connection: &Connection) -> rusqlite::Result<u64> {
    /// Before each page in the log.
    const FRAME_HEADER: u64 = 24;
    let mut look = connection.prepare_cached("PRAGMA wal_checkpoint(NOOP)")?;
    let pages: i64 = look.query_row([], |row| row.get(1))?;
    let page: i64 =
        connection.prepare_cached("PRAGMA page_size")?.query_row([], |row| row.get(0))?;
    // Without a log it is less than nothing.
    Ok(pages.max(0).cast_unsigned() * (page.cast_unsigned() + FRAME_HEADER))
}

/// How many bytes a database and its log have on the disk. A file that is not there has none.
#[must_use]
pub fn bytes_on_disk(path: &Path) -> u64 {
    let length = |path: &Path| std::fs::metadata(path).map_or(0, |file| file.len());
    length(path) + length(&super::lock::beside(path, "-wal"))
}

/// What a file is, in this version.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// What `file` and SQLite's own tools show as the application of the file.
    pub application: i32,
    /// SQL that makes a file of version 1.
    pub tables: &'static str,
    /// SQL that makes a file of version 1 one of version 2, and so on: one for each version but the
    /// first. A new file goes through all of them, so it is what an older one becomes.
    pub migrations: &'static [&'static str],
}

/// Why a file is not one with this layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LayoutError {
    /// A later version wrote it, with this number.
    Later(i32),
    /// It is another application's.
    Foreign,
}

impl Layout {
    /// The number of the version that all migrations lead to.
    #[must_use]
    pub const fn version(&self) -> i32 {
        self.migrations.len() as i32 + 1
    }

    /// Makes the tables of a new file, or brings those of an older version forward: each step is whole
    /// and on the disk before the next.
    ///
    /// # Errors
    /// If SQLite cannot.
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
            return checkpoint(connection, Checkpoint::Full);
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

    /// Begins a transaction in which a file of an earlier version is as [`prepare`](Self::prepare) would make it. It is
    /// not to be committed: the file stays as it is.
    ///
    /// # Errors
    /// If SQLite cannot.
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

    /// Whether a file has this layout, and if not, why.
    ///
    /// # Errors
    /// If SQLite cannot read it.
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

/// Whether an error of a read says that the file is not what was written, and what.
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

/// The one path of a file, whatever links lead to it, so that it has one lock; and which stays the
/// same when the process changes its folder.
///
/// # Errors
/// If its folder is not there.
pub fn resolved(path: &Path) -> io::Result<PathBuf> {
    match path.canonicalize() {
        Ok(path) => Ok(path),
        // It is to be made.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let path = std::path::absolute(path)?;
            let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
                return Err(error);
            };
            Ok(folder.canonicalize()?.join(name))
        }
        Err(error) => Err(error),
    }
}

/// Makes sure that a file that was created is found again after the machine has failed.
///
/// # Errors
/// If its folder cannot be opened or synced.
pub fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
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

    /// No test can see a sync that was left out, short of a machine that fails.
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
        let closing = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
        assert_eq!(connection.db_config(closing), Ok(true));
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
