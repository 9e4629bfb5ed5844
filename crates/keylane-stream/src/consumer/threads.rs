//! Background threads of a consumer, and the order in which they end.

use std::sync::Arc;
use std::thread::{self, JoinHandle};

use super::dead_letter_writer;
use super::in_flight::InFlight;
use super::ordering::LaneId;
use super::record_lanes::RecordLanes;
use super::shared::ConsumerShared;
use super::{RecordPool, ShutdownReport, StartError};
use crate::dead_letters::DeadLetters;

/// Threads beside the coordinator: pool, timer and dead-letter writer. Dropping it ends them.
pub(super) struct BackgroundThreads {
    shared: Arc<ConsumerShared>,
    /// Pool, until the end.
    pool: Option<Arc<RecordPool>>,
    timer: Option<JoinHandle<()>>,
    dead_letters: Option<JoinHandle<()>>,
    /// Attempts are still running that are not awaited.
    is_abandoned: bool,
}

impl BackgroundThreads {
    pub(super) fn start(
        shared: &Arc<ConsumerShared>,
        pool: &Arc<RecordPool>,
        dead_letter_sink: Option<Box<dyn DeadLetters>>,
    ) -> Result<Self, StartError> {
        let mut threads = BackgroundThreads {
            shared: shared.clone(),
            pool: Some(pool.clone()),
            timer: None,
            dead_letters: None,
            is_abandoned: false,
        };
        let (timers, pool) = (shared.clone(), pool.clone());
        threads.timer = Some(spawn("keylane-timer", move || run_timer(&timers, &pool))?);
        if let Some(mut dead_letter_sink) = dead_letter_sink {
            let shared = shared.clone();
            let run = move || dead_letter_writer::run(&shared, &mut *dead_letter_sink);
            threads.dead_letters = Some(spawn("keylane-letters", run)?);
        }
        Ok(threads)
    }

    /// Keeps the report, and with it whether attempts are still running. Called after the
    /// coordinator has ended.
    pub(super) fn end_with(mut self, ended: ShutdownReport) -> ShutdownReport {
        self.is_abandoned = ended.abandoned > 0;
        ended
    }
}

/// Sends retries that are due to the pool. Each holds the guard of its key and gets a lane of its
/// own.
fn run_timer(shared: &ConsumerShared, pool: &RecordPool) {
    // The coordinator numbers its single-record lanes upwards from 1, so the numbers do not meet.
    let mut number = u64::MAX;
    shared.timer.run(&shared.outside, |in_flight| send_retries(in_flight, &mut number, pool));
}

/// Sends retries to lanes of their own. `number` is that of the last lane.
pub(super) fn send_retries(in_flight: Vec<InFlight>, number: &mut u64, lanes: &dyn RecordLanes) {
    let lane = |in_flight| {
        *number -= 1;
        (LaneId::Single { number: *number }, in_flight)
    };
    // The lanes are closed only at the end, when no attempt will start any more.
    lanes.send(&mut in_flight.into_iter().map(lane).collect());
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, StartError> {
    thread::Builder::new().name(name.to_owned()).spawn(run).map_err(StartError::Thread)
}

impl Drop for BackgroundThreads {
    fn drop(&mut self) {
        self.shared.mailbox.close();
        self.shared.timer.stop();
        self.shared.dead_letters.stop();
        join(self.timer.take());
        let pool = self.pool.take();
        // Their assignments are closed, so none of these tasks would start.
        drop(pool.as_ref().map(|pool| pool.shutdown_now()));
        let (dead_letters, end) = (self.dead_letters.take(), move || drop(pool));
        if self.is_abandoned {
            // Joining would wait for abandoned attempts; a detached thread does.
            drop(dead_letters);
            drop(thread::spawn(end));
        } else {
            join(dead_letters);
            end();
        }
    }
}

fn join(thread: Option<JoinHandle<()>>) {
    if let Some(thread) = thread {
        // A panic of the thread has no other observer.
        let _ = thread.join();
    }
}
