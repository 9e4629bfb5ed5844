//! Everything that waits can say why, and everything that runs, where and for how long.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{Gate, OpenAtLast, eventually, soon, with_turns};
use keylane::observe::{JobState, KeyHolder, PauseReason, PoolReason, TaskState};
use keylane::{Claims, Compatibility, IntoClaims, Pool};

/// Occupies keys until the gate opens, and has begun when this returns.
fn occupy(pool: &Pool<&'static str>, keys: impl IntoClaims<&'static str>, gate: &Gate) {
    let (wait, begun) = (gate.clone(), Gate::new());
    let begin = begun.clone();
    pool.execute(keys, move || {
        begin.open();
        wait.pass();
    })
    .unwrap();
    begun.pass();
}

fn scene(workers: usize) -> (Pool<&'static str>, Gate, OpenAtLast) {
    let pool = Pool::builder().workers(workers).build().unwrap();
    let gate = Gate::new();
    (pool, gate.clone(), OpenAtLast(gate))
}

/// Whether one of the reasons why the pool does not run more tasks is such.
fn has_reason(pool: &Pool<&'static str>, is_such: impl Fn(&PoolReason) -> bool) -> bool {
    pool.inspect().explain_pool().reasons.iter().any(is_such)
}

#[test]
fn a_task_says_behind_how_many_it_waits_and_who_has_its_key() {
    soon(|| {
        let (pool, gate, _open) = scene(2);
        occupy(&pool, "a", &gate);
        let second = pool.submit("a", || {}).unwrap();
        let third = pool.submit("a", || {}).unwrap();
        for (task, tasks) in [(&second, 1), (&third, 2)] {
            let why = pool.inspect().explain(task);
            let TaskState::Behind(ahead) = &why.state else { panic!("{why:?}") };
            assert_eq!((ahead[0].key, ahead[0].tasks, ahead.len()), ("a", tasks, 1));
            let KeyHolder::Running(running) = &ahead[0].holder else { panic!("{why:?}") };
            assert!(running.worker.is_some() && running.at_least <= running.at_most);
            assert!(why.age.is_some());
            assert!(why.to_string().contains("runs on worker"), "{why}");
        }
        gate.open();
        second.wait().unwrap().unwrap();
        eventually(|| matches!(pool.inspect().explain(&third).state, TaskState::Over));
    });
}

#[test]
fn a_running_task_says_where() {
    soon(|| {
        let (pool, gate, _open) = scene(2);
        let (wait, begun) = (gate.clone(), Gate::new());
        let begin = begun.clone();
        let body = move || {
            begin.open();
            wait.pass();
        };
        let task = pool.submit("a", body).unwrap();
        begun.pass();
        let why = pool.inspect().explain(&task);
        let TaskState::Running(running) = &why.state else { panic!("{why:?}") };
        assert!(running.worker.is_some_and(|worker| worker < 2));
        let before = running.at_least;
        eventually(|| match pool.inspect().explain(&task).state {
            TaskState::Running(now) => now.at_least > before,
            other => panic!("{other:?}"),
        });
    });
}

#[test]
fn with_no_worker_free_a_task_is_ready_or_not_looked_at() {
    soon(|| {
        let (pool, gate, _open) = scene(1);
        occupy(&pool, "a", &gate);
        let tasks: Vec<_> = ["b", "c"].map(|key| pool.submit(key, || {}).unwrap()).into();
        for task in &tasks {
            let why = pool.inspect().explain(task);
            assert!(
                matches!(why.state, TaskState::Queued { .. } | TaskState::Ready { .. }),
                "{why}"
            );
        }
        let why = pool.inspect().explain_pool();
        let busy =
            |it: &PoolReason| matches!(it, PoolReason::AllWorkersBusy { workers: 1, startable: 2 });
        assert!(why.reasons.iter().any(busy), "{why}");
        assert!(matches!(pool.inspect().explain_key(&"b").holder, KeyHolder::Unprocessed { .. }));
    });
}

#[test]
fn who_shares_waits_only_for_who_does_not() {
    soon(|| {
        let (pool, gate, _open) = scene(4);
        occupy(&pool, Claims::shared("a"), &gate);
        let writer = pool.submit("a", || {}).unwrap();
        let reader = pool.submit(Claims::shared("a"), || {}).unwrap();
        let last = pool.submit(Claims::shared("a"), || {}).unwrap();
        for (task, tasks) in [(&writer, 1), (&reader, 2), (&last, 2)] {
            let why = pool.inspect().explain(task);
            let TaskState::Behind(ahead) = &why.state else { panic!("{why:?}") };
            assert_eq!(ahead[0].tasks, tasks, "{why}");
        }
        assert_eq!(pool.inspect().explain_key(&"a").tasks, 4);
    });
}

#[test]
fn a_rollup_names_the_keys_that_it_waits_for() {
    soon(|| {
        let (pool, gate, _open) = scene(4);
        occupy(&pool, "b", &gate);
        let rollup = pool.submit(["a", "b", "c"], || {}).unwrap();
        let behind = pool.submit("a", || {}).unwrap();
        // Once the workers have entered them.
        eventually(|| matches!(pool.inspect().explain_key(&"a").holder, KeyHolder::Rollup(_)));
        let why = pool.inspect().explain(&rollup);
        let TaskState::Behind(ahead) = &why.state else { panic!("{why:?}") };
        assert_eq!(ahead.iter().map(|ahead| ahead.key).collect::<Vec<_>>(), ["b"], "{why}");
        assert!(matches!(ahead[0].holder, KeyHolder::Running(_)), "{why}");
        let why = pool.inspect().explain(&behind);
        let TaskState::Behind(ahead) = &why.state else { panic!("{why:?}") };
        let waits_for_b =
            |it: &KeyHolder<_>| matches!(it, KeyHolder::Rollup(keys) if *keys == ["b"]);
        assert!(waits_for_b(&ahead[0].holder), "{why}");
        assert!(waits_for_b(&pool.inspect().explain_key(&"a").holder));
        assert!(
            pool.inspect()
                .explain_pool()
                .reasons
                .iter()
                .any(|why| matches!(why, PoolReason::Behind { .. }))
        );
    });
}

#[test]
fn who_waits_behind_a_running_rollup_is_told_where_that_runs() {
    soon(|| {
        let (pool, gate, _open) = scene(3);
        occupy(&pool, ["a", "b"], &gate);
        for key in ["a", "b"] {
            let task = pool.submit(key, || {}).unwrap();
            let why = pool.inspect().explain(&task);
            let TaskState::Behind(ahead) = &why.state else { panic!("{why:?}") };
            assert!(matches!(ahead[0].holder, KeyHolder::Running(_)), "{why}");
        }
    });
}

#[test]
fn what_waits_for_a_barrier_says_so() {
    soon(|| {
        let (pool, gate, _open) = scene(2);
        occupy(&pool, "a", &gate);
        let barrier = pool.submit(Claims::barrier(), || {}).unwrap();
        let task = pool.submit("b", || {}).unwrap();
        // The idle worker may be moving both from the inboxes into the lanes.
        eventually(|| matches!(pool.inspect().explain(&barrier).state, TaskState::IsBarrier));
        let is_behind = |state| matches!(state, TaskState::BehindBarrier { running: false });
        eventually(|| is_behind(pool.inspect().explain(&task).state));
        let is_held = |holder| matches!(holder, KeyHolder::BehindBarrier { running: false });
        eventually(|| is_held(pool.inspect().explain_key(&"b").holder));
        gate.open();
        task.wait().unwrap().unwrap();

        let gate = Gate::new();
        let _open = OpenAtLast(gate.clone());
        occupy(&pool, Claims::barrier(), &gate);
        let task = pool.submit("b", || {}).unwrap();
        let why = pool.inspect().explain(&task);
        assert!(matches!(why.state, TaskState::BehindBarrier { running: true }), "{why}");
        assert!(has_reason(&pool, |it| matches!(it, PoolReason::Barrier { running: true })));
    });
}

/// Regression test: a barrier that all shards had reached was in no queue, and seemed to be taken by
/// a worker.
#[test]
fn a_barrier_that_is_next_everywhere_says_what_it_is() {
    soon(|| {
        let (pool, gate, _open) = scene(2);
        occupy(&pool, "a", &gate);
        let barrier = pool.submit(Claims::barrier(), || {}).unwrap();
        // The idle worker has processed all that it can: both shards have reached the barrier.
        eventually(|| pool.inspect().snapshot(0).workers_asleep == 1);
        let why = pool.inspect().explain(&barrier);
        assert!(matches!(why.state, TaskState::IsBarrier), "{why}");
        gate.open();
        barrier.wait().unwrap().unwrap();
    });
}

#[test]
fn a_key_without_tasks_is_idle_and_a_pool_without_any_has_nothing_to_do() {
    soon(|| {
        let (pool, ..) = scene(2);
        let why = pool.inspect().explain_key(&"a");
        assert!(matches!(why.holder, KeyHolder::Idle), "{why}");
        assert_eq!((why.tasks, why.age), (0, None));
        assert!(matches!(pool.inspect().explain_pool().reasons[..], [PoolReason::NothingToDo]));
        pool.close();
        assert!(matches!(
            pool.inspect().explain_pool().reasons[..],
            [PoolReason::Closed, PoolReason::NothingToDo]
        ));
    });
}

#[test]
fn who_waits_for_room_is_a_reason() {
    soon(|| {
        let pool = Pool::<&str>::builder().workers(1).capacity(1).build().unwrap();
        let pool = Arc::new(pool);
        let gate = Gate::new();
        let _open = OpenAtLast(gate.clone());
        occupy(&pool, "a", &gate);
        let submitter = pool.clone();
        let submitter = std::thread::spawn(move || submitter.execute("b", || {}).unwrap());
        let full =
            |it: &_| matches!(it, PoolReason::NoRoom { waiting: 1, unfinished: 1, capacity: 1 });
        eventually(|| has_reason(&pool, full));
        gate.open();
        submitter.join().unwrap();
    });
}

#[test]
fn a_job_says_why_it_is_where_it_is() {
    soon(|| {
        let pool = Pool::<&str>::builder().workers(1).max_active_jobs(1).build().unwrap();
        let gate = Gate::new();
        let _open = OpenAtLast(gate.clone());
        let begun = Gate::new();
        let (wait, begin) = (gate.clone(), begun.clone());
        let first = (0..2).map(move |_| {
            let (wait, begin) = (wait.clone(), begin.clone());
            move || {
                begin.open();
                wait.pass();
            }
        });
        let first = pool.job("first").each(first).collect().unwrap();
        begun.pass();
        let second = pool.job("second").each((0..1).map(|n| move || n)).collect().unwrap();
        let third = pool.job("third").each((0..1).map(|n| move || n)).collect().unwrap();
        let running = pool.inspect().explain_job(first.id());
        assert!(matches!(running, JobState::Running { workers: 1, .. }), "{running}");
        let state = pool.inspect().explain_job(second.id());
        assert!(matches!(state, JobState::NotAdmitted { ahead: 0 }), "{state}");
        let state = pool.inspect().explain_job(third.id());
        assert!(matches!(state, JobState::NotAdmitted { ahead: 1 }), "{state}");
        assert!(third.pause());
        assert!(matches!(pool.inspect().explain_job(third.id()), JobState::Paused));
        assert!(has_reason(&pool, |it| matches!(it, PoolReason::JobsNotAdmitted { jobs: 1 })));
        gate.open();
        let id = first.id();
        first.wait().unwrap().unwrap();
        assert!(matches!(pool.inspect().explain_job(id), JobState::Over));
        third.cancel();
    });
}

#[test]
fn a_job_of_which_all_subtasks_wait_for_keys_says_how_many() {
    soon(|| {
        let pool = Pool::<&str>::builder().workers(2).build().unwrap();
        let gate = Gate::new();
        let _open = OpenAtLast(gate.clone());
        occupy(&pool, "a", &gate);
        let subtasks: Vec<_> = (0..3).map(|_| ("a", || {})).collect();
        let job = pool.job("behind").each_keyed(subtasks).run().unwrap();
        let waits = || pool.inspect().explain_job(job.id());
        eventually(|| matches!(waits(), JobState::Waiting { subtasks: 3 }));
        gate.open();
        job.wait().unwrap().unwrap();
    });
}

#[test]
fn a_kept_turn_is_seen_to_hold_its_key() {
    soon(|| {
        let (send, turns) = std::sync::mpsc::channel();
        let send = std::sync::Mutex::new(send);
        let pool = Pool::<&str>::builder().workers(1);
        let pool = pool.build_handler(with_turns(move |_, _: (), turn| {
            send.lock().unwrap().send(turn).unwrap();
        }));
        let pool = pool.unwrap();
        pool.send("a", ()).unwrap();
        pool.send("a", ()).unwrap();
        let turn = turns.recv().unwrap();
        // Until the handler has returned it is its worker that runs it.
        eventually(|| {
            let why = pool.inspect().explain_key(&"a");
            let KeyHolder::Running(running) = &why.holder else { panic!("{why:?}") };
            assert_eq!(why.tasks, 2);
            running.worker.is_none()
        });
        drop(turn);
        drop(turns.recv().unwrap());
        pool.shutdown().unwrap();
    });
}

#[test]
fn asking_disturbs_neither_the_order_nor_the_end_of_anything() {
    soon(|| {
        let pool = Pool::<u64>::builder().workers(2).capacity(1000).build().unwrap();
        let next = Arc::new(crate::common::Log::new());
        let asks = Gate::new();
        std::thread::scope(|scope| {
            let asker = scope.spawn(|| {
                let mut asked = 0_u64;
                while pool.inspect().snapshot(0).finished < 20_000 {
                    for key in 0..4 {
                        let _ = pool.inspect().explain_key(&key).to_string();
                    }
                    let _ = (
                        pool.inspect().explain_pool().to_string(),
                        pool.inspect().stalled(Duration::ZERO).len(),
                    );
                    asked += 1;
                    asks.open();
                }
                asked
            });
            // Otherwise all could be over before it has begun.
            asks.pass();
            for task in 0..20_000_u64 {
                let log = (*next).clone();
                match task % 50 {
                    0 => pool.execute([0, 1, 2, 3], move || log.push(task)).unwrap(),
                    1 => pool.execute(Claims::barrier(), move || log.push(task)).unwrap(),
                    _ => pool.execute(0, move || log.push(task)).unwrap(),
                }
                if task % 10 == 9 {
                    let watched = pool.submit(task % 4, || {}).unwrap();
                    let _ = pool.inspect().explain(&watched).to_string();
                }
            }
            assert!(asker.join().unwrap() > 0);
        });
        pool.shutdown().unwrap();
        // All of them conflict on key 0 or as barriers, so they ran in the order of submission.
        assert!(next.take().windows(2).all(|pair| pair[0] < pair[1]));
    });
}

#[test]
fn a_key_on_hold_says_so_and_so_do_its_tasks() {
    soon(|| {
        let (pool, gate, _open) = scene(2);
        pool.keys().pause(&"a");
        let idle = pool.inspect().explain_key(&"a");
        assert_eq!(idle.tasks, 0);
        assert!(matches!(idle.holder, KeyHolder::Idle), "{idle}");
        assert!(matches!(idle.hold, Some(PauseReason::Paused { .. })), "{idle}");

        let first = pool.submit("a", || {}).unwrap();
        let both = pool.submit(["a", "b"], || {}).unwrap();
        for (task, tasks) in [(&first, 0), (&both, 1)] {
            let why = pool.inspect().explain(task);
            let TaskState::Behind(ahead) = &why.state else { panic!("{why:?}") };
            assert_eq!((ahead[0].key, ahead[0].tasks), ("a", tasks));
            assert!(
                matches!(ahead[0].holder, KeyHolder::Paused(PauseReason::Paused { .. })),
                "{why:?}"
            );
            assert!(why.to_string().contains("paused"), "{why}");
        }
        let key = pool.inspect().explain_key(&"a");
        assert_eq!(key.tasks, 2);
        assert!(matches!(key.holder, KeyHolder::Paused(_)), "{key:?}");
        assert!(has_reason(&pool, |it| matches!(it, PoolReason::KeysPaused { keys: 1 })));

        // A running task has its key to the end, hold or no hold.
        occupy(&pool, "c", &gate);
        pool.keys().pause(&"c");
        let key = pool.inspect().explain_key(&"c");
        assert!(matches!(key.holder, KeyHolder::Running(_)), "{key:?}");
        assert!(key.hold.is_some() && key.to_string().contains("paused"), "{key}");
        gate.open();

        pool.keys().resume(&"a");
        pool.keys().resume(&"c");
        first.wait().unwrap().unwrap();
        both.wait().unwrap().unwrap();
        assert!(pool.inspect().explain_key(&"a").hold.is_none());
    });
}

#[test]
fn a_task_that_is_incompatible_with_another_says_so() {
    struct Alone;
    impl Compatibility for Alone {
        fn is_compatible(&self, _: &Self) -> bool {
            false
        }
    }
    soon(|| {
        let (pool, gate, _open) = scene(2);
        occupy(&pool, Claims::described(Alone), &gate);
        let unkeyed = pool.submit(Claims::described(Alone), || {}).unwrap();
        let keyed = pool.submit(Claims::exclusive("a").with_descriptor(Alone), || {}).unwrap();
        // A worker may have to look at them first.
        for task in [&unkeyed, &keyed] {
            eventually(|| {
                matches!(pool.inspect().explain(task).state, TaskState::BehindIncompatible)
            });
        }
        gate.open();
        unkeyed.wait().unwrap().unwrap();
        eventually(|| matches!(pool.inspect().explain(&keyed).state, TaskState::Over));
        keyed.wait().unwrap().unwrap();
    });
}
