//! Enqueues tasks with a descriptor into their inboxes and their conflict index in one step,
//! compares descriptors, and ends such tasks.

#[cfg(all(test, loom))]
mod models;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;
use crate::order::{ConflictEntry, ConflictScan, Descriptor, Inserted, PageScan, ScanBatch};
use crate::sync::Backoff;
use crate::unwind::drop_catch_unwind;

impl<K: Key, X: Execute<K>, S: BuildHasher> Engine<K, X, S> {
    /// Enqueues a task that has a descriptor. It is inserted into its conflict index while its
    /// inboxes are locked, so the index has the same order as the inboxes. Its conflicts are
    /// compared afterwards, when nothing is locked.
    pub(super) fn enqueue_described(
        &self,
        claims: Option<Box<ClaimsRepr<K>>>,
        descriptor: Descriptor,
        task: &mut dyn ErasedWork<X::Work>,
    ) -> Result<(), RejectedClaims<K>> {
        let claims = merge_claims(claims.map_or(Vec::new(), |claims| listed(*claims)), |key| {
            self.hasher.hash_one(key)
        });
        if claims.is_empty() {
            return self.enqueue_unkeyed(descriptor, task);
        }
        let (parts, mut inboxes) = self.open_inboxes(&claims);
        if let Err(why) = self.pass_watched_inboxes(&mut inboxes, &claims, task) {
            let claims = ClaimsRepr::Many(claims.into_iter().map(|part| part.claim).collect());
            return Err((why, Claims(claims).describe(descriptor)));
        }
        let after = inboxes.iter().map(|(_, inbox)| inbox.clock).max().unwrap_or(0);
        let scope = RollupScope::Keys(claims.into_boxed_slice());
        let (first, inbox) = &mut inboxes[0];
        let (rollup, place, scan) = self.insert(*first, inbox, after, scope, descriptor, task);
        inboxes.iter_mut().for_each(|(_, inbox)| inbox.clock = place);
        self.push_parts(&rollup, parts, inboxes);
        self.scan_conflicts(&rollup, scan);
        drop_catch_unwind(rollup);
        Ok(())
    }

    /// Enqueues a task without keys. It has an entry in some shard nevertheless, so that barriers
    /// and stops find it there.
    fn enqueue_unkeyed(
        &self,
        descriptor: Descriptor,
        task: &mut dyn ErasedWork<X::Work>,
    ) -> Result<(), RejectedClaims<K>> {
        let shard = self.counters.next_free() % self.shards.len();
        let mut inbox = self.shards[shard].inbox.lock();
        if inbox.closed {
            return Err((SubmitErrorKind::Closed, Claims::none().describe(descriptor)));
        }
        let scope = RollupScope::Unkeyed { shard };
        let after = inbox.clock;
        let (rollup, place, scan) = self.insert(shard, &mut inbox, after, scope, descriptor, task);
        inbox.clock = place;
        let notify = inbox.push(InboxEntry::Unkeyed { rollup: rollup.clone() });
        drop(inbox);
        if notify {
            self.mark_ready(shard);
        }
        self.scan_conflicts(&rollup, scan);
        Ok(())
    }

    /// Assigns a task its sequence number, after those in its inboxes, and inserts it into its
    /// conflict index. The inboxes are locked and the task is in none of them, so a release
    /// meanwhile does not make it ready. The first inbox decides whether its wait is measured.
    fn insert(
        &self,
        first: usize,
        inbox: &mut Inbox<K, X::Work>,
        after: u64,
        scope: RollupScope<K>,
        descriptor: Descriptor,
        task: &mut dyn ErasedWork<X::Work>,
    ) -> (SharedRollup<K, X::Work>, u64, Option<ConflictScan>) {
        let is_due = inbox.is_due();
        let time = self.clock.now() | if is_due { TaskMeta::MEASURED } else { 0 };
        let mut place = 0;
        let mut registry = self.registry.lock();
        let Inserted { task, waits, scan } = registry.insert(after, &descriptor.clone(), |pos| {
            place = pos.place;
            let meta = TaskMeta { hash: 0, seq: place as u32, time };
            let member = ConflictEntry { descriptor, pos };
            Arc::new(Rollup::new(scope, place, meta, task.make()).with_member(member))
        });
        // One more while it scans, so that no release makes it ready meanwhile.
        task.expect(waits + usize::from(scan.is_some()));
        drop(registry);
        if is_due {
            self.begin_wait(first, inbox, place as u32);
        }
        (task, place, scan)
    }

    /// Compares a task with all that it may conflict with, and makes it wait for those that
    /// conflict.
    fn scan_conflicts(&self, task: &SharedRollup<K, X::Work>, scan: Option<ConflictScan>) {
        let (Some(mut scan), Some(member)) = (scan, &task.member) else { return };
        loop {
            let mut registry = self.registry.lock();
            let kind = member.descriptor.kind();
            let (waits, round) = registry.next_round(kind, &mut scan, task);
            task.expect(waits);
            drop(registry);
            match round {
                ScanBatch::Over => break,
                ScanBatch::Singles(pages) => {
                    for page in pages {
                        self.scan_page(&mut scan, &member.descriptor, page);
                    }
                }
                ScanBatch::Groups(candidates) => {
                    for candidate in candidates {
                        let Some(other) = &candidate.task.member else { continue };
                        let conflict = self.conflict(&member.descriptor, &other.descriptor);
                        scan.record(&candidate, conflict);
                    }
                }
            }
        }
        self.grant(task);
    }

    /// Compares with the tasks of one page.
    fn scan_page(&self, scan: &mut ConflictScan, scanning: &Descriptor, mut page: PageScan) {
        page.prefetch();
        loop {
            scan.skip_implied(&mut page);
            let left = page.left();
            let result = catch_unwind(AssertUnwindSafe(|| page.next_conflict(scanning)));
            let conflict = result.unwrap_or_else(|payload| {
                self.predicate_panicked(payload);
                page.last_compared(left)
            });
            let Some(at) = conflict else { break };
            scan.found(&mut page, at);
        }
    }

    /// Compares two descriptors. A panic counts as a conflict, so that the order is kept.
    fn conflict(&self, one: &Descriptor, two: &Descriptor) -> bool {
        let result = catch_unwind(AssertUnwindSafe(|| one.conflicts_with(two)));
        result.unwrap_or_else(|payload| {
            self.predicate_panicked(payload);
            true
        })
    }

    fn predicate_panicked(&self, payload: Box<dyn Any + Send>) {
        self.panicked(&*payload);
        drop_catch_unwind(payload);
    }

    /// Counts one release of a task. The last one makes it ready, in a shard where it has a part.
    fn grant(&self, rollup: &SharedRollup<K, X::Work>) {
        if !rollup.grant() {
            return;
        }
        let shard = match &rollup.scope {
            RollupScope::Keys(claims) => self.shard_of(claims[0].hash),
            RollupScope::Unkeyed { shard } => *shard,
            RollupScope::Everything { .. } => unreachable!("a barrier has no descriptor"),
        };
        let mut lanes = self.shards[shard].lanes.lock();
        // A stop empties the shards first and the conflict indexes last. If this shard may have
        // been emptied, the work stays for the stop to take from the conflict index.
        if self.stopping() {
            return;
        }
        lanes.make_ready(rollup);
        drop(lanes);
        self.mark_ready(shard);
    }

    /// Ends a task without keys in its shard.
    pub(super) fn end_unkeyed(&self, shard: usize) {
        let mut lanes = self.shards[shard].lanes.lock();
        lanes.release(&HeldLanes::Free);
        let offer = lanes.has_offer();
        drop(lanes);
        if offer {
            self.mark_ready(shard);
        }
    }

    /// Removes a task with a descriptor from its conflict index.
    pub(super) fn leave_index(&self, member: &ConflictEntry) {
        let (released, ended) = self.registry.lock().remove(member);
        released.into_iter().for_each(|rollup| self.grant(&rollup));
        // The descriptor is a user value, and is dropped while nothing is locked.
        drop(ended);
    }

    /// Waits until every task that was submitted before the call has ended its scan. A scan calls
    /// the user's comparison, which may take its time, and must not wait for a task.
    pub(super) fn await_scans(&self) {
        let mut backoff = Backoff::default();
        let now = self.registry.lock().now();
        while self.registry.lock().scans_before(now) {
            backoff.pause();
        }
    }
}

/// Returns the keys of claims that have a descriptor.
fn listed<K>(claims: ClaimsRepr<K>) -> Vec<KeyClaim<K>> {
    match claims {
        ClaimsRepr::One(claim) => vec![claim],
        ClaimsRepr::Many(claims) => claims,
        ClaimsRepr::None
        | ClaimsRepr::Barrier
        | ClaimsRepr::Weighed(_)
        | ClaimsRepr::Described(..) => {
            unreachable!("a descriptor is added to nothing but keys")
        }
    }
}
