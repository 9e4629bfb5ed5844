//! Recovery: the unfinished jobs of a store that was opened, in their order, with the state of
//! their attempts.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::change::KeyRecord;
use super::chunk::{Chunk, StoredSubtask};
use super::connection::StoreConnection;
use super::damaged_job::{self, DamagedJob};
use super::ended::EndedSubtasks;
use super::error::{ReadError, StoreDamage, WriteError};
use super::handle::Store;
use super::job_status::OutcomeCounts;
use super::read::{self, StoredJob};
use super::row_numbers::{at, rows_of};
use super::settings::StoreSettings;
use super::small_jobs::{MAX_TOGETHER, SmallJob, small_jobs};
use super::started_attempts::{AttemptStage, LatestAttempt};
use crate::ids::{JobNumber, Key, SubtaskId};

type RecoveredMarks = HashMap<SubtaskId, LatestAttempt, foldhash::fast::RandomState>;

/// Unfinished jobs of a store at its opening, one at a time in the order in which they entered,
/// with the paused and stopped keys.
///
/// Jobs are read on demand, a large one alone and small ones in batches, which bounds the memory.
/// Jobs accepted since the opening are not included. No change of a job may be submitted before the
/// job is returned here.
pub struct RecoveredJobs {
    store: Store,
    clean: bool,
    keys: Vec<(Key, KeyRecord)>,
    marks: Arc<RecoveredMarks>,
    /// Jobs to read, in reverse order.
    unfinished: Vec<(u64, JobNumber)>,
    /// Next jobs: the small ones, and the numbers of others among them, which are read one at a time.
    next: VecDeque<(JobNumber, Option<RecoveredJob>)>,
    set_damaged_aside: bool,
    set_aside: Vec<(JobNumber, StoreDamage)>,
}

/// Unfinished job.
pub struct RecoveredJob {
    store: Store,
    marks: Arc<RecoveredMarks>,
    ended: EndedSubtasks,
    /// Chunk of the job, if it is the only one.
    chunk: Option<Arc<Chunk>>,
    /// Job. The counts in its status are older than [`counts`](Self::counts).
    pub job: StoredJob,
}

/// Unfinished subtask.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct WaitingSubtask<'a> {
    /// Number, keys and payload.
    pub subtask: StoredSubtask<'a>,
    /// Number of the last started attempt on the disk; 0 if there was none.
    pub attempts: u32,
    /// Stage of that attempt.
    pub stage: &'a AttemptStage,
}

/// Mark of a subtask without one.
static NONE: LatestAttempt = LatestAttempt::started(0);

impl RecoveredJobs {
    pub(super) fn new(
        store: Store,
        clean: bool,
        mut unfinished: Vec<(u64, JobNumber)>,
        marks: RecoveredMarks,
        settings: &StoreSettings,
    ) -> Result<Self, ReadError> {
        let keys = store.with_reader(read::keys)?;
        unfinished.reverse();
        Ok(RecoveredJobs {
            store,
            clean,
            keys,
            marks: Arc::new(marks),
            unfinished,
            next: VecDeque::new(),
            set_damaged_aside: settings.set_damaged_aside,
            set_aside: Vec::new(),
        })
    }

    /// Returns whether the store was closed in order. A new store counts as closed.
    #[must_use]
    pub fn was_clean(&self) -> bool {
        self.clean
    }

    /// Returns the paused and stopped keys.
    #[must_use]
    pub fn keys(&self) -> &[(Key, KeyRecord)] {
        &self.keys
    }

    /// Returns the number of remaining jobs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.unfinished.len() + self.next.len()
    }

    /// Returns whether no job remains.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the damaged jobs set aside according to the settings, with their damage.
    #[must_use]
    pub fn set_aside(&self) -> &[(JobNumber, StoreDamage)] {
        &self.set_aside
    }

    /// Records that the service has taken over all unfinished jobs, so that the next start finds a
    /// store that was closed in order, if it is. Until then a close leaves the crash visible: a tool
    /// that only reads the jobs does not run them.
    pub fn taken_over(&self) {
        self.store.shared().goes_on.store(true, Ordering::Relaxed);
    }

    /// Returns the next job. All its chunks are checked before.
    ///
    /// # Errors
    /// If the job is damaged and not to be set aside, or cannot be read. The next call continues
    /// with the job after it.
    pub fn next_job(&mut self) -> Result<Option<RecoveredJob>, ReadError> {
        loop {
            if self.next.is_empty() {
                self.read_small()?;
            }
            let Some((number, small)) = self.next.pop_front() else { return Ok(None) };
            match small.map_or_else(|| self.read(number), Ok) {
                Err(ReadError::Damaged(damage)) if self.set_damaged_aside => {
                    self.put_aside(number)?;
                    self.set_aside.push((number, damage));
                }
                other => return other.map(Some),
            }
        }
    }

    /// Reads the small ones of the next jobs.
    fn read_small(&mut self) -> Result<(), ReadError> {
        let from = self.unfinished.len().saturating_sub(MAX_TOGETHER);
        let numbers: Vec<_> = self.unfinished.drain(from..).rev().map(|(_, job)| job).collect();
        let read = self.store.with_reader(|reader| {
            let _snapshot = reader.snapshot()?;
            small_jobs(reader, &numbers)
        });
        let mut small = match read {
            // A page that cannot be read belongs to one of them: the read of that one says so.
            Err(ReadError::Damaged(_)) => HashMap::new(),
            read => read?,
        };
        for number in numbers {
            let job = small.remove(&number).map(|small| {
                let SmallJob { job, chunk, ended } = small;
                self.recovered(job, Some(chunk), ended)
            });
            self.next.push_back((number, job));
        }
        Ok(())
    }

    fn recovered(
        &self,
        job: StoredJob,
        chunk: Option<Chunk>,
        ended: EndedSubtasks,
    ) -> RecoveredJob {
        let chunk = chunk.map(Arc::new);
        if let Some(chunk) = &chunk {
            // The job's tasks will need the chunk soon.
            self.store.cache().put_if_room(chunk);
        }
        let (store, marks) = (self.store.clone(), Arc::clone(&self.marks));
        RecoveredJob { store, marks, ended, chunk, job }
    }

    /// Reads a job. Any damage in it is reported as the job's.
    fn read(&self, number: JobNumber) -> Result<RecoveredJob, ReadError> {
        let read = self.store.with_reader(|reader| {
            let _snapshot = reader.snapshot()?;
            self.read_with(reader, number)
        });
        read.map_err(|error| match error {
            ReadError::Damaged(StoreDamage::File { why }) => {
                ReadError::Damaged(StoreDamage::Pages { job: number, why })
            }
            ReadError::NoSuchJob { job } => ReadError::Damaged(StoreDamage::Job { job }),
            other => other,
        })
    }

    fn read_with(
        &self,
        reader: &dyn StoreConnection,
        number: JobNumber,
    ) -> Result<RecoveredJob, ReadError> {
        let found = read::find_job(reader, number)?;
        let (job, has_chunk) = found.ok_or(ReadError::NoSuchJob { job: number })?;
        let mut ended = EndedSubtasks::new(number, job.total);
        ended.read_on(reader)?;
        let chunk = match has_chunk {
            true => Some(read::find_chunk(reader, number, 0)?),
            false => {
                check_chunks(reader, number, job.total)?;
                None
            }
        };
        Ok(self.recovered(job, chunk, ended))
    }

    fn put_aside(&self, job: JobNumber) -> Result<(), ReadError> {
        let now_ms = self.store.outside().now_ms();
        let written = self.store.set_aside(job, now_ms).wait();
        let failed = |error: WriteError| ReadError::Sqlite { why: error.to_string().into() };
        written.map(drop).map_err(failed)
    }
}

impl RecoveredJobs {
    /// Returns the readable facts about a job that [`next_job`](Self::next_job) reported as
    /// damaged.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn look_at_damaged(&self, job: JobNumber) -> Result<DamagedJob, ReadError> {
        self.store.with_reader(|reader| damaged_job::look_at(reader, job))
    }
}

/// Checks that the chunks of a job are undamaged and complete.
pub(super) fn check_chunks(
    connection: &dyn StoreConnection,
    job: JobNumber,
    total: u32,
) -> Result<(), ReadError> {
    // Chunks beyond the end belong to an unfinished extension.
    let (first, _) = rows_of(job);
    let sql =
        "SELECT place, count, body FROM chunk WHERE place >= ?1 AND place < ?2 ORDER BY place";
    let mut expected = 0;
    connection.each(sql, &[first.into(), (first + i64::from(total)).into()], |row| {
        let (_, number) = at(row.unsigned(0)?);
        let damaged = |damage| Err(ReadError::Damaged(damage));
        if number != expected {
            return damaged(StoreDamage::MissingSubtasks { job, from: expected, until: number });
        }
        let count = row.small(1)?;
        let intact = Chunk::verified(job, number, count, row.bytes(2)?).is_some();
        if !intact || count == 0 {
            return damaged(StoreDamage::Chunk { job, number });
        }
        expected += count;
        Ok(())
    })?;
    match expected == total {
        true => Ok(()),
        false => {
            let missing = StoreDamage::MissingSubtasks { job, from: expected, until: total };
            Err(ReadError::Damaged(missing))
        }
    }
}

impl RecoveredJob {
    /// Returns the counts of the ended subtasks, by kind.
    #[must_use]
    pub fn counts(&self) -> OutcomeCounts {
        self.ended.counts
    }

    /// Returns the number of unfinished subtasks.
    #[must_use]
    pub fn waiting(&self) -> u32 {
        self.job.total - self.ended.counts.ended()
    }

    /// Calls `then` for each unfinished subtask, in the order of submission, with one chunk in
    /// memory at a time.
    ///
    /// # Errors
    /// If a chunk cannot be read.
    pub fn for_each_waiting(
        &self,
        mut then: impl FnMut(WaitingSubtask<'_>),
    ) -> Result<(), ReadError> {
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
                then(WaitingSubtask { subtask, attempts: mark.attempt, stage: &mark.stage });
            }
        }
        Ok(())
    }
}

impl fmt::Debug for RecoveredJobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("RecoveredJobs");
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
