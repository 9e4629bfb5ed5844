//! Group commit: the loop of a store's writer thread, which writes many requests per transaction.
//! The README of `keylane-stream` has the protocol, and why no acknowledged write is lost.

use std::sync::Arc;

use super::{Checkpoint, CheckpointState, SqliteError};

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

/// Size of the log from which readers that keep it are ended, in bytes. They get an error.
const MAX_LOG_BYTES: u64 = 4 * LONG_RESET_BYTES;

/// Size of the uncopied part of the log, in bytes, that the writer copies itself after a background
/// checkpoint. Requests wait meanwhile, so it is small; a larger part is copied in the background,
/// again.
const SHORT_CHECKPOINT_BYTES: u64 = 2 * 1024 * 1024;

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

    /// Waits for requests, in order. Returns `None` at the end, and may return an empty list when a
    /// background checkpoint has ended.
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

    /// Starts a passive checkpoint beside the writes. Returns whether it runs; otherwise
    /// [`checkpoint`](Self::checkpoint) is called instead.
    fn begin_checkpoint(&mut self) -> bool {
        false
    }

    /// Returns the state of the background checkpoint, without waiting.
    fn background_checkpoint(&mut self) -> CheckpointState {
        CheckpointState::None
    }

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
    let mut steps = GroupCommitSteps::default();
    while steps.step(target) {}
}

/// Steps of the writer's loop, for a caller that decides when each one is made.
#[derive(Debug, Default)]
pub struct GroupCommitSteps {
    schedule: CheckpointSchedule,
}

impl GroupCommitSteps {
    /// Writes the next requests. Returns false if the store has no more.
    pub fn step<L: GroupCommit>(&mut self, target: &mut L) -> bool {
        let Some(mut requests) = target.next() else { return false };
        if requests.is_empty() {
            self.schedule.after_write(target);
        }
        while !requests.is_empty() {
            let later = requests.split_off(transaction_length::<L>(&requests));
            write(target, requests);
            self.schedule.after_write(target);
            requests = later;
        }
        if target.is_log_stale() && !target.has_more() && target.failure().is_none() {
            checkpoint(target, Checkpoint::Reset);
        }
        true
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
/// After each 16 MiB of log, a passive checkpoint in the background. Transactions that are written
/// meanwhile lengthen the log; it is copied in the background again until at most 2 MiB are left.
/// Each round is shorter than the one before it as long as copying is faster than writing. The
/// writer copies the rest itself, and the next transaction restarts the log unless a reader is
/// active at that moment. A store without background checkpoints copies everything itself.
///
/// From 32 MiB on, or if the log has deleted content, the writer resets the log after the background
/// checkpoint: new readers wait, and active readers are awaited for a moment. If one takes longer,
/// the reset is retried after each further 16 MiB. So while no reader takes longer than that moment,
/// the log has at most 32 MiB and what is written during background checkpoints. From 64 MiB on, the
/// reset waits for a background checkpoint and 5 seconds for readers, so that also slow readers
/// leave the log at most 64 MiB and one transaction. A reader that takes longer, such as a backup of
/// a large store in use, lets the log grow: the wait is repeated at 128 MiB, and at 256 MiB the
/// reader is ended with an error. So the log has at most 256 MiB and one transaction whatever readers do.
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
        let has_restarted = bytes < std::mem::replace(&mut self.last_bytes, bytes);
        if has_restarted {
            self.tried_at = 0;
        }
        match target.background_checkpoint() {
            CheckpointState::Running if bytes < LONG_RESET_BYTES => return,
            CheckpointState::Ended(Ok(copied)) if !has_restarted => {
                return self.copy_rest(target, bytes, copied);
            }
            CheckpointState::Ended(Err(error)) => return settle(target, Err(error)),
            CheckpointState::Ended(Ok(_)) | CheckpointState::Running | CheckpointState::None => {}
        }
        if bytes < self.tried_at + self.growth_before_next() {
            return;
        }
        self.tried_at = bytes;
        if bytes >= LONG_RESET_BYTES || !target.begin_checkpoint() {
            checkpoint(target, mode(target, bytes));
        }
    }

    /// Returns the growth of the log from one checkpoint to the next. A long reset delays writes for
    /// seconds if it fails, so the log doubles before the next one.
    fn growth_before_next(&self) -> u64 {
        match self.tried_at {
            LONG_RESET_BYTES.. => self.tried_at,
            _ => CHECKPOINT_BYTES,
        }
    }

    /// Continues after a background checkpoint.
    fn copy_rest<L: GroupCommit>(&mut self, target: &mut L, bytes: u64, copied: u64) {
        let is_kept_by_reader = copied < self.tried_at;
        let left = bytes.saturating_sub(copied);
        if is_kept_by_reader && bytes < RESET_BYTES {
            // Without a wait for the reader, a repetition would copy nothing. It is tried again
            // after further 16 MiB.
            return;
        }
        self.tried_at = bytes;
        let is_long = left > SHORT_CHECKPOINT_BYTES && !is_kept_by_reader;
        if bytes >= LONG_RESET_BYTES || !is_long || !target.begin_checkpoint() {
            checkpoint(target, mode(target, bytes));
        }
    }
}

/// Returns the kind of a checkpoint that the writer makes itself, for a log of this size.
fn mode<L: GroupCommit>(target: &L, bytes: u64) -> Checkpoint {
    match bytes {
        MAX_LOG_BYTES.. => Checkpoint::EndReaders,
        LONG_RESET_BYTES.. => Checkpoint::LongReset,
        RESET_BYTES.. => Checkpoint::Reset,
        _ if target.is_log_stale() => Checkpoint::Reset,
        _ => Checkpoint::Passive,
    }
}

fn checkpoint<L: GroupCommit>(target: &mut L, mode: Checkpoint) {
    let result = target.checkpoint(mode);
    settle(target, result);
}

fn settle<L: GroupCommit>(target: &mut L, result: Result<(), SqliteError>) {
    match result {
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
        /// Background checkpoints that were started, by the size of the log; `None` if it has none.
        background: Option<Vec<u64>>,
        state: Option<CheckpointState>,
        is_stale: bool,
        failed: Option<Arc<str>>,
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
            self.failed.clone()
        }

        fn fail(&mut self, cause: Arc<str>) {
            self.failed = Some(cause);
        }

        fn log_bytes(&self) -> u64 {
            self.bytes
        }

        fn checkpoint(&mut self, mode: Checkpoint) -> Result<(), SqliteError> {
            self.checkpoints.push((self.bytes / CHECKPOINT_BYTES, mode));
            Ok(())
        }

        fn begin_checkpoint(&mut self) -> bool {
            let Some(background) = &mut self.background else { return false };
            background.push(self.bytes / MIB);
            self.state = Some(CheckpointState::Running);
            true
        }

        fn background_checkpoint(&mut self) -> CheckpointState {
            match &self.state {
                Some(CheckpointState::Running) => CheckpointState::Running,
                _ => self.state.take().unwrap_or(CheckpointState::None),
            }
        }

        fn is_log_stale(&self) -> bool {
            self.is_stale
        }
    }

    const MIB: u64 = 1 << 20;

    /// Log with background checkpoints, and the schedule after 16 MiB of it.
    fn with_background() -> (SimulatedLog, CheckpointSchedule) {
        let mut log = SimulatedLog { background: Some(Vec::new()), ..SimulatedLog::default() };
        let mut schedule = CheckpointSchedule::default();
        grow(&mut log, &mut schedule, 0..17);
        assert_eq!((log.background.as_deref(), &log.checkpoints[..]), (Some(&[16][..]), &[][..]));
        (log, schedule)
    }

    fn grow(log: &mut SimulatedLog, schedule: &mut CheckpointSchedule, mib: std::ops::Range<u64>) {
        for bytes in mib {
            log.bytes = bytes * MIB;
            schedule.after_write(log);
        }
    }

    fn ended(log: &mut SimulatedLog, copied_mib: u64) {
        log.state = Some(CheckpointState::Ended(Ok(copied_mib * MIB)));
    }

    #[test]
    fn the_log_is_copied_in_the_background_until_little_is_left() {
        let (mut log, mut schedule) = with_background();
        grow(&mut log, &mut schedule, 17..24);
        ended(&mut log, 16);
        grow(&mut log, &mut schedule, 24..25);
        assert_eq!(log.background, Some(vec![16, 24]), "8 MiB are left");
        ended(&mut log, 24);
        grow(&mut log, &mut schedule, 26..27);
        assert_eq!(log.background, Some(vec![16, 24]), "2 MiB are left");
        assert_eq!(log.checkpoints, [(1, Checkpoint::Passive)]);
        // It restarts, and begins anew.
        grow(&mut log, &mut schedule, 1..17);
        assert_eq!(log.background, Some(vec![16, 24, 16]));
    }

    #[test]
    fn a_log_with_deleted_content_or_too_long_is_reset_when_it_is_copied() {
        let (mut log, mut schedule) = with_background();
        log.is_stale = true;
        ended(&mut log, 16);
        grow(&mut log, &mut schedule, 17..18);
        assert_eq!(log.checkpoints, [(1, Checkpoint::Reset)]);

        let (mut log, mut schedule) = with_background();
        grow(&mut log, &mut schedule, 17..40);
        ended(&mut log, 39);
        grow(&mut log, &mut schedule, 40..41);
        assert_eq!(log.checkpoints, [(2, Checkpoint::Reset)]);
    }

    #[test]
    fn readers_that_keep_the_log_are_waited_for_after_background_checkpoints_too() {
        let (mut log, mut schedule) = with_background();
        ended(&mut log, 3);
        grow(&mut log, &mut schedule, 17..33);
        assert_eq!((log.background.clone(), log.checkpoints.len()), (Some(vec![16, 32]), 0));
        ended(&mut log, 3);
        grow(&mut log, &mut schedule, 33..34);
        assert_eq!(log.checkpoints, [(2, Checkpoint::Reset)]);
        grow(&mut log, &mut schedule, 34..50);
        assert_eq!(log.background, Some(vec![16, 32, 49]));
        // A background checkpoint that does not end is not waited for, up to a bound.
        grow(&mut log, &mut schedule, 50..66);
        assert_eq!(log.checkpoints[1..], [(4, Checkpoint::LongReset)]);
    }

    #[test]
    fn a_failed_background_checkpoint_is_a_failure_of_the_store() {
        let (log, mut schedule) = with_background();
        let cause = SqliteError::Broken("no".into());
        let state = Some(CheckpointState::Ended(Err(cause)));
        let mut log = SimulatedLog { state, ..log };
        schedule.after_write(&mut log);
        assert_eq!(log.failed.as_deref(), Some("no"));
    }

    #[test]
    fn a_log_that_readers_keep_is_waited_for_longer_the_larger_it_is() {
        let (mut log, mut schedule) = (SimulatedLog::default(), CheckpointSchedule::default());
        for bytes in (0..18 * CHECKPOINT_BYTES).step_by(1 << 20) {
            log.bytes = bytes;
            schedule.after_write(&mut log);
        }
        use Checkpoint::{EndReaders, LongReset, Passive, Reset};
        let wanted = [
            (1, Passive),
            (2, Reset),
            (3, Reset),
            (4, LongReset),
            (8, LongReset),
            (16, EndReaders),
        ];
        assert_eq!(log.checkpoints, wanted);
        // It has restarted.
        log.bytes = CHECKPOINT_BYTES;
        schedule.after_write(&mut log);
        assert_eq!(log.checkpoints.last(), Some(&(1, Passive)));
    }
}
