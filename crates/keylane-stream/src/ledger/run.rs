//! The loop of the one thread that writes. What it does, and why nothing acknowledged is lost, is in the
//! crate's README.

use std::sync::Arc;

use super::{Carry, Trouble};

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
pub enum Refusal {
    /// The disk, or the size that the file may have, is full.
    Full,
    /// Another program keeps the file locked.
    Busy,
    /// The disk has failed, now or before, for this reason.
    Failed(Arc<str>),
}

/// What the loop writes, and for whom.
pub trait Ledger {
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
    /// If not. Then nothing of it is there, unless it is [`Trouble::Broken`].
    fn write(&mut self, requests: &[Self::Request]) -> Result<Self::Answers, Trouble>;

    /// Tells everybody what was written.
    fn acknowledge(&mut self, requests: Vec<Self::Request>, answers: Self::Answers);

    /// Tells everybody that nothing was.
    fn refuse(&mut self, requests: Vec<Self::Request>, refusal: &Refusal);

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
    fn checkpoint(&mut self, carry: Carry) -> Result<(), Trouble>;

    /// Whether the log has what was removed from the file, and is to be emptied before the next wait.
    fn is_log_stale(&self) -> bool {
        false
    }

    /// Whether something waits to be written.
    fn has_more(&self) -> bool {
        true
    }
}

/// Writes until there is nothing more to come.
pub fn run<L: Ledger>(ledger: &mut L) {
    let mut carrier = Carrier::default();
    while let Some(mut requests) = ledger.next() {
        while !requests.is_empty() {
            let later = requests.split_off(transaction_length::<L>(&requests));
            write(ledger, requests);
            carrier.carry_over(ledger);
            requests = later;
        }
        if ledger.is_log_stale() && !ledger.has_more() && ledger.failure().is_none() {
            carry(ledger, Carry::Reset);
        }
    }
}

/// Writes these in one transaction and answers them.
fn write<L: Ledger>(ledger: &mut L, requests: Vec<L::Request>) {
    if let Some(cause) = ledger.failure() {
        return ledger.refuse(requests, &Refusal::Failed(cause));
    }
    match ledger.write(&requests) {
        Ok(answers) => ledger.acknowledge(requests, answers),
        // One that is too large should not keep the others out.
        Err(Trouble::Full) if requests.len() > 1 => {
            requests.into_iter().for_each(|alone| write(ledger, vec![alone]));
        }
        Err(Trouble::Full) => ledger.refuse(requests, &Refusal::Full),
        Err(Trouble::Busy) => ledger.refuse(requests, &Refusal::Busy),
        Err(Trouble::Broken(cause)) => {
            ledger.fail(Arc::clone(&cause));
            ledger.refuse(requests, &Refusal::Failed(cause));
        }
    }
}

/// When the log is carried over.
///
/// After 16 MiB it is carried over without a wait; then, unless a reader is there at that moment, the next transaction
/// begins it anew. If it has grown on to 32 MiB, it is reset: new readers wait, and those that are there are waited for,
/// for a moment. If one of them takes longer, this is tried again after each further 16 MiB. So while no reader takes
/// longer than that moment the log has at most 32 MiB and one transaction.
#[derive(Debug, Default)]
struct Carrier {
    /// How many bytes the log had when it was last looked at.
    before: u64,
    /// Up to how many bytes nothing is done.
    tried: u64,
}

impl Carrier {
    fn carry_over<L: Ledger>(&mut self, ledger: &mut L) {
        if ledger.failure().is_some() {
            return;
        }
        let bytes = ledger.log_bytes();
        if bytes < std::mem::replace(&mut self.before, bytes) {
            // It has begun anew.
            self.tried = 0;
        }
        if bytes < self.tried + CHECKPOINT_BYTES {
            return;
        }
        self.tried = bytes;
        let resets = bytes >= RESET_BYTES || ledger.is_log_stale();
        carry(ledger, if resets { Carry::Reset } else { Carry::Some });
    }
}

fn carry<L: Ledger>(ledger: &mut L, how: Carry) {
    match ledger.checkpoint(how) {
        Err(Trouble::Broken(cause)) => ledger.fail(cause),
        // A checkpoint that finds no room or no lock is made later.
        Err(Trouble::Full | Trouble::Busy) | Ok(()) => {}
    }
}

/// How many of these go into one transaction; one at least.
fn transaction_length<L: Ledger>(requests: &[L::Request]) -> usize {
    let mut bytes = 0;
    let fit = requests.iter().take_while(|request| {
        let begins_in_time = bytes < FULL_TRANSACTION_BYTES;
        bytes += L::bytes(request);
        begins_in_time
    });
    fit.count()
}
