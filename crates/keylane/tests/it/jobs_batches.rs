//! Tiny subtasks are taken several at a time, and yet none waits behind another while a worker is
//! idle, or for one that its splitter has not made yet.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

use crate::common::{Gate, OpenAtLast, eventually, pool, soon};
use keylane::{JobPolicy, Pool};

/// Until the workers take many subtasks at once.
const WARM_UP: usize = 20_000;

type Piece = Box<dyn FnOnce() + Send>;

/// Many tiny subtasks, then one that passes this gate, and `behind` others after it. With a gate
/// that is open once the long one has begun, and how many of the others have run.
fn held_in_a_batch(behind: usize, gate: &Gate) -> (Gate, Arc<AtomicUsize>, Vec<Piece>) {
    let (ran, begun) = (Arc::new(AtomicUsize::new(0)), Gate::new());
    let pieces = (0..WARM_UP + 1 + behind).map(|n| {
        let (gate, begun, ran) = (gate.clone(), begun.clone(), ran.clone());
        let piece: Piece = Box::new(move || {
            if n == WARM_UP {
                begun.open();
                gate.pass();
            } else {
                ran.fetch_add(1, Ordering::SeqCst);
            }
        });
        piece
    });
    let pieces = pieces.collect();
    (begun, ran, pieces)
}

#[test]
fn what_stands_behind_a_long_subtask_in_its_batch_is_taken_by_an_idle_worker() {
    soon(|| {
        for behind in [1, 5, 40, 63, 200] {
            let pool = pool(2);
            let gate = Gate::new();
            let open = OpenAtLast(gate.clone());
            let (begun, ran, pieces) = held_in_a_batch(behind, &gate);
            let job = pool.job("tail").each(pieces).run().unwrap();
            begun.pass();
            // The long one is the last to end, whichever worker has it, and whatever was taken with
            // it.
            eventually(|| ran.load(Ordering::SeqCst) == WARM_UP + behind);
            assert!(!job.is_finished());
            drop(open);
            assert!(job.wait().unwrap().is_completed());
        }
    });
}

#[test]
fn what_was_taken_out_of_a_batch_is_counted_once() {
    soon(|| {
        for round in 0..200 {
            let pool = pool(3);
            let count = 1000 + round;
            let pieces = (0..count).map(|n| {
                move || {
                    // Now and then one that the others of its batch overtake.
                    if n % 97 == 0 {
                        (0..20).for_each(|_| std::thread::yield_now());
                    }
                    n
                }
            });
            let job = pool.job("counted").each(pieces).collect().unwrap();
            crate::common::eventually(|| job.is_finished());
            let progress = job.progress();
            assert_eq!((progress.done, progress.total()), (count, Some(count)), "{progress:?}");
            assert_eq!(job.wait().unwrap().unwrap(), (0..count).collect::<Vec<_>>());
            // The worker that published the result releases the job's slot after it.
            crate::common::eventually(|| pool.inspect().snapshot(0).unfinished == 0);
        }
    });
}

#[test]
fn a_cancelled_job_drops_what_stands_behind_a_long_subtask_at_once() {
    soon(|| {
        let pool = pool(1);
        let gate = Gate::new();
        let open = OpenAtLast(gate.clone());
        let live = crate::common::Live::new();
        let begun = Gate::new();
        let pieces = (0..WARM_UP + 1000).map(|n| {
            let (one, gate, begun) = (live.one(), gate.clone(), begun.clone());
            move || {
                drop(one);
                if n == WARM_UP {
                    begun.open();
                    gate.pass();
                }
            }
        });
        let job = pool.job("cancelled").each(pieces.collect::<Vec<_>>()).run().unwrap();
        begun.pass();
        assert!(live.count() > 0);
        job.cancel();
        assert_eq!(live.count(), 0, "held by a worker that is busy");
        drop(open);
        assert!(job.wait().unwrap().is_cancelled());
    });
}

#[test]
fn a_subtask_does_not_wait_for_the_next_one_to_be_made() {
    soon(|| {
        // The splitter reads a channel, and its next read depends on earlier ones.
        let pool = pool(2);
        let (send, receive) = mpsc::channel();
        let (answer, answers) = mpsc::channel();
        let pieces = receive.into_iter().map(move |n: usize| {
            let answer = answer.clone();
            move || answer.send(n).expect("the test listens")
        });
        let job = pool.job("dialogue").each(pieces).run().unwrap();
        // As fast as can be first, so that batches would be large by then.
        (0..WARM_UP).for_each(|n| send.send(n).unwrap());
        for _ in 0..WARM_UP {
            answers.recv_timeout(crate::common::LONG).unwrap();
        }
        for n in 0..100 {
            send.send(n).unwrap();
            assert_eq!(answers.recv_timeout(crate::common::LONG), Ok(n));
        }
        drop(send);
        assert!(job.wait().unwrap().is_completed());
    });
}

#[test]
fn a_small_job_begins_before_the_rest_of_a_batch_and_the_rest_is_not_lost() {
    soon(|| {
        for behind in [30, 40, 50, 60, 63] {
            // By arrival, the huge one would have the only place.
            let pool = Pool::<u32>::builder().workers(1).job_policy(JobPolicy::Shortest);
            let pool = pool.build().unwrap();
            let gate = Gate::new();
            let open = OpenAtLast(gate.clone());
            let (begun, ran, pieces) = held_in_a_batch(behind, &gate);
            let job = pool.job("huge").each(pieces).collect().unwrap();
            begun.pass();
            let small = pool.job("small").each([move || ran.load(Ordering::SeqCst)]);
            let small = small.collect().unwrap();
            drop(open);
            // Nothing that was taken together with the long one came before it.
            assert_eq!(small.wait().unwrap().unwrap(), [WARM_UP]);
            assert_eq!(job.wait().unwrap().unwrap().len(), WARM_UP + 1 + behind);
        }
    });
}
