//! Which tasks wait inside for which others: the edges that the order does not have.
//!
//! The order knows which tasks are behind a running one. A task that runs and waits for another one adds an edge:
//! all that is behind it is behind that other one as well. A cycle of such edges and the order's would last for
//! ever, so the wait that would close it is refused.
//!
//! # Protocol
//! 1. A task that is about to wait without a deadline notes its wait, under the lock, and gets a number.
//! 2. Then it asks whether the awaited task is behind it, with all waits in mind that have a smaller number. No
//!    lock is held meanwhile but, one at a time, those of the shards.
//! 3. If so it takes its note back, and the wait is refused. Else it waits, and takes its note back afterwards.
//!
//! # Why every cycle is refused, and only cycles are
//! An edge of the order is there from when the later of its tasks was submitted, which is before anybody waits for
//! that. So the last edge of a cycle to come is a wait, and the wait with the greatest number of the cycle sees all
//! others, which are noted by then. A wait that is noted lasts until the awaited task ends, for it has no deadline,
//! and what was behind its task stays so meanwhile. So a cycle is one if all of its waits are still noted when it
//! has been found; else the wait looks again. (A wait that has ended is noted for a moment longer. What it has
//! awaited has ended, so nothing is found through it.)
//!
//! A wait with a deadline is refused if it would close a cycle, and is never noted: others may count on its end. A
//! future that awaits a handle may go on for another reason, so it is not noted either.

use std::cell::RefCell;
use std::sync::Arc;

use super::current::{EngineHooks, Position};
use crate::sync::{Global, ThreadId, this_thread};

/// The waits of all pools of the process: a cycle may lead through several.
static NOTED: Global<Noted> = Global::new(Noted { last: 0, waits: Vec::new() });

struct Noted {
    /// The number of the last wait that was noted.
    last: u64,
    /// Those that go on, the earliest first.
    waits: Vec<Wait>,
}

/// A task that waits for another one.
#[derive(Clone)]
struct Wait {
    number: u64,
    waiter: WaitingTask,
    /// The name of the awaited task.
    awaited: usize,
    /// The thread that waits.
    thread: ThreadId,
}

/// A running task that waits, or asks whether it may.
#[derive(Clone)]
pub(crate) struct WaitingTask {
    /// Its pool.
    pub(crate) hooks: Arc<dyn EngineHooks>,
    /// Its place in the order of the pool.
    pub(crate) position: Position,
    /// Its name, if it has a handle.
    pub(crate) name: Option<usize>,
}

/// A task that is to be waited for.
#[derive(Clone, Copy)]
pub(crate) struct AwaitedTask {
    pub(crate) name: usize,
    /// It runs, or has ended: it is behind nothing any more.
    pub(crate) has_begun: bool,
}

/// A wait that others take into account. Dropped, it is forgotten.
pub(crate) struct NotedWait(u64);

impl Drop for NotedWait {
    fn drop(&mut self) {
        NOTED.lock().waits.retain(|wait| wait.number != self.0);
    }
}

impl WaitingTask {
    /// Notes that the task waits for the one with this name; or nothing, if it would wait for ever.
    pub(crate) fn wait_for(self, awaited: AwaitedTask) -> Option<NotedWait> {
        let mut noted = NOTED.lock();
        noted.last += 1;
        let number = noted.last;
        let wait =
            Wait { number, waiter: self.clone(), awaited: awaited.name, thread: this_thread() };
        noted.waits.push(wait);
        drop(noted);
        let noted = NotedWait(number);
        (!self.would_wait_for_ever(awaited, number)).then_some(noted)
    }

    /// Whether the task with this name waits, in the end, for this one to end.
    pub(crate) fn is_awaited_by(&self, awaited: AwaitedTask) -> bool {
        self.would_wait_for_ever(awaited, u64::MAX)
    }

    /// Step 2.
    fn would_wait_for_ever(&self, awaited: AwaitedTask, number: u64) -> bool {
        loop {
            let mut others = NOTED.lock().waits.clone();
            others.retain(|wait| wait.number < number);
            let mut through = Vec::new();
            if !self.holds_up(awaited, others, &mut through) {
                return false;
            }
            // A task whose wait is noted still has had its place all the time. That of another may have been
            // another's already.
            let noted = NOTED.lock();
            let is_noted = |it: &u64| noted.waits.iter().any(|wait| wait.number == *it);
            if through.iter().all(is_noted) {
                return true;
            }
        }
    }

    /// Whether the task with this name can't end before this one does. Notes the numbers of those of the other
    /// waits that were followed.
    fn holds_up(
        &self,
        awaited: AwaitedTask,
        mut others: Vec<Wait>,
        through: &mut Vec<u64>,
    ) -> bool {
        // Tasks that can't end before this one does, and those of them behind which no look was taken yet.
        let (mut names, mut fronts) = (Vec::from_iter(self.name), vec![self.clone()]);
        loop {
            if names.contains(&awaited.name) {
                return true;
            }
            if awaited.has_begun && others.is_empty() {
                // No look behind it is needed, which takes time where much is queued.
                return false;
            }
            let behind = RefCell::new(Vec::new());
            if let Some(front) = fronts.pop() {
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
                let held_up = names.contains(&wait.awaited) || behind.contains(&wait.awaited);
                if held_up {
                    through.push(wait.number);
                    names.extend(wait.waiter.name);
                    fronts.push(wait.waiter.clone());
                }
                !held_up
            });
        }
    }
}

/// The threads on which tasks wait for others.
pub(crate) fn waiting_threads() -> Vec<ThreadId> {
    NOTED.lock().waits.iter().map(|wait| wait.thread).collect()
}
