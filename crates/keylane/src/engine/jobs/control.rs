//! Submits, lists, controls and stops jobs.

use keylane_allocate::{JobProgress, Record, Supply};

use super::table::JobEntry;
#[cfg(feature = "tokio")]
use super::table::ended;
use super::*;

impl<K: Key, X: Execute<K>, S: BuildHasher> Engine<K, X, S> {
    /// Refuses further jobs, and cancels the existing ones.
    pub(crate) fn stop_jobs(&self) {
        let jobs: Vec<_> = self.with_jobs(|table, _| {
            table.closed = true;
            table.jobs.iter().flatten().map(|entry| (entry.id, entry.runner.clone())).collect()
        });
        for (id, runner) in jobs {
            runner.stop();
            self.cancel(id);
        }
    }

    fn cancel(&self, id: JobId) {
        self.with_jobs(|table, time| {
            let Some(allocator) = &mut table.allocator else { return };
            let before = allocator.progress(id);
            allocator.cancel(id, time);
            if let Some(last) = before
                && allocator.progress(id).is_none()
            {
                table.remove(id, JobProgress { waiting: 0, ready: 0, to_come: Some(0), ..last });
            }
        });
        self.sharing.interrupt_batches();
    }

    /// Submits a job that has been admitted. If the pool is stopped, or the job has no subtasks, it
    /// is over at once.
    pub(crate) fn submit_job(
        &self,
        runner: Arc<dyn JobRunner<K, X::Work>>,
        supply: Supply,
        weight: u32,
        named: impl FnOnce(JobId),
    ) -> JobId {
        let workers = self.workers.size();
        let (id, over) = self.with_jobs(|table, time| {
            let rules = &self.settings.jobs;
            let record = table.record;
            let allocator = table.allocator.get_or_insert_with(|| {
                let mut allocator = Box::new(rules.allocator(workers));
                if let Some(capacity) = record {
                    allocator.record(capacity);
                }
                allocator
            });
            let supply = if table.closed { Supply::Ready(0) } else { supply };
            let id = allocator.submit(supply, weight, time);
            named(id);
            if allocator.progress(id).is_none() {
                return (id, true);
            }
            if table.jobs.len() <= id.slot() {
                table.jobs.resize_with(id.slot() + 1, || None);
            }
            table.jobs[id.slot()] = Some(JobEntry {
                id,
                runner: runner.clone(),
                splitting: false,
                blocked: 0,
                splitter_paused: false,
            });
            (id, false)
        });
        self.sharing.interrupt_batches();
        // A change of the number of workers since then may have found no allocator.
        if self.workers.size() != workers {
            self.resync_worker_count();
        }
        if over {
            if self.stopping() {
                runner.stop();
            }
            runner.finish(NO_SUBTASKS);
            self.admission.release(1);
        }
        id
    }

    /// Returns every job that is not over.
    pub(crate) fn snapshot_jobs(&self) -> Vec<(JobRef<K, X::Work>, JobProgress)> {
        self.with_jobs(|table, _| {
            let Some(allocator) = &table.allocator else { return Vec::new() };
            let jobs = table.jobs.iter().flatten();
            let mut jobs: Vec<_> = jobs
                .filter_map(|job| Some(((job.id, job.runner.clone()), allocator.progress(job.id)?)))
                .collect();
            jobs.sort_by_key(|((id, _), _)| id.serial());
            jobs
        })
    }

    /// Keeps the last `capacity` events from now on.
    pub(crate) fn record_jobs(&self, capacity: usize) {
        self.with_jobs(|table, _| {
            table.record = Some(capacity);
            if let Some(allocator) = &mut table.allocator {
                allocator.record(capacity);
            }
        });
    }

    pub(crate) fn recorded_jobs(&self) -> Option<Record> {
        self.with_jobs(|table, _| table.allocator.as_ref()?.recorded().cloned())
    }
}

impl<K: Key, X: Execute<K>, S: BuildHasher + Send + Sync + 'static> JobControl for Engine<K, X, S> {
    fn ready(&self, id: JobId) {
        self.with_jobs(|table, _| table.ready(id));
        self.sharing.interrupt_batches();
    }

    #[cfg(feature = "tokio")]
    fn settled(&self, id: JobId, failed: bool) {
        self.with_jobs(|table, time| {
            let Some(allocator) = &mut table.allocator else { return };
            let before = allocator.progress(id);
            let live = allocator.settled(id, failed, time);
            match (before, allocator.progress(id)) {
                (Some(last), None) if live => {
                    let end = if failed { End::Failed } else { End::Done };
                    table.remove(id, JobProgress { waiting: 0, ..ended(last, end) });
                }
                _ => table.update_splitter_pause(id),
            }
        });
    }

    fn cancel_job(&self, id: JobId) {
        self.cancel(id);
    }

    fn pause_job(&self, id: JobId, paused: bool) -> bool {
        let live = self.with_jobs(|table, time| {
            table.allocator.as_mut().is_some_and(|allocator| match paused {
                true => allocator.pause(id, time),
                false => allocator.resume(id, time),
            })
        });
        self.sharing.interrupt_batches();
        live
    }

    fn set_job_weight(&self, id: JobId, weight: u32) -> bool {
        self.with_jobs(|table, time| {
            table.allocator.as_mut().is_some_and(|a| a.set_weight(id, weight, time))
        })
    }

    fn progress_of(&self, id: JobId) -> Option<JobProgress> {
        self.with_jobs(|table, _| table.allocator.as_ref()?.progress(id))
    }

    fn is_here(&self) -> bool {
        self.is_inside()
    }
}

/// Progress of a job without subtasks.
const NO_SUBTASKS: JobProgress = JobProgress {
    done: 0,
    failed: 0,
    running: 0,
    ready: 0,
    waiting: 0,
    to_come: Some(0),
    admitted: false,
    paused: false,
};
