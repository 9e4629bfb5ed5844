//! Wait-for graph of tasks that wait inside for other tasks: refuses a wait that would close a
//! cycle.
//!
//! The order defines which tasks are behind a running one. A running task that waits for another
//! one adds an edge: every task behind it is also behind the awaited one. A cycle of such edges and
//! those of the order would never end, so the wait that would close it is refused.
//!
//! # Protocol
//! 1. A task that is about to wait without a deadline registers its wait, under the lock, and gets
//!    a number.
//! 2. It then checks whether the awaited task is behind it, considering all waits with a smaller
//!    number. Meanwhile it holds no lock except those of the shards, one at a time.
//! 3. If so, it removes its registration, and the wait is refused. Otherwise it waits, and removes
//!    its registration afterwards.
//!
//! # Why every cycle is refused, and only cycles are
//! An edge of the order exists from the submission of the later of its tasks, which is before any
//! task waits for that one. The last edge of a future cycle is therefore a wait, and the wait with
//! the greatest number of the cycle sees all others, which are registered by then. A registered
//! wait lasts until the awaited task ends, because it has no deadline, and tasks that were behind
//! its task stay so meanwhile. A found cycle is therefore real if all of its waits are still
//! registered afterwards; otherwise the check is repeated. (A wait that has ended stays registered
//! for a moment. Its awaited task has ended, so no path leads through it.)
//!
//! A wait with a deadline is refused if it would close a cycle, but is never registered, because it
//! ends by itself.
//!
//! # Futures
//! A future that awaits a handle may progress for another reason, such as a timeout or the second
//! branch of a selection. Its wait is *soft*: registered from a poll that is pending until the next
//! poll, the drop of the handle or the end of the task. No wait is refused because of a soft one,
//! so there are no false errors; a cycle with a soft wait is only reported by diagnoses
//! ([`WaitingTask::is_in_cycle`]).

use std::cell::RefCell;
use std::sync::Arc;

use super::current::{EngineHooks, OrderPosition};
use crate::sync::{StaticLock, ThreadId, this_thread};

/// Waits in all pools of the process, because a cycle may lead through several.
static WAITS: StaticLock<RegisteredWaits> =
    StaticLock::new(RegisteredWaits { last: 0, waits: Vec::new(), soft: Vec::new() });

struct RegisteredWaits {
    /// Number of the last registered wait.
    last: u64,
    /// Registered waits, the earliest first.
    waits: Vec<WaitEdge>,
    /// Soft waits, in no order.
    soft: Vec<WaitEdge>,
}

/// Wait of a task for another one.
#[derive(Clone)]
struct WaitEdge {
    number: u64,
    waiter: WaitingTask,
    /// Name of the awaited task.
    awaited: usize,
    /// Waiting thread.
    thread: ThreadId,
}

/// Running task that waits, or checks whether it may.
#[derive(Clone)]
pub(crate) struct WaitingTask {
    /// Pool of the task.
    pub(crate) hooks: Arc<dyn EngineHooks>,
    /// Position of the task in the order of the pool.
    pub(crate) position: OrderPosition,
    /// Name of the task, if it has a handle.
    pub(crate) name: Option<usize>,
}

/// Task to be waited for.
#[derive(Clone, Copy)]
pub(crate) struct AwaitedTask {
    pub(crate) name: usize,
    /// Whether the task runs or has ended, so that it is behind no other.
    pub(crate) has_started: bool,
}

/// Registered wait. Dropping it removes the registration.
pub(crate) struct RegisteredWait(u64);

impl Drop for RegisteredWait {
    fn drop(&mut self) {
        WAITS.lock().waits.retain(|wait| wait.number != self.0);
    }
}

/// Registered soft wait. Dropping it removes the registration.
pub(crate) struct SoftWait(u64);

impl Drop for SoftWait {
    fn drop(&mut self) {
        drop(remove_soft(|wait| wait.number == self.0));
    }
}

/// Removes soft waits. They are to be dropped when nothing is locked: a position can have the last
/// reference to a user's keys.
fn remove_soft(is_it: impl FnMut(&mut WaitEdge) -> bool) -> Vec<WaitEdge> {
    WAITS.lock().soft.extract_if(.., is_it).collect()
}

/// Removes the soft waits of a task that has ended. Its handles may live on elsewhere.
#[cfg(feature = "tokio")]
pub(crate) fn forget_soft_waits(name: usize) {
    drop(remove_soft(|wait| wait.waiter.name == Some(name)));
}

/// Returns whether a task of this engine, for which `is_it` returns true, awaits a handle in a
/// future.
pub(crate) fn has_soft_wait(engine: usize, is_it: impl Fn(&OrderPosition) -> bool) -> bool {
    let registered = WAITS.lock();
    let mut soft = registered.soft.iter().map(|wait| &wait.waiter);
    soft.any(|waiter| waiter.hooks.engine() == engine && is_it(&waiter.position))
}

/// Returns the task with this name if it awaits a handle in a future.
pub(crate) fn soft_waiter(name: usize) -> Option<WaitingTask> {
    let registered = WAITS.lock();
    let found = registered.soft.iter().find(|wait| wait.waiter.name == Some(name));
    found.map(|wait| wait.waiter.clone())
}

/// Returns the tasks of this engine that are on a cycle with a soft wait, among those for which
/// `is_it` returns true.
pub(crate) fn tasks_in_cycles(
    engine: usize,
    is_it: impl Fn(&OrderPosition) -> bool,
) -> Vec<WaitingTask> {
    let candidates: Vec<_> = {
        let registered = WAITS.lock();
        if registered.soft.is_empty() {
            return Vec::new();
        }
        let all = registered.waits.iter().chain(&registered.soft).map(|wait| &wait.waiter);
        all.filter(|it| it.hooks.engine() == engine && is_it(&it.position)).cloned().collect()
    };
    candidates.into_iter().take(MAX_CYCLES_CHECKED).filter(WaitingTask::is_in_cycle).collect()
}

/// Maximum number of tasks that are checked for a cycle at a time: each check follows the lanes.
const MAX_CYCLES_CHECKED: usize = 64;

impl WaitingTask {
    /// Registers the wait of a future for the task with this name.
    pub(crate) fn wait_softly(self, awaited: usize) -> SoftWait {
        let mut registered = WAITS.lock();
        registered.last += 1;
        let number = registered.last;
        registered.soft.push(WaitEdge { number, waiter: self, awaited, thread: this_thread() });
        SoftWait(number)
    }

    /// Returns whether this task waits for itself, directly or through others, if each future on
    /// the way waits for nothing but the handle that it awaits.
    pub(crate) fn is_in_cycle(&self) -> bool {
        let all: Vec<_> = {
            let registered = WAITS.lock();
            registered.waits.iter().chain(&registered.soft).cloned().collect()
        };
        all.iter().filter(|own| own.waiter.is(self)).any(|own| {
            let others = all.iter().filter(|wait| wait.number != own.number).cloned().collect();
            let mut through = vec![own.number];
            let awaited = AwaitedTask { name: own.awaited, has_started: false };
            // As in `closes_cycle`: the cycle was real if all of its waits are still registered.
            self.must_end_before(awaited, others, &mut through) && are_registered(&through)
        })
    }

    /// Returns whether both are the same running task.
    fn is(&self, other: &WaitingTask) -> bool {
        self.hooks.engine() == other.hooks.engine()
            && match (self.name, other.name) {
                (Some(own), Some(others)) => own == others,
                _ => self.position.is(&other.position),
            }
    }

    /// Registers a wait for the task with this name. Returns `None` if the wait would never end.
    pub(crate) fn wait_for(self, awaited: AwaitedTask) -> Option<RegisteredWait> {
        let mut registered = WAITS.lock();
        registered.last += 1;
        let number = registered.last;
        let wait =
            WaitEdge { number, waiter: self.clone(), awaited: awaited.name, thread: this_thread() };
        registered.waits.push(wait);
        drop(registered);
        let registered = RegisteredWait(number);
        (!self.closes_cycle(awaited, number)).then_some(registered)
    }

    /// Returns whether the task with this name waits, directly or not, for this one to end.
    pub(crate) fn is_awaited_by(&self, awaited: AwaitedTask) -> bool {
        self.closes_cycle(awaited, u64::MAX)
    }

    /// Step 2.
    fn closes_cycle(&self, awaited: AwaitedTask, number: u64) -> bool {
        loop {
            let mut others = WAITS.lock().waits.clone();
            others.retain(|wait| wait.number < number);
            let mut through = Vec::new();
            if !self.must_end_before(awaited, others, &mut through) {
                return false;
            }
            // A task whose wait is still registered has kept its position all the time. The
            // position of another may have passed to a later task meanwhile.
            let registered = WAITS.lock();
            let is_registered = |it: &u64| registered.waits.iter().any(|wait| wait.number == *it);
            if through.iter().all(is_registered) {
                return true;
            }
        }
    }

    /// Returns whether the task with this name cannot end before this one does. Adds the numbers of
    /// the waits on the path to `through`.
    fn must_end_before(
        &self,
        awaited: AwaitedTask,
        mut others: Vec<WaitEdge>,
        through: &mut Vec<u64>,
    ) -> bool {
        // Tasks that cannot end before this one does, and those of them whose successors have not
        // been visited yet.
        let (mut names, mut frontier) = (Vec::from_iter(self.name), vec![self.clone()]);
        loop {
            if names.contains(&awaited.name) {
                return true;
            }
            if awaited.has_started && others.is_empty() {
                // A running task is behind no other and no wait leads further: skip the search,
                // which is slow for long queues.
                return false;
            }
            let behind = RefCell::new(Vec::new());
            if let Some(front) = frontier.pop() {
                let is_behind = front.hooks.is_behind(&front.position, &|name| {
                    if others.iter().any(|wait| wait.awaited == name) {
                        behind.borrow_mut().push(name);
                    }
                    name == awaited.name
                });
                if is_behind {
                    return true;
                }
            } else if !others.iter().any(|wait| names.contains(&wait.awaited)) {
                return false;
            }
            let behind = behind.into_inner();
            others.retain(|wait| {
                let is_blocked = names.contains(&wait.awaited) || behind.contains(&wait.awaited);
                if is_blocked {
                    through.push(wait.number);
                    names.extend(wait.waiter.name);
                    frontier.push(wait.waiter.clone());
                }
                !is_blocked
            });
        }
    }
}

/// Returns whether all of these waits, soft or not, are still registered.
fn are_registered(numbers: &[u64]) -> bool {
    let registered = WAITS.lock();
    let mut all = registered.waits.iter().chain(&registered.soft).map(|wait| wait.number);
    let all: Vec<_> = all.by_ref().collect();
    numbers.iter().all(|number| all.contains(number))
}

/// Returns the threads of the registered waits.
pub(crate) fn waiting_threads() -> Vec<ThreadId> {
    WAITS.lock().waits.iter().map(|wait| wait.thread).collect()
}
