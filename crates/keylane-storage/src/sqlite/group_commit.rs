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

/// Size of the log from which readers that keep it are ended, in bytes. They get an error.
const END_READERS_BYTES: u64 = 16 * CHECKPOINT_BYTES;

/// Size of the log from which the writer waits for a background checkpoint, in bytes. Only a disk
/// that copies more slowly than it writes, or a reader that does not end when told, lets it grow so
/// far.
const MAX_LOG_BYTES: u64 = 2 * END_READERS_BYTES;

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
    /// background checkpoint has ended, or awaited readers have left.
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

    /// Copies the log into the file. Returns false if a reader has kept the checkpoint from its
    /// end. A [`Reset`](Checkpoint::Reset) pauses new readers; they stay paused if it returns
    /// false.
    ///
    /// # Errors
    /// If the checkpoint fails.
    fn checkpoint(&mut self, mode: Checkpoint) -> Result<bool, SqliteError>;

    /// Keeps new readers from starting, for at most some hundred milliseconds, without waiting for
    /// present ones.
    fn pause_readers(&mut self) {}

    /// Ends a pause of new readers.
    fn resume_readers(&mut self) {}

    /// Returns whether there are readers. If so, [`next`](Self::next) may return an empty list when
    /// the last of them has left.
    fn has_readers(&self) -> bool {
        false
    }

    /// Makes present readers fail soon, without waiting for them.
    fn end_readers(&mut self) {}

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
            self.schedule.reset_stale(target);
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
/// checkpoint: new readers wait, and the writer waits for present ones for at most 20 ms. If one
/// takes longer, the writer goes on with requests. From 32 MiB on, new readers stay paused for some
/// hundred milliseconds meanwhile, so that overlapping short readers come to an end. The reset is
/// repeated when all readers have left, and after each further 16 MiB. So while no reader takes
/// longer than a pause, the log has little more than 32 MiB and what is written during background
/// checkpoints.
///
/// A reader that takes longer, such as a backup of a large store in use, lets the log grow. From 256
/// MiB on, readers are ended with an error, and the log is copied and reset. What is written until
/// then lengthens it further: at 512 MiB the writer waits for the copy.
#[derive(Debug, Default)]
struct CheckpointSchedule {
    /// Size of the log after the previous transaction, in bytes.
    last_bytes: u64,
    /// Size of the log at the last checkpoint, in bytes.
    tried_at: u64,
    /// Size of the log's part that the last background checkpoint has found in the file, in bytes.
    copied: u64,
    /// Whether a background checkpoint was started whose end is not known yet.
    is_copying: bool,
    /// Cause that kept the last checkpoint from its end.
    kept_by: KeptBy,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum KeptBy {
    #[default]
    Nothing,
    /// Readers of this store. The checkpoint is repeated when they have left.
    Readers,
    /// A reader in another process. The checkpoint is repeated after further 16 MiB.
    Others,
}

impl CheckpointSchedule {
    fn after_write<L: GroupCommit>(&mut self, target: &mut L) {
        if target.failure().is_some() {
            return;
        }
        let bytes = target.log_bytes();
        if bytes < self.last_bytes {
            *self = CheckpointSchedule { is_copying: self.is_copying, ..Self::default() };
        }
        self.last_bytes = bytes;
        match target.background_checkpoint() {
            CheckpointState::Running if bytes < MAX_LOG_BYTES => return,
            CheckpointState::Running | CheckpointState::None => {}
            CheckpointState::Ended(Ok(copied)) => {
                self.is_copying = false;
                // After a restart the copied part is of the log before it.
                if self.tried_at > 0 {
                    return self.after_copy(target, bytes, copied);
                }
            }
            CheckpointState::Ended(Err(error)) => return fail(target, error),
        }
        let have_left = self.kept_by == KeptBy::Readers && !target.has_readers();
        if have_left || bytes >= self.tried_at + CHECKPOINT_BYTES {
            self.start(target, bytes);
        }
    }

    /// Starts to reset a log with deleted content, unless a reader that keeps it is known.
    fn reset_stale<L: GroupCommit>(&mut self, target: &mut L) {
        let is_kept = match self.kept_by {
            KeptBy::Nothing => false,
            KeptBy::Readers => target.has_readers(),
            KeptBy::Others => true,
        };
        if is_kept || self.is_copying {
            return;
        }
        let bytes = target.log_bytes();
        if bytes < CHECKPOINT_BYTES {
            // No request waits at this moment.
            (self.tried_at, self.kept_by) = (bytes, KeptBy::Nothing);
            return self.finish(target, bytes);
        }
        self.start(target, bytes);
    }

    /// Copies the log in the background, or makes the last checkpoint if little is left to copy.
    fn start<L: GroupCommit>(&mut self, target: &mut L, bytes: u64) {
        self.tried_at = bytes;
        self.kept_by = KeptBy::Nothing;
        if bytes >= END_READERS_BYTES {
            target.end_readers();
        }
        let is_long = bytes.saturating_sub(self.copied) > SHORT_CHECKPOINT_BYTES;
        self.is_copying = is_long && target.begin_checkpoint();
        if !self.is_copying {
            self.finish(target, bytes);
        }
    }

    /// Continues after a background checkpoint.
    fn after_copy<L: GroupCommit>(&mut self, target: &mut L, bytes: u64, copied: u64) {
        self.copied = copied;
        if copied >= self.tried_at {
            return self.start(target, bytes);
        }
        // A reader has kept the rest: without its end, a repetition would copy nothing.
        if bytes >= RESET_BYTES {
            target.pause_readers();
        }
        self.is_kept(target, bytes);
    }

    /// Makes a checkpoint on this thread.
    fn finish<L: GroupCommit>(&mut self, target: &mut L, bytes: u64) {
        let must_reset = bytes >= RESET_BYTES || target.is_log_stale();
        let mode = if must_reset { Checkpoint::Reset } else { Checkpoint::Passive };
        match target.checkpoint(mode) {
            Ok(true) if must_reset => *self = Self::default(),
            Ok(false) if must_reset => self.is_kept(target, bytes),
            Ok(_) => {}
            Err(error) => fail(target, error),
        }
    }

    /// Notes that a reader keeps the log. Below the size of a reset, new readers need not wait for it.
    fn is_kept<L: GroupCommit>(&mut self, target: &mut L, bytes: u64) {
        self.kept_by = if target.has_readers() { KeptBy::Readers } else { KeptBy::Others };
        if bytes < RESET_BYTES || self.kept_by == KeptBy::Others {
            target.resume_readers();
        }
    }
}

/// Handles a failed checkpoint. One without space or lock is repeated later.
fn fail<L: GroupCommit>(target: &mut L, error: SqliteError) {
    match error {
        SqliteError::Broken(cause) => target.fail(cause),
        SqliteError::Full | SqliteError::Busy => {}
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

    /// Target that simulates the log's size and its readers, and records the checkpoints.
    #[derive(Default)]
    struct SimulatedLog {
        bytes: u64,
        /// Checkpoints on the writer's thread, by the size of the log in MiB.
        checkpoints: Vec<(u64, Checkpoint)>,
        /// Background checkpoints that were started, by the size of the log; `None` if it has none.
        background: Option<Vec<u64>>,
        state: Option<CheckpointState>,
        is_stale: bool,
        /// Whether a reader keeps the log.
        is_read: bool,
        /// Whether that reader is of this store.
        is_own_reader: bool,
        is_paused: bool,
        /// Sizes of the log at which readers were told to end, in MiB.
        ended_at: Vec<u64>,
        failed: Option<Arc<str>>,
    }

    impl GroupCommit for SimulatedLog {
        type Request = ();
        type Answers = ();

        fn next(&mut self) -> Option<Vec<()>> {
            Some(Vec::new())
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

        fn checkpoint(&mut self, mode: Checkpoint) -> Result<bool, SqliteError> {
            self.checkpoints.push((self.bytes / MIB, mode));
            self.is_paused |= mode == Checkpoint::Reset;
            if mode == Checkpoint::Reset && !self.is_read {
                (self.bytes, self.is_stale, self.is_paused) = (0, false, false);
            }
            Ok(!self.is_read)
        }

        fn pause_readers(&mut self) {
            self.is_paused = true;
        }

        fn resume_readers(&mut self) {
            self.is_paused = false;
        }

        fn has_readers(&self) -> bool {
            self.is_read && self.is_own_reader
        }

        fn end_readers(&mut self) {
            self.ended_at.push(self.bytes / MIB);
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

        fn has_more(&self) -> bool {
            false
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
        assert_eq!(log.checkpoints, [(26, Checkpoint::Passive)]);
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
        assert_eq!(log.checkpoints, [(17, Checkpoint::Reset)]);

        let (mut log, mut schedule) = with_background();
        grow(&mut log, &mut schedule, 17..40);
        ended(&mut log, 39);
        grow(&mut log, &mut schedule, 40..41);
        assert_eq!(log.checkpoints, [(40, Checkpoint::Reset)]);
    }

    /// Regression: at 64 and 128 MiB the writer waited for the reader for 5 seconds, and from 32 MiB
    /// on it copied all that the reader had kept.
    #[test]
    fn a_reader_that_keeps_the_log_makes_the_writer_neither_wait_nor_copy() {
        let (mut log, mut schedule) = with_background();
        (log.is_read, log.is_own_reader) = (true, true);
        for mib in 17..256 {
            // Each background checkpoint finds the reader at 3 MiB.
            if log.state == Some(CheckpointState::Running) {
                ended(&mut log, 3);
            }
            grow(&mut log, &mut schedule, mib..mib + 1);
        }
        assert_eq!((log.checkpoints.len(), log.ended_at.len()), (0, 0));
        assert_eq!(log.background.as_ref().map(|begun| begun.len()), Some(15), "each 16 MiB");
        assert!(log.is_paused);
        // It leaves: the rest is copied in the background, and only then the log is reset.
        log.is_read = false;
        schedule.after_write(&mut log);
        assert_eq!(log.background.as_ref().and_then(|begun| begun.last()), Some(&255));
        ended(&mut log, 255);
        schedule.after_write(&mut log);
        assert_eq!(log.checkpoints, [(255, Checkpoint::Reset)]);
        assert_eq!((log.bytes, log.is_paused), (0, false));
    }

    #[test]
    fn readers_are_ended_at_256_mib_and_the_copy_is_waited_for_at_512_mib() {
        let (mut log, mut schedule) = with_background();
        (log.is_read, log.is_own_reader) = (true, true);
        ended(&mut log, 3);
        grow(&mut log, &mut schedule, 254..256);
        assert!(log.ended_at.is_empty());
        ended(&mut log, 3);
        grow(&mut log, &mut schedule, 257..272);
        assert_eq!(log.ended_at, [271], "16 MiB after the last try");
        // A background checkpoint that does not end.
        grow(&mut log, &mut schedule, 272..512);
        assert_eq!(log.checkpoints, []);
        log.background = None;
        grow(&mut log, &mut schedule, 512..513);
        assert_eq!(log.checkpoints, [(512, Checkpoint::Reset)]);
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
    fn deleted_content_leaves_the_log_when_the_last_reader_has_left() {
        let mut steps = GroupCommitSteps::default();
        let mut log = SimulatedLog { bytes: MIB, is_stale: true, ..SimulatedLog::default() };
        (log.is_read, log.is_own_reader) = (true, true);
        (0..3).for_each(|_| assert!(steps.step(&mut log)));
        assert_eq!(log.checkpoints, [(1, Checkpoint::Reset)], "one try while it reads");
        assert!(log.is_stale && !log.is_paused);
        log.is_read = false;
        assert!(steps.step(&mut log));
        assert_eq!((log.is_stale, log.bytes), (false, 0));
    }

    #[test]
    fn a_reader_in_another_process_is_asked_about_every_16_mib() {
        let (mut log, mut schedule) = (SimulatedLog::default(), CheckpointSchedule::default());
        log.is_read = true;
        grow(&mut log, &mut schedule, 0..66);
        use Checkpoint::{Passive, Reset};
        assert_eq!(log.checkpoints, [(16, Passive), (32, Reset), (48, Reset), (64, Reset)]);
        assert!(!log.is_paused);
        // It has restarted.
        grow(&mut log, &mut schedule, 16..17);
        assert_eq!(log.checkpoints.last(), Some(&(16, Passive)));
    }
}
