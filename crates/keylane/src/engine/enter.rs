//! Putting admitted tasks into their inboxes: one, several in one step, or many in one pass.

use super::*;

impl<K: Key, X: Execute<K>, S: BuildHasher> Engine<K, X, S> {
    /// Admits a task and puts it into its inbox, or inboxes.
    #[inline(always)]
    pub(crate) fn submit<M: Make<X::Work>>(
        &self,
        claims: Claims<K>,
        task: M,
        patience: Patience,
    ) -> Result<(), Unaccepted<K, M>> {
        match claims.0 {
            Repr::One(claim) if !self.is_inside() => self.submit_single(claim, task, patience),
            other => self.submit_other(Claims(other), task, patience),
        }
    }

    /// A slot that the inbox keeps will do, unless somebody waits for one: then it is their turn.
    #[inline(always)]
    fn submit_single<M: Make<X::Work>>(
        &self,
        claim: Claim<K>,
        task: M,
        patience: Patience,
    ) -> Result<(), Unaccepted<K, M>> {
        let hash = self.hasher.hash_one(&claim.key);
        let time = self.clock.now();
        let shard = self.shard_of(hash);
        let mut inbox = self.shards[shard].inbox.lock();
        if inbox.room == 0 || inbox.closed || !self.admission.may_keep() {
            drop(inbox);
            let rest = self.submit_other(Claims(Repr::One(claim)), task, patience);
            self.restock(shard);
            return rest;
        }
        inbox.room -= 1;
        let tell = inbox.push_single(hash as u32, time, claim, || task.make());
        drop(inbox);
        if tell {
            self.offer(shard);
        }
        Ok(())
    }

    #[cold]
    fn submit_other<M: Make<X::Work>>(
        &self,
        claims: Claims<K>,
        task: M,
        patience: Patience,
    ) -> Result<(), Unaccepted<K, M>> {
        if let Err(refused) = self.admit(patience) {
            return Err((patience.explain(refused), claims, task));
        }
        self.enter(claims, task).map_err(|(claims, task)| (SubmitErrorKind::Closed, claims, task))
    }

    /// Has an inbox that keeps no slots keep some for what comes next.
    fn restock(&self, shard: usize) {
        let reserved = self.admission.reserve();
        if reserved == 0 {
            return;
        }
        let mut inbox = self.shards[shard].inbox.lock();
        let keeps = inbox.room == 0 && !inbox.closed && self.admission.may_keep();
        if keeps {
            inbox.room += reserved;
        }
        drop(inbox);
        if !keeps {
            self.admission.give_back(reserved as usize);
        }
    }

    /// Puts a task that has been admitted into its inbox, or inboxes. If the pool is stopped it
    /// comes back, and its slot is free again.
    #[inline(always)]
    pub(crate) fn enter<M: Make<X::Work>>(
        &self,
        claims: Claims<K>,
        task: M,
    ) -> Result<(), (Claims<K>, M)> {
        match claims.0 {
            Repr::One(claim) => self.enter_single(claim, task),
            other => self.enter_other(other, task),
        }
    }

    #[inline(always)]
    pub(super) fn enter_single<M: Make<X::Work>>(
        &self,
        claim: Claim<K>,
        task: M,
    ) -> Result<(), (Claims<K>, M)> {
        let hash = self.hasher.hash_one(&claim.key);
        let time = self.clock.now();
        let shard = self.shard_of(hash);
        let mut inbox = self.shards[shard].inbox.lock();
        if inbox.closed {
            drop(inbox);
            self.admission.give_back(1);
            return Err((Claims(Repr::One(claim)), task));
        }
        let tell = inbox.push_single(hash as u32, time, claim, || task.make());
        drop(inbox);
        if tell {
            self.offer(shard);
        }
        Ok(())
    }

    #[cold]
    pub(super) fn enter_other<M: Make<X::Work>>(
        &self,
        claims: Repr<K>,
        task: M,
    ) -> Result<(), (Claims<K>, M)> {
        let entered = match claims {
            Repr::One(claim) => return self.enter_single(claim, task),
            Repr::None => self.enter_free(task).map_err(|task| (Claims::none(), task)),
            Repr::Barrier => self.enter_barrier(task).map_err(|task| (Claims::barrier(), task)),
            Repr::Many(claims) => {
                let mut claims = merge_claims(claims, |key| self.hasher.hash_one(key));
                match claims.len() {
                    0 => self.enter_free(task).map_err(|task| (Claims::none(), task)),
                    1 => return self.enter_single(claims.remove(0).1, task),
                    _ => self.enter_rollup(claims, task),
                }
            }
        };
        entered.inspect_err(|_| self.admission.give_back(1))
    }

    pub(super) fn enter_free<M: Make<X::Work>>(&self, task: M) -> Result<(), M> {
        let shard = self.tally.next_free() % self.shards.len();
        let mut inbox = self.shards[shard].inbox.lock();
        if inbox.closed {
            return Err(task);
        }
        let label = Label { hash: 0, seq: inbox.tick(), time: self.clock.now() };
        let tell = inbox.push(Entry::Free { label, work: task.make() });
        drop(inbox);
        if tell {
            self.offer(shard);
        }
        Ok(())
    }

    /// Enters all lanes in one step: all inboxes concerned are locked, in the order of the shards,
    /// so any two rollups stand in the same order wherever they meet.
    pub(super) fn enter_rollup<M: Make<X::Work>>(
        &self,
        claims: Vec<(u64, Claim<K>)>,
        task: M,
    ) -> Result<(), (Claims<K>, M)> {
        let mut parts: Vec<(usize, usize)> =
            claims.iter().enumerate().map(|(i, (hash, _))| (self.shard_of(*hash), i)).collect();
        parts.sort_unstable();
        let mut inboxes: Vec<(usize, OpenInbox<'_, K, X::Work>)> = Vec::new();
        for &(shard, _) in &parts {
            if inboxes.last().is_none_or(|(last, _)| *last != shard) {
                inboxes.push((shard, self.shards[shard].inbox.lock()));
            }
        }
        if inboxes[0].1.closed {
            let claims = claims.into_iter().map(|(_, claim)| claim).collect();
            return Err((Claims(Repr::Many(claims)), task));
        }
        let label = Label { hash: 0, seq: meet(&mut inboxes), time: self.clock.now() };
        let scope = Scope::Keys(claims.into_boxed_slice());
        let rollup = Arc::new(Rollup::new(scope, label, task.make()));
        let mut tell = Vec::new();
        let mut parts = parts.into_iter().peekable();
        for (shard, inbox) in &mut inboxes {
            while let Some((_, claim)) = parts.next_if(|(of, _)| of == shard) {
                if inbox.push(Entry::Part { rollup: rollup.clone(), claim }) {
                    tell.push(*shard);
                }
            }
        }
        drop(inboxes);
        tell.into_iter().for_each(|shard| self.offer(shard));
        Ok(())
    }

    /// A barrier stands in every inbox.
    pub(super) fn enter_barrier<M: Make<X::Work>>(&self, task: M) -> Result<(), M> {
        // Before it is anywhere: see `begin_free`.
        self.sharing.barriers.fetch_add(1, Ordering::AcqRel);
        let mut inboxes: Vec<_> =
            self.shards.iter().map(|shard| shard.inbox.lock()).enumerate().collect();
        if inboxes[0].1.closed {
            self.sharing.barriers.fetch_sub(1, Ordering::AcqRel);
            return Err(task);
        }
        let label = Label { hash: 0, seq: meet(&mut inboxes), time: self.clock.now() };
        let scope = Scope::Everything { shards: self.shards.len() };
        let rollup = Arc::new(Rollup::new(scope, label, task.make()));
        for (_, inbox) in &mut inboxes {
            inbox.push(Entry::Fence { rollup: rollup.clone() });
        }
        drop(inboxes);
        (0..self.shards.len()).for_each(|shard| self.offer(shard));
        Ok(())
    }

    /// Admits and enters many tasks, as many at a time as there is room for. If the pool is closed,
    /// returns how many were accepted, and the tasks that were not.
    pub(crate) fn enter_many<M: Make<X::Work>>(
        &self,
        mut tasks: impl Iterator<Item = Incoming<K, M>>,
    ) -> Result<usize, Rest<K, M>> {
        let mut accepted = 0;
        let mut piece = Vec::new();
        loop {
            piece.extend(tasks.by_ref().take(BATCH));
            if piece.is_empty() {
                return Ok(accepted);
            }
            let entered = self.enter_piece(&mut piece);
            accepted += entered;
            if !piece.is_empty() {
                piece.extend(tasks);
                return Err((accepted, piece));
            }
        }
    }

    /// Enters the tasks of a piece of at most `BATCH`. What the pool refuses, because it is closed,
    /// stays in `piece`. Returns how many were accepted.
    pub(super) fn enter_piece<M: Make<X::Work>>(&self, piece: &mut Vec<Incoming<K, M>>) -> usize {
        let all = piece.len();
        let mut waiting = std::mem::take(piece).into_iter();
        let mut batch = Vec::with_capacity(all);
        while waiting.len() != 0 {
            let Ok(mut slots) = self.admit_up_to(waiting.len()) else {
                piece.extend(waiting);
                break;
            };
            while slots != 0
                && let Some((claims, task)) = waiting.next()
            {
                slots -= 1;
                match claims.0 {
                    Repr::One(claim) => batch.push(Some((claim, task))),
                    // It must come after what is before it, in all of its lanes.
                    other => {
                        self.enter_batch(&mut batch);
                        piece.extend(unclaimed(&mut batch));
                        piece.extend(self.enter_other(other, task).err());
                    }
                }
            }
            self.enter_batch(&mut batch);
            piece.extend(unclaimed(&mut batch));
        }
        all - piece.len()
    }

    /// Puts many admitted tasks with one key each into their inboxes, those of one inbox under one
    /// lock. The tasks of one key keep their order. What a stopped pool refuses stays in `batch`.
    pub(super) fn enter_batch<M: Make<X::Work>>(&self, batch: &mut [Option<(Claim<K>, M)>]) {
        debug_assert!(batch.len() <= BATCH);
        let mut first = [END; MAX_SHARDS];
        let mut last = [END; MAX_SHARDS];
        let mut next = [END; BATCH];
        let mut hashes = [0; BATCH];
        for (index, slot) in batch.iter().enumerate() {
            let Some((claim, _)) = slot else { continue };
            let hash = self.hasher.hash_one(&claim.key);
            let shard = self.shard_of(hash);
            hashes[index] = hash as u32;
            match last[shard] {
                END => first[shard] = index as u16,
                before => next[before as usize] = index as u16,
            }
            last[shard] = index as u16;
        }
        let time = self.clock.now();
        for (shard, &first) in first[..self.shards.len()].iter().enumerate() {
            if first != END && self.enter_chain(shard, batch, first, &next, &hashes, time) {
                self.offer(shard);
            }
        }
        let refused = batch.iter().flatten().count();
        if refused != 0 {
            self.admission.give_back(refused);
        }
    }

    /// Appends the tasks of a batch that `next` links from `first` on to one inbox.
    #[inline]
    pub(super) fn enter_chain<M: Make<X::Work>>(
        &self,
        shard: usize,
        batch: &mut [Option<(Claim<K>, M)>],
        first: u16,
        next: &[u16; BATCH],
        hashes: &[u32; BATCH],
        time: u32,
    ) -> bool {
        let mut inbox = self.shards[shard].inbox.lock();
        if inbox.closed {
            return false;
        }
        let mut tell = false;
        let mut index = first;
        while index != END {
            let (claim, task) = batch[index as usize].take().expect("each index is linked once");
            tell |= inbox.push_single(hashes[index as usize], time, claim, || task.make());
            index = next[index as usize];
        }
        tell
    }

    /// Uses bits of the hash that neither `Label::hash` nor the lanes' table look at.
    #[inline]
    pub(super) fn shard_of(&self, hash: u64) -> usize {
        (hash >> 32) as usize & (self.shards.len() - 1)
    }

    /// Tells the workers that a shard has something for them.
    #[inline]
    pub(crate) fn offer(&self, shard: usize) {
        if self.board.set(shard) {
            self.idle.offered();
        }
    }
}

/// What `enter_batch` has left in the batch.
fn unclaimed<K, W>(batch: &mut Vec<Option<(Claim<K>, W)>>) -> impl Iterator<Item = Incoming<K, W>> {
    batch.drain(..).flatten().map(|(claim, work)| (Claims(Repr::One(claim)), work))
}

/// Gives a task that enters several inboxes a place after all that is in any of them.
fn meet<K, W>(inboxes: &mut [(usize, OpenInbox<'_, K, W>)]) -> u32 {
    let seq = inboxes.iter().map(|(_, inbox)| inbox.clock).max().unwrap_or(0) + 1;
    inboxes.iter_mut().for_each(|(_, inbox)| inbox.clock = seq);
    seq as u32
}
