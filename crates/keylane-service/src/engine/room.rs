//! The bounds on all jobs together: unfinished subtasks, and bytes of their keys, which are in memory.
//!
//! What is accepted counts in the books. A job on its way in counts from its first line on, so that several large
//! uploads at a time cannot pass the bounds together. Each keeps its part in a [`Room`], which gives it back when the
//! job has entered the books, was refused, or its client has gone.
//!
//! Uploads take their room in steps, so that the lock of the books is not taken for each line. The sums of all rooms are
//! read and raised under one small lock, so two uploads cannot both get the last room. It is locked before the books,
//! never while they are locked.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::{Core, Refused};

/// Subtasks that an upload takes room for at a time.
const STEP: u64 = 1024;

/// Bytes of keys that an upload takes room for at a time.
const STEP_BYTES: u64 = 256 * 1024;

/// What all jobs on their way in have together.
#[derive(Debug, Default)]
pub(super) struct Incoming(Mutex<Taken>);

#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    subtasks: u64,
    key_bytes: u64,
}

/// What one job on its way in has. Gives it back when it is dropped.
#[derive(Debug)]
pub(super) struct Room {
    core: Arc<Core>,
    /// What `Incoming` counts for it.
    taken: Taken,
    /// What it needs; at most `taken`, unless that was refused.
    needed: Taken,
}

impl Room {
    pub(super) fn new(core: &Arc<Core>) -> Self {
        Room { core: Arc::clone(core), taken: Taken::default(), needed: Taken::default() }
    }

    /// Takes room for more.
    ///
    /// Errors if there is none. Then the job must be given up.
    pub(super) fn take(&mut self, subtasks: u64, key_bytes: u64) -> Result<(), Refused> {
        self.needed.subtasks += subtasks;
        self.needed.key_bytes += key_bytes;
        let is_enough = self.needed.subtasks <= self.taken.subtasks
            && self.needed.key_bytes <= self.taken.key_bytes;
        // A small job is looked at when it is whole: it may have been submitted before.
        if is_enough || self.needed.subtasks < STEP && self.needed.key_bytes < STEP_BYTES {
            return Ok(());
        }
        self.grow(STEP, STEP_BYTES)
    }

    /// Looks whether there is room for a job that is whole.
    ///
    /// Errors if there is none.
    pub(super) fn check(&mut self) -> Result<(), Refused> {
        self.grow(0, 0)
    }

    /// Takes room for what is needed, and for this many more if there is room for them.
    fn grow(&mut self, more: u64, more_bytes: u64) -> Result<(), Refused> {
        let bounds = &self.core.settings.bounds;
        let incoming = &self.core.incoming.0;
        let mut all = incoming.lock().unwrap_or_else(PoisonError::into_inner);
        // Looked at second: a job counts in the books before its room is given back, so it is never missed.
        let (unfinished, key_bytes) = {
            let books = self.core.books();
            (books.unfinished, books.key_bytes)
        };
        let others = Taken {
            subtasks: unfinished + (all.subtasks - self.taken.subtasks),
            key_bytes: key_bytes + (all.key_bytes - self.taken.key_bytes),
        };
        let (most, waiting) = (bounds.waiting_subtasks, others.subtasks);
        if waiting + self.needed.subtasks > most {
            let new = self.needed.subtasks;
            return Err(full(format!(
                "{waiting} subtasks are unfinished or on their way, this job has {new} or more, and {most} may be in all"
            )));
        }
        let (most, have) = (bounds.waiting_key_bytes, others.key_bytes + self.needed.key_bytes);
        if have > most {
            return Err(full(format!(
                "the keys of all unfinished subtasks would have {have} bytes, and {most} may be"
            )));
        }
        let want = Taken {
            subtasks: (self.needed.subtasks + more).min(bounds.waiting_subtasks - others.subtasks),
            key_bytes: (self.needed.key_bytes + more_bytes).min(most - others.key_bytes),
        };
        all.subtasks = all.subtasks - self.taken.subtasks + want.subtasks;
        all.key_bytes = all.key_bytes - self.taken.key_bytes + want.key_bytes;
        self.taken = want;
        Ok(())
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut all = self.core.incoming.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.subtasks -= self.taken.subtasks;
        all.key_bytes -= self.taken.key_bytes;
    }
}

fn full(what: String) -> Refused {
    Refused::Backlog { what, after: Duration::from_secs(1) }
}
