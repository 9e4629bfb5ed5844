//! Writer of a store without a thread: a simulation decides when it writes, and with which result.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};

use keylane_storage::sqlite::{GroupCommit, GroupCommitSteps, WriteRefused};

use tokio_util::sync::CancellationToken;

use super::change::WriteRequest;
use super::store_dependencies::{JoinWriter, Outside, WriterHost};
use super::writer::StoreWriter;

/// Disk of a store: its writer, between two steps.
#[derive(Clone, Default)]
pub(crate) struct SimulatedDisk(Arc<Mutex<Option<SteppedWriter>>>);

struct SteppedWriter {
    writer: StoreWriter,
    steps: GroupCommitSteps,
    /// Written requests of a process that ends before it answers. Kept until its end, because what answers them also owns
    /// the service.
    unanswered: Vec<WriteRequest>,
}

/// Result of a step of the writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteFate {
    /// The requests are written and answered.
    Written,
    /// No request is written, because the disk is full.
    Full,
    /// The requests are written, and the process ends before it answers.
    WrittenUnanswered,
}

impl SimulatedDisk {
    /// Returns what a store takes from outside, with this disk.
    pub(crate) fn outside(
        &self,
        now_ms: impl Fn() -> u64 + Send + Sync + 'static,
        random: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Outside {
        Outside {
            now_ms: Arc::new(now_ms),
            random: Arc::new(random),
            writers: Arc::new(self.clone()),
            given_up: CancellationToken::new(),
        }
    }

    fn writer(&self) -> MutexGuard<'_, Option<SteppedWriter>> {
        self.0.lock().unwrap()
    }

    /// Waits until there is a request to write. Stays `PendingWrite` after the end of the store.
    pub(crate) fn poll_filled(&self, context: &Context<'_>) -> Poll<()> {
        match &*self.writer() {
            Some(stepped) if stepped.writer.has_more() => Poll::Ready(()),
            Some(stepped) => stepped.writer.shared.queue.poll_filled(context),
            None => Poll::Pending,
        }
    }

    /// Writes the requests of the queue.
    pub(crate) fn step(&self, fate: WriteFate) {
        // Taken out, because callbacks may drop the last handle of the store.
        let Some(mut stepped) = self.writer().take() else { return };
        let shared = Arc::clone(&stepped.writer.shared);
        shared.queue.is_mine();
        match fate {
            WriteFate::Written => drop(stepped.steps.step(&mut stepped.writer)),
            WriteFate::Full => {
                let requests = stepped.writer.next().unwrap_or_default();
                stepped.writer.refuse(requests, &WriteRefused::Full);
            }
            WriteFate::WrittenUnanswered => {
                let requests = stepped.writer.next().unwrap_or_default();
                stepped.writer.write(&requests).expect("the file can be written");
                stepped.unanswered = requests;
            }
        }
        shared.queue.is_no_longer_mine();
        // A callback may have dropped the last handle. The writer then ends by itself.
        if shared.queue.is_closed() {
            stepped.close();
        } else {
            *self.writer() = Some(stepped);
        }
    }

    /// Returns whether the store is closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.writer().is_none()
    }

    /// Ends the writer as a crash does. Returns when the files are closed; requests are dropped.
    pub(crate) fn crash(&self) {
        let Some(stepped) = self.writer().take() else { return };
        let SteppedWriter { writer, unanswered, .. } = stepped;
        let shared = Arc::clone(&writer.shared);
        drop(writer);
        shared.fail("the process has ended".into());
        shared.queue.close();
        while shared.queue.take(true).is_some() {}
        drop(unanswered);
    }
}

impl SteppedWriter {
    /// Writes the requests that are left, and closes the file.
    fn close(mut self) {
        let shared = Arc::clone(&self.writer.shared);
        shared.queue.is_mine();
        while self.steps.step(&mut self.writer) {}
        self.writer.close();
        shared.queue.is_no_longer_mine();
    }
}

impl WriterHost for SimulatedDisk {
    fn start(&self, writer: StoreWriter) -> io::Result<JoinWriter> {
        *self.writer() = Some(SteppedWriter {
            writer,
            steps: GroupCommitSteps::default(),
            unanswered: Vec::new(),
        });
        let disk = self.clone();
        Ok(Box::new(move || {
            let stepped = disk.writer().take();
            if let Some(stepped) = stepped {
                stepped.close();
            }
        }))
    }

    #[cfg(feature = "postgres")]
    fn thread(&self, _name: &str, _body: Box<dyn FnOnce() + Send>) -> io::Result<JoinWriter> {
        unreachable!("a simulated store is in a file")
    }

    fn report(&self, report: Box<dyn FnOnce() + Send>) {
        // After a crash there is no process that could hear of it.
        drop(report);
    }
}
