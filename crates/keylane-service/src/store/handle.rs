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
use super::cache::Cache;
use super::change::{Answer, Change, Changes, Committed, Request};
use super::draft;
use super::ended::EndedCache;
use super::error::{Damage, OpenError, ReadError, WriteError};
use super::extend::Extension;
use super::pending::Pending;
use super::queue::Queue;
use super::read;
use super::recover::Recovered;
use super::seal;
use super::settings::Settings;
use super::state::{Opened, State};
use super::tables::{LAYOUT, Meta};
use super::upload::Upload;
use super::writer::Writer;
use crate::ids::{JobId, JobNumber};

/// The durable store of the service: one file, for many threads of one process.
///
/// - **What was acknowledged is on the disk.** When a change's answer says that it is committed, it
///   survives `kill -9` and a failure of the machine.
/// - **All or nothing.** A job is there with all its subtasks, or not at all; the changes of one
///   submission are there together.
/// - **In order.** Answers are given in the order of the commits, and jobs have places in that order.
/// - **Nothing is skipped in silence.** What is not exactly what was written is named in an error.
/// - **A full disk refuses, a failed one ends it.** After [`WriteError::Full`] it works on when there is
///   room; after [`WriteError::Failed`] it writes no more until it is opened again, for the operating
///   system may have forgotten what it could not write.
///
/// A clone is the same store, and an [`Upload`], a [`Recovered`] and its jobs have one. The last one to be
/// dropped waits until all is written, and closes it.
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
    core: Arc<Core>,
}

struct Core {
    path: PathBuf,
    boot: u64,
    shared: Arc<Shared>,
    cache: Cache,
    ended: EndedCache,
    readers: Arc<ReaderPool>,
    /// Whether there was no room, when it was opened, to write that it is open.
    opened_full: bool,
    /// Until it is joined.
    writer: Option<JoinHandle<()>>,
}

/// What callers and the writer share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) queue: Queue,
    /// The number of the next upload.
    next_number: AtomicU64,
    /// How many transactions are on the disk. Only the writer changes it.
    commits: AtomicU64,
    /// Why nothing more is written, once that is so. Only the writer changes it.
    failed: Mutex<Option<Arc<str>>>,
    /// Whether closing the file in order may say so: the process before closed it in order, or all unfinished jobs were
    /// given out to be gone on with. A tool that opens a crashed store and closes it does not hide the crash.
    pub(super) goes_on: AtomicBool,
    /// What is called after each commit. Set once, before anything is submitted that it is for.
    pub(super) after_commit: AfterCommit,
}

/// What is called on the writer's thread when all answers of a commit were told, if something is.
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

/// How the store stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreStats {
    /// How many transactions are on the disk, since the file was made.
    pub commits: u64,
    /// How many submissions stand in the writer's line.
    pub waiting: usize,
    /// How many callers wait for room in it.
    pub waiting_for_room: usize,
    /// Whether it writes no more.
    pub has_failed: bool,
}

impl Shared {
    fn failed(&self) -> MutexGuard<'_, Option<Arc<str>>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first cause stays.
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
    /// How many bytes the keys and the payload of a subtask may have together.
    pub const MOST_SUBTASK_BYTES: usize = 64 * 1024 * 1024;

    /// Opens a store, and makes it if there is none; and what there is to be gone on with.
    ///
    /// Beside the file `path` there are SQLite's `-wal` and `-shm`, which belong to it and must be
    /// copied with it while it is open; `-mark`, which says how much was acknowledged; `-boot`, which keeps
    /// fences rising when the store is replaced by a copy; and `-lock`.
    /// The file system must be a local one.
    ///
    /// # Errors
    /// If it is open already, is no store, was written by a later version, lacks what was acknowledged,
    /// is damaged where opening looks, or cannot be opened. What it does not look at, recovery and
    /// [`check`](Self::check) do.
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
            // Each transaction says it again, so nothing is lost but the time until there is room.
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DiskFull) => true,
            Err(error) => return Err(sqlite(&path)(error)),
        };
        match mark.set(meta.commits) {
            // What it says already is no more than that.
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
        let state = State::load(&connection, opened).map_err(&reading)?;
        let loose = loose(&connection).map_err(|error| reading(error.into()))?;
        let marks = state.marks.all();
        let was_clean = was.clean || was.boot == 0;
        let shared = Arc::new(Shared {
            queue: Queue::new(settings.most_waiting_bytes),
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
        shared: Arc<Shared>,
        writer: Writer,
        settings: &Settings,
    ) -> Result<Store, OpenError> {
        let readers = Arc::clone(&writer.readers);
        let writer = thread::Builder::new()
            .name("keylane-store".into())
            .spawn(move || writer.run())
            .map_err(OpenError::io("start the writer"))?;
        let core = Core {
            path,
            boot,
            shared,
            cache: Cache::new(settings.most_cache_bytes),
            ended: EndedCache::default(),
            readers,
            opened_full,
            writer: Some(writer),
        };
        Ok(Store { core: Arc::new(core) })
    }

    /// Begins a job. `now_ms`, milliseconds since 1970, goes into what users call it.
    ///
    /// # Errors
    /// If there are no numbers left.
    pub fn upload(&self, now_ms: u64) -> Result<Upload, WriteError> {
        let number = self.core.shared.next_number.fetch_add(1, Ordering::Relaxed);
        if number >= seal::JOBS {
            return Err(WriteError::TooLarge { what: "jobs of a store", most: seal::JOBS });
        }
        let job = JobNumber(number);
        // Only so that ids cannot be guessed: the number makes them different.
        let chance = getrandom::u64().unwrap_or(number);
        Ok(Upload::new(self.clone(), job, JobId::new(job, now_ms, chance)))
    }

    /// Whether an upload has had this number. Its job may not have come to the disk, or be gone.
    #[must_use]
    pub fn has_given(&self, number: JobNumber) -> bool {
        number.0 < self.core.shared.next_number()
    }

    /// As [`upload`](Self::upload), for a job that has been somewhere else already.
    pub(super) fn upload_as(&self, id: JobId) -> Upload {
        self.core.shared.next_number.fetch_max(id.number().0 + 1, Ordering::Relaxed);
        Upload::new(self.clone(), id.number(), id)
    }

    /// Brings more subtasks of a job that is not over and has `total` of them.
    pub fn extend(&self, job: JobNumber, total: u32) -> Extension {
        Extension::new(self.clone(), job, total)
    }

    /// Hands changes over, to be written together, and does not wait: neither for the disk nor for room.
    ///
    /// What bounds how many are on the way is therefore the caller: an executor has no more of them than
    /// it runs subtasks. They are written in the order in which they were submitted.
    pub fn submit(&self, changes: Changes) -> Pending {
        let (answer, pending) = Pending::new();
        self.hand_over(changes, answer, None);
        pending
    }

    /// As [`submit`](Self::submit), with what is to be called when the changes are on the disk, or will
    /// not be.
    ///
    /// It is called once, on the writer's thread, in the order of the commits, and before anything later
    /// is committed. So it should be short. It may submit more, and finish uploads: on that thread nothing
    /// waits for room. It must not wait for the disk, and it must not panic: that would end the writer.
    pub fn submit_with(
        &self,
        changes: Changes,
        then: impl FnOnce(Result<Committed, WriteError>) + Send + 'static,
    ) {
        self.hand_over(changes, Answer::new(then), None);
    }

    /// Has this called after each commit, when its answers were told: for what is better done once for all of
    /// them. It runs on the writer's thread, and may do what [`submit_with`](Self::submit_with) says.
    ///
    /// # Panics
    /// If there is one already.
    pub fn after_commits(&self, then: impl Fn() + Send + Sync + 'static) {
        let is_first = self.shared().after_commit.0.set(Box::new(then)).is_ok();
        assert!(is_first, "something is called after each commit already");
    }

    /// Submits, where nobody wants to know.
    pub fn submit_and_forget(&self, changes: Changes) {
        self.hand_over(changes, Answer::to_nobody(), None);
    }

    /// Gives a job that is not what was written the state `Damaged`, so that the others can go on.
    /// `now_ms` is when that was.
    pub fn set_aside(&self, job: JobNumber, now_ms: u64) -> Pending {
        let mut changes = Changes::new();
        changes.push(Change::SetAside { job, status: draft::set_aside(now_ms) });
        self.submit(changes)
    }

    pub(super) fn hand_over(&self, changes: Changes, answer: Answer, room: Option<OwnedPermit>) {
        let request = Request { changes: changes.list, answer, _room: room };
        for change in &request.changes {
            if let Change::Purge(job) = change {
                self.core.cache.forget(*job);
                self.core.ended.forget(*job);
            }
        }
        // It is closed while there are handles only if the writer has ended: then the answer says so. Not on this
        // thread, whose caller may have locked what the answer locks; without another, dropped it says so too.
        if let Err(refused) = self.core.shared.queue.push(request) {
            let ended = || WriteError::Failed { cause: "the writer has ended".into() };
            let error = self.core.shared.failure().unwrap_or_else(ended);
            let tell = move || refused.answer.tell(Err(error));
            let _ = thread::Builder::new().name("keylane-store-ended".into()).spawn(tell);
        }
    }

    /// Number of this opening: higher than that of any before, and at least the system's time in seconds. See
    /// `store/boot.rs`.
    #[must_use]
    pub fn boot(&self) -> u64 {
        self.core.boot
    }

    /// Whether there was no room, when it was opened, to write that it is open. Until something is written, a crash
    /// makes the next start have the same [`boot`](Self::boot).
    #[must_use]
    pub fn opened_full(&self) -> bool {
        self.core.opened_full
    }

    /// How many bytes it has on the disk: its file, and SQLite's log beside it.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        sqlite::bytes_on_disk(&self.core.path)
    }

    /// Whether others than the owner may read its file.
    #[must_use]
    pub fn is_exposed(&self) -> bool {
        use std::os::unix::fs::PermissionsExt;
        std::fs::metadata(&self.core.path).is_ok_and(|file| file.permissions().mode() & 0o077 != 0)
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.core.path
    }

    /// Why nothing more is written, once that is so.
    #[must_use]
    pub fn failure(&self) -> Option<WriteError> {
        self.core.shared.failure()
    }

    /// How it stands.
    #[must_use]
    pub fn stats(&self) -> StoreStats {
        let (waiting, waiting_for_room) = self.core.shared.queue.waiting();
        let commits = self.core.shared.commits.load(Ordering::Relaxed);
        let has_failed = self.failure().is_some();
        StoreStats { commits, waiting, waiting_for_room, has_failed }
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.core.shared
    }

    pub(super) fn cache(&self) -> &Cache {
        &self.core.cache
    }

    pub(super) fn ended(&self) -> &EndedCache {
        &self.core.ended
    }

    /// With a connection of its own, so that readers don't wait for each other.
    pub(super) fn with_reader<T>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        self.core.readers.read(read)
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.shared.queue.close();
        // Readers would keep the writer from carrying its log over to the end.
        self.readers.close();
        // A callback that has dropped the last handle is the writer: it ends by itself.
        if self.shared.queue.is_writer() {
            return;
        }
        if let Some(writer) = self.writer.take() {
            // If it has panicked, everybody who waited has been told.
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

/// More than the writer has, so that none is prepared twice.
const MOST_STATEMENTS: usize = 64;

/// The file, and what it knows of itself from the last time.
fn open_file(path: &Path, settings: &Settings) -> Result<(Connection, Meta), OpenError> {
    let mut connection = sqlite::writer(path, settings.most_bytes).map_err(sqlite(path))?;
    connection.set_prepared_statement_cache_capacity(MOST_STATEMENTS);
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

/// The earlier version whose tables are those of this one, and can be looked at without being brought forward.
const LIKE_THIS: i32 = 7;

/// Makes sure that it is a store, of this version.
pub(super) fn examine(connection: &Connection, path: &Path) -> Result<(), OpenError> {
    let path = path.to_owned();
    match LAYOUT.examine(connection).map_err(sqlite(&path))? {
        Ok(()) => Ok(()),
        // Nothing else is in its tables.
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

/// The jobs that are not over, in the order in which they have entered, and how many are to be counted as that.
///
/// The index lists them. Whether it lists all is known by their number. If it is another one, the rows themselves are
/// looked at, and the index is built anew: with an entry that is not of its row SQLite would not change the row.
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

/// The mark's file begins with this.
const MARK: [u8; 4] = *b"KLM2";

fn open_mark(path: &Path, was: &Meta) -> Result<HighWaterMark, OpenError> {
    let (mark, acknowledged) = HighWaterMark::open(path, MARK, was.id)?;
    all_there(was, acknowledged, mark.path())?;
    Ok(mark)
}

/// As opening the store does, without a change.
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

/// Jobs of which there are parts, and nothing else.
fn loose(connection: &Connection) -> rusqlite::Result<VecDeque<JobNumber>> {
    let mut all = connection.prepare("SELECT job FROM loose")?;
    let jobs = all.query_map([], |row| Ok(JobNumber(row.get::<_, i64>(0)?.cast_unsigned())))?;
    jobs.collect()
}
