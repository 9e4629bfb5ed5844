//! Exit codes of `keylane`, by GNU parallel's convention: 0 when all records succeeded, 1 to 100
//! for the number of failures, 101 for more, 255 for errors that are not a record's failure; a run
//! that a signal ended exits as that signal would have ended it.
//!
//! Client commands of a server exit with 1 to 6 for the outcome of the job, or the reason why it is
//! unknown; wrong usage and signals have the codes above.

use std::process::ExitCode;

/// Most failures that a code can count; one more means "more than that".
const MAX_COUNTED: u64 = 100;

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExitOutcome {
    /// Every record was read and run; this many of them failed.
    Finished { failed: u64 },
    /// The input, the command or the usage was wrong.
    Error,
    /// A signal asked for the end.
    Signalled { signal: i32 },
    /// All jobs that were followed are over, and one has failed.
    JobFailed,
    /// None has failed, and one was cancelled.
    JobCancelled,
    /// The server refused the request.
    Refused,
    /// There was no answer.
    Unreachable,
    /// The time to wait was over before the job was.
    StillGoing,
}

impl ExitOutcome {
    /// True if the end of the run needs no message: the reader of the output has closed it.
    pub(crate) fn is_quiet(self) -> bool {
        self == Self::Signalled { signal: signal_hook::consts::SIGPIPE }
    }

    /// The number that the shell sees.
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Finished { failed } => failed.min(MAX_COUNTED + 1) as u8,
            Self::Error => 255,
            Self::Signalled { signal } => 128 + signal as u8,
            Self::JobFailed => 1,
            // 2 is the shells' code for wrong usage, which is 255 here, so it stays unused.
            Self::JobCancelled => 3,
            Self::Refused => 4,
            Self::Unreachable => 5,
            Self::StillGoing => 6,
        }
    }
}

impl From<ExitOutcome> for ExitCode {
    fn from(ending: ExitOutcome) -> Self {
        ExitCode::from(ending.number())
    }
}

#[cfg(test)]
mod tests {
    use super::ExitOutcome;

    #[test]
    fn failures_are_counted_up_to_a_hundred() {
        let number = |failed| ExitOutcome::Finished { failed }.number();
        assert_eq!([0, 1, 100, 101, 101], [0, 1, 100, 101, 1_000_000].map(number));
    }

    #[test]
    fn what_a_server_says_has_numbers_of_its_own() {
        let endings = [
            ExitOutcome::Finished { failed: 0 },
            ExitOutcome::JobFailed,
            ExitOutcome::JobCancelled,
            ExitOutcome::Refused,
            ExitOutcome::Unreachable,
            ExitOutcome::StillGoing,
        ];
        assert_eq!(endings.map(ExitOutcome::number), [0, 1, 3, 4, 5, 6]);
    }

    #[test]
    fn a_signal_exits_as_the_shell_reports_it() {
        assert_eq!(ExitOutcome::Signalled { signal: 2 }.number(), 130);
        assert_eq!(ExitOutcome::Signalled { signal: 15 }.number(), 143);
        assert_eq!(ExitOutcome::Signalled { signal: 13 }.number(), 141);
    }
}
