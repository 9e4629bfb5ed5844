//! The order of one shard: which of its tasks may run, which run, and what waits behind them.
//!
//! A plain state machine. The engine keeps it under the shard's lock and calls no user code inside
//! but the key's `Eq` and `Clone`.

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::HashTable;

use super::index::{Index, spread};
use super::queue::SegQueue;
use super::recent::Recent;
use super::{Claim, Claims, Entry, Hand, Inbox, Label, Mode, Repr, Rollup, Scope};

/// The longest line whose memory is kept for the next lane in its slot.
const KEPT_CAPACITY: usize = 256;

/// Free slots that are kept. A shard seldom has more lanes than there are workers, and what a burst
/// of waiting rollups needed is given back.
const KEPT_SLOTS: usize = 64;

/// A delivery of fewer tasks than this was hardly worth two trips of the inbox between processors.
const FEW: usize = 16;

/// The lanes of one shard, and its tasks that have not run.
#[derive(Debug)]
pub(crate) struct Lanes<K, W> {
    /// Finds a lane by its key; holds slots of `lanes`.
    index: Index,
    /// The keys with a task that runs, is ready, or waits behind one that does; and, in between,
    /// slots that are free.
    lanes: Vec<Lane<K, W>>,
    /// The free slots.
    free: Vec<usize>,
    /// Accepted tasks that no lane knows yet, oldest first. They enter their lanes only when a
    /// worker is free, so a key whose tasks wait for nothing but a worker has no lane.
    backlog: SegQueue<Entry<K, W>>,
    /// Tasks that have left their line and hold their lanes, and wait only for a worker.
    ready: VecDeque<Ready<K, W>>,
    /// Tasks from the backlog that are to be taken before the next from `ready`.
    owed_to_fresh: usize,
    /// How much each key that is not waiting has run of late.
    recent: Recent,
    /// Tasks without keys that were taken and have not ended.
    free_running: usize,
    /// A barrier that has been reached: nothing behind it is looked at until it ends.
    fence: Option<Fence<K, W>>,
    /// The lane that the inbox knows as resident.
    resident: Option<usize>,
    /// All of the backlog belongs to the resident lane, so no other worker has a use for it.
    backlog_is_residents: bool,
    /// Tasks that have ended here, whose slots at the gate nobody has collected.
    ended: usize,
    /// How many tasks the last refill brought.
    last_refill: usize,
}

/// A key's unfinished tasks, from the ones that hold it to the last that waits.
#[derive(Debug)]
struct Lane<K, W> {
    /// Half of the key's hash, as in its tasks' labels.
    hash: u32,
    /// Absent in a free slot.
    key: Option<K>,
    /// Who has the key. Means nothing in a free slot.
    holders: Holders,
    /// Who waits behind them, oldest first; the first conflicts with them.
    waiting: VecDeque<Waiting<K, W>>,
    /// The label's time of the task that holds the lane, or of the last to join.
    since: u32,
}

/// Who has the key now. A lane without holders does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holders {
    /// One task, ready or running, or a rollup that may still wait for its other lanes.
    Exclusive,
    /// So many that share it.
    Shared(usize),
}

/// A task behind the holders of a lane.
#[derive(Debug)]
enum Waiting<K, W> {
    Task { label: Label, mode: Mode, key: K, work: W },
    Part { rollup: Arc<Rollup<K, W>>, claim: usize },
}

#[derive(Debug)]
struct Fence<K, W> {
    /// The barrier.
    rollup: Arc<Rollup<K, W>>,
    /// Everything before it in this shard has ended.
    granted: bool,
}

/// A task that holds its lanes and has no worker.
#[derive(Debug)]
struct Ready<K, W> {
    work: W,
    key: Option<K>,
    seq: u32,
    held: Held<K, W>,
}

impl<K: Eq, W> Ready<K, W> {
    /// Grants a part of a rollup. The last grant makes it a task to run, unless the pool was
    /// stopped and somebody has its work.
    fn granted(rollup: &Arc<Rollup<K, W>>) -> Option<Self> {
        if !rollup.grant() {
            return None;
        }
        let work = rollup.take_work()?;
        let held = Held::Rollup(rollup.clone());
        Some(Ready { work, key: None, seq: rollup.label.seq, held })
    }
}

/// What a running task holds, to be given back when it ends.
#[derive(Debug)]
pub(crate) enum Held<K, W> {
    /// No lane.
    Free,
    /// The lane in this slot.
    Lane(usize),
    /// All lanes of a rollup, in several shards.
    Rollup(Arc<Rollup<K, W>>),
}

/// A task that was accepted and will not run.
#[derive(Debug)]
pub(crate) struct Unrun<K, W> {
    pub(crate) claims: Claims<K>,
    pub(crate) work: W,
    /// Its place in the order.
    pub(crate) seq: u32,
}

impl<K, W> Unrun<K, W> {
    fn single(label: Label, claim: Claim<K>, work: W) -> Self {
        Unrun { claims: Claims(Repr::One(claim)), work, seq: label.seq }
    }
}

impl<K, W> Lanes<K, W> {
    /// `quantum` is how many tasks a key may run before those of others that came later.
    pub(crate) fn new(quantum: usize) -> Self {
        Lanes {
            index: Index::new(),
            lanes: Vec::new(),
            free: Vec::new(),
            backlog: SegQueue::default(),
            ready: VecDeque::new(),
            owed_to_fresh: 0,
            recent: Recent::new(quantum),
            free_running: 0,
            fence: None,
            resident: None,
            backlog_is_residents: false,
            ended: 0,
            last_refill: 0,
        }
    }
}

// Taking. Each of these puts a task into `hand` and returns what it holds, or does neither.
impl<K: Eq + Clone, W> Lanes<K, W> {
    /// Takes a task that holds its lanes already, unless it is the turn of one from the backlog:
    /// the two kinds take turns, so that neither waits for ever.
    #[inline(always)]
    pub(crate) fn next_in_turn(&mut self, hand: &mut Hand<K, W>) -> Option<Held<K, W>> {
        if self.ready.is_empty() || self.owed_to_fresh != 0 {
            return None;
        }
        self.owed_to_fresh = 1;
        self.next_ready(hand)
    }

    /// Takes the next task of the backlog that may run. `keep_key` asks for the key beside the work.
    #[inline(always)]
    pub(crate) fn next_fresh(
        &mut self,
        keep_key: bool,
        hand: &mut Hand<K, W>,
    ) -> Option<Held<K, W>> {
        self.backlog_is_residents = false;
        while self.fence.is_none()
            && let Some(entry) = self.backlog.pop()
        {
            if let Some(held) = self.enter(entry, keep_key, hand) {
                self.owed_to_fresh = self.owed_to_fresh.saturating_sub(1);
                return Some(held);
            }
        }
        None
    }

    /// Takes a task that holds its lanes already.
    #[inline]
    pub(crate) fn next_ready(&mut self, hand: &mut Hand<K, W>) -> Option<Held<K, W>> {
        let Ready { work, key, seq, held } = self.ready.pop_front()?;
        hand.put(work);
        hand.key = key;
        hand.seq = seq;
        Some(held)
    }

    /// Moves every task of the backlog to where it waits or is ready, up to a barrier.
    pub(crate) fn enter_all(&mut self, keep_key: bool) {
        self.backlog_is_residents = false;
        let mut hand = Hand::default();
        while self.fence.is_none()
            && let Some(entry) = self.backlog.pop()
        {
            if let Some(held) = self.enter(entry, keep_key, &mut hand) {
                let (work, key, seq) = (hand.take(), hand.key.take(), hand.seq);
                self.ready.push_back(Ready { work, key, seq, held });
            }
        }
    }

    /// Puts a task into its lanes, and into the hand if it may run at once.
    #[inline(always)]
    fn enter(
        &mut self,
        entry: Entry<K, W>,
        keep_key: bool,
        hand: &mut Hand<K, W>,
    ) -> Option<Held<K, W>> {
        match entry {
            Entry::Single { label, mode, key, work } => {
                // The work goes to the hand before anything else is done, so that it is not kept
                // anywhere in between.
                hand.put(work);
                hand.seq = label.seq;
                if let Some(slot) = self.find(label.hash, &key) {
                    return self.enter_busy(slot, label, mode, key, hand);
                }
                hand.key = if keep_key { Some(key.clone()) } else { None };
                let slot = self.open_lane(label.hash, key, mode, label.time);
                if self.recent.exceeds(label.hash) && self.has_fresh() {
                    self.defer(slot, hand);
                    return None;
                }
                Some(Held::Lane(slot))
            }
            Entry::Free { label, work } => {
                self.free_running += 1;
                hand.put(work);
                hand.seq = label.seq;
                Some(Held::Free)
            }
            Entry::Part { rollup, claim } => {
                self.enter_part(rollup, claim);
                None
            }
            Entry::Fence { rollup } => {
                self.fence = Some(Fence { rollup, granted: false });
                self.grant_fence();
                None
            }
        }
        // A rollup that has just become ready is next in `ready`.
    }

    /// The task in the hand may run, but its key has run more than its quantum while others wait: it
    /// holds its lane and queues behind them, and what follows it waits in its line.
    #[cold]
    fn defer(&mut self, slot: usize, hand: &mut Hand<K, W>) {
        let (work, key, seq) = (hand.take(), hand.key.take(), hand.seq);
        self.ready.push_back(Ready { work, key, seq, held: Held::Lane(slot) });
    }

    /// The task in the hand has a key whose lane is open: it joins the holders, or waits.
    fn enter_busy(
        &mut self,
        slot: usize,
        label: Label,
        mode: Mode,
        key: K,
        hand: &mut Hand<K, W>,
    ) -> Option<Held<K, W>> {
        let lane = &mut self.lanes[slot];
        if lane.joins(mode) {
            lane.since = label.time;
            hand.key = Some(key);
            return Some(Held::Lane(slot));
        }
        lane.waiting.push_back(Waiting::Task { label, mode, key, work: hand.take() });
        None
    }

    #[cold]
    fn enter_part(&mut self, rollup: Arc<Rollup<K, W>>, claim: usize) {
        let (hash, key, mode) = rollup.claim(claim);
        match self.find(hash, key) {
            None => {
                let key = key.clone();
                self.open_lane(hash, key, mode, rollup.label.time);
            }
            Some(slot) if self.lanes[slot].joins(mode) => {}
            Some(slot) => {
                self.lanes[slot].waiting.push_back(Waiting::Part { rollup, claim });
                return;
            }
        }
        self.ready.extend(Ready::granted(&rollup));
    }

    #[inline]
    fn open_lane(&mut self, hash: u32, key: K, mode: Mode, since: u32) -> usize {
        let holders = match mode {
            Mode::Exclusive => Holders::Exclusive,
            Mode::Shared => Holders::Shared(1),
        };
        let slot = match self.free.pop() {
            Some(slot) => {
                let lane = &mut self.lanes[slot];
                lane.hash = hash;
                lane.key = Some(key);
                lane.holders = holders;
                lane.since = since;
                slot
            }
            None => {
                let waiting = VecDeque::new();
                self.lanes.push(Lane { hash, key: Some(key), holders, waiting, since });
                self.lanes.len() - 1
            }
        };
        self.index.insert(hash, slot);
        slot
    }

    #[inline]
    fn find(&self, hash: u32, key: &K) -> Option<usize> {
        self.index.find(hash, |slot| self.lanes[slot].key.as_ref() == Some(key))
    }
}

impl Holders {
    fn count(self) -> usize {
        match self {
            Holders::Exclusive => 1,
            Holders::Shared(count) => count,
        }
    }

    fn mode(self) -> Mode {
        match self {
            Holders::Exclusive => Mode::Exclusive,
            Holders::Shared(_) => Mode::Shared,
        }
    }
}

impl<K: Eq, W> Lane<K, W> {
    /// Whether a task has this key, exclusively.
    #[inline]
    fn is_of(&self, entry: &Entry<K, W>) -> bool {
        self.key.as_ref().is_some_and(|key| entry.is_exclusive_on(self.hash, key))
    }

    /// Lets a sharing task in beside the holders, if nobody waits that it would overtake.
    fn joins(&mut self, mode: Mode) -> bool {
        match &mut self.holders {
            Holders::Shared(count) if mode == Mode::Shared && self.waiting.is_empty() => {
                *count += 1;
                true
            }
            _ => false,
        }
    }
}

impl<K, W> Waiting<K, W> {
    fn is_part_of(&self, this: &Arc<Rollup<K, W>>) -> bool {
        matches!(self, Waiting::Part { rollup, .. } if Arc::ptr_eq(rollup, this))
    }

    fn mode(&self) -> Mode {
        match self {
            Waiting::Task { mode, .. } => *mode,
            Waiting::Part { rollup, claim } => match &rollup.scope {
                Scope::Keys(claims) => claims[*claim].1.mode,
                Scope::Everything { .. } => unreachable!("a barrier waits at a fence"),
            },
        }
    }
}

// Ending.
impl<K: Eq + Clone, W> Lanes<K, W> {
    /// Takes the next task of a lane whose holder has just ended, without giving the lane back.
    #[inline]
    pub(crate) fn next_in_lane(
        &mut self,
        slot: usize,
        quantum_left: bool,
        hand: &mut Hand<K, W>,
    ) -> bool {
        let lane = &mut self.lanes[slot];
        if lane.holders != Holders::Exclusive {
            return false;
        }
        if lane.waiting.is_empty() {
            if quantum_left {
                return self.next_from_backlog(slot, hand);
            }
            self.line_up(slot);
            return false;
        }
        let exclusive = matches!(&lane.waiting[0], Waiting::Task { mode: Mode::Exclusive, .. });
        if !quantum_left || !exclusive {
            return false;
        }
        if let Some(Waiting::Task { label, key, work, .. }) = lane.waiting.pop_front() {
            hand.put(work);
            hand.key = Some(key);
            lane.since = label.time;
        }
        true
    }

    /// The same, where the lane's next task is the next of the backlog: nothing is overtaken.
    #[inline(always)]
    fn next_from_backlog(&mut self, slot: usize, hand: &mut Hand<K, W>) -> bool {
        let lane = &mut self.lanes[slot];
        if self.fence.is_some() || !self.backlog.front().is_some_and(|next| lane.is_of(next)) {
            return false;
        }
        match self.backlog.pop() {
            Some(Entry::Single { label, key, work, .. }) => {
                hand.put(work);
                hand.key = Some(key);
                hand.seq = label.seq;
                lane.since = label.time;
            }
            other => {
                // Forgotten, not dropped: nothing then needs the entry as a whole, and its parts
                // are moved one by one without being stored in between.
                std::mem::forget(other);
                unreachable!("the front was a task with this key")
            }
        }
        true
    }

    /// Moves the lane's tasks that are next in the backlog to its line, for those behind them to be
    /// seen: its quantum is used up.
    #[cold]
    fn line_up(&mut self, slot: usize) {
        let lane = &mut self.lanes[slot];
        while self.fence.is_none()
            && self.backlog.front().is_some_and(|next| lane.is_of(next))
            && let Some(Entry::Single { label, mode, key, work }) = self.backlog.pop()
        {
            lane.waiting.push_back(Waiting::Task { label, mode, key, work });
        }
    }

    /// Gives back what a task held in this shard. Returns what is left of a lane that ended, for
    /// the caller to drop outside the lock.
    #[inline]
    pub(crate) fn release(&mut self, held: &Held<K, W>) -> Option<K> {
        let left = match held {
            Held::Free => {
                self.free_running -= 1;
                None
            }
            Held::Lane(slot) => self.leave(*slot),
            Held::Rollup(_) => unreachable!("a rollup gives back each part by its key"),
        };
        self.grant_fence();
        left
    }

    /// Gives back one part of a rollup.
    pub(crate) fn release_part(&mut self, hash: u32, key: &K) -> Option<K> {
        let slot = self.find(hash, key).expect("a granted part's lane lives until it is released");
        let left = self.leave(slot);
        self.grant_fence();
        left
    }

    /// Ends a barrier's hold on this shard.
    pub(crate) fn lower_fence(&mut self) {
        self.fence = None;
    }

    #[inline]
    fn leave(&mut self, slot: usize) -> Option<K> {
        let lane = &mut self.lanes[slot];
        if let Holders::Shared(count) = &mut lane.holders
            && *count > 1
        {
            *count -= 1;
            return None;
        }
        if lane.waiting.is_empty() {
            return self.close_lane(slot);
        }
        self.hand_on(slot);
        None
    }

    #[inline]
    fn close_lane(&mut self, slot: usize) -> Option<K> {
        let hash = self.lanes[slot].hash;
        self.index.remove(hash, slot);
        let lane = &mut self.lanes[slot];
        if lane.waiting.capacity() > KEPT_CAPACITY {
            lane.waiting = VecDeque::new();
        }
        let key = lane.key.take();
        self.free.push(slot);
        if self.index.is_empty() && self.lanes.len() > KEPT_SLOTS {
            self.forget_slots();
        }
        key
    }

    /// Gives the memory of many free slots back. No lane is open.
    #[cold]
    fn forget_slots(&mut self) {
        self.lanes = Vec::new();
        self.free = Vec::new();
    }

    /// Gives a lane to who waits first, and to all who can share it with them.
    fn hand_on(&mut self, slot: usize) {
        let lane = &mut self.lanes[slot];
        let mode = lane.waiting.front().expect("the caller has looked").mode();
        let mut holders = 0;
        while let Some(first) = lane.waiting.front()
            && (holders == 0 || first.mode() == Mode::Shared)
        {
            holders += 1;
            match lane.waiting.pop_front().expect("it has a front") {
                Waiting::Task { label, key, work, .. } => {
                    lane.since = label.time;
                    let held = Held::Lane(slot);
                    let ready = Ready { work, key: Some(key), seq: label.seq, held };
                    self.ready.push_back(ready);
                }
                Waiting::Part { rollup, .. } => {
                    lane.since = rollup.label.time;
                    self.ready.extend(Ready::granted(&rollup));
                }
            }
            if mode == Mode::Exclusive {
                break;
            }
        }
        lane.holders = match mode {
            Mode::Exclusive => Holders::Exclusive,
            Mode::Shared => Holders::Shared(holders),
        };
    }

    /// Grants a barrier its part once all before it has ended.
    #[inline]
    fn grant_fence(&mut self) {
        if let Some(fence) = &mut self.fence
            && !fence.granted
            && self.index.is_empty()
            && self.free_running == 0
        {
            fence.granted = true;
            self.ready.extend(Ready::granted(&fence.rollup));
        }
    }

    /// A lane has used its quantum of `tasks`: so many fresh tasks go first, of `workers` that
    /// share the work.
    pub(crate) fn yielded(&mut self, tasks: usize, workers: usize) {
        self.owed_to_fresh = self.owed_to_fresh.max(tasks.div_ceil(workers.max(1)));
    }
}

// The backlog.
impl<K: Eq + Clone, W> Lanes<K, W> {
    pub(crate) fn wants_refill(&self) -> bool {
        self.backlog.is_empty() && self.fence.is_none()
    }

    /// Whether a lane has nobody behind its one holder, here or in the backlog, and nobody else
    /// waits for a worker: a chance to go on with what the producers have left.
    #[inline]
    pub(crate) fn is_last(&self, slot: usize) -> bool {
        let lane = &self.lanes[slot];
        lane.waiting.is_empty()
            && lane.holders == Holders::Exclusive
            && self.ready.is_empty()
            && self.wants_refill()
    }

    /// Takes over what the producers have left. `lane` is the one that the caller goes on with if
    /// it can; it becomes the resident if the next task is its own.
    pub(crate) fn refill(&mut self, inbox: &mut Inbox<K, W>, lane: Option<usize>) {
        self.last_refill = inbox.queue.len();
        self.backlog.take_from(&mut inbox.queue);
        inbox.signaled = false;
        let Some(slot) = lane else {
            self.backlog_is_residents = false;
            return;
        };
        let next_is_its = self.backlog.front().is_some_and(|next| self.lanes[slot].is_of(next));
        if next_is_its {
            self.make_resident(inbox, slot);
        }
        self.backlog_is_residents =
            next_is_its && self.backlog.iter().all(|entry| self.lanes[slot].is_of(entry));
    }

    /// Lets the inbox know that a worker has settled on a lane. If another lane was the resident, the
    /// inbox must be empty, for its worker no longer answers for what is there.
    pub(crate) fn make_resident(&mut self, inbox: &mut Inbox<K, W>, slot: usize) {
        if self.resident != Some(slot) {
            self.resident = Some(slot);
            let lane = &self.lanes[slot];
            inbox.resident = lane.key.clone().map(|key| (lane.hash, key));
        }
    }

    #[inline]
    pub(crate) fn has_resident(&self) -> bool {
        self.resident.is_some()
    }

    pub(crate) fn is_resident(&self, slot: usize) -> bool {
        self.resident == Some(slot)
    }

    /// The resident lane is about to be left: the inbox must know, and says whether it has tasks
    /// that nobody was told of.
    pub(crate) fn evict_resident(&mut self, inbox: &mut Inbox<K, W>) -> bool {
        self.resident = None;
        self.backlog_is_residents = false;
        inbox.resident = None;
        let tell = !inbox.queue.is_empty() && !inbox.signaled;
        inbox.signaled |= tell;
        tell
    }

    /// Whether anybody in this shard waits for a worker but the lane that has one.
    #[inline]
    pub(crate) fn others_wait(&self) -> bool {
        self.has_offer()
    }

    /// Whether the task just taken was the last of a small delivery, so that a moment's patience
    /// would bring a larger one.
    #[inline]
    pub(crate) fn runs_dry(&self) -> bool {
        self.last_refill < FEW
            && self.backlog.is_empty()
            && self.ready.is_empty()
            && self.resident.is_some_and(|slot| self.lanes[slot].waiting.is_empty())
    }

    /// Counts a task as ended.
    #[inline]
    pub(crate) fn count_ended(&mut self) {
        self.ended += 1;
    }

    /// The slots of the tasks that have ended.
    pub(crate) fn take_ended(&mut self) -> usize {
        std::mem::take(&mut self.ended)
    }

    /// Whether another worker would find something to do, or to enter, here.
    #[inline]
    pub(crate) fn has_offer(&self) -> bool {
        !self.ready.is_empty() || self.has_fresh() && !self.backlog_is_residents
    }

    #[inline]
    fn has_fresh(&self) -> bool {
        self.fence.is_none() && !self.backlog.is_empty()
    }
}

// Looking.
impl<K: Eq + Clone, W> Lanes<K, W> {
    /// The barrier that has been reached, waiting or running.
    pub(crate) fn fence(&self) -> Option<&Rollup<K, W>> {
        self.fence.as_ref().map(|fence| &*fence.rollup)
    }

    pub(crate) fn any_in_backlog(&self, is_target: impl Fn(&W) -> bool) -> bool {
        self.backlog.iter().any(|entry| entry.is_for(&is_target))
    }

    /// The rollups that wait behind the holder of a lane; or nothing, if the target does.
    pub(crate) fn behind_slot(
        &self,
        slot: usize,
        is_target: impl Fn(&W) -> bool,
    ) -> Option<Vec<Arc<Rollup<K, W>>>> {
        self.behind(self.lanes[slot].waiting.iter(), is_target)
    }

    /// The same behind a rollup, in the lane of one of its claims.
    pub(crate) fn behind_rollup(
        &self,
        rollup: &Arc<Rollup<K, W>>,
        claim: usize,
        is_target: impl Fn(&W) -> bool,
    ) -> Option<Vec<Arc<Rollup<K, W>>>> {
        let (hash, key, mode) = rollup.claim(claim);
        // Its lane is gone if it has ended meanwhile.
        let Some(slot) = self.find(hash, key) else { return Some(Vec::new()) };
        let line = &self.lanes[slot].waiting;
        let place = line.iter().position(|waiting| waiting.is_part_of(rollup));
        let behind = line.iter().skip(place.map_or(0, |place| place + 1));
        // Those who share the lane with a waiting rollup run beside it.
        let beside = place.is_some() && mode == Mode::Shared;
        let behind = behind.skip_while(|waiting| beside && waiting.mode() == Mode::Shared);
        self.behind(behind, is_target)
    }

    fn behind<'a>(
        &self,
        mut waiting: impl Iterator<Item = &'a Waiting<K, W>>,
        is_target: impl Fn(&W) -> bool,
    ) -> Option<Vec<Arc<Rollup<K, W>>>>
    where
        K: 'a,
        W: 'a,
    {
        waiting.try_fold(Vec::new(), |mut rollups, waiting| match waiting {
            Waiting::Task { work, .. } => (!is_target(work)).then_some(rollups),
            Waiting::Part { rollup, .. } => {
                rollups.push(rollup.clone());
                let found = rollup.with_work(|work| work.is_some_and(&is_target));
                (!found).then_some(rollups)
            }
        })
    }
}

// Counting.
impl<K: Eq + Clone, W> Lanes<K, W> {
    /// Counts the unfinished tasks of every key, here and in the inbox. Rollups count in each lane.
    pub(crate) fn census(&self, inbox: &Inbox<K, W>) -> Vec<Count<K>> {
        let mut counts: Vec<Count<K>> = Vec::new();
        let mut index: HashTable<usize> = HashTable::new();
        let mut count = |hash: u32, key: &K, tasks: usize, since: u32, running: bool| {
            let found = index.find(spread(hash), |&at| counts[at].key == *key).copied();
            let Some(at) = found else {
                counts.push(Count { key: key.clone(), hash, tasks, since, running });
                let at = counts.len() - 1;
                index.insert_unique(spread(hash), at, |&at| spread(counts[at].hash));
                return;
            };
            counts[at].tasks += tasks;
        };
        for lane in &self.lanes {
            if let Some(key) = &lane.key {
                let tasks = lane.waiting.len() + lane.holders.count();
                count(lane.hash, key, tasks, lane.since, true);
            }
        }
        for entry in self.backlog.iter().chain(inbox.queue.iter()) {
            match entry {
                Entry::Single { label, key, .. } => count(label.hash, key, 1, label.time, false),
                Entry::Part { rollup, claim } => {
                    let (hash, key, _) = rollup.claim(*claim);
                    count(hash, key, 1, rollup.label.time, false);
                }
                Entry::Free { .. } | Entry::Fence { .. } => {}
            }
        }
        counts
    }
}

/// The unfinished tasks of a key.
#[derive(Debug)]
pub(crate) struct Count<K> {
    pub(crate) key: K,
    hash: u32,
    pub(crate) tasks: usize,
    /// The label's time of the oldest.
    pub(crate) since: u32,
    /// It has been given to a worker, or is about to be.
    pub(crate) running: bool,
}

// Stopping.
impl<K: Eq + Clone, W> Lanes<K, W> {
    /// Removes every task that has not been given to a worker, here and in the inbox.
    ///
    /// Lanes that tasks hold stay as they are, for those tasks still give them back. So do those
    /// of a rollup that never ran: the pool is stopped, and nobody will ask for them again.
    pub(crate) fn take_unrun(&mut self, inbox: &mut Inbox<K, W>, unrun: &mut Vec<Unrun<K, W>>) {
        for Ready { work, key, seq, held } in self.ready.drain(..) {
            let claims = match held {
                Held::Free => Claims::none(),
                Held::Rollup(rollup) => rollup.claims(),
                Held::Lane(slot) => {
                    let lane = &self.lanes[slot];
                    let key = key.or_else(|| lane.key.clone()).expect("a held lane has a key");
                    Claims(Repr::One(Claim { key, mode: lane.holders.mode() }))
                }
            };
            unrun.push(Unrun { claims, work, seq });
        }
        for lane in &mut self.lanes {
            for waiting in lane.waiting.drain(..) {
                match waiting {
                    Waiting::Task { label, mode, key, work } => {
                        unrun.push(Unrun::single(label, Claim { key, mode }, work))
                    }
                    Waiting::Part { rollup, .. } => take_rollup(&rollup, unrun),
                }
            }
        }
        if let Some(fence) = self.fence.take() {
            take_rollup(&fence.rollup, unrun);
        }
        self.backlog.take_from(&mut inbox.queue);
        while let Some(entry) = self.backlog.pop() {
            match entry {
                Entry::Single { label, mode, key, work } => {
                    unrun.push(Unrun::single(label, Claim { key, mode }, work))
                }
                Entry::Free { label, work } => {
                    unrun.push(Unrun { claims: Claims::none(), work, seq: label.seq })
                }
                Entry::Part { rollup, .. } | Entry::Fence { rollup } => take_rollup(&rollup, unrun),
            }
        }
    }
}

/// A rollup stands in several lanes, and is found first in one of them.
fn take_rollup<K: Eq + Clone, W>(rollup: &Rollup<K, W>, unrun: &mut Vec<Unrun<K, W>>) {
    if let Some(work) = rollup.take_work() {
        unrun.push(Unrun { claims: rollup.claims(), work, seq: rollup.label.seq });
    }
}
