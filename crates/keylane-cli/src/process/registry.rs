//! Registries of children with a guard, so that children end whenever `keylane` does.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use keylane_process::{GuardMechanism, Registry, RegistryOptions};

/// Registry in this user's folder of registries, for a process that has no file of its own. Ends
/// the processes that an earlier process with that folder has left before it returns.
pub(crate) fn guarded() -> anyhow::Result<Registry> {
    guarded_with_grace(keylane_process::GRACE)
}

/// Registry like that of [`guarded`], whose guard waits for `grace` between SIGTERM and SIGKILL.
pub(crate) fn guarded_with_grace(grace: Duration) -> anyhow::Result<Registry> {
    let user = rustix::process::geteuid().as_raw();
    let folder = std::env::temp_dir().join(format!("keylane-{user}"));
    Ok(Registry::in_folder(&folder, &options().grace(grace))?)
}

/// Registry beside a file, so that the next start finds the processes that this one leaves. Ends
/// those of an earlier one before it returns.
pub(crate) fn guarded_beside(path: &Path) -> anyhow::Result<Registry> {
    let mut name = OsString::from(path);
    name.push("-children");
    Ok(Registry::open(Path::new(&name), &options())?)
}

fn options() -> RegistryOptions {
    RegistryOptions::default().guard(GuardMechanism::ThisProgram)
}
