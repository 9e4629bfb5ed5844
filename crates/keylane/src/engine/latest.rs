//! Submits tasks with a role: the latest of a key, which replaces the one before it, and the end of
//! a key.
//!
//! A replacing task takes over the permit and the position of the replaced one, so it needs no
//! capacity of its own, and a submission that finds none changes nothing. One section of the inbox,
//! through which every task of the key comes, decides whether there is a task to replace.

use super::rate_state::PendingWakeups;
use super::*;
use crate::order::Replacement;
use crate::run::EndTurn;
use crate::unwind::call_catch_unwind;

/// Work that will not run, since a later task has replaced it.
pub(crate) struct SupersededWork<K, W> {
    pub(crate) work: W,
    /// Later task. With [`Execute::DROPS_REPLACED`] it begins only after a call of
    /// [`Engine::end_replacing`], when the captures of `work` are dropped.
    pub(crate) by: SharedRollup<K, W>,
    /// What remains of the replaced task, if the later one has another position. With
    /// [`Execute::DROPS_REPLACED`] it keeps its position until the same call.
    pub(crate) tombstone: Option<SharedRollup<K, W>>,
}

/// Keeps a task, and those behind the one that it replaces, from beginning until the captures of
/// the replaced work are dropped.
struct ReplacementGuard<K: Key, X: Execute<K>, S> {
    engine: Arc<Engine<K, X, S>>,
    by: SharedRollup<K, X::Work>,
    tombstone: Option<SharedRollup<K, X::Work>>,
}

impl<K: Key, X: Execute<K>, S: BuildHasher + Send + Sync + 'static> EndTurn
    for ReplacementGuard<K, X, S>
{
    fn end(self: Box<Self>, _: TurnResult) {
        self.tombstone.iter().for_each(|tombstone| self.engine.end_replacing(tombstone));
        self.engine.end_replacing(&self.by);
    }
}

/// Replaced work of an accepted latest task, if any; or the rejected task.
type LatestResult<K, W, M> = Result<Option<SupersededWork<K, W>>, RejectedTask<K, M>>;

/// Result of putting a latest task into its inbox.
enum PutResult<K, W> {
    /// The task has replaced this work, which will not run.
    Replaced(SupersededWork<K, W>),
    /// The task was appended, with its submitter's permit.
    Added,
    /// There is nothing to replace, and the submitter has no permit.
    NeedsPermit,
}

impl<K: Key, X: Execute<K>, S: BuildHasher> Engine<K, X, S> {
    /// Submits a task that replaces the latest one of its key, if that still waits. Returns the
    /// replaced work, which the caller drops, and then calls [`end_replacing`](Self::end_replacing)
    /// if [`Execute::DROPS_REPLACED`].
    pub(crate) fn submit_latest<M: IntoWork<X::Work>>(
        &self,
        claims: Claims<K>,
        task: M,
        limit: WaitLimit,
    ) -> LatestResult<K, X::Work, M> {
        let weight = self.weight_of(&task);
        let mut task = Some(task);
        match self.replace_at_once(&claims, &mut task, weight) {
            Ok(None) => {}
            Ok(replaced) => return Ok(after_drop(claims, replaced)),
            Err(why) => return Err((why, claims, unmade(task))),
        }
        match self.admit(&claims, weight, limit) {
            Ok(ticket) => self.enqueue_latest(claims, unmade(task), ticket),
            Err(why) => Err((why, claims, unmade(task))),
        }
    }

    /// Submits a task that takes over the permit of the one that it replaces. Without one to
    /// replace it is rejected as `Full`.
    pub(crate) fn replace_latest<M: IntoWork<X::Work>>(
        &self,
        claims: Claims<K>,
        task: M,
    ) -> Result<SupersededWork<K, X::Work>, RejectedTask<K, M>> {
        let weight = self.weight_of(&task);
        let mut task = Some(task);
        match self.replace_at_once(&claims, &mut task, weight) {
            Ok(Some(replaced)) => Ok(after_drop(claims, replaced)),
            Ok(None) => Err((SubmitErrorKind::Full, claims, unmade(task))),
            Err(why) => Err((why, claims, unmade(task))),
        }
    }

    /// Submits like [`submit_latest`](Self::submit_latest), and waits for capacity without blocking
    /// the thread. Dropped before it is ready, it has changed nothing.
    pub(crate) async fn submit_latest_async<M: IntoWork<X::Work>>(
        &self,
        claims: Claims<K>,
        task: M,
    ) -> LatestResult<K, X::Work, M> {
        let weight = self.weight_of(&task);
        let mut task = Some(task);
        match self.replace_at_once(&claims, &mut task, weight) {
            Ok(None) => {}
            Ok(replaced) => return Ok(after_drop(claims, replaced)),
            Err(why) => return Err((why, claims, unmade(task))),
        }
        match self.admit_async(&claims, weight).await {
            Ok(ticket) => self.enqueue_latest(claims, unmade(task), ticket),
            Err(why) => Err((why, claims, unmade(task))),
        }
    }

    /// Ends replaced work: completes its handle and drops its captures. The replacing task begins
    /// after that.
    pub(crate) fn supersede(self: &Arc<Self>, replaced: SupersededWork<K, X::Work>)
    where
        S: Send + Sync + 'static,
    {
        let SupersededWork { work, by, tombstone } = replaced;
        let turn = match X::DROPS_REPLACED {
            true => Turn::new(ReplacementGuard { engine: self.clone(), by, tombstone }),
            false => Turn::empty(),
        };
        call_catch_unwind(|| X::supersede(work, turn));
    }

    /// Submits the last task of a key's life.
    pub(crate) fn submit_end<M: IntoWork<X::Work>>(
        &self,
        claims: Claims<K>,
        refuses: bool,
        task: M,
        limit: WaitLimit,
    ) -> Result<(), RejectedTask<K, M>> {
        // Checked before the submission waits for capacity.
        if self.has_end(&claims) {
            return Err((SubmitErrorKind::KeyClosed, claims, task));
        }
        match self.admit(&claims, self.weight_of(&task), limit) {
            Ok(ticket) => self.enqueue_end(claims, refuses, task, ticket),
            Err(why) => Err((why, claims, task)),
        }
    }

    /// Returns whether the only key of these claims has an end.
    pub(crate) fn has_end(&self, claims: &Claims<K>) -> bool {
        let (hash, shard, key) = self.find_inbox(claims);
        let inbox = self.shards[shard].inbox.lock();
        !inbox.closed && inbox.has_end(hash as u32, key)
    }

    /// Enqueues an admitted end task, unless the key has one.
    pub(crate) fn enqueue_end<M: IntoWork<X::Work>>(
        &self,
        claims: Claims<K>,
        refuses: bool,
        task: M,
        ticket: AdmissionTicket,
    ) -> Result<(), RejectedTask<K, M>> {
        let entered = self.admitted(|| self.find_inbox(&claims));
        match self.admitted(|| self.put_end(entered, refuses, task, ticket)) {
            Ok(()) => Ok(()),
            Err((why, task)) => {
                self.retract(&claims);
                Err((self.refusal(why), claims, task))
            }
        }
    }

    /// Appends an end task, in one section of the inbox.
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
        let found = inbox.find_marker(hash as u32, key);
        let copies = (key.clone(), key.clone());
        let freed = self.arrive(shard, hash, key);
        let work = ticket.charge::<M, K, X>(task).into_work();
        let notify = inbox.push_end(hash, found, copies, self.clock.now(), (refuses, work));
        if refuses {
            self.refusing.fetch_add(1, Ordering::Relaxed);
        }
        drop(inbox);
        drop(freed);
        if notify {
            self.mark_ready(shard);
        }
        Ok(())
    }

    /// Reopens a finished key, and returns whether it refused tasks.
    pub(crate) fn reopen_key(&self, key: &K) -> bool {
        let hash = self.hasher.hash_one(key);
        let mut inbox = self.shards[self.shard_of(hash)].inbox.lock();
        let refused = inbox.reopen(hash as u32, key);
        if refused {
            self.refusing.fetch_sub(1, Ordering::Relaxed);
        }
        refused
    }

    /// Returns the finished keys that refuse tasks.
    pub(crate) fn finished_keys(&self) -> Vec<K> {
        let mut keys = Vec::new();
        for shard in &self.shards {
            keys.extend(shard.inbox.lock().refusing().cloned());
        }
        keys
    }

    /// Stops watching a task with a role that has ended.
    #[cold]
    pub(super) fn unwatch(&self, task: &Arc<Rollup<K, X::Work>>) {
        let RollupScope::Keys(claims) = &task.scope else { return };
        self.shards[self.shard_of(claims[0].hash)].inbox.lock().unwatch(task);
    }

    fn weight_of<M: IntoWork<X::Work>>(&self, task: &M) -> usize {
        task.peek().map_or(0, |work| self.executor.weigh(work))
    }

    fn bounds_bytes(&self) -> bool {
        self.bounds.as_ref().is_some_and(|bounds| bounds.bytes.is_some())
    }

    /// Returns whether a task with these claims needs bytes of its own.
    pub(super) fn needs_bytes(&self, claims: &Claims<K>, work: &X::Work) -> bool {
        self.bounds_bytes() && claims.cost() + self.executor.weigh(work) != 0
    }

    /// Replaces the latest task without a permit, if there is one; but not if the new task has a
    /// cost, since it must then wait for bytes like others.
    fn replace_at_once<M: IntoWork<X::Work>>(
        &self,
        claims: &Claims<K>,
        task: &mut Option<M>,
        weight: usize,
    ) -> Result<Option<SupersededWork<K, X::Work>>, SubmitErrorKind> {
        if self.bounds_bytes() && claims.cost() + weight != 0 {
            return Ok(None);
        }
        let found = self.find_inbox(claims);
        match self.put_latest(found, task, false).map_err(|why| self.refusal(why))? {
            PutResult::Replaced(replaced) => Ok(Some(self.unweighed(replaced))),
            PutResult::Added | PutResult::NeedsPermit => Ok(None),
        }
    }

    /// Enqueues an admitted latest task. If it replaces another one after all, its permit is
    /// released.
    pub(crate) fn enqueue_latest<M: IntoWork<X::Work>>(
        &self,
        claims: Claims<K>,
        task: M,
        ticket: AdmissionTicket,
    ) -> LatestResult<K, X::Work, M> {
        let mut charged = Some(ticket.charge::<M, K, X>(task));
        let found = self.admitted(|| self.find_inbox(&claims));
        match self.admitted(|| self.put_latest(found, &mut charged, true)) {
            Ok(PutResult::Replaced(replaced)) => {
                self.retract(&claims);
                Ok(Some(after_drop(claims, self.unweighed(replaced))))
            }
            Ok(PutResult::Added | PutResult::NeedsPermit) => Ok(None),
            Err(why) => {
                self.retract(&claims);
                Err((self.refusal(why), claims, unmade(charged).task))
            }
        }
    }

    /// Releases the cost of replaced work.
    fn unweighed(&self, replaced: SupersededWork<K, X::Work>) -> SupersededWork<K, X::Work> {
        if let Some(bounds) = &self.bounds
            && let Some(bytes) = &bounds.bytes
        {
            drop(bytes.taken(self.executor.weigh(&replaced.work)));
        }
        replaced
    }

    /// Ends a replacement for the new task, or for what remains of the old one: the captures of the
    /// replaced work are dropped, so the task, or those behind it, may begin.
    pub(crate) fn end_replacing(&self, by: &SharedRollup<K, X::Work>) {
        let shard = self.first_shard(&by.scope);
        let mut lanes = self.shards[shard].lanes.lock();
        let (recall, left) = lanes.end_replacing(by);
        lanes.check();
        let offer = lanes.has_offer();
        drop(lanes);
        // A key's own drop is user code.
        drop_catch_unwind(left);
        if offer {
            self.mark_ready(shard);
        }
        self.set_timers(shard, PendingWakeups::recall(recall));
    }

    /// Replaces the latest task or appends a new one, in one section of the inbox. Takes `task` if
    /// the task was enqueued.
    fn put_latest<M: IntoWork<X::Work>>(
        &self,
        (hash, shard, key): (u64, usize, &K),
        task: &mut Option<M>,
        has_permit: bool,
    ) -> Result<PutResult<K, X::Work>, SubmitErrorKind> {
        let time = self.clock.now();
        let mut make = || task.take().expect("the work is made once").into_work();
        let mut inbox = self.shards[shard].inbox.lock();
        // Without a permit the task has not passed the gate, which may be closed.
        if inbox.closed || !has_permit && self.admission.is_closed() {
            return Err(SubmitErrorKind::Closed);
        }
        if inbox.refuses(hash as u32, key) {
            return Err(SubmitErrorKind::KeyClosed);
        }
        let (put, appended, freed, tombstone) =
            match inbox.replace_latest(hash, key, time, X::DROPS_REPLACED, &mut make) {
                Some(Replacement { work, task: by, appended, tombstone }) => {
                    self.counters.count_superseded();
                    let old = tombstone.clone();
                    let put = PutResult::Replaced(SupersededWork { work, by, tombstone });
                    (put, appended, None, old)
                }
                None if !has_permit => return Ok(PutResult::NeedsPermit),
                None => {
                    // The keys are looked up and copied first: if that panics, nothing has changed.
                    let found = inbox.find_marker(hash as u32, key);
                    let copies = (key.clone(), key.clone());
                    let freed = self.arrive(shard, hash, key);
                    let notify = inbox.push_latest(hash, found, copies, time, make());
                    (PutResult::Added, Some(notify), freed, None)
                }
            };
        drop(inbox);
        drop(freed);
        if appended == Some(true) {
            self.mark_ready(shard);
        }
        if let Some(tombstone) = tombstone
            && !X::DROPS_REPLACED
        {
            self.pass_tombstone(shard, &tombstone);
        }
        Ok(put)
    }

    /// Updates the lane after a task has become a tombstone: tasks that waited for it alone wait no
    /// longer.
    fn pass_tombstone(&self, shard: usize, tombstone: &Rollup<K, X::Work>) {
        let mut lanes = self.shards[shard].lanes.lock();
        lanes.pass_tombstone(tombstone.part(0));
        let offer = lanes.has_offer();
        drop(lanes);
        if offer {
            self.mark_ready(shard);
        }
    }

    /// Returns the hash, the shard and the key of claims with one key.
    pub(super) fn find_inbox<'a>(&self, claims: &'a Claims<K>) -> (u64, usize, &'a K) {
        let ClaimsRepr::One(claim) = claims.0.bare() else {
            unreachable!("a task with a role has one key")
        };
        let hash = self.hasher.hash_one(&claim.key);
        (hash, self.shard_of(hash), &claim.key)
    }
}

/// Drops the claims of a task that has replaced another one, and returns the replaced work: a panic
/// of their drop would lose it.
fn after_drop<K, R>(claims: Claims<K>, replaced: R) -> R {
    drop_catch_unwind(claims);
    replaced
}

/// Returns the content of a task that was not enqueued.
fn unmade<M>(task: Option<M>) -> M {
    task.expect("a task that is not in was not made")
}
