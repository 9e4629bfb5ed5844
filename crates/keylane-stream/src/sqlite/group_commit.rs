//! Group commit: the loop of a store's writer thread, which writes many requests per transaction.
//! The crate's README has the protocol, and why no acknowledged write is lost.

use std::sync::Arc;

use super::{Checkpoint, SqliteError};

/// Size at which a transaction is closed, in bytes. It bounds the latency of its requests.
const FULL_TRANSACTION_BYTES: usize = 8 * 1024 * 1024;

/// Growth of the log between checkpoints, in bytes: rare enough that their two syncs do not count,
/// and frequent enough that opening after a crash is fast.
const CHECKPOINT_BYTES: u64 = 16 * 1024 * 1024;

/// Size at which a log that did not restart by itself is reset, in bytes. A continuous sequence of
/// readers prevents the restart, so the writer pauses them for a moment.
const RESET_BYTES: u64 = 2 * CHECKPOINT_BYTES;

/// Size of the log from which a reset waits for slow readers. Writes wait meanwhile, so this is
/// beyond what short readers reach.
const LONG_RESET_BYTES: u64 = 4 * CHECKPOINT_BYTES;

/// Error of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteRefused {
    /// The disk is full, or the file has its maximum size.
    Full,
    /// Another program holds SQLite's lock on the file.
    Busy,
    /// The disk has failed, now or earlier, for this reason.
    Failed(Arc<str>),
}

/// A store that is written by [`run`].
pub trait GroupCommit {
    /// A write, with the destination of its answer.
    type Request;
    /// Answers of a transaction to its requests.
    type Answers;

    /// Waits for requests, in order. Returns `None` at the end.
    fn next(&mut self) -> Option<Vec<Self::Request>>;

    /// Returns the approximate size of a request, in bytes.
    fn bytes(request: &Self::Request) -> usize;

    /// Writes the requests in one transaction, which is on the disk on return.
    ///
    /// # Errors
    /// If the transaction fails. Nothing was written, except perhaps after [`SqliteError::Broken`].
    fn write(&mut self, requests: &[Self::Request]) -> Result<Self::Answers, SqliteError>;

    /// Answers the requests of a transaction that was written.
    fn acknowledge(&mut self, requests: Vec<Self::Request>, answers: Self::Answers);

    /// Answers the requests of a transaction that was not written.
    fn refuse(&mut self, requests: Vec<Self::Request>, refused: &WriteRefused);

    /// Returns the cause after which no request is written, once there is one.
    fn failure(&self) -> Option<Arc<str>>;

    /// Stops all further writes. The first cause is kept.
    fn fail(&mut self, cause: Arc<str>);

    /// Returns the size of the used part of the log, in bytes.
    fn log_bytes(&self) -> u64;

    /// Copies the log into the file.
    ///
    /// # Errors
    /// If the checkpoint fails.
    fn checkpoint(&mut self, mode: Checkpoint) -> Result<(), SqliteError>;

    /// Returns whether the log has content that was deleted from the file, and must be emptied
    /// before the next wait.
    fn is_log_stale(&self) -> bool {
        false
    }

    /// Returns whether requests are waiting.
    fn has_more(&self) -> bool {
        true
    }
}

/// Writes requests until the store has no more.
pub fn run<L: GroupCommit>(target: &mut L) {
    let mut schedule = CheckpointSchedule::default();
    while let Some(mut requests) = target.next() {
        while !requests.is_empty() {
            let later = requests.split_off(transaction_length::<L>(&requests));
            write(target, requests);
            schedule.after_write(target);
            requests = later;
        }
        if target.is_log_stale() && !target.has_more() && target.failure().is_none() {
            checkpoint(target, Checkpoint::Reset);
        }
    }
}

/// Writes requests in one transaction and answers them.
fn write<L: GroupCommit>(target: &mut L, requests: Vec<L::Request>) {
    if let Some(cause) = target.failure() {
        return target.refuse(requests, &WriteRefused::Failed(cause));
    }
    match target.write(&requests) {
        Ok(answers) => target.acknowledge(requests, answers),
        // A request that is too large must not fail the others.
        Err(SqliteError::Full) if requests.len() > 1 => {
            requests.into_iter().for_each(|alone| write(target, vec![alone]));
        }
        Err(SqliteError::Full) => target.refuse(requests, &WriteRefused::Full),
        Err(SqliteError::Busy) => target.refuse(requests, &WriteRefused::Busy),
        Err(SqliteError::Broken(cause)) => {
            target.fail(Arc::clone(&cause));
            target.refuse(requests, &WriteRefused::Failed(cause));
        }
    }
}

/// Decides when to make a checkpoint.
///
/// After 16 MiB of log, a passive checkpoint; then, unless a reader is active at that moment, the
/// next transaction restarts the log. At 32 MiB, a reset: new readers wait, and active readers are
/// awaited for a moment. If one takes longer, the reset is retried after each further 16 MiB. So
/// while no reader takes longer than that moment, the log has at most 32 MiB and one transaction.
/// From 64 MiB on, the reset waits 5 seconds for readers, so that also slow readers leave the log
/// at most 64 MiB and one transaction. A reader that takes longer, such as a backup of a large
/// store in use, lets the log grow until it ends.
#[derive(Debug, Default)]
struct CheckpointSchedule {
    /// Size of the log after the previous transaction, in bytes.
    last_bytes: u64,
    /// Size of the log at the last checkpoint, in bytes.
    tried_at: u64,
}

impl CheckpointSchedule {
    fn after_write<L: GroupCommit>(&mut self, target: &mut L) {
        if target.failure().is_some() {
            return;
        }
        let bytes = target.log_bytes();
        if bytes < std::mem::replace(&mut self.last_bytes, bytes) {
            // The log has restarted.
            self.tried_at = 0;
        }
        if bytes < self.tried_at + CHECKPOINT_BYTES {
            return;
        }
        self.tried_at = bytes;
        checkpoint(
            target,
            match bytes {
                LONG_RESET_BYTES.. => Checkpoint::LongReset,
                RESET_BYTES.. => Checkpoint::Reset,
                _ if target.is_log_stale() => Checkpoint::Reset,
                _ => Checkpoint::Passive,
            },
        );
    }
}

fn checkpoint<L: GroupCommit>(target: &mut L, mode: Checkpoint) {
    match target.checkpoint(mode) {
        Err(SqliteError::Broken(cause)) => target.fail(cause),
        // A checkpoint without space or lock is repeated later.
        Err(SqliteError::Full | SqliteError::Busy) | Ok(()) => {}
    }
}

/// Returns the number of requests for one transaction, at least 1.
fn transaction_length<L: GroupCommit>(requests: &[L::Request]) -> usize {
    let mut bytes = 0;
    let fit = requests.iter().take_while(|request| {
        let begins_in_time = bytes < FULL_TRANSACTION_BYTES;
        bytes += L::bytes(request);
        begins_in_time
    });
    fit.count()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Target that simulates the log's size and records the checkpoints.
    #[derive(Default)]
    struct SimulatedLog {
        bytes: u64,
        checkpoints: Vec<(u64, Checkpoint)>,
    }

    impl GroupCommit for SimulatedLog {
        type Request = ();
        type Answers = ();

        fn next(&mut self) -> Option<Vec<()>> {
            None
        }

        fn bytes((): &()) -> usize {
            0
        }

        fn write(&mut self, _: &[()]) -> Result<(), SqliteError> {
            Ok(())
        }

        fn acknowledge(&mut self, _: Vec<()>, (): ()) {}

        fn refuse(&mut self, _: Vec<()>, _: &WriteRefused) {}

        fn failure(&self) -> Option<Arc<str>> {
            None
        }

        fn fail(&mut self, _: Arc<str>) {}

        fn log_bytes(&self) -> u64 {
            self.bytes
        }

        fn checkpoint(&mut self, mode: Checkpoint) -> Result<(), SqliteError> {
            self.checkpoints.push((self.bytes / CHECKPOINT_BYTES, mode));
            Ok(())
        }
    }

    #[test]
    fn a_log_that_readers_keep_is_waited_for_longer_the_larger_it_is() {
        let (mut log, mut schedule) = (SimulatedLog::default(), CheckpointSchedule::default());
        for bytes in (0..6 * CHECKPOINT_BYTES).step_by(1 << 20) {
            log.bytes = bytes;
            schedule.after_write(&mut log);
        }
        use Checkpoint::{LongReset, Passive, Reset};
        let wanted = [(1, Passive), (2, Reset), (3, Reset), (4, LongReset), (5, LongReset)];
        assert_eq!(log.checkpoints, wanted);
        // It has restarted.
        log.bytes = CHECKPOINT_BYTES;
        schedule.after_write(&mut log);
        assert_eq!(log.checkpoints.last(), Some(&(1, Passive)));
    }
}
