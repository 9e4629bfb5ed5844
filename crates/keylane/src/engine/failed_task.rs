//! Ends tasks that fail before they begin, because a key panicked: steps 2 to 4 of
//! `../order/lanes/failed.rs`.

use super::*;
use crate::order::{FailedOwner, FailedTask};
use crate::unwind::call_catch_unwind;

impl<K: Key, X: Execute<K>, S: BuildHasher> Engine<K, X, S> {
    /// Ends a failed task of a shard, and reports the panics of keys that have cost no task. No lock
    /// may be held.
    #[cold]
    pub(super) fn end_failed(
        &self,
        shard: usize,
        failed: Option<FailedTask<K, X::Work>>,
        key_panics: Vec<KeyPanic>,
    ) {
        for payload in key_panics {
            self.panicked(&*payload);
            drop_catch_unwind(payload);
        }
        let Some(FailedTask { payload, work, owner }) = failed else { return };
        self.fail_work(work, payload);
        match owner {
            FailedOwner::Single(hash, key) => {
                if let Some(bounds) = &self.bounds {
                    drop_catch_unwind(bounds.end(KeyRef { part: shard, hash, key: &key }));
                }
                drop_catch_unwind(key);
                self.admission.release(1);
            }
            FailedOwner::Rollup(rollup) => {
                rollup.fail();
                self.leave_order(&rollup);
                drop_catch_unwind(rollup);
            }
        }
        self.shards[shard].lanes.lock().end_failing();
        // Notifications that came meanwhile reached no worker that could take the tasks.
        self.mark_ready(shard);
    }

    /// Ends the work of a task that does not run because of a panic: drops its captures, tells its
    /// handle, and reports the panic.
    pub(crate) fn fail_work(&self, work: X::Work, payload: KeyPanic) {
        self.panicked(&*payload);
        if let Some(bytes) = self.bounds.as_ref().and_then(|bounds| bounds.bytes.as_ref()) {
            drop(bytes.taken(self.executor.weigh(&work)));
        }
        call_catch_unwind(|| X::fail(work, payload));
    }
}
