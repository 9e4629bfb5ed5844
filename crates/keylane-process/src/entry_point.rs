//! Entry point at which this program becomes a guard, a feeder, or a command within limits, if it was
//! started as one.

use std::process::ExitCode;

use crate::{feeder, guard, limits, own_executable};

/// Runs the guard or the feeder, if this process was started to be one. Call it at the top of `main`, before any thread starts:
///
/// ```no_run
/// use std::process::ExitCode;
///
/// fn main() -> ExitCode {
///     if let Some(code) = keylane_process::enter() {
///         return code;
///     }
///     // ...
/// #   ExitCode::SUCCESS
/// }
/// ```
///
/// Returns `None` in other processes. A guard returns its exit code when its work is done. A process that was started to
/// limit itself ([`within_limits`](crate::within_limits)) becomes its command here.
#[must_use]
pub fn enter() -> Option<ExitCode> {
    own_executable::note_entrance();
    limits::enter().or_else(guard::run_if_asked).or_else(feeder::run_if_asked)
}
