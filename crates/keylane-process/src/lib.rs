//! Child processes that end with their parent, even if the parent is killed.
//!
//! A killed parent cannot end its children. Three parts do so instead; [README](../README.md) has
//! the protocol and the proof.
//!
//! - [`Registry`]: a table of the running process groups, in a file or in memory. A start finds the
//!   groups that an earlier process left, and ends them before it returns. A process without a file
//!   of its own has a table in a [folder](Registry::in_folder).
//! - The guard ([`GuardMechanism::ThisProgram`]): a small process that ends all groups in the table once its
//!   parent is gone. [`enter`] is its entry point, at the start of `main`.
//! - [`enter_as_init`]: reaps orphans where the program is the first process of a container.
//! - [`stdin_was_closed`] and [`stdout_was_closed`]: whether the parent left a standard stream closed.
//!
//! [`whole_input`] is an input that a child gets completely or not at all, and [`widen_pipe`] gives
//! that guarantee for lines to a running child, and [`feed`] for longer ones.
//!
//! Process groups exist on Unix only. Only Linux lets a start tell a reused process number from the
//! old process, and find children whose parent died before it could register them: elsewhere those
//! two cases are not covered.

#![deny(unsafe_code)]

/// Variables of this process's environment that a handler of `keylane serve` and `keylane consume` gets unless the
/// configuration lists others: enough to find programs, files, a language and a time zone, and no credentials.
pub const DEFAULT_ENVIRONMENT: [&str; 4] = ["PATH", "HOME", "LANG", "TZ"];

/// Its example compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ProcessReadme;

mod child_stdin;
mod container_init;
mod entry_point;
mod feeder;
mod guard;
mod leftovers;
mod limits;
mod own_executable;
mod registry;
#[cfg(target_os = "linux")]
#[path = "scan_linux.rs"]
mod scan;
#[cfg(not(target_os = "linux"))]
#[path = "scan_unix.rs"]
mod scan;
#[allow(unsafe_code, reason = "a function that the loader calls")]
mod standard_streams;
mod table;
mod table_folder;
mod termination;

pub use child_stdin::{whole_input, widen_pipe};
pub use container_init::enter_as_init;
pub use entry_point::enter;
pub use feeder::feed;
pub use guard::GuardMechanism;
pub use leftovers::RegistryOpenError;
pub use limits::within_limits;
pub use registry::{Registry, RegistryEntry, RegistryOptions};
pub use scan::has_ended;
pub use standard_streams::{stdin_was_closed, stdout_was_closed};

use std::time::Duration;

/// Time between SIGTERM and SIGKILL for processes whose parent is gone.
pub const GRACE: Duration = Duration::from_secs(5);

/// Writes a message to standard error. A lost standard error is no reason to end.
fn say(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "keylane: {text}");
}

/// Environment variable that marks a child and its descendants as belonging to one registry.
pub const TAG: &str = "KEYLANE_CHILD_OF";
