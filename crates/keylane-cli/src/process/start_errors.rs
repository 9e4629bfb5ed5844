//! Remedies for errors of starting a program.

use std::io;

use rustix::io::Errno;

/// The error and its remedy, for a program that was found before.
pub(crate) fn why_not_started(error: &io::Error) -> String {
    format!("{error}; {}", remedy(error))
}

fn remedy(error: &io::Error) -> &'static str {
    match Errno::from_io_error(error) {
        Some(Errno::MFILE) => "lower -j, or raise the limit of open files (ulimit -n)",
        Some(Errno::NFILE) => "lower -j, or raise the machine's limit of open files (fs.file-max)",
        Some(Errno::AGAIN) => "lower -j, or raise the limit of processes (ulimit -u)",
        Some(Errno::NOMEM) => "lower -j, or make memory free",
        Some(Errno::NOSPC | Errno::DQUOT) => "make room on the disk",
        Some(Errno::ACCESS | Errno::PERM) => "make it executable, or run it with its interpreter",
        Some(Errno::NOENT) => {
            "check that it is still there; a script needs a first line like #!/bin/sh, with an interpreter \
             that is there"
        }
        Some(Errno::NOEXEC) => {
            "a script needs a first line like #!/bin/sh, or to be run as sh SCRIPT"
        }
        _ => "check the program and its first line",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remedy_is_that_of_the_error() {
        let said = |errno: Errno| why_not_started(&errno.into());
        assert!(said(Errno::MFILE).contains("ulimit -n"));
        assert!(said(Errno::AGAIN).contains("ulimit -u"));
        assert!(said(Errno::NOEXEC).contains("#!/bin/sh"));
        assert!(!said(Errno::MFILE).contains("#!/bin/sh"));
    }
}
