//! Messages for users on standard error.

use std::fmt::Display;
use std::io::{Write, stderr};

/// Writes a line on standard error. A closed terminal takes none; that must not keep a process from an orderly stop, so the
/// error is ignored.
pub(crate) fn say(message: impl Display) {
    let _ = writeln!(stderr(), "keylane: {message}");
}
