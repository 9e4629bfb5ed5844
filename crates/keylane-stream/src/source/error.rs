use std::error::Error;
use std::fmt;

/// Why a source cannot go on.
#[derive(Debug)]
pub struct SourceError {
    what: String,
    cause: Option<Box<dyn Error + Send + Sync>>,
}

/// Why progress was not stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CommitError {
    /// The partition is somebody else's meanwhile: an event says so, or will.
    #[error("the partition is no longer ours")]
    NotOurs,
    /// The map does not fit where it is stored. It is tried again with less of it, and no more is taken
    /// on than the shorter map has room for.
    #[error("the map of what is done is too long for where it is stored")]
    TooLong,
    /// It may work later: it is tried again with the next commit.
    #[error("{0}")]
    Later(String),
}

impl SourceError {
    /// What could not be done, as in "cannot read the journal".
    pub fn new(what: impl Into<String>) -> Self {
        SourceError { what: what.into(), cause: None }
    }

    /// The same with what was the cause.
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
