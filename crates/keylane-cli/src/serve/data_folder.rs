//! Folder of this program in the user's data directory.

use std::env;
use std::path::PathBuf;

use anyhow::Context;

/// Folder of this program in the user's data directory.
pub(super) fn data_folder() -> anyhow::Result<PathBuf> {
    Ok(data_directory()?.join("keylane"))
}

/// Directory for the data of the user's programs, as the XDG Base Directory Specification has it.
fn data_directory() -> anyhow::Result<PathBuf> {
    let given = env::var_os("XDG_DATA_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || env::home_dir().filter(|home| home.is_absolute());
    given
        .or_else(|| home().map(|home| home.join(".local/share")))
        .context("there is no home directory for the store; give --store FILE")
}
