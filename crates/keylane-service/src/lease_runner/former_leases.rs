//! Ends the leases of this server's former process, once, before the first claim.
//!
//! The processes of its attempts have ended by then: the guard of the former process ends them, and this process waits for that when it
//! opens their list (`children.rs`). A handler that is a function has ended with its process, and the receiver of an HTTP request has lost
//! its connection. Without such a list, processes outlive a killed server, and its subtasks wait until its leases are over. So they do if the
//! list is new: then the former process may have been another server's, which had the same address and still runs.
//!
//! `../engine/former_leases.rs` has the protocol, and why no lease of this process is ended.

use tokio::sync::OnceCell;

use super::lease_api::{LeaseApi, LeaseApiError};

/// Whether the leases of the former process have been ended.
#[derive(Debug)]
pub(super) struct FormerProcess(OnceCell<()>);

impl FormerProcess {
    /// Creates the state at a start. `has_ended`: whether the attempts of the former process have ended for certain; otherwise its leases
    /// stay.
    pub(super) fn new(has_ended: bool) -> Self {
        FormerProcess(if has_ended { OnceCell::new() } else { OnceCell::new_with(Some(())) })
    }

    /// Returns whether this process may claim leases.
    pub(super) fn is_over(&self) -> bool {
        self.0.initialized()
    }

    /// Ends the leases, if no other group of kinds has done that or does. Cancel safe.
    pub(super) async fn end(&self, api: LeaseApi) -> Result<(), LeaseApiError> {
        let end = || async {
            if let Some(next) = api.former(None).await? {
                api.former(Some(next)).await?;
            }
            Ok(())
        };
        self.0.get_or_try_init(end).await.copied()
    }
}
