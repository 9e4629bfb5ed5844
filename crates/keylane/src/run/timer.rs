//! A thread that does something when its time has come.
//!
//! # Protocol
//! 1. Set: under the lock take back the alarm that was there before, if any, and write the new one down; if that
//!    is the first, unpark the thread afterwards.
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
//!
//! # Why none is taken back for another
//! What is to be done when is decided under other locks, and told here when those are released. So what two
//! decide about one thing, one after the other, may come in either order; and the later may set an alarm for the
//! very moment of the one that the earlier takes back. Equal alarms are therefore counted: what is set adds one,
//! and what is taken back takes one off, so in the end there are as many as are wanted.
//!
//! One that is taken back before it is set may take off another's, and makes up for that when it is set. If there
//! was no other, it goes off once too often, and finds nothing to do. One that is taken back when it has gone off
//! may take off another's that was set since. But that was decided before the thread looked, under the lock of
//! whoever decides, and so the thread has seen to it: what is decided after that is for a later moment.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::thread::JoinHandle;

use super::RateClock;
use crate::sync::{Mutex, Thread, current};

/// Alarms, and the thread that sees to them, once there is one.
#[derive(Debug)]
pub(crate) struct Timer<T> {
    state: Mutex<TimerState<T>>,
    /// Its thread, from its start to its end.
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct TimerState<T> {
    /// What is to be done when, in the order of the times, and how many have set it. It is done once for all
    /// of them.
    alarms: BTreeMap<(u64, T), usize>,
    /// Nothing more is to be done. Raised once.
    over: bool,
    /// Whom to unpark. Written by the thread before it looks for the first time.
    runner: Option<Thread>,
}

impl<T: Ord> TimerState<T> {
    /// One who has set this does not need it any more.
    fn take_back(&mut self, alarm: (u64, T)) {
        if let Entry::Occupied(mut set) = self.alarms.entry(alarm) {
            *set.get_mut() -= 1;
            if *set.get() == 0 {
                set.remove();
            }
        }
    }

    /// When the first is due.
    fn next(&self) -> Option<u64> {
        self.alarms.first_key_value().map(|((at, _), _)| *at)
    }
}

impl<T: Ord + Copy> Timer<T> {
    pub(crate) fn new() -> Self {
        let state = TimerState { alarms: BTreeMap::new(), over: false, runner: None };
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

    /// Step 1. `was` is when it was to be done before, and need not be any more.
    pub(crate) fn set(&self, was: Option<u64>, at: Option<u64>, what: T) {
        let mut state = self.state.lock();
        if let Some(was) = was {
            state.take_back((was, what));
        }
        let Some(at) = at else { return };
        let is_first = state.next().is_none_or(|first| at < first);
        *state.alarms.entry((at, what)).or_default() += 1;
        let runner = if is_first { state.runner.clone() } else { None };
        drop(state);
        runner.inspect(Thread::unpark);
    }

    /// Step 2, until it is over.
    pub(crate) fn run(&self, time: &RateClock, mut fire: impl FnMut(T)) {
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
        time.forget(listener);
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

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::run::MockClock;

    /// What is done up to a time, after which it ends.
    fn done_by(timer: &Timer<u32>, at: u64) -> Vec<u32> {
        const LAST: u32 = u32::MAX;
        timer.set(None, Some(at), LAST);
        let clock = MockClock::new();
        clock.advance(Duration::from_nanos(at));
        let mut done = Vec::new();
        timer.run(&RateClock::new(Some(clock)), |what| match what {
            LAST => timer.end(),
            what => done.push(what),
        });
        done
    }

    /// What two have set for the same nanosecond was one alarm, and whoever took back theirs, with some delay,
    /// took it from the other.
    #[test]
    fn who_takes_an_alarm_back_takes_nobody_elses() {
        let timer = Timer::new();
        timer.set(None, Some(5), 1);
        timer.set(None, Some(5), 1);
        timer.set(Some(5), None, 1);
        assert_eq!(done_by(&timer, 9), [1]);
    }

    #[test]
    fn what_nobody_wants_any_more_is_not_done() {
        let timer = Timer::new();
        for what in [1, 2] {
            timer.set(None, Some(5), what);
            timer.set(None, Some(5), what);
        }
        timer.set(Some(5), None, 1);
        timer.set(Some(5), Some(7), 1);
        timer.set(Some(5), None, 2);
        timer.set(Some(6), None, 2);
        assert_eq!(done_by(&timer, 9), [2, 1], "each in its time, and once");
    }
}
