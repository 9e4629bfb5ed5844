//! Execution of records by processes or by workers, behind one interface for the coordinator.

use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;

use keylane::{Builder, Rate, TaskContext, handler};

use crate::key::RecordKey;
use crate::process::ChildProcesses;
use crate::run_stats::RunStats;
use crate::worker::{DISPATCHERS, WorkerPool};

use super::command_task::CommandRunner;
use super::record_pool::RecordPool;
use super::record_task::LineTask;
use super::worker_events::RunObserver;
use super::worker_task;

/// Executor of the records.
#[derive(Debug)]
pub(super) enum RecordExecutor {
    /// A process per record.
    Processes(Arc<CommandRunner>),
    /// Lines to long-lived children, and the threads that look after them.
    Workers(Arc<WorkerPool<RunObserver>>, Mutex<Vec<JoinHandle<()>>>),
}

/// Settings of the pool in front of an executor.
#[derive(Debug, Clone, Copy)]
pub(super) struct PoolSettings {
    pub(super) jobs: usize,
    /// Whether a record can have other claims than one key.
    pub(super) has_claims: bool,
    pub(super) buffer: usize,
    pub(super) rate: Option<Rate>,
    pub(super) rate_per_key: Option<Rate>,
}

impl RecordExecutor {
    /// Builds the pool in front of it.
    pub(super) fn pool(&self, settings: PoolSettings) -> anyhow::Result<RecordPool> {
        let PoolSettings { jobs, has_claims, buffer, rate, rate_per_key } = settings;
        let builder = keylane::Pool::builder()
            .workers(self.threads(jobs))
            .capacity(buffer)
            .start_in_order()
            .thread_name("keylane-run");
        let builder = rate.into_iter().fold(builder, Builder::rate);
        let builder = rate_per_key.into_iter().fold(builder, Builder::rate_per_key);
        Ok(match self {
            Self::Processes(_) => RecordPool::Tasks(builder.build()?),
            Self::Workers(..) if has_claims => RecordPool::Tasks(builder.build()?),
            Self::Workers(workers, _) => {
                let workers = Arc::clone(workers);
                let dispatch = move |key: &RecordKey, work: LineTask, task: TaskContext<'_>| {
                    worker_task::give(work, key, &workers, task.keep());
                };
                RecordPool::Lines(builder.build_handler(handler::with_context(dispatch))?)
            }
        })
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
            workers.observer.retries.stopped();
        }
    }

    /// Releases workers that outlive the records, waits for their end, and writes output that waits.
    pub(super) fn finish(&self) {
        if let Self::Workers(workers, slot_threads) = self {
            workers.observer.retries.end();
            workers.close();
            let slot_threads =
                std::mem::take(&mut *slot_threads.lock().expect("no holder of the lock panics"));
            for slot_thread in slot_threads {
                slot_thread.join().expect("a thread of the workers does not panic");
            }
        }
        match self {
            Self::Processes(runner) => runner.output.finish(),
            Self::Workers(workers, _) => workers.observer.output.finish(),
        }
    }

    /// Reports what the counts of records do not say, at the end of the run.
    pub(super) fn report(&self) {
        if let Self::Workers(workers, _) = self {
            workers.report_lost_states();
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

    /// Returns the runner of commands, unless there are workers.
    pub(super) fn commands(&self) -> Option<Arc<CommandRunner>> {
        match self {
            Self::Processes(runner) => Some(Arc::clone(runner)),
            Self::Workers(..) => None,
        }
    }

    /// Returns the workers, if there are any.
    pub(super) fn workers(&self) -> Option<Arc<WorkerPool<RunObserver>>> {
        match self {
            Self::Processes(_) => None,
            Self::Workers(workers, _) => Some(Arc::clone(workers)),
        }
    }

    pub(super) fn children(&self) -> &ChildProcesses {
        match self {
            Self::Processes(runner) => &runner.processes.children,
            Self::Workers(workers, _) => &workers.children,
        }
    }

    pub(super) fn stats(&self) -> &RunStats {
        match self {
            Self::Processes(runner) => &runner.processes.stats,
            Self::Workers(workers, _) => &workers.observer.stats,
        }
    }
}
