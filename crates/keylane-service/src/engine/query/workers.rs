//! Query for the remote workers, with their leases.

use std::collections::HashMap;

use super::Query;
use super::text::text_of;
use crate::engine::engine_state::{EngineState, RunningAttempt};
use crate::engine::step_numbers::shown;
use crate::engine::work_claims::LeaseState;
use crate::wire::{Timestamp, WorkerLease, WorkerView};

/// Maximum number of leases that are shown of a worker.
const MAX_SHOWN: usize = 20;

impl Query {
    /// Returns the remote workers behind a number, at most `limit`, and the number behind which there
    /// are more.
    pub(crate) fn workers(&self, after: u64, limit: usize) -> (Vec<WorkerView>, Option<u64>) {
        let mut engine = self.state.lock();
        let (now, steady_ms) = (self.clock.now(), self.clock.steady_ms());
        engine.workers.forget_old(steady_ms);
        let mut leases = leases_by_worker(&engine);
        let (mut views, mut last) = (Vec::new(), after);
        for (number, worker) in engine.workers.after(after).take(limit) {
            last = number;
            let mut own = leases.remove(&number).unwrap_or_default();
            own.sort_unstable();
            let shown = own.iter().take(MAX_SHOWN);
            let running = shown.filter_map(|(_, fence)| self.lease_view(&engine, *fence)).collect();
            let ago = |seen_ms| Timestamp(now.0.saturating_sub(steady_ms.saturating_sub(seen_ms)));
            views.push(WorkerView {
                name: worker.name.name.clone(),
                token: worker.name.token.clone(),
                kinds: worker.kinds.iter().map(|kind| self.kinds.name(*kind).to_string()).collect(),
                waiting: worker.claims,
                leases: own.len() as u64,
                running,
                last_contact: worker.seen_ms.map(ago),
            });
        }
        let more = engine.workers.after(last).next().map(|_| last);
        (views, more)
    }

    fn lease_view(&self, engine: &EngineState, fence: u64) -> Option<WorkerLease> {
        let running = engine.running.get(&fence)?;
        let (lease, live) = (running.lease.as_ref()?, engine.live.get(&running.job)?);
        Some(WorkerLease {
            job: live.id.to_string(),
            kind: self.kinds.name(running.kind).to_string(),
            number: shown(running.step),
            keys: running.keys.exclusive.iter().map(text_of).collect(),
            shared_keys: running.keys.shared.iter().map(text_of).collect(),
            attempt: running.attempt,
            since: running.since,
            expires_at: lease.ends(),
        })
    }
}

/// Returns the begin and the fence of each lease that a worker has.
fn leases_by_worker(engine: &EngineState) -> HashMap<u64, Vec<(Timestamp, u64)>> {
    let mut leases: HashMap<u64, Vec<_>> = HashMap::new();
    let is_held = |lease: &&LeaseState| lease.promised_to.is_none();
    let held =
        |running: &RunningAttempt| running.lease.as_ref().filter(is_held).map(|it| it.worker);
    for (fence, running) in &engine.running {
        if let Some(worker) = held(running) {
            leases.entry(worker).or_default().push((running.since, *fence));
        }
    }
    leases
}
