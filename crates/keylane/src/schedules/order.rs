//! One order of the submissions of several threads explains all executions.

use shuttle::thread::spawn;

use super::checker::{Keys, Submission, Task, contradiction};
use super::*;
use crate::sync::{AtomicUsize, Ordering};
use crate::{Claims, IntoClaims};

/// A history in the making: its clock, and the runs of the tasks by number.
#[derive(Clone, Default)]
struct History {
    time: Arc<AtomicUsize>,
    runs: Arc<Mutex<Vec<(usize, usize, usize)>>>,
    /// Submissions, with the number of the first task of each.
    submissions: Arc<Mutex<Vec<(Submission, usize)>>>,
}

impl History {
    /// Returns the next time.
    fn now(&self) -> usize {
        self.time.fetch_add(1, Ordering::SeqCst)
    }

    fn body(&self, number: usize) -> impl FnOnce() + Send + use<> {
        let history = self.clone();
        move || {
            let begin = history.now();
            crate::sync::yield_now();
            let end = history.now();
            history.runs.lock().push((number, begin, end));
        }
    }

    /// Records a submission of tasks with these keys. `submit` gets the number of the first.
    fn record(&self, first: usize, keys: Vec<Keys>, is_latest: bool, submit: impl FnOnce(usize)) {
        let call = self.now();
        submit(first);
        let ret = self.now();
        let tasks = keys.into_iter().map(|keys| Task { keys, is_latest, run: None }).collect();
        self.submissions.lock().push((Submission { tasks, call, ret }, first));
    }

    fn one(&self, pool: &TestPool, number: usize, claims: impl IntoClaims<u32>, keys: Keys) {
        let work = self.body(number);
        self.record(number, vec![keys], false, |_| pool.execute(claims, work).unwrap());
    }

    fn latest(&self, pool: &TestPool, number: usize, key: u32) {
        let work = self.body(number);
        self.record(number, vec![Keys::Some(vec![key])], true, |_| {
            pool.task(key).latest().execute(work).unwrap();
        });
    }

    fn batch(&self, pool: &TestPool, first: usize, keys: &[u32]) {
        let work = keys.iter().enumerate().map(|(at, key)| (*key, self.body(first + at)));
        let work: Vec<_> = work.collect();
        let keys = keys.iter().map(|key| Keys::Some(vec![*key])).collect();
        self.record(first, keys, false, |_| _ = pool.execute_many(work).unwrap());
    }

    fn check(&self) {
        let runs = self.runs.lock();
        let mut history = Vec::new();
        for (mut submission, first) in self.submissions.lock().drain(..) {
            for (at, task) in submission.tasks.iter_mut().enumerate() {
                let run = runs.iter().find(|run| run.0 == first + at);
                task.run = run.map(|run| (run.1, run.2));
            }
            history.push(submission);
        }
        if let Some(wrong) = contradiction(&history) {
            panic!("{wrong}: {history:?}");
        }
    }
}

/// Keys of two shards.
const A: u32 = 0;
const B: u32 = 1;

/// Runs `first` and `second` on threads of their own, beside a worker for each, and judges the
/// history. Tasks have the numbers below 100 in `first`, and the others in `second`.
fn judge(
    first: impl Fn(&History, &TestPool) + Send + Sync + Copy + 'static,
    second: impl Fn(&History, &TestPool) + Send + Sync + Copy + 'static,
) {
    check(move || {
        let (pool, history) = (pool(2), History::default());
        let other = {
            let (pool, history) = (pool.clone(), history.clone());
            spawn(move || second(&history, &pool))
        };
        first(&history, &pool);
        other.join().unwrap();
        pool.shutdown().unwrap();
        history.check();
    });
}

#[test]
fn rollups_and_single_tasks_have_one_order() {
    judge(
        |history, pool| {
            history.one(pool, 0, [A, B], Keys::Some(vec![A, B]));
            history.one(pool, 1, A, Keys::Some(vec![A]));
        },
        |history, pool| {
            history.one(pool, 100, B, Keys::Some(vec![B]));
            history.one(pool, 101, A, Keys::Some(vec![A]));
            history.one(pool, 102, [B, A], Keys::Some(vec![A, B]));
        },
    );
}

#[test]
fn a_batch_has_one_place() {
    judge(
        |history, pool| history.batch(pool, 0, &[A, B, A]),
        |history, pool| {
            history.batch(pool, 100, &[B, A]);
            history.one(pool, 102, A, Keys::Some(vec![A]));
        },
    );
}

#[test]
fn barriers_have_one_place() {
    judge(
        |history, pool| {
            history.one(pool, 0, A, Keys::Some(vec![A]));
            history.one(pool, 1, Claims::barrier(), Keys::All);
        },
        |history, pool| {
            history.one(pool, 100, Claims::barrier(), Keys::All);
            history.one(pool, 101, B, Keys::Some(vec![B]));
        },
    );
}

#[test]
fn latest_tasks_come_after_what_came_before() {
    judge(
        |history, pool| {
            history.latest(pool, 0, A);
            history.one(pool, 1, A, Keys::Some(vec![A]));
            history.latest(pool, 2, A);
        },
        |history, pool| {
            history.latest(pool, 100, A);
            history.one(pool, 101, A, Keys::Some(vec![A]));
        },
    );
}
