//! Order of one shard: decides which of its tasks may run, and keeps those that run or wait.
//!
//! A plain state machine. The engine keeps it under the shard's lock; the only user code that is
//! called inside is the key's `Eq` and `Clone`. `failed.rs` has what happens if one panics.

mod backlog;
mod check;
mod concurrency;
mod counts;
mod dequeue;
mod drain;
mod explain;
mod failed;
mod pause;
mod rate;
mod release;
mod successors;

pub(crate) use self::drain::{ClearedShard, UnrunTasks, take_rollup};

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use hashbrown::HashTable;

pub(crate) use self::explain::{AheadCounts, FoundTask};
pub(crate) use self::failed::{FailedOwner, FailedTask};
pub(crate) use self::pause::{KeyStop, PauseReasons, TakenTasks};
use super::concurrency_limits::ConcurrencyLimits;
use super::failure_counts::FailureCounts;
use super::hot_keys::HotKeys;
use super::lane_index::{LaneIndex, spread};
use super::rate_limiter::RateLimiter;
use super::ready_queue::ReadyQueue;
use super::rollup::RoleGrant;
use super::segment_queue::DrainQueue;
use super::{
    ClaimMode, Claims, ClaimsRepr, Inbox, InboxEntry, KeyClaim, MarkerRole, PartPlace,
    RateDeadline, ReplacingEnd, Rollup, RollupPart, RollupScope, TaskMeta, TaskSlot,
};
use crate::unwind::{KeyPanic, catch_key_panic};

/// Largest capacity of a wait queue that is kept for the next lane in the same slot.
const KEPT_CAPACITY: usize = 256;

/// Largest number of slots that are kept while no lane is open. A shard seldom has more lanes than
/// there are workers; the memory of a burst of waiting rollups is returned.
const KEPT_SLOTS: usize = 64;

/// Refills with fewer tasks than this hardly pay for moving the inbox between two processors and
/// back.
const MAX_DRY_REFILL: usize = 16;

/// Lanes of one shard, and its tasks that have not run.
#[derive(Debug)]
pub(crate) struct Lanes<K, W> {
    /// Finds the slot in `lanes` of a key.
    index: LaneIndex,
    /// Lanes by slot: one for each key with a task that runs, is ready, or waits behind one that
    /// does. Some slots are free.
    lanes: Vec<Lane<K, W>>,
    /// Free slots of `lanes`.
    free: Vec<usize>,
    /// Accepted tasks that have not been entered into a lane, oldest first. A task is entered only
    /// when a worker is free, so a key whose tasks wait only for a worker has no lane.
    backlog: DrainQueue<InboxEntry<K, W>>,
    /// Ready queue: tasks that hold their lanes and wait only for a worker. In the order of
    /// submission, if tasks begin so.
    ready: ReadyQueue<ReadyTask<K, W>>,
    /// Number of backlog tasks to take before the next task of `ready`.
    backlog_turns: usize,
    /// Recent run counts of keys that have no wait queue.
    hot_keys: HotKeys,
    /// Number of tasks without keys that were taken and have not ended.
    free_running: usize,
    /// Barrier that has been reached, or failed task. No backlog entry is entered until the barrier
    /// ends, or the task is dropped.
    fence: Option<EntryFence<K, W>>,
    /// Task that has failed because a key panicked when it was entered, for the caller to end
    /// outside of the lock. The fence is up meanwhile.
    failed: Option<FailedTask<K, W>>,
    /// Payloads of panics of keys that have cost no task, for the caller to report.
    key_panics: RefCell<Vec<KeyPanic>>,
    /// Slot of the pinned lane, as the inbox knows it.
    pinned: Option<usize>,
    /// Whether the whole backlog belongs to the pinned lane, so that other workers find nothing to
    /// do in it.
    backlog_is_pinned: bool,
    /// Number of tasks that have ended here and whose permits were not yet returned to the
    /// admission gate.
    ended: usize,
    /// Number of entered parts of rollups that have not been released.
    parts: usize,
    /// Whether, since the last [`take_entered_blocked`](Self::take_entered_blocked), a backlog
    /// entry was entered that could not run while parts of rollups are held here.
    entered_blocked: bool,
    /// Number of tasks in the last refill.
    last_refill: usize,
    /// Latest tasks that hold their key until a submitter has dropped captures of their replaced
    /// work. They are in no wait queue, and not in `ready`.
    replacing: Vec<Arc<Rollup<K, W>>>,
    /// Reasons of each paused lane, by slot. Exactly these lanes have a pause marker.
    paused: BTreeMap<usize, PauseReasons>,
    /// Consecutive failures of keys whose last task has failed, where failures are counted.
    failures: FailureCounts<K>,
    /// Concurrency limits that the holders of limited lanes ask for.
    limits: ConcurrencyLimits,
    /// Rate limits of keys. Absent until a key has a rate.
    limiter: Option<Box<RateLimiter<K>>>,
    /// Whether a step in this shard has more to do than to end a task and find the next one.
    pub(crate) is_checked: bool,
    /// Whether the pool was stopped: from then on pause reasons are no longer kept.
    #[cfg(debug_assertions)]
    is_emptied: bool,
}

/// Unfinished tasks of one key: its holders and its wait queue.
#[derive(Debug)]
struct Lane<K, W> {
    /// Half of the key's hash, as in [`TaskMeta::hash`].
    hash: u32,
    /// Key of the lane. Absent in a free slot.
    key: Option<K>,
    /// Tasks that hold the key. Undefined in a free slot.
    holders: LaneHolders,
    /// Wait queue behind the holders, oldest first. The first entry conflicts with the holders.
    waiting: VecDeque<LaneEntry<K, W>>,
    /// [`TaskMeta::time`] of the task that holds the lane, or of the last one to join.
    since: u32,
}

/// Tasks that hold a key. A lane without holders does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LaneHolders {
    /// One task, ready or running, or a rollup that may still wait for its other lanes.
    Exclusive,
    /// Number of tasks that share the key.
    Shared(usize),
    /// Number of tasks that limit the key, and the least limit that any of them asks for.
    Limited { count: u16, least: u16 },
    /// Pause marker: the key is paused, and nothing runs.
    PauseMarker,
}

/// Entry of a lane's wait queue.
#[derive(Debug)]
enum LaneEntry<K, W> {
    Task {
        meta: TaskMeta,
        mode: ClaimMode,
        key: K,
        work: W,
    },
    Part {
        rollup: Arc<Rollup<K, W>>,
        claim: usize,
    },
    /// Holder to come that runs nothing: the key is paused. Always the first entry of its wait
    /// queue.
    PauseMarker,
}

/// Reason why no entry of the backlog is entered.
#[derive(Debug)]
enum EntryFence<K, W> {
    /// A barrier has been reached.
    Barrier {
        rollup: Arc<Rollup<K, W>>,
        /// Whether every earlier task of this shard has ended.
        granted: bool,
    },
    /// A task has failed, and its captures are not dropped yet.
    FailedTask,
}

/// Task that holds its lanes and has no worker yet.
#[derive(Debug)]
struct ReadyTask<K, W> {
    work: W,
    /// Key of a task that holds a [lane](HeldLanes::Lane). Others have none, or their rollup has it.
    key: Option<K>,
    meta: TaskMeta,
    held: HeldLanes<K, W>,
}

/// Result of granting a lane to a part.
enum GrantResult<K, W> {
    /// The task holds all that it needs.
    Ready(ReadyTask<K, W>),
    /// The task waits for other parts. Or the pool was stopped, and its work was already taken.
    Pending,
    /// The task, or what remains of it, holds its key until the captures of the replaced work are
    /// dropped.
    Replacing,
    /// The part belongs to a tombstone, which holds nothing.
    Tombstone,
}

impl<K: Eq + Clone, W> GrantResult<K, W> {
    /// Grants a part of a rollup. The last grant makes the rollup ready.
    fn part_of(rollup: &Arc<Rollup<K, W>>) -> Self {
        let has_role = rollup.role != MarkerRole::None;
        if has_role {
            return match rollup.grant_role() {
                RoleGrant::Work(work) => GrantResult::Ready(ReadyTask::all_of(rollup, work)),
                RoleGrant::Replacing => GrantResult::Replacing,
                RoleGrant::Nothing => GrantResult::Tombstone,
            };
        }
        if !rollup.grant() {
            return GrantResult::Pending;
        }
        Self::all_of(rollup).map_or(GrantResult::Pending, GrantResult::Ready)
    }

    /// Takes the work of a rollup that waits for nothing more.
    fn all_of(rollup: &Arc<Rollup<K, W>>) -> Option<ReadyTask<K, W>> {
        rollup.take_work().map(|work| ReadyTask::all_of(rollup, work))
    }

    fn is_tombstone(&self) -> bool {
        matches!(self, GrantResult::Tombstone)
    }

    fn ready(self) -> Option<ReadyTask<K, W>> {
        match self {
            GrantResult::Ready(ready) => Some(ready),
            GrantResult::Pending | GrantResult::Replacing | GrantResult::Tombstone => None,
        }
    }
}

impl<K: Clone + Eq, W> ReadyTask<K, W> {
    /// Creates the ready entry of a rollup that holds all its lanes.
    fn all_of(rollup: &Arc<Rollup<K, W>>, work: W) -> Self {
        let held = HeldLanes::Rollup(rollup.clone());
        ReadyTask { work, key: None, meta: rollup.meta, held }
    }
}

/// Lanes that a running task holds and releases when it ends.
#[derive(Debug)]
pub(crate) enum HeldLanes<K, W> {
    /// No lane.
    Free,
    /// Lane in this slot.
    Lane(usize),
    /// All lanes of a rollup, in several shards.
    Rollup(Arc<Rollup<K, W>>),
}

/// Result of [`Lanes::replace`]: the next task of a slot, after the task before it has ended.
pub(crate) struct ReplaceResult<K> {
    /// Whether the next task continues the same lane. Otherwise the slot now has the lane of
    /// another key.
    pub(crate) goes_on: bool,
    /// Key of the lane that has ended, for the caller to drop outside of the lock.
    pub(crate) left: Option<K>,
}

/// Accepted task that will not run.
#[derive(Debug)]
pub(crate) struct UnrunTask<K, W> {
    pub(crate) claims: Claims<K>,
    pub(crate) work: W,
    /// Number by which the tasks that a stop returns are sorted: the sequence number, or one that
    /// has the same relation to all tasks of its keys.
    pub(crate) number: u64,
}

impl<K, W> UnrunTask<K, W> {
    fn single(number: u64, claim: KeyClaim<K>, work: W) -> Self {
        UnrunTask { claims: Claims(ClaimsRepr::One(claim)), work, number }
    }
}

impl<K, W> Lanes<K, W> {
    /// Creates empty lanes. A key runs at most `quantum` tasks before later tasks of other keys get
    /// their turn.
    pub(crate) fn new(quantum: usize) -> Self {
        Lanes {
            index: LaneIndex::new(),
            lanes: Vec::new(),
            free: Vec::new(),
            backlog: DrainQueue::default(),
            ready: ReadyQueue::fifo(),
            backlog_turns: 0,
            hot_keys: HotKeys::new(quantum),
            free_running: 0,
            fence: None,
            failed: None,
            key_panics: RefCell::default(),
            pinned: None,
            backlog_is_pinned: false,
            ended: 0,
            parts: 0,
            entered_blocked: false,
            last_refill: 0,
            replacing: Vec::new(),
            paused: BTreeMap::new(),
            failures: FailureCounts::new(),
            limits: ConcurrencyLimits::default(),
            limiter: None,
            is_checked: false,
            #[cfg(debug_assertions)]
            is_emptied: false,
        }
    }

    /// Creates empty lanes whose tasks begin in the order of submission, without quanta.
    pub(crate) fn in_order() -> Self {
        Lanes { ready: ReadyQueue::sorted(), ..Lanes::new(usize::MAX) }
    }

    /// Returns whether tasks begin in the order of submission.
    #[inline]
    pub(crate) fn is_in_order(&self) -> bool {
        self.ready.is_sorted()
    }
}

impl LaneHolders {
    fn count(self) -> usize {
        match self {
            LaneHolders::Exclusive => 1,
            LaneHolders::Shared(count) => count,
            LaneHolders::Limited { count, .. } => count.into(),
            LaneHolders::PauseMarker => 0,
        }
    }

    fn mode(self) -> ClaimMode {
        match self {
            LaneHolders::Exclusive | LaneHolders::PauseMarker => ClaimMode::Exclusive,
            LaneHolders::Shared(_) => ClaimMode::Shared,
            LaneHolders::Limited { least, .. } => ClaimMode::Limited(least),
        }
    }
}

impl<K: Eq, W> Lane<K, W> {
    /// Returns whether an entry is a task that uses this lane's key exclusively.
    #[inline]
    fn is_of(&self, entry: &InboxEntry<K, W>) -> bool {
        self.key.as_ref().is_some_and(|key| entry.is_exclusive_on(self.hash, key))
    }

    /// Returns the number of tasks that hold the lane or wait for it.
    fn tasks(&self) -> usize {
        self.holders.count() + self.waiting.iter().filter(|waiting| waiting.is_task()).count()
    }

    /// Returns whether the key is paused, so that none of its tasks begins.
    fn is_paused(&self) -> bool {
        self.holders == LaneHolders::PauseMarker
            || matches!(self.waiting.front(), Some(LaneEntry::PauseMarker))
    }
}

impl<K, W> LaneEntry<K, W> {
    fn is_part_of(&self, this: &Arc<Rollup<K, W>>) -> bool {
        matches!(self, LaneEntry::Part { rollup, .. } if Arc::ptr_eq(rollup, this))
    }

    fn mode(&self) -> ClaimMode {
        match self {
            LaneEntry::Task { mode, .. } => *mode,
            LaneEntry::Part { rollup, claim } => match &rollup.scope {
                RollupScope::Keys(claims) => claims[*claim].claim.mode,
                RollupScope::Unkeyed { .. } | RollupScope::Everything { .. } => {
                    unreachable!("the rollup has no lane")
                }
            },
            LaneEntry::PauseMarker => ClaimMode::Exclusive,
        }
    }

    /// Returns whether the entry is a task, and not a pause marker or a tombstone.
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

    /// Returns the time of submission, on the pool's clock.
    fn time(&self) -> u32 {
        match self {
            LaneEntry::Task { meta, .. } => meta.time,
            LaneEntry::Part { rollup, .. } => rollup.meta.time,
            LaneEntry::PauseMarker => unreachable!("a pause marker is no task"),
        }
    }
}

impl<K: Eq + Clone, W> Lanes<K, W> {
    /// Counts a failed task that holds this lane. Returns the number of consecutive failures of its
    /// key, or nothing if the key has panicked.
    pub(crate) fn count_failure(&mut self, slot: usize) -> Option<u32> {
        let lane = &self.lanes[slot];
        let (hash, key) = (lane.hash, lane.key.as_ref().expect("a held lane has a key"));
        let counted = catch_key_panic(|| self.failures.count(hash, key));
        counted.map_err(|payload| note(&self.key_panics, payload)).ok()
    }

    /// Resets the count of the key of a held lane, and returns whether it had one. If the key
    /// panics, it keeps its count.
    pub(crate) fn forget_failures_in(&mut self, slot: usize) -> bool {
        let lane = &self.lanes[slot];
        let (hash, key) = (lane.hash, lane.key.as_ref().expect("a held lane has a key"));
        let forgot = catch_key_panic(|| self.failures.forget(hash, key));
        forgot.unwrap_or_else(|payload| {
            note(&self.key_panics, payload);
            false
        })
    }

    /// Resets the count of a key, and returns whether it had one.
    pub(crate) fn forget_failures(&mut self, hash: u32, key: &K) -> bool {
        self.failures.forget(hash, key)
    }
}

/// Notes a panic of a key that costs no task, where the lanes are partly borrowed.
#[cold]
fn note(panics: &RefCell<Vec<KeyPanic>>, payload: KeyPanic) {
    panics.borrow_mut().push(payload);
}
