//! What a workload asks of a pool: a submitter for each producer thread, and work by key.
//!
//! Pools are never shut down: a run ends with its process, and what ending costs is not measured.

pub(crate) trait Pool: Sync {
    type Submitter: Send;

    /// Makes the submitter of one producer.
    fn submitter(&self) -> Self::Submitter;
}

/// Hands over work with one exclusive key.
pub(crate) trait Submit<J> {
    /// Waits while the pool is full, if it has a bound. The job may stay in a batch.
    fn submit(&mut self, key: u64, job: J);

    /// Hands over what a batch still holds.
    fn flush(&mut self) {}
}

/// Hands over work that needs four different keys at once.
pub(crate) trait SubmitGroup<J> {
    fn submit_group(&mut self, keys: [u64; 4], job: J);
}
