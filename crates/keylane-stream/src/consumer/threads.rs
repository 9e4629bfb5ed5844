//! Background threads of a consumer, and the order in which they end.

use std::sync::Arc;
use std::thread::{self, JoinHandle};

use super::dead_letter_writer;
use super::record_lanes::RecordLanes;
use super::shared::ConsumerShared;
use super::{ShutdownReport, StartError};
use crate::dead_letters::DeadLetters;

/// Threads beside the coordinator: pool, timer and dead-letter writer. Dropping it ends them.
pub(super) struct BackgroundThreads {
    shared: Arc<ConsumerShared>,
    /// Pool, until the end.
    lanes: Option<Arc<dyn RecordLanes>>,
    timer: Option<JoinHandle<()>>,
    dead_letters: Option<JoinHandle<()>>,
    /// Attempts are still running that are not awaited.
    is_abandoned: bool,
}

impl BackgroundThreads {
    pub(super) fn start(
        shared: &Arc<ConsumerShared>,
        lanes: &Arc<dyn RecordLanes>,
        dead_letter_sink: Option<Box<dyn DeadLetters>>,
    ) -> Result<Self, StartError> {
        let mut threads = BackgroundThreads {
            shared: shared.clone(),
            lanes: Some(lanes.clone()),
            timer: None,
            dead_letters: None,
            is_abandoned: false,
        };
        let (timers, lanes) = (shared.clone(), lanes.clone());
        threads.timer = Some(spawn("keylane-timer", move || run_timer(&timers, &*lanes))?);
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

/// Runs retries that are due. Each holds the guard of its lanes.
fn run_timer(shared: &ConsumerShared, lanes: &dyn RecordLanes) {
    shared.timer.run(&shared.outside, |due| due.into_iter().for_each(|it| lanes.retry(it)));
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
        let lanes = self.lanes.take();
        // Their assignments are closed, so none of these tasks would start.
        lanes.iter().for_each(|lanes| lanes.stop());
        let (dead_letters, end) = (self.dead_letters.take(), move || drop(lanes));
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
