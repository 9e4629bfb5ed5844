//! Putting many tasks into their inboxes in one pass: those of one inbox under one lock.

use super::enter::pass_guard;
use super::*;

/// The most tasks that are entered in one pass.
const BATCH: usize = 256;

/// No further index.
const END: u16 = u16::MAX;

/// How many tasks of a batch were accepted, those that were not, and why the first of them was not.
pub(crate) type Rest<K, M> = (usize, Vec<Incoming<K, M>>, SubmitErrorKind);

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
    pub(crate) fn enter_many<M: Make<X::Work>>(
        &self,
        mut tasks: impl Iterator<Item = Incoming<K, M>>,
    ) -> Result<usize, Rest<K, M>> {
        if self.bounds.is_some() {
            return self.enter_one_by_one(tasks);
        }
        let mut accepted = 0;
        let mut piece = Vec::with_capacity(tasks.size_hint().0.min(BATCH));
        loop {
            piece.extend(tasks.by_ref().take(BATCH).map(|task| Some(self.stage(task))));
            if piece.is_empty() {
                return Ok(accepted);
            }
            let (entered, why) = self.enter_piece(&mut piece);
            accepted += entered;
            if entered != piece.len() {
                self.tally.count_refused(piece.iter().flatten().count());
                let rest = piece.into_iter().flatten().map(|staged| (staged.claims, staged.task));
                return Err((accepted, rest.chain(tasks).collect(), why));
            }
            piece.clear();
        }
    }

    /// Each task of the batch goes through all bounds before the next does, as if it came alone.
    fn enter_one_by_one<M: Make<X::Work>>(
        &self,
        mut tasks: impl Iterator<Item = Incoming<K, M>>,
    ) -> Result<usize, Rest<K, M>> {
        let mut accepted = 0;
        while let Some((claims, task)) = tasks.next() {
            if let Err((why, claims, task)) = self.submit_other(claims, task, Patience::Endless) {
                let rest = std::iter::once((claims, task)).chain(tasks).collect();
                return Err((accepted, rest, why));
            }
            accepted += 1;
        }
        Ok(accepted)
    }

    #[inline(always)]
    fn stage<M>(&self, (claims, task): Incoming<K, M>) -> Staged<K, M> {
        let hash = match &claims.0 {
            Repr::One(claim) => self.hasher.hash_one(&claim.key),
            _ => 0,
        };
        Staged { claims, task, hash, next: END }
    }

    /// Admits and enters the tasks of a piece of at most `BATCH`. What the pool refuses, because it is
    /// closed or a key was finished, stays in the piece. Returns how many were accepted, and why others
    /// were not.
    fn enter_piece<M: Make<X::Work>>(
        &self,
        piece: &mut [Option<Staged<K, M>>],
    ) -> (usize, SubmitErrorKind) {
        let mut start = 0;
        let mut why = SubmitErrorKind::Closed;
        while start < piece.len() {
            let Ok(slots) = self.take_slots(piece.len() - start) else { break };
            self.enter_admitted(&mut piece[start..start + slots], &mut why);
            start += slots;
        }
        (piece.iter().filter(|staged| staged.is_none()).count(), why)
    }

    /// Enters tasks that have been admitted: those with one key in rows, and each of the others after
    /// all that is before it, for it must come after that in all of its lanes.
    fn enter_admitted<M: Make<X::Work>>(
        &self,
        mut tasks: &mut [Option<Staged<K, M>>],
        why: &mut SubmitErrorKind,
    ) {
        while !tasks.is_empty() {
            let row = tasks.iter().position(|task| !has_one_key(task)).unwrap_or(tasks.len());
            let (singles, others) = tasks.split_at_mut(row);
            self.enter_row(singles, why);
            if let [other, rest @ ..] = others {
                self.enter_staged(other, why);
                tasks = rest;
            } else {
                return;
            }
        }
    }

    /// Enters a task that is no single; it stays where it is if it is refused.
    fn enter_staged<M: Make<X::Work>>(
        &self,
        place: &mut Option<Staged<K, M>>,
        why: &mut SubmitErrorKind,
    ) {
        let Some(Staged { claims, task, hash, next }) = place.take() else { return };
        if let Err((refused, claims, task)) = self.enter(claims, task, Toll::none()) {
            *why = refused;
            *place = Some(Staged { claims, task, hash, next });
        }
    }

    /// Puts tasks with one key each into their inboxes. Those of one key keep their order. What is
    /// refused stays where it is.
    fn enter_row<M: Make<X::Work>>(
        &self,
        row: &mut [Option<Staged<K, M>>],
        why: &mut SubmitErrorKind,
    ) {
        debug_assert!(row.len() <= BATCH);
        let mut first = [END; MAX_SHARDS];
        let mut last = [END; MAX_SHARDS];
        for index in 0..row.len() {
            let Some(staged) = &row[index] else { continue };
            let shard = self.shard_of(staged.hash);
            match std::mem::replace(&mut last[shard], index as u16) {
                END => first[shard] = index as u16,
                before => {
                    if let Some(before) = &mut row[before as usize] {
                        before.next = index as u16;
                    }
                }
            }
        }
        let time = self.clock.now();
        for (shard, &first) in first[..self.shards.len()].iter().enumerate() {
            if first != END && self.enter_chain(shard, row, first, time, why) {
                self.offer(shard);
            }
        }
        let refused = row.iter().flatten().count();
        if refused != 0 {
            self.admission.give_back(refused);
        }
    }

    /// Appends the tasks that are linked from `first` on to one inbox, and says whether the workers
    /// must be told.
    #[inline]
    fn enter_chain<M: Make<X::Work>>(
        &self,
        shard: usize,
        row: &mut [Option<Staged<K, M>>],
        first: u16,
        time: u32,
        why: &mut SubmitErrorKind,
    ) -> bool {
        let mut inbox = self.shards[shard].inbox.lock();
        if inbox.guarded {
            return enter_guarded_chain(&mut inbox, row, first, time, why);
        }
        let mut tell = false;
        let mut index = first;
        while let Some(place) = row.get_mut(usize::from(index))
            && let Some(Staged { claims: Claims(Repr::One(claim)), task, hash, next }) =
                place.take()
        {
            let time = self.stamp(shard, &mut inbox, time);
            tell |= inbox.push_single(hash as u32, time, claim, || task.make());
            index = next;
        }
        tell
    }
}

/// The same where something about the inbox must be looked at for each task.
#[cold]
fn enter_guarded_chain<K: Key, W, M: Make<W>>(
    inbox: &mut Inbox<K, W>,
    row: &mut [Option<Staged<K, M>>],
    first: u16,
    time: u32,
    why: &mut SubmitErrorKind,
) -> bool {
    let mut tell = false;
    let mut index = first;
    while let Some(place) = row.get_mut(usize::from(index))
        && let Some(staged) = place.take()
    {
        index = staged.next;
        let Repr::One(claim) = &staged.claims.0 else { unreachable!("a row has single keys") };
        // A batch comes from outside, so the end of a key concerns all of it.
        if let Err(refused) = pass_guard(inbox, staged.hash, &claim.key, true) {
            *why = refused;
            *place = Some(staged);
            continue;
        }
        if let Staged { claims: Claims(Repr::One(claim)), task, hash, .. } = staged {
            tell |= inbox.push_single(hash as u32, time, claim, || task.make());
        }
    }
    tell
}

fn has_one_key<K, M>(task: &Option<Staged<K, M>>) -> bool {
    matches!(task, Some(Staged { claims: Claims(Repr::One(_)), .. }))
}
