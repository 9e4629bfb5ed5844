//! The statistics of a pool are true: counts exactly, times as measured.

use std::time::{Duration, Instant};

use crate::common::{Gate, OpenAtLast, eventually, soon, with_turns};
use keylane::observe::Statistics;
use keylane::{Claims, Compatibility, Outcome, Pool};

fn drained(pool: &Pool<u64>) {
    pool.shutdown().unwrap();
    // How long a task took may be counted after its end, but before its worker rests.
    eventually(|| pool.inspect().snapshot(0).workers.iter().all(|worker| !worker.busy));
}

#[test]
fn a_snapshot_may_ask_for_all_keys() {
    soon(|| {
        let pool = Pool::<u64>::builder().workers(1).capacity(100).build().unwrap();
        let gate = Gate::new();
        let _open = OpenAtLast(gate.clone());
        for key in 0..10 {
            let wait = gate.clone();
            pool.execute(key, move || wait.pass()).unwrap();
        }
        eventually(|| pool.inspect().snapshot(usize::MAX).hottest.len() == 10);
        gate.open();
        drained(&pool);
    });
}

#[test]
fn how_tasks_ended_is_counted() {
    soon(|| {
        let pool = Pool::<u64>::builder().workers(2).capacity(100).build().unwrap();
        let gate = Gate::new();
        let _open = OpenAtLast(gate.clone());
        for key in 0..10 {
            pool.execute(key, || {}).unwrap();
        }
        let failing = pool.task(1).fallible().submit(|| Err::<(), _>("no")).unwrap();
        assert!(matches!(failing.wait().unwrap(), Outcome::Failed("no")));
        let panicking = pool.submit(1, || std::panic::resume_unwind(Box::new("quietly"))).unwrap();
        assert!(matches!(panicking.wait().unwrap(), Outcome::<()>::Panicked(_)));
        let wait = gate.clone();
        pool.execute(2, move || wait.pass()).unwrap();
        let cancelled = pool.submit(2, || ()).unwrap();
        assert!(cancelled.cancel());
        gate.open();
        pool.close();
        assert!(pool.execute(3, || {}).is_err());
        assert!(pool.try_submit(3, || {}).is_err());
        assert!(pool.execute_many([4, 5].map(|key| (key, || {}))).is_err());
        drained(&pool);
        let seen = pool.inspect().snapshot(0);
        assert_eq!((seen.accepted, seen.finished), (14, 14));
        assert_eq!((seen.failed, seen.panicked, seen.cancelled), (1, 1, 1));
        assert_eq!(seen.refused, 4);
        assert_eq!((seen.queued, seen.blocked, seen.ready), (0, 0, 0));
    });
}

#[test]
fn who_did_not_get_in_is_counted_whatever_the_reason() {
    soon(|| {
        let pool = Pool::<u64>::builder().workers(1).capacity(1).build().unwrap();
        let gate = Gate::new();
        let _open = OpenAtLast(gate.clone());
        let wait = gate.clone();
        pool.execute(1, move || wait.pass()).unwrap();
        assert!(pool.task(2).try_execute(|| {}).is_err());
        assert!(pool.task(2).timeout(Duration::from_millis(1)).submit(|| {}).is_err());
        assert_eq!(pool.inspect().snapshot(0).refused, 2);
        assert_eq!(pool.inspect().snapshot(0).accepted, 1);
    });
}

#[test]
fn tasks_are_counted_where_they_are() {
    soon(|| {
        let pool = Pool::<u64>::builder().workers(1).build().unwrap();
        let (gate, begun) = (Gate::new(), Gate::new());
        let _open = OpenAtLast(gate.clone());
        let (wait, begin) = (gate.clone(), begun.clone());
        pool.execute(1, move || {
            begin.open();
            wait.pass();
        })
        .unwrap();
        begun.pass();
        for _ in 0..5 {
            pool.execute(1, || {}).unwrap();
        }
        let seen = pool.inspect().snapshot(0);
        assert_eq!(seen.running, 1);
        assert_eq!(seen.queued + seen.blocked + seen.ready, 5, "{seen:?}");
        assert_eq!(seen.unfinished, 6);
        gate.open();
        drained(&pool);
        let seen = pool.inspect().snapshot(0);
        assert_eq!(seen.queued + seen.blocked + seen.ready, 0);
        eventually(|| pool.inspect().snapshot(0).running == 0);
    });
}

#[test]
fn few_tasks_are_all_measured() {
    soon(|| {
        let pool = Pool::<u64>::builder().workers(2).build().unwrap();
        let start = Instant::now();
        for key in 0..20 {
            // One after the other, each after the worker has gone to sleep or not.
            let task = move || {
                let begun = Instant::now();
                while begun.elapsed() < Duration::from_micros(300) {}
            };
            assert!(pool.submit(key, task).unwrap().wait().unwrap().is_completed());
        }
        drained(&pool);
        let seen = pool.inspect().snapshot(0);
        assert_eq!(seen.run_time.count(), 20);
        assert!(seen.run_time.quantile(0.0) >= Duration::from_micros(300));
        // One wakes the waiter while the other begins: two workers have twice the time at the most.
        assert!(seen.run_time.sum() <= 2 * start.elapsed());
        assert!(!seen.wait_time.is_empty());
    });
}

/// Descriptor of a task that runs beside no other with a descriptor.
struct Alone;

impl Compatibility for Alone {
    fn is_compatible(&self, _: &Self) -> bool {
        false
    }
}

#[test]
fn every_task_is_measured_if_that_is_asked_for() {
    soon(|| {
        let pool = Pool::<u64>::builder().workers(2).statistics(Statistics::Every);
        let pool = pool.build().unwrap();
        for task in 0..10_000 {
            match task % 100 {
                0 => pool.execute([task, task + 1], || {}).unwrap(),
                1 => pool.execute(Claims::none(), || {}).unwrap(),
                2 => pool.execute(Claims::barrier(), || {}).unwrap(),
                3 => pool.execute(Claims::described(Alone), || {}).unwrap(),
                _ => pool.execute(task % 7, || {}).unwrap(),
            }
        }
        pool.execute_many((0..1000).map(|task| (task % 7, || {}))).unwrap();
        drained(&pool);
        let seen = pool.inspect().snapshot(0);
        assert_eq!(seen.finished, 11_000);
        assert_eq!((seen.wait_time.count(), seen.run_time.count()), (11_000, 11_000));
    });
}

#[test]
fn a_sample_stands_for_all() {
    soon(|| {
        let pool = Pool::<u64>::builder().workers(2).build().unwrap();
        const TASKS: u64 = 400_000;
        for task in 0..TASKS {
            pool.execute(task % 1000, || {}).unwrap();
        }
        drained(&pool);
        let seen = pool.inspect().snapshot(0);
        assert_eq!(seen.finished, TASKS);
        // Rows of up to 256 in each of 8 shards may be begun and not counted, or counted and not
        // ended; which slices are measured is left to chance.
        for (what, count) in [("waits", seen.wait_time.count()), ("runs", seen.run_time.count())] {
            assert!(count.abs_diff(TASKS) < TASKS / 5, "{count} {what} for {TASKS} tasks");
        }
    });
}

#[test]
fn nothing_is_measured_where_that_is_not_wanted() {
    soon(|| {
        let pool = Pool::<u64>::builder().statistics(Statistics::Off).build().unwrap();
        for key in 0..1000 {
            pool.execute(key, || {}).unwrap();
        }
        drained(&pool);
        let seen = pool.inspect().snapshot(0);
        assert_eq!(seen.finished, 1000, "counts are kept all the same");
        assert!(seen.wait_time.is_empty() && seen.run_time.is_empty());
    });
}

#[test]
fn a_wait_counts_from_submission_to_start() {
    soon(|| {
        let pool = Pool::<u64>::builder().workers(1).statistics(Statistics::Every).build().unwrap();
        let (gate, begun) = (Gate::new(), Gate::new());
        let _open = OpenAtLast(gate.clone());
        let (wait, begin) = (gate.clone(), begun.clone());
        pool.execute(1, move || {
            begin.open();
            wait.pass();
        })
        .unwrap();
        begun.pass();
        let submitted = Instant::now();
        pool.execute(1, || {}).unwrap();
        let held = submitted.elapsed();
        while submitted.elapsed() < Duration::from_millis(20) {
            std::thread::yield_now();
        }
        let waits = submitted.elapsed() - held;
        gate.open();
        drained(&pool);
        let seen = pool.inspect().snapshot(0);
        assert!(seen.wait_time.max() >= waits, "{:?} of {waits:?}", seen.wait_time);
        assert!(seen.run_time.max() >= waits, "the first ran meanwhile");
        assert_eq!(seen.wait_time.count(), 2);
    });
}

#[test]
fn a_job_s_subtasks_are_measured_as_well() {
    soon(|| {
        let pool = Pool::<u64>::builder().workers(2).statistics(Statistics::Every).build().unwrap();
        let job = pool.job("count").each((0..1000_u64).map(|n| move || n)).collect().unwrap();
        assert_eq!(job.wait().unwrap().unwrap().len(), 1000);
        drained(&pool);
        assert_eq!(pool.inspect().snapshot(0).run_time.count(), 1000);
    });
}

#[test]
fn a_kept_turn_lasts_until_it_ends() {
    soon(|| {
        let (send, turns) = std::sync::mpsc::channel();
        let send = std::sync::Mutex::new(send);
        let pool = Pool::<u64>::builder().workers(1);
        let pool = pool.build_handler(with_turns(move |_, _: (), turn| {
            send.lock().unwrap().send(turn).unwrap();
        }));
        let pool = pool.unwrap();
        pool.send(1, ()).unwrap();
        let turn = turns.recv().unwrap();
        let kept = Instant::now();
        eventually(|| !pool.inspect().snapshot(0).workers[0].busy);
        assert_eq!(pool.inspect().snapshot(0).running, 1, "it runs without a worker");
        while kept.elapsed() < Duration::from_millis(10) {
            std::thread::yield_now();
        }
        let lasted = kept.elapsed();
        drop(turn);
        pool.shutdown().unwrap();
        let seen = pool.inspect().snapshot(0);
        assert_eq!((seen.run_time.count(), seen.running), (1, 0));
        assert!(seen.run_time.max() >= lasted);
    });
}

#[test]
fn the_workers_say_how_long_they_were_busy_and_asleep() {
    soon(|| {
        // The workers count from when they are started.
        let start = Instant::now();
        let pool = Pool::<u64>::builder().workers(1).build().unwrap();
        eventually(|| pool.inspect().snapshot(0).workers_asleep == 1);
        let spun = Duration::from_millis(5);
        let task = move || {
            let begun = Instant::now();
            while begun.elapsed() < spun {}
        };
        pool.submit(1, task).unwrap().wait().unwrap();
        eventually(|| !pool.inspect().snapshot(0).workers[0].busy);
        let worker = &pool.inspect().snapshot(0).workers[0];
        assert!(worker.busy_time >= spun, "{worker:?}");
        assert!(worker.asleep_time > Duration::ZERO);
        assert!(worker.busy_time + worker.asleep_time <= start.elapsed());
        assert_eq!(worker.finished, 1);
    });
}

#[test]
fn what_a_dismissed_worker_has_done_is_not_forgotten() {
    soon(|| {
        let pool = Pool::<u64>::builder().workers(4).statistics(Statistics::Every).build().unwrap();
        for key in 0..1000 {
            pool.execute(key, || {}).unwrap();
        }
        eventually(|| pool.inspect().snapshot(0).unfinished == 0);
        pool.settings().set_workers(1).unwrap();
        eventually(|| pool.inspect().snapshot(0).workers.len() == 1);
        let seen = pool.inspect().snapshot(0);
        assert_eq!((seen.finished, seen.run_time.count()), (1000, 1000));
    });
}

#[test]
fn the_longest_and_the_oldest_lanes_are_shown() {
    soon(|| {
        let pool = Pool::<&str>::builder().workers(1).build().unwrap();
        let (gate, begun) = (Gate::new(), Gate::new());
        let _open = OpenAtLast(gate.clone());
        let (wait, begin) = (gate.clone(), begun.clone());
        pool.execute("busy", move || {
            begin.open();
            wait.pass();
        })
        .unwrap();
        begun.pass();
        pool.execute("old", || {}).unwrap();
        // Ages are in the ticks of a coarse clock.
        eventually(|| {
            let seen = pool.inspect().snapshot(9);
            seen.oldest.iter().all(|lane| lane.head_age >= Duration::from_millis(20))
        });
        for _ in 0..3 {
            pool.execute("long", || {}).unwrap();
        }
        let seen = pool.inspect().snapshot(2);
        assert_eq!(seen.hottest[0].key, "long");
        let oldest: Vec<_> = seen.oldest.iter().map(|lane| lane.key).collect();
        assert_eq!(oldest.len(), 2);
        assert!(oldest.contains(&"busy") && oldest.contains(&"old"), "{oldest:?}");
        assert_eq!(pool.inspect().snapshot(0).oldest.len(), 0);
    });
}
