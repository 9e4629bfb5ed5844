//! Handle of the store: submission of changes, and closing. An acknowledged change
//! survives a crash.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use keylane::admit::OwnedPermit;
use keylane_storage::sqlite::{self, EndRequest, ReaderPool};
use rusqlite::Connection;

use super::change::{Change, Changes, CommitReceipt, WriteReply, WriteRequest};
use super::chunk_cache::ChunkCache;
use super::connection::StoreConnection;
use super::ended::EndedCache;
use super::error::{ReadError, WriteError};
use super::inbox::{self, InboxRow};
use super::job_status;
use super::pending::PendingWrite;
use super::shared::StoreShared;
use super::store_dependencies::{JoinWriter, Outside};
use crate::ids::JobNumber;
use crate::node::{DrainOutcome, ListedNode};

/// Durable store of the service: one file, or the tables of a database, shared by the threads of one process.
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
/// A clone shares the store; an [`JobUpload`](super::JobUpload), a [`RecoveredJobs`](super::RecoveredJobs) and its
/// jobs each hold one. Dropping the last clone waits until all changes are written, and closes the
/// file.
///
/// # Examples
/// ```
/// use keylane_service::store::{Changes, JobState, JobStatus, NewJob, SubtaskOutcome, OutcomeKind};
/// use keylane_service::store::{StoreSettings, Store};
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("store");
/// let (store, mut recovered) = Store::open(&path, &StoreSettings::default())?;
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
/// changes.ended(job, SubtaskOutcome { number: 1, attempt: 1, kind, started_ms, ended_ms, result });
/// store.submit(changes).wait()?;
/// drop((store, recovered));
///
/// // After a restart, what has not ended is to be done.
/// let (store, mut recovered) = Store::open(&path, &StoreSettings::default())?;
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

/// Facts of the opening of a store.
#[derive(Debug)]
pub(super) struct OpenedStore {
    pub(super) path: PathBuf,
    /// Boot number.
    pub(super) boot: u64,
    /// Whether the disk was full at the opening, so that the opening is not recorded yet.
    pub(super) opened_full: bool,
    /// Clock and random numbers.
    pub(super) outside: Outside,
}

struct StoreCore {
    opened: OpenedStore,
    shared: Arc<StoreShared>,
    cache: Arc<ChunkCache>,
    ended: EndedCache,
    database: StoreDatabase,
    /// Wait for the end of the writer; `None` once it is over.
    writer: Mutex<Option<JoinWriter>>,
}

/// Database of a store, as its readers have it.
pub(super) enum StoreDatabase {
    /// A file of this process.
    Sqlite(Arc<ReaderPool>),
    /// A database that other nodes reach too, and the lease of this one.
    #[cfg(feature = "postgres")]
    Postgres(super::postgres::PostgresReaders, Arc<super::postgres::Lease>),
}

impl StoreDatabase {
    fn close(&self) {
        match self {
            StoreDatabase::Sqlite(readers) => readers.close(),
            #[cfg(feature = "postgres")]
            StoreDatabase::Postgres(..) => {}
        }
    }
}

/// Observer of an open store, which does not keep it open.
#[derive(Clone, Debug)]
pub(crate) struct OpenStore(Weak<StoreShared>);

impl OpenStore {
    /// Returns false once the store is closed: its handles are gone, and its writer has released the
    /// lock of the file, which it does before its last use of this state.
    pub(crate) fn is_open(&self) -> bool {
        self.0.strong_count() > 0
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

impl Store {
    /// Maximum size of a subtask: its keys and its payload together, in bytes.
    pub const MAX_SUBTASK_BYTES: usize = 64 * 1024 * 1024;

    /// Creates the handle of an open store. `writer` waits for the end of its writer.
    pub(super) fn new(
        opened: OpenedStore,
        shared: Arc<StoreShared>,
        database: StoreDatabase,
        writer: JoinWriter,
        max_cache_bytes: usize,
    ) -> Store {
        let core = StoreCore {
            opened,
            shared,
            cache: Arc::new(ChunkCache::new(max_cache_bytes)),
            ended: EndedCache::default(),
            database,
            writer: Mutex::new(Some(writer)),
        };
        Store { core: Arc::new(core) }
    }

    /// Returns whether an upload had this number. Its job may be absent: not written, or deleted.
    #[must_use]
    pub fn has_given(&self, number: JobNumber) -> bool {
        number.0 < self.core.shared.next_number()
    }

    /// Submits changes for one transaction, without waiting for the disk or for room.
    ///
    /// The caller bounds the number of pending submissions: an executor has at most one for each
    /// subtask that it runs. Changes are written in the order of their submission, except that the
    /// chunks of large uploads, and the requests that finish these uploads, may be written later
    /// than requests submitted after them.
    pub fn submit(&self, changes: Changes) -> PendingWrite {
        let (answer, pending) = PendingWrite::new();
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
        then: impl FnOnce(Result<CommitReceipt, WriteError>) + Send + 'static,
    ) {
        self.hand_over(changes, WriteReply::new(then), None);
    }

    /// Submits changes like [`submit_with`](Self::submit_with). The callback also gets the changes,
    /// so that they can be submitted again without a copy of all that are written. They are missing
    /// after a panic of the writer.
    pub(crate) fn submit_returning(
        &self,
        changes: Changes,
        then: impl FnOnce(Result<CommitReceipt, WriteError>, Changes) + Send + 'static,
    ) {
        self.hand_over(changes, WriteReply::with_changes(then), None);
    }

    /// Sets a callback that runs after each commit and its results, for work that is done once per
    /// commit. It runs on the writer thread, under the rules of [`submit_with`](Self::submit_with).
    ///
    /// # Panics
    /// If a callback is set already.
    pub fn after_commits(&self, then: impl Fn() + Send + Sync + 'static) {
        let is_first = self.shared().after_commit.set(then);
        assert!(is_first, "something is called after each commit already");
    }

    /// Submits changes and discards the result.
    pub fn submit_and_forget(&self, changes: Changes) {
        self.hand_over(changes, WriteReply::to_nobody(), None);
    }

    /// Sets the state of a damaged job to `Damaged`, so that the other jobs continue. `now_ms` is
    /// the current time.
    pub fn set_aside(&self, job: JobNumber, now_ms: u64) -> PendingWrite {
        let mut changes = Changes::new();
        changes.push(Change::SetAside { job, status: job_status::set_aside(now_ms) });
        self.submit(changes)
    }

    pub(super) fn hand_over(
        &self,
        changes: Changes,
        answer: WriteReply,
        room: Option<OwnedPermit>,
    ) {
        let mut answer = answer;
        for change in &changes.list {
            match change {
                Change::Purge(job) => {
                    self.core.cache.forget(*job);
                    self.core.ended.forget(*job);
                }
                Change::Edit(chunk) => {
                    let (cache, job) = (Arc::clone(&self.core.cache), chunk.job());
                    answer = answer.after(move || cache.edited(job));
                }
                _ => {}
            }
        }
        let request = WriteRequest { changes: changes.list, answer, _room: room };
        // The queue is closed while handles exist only if the writer has ended. The refusal is
        // reported by another thread, because the caller may hold a lock that the callback takes.
        if let Err(refused) = self.core.shared.queue.push(request) {
            let ended = || WriteError::Failed { cause: "the writer has ended".into() };
            let error = self.core.shared.failure().unwrap_or_else(ended);
            let tell = move || refused.answer.tell(Err(error), refused.changes);
            self.outside().writers.report(Box::new(tell));
        }
    }

    /// Returns the boot number of this opening: higher than any earlier one, and at least the
    /// system time in seconds. See `store/boot_number.rs`.
    #[must_use]
    pub fn boot(&self) -> u64 {
        self.core.opened.boot
    }

    /// Returns whether the disk was full at the opening, so that the opening is not recorded. Until
    /// the next write, a crash makes the next opening reuse this [`boot`](Self::boot) number.
    #[must_use]
    pub fn opened_full(&self) -> bool {
        self.core.opened.opened_full
    }

    /// Returns the size on the disk, in bytes: the file and SQLite's log. 0 for a store in another database.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        sqlite::bytes_on_disk(&self.core.opened.path)
    }

    /// Returns whether work may start now. With a store that several nodes reach, only the node that owns it may
    /// start work, and only while its heartbeats reach the database.
    #[must_use]
    pub fn may_start_work(&self) -> bool {
        match &self.core.database {
            StoreDatabase::Sqlite(_) => true,
            #[cfg(feature = "postgres")]
            StoreDatabase::Postgres(_, lease) => lease.holds(),
        }
    }

    /// Returns whether applications can submit jobs to the store by SQL.
    pub(crate) fn has_inbox(&self) -> bool {
        !self.is_in_file()
    }

    /// Returns the oldest jobs that were submitted by SQL and not accepted yet, at most this many.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub(crate) fn inbox(&self, most: u64) -> Result<Vec<InboxRow>, ReadError> {
        self.with_reader(|connection| inbox::read(connection, most))
    }

    /// Returns the servers that share the store: none for a store in a file.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub(crate) fn nodes(&self) -> Result<Vec<ListedNode>, ReadError> {
        match &self.core.database {
            StoreDatabase::Sqlite(_) => Ok(Vec::new()),
            #[cfg(feature = "postgres")]
            StoreDatabase::Postgres(..) => self.with_reader(super::postgres::list_nodes),
        }
    }

    /// Drains the server at an address, or ends that.
    ///
    /// # Errors
    /// If the database cannot be read or written.
    #[cfg_attr(not(feature = "postgres"), allow(unused_variables, reason = "there is no database"))]
    pub(crate) fn drain_node(
        &self,
        address: &str,
        drained: bool,
    ) -> Result<DrainOutcome, ReadError> {
        match &self.core.database {
            StoreDatabase::Sqlite(_) => Ok(DrainOutcome::Unknown),
            #[cfg(feature = "postgres")]
            StoreDatabase::Postgres(..) => self.with_reader(|connection| {
                super::postgres::drain_node(connection, address, drained)
            }),
        }
    }

    /// Returns whether users other than the owner may read the file.
    #[must_use]
    pub fn is_exposed(&self) -> bool {
        use std::os::unix::fs::PermissionsExt;
        std::fs::metadata(&self.core.opened.path)
            .is_ok_and(|file| file.permissions().mode() & 0o077 != 0)
    }

    /// Returns the path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.core.opened.path
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
        let commits = self.core.shared.commits();
        let has_failed = self.failure().is_some();
        StoreStats { commits, waiting, waiting_for_room, has_failed }
    }

    pub(super) fn outside(&self) -> &Outside {
        &self.core.opened.outside
    }

    pub(super) fn shared(&self) -> &Arc<StoreShared> {
        &self.core.shared
    }

    pub(super) fn cache(&self) -> &ChunkCache {
        &self.core.cache
    }

    /// Returns an observer of whether the store is open.
    pub(crate) fn watch_open(&self) -> OpenStore {
        OpenStore(Arc::downgrade(&self.core.shared))
    }

    /// Ends the ownership of a database, so that another node, or this one, can open it: blocks until all changes are written.
    /// Handles that remain can read, and their changes are refused. A file stays open until its last handle is gone, because
    /// its next opening must find no reader.
    pub(crate) fn give_up(&self) {
        if !self.is_in_file() {
            self.core.end_writer();
        }
    }

    pub(super) fn ended(&self) -> &EndedCache {
        &self.core.ended
    }

    /// Runs a read on a connection of the pool, so that readers do not wait for each other.
    pub(super) fn with_reader<T>(
        &self,
        read: impl FnOnce(&dyn StoreConnection) -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        match &self.core.database {
            StoreDatabase::Sqlite(readers) => readers.read(|connection| read(connection)),
            #[cfg(feature = "postgres")]
            StoreDatabase::Postgres(readers, _) => readers.read(read),
        }
    }

    /// Returns whether the store is in a file.
    pub(super) fn is_in_file(&self) -> bool {
        matches!(self.core.database, StoreDatabase::Sqlite(_))
    }

    /// Returns why this process must open the store again, once it must: another node has taken it over, or its
    /// database has lost transactions. `None` for a store in a file, whose disk an operator has to look at first.
    #[must_use]
    pub fn lost(&self) -> Option<String> {
        match &self.core.database {
            StoreDatabase::Sqlite(_) => None,
            #[cfg(feature = "postgres")]
            StoreDatabase::Postgres(_, lease) => match self.failure() {
                Some(failure) => Some(failure.to_string()),
                None => lease.lost().map(str::to_owned),
            },
        }
    }

    /// Returns the readers of the file.
    ///
    /// # Errors
    /// If the store is in no file.
    fn file_readers(&self) -> Result<&ReaderPool, ReadError> {
        match &self.core.database {
            StoreDatabase::Sqlite(readers) => Ok(readers),
            #[cfg(feature = "postgres")]
            StoreDatabase::Postgres(..) => Err(ReadError::NotInFile),
        }
    }

    /// Runs a read of the file itself.
    pub(super) fn with_file_reader<T>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        self.file_readers()?.read(read)
    }

    /// Runs a long read, which ends when it keeps the log beyond its bound.
    pub(super) fn with_long_reader<T>(
        &self,
        read: impl FnOnce(&Connection, EndRequest<'_>) -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        self.file_readers()?.read_until_ended(read)
    }
}

impl StoreCore {
    /// Closes the queue, and blocks until the writer has ended.
    fn end_writer(&self) {
        self.shared.queue.close();
        // An open reader would keep the writer from checkpointing its whole log.
        self.database.close();
        // A callback can drop the last handle on the writer thread, which cannot join itself and
        // ends after the callback.
        if self.shared.queue.is_writer() {
            return;
        }
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(writer) = writer {
            writer();
        }
    }
}

impl Drop for StoreCore {
    fn drop(&mut self) {
        self.end_writer();
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stats = self.stats();
        f.debug_struct("Store")
            .field("path", &self.core.opened.path)
            .field("stats", &stats)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;
    use crate::store::{JobStatus, NewJob, StoreSettings};

    /// A statement that never ends.
    const ENDLESS: &str =
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT max(x) FROM n";

    #[test]
    fn a_reader_that_never_ends_is_ended_when_the_log_has_its_bound() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let (store, _recovered) = Store::open(&path, &StoreSettings::default()).unwrap();
        let has_ended = AtomicBool::new(false);
        let add = |bytes: usize| {
            let mut upload = store.upload(1).unwrap();
            upload.push(&["key"], &vec![7; bytes]).unwrap();
            let (kind, status) = ("kind".into(), JobStatus::WAITING);
            upload
                .finish(NewJob { kind, created_ms: 1, head: Vec::new(), status, idempotency: None })
                .wait()
                .unwrap();
            std::fs::metadata(folder.path().join("store-wal")).unwrap().len()
        };
        add(1);
        let mut max = 0;
        thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let read = store.with_file_reader(|reader| {
                    let snapshot = reader.unchecked_transaction()?;
                    snapshot.query_row("SELECT count(*) FROM job", [], |_| Ok(()))?;
                    Ok(snapshot.query_row(ENDLESS, [], |_| Ok(()))?)
                });
                has_ended.store(true, Ordering::Relaxed);
                read
            });
            while !has_ended.load(Ordering::Relaxed) {
                max = max.max(add(4 << 20));
            }
            assert_eq!(reader.join().unwrap(), Err(ReadError::TooLong));
        });
        assert!(max > 200 << 20, "it was ended too early, at {max}");
        assert!(max < 290 << 20, "it was ended too late, at {max}");
        // The log has restarted.
        for _ in 0..20 {
            add(4 << 20);
        }
        assert!(add(1) < 100 << 20);
    }
}
