//! Limits of a child that is started without a fork.
//!
//! Limits have to be set between the start of a process and that of its program. Code there makes Rust's `Command` fork,
//! and a fork copies the page tables: tens of milliseconds for a large process. So this program is started again, with
//! [`WORD`] as its first argument. It limits itself, and becomes the child's program.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use rustix::process::{Resource, Rlimit, setrlimit};

use crate::own_executable::{has_entrance, own_program};
use crate::say;

/// First argument of a program that limits itself.
const WORD: &str = "--within-limits";

/// Exit status if the program cannot be run and never will: `EX_DATAERR` of BSD's sysexits, by which handlers refuse.
const REFUSED: u8 = 65;

/// The limits by their names in the second argument.
const RESOURCES: [(&str, Resource); 4] = [
    ("as", Resource::As),
    ("cpu", Resource::Cpu),
    ("nofile", Resource::Nofile),
    ("fsize", Resource::Fsize),
];

/// Returns a program and its first arguments, to which a command is appended that then runs within
/// these limits. None if there are no limits, or if this program does not call
/// [`enter`](crate::enter): the caller must then set the limits otherwise.
///
/// A command that cannot be run exits with status 65 if a retry cannot help, else 1, with the
/// reason on standard error.
#[must_use]
pub fn within_limits(limits: &[(Resource, u64)]) -> Option<(PathBuf, [OsString; 2])> {
    if limits.is_empty() || !has_entrance() {
        return None;
    }
    let mut text = String::new();
    for (resource, most) in limits {
        let (name, _) = RESOURCES.iter().find(|(_, known)| known == resource)?;
        text += &format!("{name}={most},");
    }
    Some((own_program().ok()?, [WORD.into(), text.into()]))
}

/// Becomes the command in the arguments, if this was started for that. Returns only if it cannot.
pub(crate) fn enter() -> Option<ExitCode> {
    let mut words = std::env::args_os().skip(1);
    if words.next()? != WORD {
        return None;
    }
    let (limits, program) = (words.next()?, words.next()?);
    let error = become_command(&limits, &program, words);
    say(&format!("the command `{}` was not run: {error}", program.display()));
    Some(ExitCode::from(match error.kind() {
        io::ErrorKind::NotFound
        | io::ErrorKind::PermissionDenied
        | io::ErrorKind::InvalidInput
        | io::ErrorKind::ArgumentListTooLong => REFUSED,
        _ => 1,
    }))
}

fn become_command(
    limits: &OsStr,
    program: &OsStr,
    words: impl Iterator<Item = OsString>,
) -> io::Error {
    let limits = limits.to_string_lossy();
    for limit in limits.split_terminator(',') {
        let parsed = limit.split_once('=').and_then(|(name, most)| {
            let (_, resource) = RESOURCES.iter().find(|(known, _)| *known == name)?;
            Some((*resource, most.parse().ok()?))
        });
        let Some((resource, most)) = parsed else { return io::ErrorKind::InvalidData.into() };
        if let Err(error) = setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })
        {
            return error.into();
        }
    }
    Command::new(program).args(words).exec()
}
