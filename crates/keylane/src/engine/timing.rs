//! Measures how long tasks wait and how long kept turns last.

#[cfg(all(test, loom))]
mod models;

use super::*;
use crate::observe::StartRange;
use crate::order::RollupScope;
use crate::run::{TurnResult, set_turn_result};

impl<K: Key, X: Execute<K>, S: BuildHasher> Engine<K, X, S> {
    /// Returns [`TaskMeta::time`] for the task that is about to be appended to this inbox, marked
    /// if its wait is to be measured.
    #[inline(always)]
    pub(super) fn record_submit_time(
        &self,
        shard: usize,
        inbox: &mut Inbox<K, X::Work>,
        time: u32,
    ) -> u32 {
        if !inbox.is_due() {
            return time;
        }
        // The task gets the next sequence number of the inbox.
        self.begin_wait(shard, inbox, (inbox.clock + 1) as u32);
        time | TaskMeta::MEASURED
    }

    /// Starts measuring the wait of the task with this sequence number, which is in no inbox yet.
    #[cold]
    #[inline(never)]
    pub(super) fn begin_wait(&self, shard: usize, inbox: &mut Inbox<K, X::Work>, seq: u32) {
        let ahead = self.shards[shard].waits.lock().begin(seq, self.clock.nanos());
        inbox.measure_at = inbox.accepted + u64::from(ahead);
    }

    /// Ends the measured wait of a task that begins. Returns its time of submission, in
    /// nanoseconds, and the number of tasks that it represents; or `None`, if the measurement was
    /// dropped.
    pub(crate) fn end_wait(
        &self,
        shard: usize,
        held: &HeldLanes<K, X::Work>,
        seq: u32,
    ) -> Option<(u64, u32)> {
        let shard = match held {
            HeldLanes::Rollup(rollup) => self.first_shard(&rollup.scope),
            HeldLanes::Free | HeldLanes::Lane(_) => shard,
        };
        self.shards[shard].waits.lock().end(seq)
    }

    /// Returns the shard whose inbox has measured a rollup.
    pub(super) fn first_shard(&self, scope: &RollupScope<K>) -> usize {
        match scope {
            RollupScope::Everything { .. } => 0,
            RollupScope::Unkeyed { shard } => *shard,
            RollupScope::Keys(claims) => {
                let shards = claims.iter().map(|part| self.shard_of(part.hash));
                shards.min().expect("a rollup has several keys")
            }
        }
    }

    /// Keeps the turn of a body that began at `began`, and returns its index.
    pub(crate) fn keep_turn(
        &self,
        shard: usize,
        held: HeldLanes<K, X::Work>,
        began: StartRange,
    ) -> usize {
        self.shards[shard].turns.lock().keep(held, began)
    }

    /// Marks a kept turn as idle for `pause`.
    pub(crate) fn back_off(&self, shard: usize, turn: usize, pause: Duration) {
        let pause = u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX);
        let until = self.clock.nanos().saturating_add(pause);
        self.shards[shard].turns.lock().back_off(turn, until);
    }

    /// Records that the body of a kept turn has returned. If the turn was dropped before, returns
    /// the lanes for the caller to release.
    pub(crate) fn leave_body(
        &self,
        shard: usize,
        turn: usize,
        turn_result: TurnResult,
    ) -> Option<(HeldLanes<K, X::Work>, TurnResult)> {
        self.shards[shard].turns.lock().leave_body(turn, turn_result)
    }

    /// Drops a kept turn. The turn ends, unless its body has not returned.
    pub(crate) fn leave_turn(&self, shard: usize, turn: usize, turn_result: TurnResult) {
        let times = (self.clock.nanos(), self.settings.statistics.is_on());
        let last = self.shards[shard].turns.lock().leave_turn(turn, turn_result, times);
        let Some((kept, turn_result)) = last else { return };
        if let Some(recording) = self.tracer.recording() {
            self.trace_kept(&recording, shard, &kept.held, kept.began.earliest);
        }
        self.check_end(shard, &kept.held);
        // The turn may be dropped by another task, which has a result of its own.
        let outer = set_turn_result(turn_result);
        self.end(shard, kept.held);
        set_turn_result(outer);
    }
}
