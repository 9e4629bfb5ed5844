//! Jobs in a running engine: which worker goes where, told by the rules in `allocate`.
//!
//! While there are jobs, a worker asks the [`Allocator`] before each sitting: a sitting is one subtask
//! of a job, a batch of tiny ones of a job that is alone, or one slice of the work outside jobs. While
//! there are none, it looks at one word and goes on as ever.
//!
//! # Protocol
//! 1. Everything that is told to the allocator, or asked of it, is one *section* under the lock of the
//!    books. No user code runs in it, and no other lock is taken in it.
//! 2. At its end, and still under the lock, a section writes down in `offers` whether the allocator
//!    assignable give a worker to somebody. If that has just become so, it wakes a worker after the lock is
//!    released, as whoever sets a bit on the ready bitmap does (`run/idle.rs`).
//! 3. A worker that is given nothing falls asleep as ever, and reads `offers` with a read-modify-write
//!    beside the ready bitmap when it is on the list of sleepers.
//!    A batch of a job that others may take from counts in the same word, and whoever opens one wakes a
//!    worker alike (`job/core/shared_batch.rs`).
//! 4. Jobs that a section has ended are finished after it: their handles are told without the lock.
//!
//! # Why no subtask is left while a worker sleeps
//! Suppose that the allocator assignable give a worker to a job, and all workers without work are asleep for
//! good. The last section that ended has written `offers`, as true, for whether the allocator could
//! decide changes in sections only. (What it knows of the work outside jobs may be out of date; that can
//! make `offers` true for nothing, and the ready bitmap says the rest.) From there on it is the proof in
//! `run/idle.rs`, with `offers` as one more bit: who fell asleep last read it as unset, so it was set
//! later, by a section that saw the sleeper on the list and woke it, or saw another who was searching,
//! and that one asks. A worker that was woken and given something passes the wake-up on while `offers`
//! is set.
//!
//! # Barriers and subtasks without keys
//! A subtask without keys runs without an entry in any inbox, unless a barrier is unfinished: see
//! [`Engine::start_unkeyed`].

mod control;
#[cfg(all(test, loom))]
mod models;
mod table;
#[cfg(test)]
mod test_job;
mod traits;

use crossbeam_utils::CachePadded;

use super::*;
use crate::allocate::{Claimant, End, JobId, Take};
use crate::sync::AtomicU64;
use table::JobTable;

pub(crate) use table::JobRules;
pub(crate) use traits::{
    Assignment, BatchReport, CurrentJob, JobControl, JobRef, JobRunner, WeakJobControl, WorkerCtx,
    WorkerReport,
};

/// A worker that asks may be given something.
const ASSIGNABLE: usize = 1;
/// Added for each open lot.
const OPEN_BATCH: usize = 2;

/// What an engine knows of jobs.
pub(crate) struct JobSharing<K, W> {
    /// Jobs that are not over. Changed under `books`; read by workers, between slices, without it.
    jobs: CachePadded<AtomicUsize>,
    /// What keeps a worker from falling asleep. `ASSIGNABLE` is set if one that asks may be given something:
    /// written at the end of every section of `books`. `OPEN_BATCH` is added for each batch of a job from
    /// which others may take: by the worker that has it, and taken off by whoever empties it.
    offers: CachePadded<AtomicUsize>,
    /// Raised by each section that tells a worker in the middle of a batch to ask again. Read by those.
    changes: CachePadded<AtomicUsize>,
    /// Barriers that are unfinished. Raised before one enters its inboxes, lowered when its last fence
    /// is down.
    pub(super) barriers: CachePadded<AtomicUsize>,
    /// Made for the first job. Innermost: no other lock is taken under it.
    table: Mutex<JobTable<K, W>>,
}

impl<K, W> JobSharing<K, W> {
    pub(crate) fn new() -> Self {
        JobSharing {
            jobs: CachePadded::new(AtomicUsize::new(0)),
            offers: CachePadded::new(AtomicUsize::new(0)),
            changes: CachePadded::new(AtomicUsize::new(0)),
            barriers: CachePadded::new(AtomicUsize::new(0)),
            table: Mutex::new(JobTable::new()),
        }
    }

    /// Whether there are jobs, so that a worker is to ask where it goes.
    #[inline(always)]
    pub(crate) fn has_jobs(&self) -> bool {
        self.jobs.load(Ordering::Relaxed) != 0
    }

    /// Whether a worker that asks may be given something.
    pub(crate) fn offers(&self) -> bool {
        self.offers.load(Ordering::Acquire) != 0
    }

    /// The same, read so that it is ordered with every section that sets it.
    pub(crate) fn offers_synced(&self) -> bool {
        self.offers.fetch_or(0, Ordering::AcqRel) != 0
    }

    /// Whether the last section said so. Under `books` it is exact.
    fn is_assignable(&self) -> bool {
        self.offers.load(Ordering::Relaxed) & ASSIGNABLE != 0
    }

    /// Whether somebody has a batch from which others may take.
    pub(crate) fn has_open_batches(&self) -> bool {
        self.offers.load(Ordering::Relaxed) >= OPEN_BATCH
    }

    /// What `is_interrupted` is to be asked with.
    pub(crate) fn changes(&self) -> usize {
        self.changes.load(Ordering::Relaxed)
    }

    fn interrupt_batches(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
    }
}

impl<K: Key, X: Execute<K>, S: BuildHasher> Engine<K, X, S> {
    /// A section of the books; what follows from it is done after the lock is released.
    fn with_jobs<R>(&self, section: impl FnOnce(&mut JobTable<K, X::Work>, u64) -> R) -> R {
        let clock = self.clock.now();
        let mut table = self.sharing.table.lock_politely();
        let time = table.advance_time(clock);
        let result = section(&mut table, time);
        let (assignable, jobs) = match &table.allocator {
            None => (false, 0),
            // Without jobs it is not asked.
            Some(allocator) => match allocator.unfinished() {
                0 => (false, 0),
                jobs => (allocator.could_decide(), jobs),
            },
        };
        // Written only if they change: others read them all the time.
        if self.sharing.jobs.load(Ordering::Relaxed) != jobs {
            self.sharing.jobs.store(jobs, Ordering::Relaxed);
        }
        let changed = self.sharing.is_assignable() != assignable;
        match assignable {
            true if changed => self.sharing.offers.fetch_or(ASSIGNABLE, Ordering::AcqRel),
            false if changed => self.sharing.offers.fetch_and(!ASSIGNABLE, Ordering::AcqRel),
            _ => 0,
        };
        let over = std::mem::take(&mut table.finished);
        drop(table);
        if changed && assignable {
            self.idle.notify_work();
        }
        for (runner, last) in over {
            runner.finish(last);
            self.admission.release(1);
        }
        result
    }

    /// Takes a worker back from where it was, and says where it goes next, if it asks.
    pub(crate) fn next_assignment(
        &self,
        back: Option<WorkerReport>,
        asks: bool,
        current_job: &mut CurrentJob<K, X::Work>,
    ) -> Assignment {
        let loose = asks && self.ready_shards.any();
        let (assignment, cancelled) = self.with_jobs(|table, _| {
            let cancelled = back.is_some_and(|back| table.record_report(back));
            let assignment =
                if asks { table.assign(loose, current_job) } else { Assignment::Nothing };
            (assignment, cancelled)
        });
        if cancelled {
            self.sharing.interrupt_batches();
        }
        assignment
    }

    /// A job's splitter may be asked by others.
    pub(crate) fn split(&self, id: JobId, exhausted: bool) {
        self.with_jobs(|table, time| table.split(id, exhausted, time));
    }

    /// The subtask that a worker was given for waits in the lanes. If it still has the splitter, it says whether
    /// that is exhausted, and others may ask it now.
    pub(crate) fn subtask_blocked(&self, id: JobId, take: Take, exhausted: Option<bool>) {
        self.with_jobs(|table, time| {
            table.record_report(WorkerReport {
                who: Claimant::Job(id),
                take,
                report: BatchReport::ended(End::Waits),
            });
            table.note_blocked(id);
            if let Some(exhausted) = exhausted {
                table.split(id, exhausted, time);
            }
        });
    }

    /// The subtask that a worker was given for goes on without it, and will be settled.
    #[cfg(feature = "tokio")]
    pub(crate) fn subtask_detached(&self, id: JobId, take: Take) {
        self.with_jobs(|table, _| {
            table.record_report(WorkerReport {
                who: Claimant::Job(id),
                take,
                report: BatchReport::ended(End::Waits),
            })
        });
    }

    /// A worker that splits leaves so many subtasks to whoever comes.
    pub(crate) fn split_more(&self, id: JobId, count: u64) {
        self.with_jobs(|table, time| {
            if let Some(allocator) = &mut table.allocator {
                allocator.split_more(id, count, time);
            }
        });
    }

    /// A worker has a batch from which others may take.
    pub(crate) fn open_batch(&self) {
        self.sharing.offers.fetch_add(OPEN_BATCH, Ordering::AcqRel);
        self.idle.notify_work();
    }

    /// Nothing is left in so many of them.
    pub(crate) fn close_batches(&self, count: usize) {
        self.sharing.offers.fetch_sub(count * OPEN_BATCH, Ordering::AcqRel);
    }

    /// Tells the rules of subtasks that were taken out of a batch.
    pub(crate) fn report_stolen(&self, id: JobId, stolen: &AtomicU64) {
        self.with_jobs(|table, time| {
            // In the section, so that whoever finds nothing knows that it was told.
            let count = stolen.swap(0, Ordering::AcqRel);
            if count != 0
                && let Some(allocator) = &mut table.allocator
            {
                allocator.split_more(id, count, time);
            }
        });
    }

    /// Lets anybody have what waits behind other subtasks in the batches of workers: `job/core/shared_batch.rs`.
    /// False if there was nothing.
    pub(crate) fn steal_batches(&self) -> bool {
        let jobs: Vec<_> = self.with_jobs(|table, _| {
            table.jobs.iter().flatten().map(|entry| (entry.id, entry.runner.clone())).collect()
        });
        let mut any = false;
        for (id, runner) in jobs {
            let closed = runner.release_batches();
            if closed != 0 {
                self.report_stolen(id, runner.stolen());
                self.close_batches(closed);
                any = true;
            }
        }
        any
    }

    /// The workers are as many as the workers says. Read again after it was told: another may have told what it had
    /// read before.
    pub(crate) fn resync_worker_count(&self) {
        loop {
            let workers = self.workers.size();
            self.with_jobs(|table, time| {
                if let Some(allocator) = &mut table.allocator
                    && allocator.workers() != workers
                {
                    allocator.resize(workers, time);
                }
            });
            if self.workers.size() == workers {
                break;
            }
        }
        self.sharing.interrupt_batches();
    }

    /// Marks subtasks without keys as running, unless they must wait for a barrier: then they have to
    /// be entered like tasks without keys.
    ///
    /// A barrier is counted before it enters its inboxes, and is granted a shard when no task without
    /// keys runs there. A mark is made under the lock of a shard's lanes, then the barriers are
    /// counted. If the fence came to these lanes before, the lock has shown us the count. If it comes
    /// later, it finds the mark.
    pub(crate) fn start_unkeyed(&self, shard: usize) -> bool {
        let mut lanes = self.shards[shard].lanes.lock();
        lanes.start_unkeyed();
        drop(lanes);
        let may = self.sharing.barriers.load(Ordering::Acquire) == 0;
        if !may {
            self.end_unkeyed_run(shard);
        }
        may
    }

    /// Takes the mark back.
    pub(crate) fn end_unkeyed_run(&self, shard: usize) {
        let mut lanes = self.shards[shard].lanes.lock();
        drop(lanes.release(&Held::Free));
        let offer = lanes.has_offer();
        drop(lanes);
        if offer {
            self.mark_ready(shard);
        }
    }
}
