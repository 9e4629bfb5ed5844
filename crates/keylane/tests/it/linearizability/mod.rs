//! Submissions of several threads have one order that explains all executions: single tasks, tasks
//! with several keys, barriers, batches and latest tasks.
//!
//! `src/schedules/order.rs` judges schedules of a controlled scheduler by the same checker, which finds
//! planted defects that real threads seldom meet.
//!
//! Each submission is recorded with the times of its call and its return, each body with its begin
//! and its end, on one counter. An order exists if and only if these relations have no cycle: one
//! submission returned before the other was called; a task of one ran before a conflicting task of
//! the other. A batch of at most 256 tasks has one place in the order, also with rollups and barriers
//! in it, so it is one submission. A
//! latest task runs, or a latest task of its key that did not return before its call runs.

mod checker;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use crate::common::{AnyHasher, LONG, Log, Rng, pool_of, with_every_hasher};
use keylane::{Claims, Handle, Pool};

use self::checker::{Keys, Submission, Task, contradiction};

const KEYS: u64 = 3;
const THREADS: usize = 3;
const SUBMISSIONS: usize = 6;
const HISTORIES: u64 = 150;

fn claims(keys: &Keys) -> Claims<u32> {
    match keys {
        Keys::Some(keys) => keys.iter().copied().collect(),
        Keys::All => Claims::barrier(),
    }
}

/// A thread's submissions to a pool, and their record.
struct Submitter<S: AnyHasher> {
    pool: Pool<u32, S>,
    time: Arc<AtomicUsize>,
    runs: Log<(usize, usize, usize)>,
    /// Records, and the numbers of their tasks' bodies.
    submissions: Vec<(Submission, Vec<usize>)>,
    numbers: Arc<AtomicUsize>,
}

impl<S: AnyHasher> Submitter<S> {
    fn now(&self) -> usize {
        self.time.fetch_add(1, Ordering::SeqCst)
    }

    fn body(&self, number: usize) -> impl FnOnce() + Send + use<S> {
        let (time, runs) = (self.time.clone(), self.runs.clone());
        move || {
            let begin = time.fetch_add(1, Ordering::SeqCst);
            thread::yield_now();
            runs.push((number, begin, time.fetch_add(1, Ordering::SeqCst)));
        }
    }

    fn submit(&mut self, rng: &mut Rng) {
        let key = |rng: &mut Rng| Keys::Some(vec![rng.below(KEYS) as u32]);
        let pair = |rng: &mut Rng| {
            let first = rng.below(KEYS) as u32;
            Keys::Some(vec![first, (first + 1) % KEYS as u32])
        };
        let any = |rng: &mut Rng| match rng.below(6) {
            0 => Keys::All,
            1 | 2 => pair(rng),
            _ => key(rng),
        };
        let kind = rng.below(8);
        let keys = match kind {
            0 => vec![Keys::All],
            1 | 2 => vec![pair(rng)],
            3 => (0..2 + rng.below(4)).map(|_| key(rng)).collect(),
            4 => (0..2 + rng.below(4)).map(|_| any(rng)).collect(),
            _ => vec![key(rng)],
        };
        let is_latest = kind >= 6;
        let numbers: Vec<_> =
            keys.iter().map(|_| self.numbers.fetch_add(1, Ordering::SeqCst)).collect();
        let work: Vec<_> = keys
            .iter()
            .zip(&numbers)
            .map(|(keys, number)| (claims(keys), self.body(*number)))
            .collect();
        let call = self.now();
        match is_latest {
            true => {
                let (claims, body) = work.into_iter().next().expect("it has one task");
                self.pool.task(claims).latest().execute(body).expect("the pool is open");
            }
            false if work.len() > 1 => {
                self.pool.execute_many(work).expect("the pool is open");
            }
            false => {
                let (claims, body) = work.into_iter().next().expect("it has one task");
                drop::<Handle<()>>(self.pool.submit(claims, body).expect("the pool is open"));
            }
        }
        let ret = self.now();
        let tasks = keys.into_iter().map(|keys| Task { keys, is_latest, run: None }).collect();
        self.submissions.push((Submission { tasks, call, ret }, numbers));
    }
}

/// Runs the submissions of several threads, and returns their history.
fn history<S: AnyHasher>(seed: u64) -> Vec<Submission> {
    let pool = pool_of::<S>(2);
    let (time, numbers) = (Arc::default(), Arc::default());
    let (runs, start) = (Log::new(), Arc::new(Barrier::new(THREADS)));
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let mut submitter = Submitter {
                pool: pool.clone(),
                time: Arc::clone(&time),
                runs: runs.clone(),
                submissions: Vec::new(),
                numbers: Arc::clone(&numbers),
            };
            let (start, mut rng) = (start.clone(), Rng(seed * 64 + thread as u64));
            thread::spawn(move || {
                start.wait();
                (0..SUBMISSIONS).for_each(|_| submitter.submit(&mut rng));
                submitter.submissions
            })
        })
        .collect();
    let submitted: Vec<_> =
        threads.into_iter().flat_map(|thread| thread.join().expect("it submits")).collect();
    pool.shutdown_timeout(LONG).expect("all tasks end");
    let runs = runs.take();
    let with_runs = |(mut submission, numbers): (Submission, Vec<usize>)| {
        for (task, number) in submission.tasks.iter_mut().zip(numbers) {
            let mut found = runs.iter().filter(|run| run.0 == number);
            task.run = found.next().map(|run| (run.1, run.2));
            assert!(found.next().is_none(), "a task ran twice");
        }
        submission
    };
    submitted.into_iter().map(with_runs).collect()
}

fn one_order_explains_all_executions<S: AnyHasher>() {
    for seed in 0..HISTORIES {
        let history = history::<S>(seed);
        if let Some(wrong) = contradiction(&history) {
            panic!("seed {seed}: {wrong}\n{history:#?}");
        }
    }
}

with_every_hasher!(one_order_explains_all_executions);
