//! Numbers as users write them.

use std::num::NonZeroUsize;

/// Parses a number of at least 1.
pub(crate) fn at_least_one(text: &str) -> Result<NonZeroUsize, String> {
    text.parse().map_err(|_| "give a number of at least 1".to_owned())
}
