//! Coordinator of a run: decides when and how it ends.
//!
//! The phases, each left for the next and never back:
//!
//! 1. *Reading*, until the input ends or a reason to stop comes.
//! 2. *Draining*: the pool is closed and accepted records are finished. With a reason to stop, only
//!    running records are finished, and the rest is counted.
//! 3. *Ending*, from the second signal on: the children are asked to end, and killed by the third
//!    signal or after [`GRACE`].

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use crate::exit::ExitOutcome;
use crate::run_stats::records;

use super::coordinator_event::{CoordinatorEvent, StopCause};
use super::executor::RecordExecutor;
use super::record_pool::RecordPool;

/// Grace period of children that are asked to end.
const GRACE: Duration = Duration::from_secs(2);

/// Interval of the engine's checks for which there is no event.
const TICK: Duration = Duration::from_millis(250);

/// Follows one run to its end.
#[derive(Debug)]
pub(super) struct RunCoordinator {
    pool: Arc<RecordPool>,
    engine: Arc<RecordExecutor>,
    sender: Sender<CoordinatorEvent>,
    /// The first reason to stop.
    cause: Option<StopCause>,
    /// Result of the reader.
    input: Option<anyhow::Result<()>>,
    draining: bool,
    signals: u32,
    kill_at: Option<Instant>,
}

impl RunCoordinator {
    pub(super) fn new(
        pool: Arc<RecordPool>,
        engine: Arc<RecordExecutor>,
        sender: Sender<CoordinatorEvent>,
    ) -> Self {
        Self {
            pool,
            engine,
            sender,
            cause: None,
            input: None,
            draining: false,
            signals: 0,
            kill_at: None,
        }
    }

    /// Returns when no record runs.
    pub(super) fn follow(mut self, events: &Receiver<CoordinatorEvent>) -> ExitOutcome {
        loop {
            match events.recv_timeout(TICK) {
                Ok(CoordinatorEvent::InputEnded(outcome)) => self.input_ended(outcome),
                Ok(CoordinatorEvent::Stop(cause)) => self.stop(cause),
                Ok(CoordinatorEvent::Drained) => break,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => unreachable!("this holds a sender itself"),
            }
            self.engine.check_health(self.input.is_some(), &self.pool);
            self.kill_if_due();
        }
        self.ending()
    }

    fn input_ended(&mut self, outcome: anyhow::Result<()>) {
        if let Err(error) = &outcome {
            self.engine.stats().output.say(format_args!("{error:#}"));
        }
        self.input = Some(outcome);
        self.drain();
    }

    fn stop(&mut self, cause: StopCause) {
        if let StopCause::Signal(_) = cause {
            self.signals += 1;
        }
        if self.cause.is_none() {
            self.stop_starting(cause);
        } else {
            self.end_children();
        }
    }

    fn stop_starting(&mut self, cause: StopCause) {
        let stats = self.engine.stats();
        stats.stop();
        stats.not_run(self.pool.abandon());
        self.engine.stop();
        if let StopCause::Signal(_) = cause {
            let running = stats.counts().running;
            stats.output.say(format_args!(
                "stopping; {running} running may finish, interrupt again to end them"
            ));
        }
        if let StopCause::RecordFailed = cause {
            let running = stats.counts().running;
            stats
                .output
                .say(format_args!("stopping after a failure; {running} running may finish"));
        }
        if let StopCause::Error(error) = &cause {
            stats.output.say(format_args!("{error:#}"));
        }
        self.cause = Some(cause);
        self.drain();
    }

    fn end_children(&mut self) {
        match self.signals {
            0 | 1 => {}
            2 => {
                self.engine.stats().output.say("ending the running commands");
                self.engine.children().terminate();
                self.kill_at = Some(Instant::now() + GRACE);
            }
            _ => self.engine.children().kill(),
        }
    }

    /// Waits for the pool in a thread of its own, so that signals are heard.
    fn drain(&mut self) {
        if std::mem::replace(&mut self.draining, true) {
            return;
        }
        self.pool.close();
        let (pool, sender) = (Arc::clone(&self.pool), self.sender.clone());
        let engine = Arc::clone(&self.engine);
        thread::spawn(move || {
            pool.shutdown().expect("the caller is no task of the pool");
            engine.finish();
            let _ = sender.send(CoordinatorEvent::Drained);
        });
    }

    fn kill_if_due(&mut self) {
        if self.kill_at.is_some_and(|at| at <= Instant::now()) {
            self.kill_at = None;
            self.engine.children().kill();
        }
    }

    fn ending(self) -> ExitOutcome {
        match (&self.cause, &self.input) {
            (Some(StopCause::Error(_)), _) | (None, Some(Err(_))) => ExitOutcome::Error,
            (Some(StopCause::Signal(signal)), _) => ExitOutcome::Signalled { signal: *signal },
            (Some(StopCause::OutputClosed), _) => {
                ExitOutcome::Signalled { signal: signal_hook::consts::SIGPIPE }
            }
            (Some(StopCause::RecordFailed), _) => {
                ExitOutcome::Finished { failed: self.engine.stats().counts().failed }
            }
            (None, _) => self.finished(),
        }
    }

    /// No record may be dropped in silence, not even by a mistake in here.
    fn finished(&self) -> ExitOutcome {
        let stats = self.engine.stats();
        let counts = stats.counts();
        let ended = counts.done + counts.not_run;
        if ended != counts.read {
            let missing = records(counts.read.saturating_sub(ended));
            stats.output.say(format_args!("{missing} lost track of; please report this"));
            return ExitOutcome::Error;
        }
        ExitOutcome::Finished { failed: counts.failed }
    }
}
