//! Jobs come, are looked at and steered, and are stopped.

use super::books::Listed;
#[cfg(feature = "tokio")]
use super::books::ended;
use super::*;
use crate::allocate::{Progress, Record, Supply};

impl<K: Key, X: Execute<K>, S: BuildHasher> Engine<K, X, S> {
    /// Lets no more jobs in, and cancels those that are there.
    pub(crate) fn stop_jobs(&self) {
        let jobs: Vec<_> = self.section(|books, _| {
            books.closed = true;
            books.jobs.iter().flatten().map(|listed| (listed.id, listed.crowd.clone())).collect()
        });
        for (id, crowd) in jobs {
            crowd.stop();
            self.cancel(id);
        }
    }

    fn cancel(&self, id: JobId) {
        self.section(|books, time| {
            let Some(allocator) = &mut books.allocator else { return };
            let before = allocator.progress(id);
            allocator.cancel(id, time);
            if let Some(last) = before
                && allocator.progress(id).is_none()
            {
                books.strike(id, Progress { waiting: 0, ready: 0, to_come: Some(0), ..last });
            }
        });
        self.sharing.disturb();
    }

    /// Submits a job that has been admitted. If the pool is stopped, or it has no subtasks, it is over
    /// at once.
    pub(crate) fn submit_job(
        &self,
        crowd: Arc<dyn Crowd<K, X::Work>>,
        supply: Supply,
        weight: u32,
        named: impl FnOnce(JobId),
    ) -> JobId {
        let workers = self.crew.size();
        let (id, over) = self.section(|books, time| {
            let rules = &self.settings.jobs;
            let record = books.record;
            let allocator = books.allocator.get_or_insert_with(|| {
                let mut allocator = Box::new(rules.allocator(workers));
                if let Some(capacity) = record {
                    allocator.record(capacity);
                }
                allocator
            });
            let supply = if books.closed { Supply::Ready(0) } else { supply };
            let id = allocator.submit(supply, weight, time);
            named(id);
            if allocator.progress(id).is_none() {
                return (id, true);
            }
            if books.jobs.len() <= id.slot() {
                books.jobs.resize_with(id.slot() + 1, || None);
            }
            books.jobs[id.slot()] = Some(Listed {
                id,
                crowd: crowd.clone(),
                splitting: false,
                lined: 0,
                early: 0,
                held: false,
            });
            (id, false)
        });
        self.sharing.disturb();
        // Whoever has changed it since may have found no allocator.
        if self.crew.size() != workers {
            self.share_anew();
        }
        if over {
            if self.stopping() {
                crowd.stop();
            }
            crowd.finish(Progress::none());
            self.admission.release(1);
        }
        id
    }

    /// Every job that is not over.
    pub(crate) fn survey_jobs(&self) -> Vec<(Seat<K, X::Work>, Progress)> {
        self.section(|books, _| {
            let Some(allocator) = &books.allocator else { return Vec::new() };
            let jobs = books.jobs.iter().flatten();
            let mut jobs: Vec<_> = jobs
                .filter_map(|job| Some(((job.id, job.crowd.clone()), allocator.progress(job.id)?)))
                .collect();
            jobs.sort_by_key(|((id, _), _)| id.serial());
            jobs
        })
    }

    /// Keeps the last `capacity` events from now on.
    pub(crate) fn record_jobs(&self, capacity: usize) {
        self.section(|books, _| {
            books.record = Some(capacity);
            if let Some(allocator) = &mut books.allocator {
                allocator.record(capacity);
            }
        });
    }

    pub(crate) fn recorded_jobs(&self) -> Option<Record> {
        self.section(|books, _| books.allocator.as_ref()?.recorded().cloned())
    }
}

impl<K: Key, X: Execute<K>, S: BuildHasher + Send + Sync + 'static> Office for Engine<K, X, S> {
    fn ready(&self, id: JobId) {
        self.section(|books, _| books.ready(id));
        self.sharing.disturb();
    }

    #[cfg(feature = "tokio")]
    fn settled(&self, id: JobId, failed: bool) {
        self.section(|books, time| {
            let Some(allocator) = &mut books.allocator else { return };
            let before = allocator.progress(id);
            let live = allocator.settled(id, failed, time);
            match (before, allocator.progress(id)) {
                (Some(last), None) if live => {
                    let end = if failed { End::Failed } else { End::Done };
                    books.strike(id, Progress { waiting: 0, ..ended(last, end) });
                }
                _ => books.hold(id),
            }
        });
    }

    fn cancel_job(&self, id: JobId) {
        self.cancel(id);
    }

    fn pause_job(&self, id: JobId, paused: bool) -> bool {
        let live = self.section(|books, time| {
            books.allocator.as_mut().is_some_and(|allocator| match paused {
                true => allocator.pause(id, time),
                false => allocator.resume(id, time),
            })
        });
        self.sharing.disturb();
        live
    }

    fn weigh_job(&self, id: JobId, weight: u32) -> bool {
        self.section(|books, time| {
            books.allocator.as_mut().is_some_and(|a| a.set_weight(id, weight, time))
        })
    }

    fn progress_of(&self, id: JobId) -> Option<Progress> {
        self.section(|books, _| books.allocator.as_ref()?.progress(id))
    }

    fn is_here(&self) -> bool {
        self.is_inside()
    }
}
