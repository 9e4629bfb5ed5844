//! Execution of records by processes or by workers, behind one interface for the coordinator.

use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;

use keylane::{TaskContext, handler};

use crate::key::RecordKey;
use crate::process::{ChildProcesses, RecordProcessRunner};
use crate::run_stats::RunStats;
use crate::worker::{DISPATCHERS, WorkerPool};

use super::record_task::{RecordBody, RecordPool, RecordTask};
use super::worker_events::RunObserver;

/// Executor of the records.
#[derive(Debug)]
pub(super) enum RecordExecutor {
    /// A process per record.
    Processes(Arc<RecordProcessRunner>),
    /// Lines to long-lived children, and the threads that look after them.
    Workers(Arc<WorkerPool<RunObserver>>, Mutex<Vec<JoinHandle<()>>>),
}

impl RecordExecutor {
    /// Builds the pool in front of it.
    pub(super) fn pool(&self, jobs: usize, buffer: usize) -> anyhow::Result<RecordPool> {
        let builder = keylane::Pool::builder()
            .workers(self.threads(jobs))
            .capacity(buffer)
            .thread_name("keylane-run");
        match self {
            Self::Processes(processes) => {
                let processes = Arc::clone(processes);
                Ok(builder.build_handler(move |key: &RecordKey, work: RecordTask| {
                    let key = work.own_key.as_ref().unwrap_or(key);
                    match work.body {
                        RecordBody::Argv(argv) => processes.run(&work.place, key, argv),
                        RecordBody::Line(_) => unreachable!("lines are for workers"),
                    }
                })?)
            }
            Self::Workers(workers, _) => {
                let workers = Arc::clone(workers);
                let dispatch = move |key: &RecordKey, work: RecordTask, task: TaskContext<'_>| {
                    let key = work.own_key.as_ref().unwrap_or(key);
                    match work.body {
                        RecordBody::Line(line) => {
                            let ticket = workers.observer.ticket(work.place);
                            workers.dispatch(ticket, key, &line, Some(task.keep()))
                        }
                        RecordBody::Argv(_) => unreachable!("commands are for processes"),
                    }
                };
                Ok(builder.build_handler(handler::with_context(dispatch))?)
            }
        }
    }

    /// Number of pool threads for this number of slots.
    pub(super) fn threads(&self, jobs: usize) -> usize {
        match self {
            Self::Processes(_) => jobs,
            Self::Workers(..) => DISPATCHERS,
        }
    }

    /// Abandons records that have not started; the pool has abandoned its own.
    pub(super) fn stop(&self) {
        if let Self::Workers(workers, _) = self {
            workers.stop();
        }
    }

    /// Releases workers that outlive the records, and waits for their end.
    pub(super) fn finish(&self) {
        if let Self::Workers(workers, slot_threads) = self {
            workers.close();
            let slot_threads =
                std::mem::take(&mut *slot_threads.lock().expect("no holder of the lock panics"));
            for slot_thread in slot_threads {
                slot_thread.join().expect("a slot thread does not panic");
            }
        }
    }

    /// Checks conditions without an event.
    pub(super) fn check_health(&self, input_ended: bool, pool: &RecordPool) {
        if let Self::Workers(workers, _) = self {
            workers.check_health(
                input_ended,
                || pool.inspect().snapshot(0).unfinished,
                Instant::now(),
            );
        }
    }

    pub(super) fn children(&self) -> &ChildProcesses {
        match self {
            Self::Processes(processes) => &processes.children,
            Self::Workers(workers, _) => &workers.children,
        }
    }

    pub(super) fn stats(&self) -> &RunStats {
        match self {
            Self::Processes(processes) => &processes.stats,
            Self::Workers(workers, _) => &workers.observer.stats,
        }
    }
}
