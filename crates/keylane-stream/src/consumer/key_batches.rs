//! Records of one key, handled together: the threads that do so, and what follows when a batch fails.
//!
//! The pool hands over the records of each lane in their order, and each enters the [lines](Lines), where the
//! order of its lane is kept from then on. A thread that takes a batch has the lane's [turn](LineTurn). A
//! record that has failed takes this turn with it, to the timer, the dead letters or the owner, as a record
//! does with the pool's turn elsewhere; those behind it are back in their line before that, and go on when the
//! turn ends. A record that comes for its next attempt brings the turn, and stands in front again.
//!
//! What waits in a line has not begun. If its partition is given up meanwhile, it is let go of.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use keylane::TurnKeeper;

use super::assignment::Running;
use super::attempt::{Attempt, Flight};
use super::batch::{Batch, FailedAt, Function, call, call_alone};
use super::failure::Failure;
use super::handler::Handler;
use super::lines::{Lines, Waiting};
use super::order::Lane;
use super::report::How;
use super::shared::{Shared, Verdict};
use super::turn::LaneTurn;

/// The handler of a consumer with batches of a key: it only puts records into their lines.
pub(super) struct ByKey {
    crew: Arc<Crew>,
    threads: Vec<JoinHandle<()>>,
}

/// What the threads share.
#[derive(Debug)]
struct Crew {
    batch: Batch,
    /// Changed by the threads, by whoever brings a record, and where a turn ends.
    state: Mutex<State>,
    /// Notified when there may be something for one more thread, or all is over.
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    lines: Lines<Entry>,
    /// How many threads wait.
    idle: usize,
    /// Until when one of them waits at the longest, so that not all are woken when a wait for company ends.
    watched: Option<Instant>,
    /// Nobody comes any more.
    closed: bool,
}

/// A record in its line. It has not begun.
#[derive(Debug)]
struct Entry {
    shared: Arc<Shared>,
    flight: Flight,
    /// What follows a failure that was already told; it is not handled before.
    verdict: Option<Verdict>,
}

/// A record of a batch that has begun.
type Begun = (Flight, Running);

/// The turn of a lane in the lines. Dropped, the lane goes on.
#[derive(Debug)]
pub(super) struct LineTurn {
    crew: Arc<Crew>,
    lane: Lane,
}

impl ByKey {
    /// Starts the threads that handle batches. They end when this is dropped, which waits for that.
    pub(super) fn start(
        batch: Batch,
        threads: usize,
        handler: &Arc<Function>,
    ) -> std::io::Result<Self> {
        let lines = Lines::new(batch.most, batch.linger);
        let state = State { lines, idle: 0, watched: None, closed: false };
        let crew = Arc::new(Crew { batch, state: Mutex::new(state), changed: Condvar::new() });
        let mut by_key = ByKey { crew, threads: Vec::with_capacity(threads) };
        for number in 0..threads {
            let (crew, handler) = (by_key.crew.clone(), handler.clone());
            let thread = thread::Builder::new()
                .name(format!("keylane-batch-{number}"))
                .spawn(move || crew.run(&*handler))?;
            by_key.threads.push(thread);
        }
        Ok(by_key)
    }
}

impl Handler for ByKey {
    fn serve(&self, shared: &Arc<Shared>, lane: &Lane, mut flight: Flight, _: TurnKeeper<'_>) {
        let turn = flight.turn.take();
        let entry = Entry { shared: shared.clone(), flight, verdict: None };
        match turn {
            Some(LaneTurn::Line(turn)) => turn.put_back([Waiting::again(entry)]),
            // The next one of the lane comes only when this call's turn ends, and so stands behind.
            _ => self.crew.enter(lane, entry),
        }
    }
}

impl Drop for ByKey {
    fn drop(&mut self) {
        self.crew.close();
        for thread in self.threads.drain(..) {
            // It stops panics of the handler; there are no others.
            let _ = thread.join();
        }
    }
}

impl LineTurn {
    fn put_back(
        &self,
        entries: impl IntoIterator<Item = Waiting<Entry>, IntoIter: DoubleEndedIterator>,
    ) {
        let mut state = self.crew.state();
        if state.closed {
            // All is over; what comes is dropped, but not under the lock.
            drop(state);
            return;
        }
        state.lines.put_back(&self.lane, entries.into_iter());
    }
}

impl Drop for LineTurn {
    fn drop(&mut self) {
        let mut state = self.crew.state();
        state.lines.let_go(&self.lane, Instant::now());
        self.crew.wake(&state);
    }
}

impl Crew {
    /// No section unwinds.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, lane: &Lane, entry: Entry) {
        let mut state = self.state();
        if state.closed {
            drop(state);
            return drop(entry);
        }
        state.lines.enter(lane.clone(), entry, Instant::now());
        self.wake(&state);
    }

    /// Wakes a thread if there is something that nobody sees to.
    fn wake(&self, state: &State) {
        if state.idle > 0 && state.wants_one() {
            self.changed.notify_one();
        }
    }

    fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        let Batch { most, linger, .. } = self.batch;
        let left = std::mem::replace(&mut state.lines, Lines::new(most, linger));
        drop(state);
        self.changed.notify_all();
        drop(left);
    }

    fn run(self: &Arc<Self>, handler: &Function) {
        while let Some((turn, entries)) = self.next() {
            self.handle(turn, entries, handler);
        }
    }

    /// Waits for a batch; none once all is over.
    fn next(self: &Arc<Self>) -> Option<(LineTurn, Vec<Entry>)> {
        let mut state = self.state();
        loop {
            if state.closed {
                return None;
            }
            let now = Instant::now();
            if let Some((lane, entries)) = state.lines.take(now) {
                self.wake(&state);
                return Some((LineTurn { crew: self.clone(), lane }, entries));
            }
            state = self.wait(state, now);
        }
    }

    /// Waits until something changes; also for the end of a wait for company, if nobody else does.
    fn wait<'c>(&'c self, mut state: MutexGuard<'c, State>, now: Instant) -> MutexGuard<'c, State> {
        state.idle += 1;
        let due = state.lines.next_due().filter(|due| state.is_unwatched(*due));
        state = match due {
            None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            Some(due) => {
                state.watched = Some(due);
                let waited = self.changed.wait_timeout(state, due - now);
                let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
                state.watched.take_if(|watched| *watched == due);
                state
            }
        };
        state.idle -= 1;
        state
    }

    fn handle(&self, turn: LineTurn, entries: Vec<Entry>, handler: &Function) {
        let mut shared = None;
        let mut begun = Vec::with_capacity(entries.len());
        for Entry { shared: its, flight, verdict } in entries {
            // Who cannot begin is somebody else's by now.
            let Some(running) = flight.begin() else { continue };
            let shared = shared.insert(its);
            if let Some(verdict) = verdict {
                // Such a record comes alone.
                let flight = Flight { turn: Some(LaneTurn::Line(turn)), ..flight };
                return shared.then(flight, running, verdict);
            }
            begun.push((flight, running));
        }
        if let Some(shared) = shared {
            self.handle_begun(&shared, turn, begun, handler);
        }
    }

    fn handle_begun(
        &self,
        shared: &Arc<Shared>,
        turn: LineTurn,
        mut begun: Vec<Begun>,
        handler: &Function,
    ) {
        let attempts: Vec<_> = begun.iter().map(|(flight, _)| flight.attempt()).collect();
        let outcome = self.call(&attempts, handler);
        drop(attempts);
        let failed = begun.split_off(outcome.done);
        for (flight, running) in begun {
            shared.ended(flight, running, How::Handled);
        }
        match outcome.failed {
            None => drop(turn),
            Some((failure, true)) => fail_all(shared, turn, failed, &failure),
            Some((failure, false)) => fail_first(shared, turn, failed, failure),
        }
    }

    fn call(&self, attempts: &[Attempt], handler: &Function) -> Outcome {
        match call(handler, attempts) {
            Ok(()) => Outcome { done: attempts.len(), failed: None },
            Err(failure) => match FailedAt::in_batch(&failure, attempts.len()) {
                Some((done, failure)) => Outcome { done, failed: Some((failure, false)) },
                None if self.batch.split && attempts.len() > 1 => one_by_one(handler, attempts),
                None => Outcome { done: 0, failed: Some((failure, true)) },
            },
        }
    }
}

/// What came of a batch.
struct Outcome {
    /// So many of the first are done.
    done: usize,
    /// The next one has failed, or, if that is true, all others have.
    failed: Option<(Failure, bool)>,
}

/// Handles each alone, up to the first that fails.
fn one_by_one(handler: &Function, attempts: &[Attempt]) -> Outcome {
    for (done, attempt) in attempts.iter().enumerate() {
        if let Err(failure) = call_alone(handler, attempt) {
            return Outcome { done, failed: Some((failure, false)) };
        }
    }
    Outcome { done: attempts.len(), failed: None }
}

/// The first one has failed; the others have not been tried.
fn fail_first(shared: &Arc<Shared>, turn: LineTurn, mut batch: Vec<Begun>, failure: Failure) {
    let others = batch.split_off(1);
    let Some((flight, running)) = batch.pop() else { return };
    let back: Vec<_> = others
        .into_iter()
        .map(|(flight, running)| {
            running.end(&shared.mailbox);
            Waiting::again(Entry { shared: shared.clone(), flight, verdict: None })
        })
        .collect();
    turn.put_back(back);
    let flight = Flight { turn: Some(LaneTurn::Line(turn)), ..flight };
    shared.answer(flight, running, Err(failure));
}

/// An attempt at each of them has failed. Each goes its way, one after another.
fn fail_all(shared: &Arc<Shared>, turn: LineTurn, batch: Vec<Begun>, failure: &Failure) {
    let mut begun = batch.into_iter();
    let Some((mut flight, running)) = begun.next() else { return };
    shared.times.add(running.time());
    let verdict = shared.verdict(&mut flight, failure);
    // Who is behind one that is tried again waits with it, and is tried with it.
    let mut waits_for = verdict.retries_at();
    let back: Vec<_> = begun
        .map(|(mut flight, running)| {
            let own = shared.verdict(&mut flight, failure);
            let verdict = match waits_for {
                Some(at) => {
                    shared.tell_retry(&flight, &own, at);
                    None
                }
                None => {
                    waits_for = own.retries_at();
                    Some(own)
                }
            };
            running.end(&shared.mailbox);
            let is_alone = verdict.is_some();
            let entry = Entry { shared: shared.clone(), flight, verdict };
            if is_alone { Waiting::alone(entry) } else { Waiting::again(entry) }
        })
        .collect();
    turn.put_back(back);
    let flight = Flight { turn: Some(LaneTurn::Line(turn)), ..flight };
    shared.then(flight, running, verdict);
}

impl State {
    /// Whether there is something that no thread sees to yet.
    fn wants_one(&self) -> bool {
        self.lines.has_ready() || self.lines.next_due().is_some_and(|due| self.is_unwatched(due))
    }

    fn is_unwatched(&self, due: Instant) -> bool {
        self.watched.is_none_or(|watched| due < watched)
    }
}
