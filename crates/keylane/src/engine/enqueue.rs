//! Enqueues admitted tasks: into one inbox, or into several in one step.

use super::*;

impl<K: Key, X: Execute<K>, S: BuildHasher> Engine<K, X, S> {
    /// Admits a task and enqueues it.
    ///
    /// A release build compiles this for each type of work, which is then made in its final place: up to
    /// 50 of 230 instructions less. A debug build compiles it once, since each closure has a type.
    #[inline(always)]
    pub(crate) fn submit<M: IntoWork<X::Work>>(
        &self,
        claims: Claims<K>,
        task: M,
        limit: WaitLimit,
    ) -> Result<(), RejectedTask<K, M>> {
        #[cfg(not(debug_assertions))]
        return self.submit_typed(claims, task, limit);
        #[cfg(debug_assertions)]
        {
            let mut task = UnmadeWork::new(task);
            let erased: &mut dyn ErasedWork<X::Work> = &mut task;
            match self.submit_typed(claims, erased, limit) {
                Ok(()) => Ok(()),
                Err((why, claims, _)) => Err((why, claims, task.take_refused())),
            }
        }
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn submit_typed<M: IntoWork<X::Work>>(
        &self,
        claims: Claims<K>,
        task: M,
        limit: WaitLimit,
    ) -> Result<(), RejectedTask<K, M>> {
        match claims.0 {
            ClaimsRepr::One(claim) if !self.is_inside() => self.submit_single(claim, task, limit),
            other => self.submit_slowly(Claims(other), task, limit),
        }
    }

    /// Submits a task by way of the gate.
    pub(super) fn submit_slowly<M: IntoWork<X::Work>>(
        &self,
        claims: Claims<K>,
        task: M,
        limit: WaitLimit,
    ) -> Result<(), RejectedTask<K, M>> {
        let mut task = UnmadeWork::new(task);
        self.submit_other(claims, &mut task, limit)
            .map_err(|(why, claims)| (why, claims, task.take_refused()))
    }

    /// Submits a task with one key. A spare permit of the inbox is enough, unless a submitter waits
    /// at the gate, whose turn it is then.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn submit_single<M: IntoWork<X::Work>>(
        &self,
        claim: KeyClaim<K>,
        task: M,
        limit: WaitLimit,
    ) -> Result<(), RejectedTask<K, M>> {
        let hash = self.hasher.hash_one(&claim.key);
        let time = self.clock.now();
        let shard = self.shard_of(hash);
        let mut inbox = self.shards[shard].inbox.lock();
        if inbox.spare_permits == 0 || inbox.watched || !self.admission.can_cache() {
            drop(inbox);
            let rest = self.submit_slowly(Claims(ClaimsRepr::One(claim)), task, limit);
            self.refill_permits(shard);
            return rest;
        }
        inbox.spare_permits -= 1;
        let time = self.record_submit_time(shard, &mut inbox, time);
        let notify = inbox.push_single(hash as u32, time, claim, || task.into_work());
        drop(inbox);
        if notify {
            self.mark_ready(shard);
        }
        Ok(())
    }

    #[cold]
    fn submit_other(
        &self,
        claims: Claims<K>,
        task: &mut dyn ErasedWork<X::Work>,
        limit: WaitLimit,
    ) -> Result<(), RejectedClaims<K>> {
        let weight = task.peek().map_or(0, |work| self.executor.weigh(work));
        match self.admit(&claims, weight, limit) {
            Ok(ticket) => self.enqueue_erased(claims, task, ticket),
            Err(why) => Err((why, claims)),
        }
    }

    /// Reserves spare permits for an inbox that has none.
    fn refill_permits(&self, shard: usize) {
        let reserved = self.admission.reserve();
        if reserved == 0 {
            return;
        }
        let mut inbox = self.shards[shard].inbox.lock();
        let keeps = inbox.spare_permits == 0 && !inbox.watched && self.admission.can_cache();
        if keeps {
            inbox.spare_permits += reserved;
        }
        drop(inbox);
        if !keeps {
            self.admission.release(reserved as usize);
        }
    }

    /// Enqueues an admitted task. If the pool is stopped, or one of the keys was finished, the task
    /// is returned, and everything acquired for it is released.
    pub(crate) fn enqueue<M: IntoWork<X::Work>>(
        &self,
        claims: Claims<K>,
        task: M,
        ticket: AdmissionTicket,
    ) -> Result<(), RejectedTask<K, M>> {
        let mut task = UnmadeWork::new(task);
        self.enqueue_erased(claims, &mut task, ticket)
            .map_err(|(why, claims)| (why, claims, task.take_refused()))
    }

    fn enqueue_erased(
        &self,
        claims: Claims<K>,
        task: &mut dyn ErasedWork<X::Work>,
        ticket: AdmissionTicket,
    ) -> Result<(), RejectedClaims<K>> {
        let entered = match ticket.is_none() {
            true => self.enqueue_other(claims.0, task),
            false => {
                let mut charged = UnmadeWork::new(ticket.charge::<_, K, X>(task));
                self.enqueue_other(claims.0, &mut charged)
            }
        };
        entered.map_err(|(why, claims)| (self.refusal(why), claims))
    }

    fn enqueue_single(
        &self,
        claim: KeyClaim<K>,
        task: &mut dyn ErasedWork<X::Work>,
    ) -> Result<(), RejectedClaims<K>> {
        let hash = self.admitted(|| self.hasher.hash_one(&claim.key));
        let time = self.clock.now();
        let shard = self.shard_of(hash);
        let entered = self.admitted(|| {
            let mut inbox = self.shards[shard].inbox.lock();
            if inbox.watched {
                match look_up_watched(&inbox, hash, &claim.key, is_bound::<K, X>(task)) {
                    Ok(found) => inbox.pass(hash as u32, found),
                    Err(why) => return Err((why, claim)),
                }
            }
            let freed = self.arrive(shard, hash, &claim.key);
            let time = self.record_submit_time(shard, &mut inbox, time);
            let notify = inbox.push_single(hash as u32, time, claim, || task.make());
            drop(inbox);
            drop(freed);
            Ok(notify)
        });
        match entered {
            Ok(notify) => {
                if notify {
                    self.mark_ready(shard);
                }
                Ok(())
            }
            Err((why, claim)) => {
                let claims = Claims(ClaimsRepr::One(claim));
                self.retract(&claims);
                Err((why, claims))
            }
        }
    }

    #[cold]
    fn enqueue_other(
        &self,
        claims: ClaimsRepr<K>,
        task: &mut dyn ErasedWork<X::Work>,
    ) -> Result<(), RejectedClaims<K>> {
        let entered = match claims {
            ClaimsRepr::One(claim) => return self.enqueue_single(claim, task),
            ClaimsRepr::Weighed(weighed) => {
                let WeighedClaims { claims, bytes } = *weighed;
                return self
                    .enqueue_other(claims, task)
                    .map_err(|(why, claims)| (why, claims.with_cost(bytes)));
            }
            ClaimsRepr::Described(descriptor, claims) => {
                self.admitted(|| self.enqueue_described(claims, descriptor, task))
            }
            ClaimsRepr::None => self.enqueue_free(task),
            ClaimsRepr::Barrier => self.enqueue_barrier(task),
            ClaimsRepr::Many(claims) => {
                let mut claims =
                    self.admitted(|| merge_claims(claims, |key| self.hasher.hash_one(key)));
                match claims.len() {
                    0 => self.enqueue_free(task),
                    1 if !claims[0].claim.mode.is_limited() => {
                        return self.enqueue_single(claims.remove(0).claim, task);
                    }
                    _ => self.admitted(|| self.enqueue_rollup(claims, task)),
                }
            }
        };
        entered.inspect_err(|(_, claims)| self.retract(claims))
    }

    fn enqueue_free(&self, task: &mut dyn ErasedWork<X::Work>) -> Result<(), RejectedClaims<K>> {
        // No key selects a shard, so such tasks take turns over all of them.
        let shard = self.counters.next_free() % self.shards.len();
        let mut inbox = self.shards[shard].inbox.lock();
        if inbox.closed {
            return Err((SubmitErrorKind::Closed, Claims::none()));
        }
        let time = self.record_submit_time(shard, &mut inbox, self.clock.now());
        let meta = TaskMeta { hash: 0, seq: inbox.tick(), time };
        let notify = inbox.push(InboxEntry::Free { meta, work: task.make() });
        drop(inbox);
        if notify {
            self.mark_ready(shard);
        }
        Ok(())
    }

    /// Enters all lanes in one step: all inboxes concerned are locked, in the order of the shards,
    /// so two rollups have the same order wherever they meet.
    fn enqueue_rollup(
        &self,
        claims: Vec<RollupPart<K>>,
        task: &mut dyn ErasedWork<X::Work>,
    ) -> Result<(), RejectedClaims<K>> {
        let (parts, mut inboxes) = self.open_inboxes(&claims);
        if let Err(why) = self.pass_watched_inboxes(&mut inboxes, &claims, task) {
            let claims = claims.into_iter().map(|part| part.claim).collect();
            return Err((why, Claims(ClaimsRepr::Many(claims))));
        }
        let (number, meta) = self.label_of_several(&mut inboxes);
        let scope = RollupScope::Keys(claims.into_boxed_slice());
        let rollup = Arc::new(Rollup::new(scope, number, meta, task.make()));
        self.push_parts(&rollup, parts, inboxes);
        // The task may have ended: then this drops its keys, and a panic would look like a refusal.
        drop_catch_unwind(rollup);
        Ok(())
    }

    /// Locks the inboxes of these keys in the order of the shards, and returns the claims of each
    /// shard.
    pub(super) fn open_inboxes(
        &self,
        claims: &[RollupPart<K>],
    ) -> (ClaimShards, LockedInboxes<'_, K, X::Work>) {
        let mut parts: ClaimShards =
            claims.iter().enumerate().map(|(i, part)| (self.shard_of(part.hash), i)).collect();
        parts.sort_unstable();
        let mut inboxes: LockedInboxes<'_, K, X::Work> = Vec::new();
        for &(shard, _) in &parts {
            if inboxes.last().is_none_or(|(last, _)| *last != shard) {
                inboxes.push((shard, self.shards[shard].inbox.lock()));
            }
        }
        (parts, inboxes)
    }

    /// Appends each part of a rollup to its inbox, unlocks all inboxes, and notifies the workers.
    pub(super) fn push_parts(
        &self,
        rollup: &SharedRollup<K, X::Work>,
        parts: ClaimShards,
        mut inboxes: LockedInboxes<'_, K, X::Work>,
    ) {
        // All inboxes are locked: a task admitted from here on comes after this one in each of
        // them.
        let freed: Vec<_> = match &rollup.scope {
            RollupScope::Keys(claims) if self.bounds.is_some() => claims
                .iter()
                .filter_map(|part| {
                    self.arrive(self.shard_of(part.hash), part.hash, &part.claim.key)
                })
                .collect(),
            _ => Vec::new(),
        };
        let mut notify = Vec::new();
        let mut parts = parts.into_iter().peekable();
        for (shard, inbox) in &mut inboxes {
            while let Some((_, claim)) = parts.next_if(|(of, _)| of == shard) {
                if inbox.push(InboxEntry::Part { rollup: rollup.clone(), claim }) {
                    notify.push(*shard);
                }
            }
        }
        drop(inboxes);
        drop(freed);
        notify.into_iter().for_each(|shard| self.mark_ready(shard));
    }

    /// Checks a task with these keys, all of whose inboxes are locked, and refuses it if one of
    /// them is closed or finished.
    #[inline]
    pub(super) fn pass_watched_inboxes(
        &self,
        inboxes: &mut [(usize, LockedInbox<'_, K, X::Work>)],
        claims: &[RollupPart<K>],
        task: &dyn ErasedWork<X::Work>,
    ) -> Result<(), SubmitErrorKind> {
        match inboxes.iter().any(|(_, inbox)| inbox.watched) {
            true => self.pass_all_watched(inboxes, claims, is_bound::<K, X>(task)),
            false => Ok(()),
        }
    }

    /// Checks the keys in watched inboxes. Passes all or none.
    #[cold]
    fn pass_all_watched(
        &self,
        inboxes: &mut [(usize, LockedInbox<'_, K, X::Work>)],
        claims: &[RollupPart<K>],
        is_bound: bool,
    ) -> Result<(), SubmitErrorKind> {
        let mut markers = Vec::new();
        for RollupPart { hash, claim, .. } in claims {
            let inbox = inbox_of(inboxes, self.shard_of(*hash));
            markers.push((*hash, look_up_watched(inbox, *hash, &claim.key, is_bound)?));
        }
        for (hash, found) in markers {
            inbox_of(inboxes, self.shard_of(hash)).pass(hash as u32, found);
        }
        Ok(())
    }

    /// Appends a barrier to every inbox.
    fn enqueue_barrier(&self, task: &mut dyn ErasedWork<X::Work>) -> Result<(), RejectedClaims<K>> {
        // Before the barrier is in any inbox: see `start_unkeyed`.
        self.sharing.barriers.fetch_add(1, Ordering::AcqRel);
        let mut inboxes: Vec<_> =
            self.shards.iter().map(|shard| shard.inbox.lock()).enumerate().collect();
        if inboxes[0].1.closed {
            self.sharing.barriers.fetch_sub(1, Ordering::AcqRel);
            return Err((SubmitErrorKind::Closed, Claims::barrier()));
        }
        let (number, meta) = self.label_of_several(&mut inboxes);
        let scope = RollupScope::Everything { shards: self.shards.len() };
        let rollup = Arc::new(Rollup::new(scope, number, meta, task.make()));
        for (_, inbox) in &mut inboxes {
            inbox.pass_barrier();
            inbox.push(InboxEntry::Fence { rollup: rollup.clone() });
        }
        drop(inboxes);
        (0..self.shards.len()).for_each(|shard| self.mark_ready(shard));
        Ok(())
    }

    /// Assigns a task that enters several inboxes a sequence number after all in any of them. The
    /// first inbox decides whether its wait is measured.
    pub(super) fn label_of_several(
        &self,
        inboxes: &mut [(usize, LockedInbox<'_, K, X::Work>)],
    ) -> (u64, TaskMeta) {
        let clock = inboxes.iter().map(|(_, inbox)| inbox.clock).max().unwrap_or(0);
        inboxes.iter_mut().for_each(|(_, inbox)| inbox.clock = clock);
        let (shard, first) = &mut inboxes[0];
        let time = self.record_submit_time(*shard, first, self.clock.now());
        inboxes.iter_mut().for_each(|(_, inbox)| inbox.clock = clock + 1);
        (clock + 1, TaskMeta { hash: 0, seq: (clock + 1) as u32, time })
    }

    /// Returns the shard of a hash, from bits that neither `TaskMeta::hash` nor the lanes' table
    /// use.
    #[inline]
    pub(super) fn shard_of(&self, hash: u64) -> usize {
        (hash >> 32) as usize & (self.shards.len() - 1)
    }

    /// Marks a shard as ready in the bitmap, and notifies a worker if it was not.
    #[inline]
    pub(crate) fn mark_ready(&self, shard: usize) {
        if self.ready_shards.set(shard) {
            match &self.affinity {
                None => self.idle.notify_work(),
                Some(affinity) => {
                    self.idle.notify_work_to(|worker| affinity.is_home(worker, shard))
                }
            }
        }
    }
}

/// Returns the inbox of a shard among several locked ones.
pub(super) fn inbox_of<'a, K, W>(
    inboxes: &'a mut [(usize, LockedInbox<'_, K, W>)],
    shard: usize,
) -> &'a mut Inbox<K, W> {
    let found = inboxes.binary_search_by_key(&shard, |(of, _)| *of);
    &mut inboxes[found.expect("the inboxes of all keys are locked")].1
}

/// Checks a task that is about to be appended to a watched inbox, and looks up the marker of its
/// key.
#[cold]
pub(super) fn look_up_watched<K: Key, W>(
    inbox: &Inbox<K, W>,
    hash: u64,
    key: &K,
    is_bound: bool,
) -> Result<Option<MarkerId>, SubmitErrorKind> {
    if inbox.closed {
        return Err(SubmitErrorKind::Closed);
    }
    if is_bound && inbox.refuses(hash as u32, key) {
        return Err(SubmitErrorKind::KeyClosed);
    }
    Ok(inbox.find_marker(hash as u32, key))
}

/// Returns whether the end of a key applies to a task. A job's subtasks were accepted with their
/// job.
pub(super) fn is_bound<K, X: Execute<K>>(task: &dyn ErasedWork<X::Work>) -> bool {
    task.peek().is_none_or(X::may_take)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use super::*;
    use crate::Pool;

    /// Returns a pool whose worker is busy until the sender is dropped, so that only submissions change
    /// the permits of its inboxes.
    fn busy_pool() -> (Pool<u32>, Sender<()>) {
        let pool = Pool::<u32>::builder().workers(1).build().unwrap();
        let (let_go, wait) = channel();
        let (begin, begun) = channel();
        let work = move || {
            begin.send(()).unwrap();
            wait.recv()
        };
        drop(pool.submit(1, work).unwrap());
        begun.recv().unwrap();
        (pool, let_go)
    }

    /// A submission with a handle is as cheap as one without: it does not go through the gate while
    /// its inbox has permits.
    #[test]
    fn a_submission_with_a_handle_takes_a_spare_permit() {
        let (pool, let_go) = busy_pool();
        let engine = pool.engine();
        let shard = engine.shard_of(engine.hasher.hash_one(2));
        let spare = || engine.shards[shard].inbox.lock().spare_permits;
        let first = pool.submit(2, || {}).unwrap();
        let before = spare();
        let second = pool.submit(2, || {}).unwrap();
        assert_eq!((before > 0, spare()), (true, before - 1));
        drop(let_go);
        assert!(first.wait().unwrap().is_completed() && second.wait().unwrap().is_completed());
    }

    /// Each submission to an inbox that watches a key goes to the gate, so permits would lie there
    /// unused.
    #[test]
    fn an_inbox_that_watches_a_key_reserves_no_spare_permits() {
        let (pool, let_go) = busy_pool();
        let engine = pool.engine();
        let shard = engine.shard_of(engine.hasher.hash_one(2));
        engine.shards[shard].inbox.lock().spare_permits = 0;
        let latest = pool.task(2).latest().submit(|| {}).unwrap();
        let next = pool.submit(2, || {}).unwrap();
        let inbox = engine.shards[shard].inbox.lock();
        assert_eq!((inbox.watched, inbox.spare_permits), (true, 0));
        drop(inbox);
        drop(let_go);
        assert!(latest.wait().unwrap().is_completed() && next.wait().unwrap().is_completed());
    }

    /// An inbox keeps a permit while a submitter waits in the queue: a later submitter must not
    /// take it, but has it passed to the waiter.
    #[test]
    fn no_submission_takes_a_spare_permit_before_a_waiter() {
        let pool = Pool::<u32>::builder().workers(1).capacity(1).build().unwrap();
        let (let_go, wait) = channel::<()>();
        let running = pool.submit(1, move || _ = wait.recv()).unwrap();
        let engine = pool.engine();
        std::thread::scope(|scope| {
            // The waiter collects nothing from the inboxes when it joins the queue: as if it were
            // just about to.
            let waits = scope.spawn(|| engine.admission.acquire(None, || 0));
            while engine.admission.waiting() == 0 {
                std::thread::yield_now();
            }
            let shard = engine.shard_of(engine.hasher.hash_one(2));
            engine.shards[shard].inbox.lock().spare_permits = 1;
            let refused =
                pool.task(2).try_execute(|| unreachable!("the task has no permit")).unwrap_err();
            assert_eq!(refused.kind(), SubmitErrorKind::Full);
            waits.join().unwrap().unwrap();
        });
        engine.admission.release(1);
        drop(let_go);
        assert!(running.wait().unwrap().is_completed());
        pool.shutdown().unwrap();
    }
}
