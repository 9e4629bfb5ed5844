//! Registry of the processes that a runner's handlers start.

use std::path::PathBuf;

use keylane_process::{GuardMechanism, Registry, RegistryOptions};
use tokio::sync::OnceCell;

/// Registry that is opened before the first process.
#[derive(Debug)]
pub(super) struct ChildProcesses {
    path: Option<PathBuf>,
    guard: GuardMechanism,
    opened: OnceCell<Registry>,
}

impl ChildProcesses {
    /// Creates a registry in this file; without one, the processes outlive a killed process.
    pub(super) fn new(path: Option<PathBuf>, guard: GuardMechanism) -> Self {
        ChildProcesses { path, guard, opened: OnceCell::new() }
    }

    /// Returns the registry. Waits until what an earlier process has left in it has ended.
    ///
    /// # Errors
    /// If it cannot be opened, with the reason.
    pub(super) async fn registry(&self) -> Result<Registry, String> {
        let open = || async {
            let Some(path) = self.path.clone() else { return Ok(Registry::default()) };
            let report = |text: &str| tracing::warn!("{text}");
            let options = RegistryOptions::default().guard(self.guard).tell(report);
            let opened = tokio::task::spawn_blocking(move || Registry::open(&path, &options)).await;
            opened.map_err(|panic| panic.to_string())?.map_err(|error| error.to_string())
        };
        self.opened.get_or_try_init(open).await.cloned()
    }
}
