//! The order of one shard: which of its tasks may run, which run, and what waits behind them.
//!
//! A plain state machine. The engine keeps it under the shard's lock and calls no user code inside
//! but the key's `Eq` and `Clone`.

mod backlog;
mod check;
mod concurrency;
mod counts;
mod dequeue;
mod drain;
mod explain;
mod failures;
mod pause;
mod rate;
mod release;
mod successors;

pub(crate) use self::drain::{Debris, take_rollup};

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use hashbrown::HashTable;

use self::concurrency::ConcurrencyLimits;
pub(crate) use self::explain::{AheadCounts, FoundTask};
use self::failures::Failures;
pub(crate) use self::pause::{PauseReasons, Stop, TakenKey};
pub(crate) use self::rate::RateDeadline;
use self::rate::RateLimiter;
use super::hot_keys::HotKeys;
use super::lane_index::{LaneIndex, spread};
use super::rollup::Grant;
use super::segment_queue::DrainQueue;
use super::{
    Claims, Inbox, InboxEntry, KeyClaim, Mode, Repr, Role, Rollup, Scope, TaskMeta, TaskSlot,
};

/// The longest line whose memory is kept for the next lane in its slot.
const KEPT_CAPACITY: usize = 256;

/// Free slots that are kept. A shard seldom has more lanes than there are workers, and what a burst
/// of waiting rollups needed is given back.
const KEPT_SLOTS: usize = 64;

/// A delivery of fewer tasks than this was hardly worth two trips of the inbox between processors.
const MAX_DRY_REFILL: usize = 16;

/// The lanes of one shard, and its tasks that have not run.
#[derive(Debug)]
pub(crate) struct Lanes<K, W> {
    /// Finds a lane by its key; holds slots of `lanes`.
    index: LaneIndex,
    /// The keys with a task that runs, is ready, or waits behind one that does; and, in between,
    /// slots that are free.
    lanes: Vec<Lane<K, W>>,
    /// The free slots.
    free: Vec<usize>,
    /// Accepted tasks that no lane knows yet, oldest first. They enter their lanes only when a
    /// worker is free, so a key whose tasks wait for nothing but a worker has no lane.
    backlog: DrainQueue<InboxEntry<K, W>>,
    /// Tasks that have left their line and hold their lanes, and wait only for a worker.
    ready: VecDeque<ReadyTask<K, W>>,
    /// Tasks from the backlog that are to be taken before the next from `ready`.
    owed_to_fresh: usize,
    /// How much each key that is not waiting has run of late.
    hot_keys: HotKeys,
    /// Tasks without keys that were taken and have not ended.
    free_running: usize,
    /// A barrier that has been reached: nothing behind it is looked at until it ends.
    fence: Option<Fence<K, W>>,
    /// The lane that the inbox knows as pinned lane.
    pinned: Option<usize>,
    /// All of the backlog belongs to the pinned lane lane, so no other worker has a use for it.
    backlog_is_pinned: bool,
    /// Tasks that have ended here, whose slots at the gate nobody has collected.
    ended: usize,
    /// Parts of rollups that were entered and have not been given back.
    parts: usize,
    /// Something of the backlog was entered since somebody asked, and could not run, and a rollup may
    /// be why.
    passed: bool,
    /// How many tasks the last refill brought.
    last_refill: usize,
    /// Tasks that have their key and wait for the captures of what they have replaced to be dropped,
    /// by a submitter. In no line, and not in `ready`.
    replacing: Vec<Arc<Rollup<K, W>>>,
    /// The lanes that have a pause marker, by their slots, and why.
    held: BTreeMap<usize, PauseReasons>,
    /// Keys whose last task has failed, where that counts.
    failures: HashTable<Failures<K>>,
    /// What the holders of limited lanes want.
    limits: ConcurrencyLimits,
    /// How often tasks of a key may begin, once any key has a rate.
    limiter: Option<Box<RateLimiter<K>>>,
    /// A step has more to do here than to end a task and find the next.
    pub(crate) is_checked: bool,
    /// The pool was stopped: what holds keys is no longer noted.
    #[cfg(debug_assertions)]
    is_emptied: bool,
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
    waiting: VecDeque<LaneEntry<K, W>>,
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
    /// So many, and the least that any of them wants there to be.
    Limited { count: u16, least: u16 },
    /// A pause marker, for the key is held.
    PauseMarker,
}

/// A task behind the holders of a lane.
#[derive(Debug)]
enum LaneEntry<K, W> {
    Task {
        meta: TaskMeta,
        mode: Mode,
        key: K,
        work: W,
    },
    Part {
        rollup: Arc<Rollup<K, W>>,
        claim: usize,
    },
    /// What holds the key next, and runs nothing: the key is held. Always the first of its line.
    PauseMarker,
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
struct ReadyTask<K, W> {
    work: W,
    key: Option<K>,
    meta: TaskMeta,
    held: Held<K, W>,
}

/// What has become of a task whose part in a lane comes to hold it.
enum Granted<K, W> {
    /// It holds all that it needs.
    Ready(ReadyTask<K, W>),
    /// It has its part, and waits for others. Or the pool was stopped, and somebody has its work.
    Pending,
    /// It has its key, and waits for the captures of what it has replaced to be dropped.
    Replacing,
    /// It was a tombstone: it holds nothing.
    Tombstone,
}

impl<K: Eq + Clone, W> Granted<K, W> {
    /// Grants a part of a rollup. The last grant makes it a task to run.
    fn part_of(rollup: &Arc<Rollup<K, W>>) -> Self {
        let has_role = rollup.role != Role::None;
        if has_role {
            return match rollup.grant_role() {
                Grant::Work(work) => Granted::Ready(ReadyTask::all_of(rollup, work)),
                Grant::Replacing => Granted::Replacing,
                Grant::Nothing => Granted::Tombstone,
            };
        }
        if !rollup.grant() {
            return Granted::Pending;
        }
        Self::all_of(rollup).map_or(Granted::Pending, Granted::Ready)
    }

    /// A rollup that waits for nothing any more, to be run.
    fn all_of(rollup: &Arc<Rollup<K, W>>) -> Option<ReadyTask<K, W>> {
        rollup.take_work().map(|work| ReadyTask::all_of(rollup, work))
    }

    fn is_tombstone(&self) -> bool {
        matches!(self, Granted::Tombstone)
    }

    fn ready(self) -> Option<ReadyTask<K, W>> {
        match self {
            Granted::Ready(ready) => Some(ready),
            Granted::Pending | Granted::Replacing | Granted::Tombstone => None,
        }
    }
}

impl<K: Clone + Eq, W> ReadyTask<K, W> {
    /// A rollup that has all its lanes.
    fn all_of(rollup: &Arc<Rollup<K, W>>, work: W) -> Self {
        let key = (rollup.role != Role::None).then(|| rollup.claim(0).1.clone());
        let held = Held::Rollup(rollup.clone());
        ReadyTask { work, key, meta: rollup.meta, held }
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

/// What has come in the place of a task that has ended.
pub(crate) struct Replaced<K> {
    /// It is the next task of its lane; else one of another key, whose lane has the slot now.
    pub(crate) goes_on: bool,
    /// The key of the lane that has ended, to be dropped outside the lock.
    pub(crate) left: Option<K>,
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
    fn single(meta: TaskMeta, claim: KeyClaim<K>, work: W) -> Self {
        Unrun { claims: Claims(Repr::One(claim)), work, seq: meta.seq }
    }
}

impl<K, W> Lanes<K, W> {
    /// `quantum` is how many tasks a key may run before those of others that came later.
    pub(crate) fn new(quantum: usize) -> Self {
        Lanes {
            index: LaneIndex::new(),
            lanes: Vec::new(),
            free: Vec::new(),
            backlog: DrainQueue::default(),
            ready: VecDeque::new(),
            owed_to_fresh: 0,
            hot_keys: HotKeys::new(quantum),
            free_running: 0,
            fence: None,
            pinned: None,
            backlog_is_pinned: false,
            ended: 0,
            parts: 0,
            passed: false,
            last_refill: 0,
            replacing: Vec::new(),
            held: BTreeMap::new(),
            failures: HashTable::new(),
            limits: ConcurrencyLimits::default(),
            limiter: None,
            is_checked: false,
            #[cfg(debug_assertions)]
            is_emptied: false,
        }
    }
}

impl Holders {
    fn count(self) -> usize {
        match self {
            Holders::Exclusive => 1,
            Holders::Shared(count) => count,
            Holders::Limited { count, .. } => count.into(),
            Holders::PauseMarker => 0,
        }
    }

    fn mode(self) -> Mode {
        match self {
            Holders::Exclusive | Holders::PauseMarker => Mode::Exclusive,
            Holders::Shared(_) => Mode::Shared,
            Holders::Limited { least, .. } => Mode::Limited(least),
        }
    }
}

impl<K: Eq, W> Lane<K, W> {
    /// Whether a task has this key, exclusively.
    #[inline]
    fn is_of(&self, entry: &InboxEntry<K, W>) -> bool {
        self.key.as_ref().is_some_and(|key| entry.is_exclusive_on(self.hash, key))
    }

    /// How many tasks hold it, or wait for it.
    fn tasks(&self) -> usize {
        self.holders.count() + self.waiting.iter().filter(|waiting| waiting.is_task()).count()
    }

    /// Whether nothing of its key begins.
    fn is_on_hold(&self) -> bool {
        self.holders == Holders::PauseMarker
            || matches!(self.waiting.front(), Some(LaneEntry::PauseMarker))
    }
}

impl<K, W> LaneEntry<K, W> {
    fn is_part_of(&self, this: &Arc<Rollup<K, W>>) -> bool {
        matches!(self, LaneEntry::Part { rollup, .. } if Arc::ptr_eq(rollup, this))
    }

    fn mode(&self) -> Mode {
        match self {
            LaneEntry::Task { mode, .. } => *mode,
            LaneEntry::Part { rollup, claim } => match &rollup.scope {
                Scope::Keys(claims) => claims[*claim].1.mode,
                Scope::Unkeyed { .. } | Scope::Everything { .. } => {
                    unreachable!("it stands in no lane")
                }
            },
            LaneEntry::PauseMarker => Mode::Exclusive,
        }
    }

    /// It is a task, and not a pause marker or a tombstone.
    fn is_task(&self) -> bool
    where
        K: Eq,
    {
        match self {
            LaneEntry::Task { .. } => true,
            LaneEntry::Part { rollup, .. } => !rollup.is_tombstone(),
            LaneEntry::PauseMarker => false,
        }
    }

    /// When the task was submitted, by the pool's clock.
    fn time(&self) -> u32 {
        match self {
            LaneEntry::Task { meta, .. } => meta.time,
            LaneEntry::Part { rollup, .. } => rollup.meta.time,
            LaneEntry::PauseMarker => unreachable!("a pause marker is no task"),
        }
    }
}
