//! Shares the workers of a running engine among jobs, by the rules in `allocate`.
//!
//! While there are jobs, a worker asks the [`JobScheduler`] for one assignment at a time: a subtask
//! of a job, a batch of tiny ones of a job that is alone, or one slice of the work outside jobs. In
//! such a slice it can go over to a job whose subtasks it finds in their lanes (`run/stretch.rs`).
//! While there are none, it reads one word and continues as usual.
//!
//! # Protocol
//! 1. Every access to the allocator is one *section* under the lock of the job table. No user code
//!    runs in it, and no other lock is taken in it.
//! 2. At its end, and still under the lock, a section writes into `offers` whether the allocator
//!    could assign a worker. If that has just become true, it wakes a worker after the lock is
//!    released, as a thread does that sets a bit in the ready bitmap (`run/idle.rs`).
//! 3. A worker that gets no assignment falls asleep as usual, and reads `offers` with a
//!    read-modify-write beside the ready bitmap when it is on the list of sleepers. A batch of a
//!    job that others may take from counts in the same word, and the worker that opens one wakes
//!    another in the same way (`job/core/batches.rs`).
//! 4. Jobs that a section has ended are finished after it: their handles are completed without the
//!    lock.
//!
//! # Why no subtask is left while a worker sleeps
//! Suppose that the allocator could assign a worker to a job, and all workers without work are
//! asleep for good. The last section that ended has set `offers`, since the allocator's state
//! changes in sections only. (Its knowledge of the work outside jobs may be outdated; that can set
//! `offers` for nothing, and the ready bitmap covers the rest.) From there on it is the proof in
//! `run/idle.rs`, with `offers` as one more bit: the last worker that fell asleep read it as unset,
//! so it was set later, by a section that saw the sleeper on the list and woke it, or saw another
//! worker searching, and that one asks. A worker that was woken and got an assignment passes the
//! wake-up on while `offers` is set.
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

#[cfg(feature = "tokio")]
use keylane_allocate::{Claimant, End};
use keylane_allocate::{JobId, Take};

use super::shared_jobs::{ASSIGNABLE, OPEN_BATCH};
use super::*;
use crate::sync::AtomicU64;

pub(crate) use table::JobRules;
pub(in crate::engine) use table::JobTable;
pub(crate) use traits::{
    BatchLimits, BatchReport, CurrentJob, JobControl, JobRef, JobRunner, WeakJobControl,
    WorkerAssignment, WorkerCtx, WorkerReport,
};

impl<K: Key, X: Execute<K>, S: BuildHasher> Engine<K, X, S> {
    /// Runs a section of the job table, and its follow-up after the lock is released.
    fn with_jobs<R>(&self, section: impl FnOnce(&mut JobTable<K, X::Work>, u64) -> R) -> R {
        let clock = self.clock.now();
        let mut table = self.sharing.table.lock_politely();
        let time = table.advance_time(clock);
        let result = section(&mut table, time);
        self.leave_jobs(table);
        result
    }

    /// Ends a section of the job table. Not in `with_jobs`, where it would be compiled again for each section.
    fn leave_jobs(&self, mut table: MutexGuard<'_, JobTable<K, X::Work>>) {
        let (assignable, jobs) = match &table.allocator {
            None => (false, 0),
            // Without jobs the allocator is not evaluated.
            Some(allocator) => match allocator.unfinished() {
                0 => (false, 0),
                jobs => (allocator.could_decide(), jobs),
            },
        };
        // Written only if they change: other threads read them all the time.
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
    }

    /// Reports a worker's last assignment, and returns its next one, if it `asks`.
    pub(crate) fn next_assignment(
        &self,
        back: Option<WorkerReport>,
        asks: bool,
        current_job: &mut CurrentJob<K, X::Work>,
    ) -> WorkerAssignment {
        let loose = asks && self.ready_shards.any();
        let (assignment, cancelled) = self.with_jobs(|table, _| {
            let cancelled = back.is_some_and(|back| table.record_report(back));
            let assignment =
                if asks { table.assign(loose, current_job) } else { WorkerAssignment::Nothing };
            (assignment, cancelled)
        });
        if cancelled {
            self.sharing.interrupt_batches();
        }
        assignment
    }

    /// Reports the end of a worker's assignment. It asks for none.
    pub(crate) fn report_assignment(&self, report: Option<WorkerReport>) {
        if let Some(report) = report
            && self.with_jobs(|table, _| table.record_report(report))
        {
            self.sharing.interrupt_batches();
        }
    }

    /// Lets other workers call a job's splitter.
    pub(crate) fn split(&self, id: JobId, exhausted: bool) {
        self.with_jobs(|table, time| table.split(id, exhausted, time));
    }

    /// Reports that `count` subtasks with keys are about to be enqueued, beside the one of the assignment.
    pub(crate) fn subtasks_announced(&self, id: JobId, count: u64) {
        self.with_jobs(|table, _| table.note_announced(id, count));
    }

    /// Reports that the last `count` of these do not come.
    pub(crate) fn announced_are_missing(&self, id: JobId, count: u64) {
        self.with_jobs(|table, _| table.drop_announced(id, count));
    }

    /// Reports that the subtask of an assignment, which ends, is about to be enqueued.
    pub(crate) fn subtask_blocked(&self, id: JobId, take: Take) {
        self.with_jobs(|table, _| table.note_blocked(id, take));
    }

    /// Lets a worker that has found a subtask in its lane run it there, under an assignment to the
    /// job. `lane_report` ends its last such assignment, and `holds_loose` says whether it has one
    /// to the work outside jobs, which then ends. Returns false if the subtask has to wait for a
    /// worker: there are other jobs, whose turn it may be, or this one is paused or over.
    pub(crate) fn begin_in_lane(
        &self,
        id: JobId,
        lane_report: Option<WorkerReport>,
        holds_loose: &mut bool,
    ) -> bool {
        let (begins, cancelled) = self.with_jobs(|table, _| {
            let cancelled = lane_report.is_some_and(|report| table.record_report(report));
            (table.begin_in_lane(id, holds_loose), cancelled)
        });
        if cancelled {
            self.sharing.interrupt_batches();
        }
        begins
    }

    /// Reports that the subtask of an assignment continues without its worker, and will be settled
    /// later.
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

    /// Reports `count` more subtasks that a splitting worker leaves to others.
    pub(crate) fn split_more(&self, id: JobId, count: u64) {
        self.with_jobs(|table, time| {
            if let Some(allocator) = &mut table.allocator {
                allocator.split_more(id, count, time);
            }
        });
    }

    /// Reports that a worker has a batch from which others may take.
    pub(crate) fn open_batch(&self) {
        self.sharing.offers.fetch_add(OPEN_BATCH, Ordering::AcqRel);
        self.idle.notify_work();
    }

    /// Reports that `count` open batches are empty.
    pub(crate) fn close_batches(&self, count: usize) {
        self.sharing.offers.fetch_sub(count * OPEN_BATCH, Ordering::AcqRel);
    }

    /// Reports the subtasks that were taken out of a batch to the allocator.
    pub(crate) fn report_stolen(&self, id: JobId, stolen: &AtomicU64) {
        self.with_jobs(|table, time| {
            // Swapped inside the section: a worker that finds zero knows that the count was
            // reported.
            let count = stolen.swap(0, Ordering::AcqRel);
            if count != 0
                && let Some(allocator) = &mut table.allocator
            {
                allocator.split_more(id, count, time);
            }
        });
    }

    /// Releases the subtasks that wait behind others in the batches of workers:
    /// `job/core/batches.rs`. Returns false if there were none.
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

    /// Reports the number of workers to the allocator. Read again after the report: another thread
    /// may have reported an older number meanwhile.
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

    /// Counts a subtask without keys as running and returns true, unless it must wait for a
    /// barrier: then it has to be enqueued like a task without keys.
    ///
    /// A barrier is counted before it enters its inboxes, and is granted a shard when no task
    /// without keys runs there. A subtask is counted under the lock of a shard's lanes, and then
    /// the barriers are read. If the fence came to these lanes before, the lock makes the barrier's
    /// count visible. If it comes later, it finds the subtask's count.
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

    /// Takes a subtask's count back.
    pub(crate) fn end_unkeyed_run(&self, shard: usize) {
        let mut lanes = self.shards[shard].lanes.lock();
        drop(lanes.release(&HeldLanes::Free));
        let offer = lanes.has_offer();
        drop(lanes);
        if offer {
            self.mark_ready(shard);
        }
    }
}
