//! Errors of sources and of commits.

use std::error::Error;
use std::fmt;

/// Error after which a source cannot continue.
#[derive(Debug)]
pub struct SourceError {
    what: String,
    cause: Option<Box<dyn Error + Send + Sync>>,
}

/// Error of a commit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CommitError {
    /// The partition was assigned to another member; an event reports that, now or later.
    #[error("the partition is assigned to another member")]
    NotOurs,
    /// The map exceeds the limit of its storage. The commit is retried with a shorter map, and
    /// fewer records are admitted from now on.
    #[error(
        "the map of completed positions is too long for its storage; a shorter one is tried next"
    )]
    TooLong,
    /// A temporary error: the next commit may succeed.
    #[error("{0}")]
    Later(String),
}

impl SourceError {
    /// Creates an error for a failed action, as in "cannot read the journal".
    pub fn new(what: impl Into<String>) -> Self {
        SourceError { what: what.into(), cause: None }
    }

    /// Creates an error for a failed action, with its cause.
    pub fn because(
        what: impl Into<String>,
        cause: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        SourceError { what: what.into(), cause: Some(cause.into()) }
    }
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl Error for SourceError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        let cause = self.cause.as_deref()?;
        Some(cause)
    }
}
