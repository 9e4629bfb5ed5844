//! Error of a destination that did not take records.

use std::error::Error;
use std::fmt;

/// Error of writing records.
#[derive(Debug)]
pub struct SinkError(Box<dyn Error + Send + Sync>);

impl SinkError {
    /// Creates an error with this cause.
    pub fn new(why: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        SinkError(why.into())
    }
}

impl fmt::Display for SinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the output of the record was not written: {}", self.0)
    }
}

impl Error for SinkError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}
