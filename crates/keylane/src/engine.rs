//! Composes the stages: admit, order, allocate, run, complete.
//!
//! The engine knows nothing of closures, handles or messages: what a task *is* and how it runs is
//! the business of its [`Execute`]. It moves tasks from the gate through the inboxes and lanes to
//! the workers, and their claims back.

mod behind;
#[cfg(all(test, loom))]
mod models;
mod resize;
mod stop;
mod survey;

use std::any::Any;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;

use crate::admit::{Admission, Refused};
use crate::allocate::{Board, MAX_SHARDS};
use crate::error::SubmitErrorKind;
use crate::observe::{Clock, Tally};
use crate::order::{
    Claim, Claims, Entry, Hand, Held, InHand, Inbox, Label, Lanes, Repr, Rollup, Scope,
    merge_claims,
};
use crate::run::{Crew, Idle, Stage, engine_of_this_thread};
use crate::sync::{AtomicBool, Mutex, MutexGuard, Ordering};

/// What the tasks of an engine are, and how one runs.
pub(crate) trait Execute<K>: Send + Sync + 'static {
    /// All that is particular to one task.
    type Work: Send + 'static;

    /// Whether `execute` is to be given the key.
    const WANTS_KEY: bool;

    /// Runs a task. The turn ends when this returns, unless the stage was asked to keep it.
    fn execute(&self, key: Option<&K>, work: InHand<'_, Self::Work>, stage: &mut dyn Stage);

    /// The name of the task that somebody may wait for, if it has one.
    fn name(work: &Self::Work) -> Option<usize>;
}

/// The most tasks that are entered in one pass.
pub(crate) const BATCH: usize = 256;

/// No further index.
const END: u16 = u16::MAX;

/// A key that the engine can order by.
pub trait Key: Hash + Eq + Clone + Send + Sync + 'static {}
impl<K: Hash + Eq + Clone + Send + Sync + 'static> Key for K {}

/// Called with what a task panicked with.
pub(crate) type PanicHook = dyn Fn(&(dyn Any + Send)) + Send + Sync;

/// What can be chosen when an engine is built. Every field has been validated.
pub(crate) struct Settings {
    pub(crate) workers: usize,
    /// Accepted and unfinished tasks, at the most.
    pub(crate) capacity: usize,
    /// A lane yields to others after so many tasks,
    pub(crate) quantum_tasks: usize,
    /// or after so long.
    pub(crate) quantum_time: Duration,
    /// Worker threads are called this, and their number.
    pub(crate) thread_name: String,
    /// Bytes of stack of a worker thread; the platform's default if absent.
    pub(crate) stack_size: Option<usize>,
    pub(crate) on_panic: Option<Box<PanicHook>>,
    /// Where futures run.
    #[cfg(feature = "tokio")]
    pub(crate) runtime: Option<crate::complete::Runtime>,
    /// How many of them at a time.
    #[cfg(feature = "tokio")]
    pub(crate) concurrency: usize,
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings")
            .field("workers", &self.workers)
            .field("capacity", &self.capacity)
            .field("quantum_tasks", &self.quantum_tasks)
            .field("quantum_time", &self.quantum_time)
            .field("thread_name", &self.thread_name)
            .field("stack_size", &self.stack_size)
            .finish_non_exhaustive()
    }
}

pub(crate) struct Engine<K, X: Execute<K>, S> {
    /// A power of two, never changed.
    shards: Box<[Shard<K, X::Work>]>,
    /// Hashes keys; half of a hash chooses the shard, half the place in its table.
    hasher: S,
    /// A slot for each accepted and unfinished task.
    pub(crate) admission: Admission,
    /// Which shards have something to offer.
    pub(crate) board: Board,
    /// Which workers look for something, and which sleep.
    pub(crate) idle: Idle,
    /// The worker threads.
    pub(crate) crew: Crew,
    /// Runs a task.
    executor: X,
    /// As the engine was built; the number of workers and the capacity may have changed since.
    pub(crate) settings: Settings,
    /// Gives labels their time.
    pub(crate) clock: Clock,
    /// What is counted by nobody else.
    pub(crate) tally: Tally,
    /// Workers take no more tasks, and end. Set once.
    stopping: AtomicBool,
}

/// The tasks of a part of the keys.
struct Shard<K, W> {
    /// Taken by producers for an append, and by workers to take over what is there.
    inbox: CachePadded<Mutex<Inbox<K, W>>>,
    /// Taken by workers, twice a task or less. A worker that holds it may take the inbox's lock;
    /// never the other way round.
    lanes: CachePadded<Mutex<Lanes<K, W>>>,
}

/// What a worker wants of a shard after a task has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    /// It wants another task of this shard.
    pub(crate) stay: bool,
    /// The lane of the ended task may go on.
    pub(crate) quantum_left: bool,
    /// How many tasks the lane has run in this turn.
    pub(crate) ran: usize,
}

/// What a worker does next.
pub(crate) struct Next<K, W> {
    /// What the task in the worker's hand holds.
    pub(crate) held: Held<K, W>,
    /// It is the next of the lane whose task has just ended, in the same turn.
    pub(crate) goes_on: bool,
    /// It may well be the last for a moment.
    pub(crate) runs_dry: bool,
}

/// Work that is made at the last moment, at the place where it will stay, so that it is not copied
/// on the way there.
pub(crate) trait Make<W> {
    fn make(self) -> W;
}

/// Work that is there already.
pub(crate) struct Made<W>(pub(crate) W);

impl<W> Make<W> for Made<W> {
    #[inline(always)]
    fn make(self) -> W {
        self.0
    }
}

/// How many tasks of a batch were accepted before the pool was closed, and those that were not.
pub(crate) type Rest<K, M> = (usize, Vec<Incoming<K, M>>);

/// An inbox under its lock.
type OpenInbox<'a, K, W> = MutexGuard<'a, Inbox<K, W>>;

/// A task on its way in: its keys, and that of which its work is made.
pub(crate) type Incoming<K, M> = (Claims<K>, M);

impl<K: Key, X: Execute<K>, S: BuildHasher> Engine<K, X, S> {
    pub(crate) fn new(settings: Settings, hasher: S, executor: X) -> Self {
        let shards = shard_count(settings.workers);
        Engine {
            shards: (0..shards).map(|_| Shard::new(settings.quantum_tasks)).collect(),
            hasher,
            admission: Admission::new(settings.capacity),
            board: Board::new(),
            idle: Idle::new(),
            crew: Crew::new(settings.workers),
            executor,
            settings,
            clock: Clock::new(),
            tally: Tally::default(),
            stopping: AtomicBool::new(false),
        }
    }

    pub(crate) fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    pub(crate) fn shards(&self) -> usize {
        self.shards.len()
    }

    /// Whether the calling thread runs a task of this engine.
    #[inline]
    pub(crate) fn is_inside(&self) -> bool {
        engine_of_this_thread() == std::ptr::from_ref(self).addr()
    }

    pub(crate) fn executor(&self) -> &X {
        &self.executor
    }
}

/// How long a submitter waits for room.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    None,
    Until(Instant),
    Endless,
}

impl Patience {
    /// What a refusal means to somebody with this patience.
    pub(crate) fn explain(self, refused: Refused) -> SubmitErrorKind {
        match (refused, self) {
            (Refused::Closed, _) => SubmitErrorKind::Closed,
            (Refused::Full, Patience::Until(_)) => SubmitErrorKind::TimedOut,
            (Refused::Full, _) => SubmitErrorKind::Full,
        }
    }
}

impl From<Refused> for SubmitErrorKind {
    fn from(refused: Refused) -> Self {
        Patience::None.explain(refused)
    }
}

// Admission.
impl<K: Key, X: Execute<K>, S: BuildHasher> Engine<K, X, S> {
    /// Takes a slot for a task. A task of this pool gets one whether there is room or not, for it
    /// might wait for room that only its own end can make.
    #[inline]
    pub(crate) fn admit(&self, patience: Patience) -> Result<(), Refused> {
        if self.is_inside() {
            return self.admission.force();
        }
        match patience {
            Patience::None => self.admission.try_enter(|| self.collect()),
            Patience::Until(deadline) => self.admission.enter(Some(deadline), || self.collect()),
            Patience::Endless => self.admission.enter(None, || self.collect()),
        }
    }

    /// Takes slots for up to `want` tasks, at least one.
    pub(crate) fn admit_up_to(&self, want: usize) -> Result<usize, Refused> {
        if self.is_inside() {
            return self.admission.force().map(|()| 1);
        }
        match self.admission.try_enter_up_to(want, || self.collect()) {
            Err(Refused::Full) => self.admit(Patience::Endless).map(|()| 1),
            settled => settled,
        }
    }

    pub(crate) async fn admit_async(&self) -> Result<(), Refused> {
        if self.is_inside() {
            return self.admission.force();
        }
        self.admission.enter_async(|| self.collect()).await
    }
}

// Submission.
impl<K: Key, X: Execute<K>, S: BuildHasher> Engine<K, X, S> {
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
    fn enter_single<M: Make<X::Work>>(
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
    fn enter_other<M: Make<X::Work>>(
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

    fn enter_free<M: Make<X::Work>>(&self, task: M) -> Result<(), M> {
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
    fn enter_rollup<M: Make<X::Work>>(
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
    fn enter_barrier<M: Make<X::Work>>(&self, task: M) -> Result<(), M> {
        let mut inboxes: Vec<_> =
            self.shards.iter().map(|shard| shard.inbox.lock()).enumerate().collect();
        if inboxes[0].1.closed {
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
    fn enter_piece<M: Make<X::Work>>(&self, piece: &mut Vec<Incoming<K, M>>) -> usize {
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
    fn enter_batch<M: Make<X::Work>>(&self, batch: &mut [Option<(Claim<K>, M)>]) {
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
    fn enter_chain<M: Make<X::Work>>(
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
    fn shard_of(&self, hash: u64) -> usize {
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

// Between a worker and a shard.
impl<K: Key, X: Execute<K>, S: BuildHasher> Engine<K, X, S> {
    /// Ends a task's hold on its shard and finds the next task there, in one critical section.
    #[inline]
    pub(crate) fn step(
        &self,
        shard: usize,
        ended: Option<Held<K, X::Work>>,
        wish: Wish,
        hand: &mut Hand<K, X::Work>,
    ) -> Option<Next<K, X::Work>> {
        let mut lanes = self.shards[shard].lanes.lock();
        let mut left = None;
        let mut held = None;
        let mut goes_on = false;
        if let Some(ended) = ended {
            lanes.count_ended();
            if wish.stay && self.go_on(shard, &mut lanes, &ended, wish, hand) {
                held = Some(ended);
                goes_on = true;
            } else {
                left = self.leave(shard, &mut lanes, &ended, wish);
            }
        }
        if held.is_none() && wish.stay {
            held = self.find(shard, &mut lanes, hand);
        }
        let offer = lanes.has_offer();
        let runs_dry = lanes.runs_dry();
        let freed = if self.admission.is_watched() { lanes.take_ended() } else { 0 };
        drop(lanes);
        // A key's own drop is user code.
        drop(left);
        if offer {
            self.offer(shard);
        }
        if freed != 0 {
            self.admission.give_back(freed);
        }
        held.map(|held| Next { held, goes_on, runs_dry })
    }

    /// Turns ended tasks into free slots.
    pub(crate) fn collect(&self) -> usize {
        self.shards.iter().map(|shard| shard.lanes.lock().take_ended()).sum()
    }

    /// Takes the next task of the lane whose task has ended.
    #[inline]
    fn go_on(
        &self,
        shard: usize,
        lanes: &mut Lanes<K, X::Work>,
        ended: &Held<K, X::Work>,
        wish: Wish,
        hand: &mut Hand<K, X::Work>,
    ) -> bool {
        let &Held::Lane(slot) = ended else { return false };
        let quantum_left = wish.quantum_left || !(lanes.others_wait() || self.board.any_but(shard));
        if lanes.next_in_lane(slot, quantum_left, hand) {
            // In the place of another lane it would have to answer for what the inbox has of that
            // one's, and of which nobody was told.
            if !lanes.has_resident() {
                lanes.make_resident(&mut self.shards[shard].inbox.lock(), slot);
            }
            return true;
        }
        if !lanes.is_last(slot) {
            return false;
        }
        lanes.refill(&mut self.shards[shard].inbox.lock(), Some(slot));
        lanes.next_in_lane(slot, quantum_left, hand)
    }

    /// Finds a task of the shard that may run.
    #[inline]
    fn find(
        &self,
        shard: usize,
        lanes: &mut Lanes<K, X::Work>,
        hand: &mut Hand<K, X::Work>,
    ) -> Option<Held<K, X::Work>> {
        if let Some(held) = lanes.next_in_turn(hand) {
            return Some(held);
        }
        loop {
            if let Some(held) = lanes.next_fresh(X::WANTS_KEY, hand) {
                return Some(held);
            }
            if !self.refill(shard, lanes) {
                break;
            }
        }
        if let Some(held) = lanes.next_ready(hand) {
            return Some(held);
        }
        // From here on a producer sets the bit again; what came before it did, we see below.
        self.board.clear(shard);
        self.refill(shard, lanes);
        lanes.next_fresh(X::WANTS_KEY, hand).or_else(|| lanes.next_ready(hand))
    }

    /// Takes over what the producers have left, and says whether that was anything.
    fn refill(&self, shard: usize, lanes: &mut Lanes<K, X::Work>) -> bool {
        lanes.wants_refill() && {
            lanes.refill(&mut self.shards[shard].inbox.lock(), None);
            !lanes.wants_refill()
        }
    }

    /// Gives a lane back, or a free task's mark.
    #[inline]
    fn leave(
        &self,
        shard: usize,
        lanes: &mut Lanes<K, X::Work>,
        held: &Held<K, X::Work>,
        wish: Wish,
    ) -> Option<K> {
        if let &Held::Lane(slot) = held {
            if lanes.is_resident(slot) && lanes.evict_resident(&mut self.shards[shard].inbox.lock())
            {
                self.offer(shard);
            }
            if !wish.quantum_left && lanes.others_wait() {
                lanes.yielded(wish.ran, self.settings.workers);
            }
        }
        lanes.release(held)
    }

    /// Ends a turn that its worker has let go of.
    pub(crate) fn end(&self, shard: usize, held: Held<K, X::Work>) {
        match held {
            Held::Rollup(rollup) => self.end_rollup(&rollup),
            held => {
                let wish = Wish { stay: false, quantum_left: true, ran: 0 };
                self.step(shard, Some(held), wish, &mut Hand::default());
            }
        }
    }

    /// Gives back the lanes of a rollup, each in its shard.
    #[cold]
    pub(crate) fn end_rollup(&self, rollup: &Rollup<K, X::Work>) {
        self.end_parts(rollup);
        self.admission.give_back(1);
    }

    fn end_parts(&self, rollup: &Rollup<K, X::Work>) {
        match &rollup.scope {
            Scope::Everything { .. } => {
                for (index, shard) in self.shards.iter().enumerate() {
                    shard.lanes.lock().lower_fence();
                    // Whatever has come meanwhile was told to nobody who could take it.
                    self.offer(index);
                }
            }
            Scope::Keys(claims) => {
                for (hash, claim) in claims {
                    let shard = self.shard_of(*hash);
                    let mut lanes = self.shards[shard].lanes.lock();
                    let left = lanes.release_part(*hash as u32, &claim.key);
                    let offer = lanes.has_offer();
                    drop(lanes);
                    drop(left);
                    if offer {
                        self.offer(shard);
                    }
                }
            }
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

impl<K, W> Shard<K, W> {
    fn new(quantum: usize) -> Self {
        Shard {
            inbox: CachePadded::new(Mutex::new(Inbox::default())),
            lanes: CachePadded::new(Mutex::new(Lanes::new(quantum))),
        }
    }
}

/// So that workers seldom meet in a shard, but a visit is worth while. In a model they shall meet.
const SHARDS_PER_WORKER: usize = if cfg!(loom) { 1 } else { 4 };

/// A power of two, so that a mask picks one.
fn shard_count(workers: usize) -> usize {
    (SHARDS_PER_WORKER * workers).next_power_of_two().min(MAX_SHARDS)
}
