//! How many worker threads there are, and how many there should be.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use crate::observe::{Histogram, Statistics, WorkerCounters};
use crate::sync::{AtomicBool, AtomicUsize, Mutex, Ordering, ThreadId};

/// The largest number of workers that stand in for others, which wait inside a task for another task. Each
/// is a thread, so nested waits without a bound would use up the threads of the machine.
pub const MAX_SUBSTITUTES: usize = 1024;

#[derive(Debug)]
pub(crate) struct WorkerSet {
    /// Who belongs to the workers. Threads are started, but never joined, under the lock.
    list: Mutex<WorkerList>,
    /// Whether there are more workers than there should be. Written under `roll`'s lock; read by
    /// every worker now and then, without it.
    surplus: AtomicBool,
    /// Workers on a lane that has used up its quantum.
    overtime: AtomicUsize,
    /// The most that there may be: half of the workers. Written under `roll`'s lock.
    most_overtime: AtomicUsize,
    /// When the pool was built; never changed.
    epoch: Instant,
    /// What the workers measure; never changed.
    statistics: Statistics,
}

#[derive(Debug)]
struct WorkerList {
    /// The number of workers that was asked for.
    wanted: usize,
    /// Workers that wait inside a task for another task. Each of the first `MAX_SUBSTITUTES` is to have
    /// a substitute.
    blocked: usize,
    /// What those have done who were dismissed.
    retired: Option<Box<RetiredStats>>,
    /// The number of the next worker; none is given out twice.
    next_id: usize,
    /// The workers that have not been dismissed.
    entries: Vec<WorkerEntry>,
}

#[derive(Debug)]
pub(crate) struct WorkerEntry {
    /// The worker's number.
    pub(crate) id: usize,
    /// What the worker has done; written by it.
    pub(crate) counters: Arc<WorkerCounters>,
    /// Absent until its thread was started.
    pub(crate) thread: Option<JoinHandle<()>>,
}

/// What workers have done who are gone.
#[derive(Debug, Default)]
struct RetiredStats {
    ran: u64,
    wait: Histogram,
    run: Histogram,
}

impl WorkerList {
    /// How many workers there should be.
    fn due(&self) -> usize {
        self.wanted + self.blocked.min(MAX_SUBSTITUTES)
    }
}

impl WorkerSet {
    pub(crate) fn new(wanted: usize, statistics: Statistics, epoch: Instant) -> Self {
        WorkerSet {
            epoch,
            statistics,
            list: Mutex::new(WorkerList {
                wanted,
                blocked: 0,
                retired: None,
                next_id: 0,
                entries: Vec::new(),
            }),
            surplus: AtomicBool::new(false),
            overtime: AtomicUsize::new(0),
            most_overtime: AtomicUsize::new(wanted / 2),
        }
    }

    /// Starts workers until there are as many as there should be.
    pub(crate) fn spawn_missing<E>(
        &self,
        start: impl Fn(usize, Arc<WorkerCounters>) -> Result<JoinHandle<()>, E>,
    ) -> Result<(), E> {
        let mut list = self.list.lock();
        while list.entries.len() < list.due() {
            let id = list.next_id;
            let counters = Arc::new(WorkerCounters::new(self.epoch, self.statistics));
            let thread = Some(start(id, counters.clone())?);
            list.next_id += 1;
            list.entries.push(WorkerEntry { id, counters, thread });
        }
        self.update_surplus(&list);
        Ok(())
    }

    pub(crate) fn set_wanted(&self, wanted: usize) {
        let mut list = self.list.lock();
        list.wanted = wanted;
        self.most_overtime.store(wanted / 2, Ordering::Relaxed);
        self.update_surplus(&list);
    }

    pub(crate) fn wanted(&self) -> usize {
        self.list.lock().wanted
    }

    /// How many there should be, with the substitutes of those that wait inside a task.
    pub(crate) fn size(&self) -> usize {
        self.list.lock().due()
    }

    pub(crate) fn block(&self) {
        let mut list = self.list.lock();
        list.blocked += 1;
        self.update_surplus(&list);
    }

    /// Whether some worker does not wait inside a task. If there is none, nothing runs any more.
    pub(crate) fn has_unblocked(&self) -> bool {
        let list = self.list.lock();
        list.entries.len() > list.blocked
    }

    pub(crate) fn unblock(&self) {
        let mut list = self.list.lock();
        list.blocked -= 1;
        self.update_surplus(&list);
    }

    fn update_surplus(&self, list: &WorkerList) {
        self.surplus.store(list.entries.len() > list.due(), Ordering::Release);
    }

    #[inline]
    pub(crate) fn has_surplus(&self) -> bool {
        self.surplus.load(Ordering::Acquire)
    }

    /// Counts the caller as being on overtime, unless half of the workers are.
    pub(crate) fn try_overtime(&self) -> bool {
        let most = self.most_overtime.load(Ordering::Relaxed);
        let counted = self.overtime.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |count| {
            (count < most).then_some(count + 1)
        });
        counted.is_ok()
    }

    pub(crate) fn end_overtime(&self) {
        self.overtime.fetch_sub(1, Ordering::AcqRel);
    }

    /// Takes a worker off the roll if there are too many. It must then end.
    pub(crate) fn retire(&self, id: usize) -> bool {
        let mut list = self.list.lock();
        if list.entries.len() <= list.due() {
            return false;
        }
        let leaving = list.entries.iter().position(|entry| entry.id == id);
        let leaving = list.entries.remove(leaving.expect("a worker is dismissed once"));
        let retired = list.retired.get_or_insert_default();
        retired.ran += leaving.counters.ran();
        leaving.counters.add_times_to(&mut retired.wait, &mut retired.run);
        self.update_surplus(&list);
        true
    }

    /// Everybody's thread, to be joined.
    pub(crate) fn take_handles(&self) -> Vec<JoinHandle<()>> {
        let mut list = self.list.lock();
        list.entries.iter_mut().filter_map(|entry| entry.thread.take()).collect()
    }

    /// How many tasks those have run who were dismissed, whose times are added to these.
    pub(crate) fn add_retired_to(&self, wait: &mut Histogram, run: &mut Histogram) -> u64 {
        let list = self.list.lock();
        let Some(retired) = &list.retired else { return 0 };
        wait.merge(&retired.wait);
        run.merge(&retired.run);
        retired.ran
    }

    /// Every worker's number, its thread's name, and what it says of itself.
    pub(crate) fn entries(&self) -> Vec<(usize, Option<String>, Arc<WorkerCounters>)> {
        let list = self.list.lock();
        let name = |entry: &WorkerEntry| entry.thread.as_ref()?.thread().name().map(str::to_owned);
        list.entries.iter().map(|it| (it.id, name(it), it.counters.clone())).collect()
    }

    /// The worker that this thread is.
    pub(crate) fn entry_on(&self, thread: ThreadId) -> Option<(usize, Arc<WorkerCounters>)> {
        let list = self.list.lock();
        let is_it = |entry: &&WorkerEntry| {
            entry.thread.as_ref().is_some_and(|handle| handle.thread().id() == thread)
        };
        list.entries.iter().find(is_it).map(|entry| (entry.id, entry.counters.clone()))
    }

    /// Looks at every worker.
    pub(crate) fn map<R>(&self, mut look: impl FnMut(usize, &WorkerCounters) -> R) -> Vec<R> {
        self.list.lock().entries.iter().map(|entry| look(entry.id, &entry.counters)).collect()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Each wait inside a task took a thread more, which had no bound: 199 tasks that waited, 201 threads.
    #[test]
    fn no_more_workers_stand_in_than_the_bound_says() {
        let workers = WorkerSet::new(2, Statistics::Off, Instant::now());
        let fill =
            || workers.spawn_missing(|_, _| std::thread::Builder::new().spawn(|| ())).unwrap();
        fill();
        for waits in 1..MAX_SUBSTITUTES + 2 {
            workers.block();
            fill();
            assert!(workers.has_unblocked());
            assert_eq!(workers.size(), 2 + waits.min(MAX_SUBSTITUTES));
        }
        workers.block();
        fill();
        assert!(!workers.has_unblocked(), "this one must not wait");
        assert_eq!(workers.take_handles().len(), 2 + MAX_SUBSTITUTES);
        workers.unblock();
        assert!(workers.has_unblocked());
    }
}
