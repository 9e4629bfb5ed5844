//! `grouped`: GroupedThreadPool (Java, hype-free), written again in Rust from its description.
//!
//! Tasks are compared by a predicate instead of keys. Each worker has a mirror of its unfinished
//! tasks; under one lock, each submission cleans the mirrors and scans them all. A task that
//! conflicts with no worker goes to the least loaded one, with one worker goes there; with more, it
//! goes to the first, where it waits on a latch for a marker sent to each of the others.
//!
//! Lacks: submission costs as much as there is backlog, a rollup parks a worker, and there is no
//! bound (`grouped-window64` has the producer wait so that at most 64 tasks are in flight).
//!
//! As in the original the predicate is the task's own, so mirrors hold tasks, and comparing two is a
//! call through each. Kinder than the original, the workers' queues are crossbeam channels.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use crossbeam_channel::{Sender, unbounded};

use crate::job::{Job, Task};
use crate::pool::{Pool, Submit, SubmitGroup};

/// What users implement.
trait OrderedTask: Send + Sync {
    /// Whether the two may run at the same time, as far as `self` knows.
    fn is_compatible(&self, other: &dyn OrderedTask) -> bool;

    /// What other tasks' predicates look at.
    fn keys(&self) -> &[u64];

    /// Called once.
    fn run(&self);
}

struct Keyed<const N: usize, J> {
    keys: [u64; N],
    job: Mutex<Option<J>>,
}

impl<const N: usize, J: Job> OrderedTask for Keyed<N, J> {
    fn is_compatible(&self, other: &dyn OrderedTask) -> bool {
        let others = other.keys();
        !self.keys.iter().any(|key| others.contains(key))
    }

    fn keys(&self) -> &[u64] {
        &self.keys
    }

    fn run(&self) {
        let job = self.job.lock().unwrap().take();
        job.expect("each task is sent to one worker").run();
    }
}

pub(crate) struct Grouped {
    shared: Arc<Shared>,
}

struct Shared {
    /// The one lock of submission.
    workers: Mutex<Vec<GroupedWorker>>,
    window: Option<Window>,
}

struct GroupedWorker {
    queue: Sender<Task>,
    /// The tasks of this worker that had not finished when last looked at, oldest first.
    mirror: VecDeque<Arc<dyn OrderedTask>>,
    /// Mirrored tasks that have finished since. Written by the worker, emptied under the lock.
    finished: Arc<AtomicUsize>,
}

impl GroupedWorker {
    fn spawn() -> GroupedWorker {
        let (queue, tasks) = unbounded::<Task>();
        thread::spawn(move || tasks.into_iter().for_each(|task| task()));
        GroupedWorker { queue, mirror: VecDeque::new(), finished: Arc::default() }
    }

    fn clean_mirror(&mut self) {
        let finished = self.finished.swap(0, Ordering::Acquire);
        self.mirror.drain(..finished);
    }

    fn conflicts_with(&self, task: &dyn OrderedTask) -> bool {
        // both directions, as either side may declare a conflict
        self.mirror
            .iter()
            .any(|mine| !(mine.is_compatible(task) && task.is_compatible(mine.as_ref())))
    }

    fn send(&self, task: Task) {
        assert!(self.queue.send(task).is_ok(), "workers outlive producers");
    }
}

impl Grouped {
    pub(crate) fn new(workers: usize, window: Option<usize>) -> Grouped {
        let workers = (0..workers).map(|_| GroupedWorker::spawn()).collect();
        let shared = Shared { workers: Mutex::new(workers), window: window.map(Window::new) };
        Grouped { shared: Arc::new(shared) }
    }
}

impl Shared {
    fn execute<const N: usize>(self: &Arc<Self>, keys: [u64; N], job: impl Job) {
        if let Some(window) = &self.window {
            window.enter();
        }
        let task: Arc<dyn OrderedTask> = Arc::new(Keyed { keys, job: Mutex::new(Some(job)) });
        let mut workers = self.workers.lock().unwrap();
        workers.iter_mut().for_each(GroupedWorker::clean_mirror);
        let conflicts: Vec<usize> =
            (0..workers.len()).filter(|&at| workers[at].conflicts_with(task.as_ref())).collect();
        let Some((&first, others)) = conflicts.split_first() else {
            let least_loaded = (0..workers.len()).min_by_key(|&at| workers[at].mirror.len());
            let target = &mut workers[least_loaded.expect("there is a worker")];
            return self.enqueue(target, task, None);
        };
        let latch = Arc::new(Latch::new(others.len()));
        for &other in others {
            let latch = latch.clone();
            workers[other].send(Box::new(move || latch.count_down()));
        }
        self.enqueue(&mut workers[first], task, Some(latch));
    }

    /// Mirrors the task and has the worker run it, once the latch is open.
    fn enqueue(
        self: &Arc<Self>,
        worker: &mut GroupedWorker,
        task: Arc<dyn OrderedTask>,
        latch: Option<Arc<Latch>>,
    ) {
        let (shared, finished) = (self.clone(), worker.finished.clone());
        worker.mirror.push_back(task.clone());
        worker.send(Box::new(move || {
            if let Some(latch) = latch {
                latch.wait();
            }
            task.run();
            finished.fetch_add(1, Ordering::Release);
            if let Some(window) = &shared.window {
                window.leave();
            }
        }));
    }
}

impl Pool for Grouped {
    type Submitter = GroupedSubmitter;

    fn submitter(&self) -> GroupedSubmitter {
        GroupedSubmitter { shared: self.shared.clone() }
    }
}

pub(crate) struct GroupedSubmitter {
    shared: Arc<Shared>,
}

impl<J: Job> Submit<J> for GroupedSubmitter {
    fn submit(&mut self, key: u64, job: J) {
        self.shared.execute([key], job);
    }
}

impl<J: Job> SubmitGroup<J> for GroupedSubmitter {
    fn submit_group(&mut self, keys: [u64; 4], job: J) {
        self.shared.execute(keys, job);
    }
}

/// Opens for its one waiter when counted down to 0.
struct Latch {
    missing: Mutex<usize>,
    open: Condvar,
}

impl Latch {
    fn new(count: usize) -> Latch {
        Latch { missing: Mutex::new(count), open: Condvar::new() }
    }

    fn count_down(&self) {
        *self.missing.lock().unwrap() -= 1;
        self.open.notify_one();
    }

    fn wait(&self) {
        let missing = self.missing.lock().unwrap();
        drop(self.open.wait_while(missing, |missing| *missing > 0).unwrap());
    }
}

/// Bound on the tasks in flight.
struct Window {
    free: Mutex<usize>,
    changed: Condvar,
}

impl Window {
    fn new(size: usize) -> Window {
        Window { free: Mutex::new(size), changed: Condvar::new() }
    }

    fn enter(&self) {
        let free = self.free.lock().unwrap();
        *self.changed.wait_while(free, |free| *free == 0).unwrap() -= 1;
    }

    fn leave(&self) {
        *self.free.lock().unwrap() += 1;
        self.changed.notify_one();
    }
}
