//! Waits with records between two attempts by workers: each goes to a worker again when its wait is
//! over, or is not run if starts have stopped.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use crate::worker::{NewRecord, RecordObserver, WorkerPool};

use super::dispatched_record::DispatchedRecord;
use super::worker_events::RunObserver;
use super::worker_retries::{RetryMessage, WaitingAttempt};

/// Starts the thread that waits.
pub(super) fn start(
    receiver: Receiver<RetryMessage>,
    workers: &Arc<WorkerPool<RunObserver>>,
) -> io::Result<JoinHandle<()>> {
    let workers = Arc::clone(workers);
    let thread = thread::Builder::new().name("keylane-retries".into());
    thread.spawn(move || WaitingAttempts { workers, waiting: BinaryHeap::new() }.follow(&receiver))
}

/// State of the thread.
struct WaitingAttempts {
    workers: Arc<WorkerPool<RunObserver>>,
    waiting: BinaryHeap<Reverse<Box<WaitingAttempt>>>,
}

impl WaitingAttempts {
    fn follow(mut self, receiver: &Receiver<RetryMessage>) {
        loop {
            let message = match self.waiting.peek() {
                None => receiver.recv().map_err(RecvTimeoutError::from),
                Some(Reverse(next)) => {
                    receiver.recv_timeout(next.due.saturating_duration_since(Instant::now()))
                }
            };
            match message {
                Ok(RetryMessage::Wait(attempt)) => self.waiting.push(Reverse(attempt)),
                Ok(RetryMessage::Stopped) => {}
                Ok(RetryMessage::End) | Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => self.give_next(),
            }
            if self.workers.observer.is_stopping() {
                self.waiting.drain().for_each(|_| self.workers.observer.stats.not_run(1));
            }
        }
    }

    fn give_next(&mut self) {
        let Some(Reverse(next)) = self.waiting.pop() else { return };
        let WaitingAttempt { ticket, key, turn, .. } = *next;
        let DispatchedRecord { place, details, sink, .. } = ticket;
        let line = details.as_ref().map_or_else(Vec::new, |details| details.line.clone());
        let number = place.number;
        let ticket = self.workers.observer.ticket(place, sink, details);
        let (key, line, is_alone) = (&key, &*line, true);
        let record = NewRecord { ticket, key, place: number, line, turn, is_alone };
        self.workers.dispatch(record);
    }
}
