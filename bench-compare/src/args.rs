//! Reads `--name value` pairs, and refuses unknown names.

use std::collections::BTreeMap;
use std::str::FromStr;

use crate::Result;

/// The flags of one subcommand; each is taken once, and [`Args::finish`] rejects the rest.
pub(crate) struct Args {
    flags: BTreeMap<String, String>,
}

impl Args {
    pub(crate) fn none() -> Args {
        Args { flags: BTreeMap::new() }
    }

    pub(crate) fn parse(words: impl Iterator<Item = String>) -> Result<Args> {
        let mut words = words;
        let mut flags = BTreeMap::new();
        while let Some(word) = words.next() {
            let name = word.strip_prefix("--").ok_or(format!("expected a --flag, got `{word}`"))?;
            let value = words.next().ok_or(format!("--{name} needs a value"))?;
            flags.insert(name.to_owned(), value);
        }
        Ok(Args { flags })
    }

    /// The value of `--name`, or `default`.
    pub(crate) fn take<T: FromStr>(&mut self, name: &str, default: T) -> Result<T> {
        let Some(text) = self.flags.remove(name) else { return Ok(default) };
        text.parse().map_err(|_| format!("--{name} cannot be `{text}`").into())
    }

    /// The comma-separated values of `--name`; `None` when the flag is absent.
    pub(crate) fn take_list(&mut self, name: &str) -> Option<Vec<String>> {
        let text = self.flags.remove(name)?;
        Some(text.split(',').filter(|s| !s.is_empty()).map(str::to_owned).collect())
    }

    /// The value of `--name`, which has no default.
    pub(crate) fn require(&mut self, name: &str) -> Result<String> {
        self.flags.remove(name).ok_or(format!("--{name} is missing").into())
    }

    pub(crate) fn finish(self) -> Result<()> {
        match self.flags.keys().next() {
            Some(name) => Err(format!("unknown flag --{name}").into()),
            None => Ok(()),
        }
    }
}
