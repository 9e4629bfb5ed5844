//! Timer thread: fires each alarm when its time has come, and never misses one.
//!
//! # Protocol
//! 1. Set: under the lock, cancel the previous alarm, if any, and insert the new one; if that is
//!    now the first, unpark the thread afterwards.
//! 2. Thread: under the lock, remove the due alarms; then fire them, or, if there are none, park
//!    until the first is due; repeat.
//! 3. End: under the lock, set `over`; unpark the thread.
//!
//! # Why no alarm is missed
//! The thread parks at most until the first alarm that it has seen. An alarm that it has not seen
//! was inserted under the lock afterwards, so its setter unparks the thread if it is earlier than
//! that one, and an unpark before the park makes the park return at once. If the thread has not
//! registered as `runner` yet, it has not read the alarms yet. The same holds for the end. A
//! manually advanced clock unparks all its listeners, and the thread listens before its first read.
//!
//! # Why no alarm is cancelled in place of another
//! Alarms are decided under other locks, and set here after those are released. Two decisions about
//! one item, one after the other, may so arrive in either order; and the later may set an alarm for
//! the same time as the one that the earlier cancels. Equal alarms are therefore counted: setting
//! adds one and cancelling subtracts one, so that finally the count is right.
//!
//! An alarm that is cancelled before it is set may subtract from another setter's, and compensates
//! when it is set. If there was no other, it fires once too often, and its handler finds nothing to
//! do. An alarm that is cancelled after it has fired may subtract from one that another setter has
//! inserted since. But that one was decided before the handler ran, under the lock of the deciding
//! thread, so the handler has already processed it: later decisions have a later time.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;

use super::TimeSource;
use crate::sync::{JoinHandle, Mutex, Thread, current, spawn, this_thread};

/// Alarms, and the thread that fires them, once it is started.
#[derive(Debug)]
pub(crate) struct Timer<T> {
    state: Mutex<TimerState<T>>,
    /// Timer thread, between its start and its end.
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct TimerState<T> {
    /// Alarms by time, each with the number of its setters. It fires once for all of them.
    alarms: BTreeMap<(u64, T), usize>,
    /// Set once: no further alarm fires.
    over: bool,
    /// Thread to unpark. Set by the thread before it reads the alarms for the first time.
    runner: Option<Thread>,
}

impl<T: Ord> TimerState<T> {
    /// Cancels an alarm for one of its setters.
    fn cancel(&mut self, alarm: (u64, T)) {
        if let Entry::Occupied(mut set) = self.alarms.entry(alarm) {
            *set.get_mut() -= 1;
            if *set.get() == 0 {
                set.remove();
            }
        }
    }

    /// Time of the first alarm.
    fn next(&self) -> Option<u64> {
        self.alarms.first_key_value().map(|((at, _), _)| *at)
    }
}

impl<T: Ord + Copy> Timer<T> {
    pub(crate) fn new() -> Self {
        let state = TimerState { alarms: BTreeMap::new(), over: false, runner: None };
        Timer { state: Mutex::new(state), thread: Mutex::new(None) }
    }

    /// Starts the thread, unless it runs already or the timer has ended. It must call
    /// [`run`](Self::run).
    pub(crate) fn start(
        &self,
        name: String,
        run: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        let mut thread = self.thread.lock();
        if thread.is_none() && !self.state.lock().over {
            *thread = Some(spawn(name, None, run)?);
        }
        Ok(())
    }

    /// Step 1. Cancels the alarm of `what` at `was`, and sets one at `at`.
    pub(crate) fn set(&self, was: Option<u64>, at: Option<u64>, what: T) {
        let mut state = self.state.lock();
        if let Some(was) = was {
            state.cancel((was, what));
        }
        let Some(at) = at else { return };
        let is_first = state.next().is_none_or(|first| at < first);
        *state.alarms.entry((at, what)).or_default() += 1;
        let runner = if is_first { state.runner.clone() } else { None };
        drop(state);
        runner.inspect(Thread::unpark);
    }

    /// Step 2, until the timer ends.
    pub(crate) fn run(&self, time: &TimeSource, mut fire: impl FnMut(T)) {
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
            while let Some(first) = state.alarms.first_entry()
                && first.key().0 <= now
            {
                let (_, what) = first.remove_entry().0;
                due.push(what);
            }
            let next = state.next();
            drop(state);
            if due.is_empty() {
                time.park_until(next);
            }
            due.drain(..).for_each(&mut fire);
        }
        time.unlisten(listener);
    }

    /// Step 3.
    pub(crate) fn end(&self) {
        let mut state = self.state.lock();
        state.over = true;
        state.alarms = BTreeMap::new();
        let runner = state.runner.clone();
        drop(state);
        runner.inspect(Thread::unpark);
    }

    /// Waits until the thread has ended, unless it is the caller. Call [`end`](Self::end) before.
    pub(crate) fn join(&self) {
        let thread = self.thread.lock().take();
        if let Some(thread) = thread
            && thread.thread().id() != this_thread()
        {
            // The thread runs no user code except the drop of keys, which must not panic.
            let _ = thread.join();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::run::MockClock;

    /// Returns the alarms that fire up to a time, after which the timer ends.
    fn fired_by(timer: &Timer<u32>, at: u64) -> Vec<u32> {
        const LAST: u32 = u32::MAX;
        timer.set(None, Some(at), LAST);
        let clock = MockClock::new();
        clock.advance(Duration::from_nanos(at));
        let mut fired = Vec::new();
        timer.run(&TimeSource::new(Some(clock)), |what| match what {
            LAST => timer.end(),
            what => fired.push(what),
        });
        fired
    }

    /// Regression test: equal alarms of two setters were one, and a late cancellation by one of
    /// them cancelled the other's.
    #[test]
    fn cancelling_leaves_equal_alarms_of_other_setters() {
        let timer = Timer::new();
        timer.set(None, Some(5), 1);
        timer.set(None, Some(5), 1);
        timer.set(Some(5), None, 1);
        assert_eq!(fired_by(&timer, 9), [1]);
    }

    #[test]
    fn cancelled_alarms_do_not_fire() {
        let timer = Timer::new();
        for what in [1, 2] {
            timer.set(None, Some(5), what);
            timer.set(None, Some(5), what);
        }
        timer.set(Some(5), None, 1);
        timer.set(Some(5), Some(7), 1);
        timer.set(Some(5), None, 2);
        timer.set(Some(6), None, 2);
        assert_eq!(fired_by(&timer, 9), [2, 1], "each at its time, and once");
    }
}
