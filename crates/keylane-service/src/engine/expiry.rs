//! Expiry of jobs: from a job's `expires_at` on, none of its subtasks starts.
//!
//! # Protocol
//!
//! 1. A job that has the time is in `expiring` from its acceptance, its recovery or its retry on, in the same critical
//!    section in which it enters `live`. It need not leave `expiring` when it ends: an entry without a live job is dropped.
//! 2. The dispatcher expires jobs before it starts subtasks, in the same critical section and at the same moment `now`.
//!    So no subtask is chosen at a time from `expires_at` on, also not by the first step after a restart. One chosen
//!    before may reach its handler when its start mark is on the disk, which takes longer on a slow or full disk.
//! 3. A job of which something has not started is cancelled; what runs may finish, on a remote worker too. A job of
//!    which everything has started finishes without further attempts: it ends as its attempts do, and a key that it has
//!    stopped stays stopped.
//! 4. The mark in the head of the job is in the same batch as its status, so that both are on the disk, or neither.
//!    Without them the next process expires the job again, and with them it decides again by what is left (3): an attempt
//!    that the crash has cut off gets no further one.
//!
//! The time is compared with the wall clock as the service follows it (`clock.rs`), like `run_at`.

use std::sync::Arc;

use super::engine_state::EngineState;
use crate::JobNumber;
use crate::wire::Timestamp;

/// Maximum number of jobs that expire in one critical section. Each of them rewrites two rows.
const MAX_AT_ONCE: usize = 256;

impl EngineState {
    /// Watches the expiry of a job that has just entered `live`, if it is still to come.
    pub(super) fn watch_expiry(&mut self, job: JobNumber) {
        let Some(live) = self.live.get(&job).filter(|live| !live.head.is_expired) else { return };
        if let Some(at) = live.head.expires_at {
            self.expiring.insert((at, job));
        }
    }

    /// Expires jobs whose time has come. Returns whether there are more.
    pub(super) fn expire_due(&mut self, now: Timestamp) -> bool {
        for _ in 0..MAX_AT_ONCE {
            match self.expiring.first() {
                Some((at, _)) if *at <= now => {}
                _ => return false,
            }
            if let Some((at, job)) = self.expiring.pop_first() {
                self.expire(job, at, now);
            }
        }
        true
    }

    /// Returns the time of the next expiry.
    pub(super) fn next_job_expiry(&self) -> Option<u64> {
        self.expiring.first().map(|(at, _)| at.0)
    }

    fn expire(&mut self, job: JobNumber, at: Timestamp, now: Timestamp) {
        let Some(live) = self.live.get_mut(&job) else { return };
        // A retry of the job may have removed its time.
        if live.is_closing || live.cancelling || live.head.expires_at != Some(at) {
            return;
        }
        let mut head = (*live.head).clone();
        head.is_expired = true;
        let bytes = serde_json::to_vec(&head).expect("a head can be written as JSON");
        live.head = Arc::new(head);
        self.unwritten.changes.head(job, bytes);
        self.totals.jobs_expired += 1;
        live.touch(&mut self.versions);
        self.changed.insert(job);
        self.end_expired(job, now);
    }

    /// Lets an expired job finish, or cancels it if something has not started.
    pub(super) fn end_expired(&mut self, job: JobNumber, now: Timestamp) {
        if !self.scheduler.let_finish(job) {
            self.cancel_rest(job, now);
        }
    }

    /// Cancels what has not started of a job that is neither over nor being cancelled.
    pub(super) fn cancel_rest(&mut self, job: JobNumber, now: Timestamp) {
        let Some(live) = self.live.get_mut(&job) else { return };
        live.cancelling = true;
        live.touch(&mut self.versions);
        let status = live.status();
        self.unwritten.changes.status(job, status);
        self.changed.insert(job);
        self.drop_rest(job, false, now);
    }
}
