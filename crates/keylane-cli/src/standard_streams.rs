//! Standard streams: refusal of those that were closed by the process that started this one, and output of whole texts.
//!
//! The runtime opens `/dev/null` in their place: without these checks, output would vanish with exit code 0, and input
//! would be empty.

use std::io::{self, Stdin, Write};

use anyhow::{Context, ensure};

use crate::exit::ExitOutcome;

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

/// Writes a whole text to standard output.
pub(crate) fn print(text: &[u8]) -> anyhow::Result<ExitOutcome> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            Ok(ExitOutcome::Signalled { signal: signal_hook::consts::SIGPIPE })
        }
        written => {
            written.context("cannot write to standard output")?;
            Ok(ExitOutcome::Finished { failed: 0 })
        }
    }
}
