//! The books: the allocator, and which jobs there are. Everything here happens in a section, under the
//! lock.

use std::sync::Arc;

use super::{Back, Crowd, Desk, Given};
use crate::allocate::{Allocator, Claimant, Decision, End, JobId, Order, Progress, Take};
use crate::observe::Clock;

pub(super) struct Books<K, W> {
    /// The rules; absent until there is a job.
    pub(super) allocator: Option<Box<Allocator>>,
    /// The jobs that are not over, by the slot of their id.
    pub(super) jobs: Vec<Option<Listed<K, W>>>,
    /// The time that was last told to the allocator, in milliseconds.
    time: u64,
    /// What the engine's clock said then; it wraps round.
    clock: u32,
    /// How many of the last events are to be kept.
    pub(super) record: Option<usize>,
    /// The pool is stopped: no job is let in.
    pub(super) closed: bool,
    /// Jobs that this section has ended, with how far they were.
    pub(super) over: Vec<(Arc<dyn Crowd<K, W>>, Progress)>,
}

pub(super) struct Listed<K, W> {
    pub(super) id: JobId,
    pub(super) crowd: Arc<dyn Crowd<K, W>>,
    /// A worker asks its splitter.
    pub(super) splitting: bool,
    /// Subtasks that were said to wait in the lanes, and not to be ready. Futures that are under way wait for the
    /// rules as well, and are never ready: they are not among them.
    pub(super) lined: u64,
    /// Subtasks that became ready before the worker that entered them has said that they wait.
    pub(super) early: u64,
    /// What the allocator was last told of its splitter.
    pub(super) held: bool,
}

/// How jobs share the workers of a pool.
#[derive(Clone, Debug)]
pub(crate) struct JobRules {
    /// Rule 2's bound, if it is another than that of the order.
    pub(crate) max_active: Option<usize>,
    /// The ageing bound, in milliseconds.
    pub(crate) patience: Option<u64>,
    pub(crate) order: Order,
}

impl Default for JobRules {
    fn default() -> Self {
        JobRules { max_active: None, patience: None, order: Order::Arrival }
    }
}

impl JobRules {
    pub(super) fn allocator(&self, workers: usize) -> Allocator {
        let allocator =
            Allocator::new(workers).with_max_active(self.max_active).with_order(self.order);
        match self.patience {
            Some(patience) => allocator.with_patience(patience),
            None => allocator,
        }
    }
}

impl<K, W> Books<K, W> {
    pub(super) fn new() -> Self {
        Books {
            allocator: None,
            jobs: Vec::new(),
            time: 0,
            clock: 0,
            record: None,
            closed: false,
            over: Vec::new(),
        }
    }

    /// Tells the time; wrong by a moment at the most, and never backwards.
    pub(super) fn pass(&mut self, clock: u32) -> u64 {
        let passed = Clock::passed(self.clock, clock);
        // Clocks are read before the lock is taken, so one may come in a little late.
        if passed < Clock::MOST / 2 {
            self.time += u64::from(passed);
            self.clock = clock;
        }
        self.time
    }

    fn listed(&mut self, id: JobId) -> Option<&mut Listed<K, W>> {
        self.jobs.get_mut(id.slot())?.as_mut().filter(|listed| listed.id == id)
    }

    /// Tells the allocator whether a job's splitter is to be left alone, if that has changed.
    pub(super) fn hold(&mut self, id: JobId) {
        let time = self.time;
        let Some(allocator) = self.allocator.as_mut() else { return };
        let Some(listed) = self.jobs.get_mut(id.slot()).and_then(Option::as_mut) else { return };
        let Some(progress) = allocator.progress(id) else { return };
        let held = listed.splitting
            || progress.waiting >= listed.crowd.most_waiting()
            || listed.crowd.is_full();
        if std::mem::replace(&mut listed.held, held) != held {
            allocator.hold_splitter(id, held, time);
        }
    }

    /// Takes a job that is over out of the books.
    pub(super) fn strike(&mut self, id: JobId, last: Progress) {
        if let Some(listed) = self.jobs.get_mut(id.slot()).and_then(Option::take) {
            self.over.push((listed.crowd, last));
        }
    }

    /// Tells the allocator that a worker is back.
    pub(super) fn take_back(&mut self, back: Back) -> bool {
        let Back { who, take, sat } = back;
        let time = self.time;
        let Some(allocator) = self.allocator.as_mut() else { return false };
        let Claimant::Job(id) = who else {
            allocator.ended(who, sat.end, time);
            return false;
        };
        if sat.more_done + sat.more_failed != 0 {
            allocator.ran_more(id, take, sat.more_done, sat.more_failed, time);
        }
        if sat.cancels {
            allocator.cancel(id, time);
        }
        let before = allocator.progress(id);
        if allocator.ended(who, sat.end, time) {
            let last = before.expect("a job with a worker is in the books");
            self.strike(id, ended(last, sat.end));
        } else {
            self.hold(id);
        }
        sat.cancels
    }

    /// A subtask whose worker is back stands in line.
    pub(super) fn line_up(&mut self, id: JobId) {
        let Some(listed) = self.listed(id) else { return };
        listed.lined += 1;
        self.catch_up(id);
        self.hold(id);
    }

    /// A job's splitter may be asked by others, unless it is known to have no more.
    pub(super) fn split(&mut self, id: JobId, exhausted: bool, time: u64) {
        let Some(listed) = self.listed(id) else { return };
        listed.splitting = false;
        if exhausted && let Some(allocator) = &mut self.allocator {
            let before = allocator.progress(id);
            if allocator.exhausted(id, time)
                && let Some(last) = before
            {
                self.strike(id, last);
                return;
            }
        }
        self.hold(id);
    }

    /// One of a job's subtasks can start.
    pub(super) fn ready(&mut self, id: JobId) {
        let Some(listed) = self.listed(id) else { return };
        listed.early += 1;
        self.catch_up(id);
        self.hold(id);
    }

    /// Says that so many subtasks are ready as are and were said to wait.
    fn catch_up(&mut self, id: JobId) {
        let time = self.time;
        let Some(listed) = self.jobs.get_mut(id.slot()).and_then(Option::as_mut) else { return };
        let Some(allocator) = self.allocator.as_mut() else { return };
        // None waits any more once it is cancelled.
        let waiting = allocator.progress(id).map_or(0, |progress| progress.waiting);
        let known = listed.early.min(listed.lined).min(waiting);
        if known != 0 {
            listed.early -= known;
            listed.lined -= known;
            allocator.ready(id, known, time);
        }
    }

    /// Gives a worker to somebody.
    pub(super) fn give(&mut self, loose: bool, desk: &mut Desk<K, W>) -> Given {
        let time = self.time;
        let Some(allocator) = self.allocator.as_mut() else { return Given::Nothing };
        if allocator.unfinished() == 0 {
            return Given::Nothing;
        }
        if allocator.is_loose_ready() != loose {
            allocator.loose_ready(loose, time);
        }
        let Some(Decision { to, take, .. }) = allocator.next(time) else { return Given::Nothing };
        let Claimant::Job(id) = to else { return Given::Loose };
        let alone = allocator.is_alone(id);
        let listed = self.jobs[id.slot()].as_mut().expect("an unfinished job is in the books");
        listed.splitting |= take == Take::Split;
        if desk.job().is_none_or(|(last, _)| *last != id) {
            desk.take_seat(id, &listed.crowd);
        }
        if take == Take::Split {
            self.hold(id);
        }
        Given::Job { take, alone }
    }
}

/// How far a job is once its last worker has ended.
pub(super) fn ended(before: Progress, end: End) -> Progress {
    Progress {
        done: before.done + u64::from(end == End::Done),
        failed: before.failed + u64::from(end == End::Failed),
        running: 0,
        to_come: Some(0),
        ..before
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::Sat;
    use super::super::few::Few;
    use super::*;
    use crate::allocate::Supply;

    /// A subtask that was ready before its worker had said that it waits was taken for a future that was under way:
    /// when that one ended, the rules knew of none that waited, and its job never ended.
    #[test]
    fn a_subtask_that_is_early_is_not_taken_for_a_future() {
        let mut books = Books::<u64, ()>::new();
        let mut allocator = Box::new(JobRules::default().allocator(2));
        let id = allocator.submit(Supply::Split { expected: Some(2) }, 1, 0);
        books.allocator = Some(allocator);
        // Only the rules are asked of it.
        let crowd: Arc<dyn Crowd<u64, ()>> = Few::new(2, || ());
        let job = Listed { id, crowd, splitting: false, lined: 0, early: 0, held: false };
        books.jobs = vec![Some(job)];
        let mut desk = Desk::default();
        let mut given = |books: &mut Books<u64, ()>| match books.give(false, &mut desk) {
            Given::Job { take, .. } => take,
            other => panic!("{other:?}"),
        };
        let back = |take| Back { who: Claimant::Job(id), take, sat: Sat::ended(End::Waits) };

        // The first stands in line, is ready, and goes on as a future.
        assert_eq!(given(&mut books), Take::Split);
        books.take_back(back(Take::Split));
        books.line_up(id);
        books.split(id, false, 0);
        books.ready(id);
        assert_eq!(given(&mut books), Take::Ready);
        books.take_back(back(Take::Ready));
        // The second is ready at once. Before its worker says that it waits, the first ends.
        assert_eq!(given(&mut books), Take::Split);
        books.ready(id);
        assert!(books.allocator.as_mut().unwrap().settled(id, false, 0));
        books.take_back(back(Take::Split));
        books.line_up(id);
        books.split(id, true, 0);
        let progress = books.allocator.as_ref().unwrap().progress(id).unwrap();
        assert_eq!((progress.done, progress.ready, progress.waiting), (1, 1, 0));
    }
}
