//! Tasks with a role: the latest of a key, which replaces the one before it, and the end of a key.
//!
//! Who replaces a task takes over its slot and its key's place, so it needs no room of its own, and a
//! submission that finds none changes nothing. Whether there is a task to replace is decided in one
//! section of the inbox, into which everything of the key comes.

use super::rates::PendingWakeups;
use super::*;
use crate::order::Replacement;

/// Work that will not run, for a later task has replaced it.
pub(crate) struct Superseded<K, W> {
    pub(crate) work: W,
    /// The later task. It begins after the engine was told that the captures of `work` are gone, if
    /// [`Execute::DROPS_REPLACED`].
    pub(crate) by: SharedRollup<K, W>,
}

/// A latest task that is in, and what it has replaced; or what was not accepted.
pub(crate) type LatestResult<K, W, M> = Result<Option<Superseded<K, W>>, RejectedTask<K, M>>;

/// What came of a try to put a latest task into its inbox.
enum PutResult<K, W> {
    /// It is in the place of this work, which will not run.
    Replaced(Superseded<K, W>),
    /// It is in, with the room that its submitter had brought.
    Added,
    /// There is nothing to replace.
    NeedsRoom,
}

impl<K: Key, X: Execute<K>, S: BuildHasher> Engine<K, X, S> {
    /// Submits a task that replaces the latest of its key, if that waits. Returns the work that will not
    /// run, to be dropped by the caller, which then calls [`end_replacing`](Self::end_replacing) where
    /// [`Execute::DROPS_REPLACED`].
    pub(crate) fn submit_latest<M: IntoWork<X::Work>>(
        &self,
        key: K,
        task: M,
        limit: WaitLimit,
    ) -> LatestResult<K, X::Work, M> {
        let (claims, weight) = (Claims::exclusive(key), self.weight_of(&task));
        let mut task = Some(task);
        match self.replace_at_once(&claims, &mut task, weight) {
            Ok(None) => {}
            Ok(replaced) => return Ok(replaced),
            Err(why) => return Err((why, claims, unmade(task))),
        }
        match self.admit(&claims, weight, limit) {
            Ok(ticket) => self.enqueue_latest(claims, unmade(task), ticket),
            Err(why) => Err((why, claims, unmade(task))),
        }
    }

    /// The same, waiting for room without blocking the thread. Dropped before it is ready, it has
    /// changed nothing.
    pub(crate) async fn submit_latest_async<M: IntoWork<X::Work>>(
        &self,
        key: K,
        task: M,
    ) -> LatestResult<K, X::Work, M> {
        let (claims, weight) = (Claims::exclusive(key), self.weight_of(&task));
        let mut task = Some(task);
        match self.replace_at_once(&claims, &mut task, weight) {
            Ok(None) => {}
            Ok(replaced) => return Ok(replaced),
            Err(why) => return Err((why, claims, unmade(task))),
        }
        match self.admit_async(&claims, weight).await {
            Ok(ticket) => self.enqueue_latest(claims, unmade(task), ticket),
            Err(why) => Err((why, claims, unmade(task))),
        }
    }

    /// Submits the last task of a key's life.
    pub(crate) fn submit_end<M: IntoWork<X::Work>>(
        &self,
        key: K,
        refuses: bool,
        task: M,
        limit: WaitLimit,
    ) -> Result<(), RejectedTask<K, M>> {
        let claims = Claims::exclusive(key);
        let (hash, shard, key) = self.find_inbox(&claims);
        let inbox = self.shards[shard].inbox.lock();
        // Before it waits for room.
        if !inbox.closed && inbox.has_end(hash as u32, key) {
            drop(inbox);
            return Err((SubmitErrorKind::KeyClosed, claims, task));
        }
        drop(inbox);
        match self.admit(&claims, self.weight_of(&task), limit) {
            Ok(ticket) => self.enqueue_end(claims, refuses, task, ticket),
            Err(why) => Err((why, claims, task)),
        }
    }

    /// Puts an admitted end into its inbox, unless the key has one.
    pub(crate) fn enqueue_end<M: IntoWork<X::Work>>(
        &self,
        claims: Claims<K>,
        refuses: bool,
        task: M,
        ticket: AdmissionTicket,
    ) -> Result<(), RejectedTask<K, M>> {
        let entered = self.hash_admitted(|_| self.find_inbox(&claims));
        match self.intact(|| self.put_end(entered, refuses, task, ticket)) {
            Ok(()) => Ok(()),
            Err((why, task)) => {
                self.intact(|| self.retract(&claims));
                Err((self.refusal(why), claims, task))
            }
        }
    }

    /// One section of the inbox.
    fn put_end<M: IntoWork<X::Work>>(
        &self,
        (hash, shard, key): (u64, usize, &K),
        refuses: bool,
        task: M,
        ticket: AdmissionTicket,
    ) -> Result<(), (SubmitErrorKind, M)> {
        let mut inbox = self.shards[shard].inbox.lock();
        if inbox.closed {
            return Err((SubmitErrorKind::Closed, task));
        }
        if inbox.has_end(hash as u32, key) {
            return Err((SubmitErrorKind::KeyClosed, task));
        }
        let freed = self.arrive(shard, hash, key);
        let work = ticket.charge::<M, K, X>(task).into_work();
        let tell = inbox.push_end(hash, key, self.clock.now(), refuses, work);
        if refuses {
            self.refusing.fetch_add(1, Ordering::Relaxed);
        }
        drop(inbox);
        drop(freed);
        if tell {
            self.mark_ready(shard);
        }
        Ok(())
    }

    /// Lets tasks of a key in again that were refused, and says whether they were.
    pub(crate) fn reopen_key(&self, key: &K) -> bool {
        let hash = self.hasher.hash_one(key);
        self.intact(|| {
            let mut inbox = self.shards[self.shard_of(hash)].inbox.lock();
            let refused = inbox.reopen(hash as u32, key);
            if refused {
                self.refusing.fetch_sub(1, Ordering::Relaxed);
            }
            refused
        })
    }

    /// The keys of which everything is refused.
    pub(crate) fn finished_keys(&self) -> Vec<K> {
        let mut keys = Vec::new();
        for shard in &self.shards {
            keys.extend(shard.inbox.lock().refusing().cloned());
        }
        keys
    }

    /// A task with a role has ended.
    #[cold]
    pub(super) fn unwatch(&self, task: &Arc<Rollup<K, X::Work>>) {
        let Scope::Keys(claims) = &task.scope else { return };
        self.shards[self.shard_of(claims[0].0)].inbox.lock().unwatch(task);
    }

    fn weight_of<M: IntoWork<X::Work>>(&self, task: &M) -> usize {
        task.peek().map_or(0, |work| self.executor.weigh(work))
    }

    /// Replaces the latest task without any room, if there is one; but not if the new one weighs
    /// anything, for then it has to wait for bytes as others do.
    fn replace_at_once<M: IntoWork<X::Work>>(
        &self,
        claims: &Claims<K>,
        task: &mut Option<M>,
        weight: usize,
    ) -> Result<Option<Superseded<K, X::Work>>, SubmitErrorKind> {
        let bytes = self.bounds.as_ref().is_some_and(|bounds| bounds.bytes.is_some());
        if bytes && weight != 0 {
            return Ok(None);
        }
        let found = self.find_inbox(claims);
        let put = self.intact(|| self.put_latest(found, task, false));
        match put.map_err(|why| self.refusal(why))? {
            PutResult::Replaced(replaced) => Ok(Some(self.unweighed(replaced))),
            PutResult::Added | PutResult::NeedsRoom => Ok(None),
        }
    }

    /// Puts an admitted latest task into its inbox. If another has waited meanwhile it needs no room.
    fn enqueue_latest<M: IntoWork<X::Work>>(
        &self,
        claims: Claims<K>,
        task: M,
        ticket: AdmissionTicket,
    ) -> LatestResult<K, X::Work, M> {
        let mut charged = Some(ticket.charge::<M, K, X>(task));
        let found = self.hash_admitted(|_| self.find_inbox(&claims));
        match self.intact(|| self.put_latest(found, &mut charged, true)) {
            Ok(PutResult::Replaced(replaced)) => {
                self.retract(&claims);
                Ok(Some(self.unweighed(replaced)))
            }
            Ok(PutResult::Added | PutResult::NeedsRoom) => Ok(None),
            Err(why) => {
                self.retract(&claims);
                Err((self.refusal(why), claims, unmade(charged).task))
            }
        }
    }

    /// Gives back what work weighs that will not run.
    fn unweighed(&self, replaced: Superseded<K, X::Work>) -> Superseded<K, X::Work> {
        if let Some(bounds) = &self.bounds
            && let Some(bytes) = &bounds.bytes
        {
            drop(bytes.taken(self.executor.weigh(&replaced.work)));
        }
        replaced
    }

    /// The captures of work that this task has replaced are gone.
    pub(crate) fn end_replacing(&self, by: &SharedRollup<K, X::Work>) {
        let shard = self.first_shard(&by.scope);
        let mut lanes = self.shards[shard].lanes.lock();
        let recall = lanes.end_replacing(by);
        lanes.check();
        let offer = lanes.has_offer();
        drop(lanes);
        if offer {
            self.mark_ready(shard);
        }
        self.set_timers(shard, PendingWakeups::recall(recall));
    }

    /// One section of the inbox. What is made of is taken if the task is in.
    fn put_latest<M: IntoWork<X::Work>>(
        &self,
        (hash, shard, key): (u64, usize, &K),
        task: &mut Option<M>,
        has_room: bool,
    ) -> Result<PutResult<K, X::Work>, SubmitErrorKind> {
        let time = self.clock.now();
        let mut make = || task.take().expect("it is made once").into_work();
        let mut inbox = self.shards[shard].inbox.lock();
        // Without a slot of its own the task has not been at the gate, which may be closed.
        if inbox.closed || !has_room && self.admission.is_closed() {
            return Err(SubmitErrorKind::Closed);
        }
        if inbox.refuses(hash as u32, key) {
            return Err(SubmitErrorKind::KeyClosed);
        }
        let (put, appended, freed) =
            match inbox.replace_latest(hash, key, time, X::DROPS_REPLACED, &mut make) {
                Some(Replacement { work, task: by, appended }) => {
                    self.counters.count_superseded();
                    (PutResult::Replaced(Superseded { work, by }), appended, None)
                }
                None if !has_room => return Ok(PutResult::NeedsRoom),
                None => {
                    let freed = self.arrive(shard, hash, key);
                    (PutResult::Added, Some(inbox.push_latest(hash, key, time, make())), freed)
                }
            };
        drop(inbox);
        drop(freed);
        if appended == Some(true) {
            self.mark_ready(shard);
        }
        if let (PutResult::Replaced(_), Some(_)) = (&put, appended) {
            self.pass_tombstones(shard, hash as u32, key);
        }
        Ok(put)
    }

    /// A task has become a tombstone: who has waited for it alone waits no longer.
    fn pass_tombstones(&self, shard: usize, hash: u32, key: &K) {
        let mut lanes = self.shards[shard].lanes.lock();
        lanes.pass_tombstones(hash, key);
        let offer = lanes.has_offer();
        drop(lanes);
        if offer {
            self.mark_ready(shard);
        }
    }

    /// The one key of these claims, its hash and its shard.
    fn find_inbox<'a>(&self, claims: &'a Claims<K>) -> (u64, usize, &'a K) {
        let Repr::One(claim) = &claims.0 else { unreachable!("a task with a role has one key") };
        let hash = self.hasher.hash_one(&claim.key);
        (hash, self.shard_of(hash), &claim.key)
    }
}

/// What a task that is not in was to be made of.
fn unmade<M>(task: Option<M>) -> M {
    task.expect("a task that is not in was not made")
}
