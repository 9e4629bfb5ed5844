//! Tasks that wait inside for each other get an error.
//!
//! A wait for a task that is ordered behind the caller was refused, but not one for a task behind
//! another that waits itself for a task behind the caller: both waited forever, and the
//! diagnostics showed only that they run.

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Barrier};
use std::thread;

use crate::common::{AnyHasher, Gate, eventually, hold, pool, pool_of, with_every_hasher};
use keylane::{Claims, Handle, IntoClaims, Pool};

with_every_hasher!(
    two_tasks_that_wait_crosswise,
    a_ring_of_tasks,
    a_ring_of_tasks_that_wait_for_each_other,
    a_ring_through_a_barrier_and_rollups,
    waits_that_form_no_ring_go_on,
    who_waits_with_a_timeout_is_counted_on,
);

type Answer = Handle<bool>;

/// A task that waits for the one that it is sent, and returns whether it was allowed to.
fn waiter<S: AnyHasher>(
    pool: &Pool<u32, S>,
    keys: impl IntoClaims<u32>,
) -> (Answer, Sender<Handle<()>>) {
    let (send, receive): (_, Receiver<Handle<()>>) = mpsc::channel();
    let begun = Gate::new();
    let begins = begun.clone();
    let body = move || {
        begins.open();
        receive.recv().unwrap().wait().is_ok()
    };
    let answer = pool.submit(keys, body).unwrap();
    begun.pass();
    (answer, send)
}

fn task<S: AnyHasher>(pool: &Pool<u32, S>, keys: impl IntoClaims<u32>) -> Handle<()> {
    pool.submit(keys, || {}).unwrap()
}

/// How many of these were allowed to wait.
fn allowed(answers: Vec<Answer>) -> usize {
    answers.into_iter().map(|answer| usize::from(answer.wait().unwrap().unwrap())).sum()
}

fn two_tasks_that_wait_crosswise<S: AnyHasher>() {
    for _ in 0..50 {
        let pool = pool_of::<S>(2);
        let (one, first) = waiter(&pool, 1);
        let (two, second) = waiter(&pool, 2);
        let (behind_one, behind_two) = (task(&pool, 1), task(&pool, 2));
        first.send(behind_two).unwrap();
        second.send(behind_one).unwrap();
        assert_eq!(allowed(vec![one, two]), 1);
        pool.shutdown().unwrap();
    }
}

fn a_ring_of_tasks<S: AnyHasher>() {
    for tasks in 3..8 {
        let pool = pool_of::<S>(tasks as usize);
        let waiters: Vec<_> = (0..tasks).map(|key| waiter(&pool, key)).collect();
        let mut behind: Vec<_> = (0..tasks).map(|key| task(&pool, key)).collect();
        behind.rotate_left(1);
        let (answers, sends): (Vec<_>, Vec<_>) = waiters.into_iter().unzip();
        sends.iter().zip(behind).for_each(|(send, behind)| send.send(behind).unwrap());
        assert_eq!(allowed(answers), tasks as usize - 1);
        pool.shutdown().unwrap();
    }
}

/// No task is behind another: each waits for the next one itself.
fn a_ring_of_tasks_that_wait_for_each_other<S: AnyHasher>() {
    for tasks in 2..6 {
        // A wait for a channel has no substitute.
        let pool = pool_of::<S>(tasks as usize);
        let (mut sends, mut handles) = (Vec::new(), Vec::new());
        let (say, said) = mpsc::channel();
        for key in 0..tasks {
            let (send, receive): (_, Receiver<Handle<()>>) = mpsc::channel();
            let say = say.clone();
            let body = move || say.send(receive.recv().unwrap().wait().is_ok()).unwrap();
            let free = if key % 2 == 0 { Claims::exclusive(key) } else { Claims::none() };
            sends.push(send);
            handles.push(pool.submit(free, body).unwrap());
        }
        handles.rotate_left(1);
        sends.iter().zip(handles).for_each(|(send, handle)| send.send(handle).unwrap());
        let allowed = said.iter().take(tasks as usize).filter(|allowed| *allowed).count();
        assert_eq!(allowed, tasks as usize - 1);
        pool.shutdown().unwrap();
    }
}

fn a_ring_through_a_barrier_and_rollups<S: AnyHasher>() {
    for through_barrier in [false, true] {
        let pool = pool_of::<S>(2);
        let (one, first) = waiter(&pool, [1, 5]);
        let (two, second) = waiter(&pool, Claims::shared(2).and_exclusive(6));
        let claims = if through_barrier { Claims::barrier() } else { vec![5, 8].into_claims() };
        let between = task(&pool, claims);
        let behind_one = task(&pool, 8);
        let behind_two = task(&pool, 2);
        first.send(behind_two).unwrap();
        second.send(behind_one).unwrap();
        // Behind the barrier each of the two waits for something behind itself as well.
        let expected = if through_barrier { 0 } else { 1 };
        assert_eq!(allowed(vec![one, two]), expected);
        between.wait().unwrap().unwrap();
        pool.shutdown().unwrap();
    }
}

fn waits_that_form_no_ring_go_on<S: AnyHasher>() {
    for _ in 0..20 {
        let pool = pool_of::<S>(6);
        let waiters: Vec<_> = (0..6).map(|key| waiter(&pool, key)).collect();
        let mut behind: Vec<_> = (0..6).map(|key| task(&pool, key)).collect();
        // Each waits for one behind the next; the last for one with nothing before it.
        behind.push(task(&pool, 9));
        drop(behind.remove(0));
        let (answers, sends): (Vec<_>, Vec<_>) = waiters.into_iter().unzip();
        sends.iter().zip(behind).for_each(|(send, behind)| send.send(behind).unwrap());
        assert_eq!(allowed(answers), 6);
        pool.shutdown().unwrap();
    }
}

fn who_waits_with_a_timeout_is_counted_on<S: AnyHasher>() {
    let pool = pool_of::<S>(2);
    let (say, asked) = mpsc::channel();
    let (give, given): (_, Receiver<Handle<()>>) = mpsc::channel();
    let timed = pool.submit(1, move || {
        let mut behind_two = given.recv().unwrap();
        say.send(()).unwrap();
        loop {
            // Until the other waits: then it would close the ring.
            match behind_two.wait_timeout(std::time::Duration::from_millis(1)) {
                Ok(None) => {}
                Ok(Some(_)) => return true,
                Err(_) => return false,
            }
        }
    });
    let (two, second) = waiter(&pool, 2);
    let (behind_one, behind_two) = (task(&pool, 1), task(&pool, 2));
    give.send(behind_two).unwrap();
    asked.recv().unwrap();
    second.send(behind_one).unwrap();
    assert!(!timed.unwrap().wait().unwrap().unwrap());
    assert_eq!(allowed(vec![two]), 1);
    pool.shutdown().unwrap();
}

/// When both ask at the same moment, one of them is allowed to wait.
#[test]
fn both_ask_at_once() {
    crate::common::soon(|| {
        let pool = Arc::new(pool(2));
        for _ in 0..300 {
            let meet = Arc::new(Barrier::new(2));
            let waiters: Vec<_> = (0..2_u32)
                .map(|key| {
                    let (send, receive): (_, Receiver<Handle<()>>) = mpsc::channel();
                    let meet = meet.clone();
                    let body = move || {
                        let other = receive.recv().unwrap();
                        meet.wait();
                        other.wait().is_ok()
                    };
                    (pool.submit(key, body).unwrap(), send)
                })
                .collect();
            let behind: Vec<_> = (0..2_u32).map(|key| task(&pool, key)).collect();
            let (answers, sends): (Vec<_>, Vec<_>) = waiters.into_iter().unzip();
            sends.iter().rev().zip(behind).for_each(|(send, behind)| send.send(behind).unwrap());
            assert_eq!(allowed(answers), 1);
        }
    });
}

#[test]
fn a_ring_through_two_pools() {
    crate::common::soon(|| {
        let (here, there) = (pool(2), pool(2));
        let (one, first) = waiter(&here, 1);
        let (two, second) = waiter(&there, 1);
        let (behind_one, behind_two) = (task(&here, 1), task(&there, 1));
        first.send(behind_two).unwrap();
        second.send(behind_one).unwrap();
        assert_eq!(allowed(vec![one, two]), 1);
    });
}

#[test]
fn a_task_that_waits_is_explained() {
    crate::common::soon(|| {
        let pool = Arc::new(pool(2));
        let held = hold(&pool, 2);
        let (one, first) = waiter(&pool, 1);
        assert!(!pool.inspect().explain_key(&1).to_string().contains("waits for another task"));
        first.send(task(&pool, 2)).unwrap();
        eventually(|| {
            pool.inspect().explain_key(&1).to_string().contains("waits for another task")
        });
        let stalled = pool.inspect().stalled(std::time::Duration::ZERO);
        let waits = |key| stalled.iter().find(|it| it.keys == [key]).unwrap().waits;
        assert!(waits(1) && !waits(2));
        held.let_go();
        assert_eq!(allowed(vec![one]), 1);
        eventually(|| pool.inspect().stalled(std::time::Duration::ZERO).is_empty());
    });
}

/// While a task waits for a job of another pool its worker has a substitute.
#[test]
fn a_wait_for_another_pools_job_has_a_substitute() {
    crate::common::soon(|| {
        let (here, there) = (Arc::new(pool(1)), pool(1));
        let gate = Gate::new();
        let pass = gate.clone();
        let job = there.job("elsewhere").each([move || pass.pass()]).run().unwrap();
        let waits = here.submit(1, move || job.wait().unwrap().is_completed()).unwrap();
        // The job ends only after this.
        here.submit(2, || {}).unwrap().wait().unwrap().unwrap();
        gate.open();
        assert!(waits.wait().unwrap().unwrap());
    });
}

/// Threads outside of tasks note nothing, and are refused nothing.
#[test]
fn waits_outside_of_tasks_are_free() {
    crate::common::soon(|| {
        let pool = Arc::new(pool(2));
        let held = hold(&pool, 1);
        let behind = task(&pool, 1);
        let outside = thread::spawn(move || behind.wait().is_ok());
        held.let_go();
        assert!(outside.join().unwrap());
    });
}
