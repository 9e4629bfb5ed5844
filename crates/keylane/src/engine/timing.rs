//! What takes a look at the clock: how long tasks wait, and how long kept turns last.

#[cfg(all(test, loom))]
mod models;

use super::*;
use crate::observe::StartRange;
use crate::order::Scope;
use crate::run::{TurnResult, set_turn_result};

impl<K: Key, X: Execute<K>, S: BuildHasher> Engine<K, X, S> {
    /// The time in the label of the task that is about to be put into this inbox, with a mark if its
    /// wait is to be measured.
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
        // Its place is the next of the inbox's clock.
        self.begin_wait(shard, inbox, (inbox.clock + 1) as u32);
        time | TaskMeta::MEASURED
    }

    /// From now on the task with this place waits. It is in no inbox yet.
    #[cold]
    #[inline(never)]
    pub(super) fn begin_wait(&self, shard: usize, inbox: &mut Inbox<K, X::Work>, seq: u32) {
        let ahead = self.shards[shard].waits.lock().begin(seq, self.clock.nanos());
        inbox.measure_at = inbox.accepted + u64::from(ahead);
    }

    /// A task begins whose wait is measured. Returns when it was submitted, in nanoseconds, and how many
    /// tasks it stands for; or nothing, if that was forgotten.
    pub(crate) fn end_wait(
        &self,
        shard: usize,
        held: &Held<K, X::Work>,
        seq: u32,
    ) -> Option<(u64, u32)> {
        let shard = match held {
            Held::Rollup(rollup) => self.first_shard(&rollup.scope),
            Held::Free | Held::Lane(_) => shard,
        };
        self.shards[shard].waits.lock().end(seq)
    }

    /// The shard whose inbox has measured a rollup.
    pub(super) fn first_shard(&self, scope: &Scope<K>) -> usize {
        match scope {
            Scope::Everything { .. } => 0,
            Scope::Unkeyed { shard } => *shard,
            Scope::Keys(claims) => {
                let shards = claims.iter().map(|(hash, _)| self.shard_of(*hash));
                shards.min().expect("a rollup has several keys")
            }
        }
    }

    /// A turn is kept by a body that began then. Returns what it is known by.
    pub(crate) fn keep_turn(
        &self,
        shard: usize,
        held: Held<K, X::Work>,
        began: StartRange,
    ) -> usize {
        self.shards[shard].turns.lock().keep(held, began)
    }

    /// Nothing is done in such a turn for so long.
    pub(crate) fn back_off(&self, shard: usize, turn: usize, pause: Duration) {
        let pause = u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX);
        let until = self.clock.nanos().saturating_add(pause);
        self.shards[shard].turns.lock().back_off(turn, until);
    }

    /// The body of such a turn has returned. If the turn was dropped before, the caller has what it held.
    pub(crate) fn leave_body(
        &self,
        shard: usize,
        turn: usize,
        turn_result: TurnResult,
    ) -> Option<(Held<K, X::Work>, TurnResult)> {
        self.shards[shard].turns.lock().leave_body(turn, turn_result)
    }

    /// Such a turn is dropped. It ends, unless its body has not returned.
    pub(crate) fn leave_turn(&self, shard: usize, turn: usize, turn_result: TurnResult) {
        let times = (self.clock.nanos(), self.settings.statistics != Statistics::Off);
        let last = self.shards[shard].turns.lock().leave_turn(turn, turn_result, times);
        let Some((kept, turn_result)) = last else { return };
        if let Some(recording) = self.tracer.recording() {
            self.trace_kept(&recording, shard, &kept.held, kept.began.earliest);
        }
        self.check_end(shard, &kept.held);
        // It may be dropped by a task, whose own fate is another.
        let outer = set_turn_result(turn_result);
        self.end(shard, kept.held);
        set_turn_result(outer);
    }
}
