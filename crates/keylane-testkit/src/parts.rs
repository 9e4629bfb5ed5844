use std::env;
use std::fmt;

/// A part that a test needs and this machine lacks.
#[derive(Debug)]
pub struct Missing {
    /// What it is, and how to get it.
    what: String,
}

impl Missing {
    /// What is missing, and how to get it.
    pub fn new(what: impl Into<String>) -> Self {
        Missing { what: what.into() }
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.what.fmt(f)
    }
}

/// The part; or none, and a line that says so, for a test that then returns.
///
/// # Panics
/// If it is missing, and the environment says `KEYLANE_REQUIRE_PARTS=1`: where all parts should be, a test
/// that skips itself would be one that cannot fail.
pub fn or_skip<T>(part: Result<T, Missing>) -> Option<T> {
    match part {
        Ok(part) => Some(part),
        Err(missing) => {
            let required = env::var_os("KEYLANE_REQUIRE_PARTS").is_some_and(|value| value == "1");
            assert!(!required, "KEYLANE_REQUIRE_PARTS=1, and {missing}");
            eprintln!("skipped, because {missing}");
            None
        }
    }
}
