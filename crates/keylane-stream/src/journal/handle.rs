//! The public handle of a journal: append, commit, read, retain and check.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use keylane_storage::files;
use keylane_storage::sqlite::{self, HighWaterMark, Lock, ReaderPool};
use rusqlite::Connection;

use super::chunk;
use super::error::{JournalOpenError, JournalReadError, WriteError};
use super::read;
use super::store::{JournalStore, WriteOp, WriteResult};
use super::writer::{JournalRequest, JournalShared, JournalWriter};
use super::{CheckReport, JournalInfo, JournalSettings, RetentionPolicy};
use crate::tracker::Progress;
use crate::{DeliveredRecord, Position, Record};

/// A durable log in one file, for many producers and consumers in one process.
///
/// - **Durable.** When [`append`](Self::append) or [`commit`](Self::commit) has returned, the data
///   is on the disk, and survives `kill -9` and a power failure.
/// - **Atomic.** The records of one call are stored together, one after another, or not at all.
/// - **Ordered.** If one append returned before another started, its positions are lower.
/// - **No silent damage.** Data that differs from what was written is named in an error.
/// - **Fail-stop.** After a failed write or sync no write is acknowledged until the journal is
///   reopened, because the operating system may have dropped the data.
///
/// A clone is the same journal. Dropping the last one waits for all writes, and closes it.
///
/// # Examples
/// ```
/// use keylane_stream::journal::Journal;
/// use keylane_stream::tracker::{OffsetMapLimit, TakeOutcome, Tracker};
/// use keylane_stream::{Position, Record};
///
/// let folder = tempfile::tempdir()?;
/// let journal = Journal::open(folder.path().join("orders.journal"))?;
/// journal.append_all(&[Record::new("ann", "1 book"), Record::new("bob", "2 pens")])?;
///
/// let committed = journal.committed("billing")?;
/// let mut tracker = match &committed {
///     Some(progress) => Tracker::resume(progress, OffsetMapLimit::JOURNAL),
///     None => Tracker::new(journal.begin()?, OffsetMapLimit::JOURNAL),
/// };
/// for delivered in journal.read(tracker.watermark(), 100)? {
///     if tracker.take(delivered.position) == TakeOutcome::New {
///         // … handle it …
///         tracker.complete(delivered.position)?;
///     }
/// }
/// journal.commit("billing", &tracker.progress())?;
/// assert_eq!(journal.committed("billing")?.unwrap().watermark(), Position::new(2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Journal {
    inner: Arc<JournalInner>,
}

struct JournalInner {
    path: PathBuf,
    id: [u8; 16],
    shared: Arc<JournalShared>,
    readers: Arc<ReaderPool>,
    /// Writer thread, until it is joined.
    writer: Option<JoinHandle<()>>,
}

/// An append in progress.
///
/// Dropping it does not cancel the append.
#[derive(Debug)]
#[must_use = "the records are on the disk only when `wait` has returned"]
pub struct PendingAppend {
    reply: mpsc::Receiver<Result<WriteResult, WriteError>>,
    shared: Arc<JournalShared>,
}

impl Journal {
    /// Maximum size of one append, and so of one record, in bytes.
    pub const MAX_BYTES: usize = 64 * 1024 * 1024;

    /// Opens a journal; creates it if there is none.
    ///
    /// Beside the file `path` are SQLite's `-wal` and `-shm`, which belong to the journal and must
    /// be copied with it while it is open; `-mark`, with the high-water mark; and `-lock`. The file
    /// system must be local.
    ///
    /// # Errors
    /// If the journal is open already, has another format, is damaged at its beginning or end, has
    /// lost acknowledged records, or cannot be opened.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, JournalOpenError> {
        Self::open_with(path, &JournalSettings::default())
    }

    /// Opens a journal like [`open`](Self::open), with settings.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn open_with(
        path: impl AsRef<Path>,
        settings: &JournalSettings,
    ) -> Result<Self, JournalOpenError> {
        let io = JournalOpenError::io;
        let path = path.as_ref();
        let path = files::resolved(path).map_err(io("find the folder of the journal", path))?;
        let lock = Lock::take(&path).map_err(JournalOpenError::locked(&path))?;
        let settling = io("sync the log of an earlier process", &path);
        sqlite::settle_log(&path).map_err(settling)?;
        let store = JournalStore::open(&path, settings)?;
        let (mut mark, acknowledged) = HighWaterMark::open(&path, *b"KLM1", store.id())?;
        if let Some(acknowledged) = acknowledged.filter(|number| *number > store.next().get()) {
            let acknowledged = Position::new(acknowledged.min(Position::END.get()));
            let (from, mark) = (store.next(), mark.path().to_owned());
            return Err(JournalOpenError::Lost { from, acknowledged, mark });
        }
        let written = mark.set(store.next().get());
        written.map_err(io("write the mark", mark.path()))?;
        files::sync_folder(&path).map_err(io("sync the folder of the journal", &path))?;
        let (id, shared) = (store.id(), Arc::new(JournalShared::new(store.next())));
        let readers = Arc::new(ReaderPool::new(&path));
        let writer = JournalWriter {
            store,
            mark,
            shared: Arc::clone(&shared),
            readers: Arc::clone(&readers),
            lock,
        };
        let writer = thread::Builder::new()
            .name("keylane-journal".into())
            .spawn(move || writer.run())
            .map_err(io("start the writer of the journal", &path))?;
        Ok(Journal {
            inner: Arc::new(JournalInner { path, id, shared, readers, writer: Some(writer) }),
        })
    }

    /// Appends a record and returns its position once it is on the disk.
    ///
    /// Concurrent calls share a transaction and its sync.
    ///
    /// # Errors
    /// If the record was not written; see [`WriteError`].
    pub fn append(&self, record: &Record) -> Result<Position, WriteError> {
        self.append_all(std::slice::from_ref(record)).map(|positions| positions.start)
    }

    /// Appends records and returns their positions once all of them are on the disk. After an error
    /// none is stored, except that after [`WriteError::Failed`] all of them may be.
    ///
    /// # Errors
    /// If the records were not written; see [`WriteError`].
    pub fn append_all(&self, records: &[Record]) -> Result<Range<Position>, WriteError> {
        self.append_later(records)?.wait()
    }

    /// Enqueues records without waiting for the disk. Records of one thread are appended in the
    /// order of its calls. Blocks while the queue is full.
    ///
    /// # Errors
    /// If the records are too large for one call, or the journal has failed.
    pub fn append_later(&self, records: &[Record]) -> Result<PendingAppend, WriteError> {
        let bytes = records.iter().map(chunk::length).sum();
        if bytes > Self::MAX_BYTES {
            return Err(WriteError::TooLarge { bytes });
        }
        self.submit(WriteOp::Append(chunk::segments(records)))
    }

    /// Commits the progress of a consumer group, and returns once it is on the disk.
    ///
    /// # Errors
    /// If the group has committed a higher watermark, the progress includes records that do not
    /// exist, or it was not written.
    pub fn commit(&self, group: &str, progress: &Progress) -> Result<(), WriteError> {
        let map = progress.encode(&read::stream(&self.inner.id, group));
        let (watermark, end) = (progress.watermark(), progress.end());
        let work = WriteOp::Commit { group: group.to_owned(), watermark, end, map };
        self.submit(work)?.answer().map(drop)
    }

    /// Removes a consumer group and its progress, so that retention no longer keeps records for it.
    /// Returns whether the group existed. Afterwards the group may commit any position, so this
    /// also resets a group.
    ///
    /// # Errors
    /// If the removal was not written.
    pub fn forget(&self, group: &str) -> Result<bool, WriteError> {
        let answer = self.submit(WriteOp::Forget { group: group.to_owned() })?.answer()?;
        Ok(answer == WriteResult::Forgotten(true))
    }

    /// Removes old records and returns the first remaining position. Only whole chunks are removed,
    /// so somewhat more may remain. The file keeps its size; later writes reuse the space.
    ///
    /// # Errors
    /// If it fails; some records may have been removed.
    pub fn retain(&self, what: RetentionPolicy) -> Result<Position, WriteError> {
        // Fixed once, so that concurrent appends do not move the end.
        let what = match what {
            RetentionPolicy::Newest(count) => {
                RetentionPolicy::From(Position::new(self.end().get().saturating_sub(count)))
            }
            other => other,
        };
        loop {
            match self.submit(WriteOp::Retain(what))?.answer()? {
                WriteResult::Retained(begin, false) => return Ok(begin),
                WriteResult::Retained(_, true) => {}
                other => unreachable!("a retention was answered with {other:?}"),
            }
        }
    }

    fn submit(&self, work: WriteOp) -> Result<PendingAppend, WriteError> {
        let (reply, answer) = mpsc::channel();
        let shared = &self.inner.shared;
        // The queue is closed while handles exist only if the writer has ended.
        shared.queue.push(JournalRequest { work, reply }).map_err(|_| ended(shared))?;
        Ok(PendingAppend { reply: answer, shared: Arc::clone(shared) })
    }

    /// Reads at most `max_records` records from a position on, and at least one if there is one.
    /// Large records may be returned in smaller numbers.
    ///
    /// The records are on the disk, and their positions have no gap. If a chunk is damaged, the
    /// records before it are returned, and a read that starts with it fails.
    ///
    /// # Errors
    /// If retention has removed the position, or the data is damaged.
    pub fn read(
        &self,
        from: Position,
        max: usize,
    ) -> Result<Vec<DeliveredRecord>, JournalReadError> {
        // Before the read transaction, which then sees at least these records.
        let durable = self.end();
        self.with_reader(|reader| read::read(reader, from, max, durable))
    }

    /// Returns the last committed progress of a consumer group, if any.
    ///
    /// # Errors
    /// If the progress is damaged.
    pub fn committed(&self, group: &str) -> Result<Option<Progress>, JournalReadError> {
        self.with_reader(|reader| read::committed(reader, &self.inner.id, group))
    }

    /// Returns the first position, or the position of the first record to come.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn begin(&self) -> Result<Position, JournalReadError> {
        self.with_reader(read::head)
    }

    /// Returns one past the last record on the disk.
    #[must_use]
    pub fn end(&self) -> Position {
        self.inner.shared.durable()
    }

    /// Waits until there is a record at `position`, the timeout has passed, or the journal has
    /// failed, and returns the [`end`](Self::end).
    pub fn wait_for(&self, position: Position, timeout: Duration) -> Position {
        self.inner.shared.wait_for(position, timeout)
    }

    /// Reads the whole journal and reports damage. Other calls continue meanwhile.
    ///
    /// # Errors
    /// If it cannot be read to its end.
    pub fn check(&self) -> Result<CheckReport, JournalReadError> {
        let durable = self.end();
        self.with_reader(|reader| read::check(reader, &self.inner.id, Some(durable)))
    }

    /// Checks a journal like [`check`](Self::check) that is not open, even if it is too damaged to
    /// be opened.
    ///
    /// # Errors
    /// If the journal is open, has another format, or cannot be read to its end.
    pub fn inspect(path: impl AsRef<Path>) -> Result<CheckReport, JournalOpenError> {
        let path = path.as_ref();
        let path = path.canonicalize().map_err(JournalOpenError::io("find the journal", path))?;
        let _lock = Lock::take(&path).map_err(JournalOpenError::locked(&path))?;
        read::inspect(&path)
    }

    /// Returns the range of a journal and the progress of its groups, as they are on the disk. The
    /// journal may be open in any process.
    ///
    /// # Errors
    /// If the file is no journal, or the data is damaged.
    pub fn info(path: impl AsRef<Path>) -> Result<JournalInfo, JournalOpenError> {
        let path = path.as_ref();
        let path = path.canonicalize().map_err(JournalOpenError::io("find the journal", path))?;
        read::info(&path)
    }

    pub(super) fn shared(&self) -> &Arc<JournalShared> {
        &self.inner.shared
    }

    /// Returns the path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// Each reader has its own connection, so that readers do not wait for each other.
    fn with_reader<T>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, JournalReadError>,
    ) -> Result<T, JournalReadError> {
        self.inner.readers.read(read)
    }
}

impl Drop for JournalInner {
    fn drop(&mut self) {
        self.shared.queue.close();
        // Idle readers would keep the writer's last checkpoint from completing.
        self.readers.close();
        if let Some(writer) = self.writer.take() {
            // After a panic of the writer all callers have got an error already.
            let _ = writer.join();
        }
    }
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").field("path", &self.inner.path).field("end", &self.end()).finish()
    }
}

fn ended(shared: &JournalShared) -> WriteError {
    let unknown = || WriteError::Failed { cause: "the writer has ended".into() };
    shared.failure().unwrap_or_else(unknown)
}

impl PendingAppend {
    /// Waits until the records are on the disk, and returns their positions.
    ///
    /// # Errors
    /// If the records were not written; see [`WriteError`].
    pub fn wait(self) -> Result<Range<Position>, WriteError> {
        match self.answer()? {
            WriteResult::Appended(from, until) => Ok(from..until),
            other => unreachable!("an append was answered with {other:?}"),
        }
    }

    fn answer(self) -> Result<WriteResult, WriteError> {
        self.reply.recv().unwrap_or_else(|_| Err(ended(&self.shared)))
    }
}

impl RetentionPolicy {
    /// Keeps the records younger than `age`, by this machine's clock.
    #[must_use]
    pub fn younger_than(age: Duration) -> Self {
        RetentionPolicy::WrittenSince(
            SystemTime::now().checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH),
        )
    }
}
