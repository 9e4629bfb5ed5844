//! Jobs in a real pool get the workers that the rules say: gates take the place of clocks.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, OnceLock};

use keylane_allocate::{Claimant, End, Event, JobPolicy, Record, Rule};

use crate::common::{Gate, OpenAtLast, eventually, hold, pool, soon};
use keylane::{Job, KeyBuildHasher, Pool};

/// Job whose subtasks begin, report it, and end on request.
struct Steps {
    job: Option<Job<()>>,
    gates: Vec<Gate>,
    begun: Receiver<usize>,
}

impl Steps {
    fn new(pool: &Pool<u32, KeyBuildHasher>, name: &str, subtasks: usize) -> Self {
        let gates: Vec<Gate> = (0..subtasks).map(|_| Gate::new()).collect();
        let (begin, begun) = mpsc::channel();
        let pieces = gates.clone().into_iter().enumerate().map(move |(n, gate)| {
            let begin = begin.clone();
            move || {
                begin.send(n + 1).expect("the test listens");
                gate.pass();
            }
        });
        let job = pool.job(name).each(pieces.collect::<Vec<_>>()).run().unwrap();
        Steps { job: Some(job), gates, begun }
    }

    /// Waits until its next subtask begins, which must be this one.
    #[track_caller]
    fn begins(&self, subtask: usize) {
        assert_eq!(self.begun.recv_timeout(crate::common::LONG).expect("nothing begins"), subtask);
    }

    fn end(&self, subtask: usize) {
        self.gates[subtask - 1].open();
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        self.gates.iter().for_each(Gate::open);
    }
}

/// The decisions of a record: the job's number, and the rule.
fn decisions(record: &Record) -> Vec<(u64, Rule)> {
    let decided = record.entries().filter_map(|entry| match entry.event {
        Event::Decided(decision) => Some(decision),
        _ => None,
    });
    decided
        .filter_map(|decision| match decision.to {
            Claimant::Job(job) => Some((job.serial(), decision.rule)),
            Claimant::Loose => None,
        })
        .collect()
}

#[test]
fn the_articles_timeline_in_a_real_pool() {
    soon(|| {
        let pool =
            Pool::<u32>::builder().workers(4).job_policy(JobPolicy::Arrival).build().unwrap();
        pool.jobs().start_decision_log(1000);
        let mut a = Steps::new(&pool, "A", 20);
        // Which of the four begins first depends on the machine, until there is one end at a time.
        let mut first: Vec<usize> = (0..4).map(|_| a.begun.recv().unwrap()).collect();
        first.sort_unstable();
        assert_eq!(first, [1, 2, 3, 4]);
        for ended in 1..=8 {
            a.end(ended);
            a.begins(ended + 4);
        }
        // 2:01. No worker is free.
        let mut b = Steps::new(&pool, "B", 4);
        assert_eq!(b.job.as_ref().unwrap().progress().running, 0);
        // 3:00. B is admitted, gets the remaining workers as well, and A keeps one worker.
        for (ended, begins) in [(9, 1), (10, 2), (11, 3)] {
            a.end(ended);
            b.begins(begins);
        }
        a.end(12);
        a.begins(13);
        // 4:00. B has one more, and the others go to A.
        b.end(1);
        b.begins(4);
        b.end(2);
        a.begins(14);
        b.end(3);
        a.begins(15);
        a.end(13);
        a.begins(16);
        // 5:00. B is over.
        b.end(4);
        a.begins(17);
        assert!(b.job.take().unwrap().wait().unwrap().is_completed());
        for ended in 14..=16 {
            a.end(ended);
            a.begins(ended + 4);
        }
        (17..=20).for_each(|ended| a.end(ended));
        assert!(a.job.take().unwrap().wait().unwrap().is_completed());

        let record = pool.jobs().decision_log().unwrap();
        record.replay().unwrap();
        use Rule::{Admit, Keep, Least};
        let mut want = vec![(0, Admit)];
        want.extend([(0, Least); 11]);
        want.extend([(1, Admit), (1, Least), (1, Least), (0, Keep)]);
        want.extend([(1, Least), (0, Least), (0, Least), (0, Least)]);
        want.extend([(0, Least); 4]);
        assert_eq!(decisions(&record), want);
    });
}

#[test]
fn a_small_job_is_done_while_a_huge_one_has_all_workers() {
    soon(|| {
        let pool = pool(2);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let endless =
            std::iter::from_fn(move || (!stopped.load(Ordering::SeqCst)).then_some(|| ()));
        let huge = pool.job("huge").each(endless).run().unwrap();
        for n in 0..50 {
            let small = pool.job("small").each((0..10).map(|n| move || n)).collect().unwrap();
            assert_eq!(small.wait().unwrap().unwrap(), (0..10).collect::<Vec<_>>());
            let loose = pool.submit(n, || ()).unwrap();
            assert!(loose.wait().unwrap().is_completed());
        }
        assert!(!huge.is_finished());
        stop.store(true, Ordering::SeqCst);
        assert!(huge.wait().unwrap().is_completed());
    });
}

#[test]
fn a_splitter_is_never_far_ahead_of_the_workers() {
    soon(|| {
        let pool = pool(2);
        let (split, begun) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let furthest = Arc::new(AtomicUsize::new(0));
        let (ahead, begins, most) = (split.clone(), begun.clone(), furthest.clone());
        let pieces = (0..300_000).map(move |_| {
            let now = ahead.fetch_add(1, Ordering::SeqCst) + 1;
            most.fetch_max(now - begins.load(Ordering::SeqCst), Ordering::SeqCst);
            let begun = begins.clone();
            move || {
                begun.fetch_add(1, Ordering::SeqCst);
            }
        });
        let job = pool.job("millions").each(pieces).run().unwrap();
        assert!(job.wait().unwrap().is_completed());
        assert_eq!(begun.load(Ordering::SeqCst), 300_000);
        assert!(furthest.load(Ordering::SeqCst) <= 2 * 64, "{furthest:?}");
    });
}

#[test]
fn a_splitter_stops_while_enough_wait_for_keys() {
    soon(|| {
        let pool = pool(2);
        let held = hold(&pool, 1);
        let split = Arc::new(AtomicUsize::new(0));
        let counter = split.clone();
        let pieces = (0..10_000).map(move |_| {
            counter.fetch_add(1, Ordering::SeqCst);
            (1, || ())
        });
        let job = pool.job("one key").each_keyed(pieces).run().unwrap();
        eventually(|| job.progress().waiting == 256);
        // Another job is served although this one has so much to do.
        let other = pool.job("other").each([|| 5]).collect().unwrap();
        assert_eq!(other.wait().unwrap().unwrap(), [5]);
        assert_eq!(split.load(Ordering::SeqCst), 256);
        held.let_go();
        assert!(job.wait().unwrap().is_completed());
        assert_eq!(split.load(Ordering::SeqCst), 10_000);
    });
}

#[test]
fn a_paused_job_begins_nothing_until_it_is_resumed() {
    soon(|| {
        let pool = pool(2);
        let mut steps = Steps::new(&pool, "paused", 3);
        let mut first = [steps.begun.recv().unwrap(), steps.begun.recv().unwrap()];
        first.sort_unstable();
        assert_eq!(first, [1, 2]);
        let job = steps.job.take().unwrap();
        assert!(job.pause());
        steps.end(1);
        eventually(|| job.progress().done == 1);
        // A worker is free, and serves others.
        let other = pool.job("other").each([|| 5]).collect().unwrap();
        assert_eq!(other.wait().unwrap().unwrap(), [5]);
        assert!(steps.begun.try_recv().is_err());
        assert!(job.progress().paused);
        assert!(job.resume());
        steps.begins(3);
        steps.end(2);
        steps.end(3);
        assert!(job.wait().unwrap().is_completed());
    });
}

#[test]
fn workers_come_and_go_during_a_job() {
    soon(|| {
        let pool = pool(1);
        let ran = Arc::new(AtomicUsize::new(0));
        let counter = ran.clone();
        let pieces = (0..50_000_usize).map(move |n| {
            let ran = counter.clone();
            (n as u32 % 50, move || {
                ran.fetch_add(1, Ordering::SeqCst);
            })
        });
        let job = pool.job("resized").each_keyed(pieces).run().unwrap();
        let mut workers = 1;
        while !job.is_finished() {
            workers = workers % 5 + 1;
            pool.settings().set_workers(workers).unwrap();
        }
        assert!(job.wait().unwrap().is_completed());
        assert_eq!(ran.load(Ordering::SeqCst), 50_000);
    });
}

#[test]
fn more_workers_take_up_the_work_at_once() {
    soon(|| {
        let pool = pool(1);
        let steps = Steps::new(&pool, "grows", 3);
        steps.begins(1);
        pool.settings().set_workers(3).unwrap();
        let mut more = [steps.begun.recv().unwrap(), steps.begun.recv().unwrap()];
        more.sort_unstable();
        assert_eq!(more, [2, 3]);
    });
}

#[test]
fn a_worker_that_waits_in_a_subtask_has_a_substitute() {
    soon(|| {
        let pool = Arc::new(pool(1));
        let inner = pool.clone();
        let task = move || inner.submit(1, || 7).unwrap().wait().unwrap().unwrap();
        let job = pool.job("waits").each([task]).collect().unwrap();
        assert_eq!(job.wait().unwrap().unwrap(), [7]);
        drop(pool);
    });
}

#[test]
fn a_task_cannot_wait_for_a_job_of_its_own_pool() {
    soon(|| {
        let pool = Arc::new(pool(2));
        let inner = pool.clone();
        let gate = Gate::new();
        let open = OpenAtLast(gate.clone());
        let task = pool.submit(1, move || {
            let job = inner.job("inner").each([move || gate.pass()]).run().unwrap();
            let job = job.wait().unwrap_err().into_inner();
            drop(open);
            job
        });
        let job = task.unwrap().wait().unwrap().unwrap();
        assert!(job.wait().unwrap().is_completed());
        drop(pool);
    });
}

#[test]
fn the_bound_on_active_jobs_keeps_the_next_one_in_the_line() {
    soon(|| {
        let pool = Pool::<u32>::builder().workers(3).max_active_jobs(1).build().unwrap();
        let mut first = Steps::new(&pool, "first", 1);
        first.begins(1);
        let mut second = Steps::new(&pool, "second", 1);
        let lists = pool.jobs().list();
        let names: Vec<&str> = lists.iter().map(|job| &*job.name).collect();
        assert_eq!(names, ["first", "second"]);
        assert!(lists[0].progress.admitted && !lists[1].progress.admitted);
        // Two workers are free, and yet it has to wait.
        assert!(second.begun.try_recv().is_err());
        first.end(1);
        assert!(first.job.take().unwrap().wait().unwrap().is_completed());
        second.begins(1);
        second.end(1);
        assert!(second.job.take().unwrap().wait().unwrap().is_completed());
    });
}

/// The other subtasks of its batch wait until the job goes on.
#[test]
fn no_subtask_begins_after_one_that_pauses_its_job() {
    const QUICK: usize = 1_000;
    const PAUSES: usize = 100;
    soon(|| {
        let pool = pool(1);
        let (begun, own) = (Arc::new(AtomicUsize::new(0)), Arc::new(OnceLock::<Job<()>>::new()));
        let known = Gate::new();
        let (count, job, wait) = (begun.clone(), own.clone(), known.clone());
        let pieces = (0..QUICK + PAUSES).map(move |n| {
            let (begun, job, wait) = (count.clone(), job.clone(), wait.clone());
            move || {
                wait.pass();
                begun.fetch_add(1, Ordering::SeqCst);
                if n >= QUICK {
                    assert!(job.get().expect("the gate is open").pause());
                }
            }
        });
        assert!(own.set(pool.job("pauses").each(pieces).run().unwrap()).is_ok());
        known.open();
        let job = own.get().unwrap();
        for pauses in 1..=PAUSES {
            let expected = QUICK + pauses;
            eventually(|| begun.load(Ordering::SeqCst) >= expected && job.progress().running == 0);
            assert_eq!(begun.load(Ordering::SeqCst), expected);
            job.resume();
        }
        eventually(|| job.is_finished());
        assert_eq!(job.progress().done, (QUICK + PAUSES) as u64);
    });
}

/// The record says whether a worker that was assigned to the work outside jobs has found some.
#[test]
fn a_worker_that_has_run_other_work_reports_so() {
    soon(|| {
        let pool = pool(1);
        pool.jobs().start_decision_log(100_000);
        let (stop, begun) = (Arc::new(AtomicBool::new(false)), Gate::new());
        let (stopped, begin) = (stop.clone(), begun.clone());
        let endless = std::iter::from_fn(move || {
            begin.open();
            (!stopped.load(Ordering::SeqCst)).then_some(|| ())
        });
        let job = pool.job("beside").each(endless).run().unwrap();
        begun.pass();
        let other = pool.submit(1, move || stop.store(true, Ordering::SeqCst)).unwrap();
        assert!(other.wait().unwrap().is_completed());
        assert!(job.wait().unwrap().is_completed());
        pool.shutdown().unwrap();
        let record = pool.jobs().decision_log().unwrap();
        let mut ends = record.entries().filter_map(|entry| match entry.event {
            Event::Ended(Claimant::Loose, end) => Some(end),
            _ => None,
        });
        assert_eq!(ends.next(), Some(End::Done));
    });
}

#[test]
fn a_weight_is_set_as_long_as_the_job_has_not_ended() {
    soon(|| {
        let pool = pool(1);
        let steps = Steps::new(&pool, "weighs", 1);
        steps.begins(1);
        let job = steps.job.as_ref().unwrap();
        assert!(job.set_weight(7));
        steps.end(1);
        eventually(|| job.is_finished());
        assert!(!job.set_weight(7));
    });
}
