//! Enqueues many tasks in one pass: those of one inbox under one lock.
//!
//! The tasks of a *row* have one place in the order: any other task comes before all of them or
//! behind all of them. A batch is one row, except that
//! - a row has at most 256 tasks and some thousand claims, because other submitters to its inboxes
//!   wait meanwhile;
//! - a row has at most as many tasks as the pool has free capacity for, because a task that is
//!   accepted must not wait for the end of others;
//! - a task with a descriptor enters alone, because its comparisons are user code and run while
//!   nothing is locked;
//! - with bounds per key or by bytes, tasks enter one by one, because each may wait for its own.

use super::enqueue::{inbox_of, look_up_watched};
use super::mixed_row::{MAX_ENTRIES, entries};
use super::*;
use crate::prefetch::prefetch_to_write;

/// Maximum number of tasks in a row.
const BATCH: usize = 256;

/// End of a chain of indexes.
pub(super) const END: u16 = u16::MAX;

/// Number of accepted tasks of a batch, the tasks that were not accepted, and the reason for the
/// first of them.
pub(crate) type RejectedBatch<K, M> = (usize, Vec<UnsubmittedTask<K, M>>, SubmitErrorKind);

/// Task before its submission: its claims, and the value from which its work is made.
pub(crate) type UnsubmittedTask<K, M> = (Claims<K>, M);

/// Task of a batch, until it is in its inbox.
pub(super) struct StagedTask<K, M> {
    pub(super) claims: Claims<K>,
    pub(super) task: M,
    /// Hash of its key, if it has exactly one.
    pub(super) hash: u64,
    /// Index of the next task of the same inbox, or `END`.
    pub(super) next: u16,
}

impl<K: Key, X: Execute<K>, S: BuildHasher> Engine<K, X, S> {
    /// Admits and enqueues many tasks, as many at a time as there is capacity for, until one is
    /// refused.
    pub(crate) fn enqueue_many<M: IntoWork<X::Work>>(
        &self,
        mut tasks: impl Iterator<Item = UnsubmittedTask<K, M>>,
    ) -> Result<usize, RejectedBatch<K, M>> {
        if self.bounds.as_ref().is_some_and(|bounds| bounds.restrict()) {
            return self.enqueue_one_by_one(tasks);
        }
        let mut accepted = 0;
        let mut piece = Vec::with_capacity(tasks.size_hint().0.min(BATCH));
        loop {
            piece.extend(tasks.by_ref().take(BATCH).map(|task| Some(self.stage(task))));
            if piece.is_empty() {
                return Ok(accepted);
            }
            let entered = self.enqueue_piece(&mut piece);
            // The refused task, and all behind it, are still in `piece`.
            let rest = piece.iter().flatten().count();
            accepted += piece.len() - rest;
            if let Err(why) = entered {
                self.counters.count_refused(rest);
                let rest = piece.into_iter().flatten().map(|staged| (staged.claims, staged.task));
                return Err((accepted, rest.chain(tasks).collect(), self.refusal(why)));
            }
            piece.clear();
        }
    }

    /// Submits the tasks one by one, so that each passes all bounds before the next does.
    fn enqueue_one_by_one<M: IntoWork<X::Work>>(
        &self,
        mut tasks: impl Iterator<Item = UnsubmittedTask<K, M>>,
    ) -> Result<usize, RejectedBatch<K, M>> {
        let mut accepted = 0;
        while let Some((claims, task)) = tasks.next() {
            if let Err((why, claims, task)) = self.submit_slowly(claims, task, WaitLimit::Endless) {
                let rest = std::iter::once((claims, task)).chain(tasks).collect();
                return Err((accepted, rest, why));
            }
            accepted += 1;
        }
        Ok(accepted)
    }

    #[inline(always)]
    fn stage<M>(&self, (claims, task): UnsubmittedTask<K, M>) -> StagedTask<K, M> {
        let hash = match &claims.0 {
            ClaimsRepr::One(claim) => self.hasher.hash_one(&claim.key),
            _ => 0,
        };
        StagedTask { claims, task, hash, next: END }
    }

    /// Admits and enqueues the tasks of a piece of at most `BATCH`, until one is refused. The
    /// refused task and those behind it stay in place.
    fn enqueue_piece<M: IntoWork<X::Work>>(
        &self,
        piece: &mut [Option<StagedTask<K, M>>],
    ) -> Result<(), SubmitErrorKind> {
        let mut start = 0;
        while start < piece.len() {
            let Some(first) = &piece[start] else { unreachable!("enqueued tasks are before it") };
            let count = self.acquire_permits(piece.len() - start, &first.claims)?;
            let mut unused = UnusedPermits { admission: &self.admission, count };
            self.enqueue_admitted(&mut piece[start..start + count], &mut unused)?;
            start += count;
        }
        Ok(())
    }

    /// Enqueues admitted tasks, until one is refused, in as few rows as possible.
    fn enqueue_admitted<M: IntoWork<X::Work>>(
        &self,
        mut tasks: &mut [Option<StagedTask<K, M>>],
        unused: &mut UnusedPermits<'_>,
    ) -> Result<(), SubmitErrorKind> {
        while !tasks.is_empty() {
            if tasks.iter().all(has_one_key) {
                return self.enqueue_row(tasks, unused);
            }
            match self.row_length(tasks) {
                0 => {
                    let [first, rest @ ..] = tasks else { break };
                    self.enqueue_staged(first, unused)?;
                    tasks = rest;
                }
                length => {
                    let (row, rest) = tasks.split_at_mut(length);
                    self.enqueue_mixed_row(row, unused)?;
                    tasks = rest;
                }
            }
        }
        Ok(())
    }

    /// Returns the number of tasks in the first row: 0 if the first task enters alone.
    fn row_length<M>(&self, tasks: &[Option<StagedTask<K, M>>]) -> usize {
        let mut total = 0;
        let fit = tasks.iter().flatten().take_while(|staged| {
            let is_free = total < MAX_ENTRIES;
            let Some(own) = entries(&staged.claims.0, self.shards.len()) else { return false };
            total += own;
            is_free
        });
        fit.count()
    }

    /// Enqueues a task with a descriptor; it stays in place if it is refused.
    fn enqueue_staged<M: IntoWork<X::Work>>(
        &self,
        place: &mut Option<StagedTask<K, M>>,
        unused: &mut UnusedPermits<'_>,
    ) -> Result<(), SubmitErrorKind> {
        let Some(StagedTask { claims, task, hash, next }) = place.take() else { return Ok(()) };
        // `enqueue` releases the permit if the task is refused.
        unused.count -= 1;
        self.enqueue(claims, task, AdmissionTicket::none()).map_err(|(why, claims, task)| {
            *place = Some(StagedTask { claims, task, hash, next });
            why
        })
    }

    /// Appends tasks with one key each to their inboxes, in their order, until one is refused.
    ///
    /// All inboxes concerned are locked, in the order of the shards, before anything is appended,
    /// and each is unlocked when it has its tasks. So any two tasks of the row have the same order
    /// relative to any other task in both of their inboxes, as if they had come one by one: a task
    /// of another submitter that came between them in the wrong order would have locked one of the
    /// inboxes while the row held all.
    fn enqueue_row<M: IntoWork<X::Work>>(
        &self,
        row: &mut [Option<StagedTask<K, M>>],
        unused: &mut UnusedPermits<'_>,
    ) -> Result<(), SubmitErrorKind> {
        debug_assert!(row.len() <= BATCH);
        let mut first = [END; MAX_SHARDS];
        let mut last = [END; MAX_SHARDS];
        let mut shards = 0;
        for index in 0..row.len() {
            let Some(staged) = &row[index] else { continue };
            let shard = self.shard_of(staged.hash);
            match std::mem::replace(&mut last[shard], index as u16) {
                END => {
                    first[shard] = index as u16;
                    prefetch_to_write(&self.shards[shard].inbox);
                    shards += 1;
                }
                before => {
                    if let Some(before) = &mut row[before as usize] {
                        before.next = index as u16;
                    }
                }
            }
        }
        let time = self.clock.now();
        let (ready_shards, entered) = {
            // Two rows with more than half of the shards each have one in common, so they cannot
            // enter at the same time in any case. The second waits here, while it has locked nothing.
            let is_wide = shards > 1 && shards > self.shards.len() / 2;
            let _wide = is_wide.then(|| self.wide_rows.lock());
            let mut inboxes: LockedInboxes<'_, K, X::Work> = Vec::with_capacity(shards);
            let concerned = (0..self.shards.len()).filter(|&shard| first[shard] != END);
            inboxes.extend(concerned.map(|shard| (shard, self.shards[shard].inbox.lock())));
            match inboxes.iter().any(|(_, inbox)| inbox.watched) {
                true => self.append_watched_row(inboxes, row, time, unused),
                false => (self.append_row(inboxes, row, &first, time, unused), Ok(())),
            }
        };
        // Workers are woken when nothing is locked any more.
        ready_shards.shards().for_each(|shard| self.mark_ready(shard));
        entered
    }

    /// Appends a row whose inboxes watch nothing, and returns the shards whose workers the caller
    /// must notify.
    #[inline]
    fn append_row<M: IntoWork<X::Work>>(
        &self,
        inboxes: LockedInboxes<'_, K, X::Work>,
        row: &mut [Option<StagedTask<K, M>>],
        first: &[u16; MAX_SHARDS],
        time: u32,
        unused: &mut UnusedPermits<'_>,
    ) -> ShardSet {
        let mut ready_shards = ShardSet::new();
        for (shard, mut inbox) in inboxes {
            if self.append_chain(shard, &mut inbox, row, first[shard], time, unused) {
                ready_shards.add(shard);
            }
        }
        ready_shards
    }

    /// Appends the tasks that are linked from `first` on to one inbox, and returns whether the
    /// caller must notify the workers.
    #[inline]
    fn append_chain<M: IntoWork<X::Work>>(
        &self,
        shard: usize,
        inbox: &mut Inbox<K, X::Work>,
        row: &mut [Option<StagedTask<K, M>>],
        first: u16,
        time: u32,
        unused: &mut UnusedPermits<'_>,
    ) -> bool {
        let mut notify = false;
        let mut index = first;
        while let Some(place) = row.get_mut(usize::from(index))
            && let Some(StagedTask { claims: Claims(ClaimsRepr::One(claim)), task, hash, next }) =
                place.take()
        {
            let time = self.record_submit_time(shard, inbox, time);
            notify |= inbox.push_single(hash as u32, time, claim, || task.into_work());
            unused.count -= 1;
            index = next;
        }
        notify
    }

    /// Appends a row with a watched inbox, where each task is checked: in the order of the row, so
    /// that no task behind a refused one is accepted. Returns the shards whose workers the caller
    /// must notify.
    #[cold]
    fn append_watched_row<M: IntoWork<X::Work>>(
        &self,
        mut inboxes: LockedInboxes<'_, K, X::Work>,
        row: &mut [Option<StagedTask<K, M>>],
        time: u32,
        unused: &mut UnusedPermits<'_>,
    ) -> (ShardSet, Result<(), SubmitErrorKind>) {
        let mut ready_shards = ShardSet::new();
        let mut entered = Ok(());
        // All keys are looked up before any task is appended: a panic leaves the row as it was.
        let mut passed = Vec::with_capacity(row.len());
        for staged in row.iter().flatten() {
            let ClaimsRepr::One(claim) = &staged.claims.0 else {
                unreachable!("a row has single keys")
            };
            let inbox = inbox_of(&mut inboxes, self.shard_of(staged.hash));
            // A batch comes from outside, so the end of a key applies to all of it.
            match look_up_watched(inbox, staged.hash, &claim.key, true) {
                Ok(found) => passed.push(found),
                Err(why) => {
                    entered = Err(why);
                    break;
                }
            }
        }
        for (place, found) in row.iter_mut().filter(|place| place.is_some()).zip(passed) {
            if let Some(StagedTask { claims: Claims(ClaimsRepr::One(claim)), task, hash, .. }) =
                place.take()
            {
                let shard = self.shard_of(hash);
                let inbox = inbox_of(&mut inboxes, shard);
                inbox.pass(hash as u32, found);
                let time = self.record_submit_time(shard, inbox, time);
                if inbox.push_single(hash as u32, time, claim, || task.into_work()) {
                    ready_shards.add(shard);
                }
                unused.count -= 1;
            }
        }
        (ready_shards, entered)
    }
}

/// Permits of admitted tasks that are in no inbox yet. Released on drop.
pub(super) struct UnusedPermits<'a> {
    admission: &'a Admission,
    pub(super) count: usize,
}

impl Drop for UnusedPermits<'_> {
    fn drop(&mut self) {
        if self.count != 0 {
            self.admission.release(self.count);
        }
    }
}

/// Set of shards for which the workers must be notified.
pub(super) struct ShardSet(u64);

const _: () = assert!(MAX_SHARDS <= u64::BITS as usize);

impl ShardSet {
    pub(super) fn new() -> Self {
        ShardSet(0)
    }

    pub(super) fn add(&mut self, shard: usize) {
        self.0 |= 1 << shard;
    }

    pub(super) fn shards(self) -> impl Iterator<Item = usize> {
        (0..MAX_SHARDS).filter(move |shard| self.0 >> shard & 1 != 0)
    }
}

fn has_one_key<K, M>(task: &Option<StagedTask<K, M>>) -> bool {
    matches!(task, Some(StagedTask { claims: Claims(ClaimsRepr::One(_)), .. }))
}
