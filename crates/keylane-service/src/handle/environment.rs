//! Variables of the server's environment that a command gets.

use std::ffi::OsString;

use keylane_process::DEFAULT_ENVIRONMENT;

/// Selection of the server's environment variables.
#[derive(Clone, Debug)]
pub(super) enum EnvironmentSelection {
    /// Variables with these names.
    Named(Vec<OsString>),
    /// All variables.
    Whole,
}

impl Default for EnvironmentSelection {
    fn default() -> Self {
        EnvironmentSelection::Named(DEFAULT_ENVIRONMENT.map(Into::into).into())
    }
}

impl EnvironmentSelection {
    /// Search path for the command's program.
    pub(super) fn path(&self) -> OsString {
        let passes = match self {
            EnvironmentSelection::Named(names) => names.iter().any(|name| name == "PATH"),
            EnvironmentSelection::Whole => true,
        };
        let path = passes.then(|| std::env::var_os("PATH")).flatten();
        path.unwrap_or_else(|| "/bin:/usr/bin".into())
    }

    pub(super) fn give(&self, command: &mut tokio::process::Command) {
        let EnvironmentSelection::Named(names) = self else { return };
        command.env_clear();
        command.envs(names.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    }
}
