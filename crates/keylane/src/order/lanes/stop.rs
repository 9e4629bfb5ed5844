//! Taking out what will not run.

use super::*;

impl<K: Eq + Clone, W> Lanes<K, W> {
    /// Removes every task that has not been given to a worker, here and in the inbox.
    ///
    /// Lanes that tasks hold stay as they are, for those tasks still give them back. So do those
    /// of a rollup that never ran: the pool is stopped, and nobody will ask for them again.
    pub(crate) fn take_unrun(&mut self, inbox: &mut Inbox<K, W>, unrun: &mut Vec<Unrun<K, W>>) {
        for Ready { work, key, label, held } in self.ready.drain(..) {
            let claims = match held {
                Held::Free => Claims::none(),
                Held::Rollup(rollup) => rollup.claims(),
                Held::Lane(slot) => {
                    let lane = &self.lanes[slot];
                    let key = key.or_else(|| lane.key.clone()).expect("a held lane has a key");
                    Claims(Repr::One(Claim { key, mode: lane.holders.mode() }))
                }
            };
            unrun.push(Unrun { claims, work, seq: label.seq });
        }
        for lane in &mut self.lanes {
            for waiting in lane.waiting.drain(..) {
                match waiting {
                    Waiting::Task { label, mode, key, work } => {
                        unrun.push(Unrun::single(label, Claim { key, mode }, work))
                    }
                    Waiting::Part { rollup, .. } => take_rollup(&rollup, unrun),
                    Waiting::Phantom => {}
                }
            }
        }
        // No line has a phantom any more.
        self.held.clear();
        #[cfg(debug_assertions)]
        {
            self.is_emptied = true;
        }
        if let Some(fence) = self.fence.take() {
            take_rollup(&fence.rollup, unrun);
        }
        inbox.forget_watched();
        self.backlog.take_from(&mut inbox.queue);
        while let Some(entry) = self.backlog.pop() {
            match entry {
                Entry::Single { label, mode, key, work } => {
                    unrun.push(Unrun::single(label, Claim { key, mode }, work))
                }
                Entry::Free { label, work } => {
                    unrun.push(Unrun { claims: Claims::none(), work, seq: label.seq })
                }
                Entry::Part { rollup, .. }
                | Entry::Unkeyed { rollup }
                | Entry::Fence { rollup } => take_rollup(&rollup, unrun),
            }
        }
    }
}

/// A rollup stands in several places, and is found first in one of them.
pub(crate) fn take_rollup<K: Eq + Clone, W>(rollup: &Rollup<K, W>, unrun: &mut Vec<Unrun<K, W>>) {
    if let Some(work) = rollup.take_work() {
        unrun.push(Unrun { claims: rollup.claims(), work, seq: rollup.label.seq });
    }
}
