//! Set of the worker threads: starts missing ones, retires surplus ones, and counts those that
//! wait.

use std::sync::Arc;
use std::time::Instant;

use crate::observe::{Histogram, Statistics, WorkerCounters};
use crate::sync::{AtomicBool, AtomicUsize, JoinHandle, Mutex, Ordering, ThreadId};

/// Maximum of substitute workers, which replace workers that wait inside a task. Each is a thread,
/// so unbounded nested waits would exhaust the threads of the machine.
pub const MAX_SUBSTITUTES: usize = 1024;

#[derive(Debug)]
pub(crate) struct WorkerSet {
    /// Workers of the set. Threads are started, but never joined, under the lock.
    list: Mutex<WorkerList>,
    /// Whether there are more workers than there should be. Written under the lock of `list`;
    /// polled by every worker without it.
    surplus: AtomicBool,
    /// Number of workers on a lane that has used up its quantum.
    overtime: AtomicUsize,
    /// Maximum of `overtime`: half of the workers. Written under the lock of `list`.
    max_overtime: AtomicUsize,
    /// Time at which the pool was built. Never changes.
    epoch: Instant,
    /// Measurements of the workers. Never changes.
    statistics: Statistics,
}

#[derive(Debug)]
struct WorkerList {
    /// Configured number of workers.
    wanted: usize,
    /// Number of workers that wait inside a task. Each of the first `MAX_SUBSTITUTES` gets a
    /// substitute.
    blocked: usize,
    /// Statistics of retired workers.
    retired: Option<Box<RetiredStats>>,
    /// Number of the next worker. Never reused.
    next_id: usize,
    /// Workers that have not been retired.
    entries: Vec<WorkerEntry>,
}

#[derive(Debug)]
pub(crate) struct WorkerEntry {
    /// Number of the worker.
    pub(crate) id: usize,
    /// Counters of the worker, written by it.
    pub(crate) counters: Arc<WorkerCounters>,
    /// Thread of the worker; `None` until it is started, and once it is joined.
    pub(crate) thread: Option<JoinHandle<()>>,
}

/// Answer to a worker that is about to wait inside a task.
#[derive(Debug)]
pub(crate) struct BlockAnswer<E> {
    /// Whether the worker may wait: some other worker does not. If false, it is not counted as
    /// waiting.
    pub(crate) may_wait: bool,
    /// Error of the thread that could not be started.
    pub(crate) spawn_error: Option<E>,
}

/// Sums over the retired workers.
#[derive(Debug)]
struct RetiredStats {
    ran: u64,
    wait: Histogram,
    run: Histogram,
}

impl WorkerList {
    /// Number of workers that there should be.
    fn due(&self) -> usize {
        self.wanted + self.blocked.min(MAX_SUBSTITUTES)
    }

    /// Whether a worker may be retired. One that does not wait is kept, also if more wait than have
    /// substitutes.
    fn has_surplus(&self) -> bool {
        self.entries.len() > self.due().max(self.blocked + 1)
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
            max_overtime: AtomicUsize::new(wanted / 2),
        }
    }

    /// Starts workers until there are as many as there should be.
    pub(crate) fn spawn_missing<E>(
        &self,
        start: impl Fn(usize, Arc<WorkerCounters>) -> Result<JoinHandle<()>, E>,
    ) -> Result<(), E> {
        let mut list = self.list.lock();
        let spawned = self.spawn_missing_in(&mut list, start);
        self.update_surplus(&list);
        spawned
    }

    fn spawn_missing_in<E>(
        &self,
        list: &mut WorkerList,
        start: impl Fn(usize, Arc<WorkerCounters>) -> Result<JoinHandle<()>, E>,
    ) -> Result<(), E> {
        while list.entries.len() < list.due() {
            let id = list.next_id;
            let counters = Arc::new(WorkerCounters::new(self.epoch, self.statistics));
            let thread = Some(start(id, counters.clone())?);
            list.next_id += 1;
            list.entries.push(WorkerEntry { id, counters, thread });
        }
        Ok(())
    }

    pub(crate) fn set_wanted(&self, wanted: usize) {
        let mut list = self.list.lock();
        list.wanted = wanted;
        self.max_overtime.store(wanted / 2, Ordering::Relaxed);
        self.update_surplus(&list);
    }

    pub(crate) fn wanted(&self) -> usize {
        self.list.lock().wanted
    }

    /// Number of workers that there should be, including substitutes.
    pub(crate) fn size(&self) -> usize {
        self.list.lock().due()
    }

    /// Counts the calling worker as waiting inside a task, and starts a substitute for it. Refuses
    /// if every worker would wait, because no task would ever run again.
    ///
    /// One critical section, so that no worker is seen that is counted as waiting and whose
    /// substitute has not started yet.
    pub(crate) fn block<E>(
        &self,
        start: impl Fn(usize, Arc<WorkerCounters>) -> Result<JoinHandle<()>, E>,
    ) -> BlockAnswer<E> {
        let mut list = self.list.lock();
        list.blocked += 1;
        let spawn_error = self.spawn_missing_in(&mut list, start).err();
        let may_wait = list.entries.len() > list.blocked;
        if !may_wait {
            list.blocked -= 1;
        }
        self.update_surplus(&list);
        BlockAnswer { may_wait, spawn_error }
    }

    pub(crate) fn unblock(&self) {
        let mut list = self.list.lock();
        list.blocked -= 1;
        self.update_surplus(&list);
    }

    fn update_surplus(&self, list: &WorkerList) {
        self.surplus.store(list.has_surplus(), Ordering::Release);
    }

    #[inline]
    pub(crate) fn has_surplus(&self) -> bool {
        self.surplus.load(Ordering::Acquire)
    }

    /// Counts the caller as on overtime. Returns false if half of the workers already are.
    pub(crate) fn try_overtime(&self) -> bool {
        let most = self.max_overtime.load(Ordering::Relaxed);
        let counted = self.overtime.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |count| {
            (count < most).then_some(count + 1)
        });
        counted.is_ok()
    }

    pub(crate) fn end_overtime(&self) {
        self.overtime.fetch_sub(1, Ordering::AcqRel);
    }

    /// Retires a worker if there are too many. Returns true if it must terminate.
    pub(crate) fn retire(&self, id: usize) -> bool {
        let mut list = self.list.lock();
        if !list.has_surplus() {
            return false;
        }
        let leaving = list.entries.iter().position(|entry| entry.id == id);
        let leaving = list.entries.remove(leaving.expect("a worker is retired once"));
        let retired = list.retired.get_or_insert_with(|| {
            Box::new(RetiredStats { ran: 0, wait: Histogram::new(), run: Histogram::new() })
        });
        retired.ran += leaving.counters.ran();
        leaving.counters.add_times_to(&mut retired.wait, &mut retired.run);
        self.update_surplus(&list);
        true
    }

    /// Takes the handles of all threads, to join them.
    pub(crate) fn take_handles(&self) -> Vec<JoinHandle<()>> {
        let mut list = self.list.lock();
        list.entries.iter_mut().filter_map(|entry| entry.thread.take()).collect()
    }

    /// Adds the times of retired workers to these histograms. Returns the number of tasks that they
    /// have run.
    pub(crate) fn add_retired_to(&self, wait: &mut Histogram, run: &mut Histogram) -> u64 {
        let list = self.list.lock();
        let Some(retired) = &list.retired else { return 0 };
        wait.merge(&retired.wait);
        run.merge(&retired.run);
        retired.ran
    }

    /// Returns the number, the thread's name and the counters of every worker.
    pub(crate) fn entries(&self) -> Vec<(usize, Option<String>, Arc<WorkerCounters>)> {
        let list = self.list.lock();
        let name = |entry: &WorkerEntry| entry.thread.as_ref()?.thread().name().map(str::to_owned);
        list.entries.iter().map(|it| (it.id, name(it), it.counters.clone())).collect()
    }

    /// Returns the number and the counters of the worker on this thread.
    pub(crate) fn entry_on(&self, thread: ThreadId) -> Option<(usize, Arc<WorkerCounters>)> {
        let list = self.list.lock();
        let is_it = |entry: &&WorkerEntry| {
            entry.thread.as_ref().is_some_and(|handle| handle.thread().id() == thread)
        };
        list.entries.iter().find(is_it).map(|entry| (entry.id, entry.counters.clone()))
    }

    /// Calls `look` for every worker and collects the results.
    pub(crate) fn map<R>(&self, mut look: impl FnMut(usize, &WorkerCounters) -> R) -> Vec<R> {
        self.list.lock().entries.iter().map(|entry| look(entry.id, &entry.counters)).collect()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Regression test: every wait inside a task started another thread, without a limit: 201
    /// threads for 199 waiting tasks.
    #[test]
    fn substitutes_are_limited() {
        let workers = worker_set(2);
        for waits in 1..MAX_SUBSTITUTES + 2 {
            assert!(workers.block(start).may_wait);
            assert_eq!(workers.size(), 2 + waits.min(MAX_SUBSTITUTES));
        }
        assert!(!workers.block(start).may_wait, "the wait of the last worker must be refused");
        workers.unblock();
        assert!(workers.block(start).may_wait);
        assert_eq!(workers.take_handles().len(), 2 + MAX_SUBSTITUTES);
    }

    /// Regression test: a worker was counted as waiting in one critical section and its substitute
    /// started in another; a wait that was judged in between was refused.
    #[test]
    fn no_wait_is_refused_while_threads_can_be_started() {
        let workers = worker_set(1);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        assert!(workers.block(start).may_wait);
                    }
                });
            }
        });
        assert_eq!(workers.take_handles().len(), 1 + 400);
    }

    #[test]
    fn a_refused_thread_is_reported_and_the_last_worker_may_not_wait() {
        let workers = worker_set(2);
        let refuse = |_, _| Err("no thread");
        let one = workers.block(refuse);
        assert!(one.may_wait && one.spawn_error == Some("no thread"));
        assert!(!workers.block(refuse).may_wait);
        assert!(workers.block(start).may_wait, "the next wait starts the thread of the first, too");
        assert_eq!(workers.take_handles().len(), 4);
    }

    /// Regression test: with more waiting workers than substitutes, a smaller number of workers
    /// retired the last one that did not wait.
    #[test]
    fn the_last_worker_that_does_not_wait_is_never_retired() {
        let workers = worker_set(10);
        for _ in 0..MAX_SUBSTITUTES + 5 {
            assert!(workers.block(start).may_wait);
        }
        workers.set_wanted(1);
        let retired = (0..10 + MAX_SUBSTITUTES).filter(|&id| workers.retire(id)).count();
        assert_eq!(retired, 4, "of 1,034 workers, 1,029 wait");
        assert!(!workers.has_surplus());
    }

    fn worker_set(wanted: usize) -> WorkerSet {
        let workers = WorkerSet::new(wanted, Statistics::Off, Instant::now());
        workers.spawn_missing(start).unwrap();
        workers
    }

    fn start(_: usize, _: Arc<WorkerCounters>) -> std::io::Result<JoinHandle<()>> {
        crate::sync::spawn(String::new(), None, || ())
    }
}
