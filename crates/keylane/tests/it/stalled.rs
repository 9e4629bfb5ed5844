//! A task that has held its keys for too long is named, and others are not.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::common::{Gate, LONG, OpenAtLast, eventually, soon, with_turns};
use keylane::{Claims, Pool};

const BOUND: Duration = Duration::from_millis(20);

#[test]
fn a_task_that_holds_its_key_for_long_is_named_with_its_thread() {
    soon(|| {
        let pool = Pool::<&str>::builder().workers(2).thread_name("orders").build().unwrap();
        let gate = Gate::new();
        let _open = OpenAtLast(gate.clone());
        let wait = gate.clone();
        let submitted = Instant::now();
        pool.execute("stuck", move || wait.pass()).unwrap();
        eventually(|| {
            pool.execute("quick", || {}).unwrap();
            !pool.inspect().stalled(BOUND).is_empty()
        });
        let held = submitted.elapsed();
        let stalled = pool.inspect().stalled(BOUND).remove(0);
        assert_eq!((stalled.keys.as_slice(), stalled.is_barrier), (&["stuck"][..], false));
        assert!(stalled.at_least >= BOUND && stalled.at_least <= held + submitted.elapsed());
        let worker = stalled.worker.unwrap();
        assert_eq!(stalled.thread.as_deref(), Some(format!("orders-{worker}").as_str()));
        assert!(stalled.to_string().starts_with("a task of \"stuck\" has run for "), "{stalled}");
        assert!(pool.inspect().stalled(LONG).is_empty());
        gate.open();
        eventually(|| pool.inspect().stalled(BOUND).is_empty());
    });
}

#[test]
fn rollups_barriers_and_tasks_without_keys_are_named() {
    soon(|| {
        let pool = Pool::<&str>::builder().workers(3).build().unwrap();
        let gate = Gate::new();
        let _open = OpenAtLast(gate.clone());
        for claims in [Claims::exclusive("a").and_exclusive("b"), Claims::none()] {
            let wait = gate.clone();
            pool.execute(claims, move || wait.pass()).unwrap();
        }
        eventually(|| pool.inspect().stalled(BOUND).len() == 2);
        let mut keys: Vec<_> =
            pool.inspect().stalled(BOUND).into_iter().map(|task| task.keys).collect();
        keys.iter_mut().for_each(|keys| keys.sort_unstable());
        keys.sort_unstable();
        assert_eq!(keys, [vec![], vec!["a", "b"]]);
        gate.open();

        let gate = Gate::new();
        let _open = OpenAtLast(gate.clone());
        let wait = gate.clone();
        pool.execute(Claims::barrier(), move || wait.pass()).unwrap();
        eventually(|| pool.inspect().stalled(BOUND).iter().any(|task| task.is_barrier));
    });
}

#[test]
fn a_long_task_in_a_row_of_tiny_ones_is_found() {
    // After a row of tiny tasks a worker does not look at the clock again for up to 64 more. A task
    // that it runs meanwhile must be found nevertheless, and its time not overestimated.
    soon(|| {
        let pool = Pool::<&str>::builder().workers(1).build().unwrap();
        let gate = Gate::new();
        let _open = OpenAtLast(gate.clone());
        for _ in 0..10_000 {
            pool.execute("key", || {}).unwrap();
        }
        let (started, start) = mpsc::channel();
        let wait = gate.clone();
        pool.execute("key", move || {
            started.send(Instant::now()).unwrap();
            wait.pass();
        })
        .unwrap();
        for _ in 0..10_000 {
            pool.execute("key", || {}).unwrap();
        }
        let began = start.recv().unwrap();
        eventually(|| !pool.inspect().stalled(BOUND).is_empty());
        let stalled = pool.inspect().stalled(BOUND).remove(0);
        // The row before it in its slice takes less than a millisecond.
        assert!(stalled.at_least <= began.elapsed() + Duration::from_millis(1), "{stalled}");
        gate.open();
        pool.shutdown().unwrap();
    });
}

#[test]
fn a_kept_turn_that_is_not_given_back_is_named() {
    soon(|| {
        let (send, turns) = mpsc::channel();
        let send = std::sync::Mutex::new(send);
        let pool = Pool::<&str>::builder().workers(1);
        let pool = pool.build_handler(with_turns(move |_, _: (), turn| {
            send.lock().unwrap().send(turn).unwrap();
        }));
        let pool = pool.unwrap();
        pool.send("kept", ()).unwrap();
        let turn = turns.recv().unwrap();
        // Until the handler has returned it is its worker that runs it.
        eventually(|| pool.inspect().snapshot(0).finished == 1);
        eventually(|| !pool.inspect().stalled(BOUND).is_empty());
        let stalled = pool.inspect().stalled(BOUND).remove(0);
        assert_eq!((stalled.keys.as_slice(), stalled.worker), (&["kept"][..], None));
        drop(turn);
        assert!(pool.inspect().stalled(Duration::ZERO).iter().all(|task| task.worker.is_some()));
    });
}

#[test]
fn a_watch_tells_of_each_stalled_task_once() {
    soon(|| {
        let pool = Pool::<u32>::builder().workers(2).build().unwrap();
        let gate = Gate::new();
        let _open = OpenAtLast(gate.clone());
        let (tell, told) = mpsc::channel();
        let watch = pool
            .inspect()
            .watch_stalls(BOUND, move |task| tell.send(task.clone()).unwrap())
            .unwrap();
        for key in [1, 2] {
            let wait = gate.clone();
            pool.execute(key, move || wait.pass()).unwrap();
        }
        let mut keys = [told.recv().unwrap().keys[0], told.recv().unwrap().keys[0]];
        keys.sort_unstable();
        assert_eq!(keys, [1, 2]);
        // The watch continues: tasks that stall later are reported, earlier ones are not reported
        // again.
        gate.open();
        let gate = Gate::new();
        let _open = OpenAtLast(gate.clone());
        let wait = gate.clone();
        pool.execute(3, move || wait.pass()).unwrap();
        assert_eq!(told.recv().unwrap().keys, [3]);
        drop(watch);
        assert!(told.recv().is_err(), "the watch has ended, and nothing else was told");
    });
}

#[test]
fn a_watch_survives_a_panic_of_its_callback_and_ends_with_the_pool() {
    soon(|| {
        let pool = Pool::<u32>::builder().workers(2).build().unwrap();
        let gate = Gate::new();
        let _open = OpenAtLast(gate.clone());
        let (tell, told) = mpsc::channel();
        let watch = pool.inspect().watch_stalls(BOUND, move |task| {
            tell.send(task.keys[0]).unwrap();
            std::panic::resume_unwind(Box::new("quietly"));
        });
        let watch = watch.unwrap();
        let mut keys = Vec::new();
        for key in [1, 2] {
            let wait = gate.clone();
            pool.execute(key, move || wait.pass()).unwrap();
            keys.push(told.recv().unwrap());
        }
        assert_eq!(keys, [1, 2]);
        gate.open();
        drop(pool);
        assert!(told.recv().is_err(), "its thread has gone");
        drop(watch);
    });
}

#[test]
fn a_bound_beyond_the_range_of_the_clock_is_no_error() {
    soon(|| {
        let pool = crate::common::pool(1);
        let watch = pool.inspect().watch_stalls(std::time::Duration::MAX, |_| ()).unwrap();
        assert!(pool.submit(1, || ()).unwrap().wait().unwrap().is_completed());
        drop(watch);
    });
}
