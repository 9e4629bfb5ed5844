//! Decides the exit code, by GNU parallel's convention: 0 when all records
//! succeeded, 1 to 100 for that many failures, 101 for more, 255 for anything
//! that is not a record's own failure; a run ended by a signal exits as that
//! signal would have ended it.

use std::process::ExitCode;

/// Most failures that a code can count; one more means "more than that".
const MOST_COUNTED: u64 = 100;

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Every record was read and run; this many of them failed.
    Finished { failed: u64 },
    /// The input, the command or the usage was wrong.
    Error,
    /// A signal asked for the end.
    Signalled { signal: i32 },
}

impl Ending {
    /// True if whoever ended the run expects no word about it: a reader of the
    /// output that had enough.
    pub(crate) fn is_quiet(self) -> bool {
        self == Self::Signalled { signal: signal_hook::consts::SIGPIPE }
    }

    /// The number that the shell sees.
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Finished { failed } => failed.min(MOST_COUNTED + 1) as u8,
            Self::Error => 255,
            Self::Signalled { signal } => 128 + signal as u8,
        }
    }
}

impl From<Ending> for ExitCode {
    fn from(ending: Ending) -> Self {
        ExitCode::from(ending.number())
    }
}

#[cfg(test)]
mod tests {
    use super::Ending;

    #[test]
    fn failures_are_counted_up_to_a_hundred() {
        let number = |failed| Ending::Finished { failed }.number();
        assert_eq!([0, 1, 100, 101, 101], [0, 1, 100, 101, 1_000_000].map(number));
    }

    #[test]
    fn a_signal_exits_as_the_shell_reports_it() {
        assert_eq!(Ending::Signalled { signal: 2 }.number(), 130);
        assert_eq!(Ending::Signalled { signal: 15 }.number(), 143);
        assert_eq!(Ending::Signalled { signal: 13 }.number(), 141);
    }
}
