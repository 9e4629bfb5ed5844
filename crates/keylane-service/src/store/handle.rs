//! Handle of the store: opening, submission of changes, and closing. An acknowledged change
//! survives a crash.

use std::collections::VecDeque;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};

use keylane::admit::OwnedPermit;
use keylane_stream::sqlite::{self, HighWaterMark, LayoutError, Lock, ReaderPool};
use rusqlite::{Connection, ErrorCode};

use super::boot::{self, Highest};
use super::cache::ChunkCache;
use super::change::{Change, Changes, Committed, Request, WriteReply};
use super::draft;
use super::ended::EndedCache;
use super::error::{Damage, OpenError, ReadError, WriteError};
use super::extend::Extension;
use super::pending::Pending;
use super::queue::WriteQueue;
use super::read;
use super::recover::Recovered;
use super::seal;
use super::settings::Settings;
use super::state::{Opened, WriterState};
use super::tables::{LAYOUT, Meta};
use super::upload::Upload;
use super::writer::Writer;
use crate::ids::{JobId, JobNumber};

/// Durable store of the service: one file, shared by the threads of one process.
///
/// - **An acknowledged change is on the disk.** It survives `kill -9` and a failure of the machine.
/// - **All or nothing.** A job is stored with all its subtasks, or not at all; likewise the changes
///   of one submission.
/// - **In order.** Results are reported in the order of the commits, and jobs have positions in
///   that order.
/// - **Damage is reported.** Data with a wrong checksum is named in an error, and never skipped
///   silently.
/// - **A full disk refuses writes, a failed disk ends them.** After [`WriteError::Full`], writes
///   succeed again when there is room. After [`WriteError::Failed`], none does until the store is
///   opened again, because the operating system may have dropped data that it could not write.
///
/// A clone shares the store; an [`Upload`], a [`Recovered`] and its jobs each hold one. Dropping
/// the last clone waits until all changes are written, and closes the file.
///
/// # Examples
/// ```
/// use keylane_service::store::{Changes, JobState, JobStatus, NewJob, Outcome, OutcomeKind};
/// use keylane_service::store::{Settings, Store};
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("store");
/// let (store, mut recovered) = Store::open(&path, &Settings::default())?;
/// assert!(recovered.next_job()?.is_none());
///
/// let now_ms = 1_763_000_000_000;
/// let mut upload = store.upload(now_ms)?;
/// upload.push(&["ann"], b"1 book")?;
/// upload.push(&["bob"], b"2 pens")?;
/// let job = upload.job();
/// let (kind, head, status) = ("bill".into(), b"{}".to_vec(), JobStatus::WAITING);
/// upload.finish(NewJob { kind, created_ms: now_ms, head, status, idempotency: None }).wait()?;
///
/// let result = b"paid".to_vec();
/// let (started_ms, ended_ms, kind) = (now_ms + 5, now_ms + 9, OutcomeKind::Succeeded);
/// let mut changes = Changes::new();
/// changes.ended(job, Outcome { number: 1, attempt: 1, kind, started_ms, ended_ms, result });
/// store.submit(changes).wait()?;
/// drop((store, recovered));
///
/// // After a restart, what has not ended is to be done.
/// let (store, mut recovered) = Store::open(&path, &Settings::default())?;
/// let unfinished = recovered.next_job()?.unwrap();
/// let mut waiting = Vec::new();
/// unfinished.for_each_waiting(|subtask| waiting.push(subtask.subtask.payload().to_vec()))?;
/// assert_eq!(waiting, [b"1 book"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Store {
    core: Arc<StoreCore>,
}

struct StoreCore {
    path: PathBuf,
    boot: u64,
    shared: Arc<StoreShared>,
    cache: ChunkCache,
    ended: EndedCache,
    readers: Arc<ReaderPool>,
    /// Whether the disk was full at the opening, so that the opening is not recorded yet.
    opened_full: bool,
    /// Writer thread; `None` once joined.
    writer: Option<JoinHandle<()>>,
}

/// State shared by callers and the writer.
#[derive(Debug)]
pub(super) struct StoreShared {
    pub(super) queue: WriteQueue,
    /// Number of the next upload.
    next_number: AtomicU64,
    /// Number of transactions on the disk. Only the writer changes it.
    commits: AtomicU64,
    /// First failure, after which nothing is written. Only the writer changes it.
    failed: Mutex<Option<Arc<str>>>,
    /// Whether closing the file may record an orderly shutdown: the previous process shut down in
    /// order, or all unfinished jobs were handed to their new owner. A tool that opens a crashed
    /// store and closes it must not hide the crash.
    pub(super) goes_on: AtomicBool,
    /// Callback after each commit. Set once, before the first change that it serves.
    pub(super) after_commit: AfterCommit,
}

/// Optional callback on the writer thread, run after the results of a commit are reported.
#[derive(Default)]
pub(super) struct AfterCommit(OnceLock<Box<dyn Fn() + Send + Sync>>);

impl AfterCommit {
    pub(super) fn call(&self) {
        if let Some(then) = self.0.get() {
            then();
        }
    }
}

impl fmt::Debug for AfterCommit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AfterCommit").field(&self.0.get().is_some()).finish()
    }
}

/// Status of the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreStats {
    /// Number of transactions on the disk, since the file was created.
    pub commits: u64,
    /// Number of requests in the writer's queue.
    pub waiting: usize,
    /// Number of callers that wait for room in the queue.
    pub waiting_for_room: usize,
    /// Whether the store has failed and refuses writes.
    pub has_failed: bool,
}

impl StoreShared {
    fn failed(&self) -> MutexGuard<'_, Option<Arc<str>>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a failure. The first cause is kept.
    pub(super) fn fail(&self, cause: Arc<str>) {
        self.failed().get_or_insert(cause);
    }

    pub(super) fn failure_cause(&self) -> Option<Arc<str>> {
        self.failed().clone()
    }

    pub(super) fn failure(&self) -> Option<WriteError> {
        self.failure_cause().map(|cause| WriteError::Failed { cause })
    }

    pub(super) fn next_number(&self) -> u64 {
        self.next_number.load(Ordering::Relaxed)
    }

    pub(super) fn set_commits(&self, commits: u64) {
        self.commits.store(commits, Ordering::Relaxed);
    }
}

impl Store {
    /// Maximum size of a subtask: its keys and its payload together, in bytes.
    pub const MAX_SUBTASK_BYTES: usize = 64 * 1024 * 1024;

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
        settings: &Settings,
    ) -> Result<(Store, Recovered), OpenError> {
        let path =
            sqlite::resolved(path.as_ref()).map_err(OpenError::io("find the store's folder"))?;
        let lock = Lock::take(&path).map_err(OpenError::locked(&path))?;
        let (connection, was) = open_file(&path, settings)?;
        let mut mark = open_mark(&path, &was)?;
        let mut highest_boot = Highest::open(&path);
        let next_boot = boot::next(was.boot, highest_boot.number(), boot::seconds());
        let reading = OpenError::reading(&path);
        let (unfinished, count) = unfinished(&connection, &was).map_err(&reading)?;
        let meta = Meta { boot: next_boot, clean: false, unfinished: Some(count), ..was.clone() };
        let opened_full = match meta.put(&connection) {
            Ok(()) => false,
            // Each transaction writes this again, so a full disk only delays it.
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DiskFull) => true,
            Err(error) => return Err(sqlite(&path)(error)),
        };
        match mark.set(meta.commits) {
            // The mark on the disk is not beyond the commits, so the store is usable.
            Err(error) if !opened_full => return Err(OpenError::io("write the mark")(error)),
            _ => {}
        }
        match highest_boot.raise(next_boot) {
            Err(error) if !opened_full => {
                return Err(OpenError::io("write the number of the opening (-boot)")(error));
            }
            _ => {}
        }
        sqlite::sync_folder(&path).map_err(OpenError::io("sync the folder"))?;

        let opened = Opened { boot: meta.boot, unfinished: count };
        let state = WriterState::load(&connection, opened).map_err(&reading)?;
        let loose = loose(&connection).map_err(|error| reading(error.into()))?;
        let marks = state.marks.all();
        let was_clean = was.clean || was.boot == 0;
        let shared = Arc::new(StoreShared {
            queue: WriteQueue::new(settings.most_waiting_bytes),
            next_number: AtomicU64::new(meta.numbers),
            after_commit: AfterCommit::default(),
            commits: AtomicU64::new(meta.commits),
            failed: Mutex::default(),
            goes_on: AtomicBool::new(was_clean),
        });
        let writer = Writer {
            connection,
            state,
            mark,
            highest_boot,
            shared: Arc::clone(&shared),
            loose,
            resting: false,
            opened,
            readers: Arc::new(ReaderPool::new(&path)),
            path: path.clone(),
            most_bytes: settings.most_bytes,
            is_log_stale: false,
            lock,
        };
        let store = Store::start(path, meta.boot, opened_full, shared, writer, settings)?;
        let recovered = Recovered::new(store.clone(), was_clean, unfinished, marks, settings)
            .map_err(OpenError::reading(store.path()))?;
        Ok((store, recovered))
    }

    fn start(
        path: PathBuf,
        boot: u64,
        opened_full: bool,
        shared: Arc<StoreShared>,
        writer: Writer,
        settings: &Settings,
    ) -> Result<Store, OpenError> {
        let readers = Arc::clone(&writer.readers);
        let writer = thread::Builder::new()
            .name("keylane-store".into())
            .spawn(move || writer.run())
            .map_err(OpenError::io("start the writer"))?;
        let core = StoreCore {
            path,
            boot,
            shared,
            cache: ChunkCache::new(settings.most_cache_bytes),
            ended: EndedCache::default(),
            readers,
            opened_full,
            writer: Some(writer),
        };
        Ok(Store { core: Arc::new(core) })
    }

    /// Begins the upload of a job. `now_ms`, in milliseconds since 1970, becomes part of its
    /// identifier.
    ///
    /// # Errors
    /// If the numbers are exhausted.
    pub fn upload(&self, now_ms: u64) -> Result<Upload, WriteError> {
        let number = self.core.shared.next_number.fetch_add(1, Ordering::Relaxed);
        if number >= seal::JOBS {
            return Err(WriteError::TooLarge { what: "jobs of a store", most: seal::JOBS });
        }
        let job = JobNumber(number);
        // Randomness only makes identifiers hard to guess; the number makes them unique.
        let chance = getrandom::u64().unwrap_or(number);
        Ok(Upload::new(self.clone(), job, JobId::new(job, now_ms, chance)))
    }

    /// Returns whether an upload had this number. Its job may be absent: not written, or deleted.
    #[must_use]
    pub fn has_given(&self, number: JobNumber) -> bool {
        number.0 < self.core.shared.next_number()
    }

    /// Begins the upload of a job that keeps its identifier from another store.
    pub(super) fn upload_as(&self, id: JobId) -> Upload {
        self.core.shared.next_number.fetch_max(id.number().0 + 1, Ordering::Relaxed);
        Upload::new(self.clone(), id.number(), id)
    }

    /// Begins the upload of further subtasks for an unfinished job that has `total` of them.
    pub fn extend(&self, job: JobNumber, total: u32) -> Extension {
        Extension::new(self.clone(), job, total)
    }

    /// Submits changes for one transaction, without waiting for the disk or for room.
    ///
    /// The caller bounds the number of pending submissions: an executor has at most one for each
    /// subtask that it runs. Changes are written in the order of their submission.
    pub fn submit(&self, changes: Changes) -> Pending {
        let (answer, pending) = Pending::new();
        self.hand_over(changes, answer, None);
        pending
    }

    /// Submits changes like [`submit`](Self::submit), with a callback for the result.
    ///
    /// The callback is called once, on the writer thread, in the order of the commits, and before
    /// any later commit. It must be short, must not wait for the disk, and must not panic, which
    /// would end the writer. It may submit changes and finish uploads: on this thread, neither
    /// waits for room.
    pub fn submit_with(
        &self,
        changes: Changes,
        then: impl FnOnce(Result<Committed, WriteError>) + Send + 'static,
    ) {
        self.hand_over(changes, WriteReply::new(then), None);
    }

    /// Sets a callback that runs after each commit and its results, for work that is done once per
    /// commit. It runs on the writer thread, under the rules of [`submit_with`](Self::submit_with).
    ///
    /// # Panics
    /// If a callback is set already.
    pub fn after_commits(&self, then: impl Fn() + Send + Sync + 'static) {
        let is_first = self.shared().after_commit.0.set(Box::new(then)).is_ok();
        assert!(is_first, "something is called after each commit already");
    }

    /// Submits changes and discards the result.
    pub fn submit_and_forget(&self, changes: Changes) {
        self.hand_over(changes, WriteReply::to_nobody(), None);
    }

    /// Sets the state of a damaged job to `Damaged`, so that the other jobs continue. `now_ms` is
    /// the current time.
    pub fn set_aside(&self, job: JobNumber, now_ms: u64) -> Pending {
        let mut changes = Changes::new();
        changes.push(Change::SetAside { job, status: draft::set_aside(now_ms) });
        self.submit(changes)
    }

    pub(super) fn hand_over(
        &self,
        changes: Changes,
        answer: WriteReply,
        room: Option<OwnedPermit>,
    ) {
        let request = Request { changes: changes.list, answer, _room: room };
        for change in &request.changes {
            if let Change::Purge(job) = change {
                self.core.cache.forget(*job);
                self.core.ended.forget(*job);
            }
        }
        // The queue is closed while handles exist only if the writer has ended. The refusal is
        // reported by another thread, because the caller may hold a lock that the callback takes.
        // If that thread cannot start, dropping the request reports the refusal.
        if let Err(refused) = self.core.shared.queue.push(request) {
            let ended = || WriteError::Failed { cause: "the writer has ended".into() };
            let error = self.core.shared.failure().unwrap_or_else(ended);
            let tell = move || refused.answer.tell(Err(error));
            let _ = thread::Builder::new().name("keylane-store-ended".into()).spawn(tell);
        }
    }

    /// Returns the boot number of this opening: higher than any earlier one, and at least the
    /// system time in seconds. See `store/boot.rs`.
    #[must_use]
    pub fn boot(&self) -> u64 {
        self.core.boot
    }

    /// Returns whether the disk was full at the opening, so that the opening is not recorded. Until
    /// the next write, a crash makes the next opening reuse this [`boot`](Self::boot) number.
    #[must_use]
    pub fn opened_full(&self) -> bool {
        self.core.opened_full
    }

    /// Returns the size on the disk, in bytes: the file and SQLite's log.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        sqlite::bytes_on_disk(&self.core.path)
    }

    /// Returns whether users other than the owner may read the file.
    #[must_use]
    pub fn is_exposed(&self) -> bool {
        use std::os::unix::fs::PermissionsExt;
        std::fs::metadata(&self.core.path).is_ok_and(|file| file.permissions().mode() & 0o077 != 0)
    }

    /// Returns the path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.core.path
    }

    /// Returns the first failure, after which nothing is written.
    #[must_use]
    pub fn failure(&self) -> Option<WriteError> {
        self.core.shared.failure()
    }

    /// Returns the status of the store.
    #[must_use]
    pub fn stats(&self) -> StoreStats {
        let (waiting, waiting_for_room) = self.core.shared.queue.waiting();
        let commits = self.core.shared.commits.load(Ordering::Relaxed);
        let has_failed = self.failure().is_some();
        StoreStats { commits, waiting, waiting_for_room, has_failed }
    }

    pub(super) fn shared(&self) -> &Arc<StoreShared> {
        &self.core.shared
    }

    pub(super) fn cache(&self) -> &ChunkCache {
        &self.core.cache
    }

    pub(super) fn ended(&self) -> &EndedCache {
        &self.core.ended
    }

    /// Runs a read on a connection of the pool, so that readers do not wait for each other.
    pub(super) fn with_reader<T>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        self.core.readers.read(read)
    }
}

impl Drop for StoreCore {
    fn drop(&mut self) {
        self.shared.queue.close();
        // An open reader would keep the writer from checkpointing its whole log.
        self.readers.close();
        // A callback can drop the last handle on the writer thread, which cannot join itself and
        // ends after the callback.
        if self.shared.queue.is_writer() {
            return;
        }
        if let Some(writer) = self.writer.take() {
            // After a panic of the writer, its dropped requests have reported the failure already.
            let _ = writer.join();
        }
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stats = self.stats();
        f.debug_struct("Store").field("path", &self.core.path).field("stats", &stats).finish()
    }
}

fn sqlite(path: &Path) -> impl Fn(rusqlite::Error) -> OpenError {
    move |error| {
        let why = error.to_string();
        match error.sqlite_error_code() {
            Some(rusqlite::ErrorCode::NotADatabase) => OpenError::NotAStore {
                path: path.to_owned(),
                why: "it is no SQLite database".into(),
            },
            Some(rusqlite::ErrorCode::DatabaseCorrupt) => OpenError::Damaged(Damage::File { why }),
            _ => OpenError::Sqlite { path: path.to_owned(), why: why.into() },
        }
    }
}

/// Capacity of the statement cache. More than the writer uses, so that each is prepared once.
const MAX_STATEMENTS: usize = 64;

/// Opens the file and reads its recorded counters.
fn open_file(path: &Path, settings: &Settings) -> Result<(Connection, Meta), OpenError> {
    let mut connection = sqlite::writer(path, settings.most_bytes).map_err(sqlite(path))?;
    connection.set_prepared_statement_cache_capacity(MAX_STATEMENTS);
    LAYOUT.prepare(&mut connection).map_err(sqlite(path))?;
    examine(&connection, path)?;
    if let Some(meta) = Meta::load(&connection).map_err(OpenError::reading(path))? {
        return Ok((connection, meta));
    }
    let id = || -> rusqlite::Result<[u8; 16]> {
        connection.query_row("SELECT randomblob(16)", [], |row| row.get(0))
    };
    let id = id().map_err(sqlite(path))?;
    let meta =
        Meta { id, boot: 0, clean: true, commits: 0, numbers: 1, entered: 1, unfinished: Some(0) };
    Ok((connection, meta))
}

/// Earlier version with equal tables, which can be read without a migration.
const LIKE_THIS: i32 = 7;

/// Checks that the file is a store of this version.
pub(super) fn examine(connection: &Connection, path: &Path) -> Result<(), OpenError> {
    let path = path.to_owned();
    match LAYOUT.examine(connection).map_err(sqlite(&path))? {
        Ok(()) => Ok(()),
        // This version has the same tables.
        Err(LayoutError::Later(LIKE_THIS)) => Ok(()),
        Err(LayoutError::Later(version)) if version < LAYOUT.version() => {
            Err(OpenError::Earlier { path, version })
        }
        Err(LayoutError::Later(version)) => Err(OpenError::Later { path, version }),
        Err(LayoutError::Foreign) => {
            let why = "it is another application's database".into();
            Err(OpenError::NotAStore { path, why })
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
    was: &Meta,
) -> Result<(Vec<(u64, JobNumber)>, u64), ReadError> {
    let listed = read::unfinished(connection)?;
    let count = listed.len() as u64;
    if was.unfinished == Some(count) {
        return Ok((listed, count));
    }
    let census = read::census(connection)?;
    let count = census.unfinished.len() as u64;
    if let Some(missing) = was.unfinished.and_then(|known| known.checked_sub(count))
        && missing > 0
    {
        return Err(ReadError::Damaged(Damage::MissingJobs { count: missing }));
    }
    if was.unfinished.is_some() {
        connection.execute_batch("REINDEX job_by_state")?;
    }
    Ok((census.unfinished, count))
}

/// Magic number of the mark's file.
const MARK: [u8; 4] = *b"KLM2";

fn open_mark(path: &Path, was: &Meta) -> Result<HighWaterMark, OpenError> {
    let (mark, acknowledged) = HighWaterMark::open(path, MARK, was.id)?;
    all_there(was, acknowledged, mark.path())?;
    Ok(mark)
}

/// Checks the mark as opening does, without a change.
pub(super) fn look_at_mark(path: &Path, was: &Meta) -> Result<(), OpenError> {
    let (mark, acknowledged) = HighWaterMark::look(path, MARK, was.id)?;
    all_there(was, acknowledged, &mark)
}

fn all_there(was: &Meta, acknowledged: Option<u64>, mark: &Path) -> Result<(), OpenError> {
    match acknowledged {
        Some(acknowledged) if acknowledged > was.commits => {
            Err(OpenError::Lost { has: was.commits, acknowledged, mark: mark.to_owned() })
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
