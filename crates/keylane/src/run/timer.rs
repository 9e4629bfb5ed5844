//! A thread that does something when its time has come.
//!
//! # Protocol
//! 1. Set: under the lock write the alarm down; if it is the first, unpark the thread afterwards.
//! 2. The thread: under the lock take out what is due; then do that, or, if it was nothing, park until the
//!    first is due, and look again.
//! 3. End: under the lock raise `over`; unpark the thread.
//!
//! # Why no alarm is overlooked
//! The thread parks for no longer than until the first alarm that it has seen. One that it has not seen came
//! under the lock afterwards, so whoever set it unparks the thread if it comes before that one, and an unpark
//! that comes before the park makes that return at once. If the thread has not said who it is, it has yet to look. The
//! end is told alike. A clock that is advanced by hand unparks all who listen, and the thread does so
//! before it looks for the first time.

use std::collections::BTreeSet;
use std::io;
use std::thread::JoinHandle;

use super::Time;
use crate::sync::{Mutex, Thread, current};

/// Alarms, and the thread that sees to them, once there is one.
#[derive(Debug)]
pub(crate) struct Timer<T> {
    state: Mutex<State<T>>,
    /// Its thread, from its start to its end.
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct State<T> {
    /// What is to be done when, in the order of the times. Each is there once.
    alarms: BTreeSet<(u64, T)>,
    /// Nothing more is to be done. Raised once.
    over: bool,
    /// Whom to unpark. Written by the thread before it looks for the first time.
    runner: Option<Thread>,
}

impl<T: Ord + Copy> Timer<T> {
    pub(crate) fn new() -> Self {
        let state = State { alarms: BTreeSet::new(), over: false, runner: None };
        Timer { state: Mutex::new(state), thread: Mutex::new(None) }
    }

    /// Starts the thread, unless there is one, or it is over. It must [`run`](Self::run).
    pub(crate) fn start(
        &self,
        name: String,
        run: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        let mut thread = self.thread.lock();
        if thread.is_none() && !self.state.lock().over {
            *thread = Some(std::thread::Builder::new().name(name).spawn(run)?);
        }
        Ok(())
    }

    /// Step 1. `was` is an alarm of the same that need not come any more.
    pub(crate) fn set(&self, was: Option<u64>, at: Option<u64>, what: T) {
        let mut state = self.state.lock();
        if let Some(was) = was {
            state.alarms.remove(&(was, what));
        }
        let Some(at) = at else { return };
        let is_first = state.alarms.first().is_none_or(|(first, _)| at < *first);
        state.alarms.insert((at, what));
        let runner = if is_first { state.runner.clone() } else { None };
        drop(state);
        runner.inspect(Thread::unpark);
    }

    /// Step 2, until it is over.
    pub(crate) fn run(&self, time: &Time, mut fire: impl FnMut(T)) {
        let me = current();
        let listener = time.listen(&me);
        self.state.lock().runner = Some(me);
        let mut due = Vec::new();
        loop {
            let mut state = self.state.lock();
            if state.over {
                break;
            }
            let now = time.now();
            while let Some(&(at, what)) = state.alarms.first()
                && at <= now
            {
                state.alarms.pop_first();
                due.push(what);
            }
            let next = state.alarms.first().map(|(at, _)| *at);
            drop(state);
            if due.is_empty() {
                time.park_until(next);
            }
            due.drain(..).for_each(&mut fire);
        }
        time.forget(listener);
    }

    /// Step 3.
    pub(crate) fn end(&self) {
        let mut state = self.state.lock();
        state.over = true;
        state.alarms = BTreeSet::new();
        let runner = state.runner.clone();
        drop(state);
        runner.inspect(Thread::unpark);
    }

    /// Waits until the thread has ended, which was told to, unless it is the caller.
    pub(crate) fn join(&self) {
        let thread = self.thread.lock().take();
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
        {
            // It runs nothing of the user's but a key's drop, which must not panic.
            let _ = thread.join();
        }
    }
}
