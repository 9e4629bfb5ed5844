//! Decides whether a test that lacks a fixture is skipped or fails.

use std::env;
use std::fmt;

/// A fixture that a test needs and this machine lacks.
#[derive(Debug)]
pub struct Missing {
    /// The reason and the remedy.
    reason: String,
}

impl Missing {
    /// Creates the error from its reason and remedy, as one clause.
    pub fn new(reason: impl Into<String>) -> Self {
        Missing { reason: reason.into() }
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

/// Returns the fixture; or `None`, after printing the reason, for the test to return early.
///
/// # Panics
/// If the fixture is missing and `KEYLANE_REQUIRE_PARTS=1` is set. CI sets it, as a skipped test
/// could not fail there.
pub fn or_skip<T>(part: Result<T, Missing>) -> Option<T> {
    match part {
        Ok(part) => Some(part),
        Err(missing) => {
            let required = env::var_os("KEYLANE_REQUIRE_PARTS").is_some_and(|value| value == "1");
            assert!(!required, "KEYLANE_REQUIRE_PARTS=1 is set, and {missing}");
            eprintln!("skipped: {missing}");
            None
        }
    }
}
