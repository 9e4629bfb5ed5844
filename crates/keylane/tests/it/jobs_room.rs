//! A job takes the capacity of one task until it is over: submitting it waits for that, for at most
//! its timeout, and a refused job is returned.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::common::{Gate, OpenAtLast, soon};
use keylane::{Pool, SubmitErrorKind};

/// Pool with a capacity of one task, which is used.
fn full() -> (Pool<u32>, OpenAtLast, keylane::Handle<()>) {
    let pool = Pool::<u32>::builder().workers(1).capacity(1).build().unwrap();
    let gate = Gate::new();
    let open = OpenAtLast(gate.clone());
    let busy = pool.submit(1, move || gate.pass()).unwrap();
    (pool, open, busy)
}

#[test]
fn a_job_that_must_not_wait_comes_back_from_a_full_pool() {
    soon(|| {
        let (pool, open, busy) = full();
        for (timeout, why) in [
            (Duration::ZERO, SubmitErrorKind::Full),
            (Duration::from_nanos(1), SubmitErrorKind::TimedOut),
        ] {
            let plan =
                || pool.job("refused").submit_timeout(timeout).each((0..10).map(|n| move || n));
            let refused = plan().run().unwrap_err();
            assert_eq!(refused.kind(), why);
            assert_eq!(plan().collect().unwrap_err().kind(), why);
            let (_, init, _) = plan().fold(7, |sum, n| sum + n).unwrap_err().into_inner();
            assert_eq!(init, 7);
            assert_eq!(plan().fold_outcomes(0, |sum, _| sum).unwrap_err().kind(), why);
            assert!(pool.jobs().list().is_empty());
        }
        let again =
            pool.job("again").submit_timeout(Duration::ZERO).each((0..10).map(|n| move || n));
        let again = again.collect().unwrap_err().into_inner();
        drop(open);
        assert!(busy.wait().unwrap().is_completed());
        // The slot is counted as free a moment after the outcome is there.
        pool.shutdown().unwrap();
        assert_eq!(again.collect().unwrap_err().kind(), SubmitErrorKind::Closed);
    });
}

#[test]
fn a_job_waits_for_room_as_long_as_it_may() {
    soon(|| {
        for within in [None, Some(Duration::from_secs(3600)), Some(Duration::MAX)] {
            let (pool, open, busy) = full();
            std::thread::scope(|scope| {
                let job = scope.spawn(|| {
                    let job = pool.job("waits");
                    let job = match within {
                        Some(timeout) => job.submit_timeout(timeout),
                        None => job,
                    };
                    job.each((0..10).map(|n| move || n)).collect().unwrap()
                });
                crate::common::eventually(|| pool.inspect().snapshot(0).submitters_waiting == 1);
                drop(open);
                assert!(busy.wait().unwrap().is_completed());
                let job = job.join().unwrap();
                assert_eq!(job.wait().unwrap().unwrap(), (0..10).collect::<Vec<_>>());
            });
        }
    });
}

#[test]
fn a_job_from_inside_a_task_is_not_refused() {
    soon(|| {
        let pool = Pool::<u32>::builder().workers(1).capacity(1).build().unwrap();
        let pool = std::sync::Arc::new(pool);
        let inner = pool.clone();
        let task = pool.submit(1, move || {
            let job = inner.job("inside").submit_timeout(Duration::ZERO);
            job.each((0..10).map(|n| move || n)).collect().unwrap()
        });
        let job = task.unwrap().wait().unwrap().unwrap();
        assert_eq!(job.wait().unwrap().unwrap().len(), 10);
        drop(pool);
    });
}

/// Panics when it is asked how many there are left.
struct PanicsInHint;

impl Iterator for PanicsInHint {
    type Item = fn();

    fn next(&mut self) -> Option<fn()> {
        None
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        panic!("asked, on purpose");
    }
}

/// A job called its iterator's `size_hint` after it was admitted. A panic there reached the
/// submitter, and the permit was lost: a full pool never had capacity again, and no drain ended.
#[test]
fn an_iterator_that_panics_when_it_is_asked_keeps_no_room() {
    soon(|| {
        let pool = Pool::<u32>::builder().workers(1).capacity(1).build().unwrap();
        let plan = || pool.job("asked").submit_timeout(Duration::ZERO).each(PanicsInHint);
        let submits: [&dyn Fn(); 4] = [
            &|| drop(plan().run()),
            &|| drop(plan().collect()),
            &|| drop(plan().fold((), |(), ()| ())),
            &|| drop(plan().fold_outcomes((), |(), _| ())),
        ];
        for submit in submits {
            let panics = catch_unwind(AssertUnwindSafe(submit));
            assert!(panics.is_err(), "the panic is the submitter's");
            assert_eq!(pool.inspect().snapshot(0).unfinished, 0);
        }
        assert!(pool.try_submit(1, || ()).unwrap().wait().unwrap().is_completed());
        pool.shutdown().unwrap();
    });
}
