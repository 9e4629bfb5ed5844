//! Child processes that end with their parent, however that ends.
//!
//! A parent that is killed cannot end its children. Three parts see to it instead; [README](../README.md) has the
//! protocol and the proof.
//!
//! - [`Registry`]: a table of the process groups that run, in a file or in memory. A start finds what an earlier
//!   process left there, and ends it before it returns. A process without a file of its own has one in a
//!   [folder](Registry::in_folder).
//! - The guard ([`Guard::ThisProgram`]): a small process that ends everything in the table once its parent is gone.
//!   [`enter`] is its entrance, at the top of `main`.
//! - [`enter_as_init`]: reaps orphans where the program is the first process of a container.
//!
//! [`whole_input`] is an input that a child gets whole or not at all, and [`widen_pipe`] does that for lines to a child
//! that runs.
//!
//! Process groups are a Unix matter. Only Linux lets a start tell a reused process number from the old process, and
//! find children whose parent died before it could register them: elsewhere those two cases are not covered.

#![forbid(unsafe_code)]

/// Variables of this process's environment that a handler of `keylane serve` and `keylane consume` gets unless the
/// configuration lists others: enough to find programs, files, a language and a time zone, and no credentials.
pub const DEFAULT_ENVIRONMENT: [&str; 4] = ["PATH", "HOME", "LANG", "TZ"];

/// Its example compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod end;
mod entrance;
mod folder;
mod guard;
mod init;
mod input;
mod leftovers;
mod limits;
mod program;
mod registry;
#[cfg(target_os = "linux")]
#[path = "scan_linux.rs"]
mod scan;
#[cfg(not(target_os = "linux"))]
#[path = "scan_unix.rs"]
mod scan;
mod table;

pub use entrance::enter;
pub use guard::Guard;
pub use init::enter_as_init;
pub use input::{whole_input, widen_pipe};
pub use leftovers::OpenError;
pub use limits::within_limits;
pub use registry::{Options, Place, Registry};
pub use scan::has_ended;

use std::time::Duration;

/// Time between SIGTERM and SIGKILL for processes whose parent is gone.
pub const GRACE: Duration = Duration::from_secs(5);

/// Says something on standard error. It may lead nowhere, which is no reason to end.
fn say(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "keylane: {text}");
}

/// Environment variable that marks a child, and what it starts, as belonging to one registry.
pub const TAG: &str = "KEYLANE_CHILD_OF";
