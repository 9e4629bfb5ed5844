use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::attempt::Cargo;
use super::failure::Failure;
use super::survey::Survey;
use super::turn::LaneTurn;
use crate::Position;

/// What the owner is told.
#[derive(Debug)]
pub(super) enum Report {
    /// A record is done with, whose entry is at this place.
    Ended { slot: usize, epoch: u64, position: Position, place: usize, how: How },
    /// An attempt has failed, and the record is not done with.
    Failed(Box<Failed>),
    /// The consumer is to end, and what runs has so long for it.
    Stop(Duration),
    /// Somebody wants to know how things stand.
    Survey(mpsc::Sender<Survey>),
}

/// How a record was done with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    Handled,
    /// The same, and what was made of it is where it belongs.
    Produced,
    Skipped,
    DeadLettered,
}

/// An attempt that failed.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) cargo: Arc<Cargo>,
    /// Its number.
    pub(super) attempt: u32,
    pub(super) failure: Arc<Failure>,
    pub(super) then: Then,
}

/// What follows a failed attempt.
#[derive(Debug)]
pub(super) enum Then {
    /// The next one.
    Retry(Instant),
    /// Nothing: the record is done.
    Skip,
    /// It goes to the dead letters.
    DeadLetter,
    /// The dead letters do not take it yet: why.
    NotBuried(String),
    /// Its key stops: the turn stays with the owner.
    StopKey(Option<LaneTurn>),
    /// All stops. The turn is kept until nothing can begin.
    StopAll(Option<LaneTurn>),
}
