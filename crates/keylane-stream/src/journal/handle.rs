use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use rusqlite::Connection;

use super::chunk;
use super::error::{JournalOpenError, ReadError, WriteError};
use super::read;
use super::store::{JournalStore, WriteOp, WriteResult};
use super::writer::{JournalRequest, JournalShared, JournalWriter};
use super::{CheckReport, JournalInfo, JournalSettings, Retain};
use crate::sqlite::{self, HighWaterMark, Lock, ReaderPool};
use crate::tracker::Progress;
use crate::{Delivered, Position, Record};

/// A durable log in one file, for many producers and consumers in one process.
///
/// - **What was acknowledged is on the disk.** When [`append`](Self::append) or
///   [`commit`](Self::commit) has returned, it survives `kill -9` and a failure of the machine.
/// - **All or nothing.** The records of one call are there together, one after another, or not at all.
/// - **In order.** If one append returned before another began, its positions are lower.
/// - **Nothing is skipped in silence.** What is not exactly what was written is named in an error.
/// - **A failed disk ends it.** After a failed write or sync nothing more is acknowledged until it is
///   opened again, for the operating system may have forgotten what it could not write.
///
/// A clone is the same journal. The last one to be dropped waits until all is written, and closes it.
///
/// # Examples
/// ```
/// use keylane_stream::journal::Journal;
/// use keylane_stream::tracker::{MapLimit, TakeOutcome, Tracker};
/// use keylane_stream::{Position, Record};
///
/// let folder = tempfile::tempdir()?;
/// let journal = Journal::open(folder.path().join("orders.journal"))?;
/// journal.append_all(&[Record::new("ann", "1 book"), Record::new("bob", "2 pens")])?;
///
/// let committed = journal.committed("billing")?;
/// let mut tracker = match &committed {
///     Some(progress) => Tracker::resume(progress, MapLimit::JOURNAL),
///     None => Tracker::new(journal.begin()?, MapLimit::JOURNAL),
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
    /// Until it is joined.
    writer: Option<JoinHandle<()>>,
}

/// Records that are on their way into the journal.
///
/// Dropped, it takes nothing back: they are written all the same.
#[derive(Debug)]
#[must_use = "only when it says so are the records on the disk"]
pub struct PendingAppend {
    reply: mpsc::Receiver<Result<WriteResult, WriteError>>,
    shared: Arc<JournalShared>,
}

impl Journal {
    /// How many bytes one call may append, and so how large a record may be.
    pub const MAX_BYTES: usize = 64 * 1024 * 1024;

    /// Opens a journal, and makes it if there is none.
    ///
    /// Beside the file `path` there are SQLite's `-wal` and `-shm`, which belong to it and must be
    /// copied with it while it is open; `-mark`, which says how much was acknowledged; and `-lock`.
    /// The file system must be a local one.
    ///
    /// # Errors
    /// If it is open already, is no journal, is damaged where it begins or ends, lacks records that
    /// were acknowledged, or cannot be opened.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, JournalOpenError> {
        Self::open_with(path, &JournalSettings::default())
    }

    /// As [`open`](Self::open), with settings.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(
        path: impl AsRef<Path>,
        settings: &JournalSettings,
    ) -> Result<Self, JournalOpenError> {
        let io = |doing| move |source| JournalOpenError::Io { doing, source };
        let path = sqlite::resolved(path.as_ref()).map_err(io("find the journal's folder"))?;
        let lock = Lock::take(&path).map_err(JournalOpenError::locked(&path))?;
        let store = JournalStore::open(&path, settings)?;
        let (mut mark, acknowledged) = HighWaterMark::open(&path, *b"KLM1", store.id())?;
        if let Some(acknowledged) = acknowledged.filter(|number| *number > store.next().get()) {
            let acknowledged = Position::new(acknowledged.min(Position::END.get()));
            let (from, mark) = (store.next(), mark.path().to_owned());
            return Err(JournalOpenError::Lost { from, acknowledged, mark });
        }
        mark.set(store.next().get()).map_err(io("write the mark"))?;
        sqlite::sync_folder(&path).map_err(io("sync the folder"))?;
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
            .map_err(io("start the writer"))?;
        Ok(Journal {
            inner: Arc::new(JournalInner { path, id, shared, readers, writer: Some(writer) }),
        })
    }

    /// Appends a record, and returns its position when it is on the disk.
    ///
    /// Calls of several threads share a transaction and its sync.
    ///
    /// # Errors
    /// If it was not written; see [`WriteError`].
    pub fn append(&self, record: &Record) -> Result<Position, WriteError> {
        self.append_all(std::slice::from_ref(record)).map(|positions| positions.start)
    }

    /// Appends records, and returns their positions when all of them are on the disk. If it fails,
    /// none is there, except after [`WriteError::Failed`]: then all of them may be.
    ///
    /// # Errors
    /// If they were not written; see [`WriteError`].
    pub fn append_all(&self, records: &[Record]) -> Result<Range<Position>, WriteError> {
        self.append_later(records)?.wait()
    }

    /// Hands records over to be appended, and does not wait until they are. Those of one thread are
    /// appended in the order of its calls. It waits for room if many others do the same.
    ///
    /// # Errors
    /// If they are too many at once, or the journal has failed.
    pub fn append_later(&self, records: &[Record]) -> Result<PendingAppend, WriteError> {
        let bytes = records.iter().map(chunk::length).sum();
        if bytes > Self::MAX_BYTES {
            return Err(WriteError::TooLarge { bytes });
        }
        self.submit(WriteOp::Append(chunk::segments(records)))
    }

    /// Commits the progress of a consumer group, and returns when it is on the disk.
    ///
    /// # Errors
    /// If the group has committed a higher watermark, if it is about records that do not exist, or if
    /// it was not written.
    pub fn commit(&self, group: &str, progress: &Progress) -> Result<(), WriteError> {
        let map = progress.encode(&read::stream(&self.inner.id, group));
        let (watermark, end) = (progress.watermark(), progress.end());
        let work = WriteOp::Commit { group: group.to_owned(), watermark, end, map };
        self.submit(work)?.answer().map(drop)
    }

    /// Removes a consumer group and its progress, so that retention no longer waits for it. Whether
    /// there was one. It is also the way back: after it any position can be committed.
    ///
    /// # Errors
    /// If that was not written.
    pub fn forget(&self, group: &str) -> Result<bool, WriteError> {
        let answer = self.submit(WriteOp::Forget { group: group.to_owned() })?.answer()?;
        Ok(answer == WriteResult::Forgotten(true))
    }

    /// Removes the oldest records as far as is wanted, and returns where the journal begins then. It
    /// removes whole chunks, so somewhat more may stay. The file keeps its size; what is written next
    /// fills it again.
    ///
    /// # Errors
    /// If it fails; a part may then have been removed.
    pub fn retain(&self, what: Retain) -> Result<Position, WriteError> {
        // The end must not move away while it goes on.
        let what = match what {
            Retain::Newest(count) => {
                Retain::From(Position::new(self.end().get().saturating_sub(count)))
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
        // It is closed while there are handles only if the writer has ended.
        shared.queue.push(JournalRequest { work, reply }).map_err(|_| ended(shared))?;
        Ok(PendingAppend { reply: answer, shared: Arc::clone(shared) })
    }

    /// Reads up to `most` records from a position on, and at least one if there is one. Large records
    /// may be fewer at a time.
    ///
    /// What is returned is on the disk, and its positions are without a gap. If a chunk is damaged,
    /// the records before it are returned, and the read that begins with it fails.
    ///
    /// # Errors
    /// If the position was removed by retention, or what is there is not what was written.
    pub fn read(&self, from: Position, most: usize) -> Result<Vec<Delivered>, ReadError> {
        // Asked for first: what the reader then sees is that at least.
        let durable = self.end();
        self.with_reader(|reader| read::read(reader, from, most, durable))
    }

    /// What a consumer group has committed last, if anything.
    ///
    /// # Errors
    /// If it is not what was written.
    pub fn committed(&self, group: &str) -> Result<Option<Progress>, ReadError> {
        self.with_reader(|reader| read::committed(reader, &self.inner.id, group))
    }

    /// The first position that there is, or will be.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn begin(&self) -> Result<Position, ReadError> {
        self.with_reader(read::head)
    }

    /// One past the last record that is on the disk.
    #[must_use]
    pub fn end(&self) -> Position {
        self.inner.shared.durable()
    }

    /// Waits until there is a record at `position`, or the time is up, or the journal has failed, and
    /// returns the [`end`](Self::end).
    pub fn wait_for(&self, position: Position, timeout: Duration) -> Position {
        self.inner.shared.wait_for(position, timeout)
    }

    /// Reads everything, and reports what is not what was written. Others go on meanwhile.
    ///
    /// # Errors
    /// If it cannot be read to its end.
    pub fn check(&self) -> Result<CheckReport, ReadError> {
        let durable = self.end();
        self.with_reader(|reader| read::check(reader, &self.inner.id, Some(durable)))
    }

    /// As [`check`](Self::check), of a journal that nobody has open and that is perhaps too damaged to
    /// be opened.
    ///
    /// # Errors
    /// If it is open, is no journal, or cannot be read to its end.
    pub fn inspect(path: impl AsRef<Path>) -> Result<CheckReport, JournalOpenError> {
        let path = path.as_ref().canonicalize();
        let path =
            path.map_err(|source| JournalOpenError::Io { doing: "find the journal", source })?;
        let _lock = Lock::take(&path).map_err(JournalOpenError::locked(&path))?;
        read::inspect(&path)
    }

    /// How far a journal reaches and its groups are, as it is on the disk: of one that this or another
    /// process has open, or nobody.
    ///
    /// # Errors
    /// If it is no journal, or what is looked at is not what was written.
    pub fn info(path: impl AsRef<Path>) -> Result<JournalInfo, JournalOpenError> {
        let path = path.as_ref().canonicalize();
        let path =
            path.map_err(|source| JournalOpenError::Io { doing: "find the journal", source })?;
        read::info(&path)
    }

    pub(super) fn shared(&self) -> &Arc<JournalShared> {
        &self.inner.shared
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// With a connection of its own, so that readers don't wait for each other.
    fn with_reader<T>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        self.inner.readers.read(read)
    }
}

impl Drop for JournalInner {
    fn drop(&mut self) {
        self.shared.queue.close();
        // ReaderPool would keep the writer from carrying its log over to the end.
        self.readers.close();
        if let Some(writer) = self.writer.take() {
            // If it has panicked, everybody who waited has been told.
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
    /// If they were not written; see [`WriteError`].
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

impl Retain {
    /// Everything that is not older than this, by this machine's clock.
    #[must_use]
    pub fn younger_than(age: Duration) -> Self {
        Retain::WrittenSince(SystemTime::now().checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH))
    }
}
