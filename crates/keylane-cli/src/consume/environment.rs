//! Variables of this process's environment that handlers get.

use std::env;
use std::process::Command;

use keylane_process::DEFAULT_ENVIRONMENT;

/// Name that selects all variables.
const ALL: &str = "*";

/// Names of the variables that handlers get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HandlerEnvironment(Vec<String>);

impl HandlerEnvironment {
    /// These names, or the default ones.
    pub(super) fn new(names: Option<Vec<String>>) -> Self {
        HandlerEnvironment(names.unwrap_or_else(|| DEFAULT_ENVIRONMENT.map(String::from).into()))
    }

    /// Restricts the command's environment to the selected variables.
    pub(super) fn give(&self, command: &mut Command) {
        if self.0.iter().any(|name| name == ALL) {
            return;
        }
        command.env_clear();
        command.envs(self.0.iter().filter_map(|name| Some((name, env::var_os(name)?))));
    }
}
