//! Gives the records of a run to workers, from a pool of lines or from one of tasks.

use std::sync::Arc;

use keylane::Turn;

use crate::key::RecordKey;
use crate::run_stats::RunStats;
use crate::worker::{NewRecord, WorkerPool};

use super::record_task::LineTask;
use super::worker_events::RunObserver;

/// Record for a worker in a pool of tasks. Dropped before it is given to a worker, it counts as not
/// run.
#[derive(Debug)]
pub(super) struct WaitingRecord {
    pub(super) stats: Arc<RunStats>,
    task: Option<LineTask>,
}

/// Gives a record to a worker. `key` selects the worker, unless the record has a key of its own.
pub(super) fn give(
    task: LineTask,
    key: &RecordKey,
    workers: &Arc<WorkerPool<RunObserver>>,
    turn: Turn,
) {
    let LineTask { place, own_key, line, sink, details } = task;
    let RunObserver { stats, failures, .. } = &workers.observer;
    if !stats.is_stopping() && details.as_ref().is_some_and(|details| failures.holds(&details.keys))
    {
        return stats.held(1);
    }
    let number = place.number;
    let ticket = workers.observer.ticket(place, sink, details);
    let (key, line) = (own_key.as_ref().unwrap_or(key), &*line);
    let (turn, is_alone) = (Some(turn), false);
    workers.dispatch(NewRecord { ticket, key, place: number, line, turn, is_alone });
}

impl WaitingRecord {
    pub(super) fn new(stats: &Arc<RunStats>, task: LineTask) -> Self {
        WaitingRecord { stats: Arc::clone(stats), task: Some(task) }
    }

    /// Gives the record to a worker.
    pub(super) fn give(mut self, workers: &Arc<WorkerPool<RunObserver>>, turn: Turn) {
        if let Some(task) = self.task.take() {
            give(task, &RecordKey::Serial, workers, turn);
        }
    }
}

impl Drop for WaitingRecord {
    fn drop(&mut self) {
        if self.task.is_some() {
            self.stats.not_run(1);
        }
    }
}
