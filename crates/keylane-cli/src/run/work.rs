//! What the reader hands to the pool for each record.

use crate::key::Key;
use crate::ledger::Place;

/// The pool of a run.
pub(crate) type Pool = keylane::HandlerPool<Key, Work>;

/// One record, ready to run.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) place: Place,
    /// The record's key, if the pool has all records under one key.
    pub(crate) own_key: Option<Key>,
    pub(crate) body: Body,
}

/// What runs.
#[derive(Debug)]
pub(crate) enum Body {
    /// A command's words.
    Argv(Vec<Vec<u8>>),
    /// A line for a worker, with its line end.
    Line(Vec<u8>),
}
