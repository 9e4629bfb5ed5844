//! Jobs in the two ways that people write first, one queue of subtasks and jobs in a ring, and by an oracle, which
//! cannot exist in practice.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use crossbeam_channel::{Sender, unbounded};

use crate::workloads::jobs_mix::{JobPool, JobWorld};

/// One queue of subtasks: each job is split when it comes.
pub(crate) struct Fifo {
    queue: Sender<(&'static JobWorld, u32, usize)>,
}

impl Fifo {
    pub(crate) fn new(workers: usize) -> Fifo {
        let (queue, subtasks) = unbounded::<(&'static JobWorld, u32, usize)>();
        for _ in 0..workers {
            let subtasks = subtasks.clone();
            thread::spawn(move || {
                subtasks.iter().for_each(|(world, job, subtask)| world.run(job, subtask));
            });
        }
        Fifo { queue }
    }
}

impl JobPool for Fifo {
    fn submit(&self, world: &'static JobWorld, job: u32) {
        for subtask in 0..world.subtasks(job) {
            self.queue.send((world, job, subtask)).expect("the workers go on");
        }
    }
}

/// Shortest remaining processing time first, really run: the job with the least work left begins a subtask. It knows
/// all lengths, so it is no rival but the mark.
pub(crate) struct Srpt {
    shared: Arc<(Mutex<Remaining>, Condvar)>,
}

/// Jobs with subtasks that have not begun, by the work that has not ended.
#[derive(Default)]
struct Remaining {
    waiting: BTreeMap<(u64, u32), Turn>,
    /// The work of each job that has not ended.
    work: Vec<u64>,
}

impl Remaining {
    fn end(&mut self, job: u32, length: u64) {
        let work = self.work[job as usize];
        self.work[job as usize] = work - length;
        if let Some(turn) = self.waiting.remove(&(work, job)) {
            self.waiting.insert((work - length, job), turn);
        }
    }

    fn begin(&mut self) -> Option<(&'static JobWorld, u32, usize)> {
        let mut first = self.waiting.first_entry()?;
        let Turn { world, job, next } = *first.get();
        first.get_mut().next += 1;
        if next + 1 == world.subtasks(job) {
            first.remove();
        }
        Some((world, job, next))
    }
}

impl Srpt {
    pub(crate) fn new(workers: usize) -> Srpt {
        let shared = Arc::<(Mutex<Remaining>, Condvar)>::default();
        for _ in 0..workers {
            let shared = shared.clone();
            thread::spawn(move || {
                let (remaining, comes) = &*shared;
                let mut jobs = remaining.lock().expect("no holder panics");
                loop {
                    let Some((world, job, subtask)) = jobs.begin() else {
                        jobs = comes.wait(jobs).expect("no holder panics");
                        continue;
                    };
                    drop(jobs);
                    world.run(job, subtask);
                    jobs = remaining.lock().expect("no holder panics");
                    jobs.end(job, world.length(job, subtask));
                }
            });
        }
        Srpt { shared }
    }
}

impl JobPool for Srpt {
    fn submit(&self, world: &'static JobWorld, job: u32) {
        let (remaining, comes) = &*self.shared;
        let work = (0..world.subtasks(job)).map(|subtask| world.length(job, subtask)).sum();
        let mut jobs = remaining.lock().expect("no holder panics");
        jobs.work.push(work);
        jobs.waiting.insert((work, job), Turn { world, job, next: 0 });
        drop(jobs);
        comes.notify_all();
    }
}

/// Jobs in a ring: the first begins one subtask, and goes to the end.
pub(crate) struct RoundRobin {
    shared: Arc<(Mutex<VecDeque<Turn>>, Condvar)>,
}

#[derive(Clone, Copy)]
struct Turn {
    world: &'static JobWorld,
    job: u32,
    next: usize,
}

impl RoundRobin {
    pub(crate) fn new(workers: usize) -> RoundRobin {
        let shared = Arc::<(Mutex<VecDeque<Turn>>, Condvar)>::default();
        for _ in 0..workers {
            let shared = shared.clone();
            thread::spawn(move || {
                loop {
                    let (world, job, subtask) = next(&shared);
                    world.run(job, subtask);
                }
            });
        }
        RoundRobin { shared }
    }
}

fn next((ring, comes): &(Mutex<VecDeque<Turn>>, Condvar)) -> (&'static JobWorld, u32, usize) {
    let mut ring = ring.lock().expect("no holder panics");
    loop {
        if let Some(Turn { world, job, next }) = ring.pop_front() {
            if next + 1 < world.subtasks(job) {
                ring.push_back(Turn { world, job, next: next + 1 });
            }
            return (world, job, next);
        }
        ring = comes.wait(ring).expect("no holder panics");
    }
}

impl JobPool for RoundRobin {
    fn submit(&self, world: &'static JobWorld, job: u32) {
        let (ring, comes) = &*self.shared;
        ring.lock().expect("no holder panics").push_back(Turn { world, job, next: 0 });
        comes.notify_all();
    }
}
