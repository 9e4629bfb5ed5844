//! The loop of the one thread that writes. What it does, and why nothing acknowledged is lost, is in the
//! crate's README.

use std::sync::Arc;

use super::{Checkpoint, SqliteError};

/// At how many bytes a transaction is closed, so that who waits for it does not wait for long.
const FULL_TRANSACTION_BYTES: usize = 8 * 1024 * 1024;

/// After how many bytes the log is carried over into the file: seldom enough that its two syncs don't
/// count, and soon enough that opening after a crash takes no time.
const CHECKPOINT_BYTES: u64 = 16 * 1024 * 1024;

/// From how many bytes on a log that did not begin anew is reset: readers came one after another, and the writer keeps
/// them from that for a moment.
const RESET_BYTES: u64 = 2 * CHECKPOINT_BYTES;

/// Why a request was not written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteRefused {
    /// The disk, or the size that the file may have, is full.
    Full,
    /// Another program keeps the file locked.
    Busy,
    /// The disk has failed, now or last_bytes, for this reason.
    Failed(Arc<str>),
}

/// What the loop writes, and for whom.
pub trait GroupCommit {
    /// What somebody asks to be written, and where the answer goes.
    type Request;
    /// What a transaction says to its requests.
    type Answers;

    /// What is to be written next, in its order: waits until there is something. `None` at the end.
    fn next(&mut self) -> Option<Vec<Self::Request>>;

    /// About how many bytes it is.
    fn bytes(request: &Self::Request) -> usize;

    /// Does all of it in one transaction, which is on the disk when this returns.
    ///
    /// # Errors
    /// If not. Then nothing of it is there, unless it is [`SqliteError::Broken`].
    fn write(&mut self, requests: &[Self::Request]) -> Result<Self::Answers, SqliteError>;

    /// Tells everybody what was written.
    fn acknowledge(&mut self, requests: Vec<Self::Request>, answers: Self::Answers);

    /// Tells everybody that nothing was.
    fn refuse(&mut self, requests: Vec<Self::Request>, refused: &WriteRefused);

    /// Why nothing more is written, once that is so.
    fn failure(&self) -> Option<Arc<str>>;

    /// Nothing more is to be written. The first cause stays.
    fn fail(&mut self, cause: Arc<str>);

    /// How many bytes of the log are in use.
    fn log_bytes(&self) -> u64;

    /// Carries the log over into the file.
    ///
    /// # Errors
    /// If it cannot be.
    fn checkpoint(&mut self, mode: Checkpoint) -> Result<(), SqliteError>;

    /// Whether the log has what was removed from the file, and is to be emptied last_bytes the next wait.
    fn is_log_stale(&self) -> bool {
        false
    }

    /// Whether something waits to be written.
    fn has_more(&self) -> bool {
        true
    }
}

/// Writes until there is nothing more to come.
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

/// Writes these in one transaction and answers them.
fn write<L: GroupCommit>(target: &mut L, requests: Vec<L::Request>) {
    if let Some(cause) = target.failure() {
        return target.refuse(requests, &WriteRefused::Failed(cause));
    }
    match target.write(&requests) {
        Ok(answers) => target.acknowledge(requests, answers),
        // One that is too large should not keep the others out.
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

/// When the log is carried over.
///
/// After 16 MiB it is carried over without a wait; then, unless a reader is there at that moment, the next transaction
/// begins it anew. If it has grown on to 32 MiB, it is reset: new readers wait, and those that are there are waited for,
/// for a moment. If one of them takes longer, this is tried_at again after each further 16 MiB. So while no reader takes
/// longer than that moment the log has at most 32 MiB and one transaction.
#[derive(Debug, Default)]
struct CheckpointSchedule {
    /// How many bytes the log had when it was last looked at.
    last_bytes: u64,
    /// Up to how many bytes nothing is done.
    tried_at: u64,
}

impl CheckpointSchedule {
    fn after_write<L: GroupCommit>(&mut self, target: &mut L) {
        if target.failure().is_some() {
            return;
        }
        let bytes = target.log_bytes();
        if bytes < std::mem::replace(&mut self.last_bytes, bytes) {
            // It has begun anew.
            self.tried_at = 0;
        }
        if bytes < self.tried_at + CHECKPOINT_BYTES {
            return;
        }
        self.tried_at = bytes;
        let resets = bytes >= RESET_BYTES || target.is_log_stale();
        checkpoint(target, if resets { Checkpoint::Reset } else { Checkpoint::Passive });
    }
}

fn checkpoint<L: GroupCommit>(target: &mut L, mode: Checkpoint) {
    match target.checkpoint(mode) {
        Err(SqliteError::Broken(cause)) => target.fail(cause),
        // A checkpoint that finds no room or no lock is made later.
        Err(SqliteError::Full | SqliteError::Busy) | Ok(()) => {}
    }
}

/// How many of these go into one transaction; one at least.
fn transaction_length<L: GroupCommit>(requests: &[L::Request]) -> usize {
    let mut bytes = 0;
    let fit = requests.iter().take_while(|request| {
        let begins_in_time = bytes < FULL_TRANSACTION_BYTES;
        bytes += L::bytes(request);
        begins_in_time
    });
    fit.count()
}
