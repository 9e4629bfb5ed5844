//! Position of a task among those of its key, and the permit with which it enters.

use crate::engine::{AdmissionTicket, WaitLimit};
#[cfg(doc)]
use crate::error::SubmitErrorKind;

/// Treatment of a key's tasks after its [last one](super::Task::last).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum OnClosedKey {
    /// The next task of the key begins a new life, which may have an end of its own. Costs nothing.
    NewLife,
    /// Tasks of the key are refused with [`KeyClosed`](SubmitErrorKind::KeyClosed), as are rollups
    /// with it among their keys, until the key is [reopened](crate::control::Keys::reopen).
    ///
    /// The pool remembers the key until then: about a hundred bytes and a copy of the key.
    Refuse,
}

/// Position of a task among those of its key.
#[derive(Clone, Copy, Debug)]
pub(super) enum KeyRole {
    /// After all tasks that were submitted before it.
    Ordinary,
    /// In place of the latest one, if that still waits.
    Latest,
    /// After all others, as the last one.
    Last(OnClosedKey),
}

/// How a task gets what it needs to enter.
pub(super) enum EntryPermit {
    /// It waits for capacity, up to this limit.
    Wait(WaitLimit),
    /// It was admitted.
    Ticket(AdmissionTicket),
    /// It takes over the permit of the task that it replaces, and is rejected as
    /// [`Full`](SubmitErrorKind::Full) if there is none.
    Replaced,
}
