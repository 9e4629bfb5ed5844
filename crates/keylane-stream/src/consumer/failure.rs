//! Causes of failed attempts.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// Cause of a failed attempt.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum AttemptFailure {
    /// The handler returned an error; see [`downcast_ref`](AttemptFailure::downcast_ref).
    Error(Arc<dyn Error + Send + Sync>),
    /// The handler panicked, with this message if the payload was text.
    Panicked(String),
    /// The handler's [`Ack`](super::Ack) was dropped without an answer, or its runtime has shut
    /// down.
    Abandoned,
    /// The record has no key, and the consumer [rejects](super::UnkeyedPolicy::Reject) such
    /// records. No attempt was made.
    NoKey,
}

impl AttemptFailure {
    /// Returns the handler's error if it has this type.
    #[must_use]
    pub fn downcast_ref<E: Error + 'static>(&self) -> Option<&E> {
        match self {
            AttemptFailure::Error(error) => error.downcast_ref(),
            _ => None,
        }
    }

    pub(super) fn panicked(payload: &(dyn Any + Send)) -> Self {
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        AttemptFailure::Panicked(text.unwrap_or("without a message").to_owned())
    }
}

/// With `{:#}`, as in a dead letter, errors say all that they can; else what fits a line of a log.
impl fmt::Display for AttemptFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AttemptFailure::Error(error) => write_chain(f, &**error),
            AttemptFailure::Panicked(message) => write!(f, "the handler panicked: {message}"),
            AttemptFailure::Abandoned => f.write_str("the attempt ended without an answer"),
            AttemptFailure::NoKey => f.write_str("the record has no key"),
        }
    }
}

/// Writes an error and the chain of its causes.
fn write_chain(f: &mut fmt::Formatter<'_>, error: &dyn Error) -> fmt::Result {
    // Not by `write!`, which would forget that more is asked for.
    fmt::Display::fmt(error, f)?;
    let mut cause = error.source();
    while let Some(next) = cause {
        f.write_str(": ")?;
        fmt::Display::fmt(next, f)?;
        cause = next.source();
    }
    Ok(())
}

impl<E: Into<Box<dyn Error + Send + Sync>>> From<E> for AttemptFailure {
    fn from(error: E) -> Self {
        AttemptFailure::Error(Arc::from(error.into()))
    }
}
