//! The part of the server's environment that a command gets.

use std::ffi::OsString;

use keylane_process::DEFAULT_ENVIRONMENT;

/// Variables of this process that a command gets.
#[derive(Clone, Debug)]
pub(super) enum Environment {
    /// Those with these names.
    Named(Vec<OsString>),
    /// All of them.
    Whole,
}

impl Default for Environment {
    fn default() -> Self {
        Environment::Named(DEFAULT_ENVIRONMENT.map(Into::into).into())
    }
}

impl Environment {
    pub(super) fn give(&self, command: &mut tokio::process::Command) {
        let Environment::Named(names) = self else { return };
        command.env_clear();
        command.envs(names.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    }
}
