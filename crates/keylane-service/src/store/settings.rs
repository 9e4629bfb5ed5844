//! Settings of a store, and the report of a check.

use super::StoreDamage;

/// Settings for opening a store.
#[derive(Clone, Debug)]
pub struct StoreSettings {
    /// Maximum size of the file and SQLite's log together, in bytes; `None` for no bound but the
    /// disk. A transaction may exceed it by 8 MiB and one submission. The log may exceed it by 16
    /// MiB while a reader keeps it from being emptied; then writes are refused. Default: none.
    pub max_bytes: Option<u64>,
    /// Maximum size of the chunk cache, in bytes. Default: 64 MiB.
    pub max_cache_bytes: usize,
    /// Maximum size of accepted jobs and chunks in the writer's queue, in bytes; further callers
    /// wait for room, first come, first served. Default: 16 MiB.
    pub max_waiting_bytes: usize,
    /// Whether recovery sets a damaged unfinished job to [`Damaged`](super::JobState::Damaged) and
    /// continues with the others, instead of failing. Meant for a single start on an operator's
    /// decision. Default: no.
    pub set_damaged_aside: bool,
    /// Database that the store is in, instead of a file. Default: none.
    #[cfg(feature = "postgres")]
    pub postgres: Option<super::PostgresSettings>,
}

impl Default for StoreSettings {
    fn default() -> Self {
        const MIB: usize = 1024 * 1024;
        StoreSettings {
            max_bytes: None,
            max_cache_bytes: 64 * MIB,
            max_waiting_bytes: 16 * MIB,
            set_damaged_aside: false,
            #[cfg(feature = "postgres")]
            postgres: None,
        }
    }
}

/// Contents and damage of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreReport {
    /// Number of jobs.
    pub jobs: u64,
    /// Number of unfinished jobs.
    pub unfinished: u64,
    /// Number of subtasks in chunks.
    pub subtasks: u64,
    /// Number of recorded outcomes.
    pub outcomes: u64,
    /// Damage; empty if there is none.
    pub damage: Vec<StoreDamage>,
}
