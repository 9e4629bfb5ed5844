//! Error of settings: names the setting, its rule and the remedy.

use std::fmt;

/// Error of settings.
#[derive(Debug)]
pub(super) struct InvalidSettings {
    /// Setting to look at, without dashes.
    pub(super) setting: Option<&'static str>,
    what: String,
}

impl fmt::Display for InvalidSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Messages name settings as options are typed. The configuration file has the same names, without dashes.
        match self.setting {
            Some("source" | "command") | None => f.write_str(&self.what),
            Some(setting) if self.what.contains(&format!("--{setting}")) => f.write_str(&self.what),
            Some(setting) => write!(f, "--{setting}: {}", self.what),
        }
    }
}

impl std::error::Error for InvalidSettings {}

/// Returns the error of a setting.
pub(super) fn wrong<T>(
    setting: &'static str,
    what: impl Into<String>,
) -> Result<T, InvalidSettings> {
    Err(InvalidSettings { setting: Some(setting), what: what.into() })
}
