//! Origin of the configuration: a file, the command line, or both.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, bail};

use super::config::Config;
use super::data_folder::data_folder;
use super::kind_arg::KindArg;

/// Name of the store in the current folder, if there is a configuration file without a store.
const STORE_BESIDE_CONFIG: &str = "keylane.db";

/// The configuration as the command line gives it.
#[derive(Clone, Debug)]
pub(super) struct ConfigSource {
    /// The file, if there is one.
    pub(super) file: Option<PathBuf>,
    /// Further kinds.
    pub(super) kinds: Vec<KindArg>,
    /// Address that replaces the one in the file.
    pub(super) listen: Option<SocketAddr>,
}

impl ConfigSource {
    /// Reads the file, if there is one, and adds the settings of the command line. A server without a file
    /// and without a kind gets an example kind.
    pub(super) fn read(&self) -> anyhow::Result<Config> {
        let mut config = match &self.file {
            Some(file) => Config::read(file)?,
            None => Config::default(),
        };
        for kind in &self.kinds {
            if !config.add_kind(kind) {
                bail!("the kind `{}` is configured twice: leave out one --kind", kind.name);
            }
        }
        if self.is_example() {
            config.add_kind(&KindArg::example());
        }
        if let Some(address) = self.listen {
            config.listen_at(address);
        }
        Ok(config)
    }

    /// Returns whether the only kind is the example.
    pub(super) fn is_example(&self) -> bool {
        self.file.is_none() && self.kinds.is_empty()
    }

    /// Path of the store, if neither the file nor the command line has one: beside a configuration file in
    /// the current folder, and otherwise in the user's data directory, which is created.
    pub(super) fn default_store(&self) -> anyhow::Result<PathBuf> {
        if self.file.is_some() {
            return Ok(STORE_BESIDE_CONFIG.into());
        }
        let folder = data_folder()?;
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("cannot create {}; give --store FILE", folder.display()))?;
        Ok(folder.join("keylane.db"))
    }
}
