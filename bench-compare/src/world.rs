//! Checks the contract of an ordered pool from inside the tasks: each task is the next of its key,
//! no other task is inside its key, and in the end every key has run all its tasks.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};
use std::thread::Thread;
use std::time::{Duration, Instant};

use crate::plan::Step;

/// One key, as the tasks see it. 16 bytes, four to a cache line, as small user state is.
#[derive(Default)]
struct KeyState {
    /// The place the next task must have. Written by the key's tasks only; the pool under test is
    /// what makes that safe, so no atomic read-modify-write is needed to notice when it does not.
    next: AtomicU32,
    /// The number of tasks that will come. Never changes.
    total: u32,
    /// 1 while a task that takes its time is inside.
    busy: AtomicU32,
    _to_16_bytes: u32,
}

/// All keys of one run, and what went wrong.
pub(crate) struct World {
    keys: Box<[KeyState]>,
    /// Keys with tasks still to run; the run ends at 0.
    unfinished: AtomicUsize,
    errors: AtomicUsize,
    /// The measured length of all sleeps together, in nanoseconds.
    slept: AtomicU64,
    /// The thread that made the world and waits for its end.
    waiter: Thread,
    gate_open: Mutex<bool>,
    gate: Condvar,
}

impl World {
    /// `totals[key]` tasks will run on each key. Leaked: tasks refer to it, the process ends soon.
    pub(crate) fn new(totals: &[u32]) -> &'static World {
        let keys = totals.iter().map(|&total| KeyState { total, ..KeyState::default() }).collect();
        Box::leak(Box::new(World {
            keys,
            unfinished: AtomicUsize::new(totals.iter().filter(|&&total| total > 0).count()),
            errors: AtomicUsize::new(0),
            slept: AtomicU64::new(0),
            waiter: std::thread::current(),
            gate_open: Mutex::new(false),
            gate: Condvar::new(),
        }))
    }

    /// The tiny task: a handful of loads, compares and one store.
    #[inline]
    pub(crate) fn step(&self, (key, place): Step) {
        let state = &self.keys[key as usize];
        let next = state.next.load(Ordering::Relaxed);
        if next != place || state.busy.load(Ordering::Relaxed) != 0 {
            self.error();
        }
        self.advance(state, next);
    }

    /// A task over four keys: the next on each, alone in each.
    pub(crate) fn step_all(&self, steps: &[Step; 4]) {
        for &(key, place) in steps {
            let state = &self.keys[key as usize];
            let alone = state.busy.swap(1, Ordering::Relaxed) == 0;
            if !alone || state.next.load(Ordering::Relaxed) != place {
                self.error();
            }
        }
        for &(key, _) in steps {
            let state = &self.keys[key as usize];
            state.busy.store(0, Ordering::Relaxed);
            self.advance(state, state.next.load(Ordering::Relaxed));
        }
    }

    /// The first half of a task that takes its time.
    pub(crate) fn enter(&self, key: u32) -> Instant {
        if self.keys[key as usize].busy.swap(1, Ordering::AcqRel) != 0 {
            self.error();
        }
        Instant::now()
    }

    /// The second half; `entered` is what [`World::enter`] returned.
    pub(crate) fn leave(&self, step: Step, entered: Instant) {
        self.slept.fetch_add(entered.elapsed().as_nanos() as u64, Ordering::Relaxed);
        self.keys[step.0 as usize].busy.store(0, Ordering::Release);
        self.step(step);
    }

    /// Holds the calling worker until [`World::open_gate`].
    #[cold]
    pub(crate) fn wait_at_gate(&self) {
        let mut open = self.gate_open.lock().expect("no task panics here");
        while !*open {
            open = self.gate.wait(open).expect("no task panics here");
        }
    }

    pub(crate) fn open_gate(&self) {
        *self.gate_open.lock().expect("no task panics here") = true;
        self.gate.notify_all();
    }

    /// Waits on the thread that made the world until every key is done; false past `limit`.
    pub(crate) fn wait(&self, limit: Duration) -> bool {
        assert_eq!(std::thread::current().id(), self.waiter.id(), "tasks unpark the maker only");
        let end = Instant::now() + limit;
        while !self.all_done() && Instant::now() < end {
            std::thread::park_timeout(Duration::from_millis(500));
        }
        self.all_done()
    }

    pub(crate) fn all_done(&self) -> bool {
        self.unfinished.load(Ordering::Acquire) == 0
    }

    pub(crate) fn order_errors(&self) -> usize {
        self.errors.load(Ordering::SeqCst)
    }

    pub(crate) fn slept(&self) -> Duration {
        Duration::from_nanos(self.slept.load(Ordering::SeqCst))
    }

    fn advance(&self, state: &KeyState, next: u32) {
        state.next.store(next + 1, Ordering::Relaxed);
        if next + 1 == state.total {
            self.key_done();
        }
    }

    #[cold]
    fn key_done(&self) {
        if self.unfinished.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.waiter.unpark();
        }
    }

    #[cold]
    fn error(&self) {
        self.errors.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_out_of_place_is_an_error() {
        let world = World::new(&[2]);
        world.step((0, 1));
        world.step((0, 0));
        assert_eq!(world.order_errors(), 2);
        assert!(world.all_done(), "both tasks ran, if in the wrong order");
    }

    #[test]
    fn two_tasks_inside_one_key_are_an_error() {
        let world = World::new(&[2]);
        let first = world.enter(0);
        let second = world.enter(0);
        world.leave((0, 0), first);
        world.leave((0, 1), second);
        assert_eq!(world.order_errors(), 1);
    }

    #[test]
    fn a_rollup_must_be_next_on_each_of_its_keys() {
        let world = World::new(&[2, 1, 1, 1]);
        world.step_all(&[(0, 1), (1, 0), (2, 0), (3, 0)]);
        assert_eq!(world.order_errors(), 1);
        assert!(!world.wait(Duration::ZERO), "key 0 has one more task");
    }
}
