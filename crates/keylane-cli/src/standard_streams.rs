//! Standard streams that were closed by the process that started this one.
//!
//! The runtime opens `/dev/null` in their place: without these checks, output would vanish with exit code 0, and input
//! would be empty.

use std::io::{self, Stdin};

use anyhow::ensure;

/// Refuses a closed standard output, before anything is done whose output would be lost.
pub(crate) fn ensure_stdout_is_open() -> anyhow::Result<()> {
    ensure!(
        !keylane_process::stdout_was_closed(),
        "standard output is closed, so what is printed would be lost; redirect it to a file, or to \
         /dev/null to discard it"
    );
    Ok(())
}

/// Returns standard input, or an error if it is closed.
pub(crate) fn stdin() -> anyhow::Result<Stdin> {
    ensure!(
        !keylane_process::stdin_was_closed(),
        "standard input is closed, so nothing can be read from it; name a file, or redirect the \
         input, from /dev/null for an empty one"
    );
    Ok(io::stdin())
}
