//! Putting many tasks into their inboxes in one pass: those of one inbox under one lock.

use super::enqueue::{inbox_of, pass_watched_inbox};
use super::*;

/// The most tasks that are entered in one pass.
const BATCH: usize = 256;

/// No further index.
const END: u16 = u16::MAX;

/// How many tasks of a batch were accepted, those that were not, and why the first of them was not.
pub(crate) type RejectedBatch<K, M> = (usize, Vec<Incoming<K, M>>, SubmitErrorKind);

/// A task on its way in: its keys, and that of which its work is made.
pub(crate) type Incoming<K, M> = (Claims<K>, M);

/// A task of a batch, until it is in its inbox.
struct Staged<K, M> {
    claims: Claims<K>,
    task: M,
    /// The hash of its key, if it has just one.
    hash: u64,
    /// The next of the same inbox, or `END`.
    next: u16,
}

impl<K: Key, X: Execute<K>, S: BuildHasher> Engine<K, X, S> {
    /// Admits and enters many tasks, as many at a time as there is room for, until one is refused.
    pub(crate) fn enqueue_many<M: IntoWork<X::Work>>(
        &self,
        mut tasks: impl Iterator<Item = Incoming<K, M>>,
    ) -> Result<usize, RejectedBatch<K, M>> {
        if self.bounds.as_ref().is_some_and(|bounds| bounds.restrict()) {
            return self.enqueue_one_by_one(tasks);
        }
        let mut accepted = 0;
        let mut piece = Vec::with_capacity(tasks.size_hint().0.min(BATCH));
        loop {
            piece.extend(tasks.by_ref().take(BATCH).map(|task| Some(self.ctx(task))));
            if piece.is_empty() {
                return Ok(accepted);
            }
            let entered = self.enqueue_piece(&mut piece);
            // What is refused, and all behind it, is still there.
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

    /// Each task of the batch goes through all bounds before the next does, as if it came alone.
    fn enqueue_one_by_one<M: IntoWork<X::Work>>(
        &self,
        mut tasks: impl Iterator<Item = Incoming<K, M>>,
    ) -> Result<usize, RejectedBatch<K, M>> {
        let mut accepted = 0;
        while let Some((claims, task)) = tasks.next() {
            if let Err((why, claims, task)) = self.submit_other(claims, task, WaitLimit::Endless) {
                let rest = std::iter::once((claims, task)).chain(tasks).collect();
                return Err((accepted, rest, why));
            }
            accepted += 1;
        }
        Ok(accepted)
    }

    #[inline(always)]
    fn ctx<M>(&self, (claims, task): Incoming<K, M>) -> Staged<K, M> {
        let hash = match &claims.0 {
            Repr::One(claim) => self.hasher.hash_one(&claim.key),
            _ => 0,
        };
        Staged { claims, task, hash, next: END }
    }

    /// Admits and enters the tasks of a piece of at most `BATCH`, until one is refused. That one and those
    /// behind it stay where they are.
    fn enqueue_piece<M: IntoWork<X::Work>>(
        &self,
        piece: &mut [Option<Staged<K, M>>],
    ) -> Result<(), SubmitErrorKind> {
        let mut start = 0;
        while start < piece.len() {
            let Some(first) = &piece[start] else { unreachable!("what was entered is before it") };
            let slots = self.take_slots(piece.len() - start, &first.claims)?;
            let mut unused = UnusedSlots { admission: &self.admission, slots };
            self.enqueue_admitted(&mut piece[start..start + slots], &mut unused)?;
            start += slots;
        }
        Ok(())
    }

    /// Enters tasks that have been admitted, until one is refused: those with one key in rows, and each of
    /// the others after all that is before it, for it must come after that in all of its lanes.
    fn enqueue_admitted<M: IntoWork<X::Work>>(
        &self,
        mut tasks: &mut [Option<Staged<K, M>>],
        unused: &mut UnusedSlots<'_>,
    ) -> Result<(), SubmitErrorKind> {
        while !tasks.is_empty() {
            let row = tasks.iter().position(|task| !has_one_key(task)).unwrap_or(tasks.len());
            let (singles, others) = tasks.split_at_mut(row);
            if !singles.is_empty() {
                self.intact(|| self.enqueue_row(singles, unused))?;
            }
            let [other, rest @ ..] = others else { break };
            self.enqueue_staged(other, unused)?;
            tasks = rest;
        }
        Ok(())
    }

    /// Enters a task that is no single; it stays where it is if it is refused.
    fn enqueue_staged<M: IntoWork<X::Work>>(
        &self,
        place: &mut Option<Staged<K, M>>,
        unused: &mut UnusedSlots<'_>,
    ) -> Result<(), SubmitErrorKind> {
        let Some(Staged { claims, task, hash, next }) = place.take() else { return Ok(()) };
        // The code that enters it gives its slot back if it is refused.
        unused.slots -= 1;
        self.enqueue(claims, task, AdmissionTicket::none()).map_err(|(why, claims, task)| {
            *place = Some(Staged { claims, task, hash, next });
            why
        })
    }

    /// Puts tasks with one key each into their inboxes, in their order, until one is refused.
    ///
    /// All inboxes concerned are locked, in the order of the shards, before anything is appended, and each is
    /// unlocked when it has its tasks. So each two of the row have the same order as to whatever else is in
    /// both of their inboxes, as if they had come one by one: had a task of another submitter come between
    /// them in the wrong order, it would have had one of the inboxes while the row had all.
    fn enqueue_row<M: IntoWork<X::Work>>(
        &self,
        row: &mut [Option<Staged<K, M>>],
        unused: &mut UnusedSlots<'_>,
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
        let mut inboxes: OpenInboxes<'_, K, X::Work> = Vec::with_capacity(shards);
        let concerned = (0..self.shards.len()).filter(|&shard| first[shard] != END);
        inboxes.extend(concerned.map(|shard| (shard, self.shards[shard].inbox.lock())));
        if inboxes.iter().any(|(_, inbox)| inbox.watched) {
            return self.enqueue_guarded_row(inboxes, row, time, unused);
        }
        let mut told = ShardSet::new();
        for (shard, mut inbox) in inboxes {
            if self.enqueue_chain(shard, &mut inbox, row, first[shard], time, unused) {
                told.add(shard);
            }
        }
        // A worker is woken when nothing is locked any more.
        told.shards().for_each(|shard| self.mark_ready(shard));
        Ok(())
    }

    /// Appends the tasks that are linked from `first` on to one inbox, and returns whether the workers
    /// must be told.
    #[inline]
    fn enqueue_chain<M: IntoWork<X::Work>>(
        &self,
        shard: usize,
        inbox: &mut Inbox<K, X::Work>,
        row: &mut [Option<Staged<K, M>>],
        first: u16,
        time: u32,
        unused: &mut UnusedSlots<'_>,
    ) -> bool {
        let mut tell = false;
        let mut index = first;
        while let Some(place) = row.get_mut(usize::from(index))
            && let Some(Staged { claims: Claims(Repr::One(claim)), task, hash, next }) =
                place.take()
        {
            let time = self.record_submit_time(shard, inbox, time);
            tell |= inbox.push_single(hash as u32, time, claim, || task.into_work());
            unused.slots -= 1;
            index = next;
        }
        tell
    }

    /// Enters a row where something about an inbox must be looked at for each task: in the order of the row,
    /// so that nothing behind a task that is refused is accepted.
    #[cold]
    fn enqueue_guarded_row<M: IntoWork<X::Work>>(
        &self,
        mut inboxes: OpenInboxes<'_, K, X::Work>,
        row: &mut [Option<Staged<K, M>>],
        time: u32,
        unused: &mut UnusedSlots<'_>,
    ) -> Result<(), SubmitErrorKind> {
        let mut told = ShardSet::new();
        let mut entered = Ok(());
        for place in row {
            let Some(staged) = &*place else { continue };
            let Repr::One(claim) = &staged.claims.0 else { unreachable!("a row has single keys") };
            let shard = self.shard_of(staged.hash);
            let inbox = inbox_of(&mut inboxes, shard);
            // A batch comes from outside, so the end of a key concerns all of it.
            entered = pass_watched_inbox(inbox, staged.hash, &claim.key, true);
            if entered.is_err() {
                break;
            }
            if let Some(Staged { claims: Claims(Repr::One(claim)), task, hash, .. }) = place.take()
            {
                let time = self.record_submit_time(shard, inbox, time);
                if inbox.push_single(hash as u32, time, claim, || task.into_work()) {
                    told.add(shard);
                }
                unused.slots -= 1;
            }
        }
        drop(inboxes);
        told.shards().for_each(|shard| self.mark_ready(shard));
        entered
    }
}

/// Slots of admitted tasks that are in no inbox yet. Dropped, it gives them back.
struct UnusedSlots<'a> {
    admission: &'a Admission,
    slots: usize,
}

impl Drop for UnusedSlots<'_> {
    fn drop(&mut self) {
        if self.slots != 0 {
            self.admission.release(self.slots);
        }
    }
}

/// Shards of which the workers must be told.
struct ShardSet(u64);

const _: () = assert!(MAX_SHARDS <= u64::BITS as usize);

impl ShardSet {
    fn new() -> Self {
        ShardSet(0)
    }

    fn add(&mut self, shard: usize) {
        self.0 |= 1 << shard;
    }

    fn shards(self) -> impl Iterator<Item = usize> {
        (0..MAX_SHARDS).filter(move |shard| self.0 >> shard & 1 != 0)
    }
}

fn has_one_key<K, M>(task: &Option<Staged<K, M>>) -> bool {
    matches!(task, Some(Staged { claims: Claims(Repr::One(_)), .. }))
}
