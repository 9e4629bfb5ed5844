//! Descriptions of how a child has ended, for people.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

/// Exit status of a child for humans.
pub(crate) fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => match signal_hook::low_level::signal_name(signal) {
            Some(name) => format!("ended by signal {signal} ({name})"),
            None => format!("ended by signal {signal}"),
        },
        (None, None) => status.to_string(),
    }
}

/// Describes the end of a command, with the timeout that it has exceeded.
pub(crate) fn describe_end(status: ExitStatus, exceeded: Option<Duration>) -> String {
    match exceeded {
        Some(timeout) => format!("it took longer than {timeout:?} ({})", describe(status)),
        None => describe(status),
    }
}
