//! Leases of a server's former process, which the next process of that server ends before its first claim.
//!
//! # Protocol
//!
//! A server that was killed starts again, and the processes of its attempts have ended by then (`../lease_runner/former_leases.rs`). So
//! its subtasks need not wait until the leases are over. The new process asks for a fence above all earlier ones, and then
//! ends the server's leases below it.
//!
//! *No lease of the new process is ended.* It claims after the answer to the second request, so its leases have fences from that number on.
//! This also holds if a request arrives twice, or late, or at the next owner of the store, whose fences are higher.

use std::sync::Arc;

use super::engine_state::EngineState;
use super::remote_workers::{RemoteWorkers, WorkerToken};
use super::work_claims::LeaseState;
use crate::request_error::RequestError;

impl RemoteWorkers {
    /// Returns a number above the fences of all attempts so far.
    pub(crate) fn next_fence(&self) -> u64 {
        self.state.lock().scheduler.next_fence()
    }

    /// Ends the leases of a worker that have fences below this one, as if their time was over. Returns their number when that is on
    /// the disk.
    pub(crate) async fn end_former_leases(
        self: &Arc<Self>,
        worker: &str,
        token: &WorkerToken,
        below: u64,
    ) -> Result<usize, RequestError> {
        let (count, written) = {
            let mut engine = self.persistence.writable_engine()?;
            let now = self.clock.now();
            let former = former(&engine, worker, token, below);
            for fence in &former {
                self.leases.lose(&mut engine, *fence, now);
            }
            let written = (!former.is_empty()).then(|| self.persistence.await_written(&mut engine));
            self.persistence.write_next(&mut engine);
            (former.len(), written.transpose()?)
        };
        self.wake.notify();
        if let Some(written) = written {
            written.done().await?;
        }
        Ok(count)
    }
}

/// Returns the fences below this one of the leases that a worker has.
fn former(engine: &EngineState, worker: &str, token: &WorkerToken, below: u64) -> Vec<u64> {
    let is_former = |lease: &LeaseState| {
        lease.promised_to.is_none() && engine.workers.is_named(lease.worker, &token.name, worker)
    };
    let running = engine.running.iter().filter(|(fence, _)| **fence < below);
    let former = running.filter(|(_, running)| running.lease.as_ref().is_some_and(is_former));
    let mut former: Vec<u64> = former.map(|(fence, _)| *fence).collect();
    // In the order of their starts, and not of the table.
    former.sort_unstable();
    former
}
