//! What there is to be gone on with when a store was opened.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use rusqlite::Connection;

use super::change::KeyRecord;
use super::chunk::{Chunk, Subtask};
use super::ended::Ended;
use super::error::{Damage, ReadError, WriteError};
use super::handle::Store;
use super::marks::{Mark, Stage};
use super::read::{self, StoredJob};
use super::seal::{at, rows_of};
use super::settings::Settings;
use super::status::Counts;
use crate::ids::{JobId, JobNumber, Key, SubtaskId};

/// How many small jobs are read at once.
const SMALL_AT_ONCE: usize = 256;

type Marks = HashMap<SubtaskId, Mark, foldhash::fast::RandomState>;

/// What a store had when it was opened: the jobs that have not ended, one at a time in the order in
/// which they have entered, and what else holds.
///
/// Jobs are read when they are asked for, a large one by itself and small ones some hundred at a time, and
/// so is the memory that it takes. Jobs that are accepted meanwhile are not among them. Nothing should be said to the store of a job before it was given out
/// here.
pub struct Recovered {
    store: Store,
    clean: bool,
    keys: Vec<(Key, KeyRecord)>,
    marks: Arc<Marks>,
    /// In their order, the last one first.
    unfinished: Vec<(u64, JobNumber)>,
    /// What was read of those that come next.
    read: VecDeque<(JobNumber, Result<RecoveredJob, ReadError>)>,
    set_damaged_aside: bool,
    set_aside: Vec<(JobNumber, Damage)>,
}

/// A job that has not ended.
pub struct RecoveredJob {
    store: Store,
    marks: Arc<Marks>,
    ended: Ended,
    /// Its chunk, if it has one only.
    chunk: Option<Arc<Chunk>>,
    /// The job itself. The counts in its status are older than [`counts`](Self::counts).
    pub job: StoredJob,
}

/// A subtask that has not ended.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Waiting<'a> {
    /// Which it is, and its keys and payload.
    pub subtask: Subtask<'a>,
    /// How many attempts were begun, as far as that was on the disk: the number of the last one.
    pub attempts: u32,
    /// Stage of that attempt.
    pub stage: &'a Stage,
}

/// The mark of a subtask that has none.
static NONE: Mark = Mark::started(0);

impl Recovered {
    pub(super) fn new(
        store: Store,
        clean: bool,
        mut unfinished: Vec<(u64, JobNumber)>,
        marks: Marks,
        settings: &Settings,
    ) -> Result<Self, ReadError> {
        let keys = store.with_reader(read::keys)?;
        unfinished.reverse();
        Ok(Recovered {
            store,
            clean,
            keys,
            marks: Arc::new(marks),
            unfinished,
            read: VecDeque::new(),
            set_damaged_aside: settings.set_damaged_aside,
            set_aside: Vec::new(),
        })
    }

    /// Whether the store was closed in order the last time. A new one counts as closed.
    #[must_use]
    pub fn was_clean(&self) -> bool {
        self.clean
    }

    /// The keys of which nothing is to be started.
    #[must_use]
    pub fn keys(&self) -> &[(Key, KeyRecord)] {
        &self.keys
    }

    /// How many jobs are left to be given out.
    #[must_use]
    pub fn len(&self) -> usize {
        self.unfinished.len() + self.read.len()
    }

    /// Whether no job is left to be given out.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What was set aside because it is damaged, as the settings want it: each job, and its damage.
    #[must_use]
    pub fn set_aside(&self) -> &[(JobNumber, Damage)] {
        &self.set_aside
    }

    /// The next job. All its chunks were looked at by then.
    ///
    /// # Errors
    /// If it is damaged, and not to be set aside; or cannot be read. Asked again, it goes on with the
    /// job after it.
    pub fn next_job(&mut self) -> Result<Option<RecoveredJob>, ReadError> {
        loop {
            if self.read.is_empty() {
                self.read_more()?;
            }
            match self.read.pop_front() {
                None => {
                    self.store.shared().goes_on.store(true, Ordering::Relaxed);
                    return Ok(None);
                }
                Some((number, Err(ReadError::Damaged(damage)))) if self.set_damaged_aside => {
                    self.put_aside(number)?;
                    self.set_aside.push((number, damage));
                }
                Some((_, other)) => return other.map(Some),
            }
        }
    }

    /// Reads the next job, and small ones after it, which cost more to be asked for than to be read.
    fn read_more(&mut self) -> Result<(), ReadError> {
        let store = self.store.clone();
        store.with_reader(|reader| {
            let snapshot = reader.unchecked_transaction()?;
            while self.read.len() < SMALL_AT_ONCE
                && let Some((_, number)) = self.unfinished.pop()
            {
                let job = self.read(&snapshot, number);
                let is_small = job.as_ref().is_ok_and(|job| job.chunk.is_some());
                self.read.push_back((number, job));
                if !is_small {
                    break;
                }
            }
            Ok(())
        })
    }

    /// A job, whose damage is its own, wherever it is.
    fn read(&self, reader: &Connection, number: JobNumber) -> Result<RecoveredJob, ReadError> {
        self.read_all(reader, number).map_err(|error| match error {
            ReadError::Damaged(Damage::File { why }) => {
                ReadError::Damaged(Damage::Pages { job: number, why })
            }
            ReadError::NoSuchJob { job } => ReadError::Damaged(Damage::Job { job }),
            other => other,
        })
    }

    fn read_all(&self, reader: &Connection, number: JobNumber) -> Result<RecoveredJob, ReadError> {
        let found = read::find_job(reader, number)?;
        let (job, has_chunk) = found.ok_or(ReadError::NoSuchJob { job: number })?;
        let mut ended = Ended::new(number, job.total);
        ended.read_on(reader)?;
        let chunk = match has_chunk {
            true => Some(Arc::new(read::find_chunk(reader, number, 0)?)),
            false => {
                check_chunks(reader, number, job.total)?;
                None
            }
        };
        if let Some(chunk) = &chunk {
            // It is wanted soon.
            self.store.cache().put_if_room(chunk);
        }
        let (store, marks) = (self.store.clone(), Arc::clone(&self.marks));
        Ok(RecoveredJob { store, marks, ended, chunk, job })
    }

    fn put_aside(&self, job: JobNumber) -> Result<(), ReadError> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now_ms = now.map_or(0, |since| since.as_millis() as u64);
        let written = self.store.set_aside(job, now_ms).wait();
        let failed = |error: WriteError| ReadError::Sqlite { why: error.to_string().into() };
        written.map(drop).map_err(failed)
    }
}

/// What is known of a job that is not what was written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DamagedJob {
    /// Its number.
    pub number: JobNumber,
    /// What users call it, as its row says it, which may be wrong. None if that is no id.
    pub id: Option<JobId>,
    /// Its place in the order. None if that cannot be believed.
    pub entered: Option<u64>,
    /// The keys of its subtasks that have not ended. None if some of them cannot be read.
    pub keys: Option<BTreeSet<Key>>,
}

impl Recovered {
    /// What is known of a job that [`next_job`](Self::next_job) has named as damaged.
    ///
    /// # Errors
    /// If nothing can be read any more.
    pub fn look_at_damaged(&self, job: JobNumber) -> Result<DamagedJob, ReadError> {
        self.store.with_reader(|reader| look_at_damaged(reader, job))
    }
}

fn look_at_damaged(connection: &Connection, job: JobNumber) -> Result<DamagedJob, ReadError> {
    let mut damaged = DamagedJob { number: job, id: None, entered: None, keys: None };
    let fixed = match read::fixed(connection, job) {
        Ok(Some((id, fixed))) => {
            damaged.id = id.filter(|id| id.number() == job);
            fixed
        }
        Ok(None) | Err(ReadError::Damaged(_)) => None,
        Err(error) => return Err(error),
    };
    let Some((fixed, has_chunk)) = fixed else { return Ok(damaged) };
    (damaged.id, damaged.entered) = (Some(fixed.id), Some(fixed.entered));
    let mut ended = Ended::new(job, fixed.total);
    if let Err(error) = ended.read_on(connection) {
        let ReadError::Damaged(_) = error else { return Err(error) };
        // Then none of it is believed: a key too many stops, and none too few.
        ended = Ended::new(job, fixed.total);
    }
    damaged.keys = match keys_of(connection, job, fixed.total, has_chunk, &ended) {
        Err(ReadError::Damaged(_)) => None,
        found => found?,
    };
    Ok(damaged)
}

/// The keys of a job's subtasks that have not ended. None if one of them is in no chunk that can be read.
fn keys_of(
    connection: &Connection,
    job: JobNumber,
    total: u32,
    has_chunk: bool,
    ended: &Ended,
) -> Result<Option<BTreeSet<Key>>, ReadError> {
    let mut keys = BTreeSet::new();
    let mut gather = |chunk: &Chunk| {
        let unfinished = chunk.subtasks().filter(|subtask| !ended.has(subtask.number()));
        keys.extend(
            unfinished.flat_map(|subtask| subtask.keys().map(Key::new).collect::<Vec<_>>()),
        );
    };
    if has_chunk {
        gather(&read::find_chunk(connection, job, 0)?);
        return Ok(Some(keys));
    }
    let mut next = 0;
    while next < total {
        let chunk = match read::find_chunk(connection, job, next) {
            Ok(chunk) => Some(chunk),
            Err(ReadError::Damaged(_)) => None,
            Err(error) => return Err(error),
        };
        if let Some(chunk) = &chunk {
            gather(chunk);
        } else if !ended.has(next) {
            return Ok(None);
        }
        next = chunk.map_or(next + 1, |chunk| chunk.numbers().end);
    }
    Ok(Some(keys))
}

/// Makes sure that the chunks of a job are what was written, and all there.
pub(super) fn check_chunks(
    connection: &Connection,
    job: JobNumber,
    total: u32,
) -> Result<(), ReadError> {
    // What lies beyond the end was brought, and never finished.
    let (first, _) = rows_of(job);
    let mut chunks = connection.prepare_cached(
        "SELECT place, count, body FROM chunk WHERE place >= ?1 AND place < ?2 ORDER BY place",
    )?;
    let mut rows = chunks.query([first, first + i64::from(total)])?;
    let mut expected = 0;
    while let Some(row) = rows.next()? {
        let (_, number) = at(row.get::<_, i64>(0)?.cast_unsigned());
        let damaged = |damage| Err(ReadError::Damaged(damage));
        if number != expected {
            return damaged(Damage::MissingSubtasks { job, from: expected, until: number });
        }
        let count: u32 = row.get(1)?;
        let intact = Chunk::verified(job, number, count, row.get_ref(2)?.as_blob()?).is_some();
        if !intact || count == 0 {
            return damaged(Damage::Chunk { job, number });
        }
        expected += count;
    }
    match expected == total {
        true => Ok(()),
        false => {
            let missing = Damage::MissingSubtasks { job, from: expected, until: total };
            Err(ReadError::Damaged(missing))
        }
    }
}

impl RecoveredJob {
    /// How the subtasks that have ended have.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.ended.counts
    }

    /// How many subtasks have not ended.
    #[must_use]
    pub fn waiting(&self) -> u32 {
        self.job.total - self.ended.counts.ended()
    }

    /// Gives out the subtasks that have not ended, in the order of their submission. A chunk at a time
    /// is in memory.
    ///
    /// # Errors
    /// If a chunk cannot be read.
    pub fn for_each_waiting(&self, mut then: impl FnMut(Waiting<'_>)) -> Result<(), ReadError> {
        let job = self.job.number;
        let mut next = 0;
        while next < self.job.total {
            let chunk = match &self.chunk {
                Some(chunk) => Arc::clone(chunk),
                None => self.store.chunk(job, next)?,
            };
            next = chunk.numbers().end;
            for subtask in chunk.subtasks().filter(|one| !self.ended.has(one.number())) {
                let number = subtask.number();
                let mark = self.marks.get(&SubtaskId { job, number }).unwrap_or(&NONE);
                then(Waiting { subtask, attempts: mark.attempt, stage: &mark.stage });
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Recovered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Recovered");
        debug.field("clean", &self.clean).field("keys", &self.keys.len());
        debug.field("jobs", &self.len()).field("set_aside", &self.set_aside).finish()
    }
}

impl fmt::Debug for RecoveredJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = self.waiting();
        f.debug_struct("RecoveredJob").field("job", &self.job).field("waiting", &waiting).finish()
    }
}
