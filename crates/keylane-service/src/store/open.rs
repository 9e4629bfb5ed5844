//! Opening of a store: the checks of the file, the record of the opening, and the start of the writer.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use keylane_storage::files;
use keylane_storage::sqlite::{
    self, BackgroundCheckpoint, HighWaterMark, LayoutError, Lock, ReaderPool, SqliteError,
};
use rusqlite::Connection;

use super::boot_number::{self, HighestBoot};
use super::census;
use super::error::{ReadError, StoreDamage, StoreOpenError};
use super::handle::{OpenedStore, Store, StoreDatabase};
use super::read;
use super::recover::RecoveredJobs;
use super::settings::StoreSettings;
use super::shared::StoreShared;
use super::sqlite_database::SqliteDatabase;
use super::store_dependencies::Outside;
use super::tables::{LAYOUT, MetaRow};
use super::writer::StoreWriter;
use super::writer_state::{OpeningValues, WriterState};
use crate::ids::JobNumber;

impl Store {
    /// Opens a store, or creates it, and returns its unfinished jobs.
    ///
    /// The file `path` has companions: SQLite's `-wal` and `-shm`, which must be copied with it
    /// while it is open; `-mark`, the high-water mark of acknowledged commits; `-boot`, which keeps
    /// fences rising when the store is replaced by a copy; and `-lock`. The file system must be
    /// local.
    ///
    /// # Errors
    /// If the store is open already, is not a store, was written by a later version, lacks
    /// acknowledged commits, is damaged in a part that opening reads, or cannot be opened. Recovery
    /// and [`check`](Self::check) cover the rest.
    pub fn open(
        path: impl AsRef<Path>,
        settings: &StoreSettings,
    ) -> Result<(Store, RecoveredJobs), StoreOpenError> {
        Store::open_in(path.as_ref(), settings, &Outside::system())
    }

    /// Opens a store like [`open`](Self::open), with this clock, these random numbers and this
    /// writer thread.
    pub(crate) fn open_in(
        path: &Path,
        settings: &StoreSettings,
        outside: &Outside,
    ) -> Result<(Store, RecoveredJobs), StoreOpenError> {
        #[cfg(feature = "postgres")]
        if let Some(database) = &settings.postgres {
            return super::postgres::open(database, path, settings, outside);
        }
        let path = files::resolved(path)
            .map_err(StoreOpenError::io("find the folder of the store", path))?;
        let lock = Lock::take(&path).map_err(StoreOpenError::locked(&path))?;
        Store::remove_unnamed_copy(&path);
        let settling = StoreOpenError::io("sync the log of an earlier process", &path);
        sqlite::settle_log(&path).map_err(settling)?;
        let (connection, was) = open_file(&path, settings)?;
        let mut mark = open_mark(&path, &was)?;
        let mut highest_boot = HighestBoot::open(&path);
        let next_boot = boot_number::next(
            was.boot,
            highest_boot.number(),
            outside.now_ms() / 1000,
            outside.random(),
        );
        let reading = StoreOpenError::reading(&path);
        let (unfinished, count) = unfinished(&connection, &was).map_err(&reading)?;
        let meta =
            MetaRow { boot: next_boot, clean: false, unfinished: Some(count), ..was.clone() };
        let opened_full = record_opening(&path, &connection, &meta, &mut mark, &mut highest_boot)?;
        files::sync_folder(&path)
            .map_err(StoreOpenError::io("sync the folder of the store", &path))?;

        let opened = OpeningValues { boot: meta.boot, unfinished: count };
        let state = WriterState::load(&connection, opened).map_err(&reading)?;
        let loose = loose(&connection).map_err(|error| reading(error.into()))?;
        let marks = state.marks.all();
        let was_clean = was.clean || was.boot == 0;
        let shared = StoreShared::new(settings.max_waiting_bytes, &meta, was_clean);
        let shared = Arc::new(shared);
        let readers = readers(&path, &shared);
        let database = Box::new(SqliteDatabase {
            background: BackgroundCheckpoint::new(&path),
            connection,
            mark,
            highest_boot,
            readers: Arc::clone(&readers),
            path: path.clone(),
            max_bytes: settings.max_bytes,
            is_log_stale: false,
            _lock: lock,
        });
        let is_state_old = false;
        let writer =
            StoreWriter { database, state, is_state_old, shared, loose, resting: false, opened };
        let outside = outside.clone();
        let opened = OpenedStore { path, boot: meta.boot, opened_full, outside };
        let store = start(opened, writer, readers, settings)?;
        let recovered = RecoveredJobs::new(store.clone(), was_clean, unfinished, marks, settings)
            .map_err(StoreOpenError::reading(store.path()))?;
        Ok((store, recovered))
    }
}

/// Creates the pool of readers. The end of the last one wakes a writer that awaits it.
fn readers(path: &Path, shared: &Arc<StoreShared>) -> Arc<ReaderPool> {
    let readers = Arc::new(ReaderPool::new(path));
    // Weak, so that the pool does not keep the store open.
    let shared = Arc::downgrade(shared);
    readers.after_last(move || {
        if let Some(shared) = shared.upgrade() {
            shared.queue.wake();
        }
    });
    readers
}

/// Records the opening in the file and in its companions. Returns whether the disk was full, so that
/// the next transaction records it.
fn record_opening(
    path: &Path,
    connection: &Connection,
    meta: &MetaRow,
    mark: &mut HighWaterMark,
    highest_boot: &mut HighestBoot,
) -> Result<bool, StoreOpenError> {
    let opened_full = match meta.put(connection) {
        Ok(()) => false,
        // Each transaction writes this again, so a full disk only delays it.
        Err(SqliteError::Full) => true,
        Err(SqliteError::Busy) => return Err(not_open(path)("another program locks it".into())),
        Err(SqliteError::Broken(why)) => return Err(not_open(path)(why)),
    };
    match mark.set(meta.commits) {
        // The mark on the disk is not beyond the commits, so the store is usable.
        Err(error) if !opened_full => {
            return Err(StoreOpenError::io("write the mark", mark.path())(error));
        }
        _ => {}
    }
    match highest_boot.raise(meta.boot) {
        Err(error) if !opened_full => {
            let boot = files::beside(path, "-boot");
            Err(StoreOpenError::io("write the number of the opening", boot)(error))
        }
        _ => Ok(opened_full),
    }
}

/// Starts the writer, and returns the handle of the store.
fn start(
    opened: OpenedStore,
    writer: StoreWriter,
    readers: Arc<ReaderPool>,
    settings: &StoreSettings,
) -> Result<Store, StoreOpenError> {
    let shared = Arc::clone(&writer.shared);
    let writer = opened.outside.writers.start(writer);
    let writer =
        writer.map_err(StoreOpenError::io("start the writer of the store", &opened.path))?;
    let database = StoreDatabase::Sqlite(readers);
    Ok(Store::new(opened, shared, database, writer, settings.max_cache_bytes))
}

fn sqlite(path: &Path) -> impl Fn(rusqlite::Error) -> StoreOpenError {
    move |error| {
        let why = error.to_string();
        match error.sqlite_error_code() {
            Some(rusqlite::ErrorCode::NotADatabase) => StoreOpenError::NotAStore {
                path: path.to_owned(),
                why: "it is no SQLite database".into(),
            },
            Some(rusqlite::ErrorCode::DatabaseCorrupt) => {
                StoreOpenError::Damaged(StoreDamage::File { why })
            }
            _ => not_open(path)(why.into()),
        }
    }
}

fn not_open(path: &Path) -> impl Fn(Arc<str>) -> StoreOpenError {
    move |why| StoreOpenError::Sqlite { path: path.to_owned(), why }
}

/// Opens the file and reads its recorded counters.
fn open_file(
    path: &Path,
    settings: &StoreSettings,
) -> Result<(Connection, MetaRow), StoreOpenError> {
    let mut connection = sqlite::writer(path, settings.max_bytes).map_err(sqlite(path))?;
    LAYOUT.prepare(&mut connection).map_err(sqlite(path))?;
    examine(&connection, path)?;
    if let Some(meta) = MetaRow::load(&connection).map_err(StoreOpenError::reading(path))? {
        return Ok((connection, meta));
    }
    let id = || -> rusqlite::Result<[u8; 16]> {
        connection.query_row("SELECT randomblob(16)", [], |row| row.get(0))
    };
    let id = id().map_err(sqlite(path))?;
    let meta = MetaRow {
        id,
        boot: 0,
        clean: true,
        commits: 0,
        numbers: 1,
        entered: 1,
        unfinished: Some(0),
    };
    Ok((connection, meta))
}

/// Earlier version with equal tables, which can be read without a migration.
const LIKE_THIS: i32 = 7;

/// Checks that the file is a store of this version.
pub(super) fn examine(connection: &Connection, path: &Path) -> Result<(), StoreOpenError> {
    let path = path.to_owned();
    match LAYOUT.examine(connection).map_err(sqlite(&path))? {
        Ok(()) => Ok(()),
        // This version has the same tables.
        Err(LayoutError::Later(LIKE_THIS)) => Ok(()),
        Err(LayoutError::Later(version)) if version < LAYOUT.version() => {
            Err(StoreOpenError::Earlier { path, version })
        }
        Err(LayoutError::Later(version)) => Err(StoreOpenError::Later { path, version }),
        Err(LayoutError::Foreign) => {
            let why = "it is another application's database".into();
            Err(StoreOpenError::NotAStore { path, why })
        }
    }
}

/// Returns the unfinished jobs in their order, and the number to record for them.
///
/// The recorded number shows whether the index is complete. If the two differ, the rows themselves
/// are read and the index is rebuilt: SQLite would not update a row through an index entry that
/// disagrees with it.
fn unfinished(
    connection: &Connection,
    was: &MetaRow,
) -> Result<(Vec<(u64, JobNumber)>, u64), ReadError> {
    let listed = read::unfinished(connection)?;
    let count = listed.len() as u64;
    if was.unfinished == Some(count) {
        return Ok((listed, count));
    }
    let census = census::take(connection)?;
    let count = census.unfinished.len() as u64;
    if let Some(missing) = was.unfinished.and_then(|known| known.checked_sub(count))
        && missing > 0
    {
        return Err(ReadError::Damaged(StoreDamage::MissingJobs { count: missing }));
    }
    if was.unfinished.is_some() {
        connection.execute_batch("REINDEX job_by_state")?;
    }
    Ok((census.unfinished, count))
}

/// Magic number of the mark's file.
const MARK: [u8; 4] = *b"KLM2";

fn open_mark(path: &Path, was: &MetaRow) -> Result<HighWaterMark, StoreOpenError> {
    let (mark, acknowledged) = HighWaterMark::open(path, MARK, was.id)?;
    all_there(was, acknowledged, mark.path())?;
    Ok(mark)
}

/// Checks the mark as opening does, without a change.
pub(super) fn look_at_mark(path: &Path, was: &MetaRow) -> Result<(), StoreOpenError> {
    let (mark, acknowledged) = HighWaterMark::look(path, MARK, was.id)?;
    all_there(was, acknowledged, &mark)
}

fn all_there(was: &MetaRow, acknowledged: Option<u64>, mark: &Path) -> Result<(), StoreOpenError> {
    match acknowledged {
        Some(acknowledged) if acknowledged > was.commits => {
            Err(StoreOpenError::Lost { has: was.commits, acknowledged, mark: mark.to_owned() })
        }
        _ => Ok(()),
    }
}

/// Returns the jobs with chunks but no main row: unfinished uploads.
fn loose(connection: &Connection) -> rusqlite::Result<VecDeque<JobNumber>> {
    let mut all = connection.prepare("SELECT job FROM loose")?;
    let jobs = all.query_map([], |row| Ok(JobNumber(row.get::<_, i64>(0)?.cast_unsigned())))?;
    jobs.collect()
}
