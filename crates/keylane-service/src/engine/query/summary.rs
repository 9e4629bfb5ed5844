//! Queries for the whole service: keys, slots, running subtasks, and a summary in numbers.

use std::collections::HashMap;
use std::sync::PoisonError;

use super::Query;
use super::outcome_view::subtask_state;
use super::text::{rule_text, text_of};
use crate::JobNumber;
use crate::engine::clock::millis;
use crate::engine::engine_state::{EngineState, RunningAttempt, visit_jobs};
use crate::engine::query::CachedSummary;
use crate::engine::step_numbers::shown;
use crate::engine::store_status::StoreHealth;
use crate::kind::KeepJobs;
use crate::kind_registry::KindEntry;
use crate::request_error::RequestError;
use crate::scheduler::{self, KeySort, UnfinishedState};
use crate::wire::{
    Decision, JobState, KeyChain, KeyHead, KeyState, KeyView, KindView, RunningSubtask,
    SchedulerView, Slice, Summary, Timeline, Timestamp,
};

/// Maximum number of paused keys that are checked for keys without subtasks.
const MAX_PAUSED_SCANNED: usize = 10_000;

impl Query {
    /// Returns the keys with unfinished subtasks, and the paused keys. In the order by head age, a
    /// paused key without subtasks counts from the begin of its pause, so that a forgotten pause
    /// comes first.
    pub(crate) fn keys(&self, sort: KeySort, limit: usize) -> Vec<KeyView> {
        let now = self.clock.now();
        let engine = self.state.lock();
        let keys = engine.scheduler.keys(sort, limit);
        let mut views: Vec<_> = keys.into_iter().map(|key| key_view(&engine, key, now)).collect();
        let paused = engine.paused_keys.keys().take(MAX_PAUSED_SCANNED);
        let idle = paused.filter_map(|key| engine.scheduler.key(&key.0));
        let idle = idle.filter(|key| key.head.is_none());
        views.extend(idle.map(|key| key_view(&engine, key, now)));
        drop(engine);
        if sort == KeySort::HeadAge {
            views.sort_by_key(|key| key.head.as_ref().map(|head| head.since).or(key.paused_since));
        }
        views.truncate(limit);
        views
    }

    /// Returns a key. `None` if it has no unfinished subtask and is not paused.
    pub(crate) fn key(&self, key: &[u8]) -> Option<KeyView> {
        let engine = self.state.lock();
        let found = engine.scheduler.key(key)?;
        Some(key_view(&engine, found, self.clock.now()))
    }

    /// Returns the shares of the slots.
    pub(crate) fn scheduler_view(&self) -> SchedulerView {
        let engine = self.state.lock();
        let slots = engine.scheduler.slots();
        let name = |job: JobNumber| {
            engine.live.get(&job).map_or_else(String::new, |live| live.id.to_string())
        };
        let mut running: Vec<_> =
            engine.running.values().map(|running| running_view(&engine, running)).collect();
        running.sort_unstable_by_key(|running| running.slot);
        let decisions = engine.scheduler.decisions(200);
        let decisions = decisions.map(|decision| Decision {
            at: Timestamp(decision.at),
            job: name(decision.start.job),
            rule: rule_text(decision.rule()).into(),
        });
        SchedulerView {
            slots: slots.total as u64,
            busy: slots.busy as u64,
            jobs: slots.unfinished_jobs as u64,
            active: slots.active_jobs as u64,
            draining: slots.draining,
            decisions: decisions.collect(),
            running,
        }
    }

    /// Returns the runs since position `place`, and the running ones.
    pub(crate) fn timeline_after(&self, place: u64) -> Timeline {
        const MAX_RUNNING: usize = 1000;
        let mut timeline = self.timeline.after(place);
        let engine = self.state.lock();
        let running = engine.running.values().take(MAX_RUNNING).map(|running| {
            let view = running_view(&engine, running);
            Slice {
                slot: view.slot,
                job: view.job,
                number: view.number,
                keys: view.keys,
                shared_keys: view.shared_keys,
                attempt: view.attempt,
                begin: view.since,
                end: None,
                outcome: None,
                rule: rule_text(running.rule).into(),
            }
        });
        timeline.slices.extend(running);
        timeline
    }

    /// Returns the summary, at most a moment old: counting reads every unfinished job under the
    /// lock, so it is repeated only after twenty times its own duration.
    pub(crate) fn summary(&self) -> Summary {
        let mut kept = self.summary.lock().unwrap_or_else(PoisonError::into_inner);
        let counted = self.clock.steady();
        let is_recent =
            |kept: &&CachedSummary| counted.saturating_sub(kept.counted) < kept.took * 20;
        if let Some(kept) = kept.as_ref().filter(is_recent) {
            return kept.summary.clone();
        }
        let summary = self.count_all();
        let took = self.clock.steady().saturating_sub(counted);
        *kept = Some(CachedSummary { summary: summary.clone(), counted, took });
        summary
    }

    /// Counts everything. Jobs that begin or end during the count may be missing, or be counted
    /// although they are over.
    fn count_all(&self) -> Summary {
        let now = self.clock.now();
        // Before any lock, because a disk can be slow.
        let store_bytes = self.store.bytes();
        let mut states: HashMap<JobState, u64> = HashMap::new();
        let mut all = scheduler::SubtaskCounts::default();
        let mut engine = self.state.lock();
        visit_jobs(&mut engine, |engine, number, live| {
            let counts = engine.scheduler.counts(number).unwrap_or_default();
            *states.entry(live.state()).or_default() += 1;
            all.waiting += counts.waiting + counts.scheduled + counts.stopped + counts.entering;
            all.ready += counts.ready;
            all.backing_off += counts.backing_off;
        });
        let slots = engine.scheduler.slots();
        let jobs = states.into_iter().map(|(state, count)| (state.as_str().into(), count));
        let oldest = engine.scheduler.keys(KeySort::HeadAge, 1).pop().and_then(|key| key.head);
        let longest = engine.scheduler.longest_key();
        let totals = engine.totals;
        let store = match &*self.status.health() {
            StoreHealth::Well => "ok",
            StoreHealth::Full => "full",
            StoreHealth::Unavailable => "unavailable",
            StoreHealth::Failed(_) => "failed",
        };
        Summary {
            at: now,
            slots: slots.total as u64,
            busy: slots.busy as u64,
            jobs: jobs.collect(),
            waiting: all.waiting,
            ready: all.ready,
            backing_off: all.backing_off,
            succeeded_total: totals.succeeded,
            failed_total: totals.failed,
            cancelled_total: totals.cancelled,
            superseded_total: totals.superseded,
            retried_total: totals.retried,
            keys: slots.keys as u64,
            longest_key: longest.map(|chain| chain_view(&chain)),
            oldest_head_ms: oldest.map_or(0, |head| now.0.saturating_sub(head.since)),
            store_bytes,
            store: store.into(),
            websockets: self.websockets.load(std::sync::atomic::Ordering::Relaxed),
            started_at: self.clock.started(),
            draining: slots.draining,
        }
    }

    /// Returns the configured kinds.
    pub(crate) fn kind_views(&self) -> Vec<KindView> {
        let mut running: HashMap<u32, u64> = HashMap::new();
        for attempt in self.state.lock().running.values() {
            *running.entry(attempt.kind).or_default() += 1;
        }
        let there_are = self.kinds.all().into_iter().filter(|entry| entry.is_there);
        let of = |entry: &KindEntry| running.get(&entry.number).copied().unwrap_or(0);
        there_are.map(|entry| kind_view(&entry, of(&entry))).collect()
    }

    /// Returns a configured kind.
    pub(crate) fn kind_view(&self, name: &str) -> Result<KindView, RequestError> {
        let found = self.kind_views().into_iter().find(|kind| kind.name == name);
        found.ok_or_else(|| RequestError::Unknown { what: format!("kind `{name}`") })
    }
}

fn kind_view(entry: &KindEntry, running: u64) -> KindView {
    let KindEntry { kind, changed, .. } = entry;
    let pause = changed.paused.as_ref();
    KindView {
        name: entry.name.to_string(),
        handler: kind.sort().into(),
        concurrency: kind.concurrency.map(|most| most as u64),
        max_per_key: kind.max_per_key.filter(|max| *max > 1),
        per_second: kind.rate.map(|rate| rate.per_second),
        per_second_per_key: kind.rate_per_key.map(|rate| rate.per_second),
        attempts: kind.attempts,
        timeout_ms: kind.timeout.map(millis),
        retention_ms: match kind.keep {
            KeepJobs::For(time) => Some(millis(time)),
            KeepJobs::AsService | KeepJobs::Forever => None,
        },
        keeps_forever: kind.keep == KeepJobs::Forever,
        split: kind.split.is_some(),
        fan_in: kind.fan_in.is_some(),
        running,
        paused: pause.is_some(),
        paused_since: pause.map(|pause| pause.since),
        pause_reason: pause.and_then(|pause| pause.reason.clone()),
        changed: changed.changed(),
    }
}

/// Returns a chain of subtasks for an answer.
pub(super) fn chain_view(chain: &scheduler::KeyChain) -> KeyChain {
    KeyChain { key: text_of(&chain.key), subtasks: chain.subtasks }
}

fn running_view(engine: &EngineState, running: &RunningAttempt) -> RunningSubtask {
    let worker = running.lease.as_ref().and_then(|lease| engine.workers.name(lease.worker));
    RunningSubtask {
        slot: running.slot,
        job: engine.live.get(&running.job).map_or_else(String::new, |live| live.id.to_string()),
        number: shown(running.step),
        keys: running.keys.exclusive.iter().map(text_of).collect(),
        shared_keys: running.keys.shared.iter().map(text_of).collect(),
        attempt: running.attempt,
        since: running.since,
        progress: running.signals.fraction(),
        worker: worker.map(str::to_owned),
    }
}

fn key_view(engine: &EngineState, key: scheduler::KeyView, now: Timestamp) -> KeyView {
    let is_stopped = key.head.is_some_and(|head| head.state == UnfinishedState::Stopped);
    let head = key.head.map(|head| KeyHead {
        job: engine.live.get(&head.of.job).map_or_else(String::new, |live| live.id.to_string()),
        number: shown(head.of.step),
        state: subtask_state(&head.state),
        since: Timestamp(head.since),
        age_ms: now.0.saturating_sub(head.since),
        attempts: head.attempts,
        shared: head.is_shared,
    });
    KeyView {
        key: text_of(&key.key),
        state: match (key.paused, is_stopped) {
            (true, _) => KeyState::Paused,
            (false, true) => KeyState::Stopped,
            (false, false) => KeyState::Open,
        },
        length: key.length.into(),
        head,
        paused_since: engine.paused_keys.get(&key.key).copied(),
    }
}
