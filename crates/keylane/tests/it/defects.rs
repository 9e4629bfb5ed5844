//! One test for each defect of the systems that Keylane comes from: seed 000 (linked jobs of a
//! connection), seed 001 (a pool with key affinity), seed 003 (a grouped thread pool), the striped
//! executor, and what their relatives got wrong.
//!
//! Elsewhere: 003 with a predicate, as it had one, in `defects_grouped.rs`; 004 in
//! `queue_defects.rs`; 002 in `timeline.rs` of
//! `keylane-allocate`.

use std::hash::{Hash, Hasher};
use std::panic::panic_any;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::Duration;

use crate::common::{Collide, Gate, LONG, Live, Log, eventually, hold, pool, pool_of, soon};
use keylane::{Claims, OnClosedKey, Outcome, Pool, SubmitErrorKind};

/// Jobs ran by recursion: after some 6,300 linked jobs the stack overflowed, and the rest was lost.
/// `deep.rs` has the million, and the dropping.
#[test]
fn seed_000_0a_linked_tasks_overflow_the_stack() {
    soon(|| {
        let pool = Pool::<u32>::builder().workers(1).stack_size(64 * 1024).build().unwrap();
        let held = hold(&pool, 1);
        let ran = Arc::new(AtomicUsize::new(0));
        for _ in 0..20_000 {
            let ran = ran.clone();
            pool.execute(1, move || _ = ran.fetch_add(1, Ordering::SeqCst)).unwrap();
        }
        held.let_go();
        pool.shutdown().unwrap();
        assert_eq!(ran.load(Ordering::SeqCst), 20_000);
    });
}

/// A job that threw left no tombstone: whatever came later was linked to a dead job, forever.
#[test]
fn seed_000_0b_a_throwing_task_kills_its_key() {
    soon(|| {
        let pool = pool(1);
        let log = Log::new();
        for n in 0..10 {
            let log = log.clone();
            let work = move || {
                if n == 4 {
                    panic_any(n);
                }
                log.push(n);
            };
            pool.execute(1, work).unwrap();
        }
        pool.shutdown().unwrap();
        assert_eq!(log.take(), [0, 1, 2, 3, 5, 6, 7, 8, 9]);
    });
}

/// A rejected submission left its key pointing at a job that would never run: the key was dead
/// although the pool was idle.
#[test]
fn seed_000_0c_a_rejected_task_kills_its_key() {
    soon(|| {
        let pool = Pool::<u32>::builder().workers(1).capacity(1).build().unwrap();
        for _ in 0..5 {
            let held = hold(&pool, 1);
            for keys in [vec![1], vec![1, 2], vec![2]] {
                let error = pool.task(keys.clone()).try_execute(|| {}).unwrap_err();
                assert_eq!(error.kind(), SubmitErrorKind::Full);
                let now = Duration::ZERO;
                assert!(pool.task(keys).timeout(now).submit(|| {}).is_err());
            }
            held.let_go();
            for keys in [vec![1], vec![1, 2], vec![2]] {
                assert!(pool.submit(keys, || {}).unwrap().wait().unwrap().is_completed());
            }
        }
    });
}

/// A chain had its worker to itself: B, submitted before a thousand follow-ups of A, ran after all
/// of them.
#[test]
fn seed_000_0d_a_chain_monopolises_its_worker() {
    soon(|| {
        let pool = Pool::<u32>::builder().workers(1).quantum(16, LONG).build().unwrap();
        let ran = Arc::new(AtomicUsize::new(0));
        let held = hold(&pool, 1);
        let count = ran.clone();
        let other = pool.submit(2, move || count.load(Ordering::SeqCst)).unwrap();
        for _ in 0..1_000 {
            let ran = ran.clone();
            pool.execute(1, move || _ = ran.fetch_add(1, Ordering::SeqCst)).unwrap();
        }
        held.let_go();
        // A quantum, and a slice of tiny tasks in one shard of the keys.
        assert!(other.wait().unwrap().unwrap() <= 16 + 64);
    });
}

/// The queue's bound was bypassed by linking: 10,000 were accepted with a capacity of one; some
/// even after the shutdown; and they ran after `shutdownNow`, which had returned none of them.
#[test]
fn seed_000_0e_the_bound_and_the_shutdown_are_bypassed() {
    soon(|| {
        let pool = Pool::<u32>::builder().workers(1).capacity(3).build().unwrap();
        let held = hold(&pool, 1);
        let ran = Arc::new(AtomicUsize::new(0));
        let submit = || {
            let ran = ran.clone();
            pool.task(1).try_execute(move || _ = ran.fetch_add(1, Ordering::SeqCst))
        };
        let accepted = (0..10_000).filter(|_| submit().is_ok()).count();
        assert_eq!(accepted, 2);
        let unrun = pool.shutdown_now();
        assert_eq!(unrun.len(), 2);
        assert_eq!(submit().unwrap_err().kind(), SubmitErrorKind::Closed);
        held.let_go();
        pool.shutdown().unwrap();
        assert_eq!(ran.load(Ordering::SeqCst), 0);
    });
}

/// Finished jobs stayed reachable from the head of their chain: 20 payloads of 1 MB of 20.
#[test]
fn seed_000_0f_finished_tasks_stay_reachable() {
    soon(|| {
        let pool = pool(1);
        let live = Live::new();
        for _ in 0..20 {
            let payload = (live.one(), vec![0_u8; 1 << 20]);
            let count = live.watch();
            let seen = pool.submit(1, move || {
                let _all = &payload;
            });
            assert!(seen.unwrap().wait().unwrap().is_completed());
            assert_eq!(pool.submit(1, move || count.now()).unwrap().wait().unwrap().ok(), Some(0));
        }
    });
}

/// The exception of a job went into a future that was never read.
#[test]
fn seed_000_0g_errors_vanish() {
    soon(|| {
        let told = Log::new();
        let log = told.clone();
        let pool = Pool::<u32>::builder()
            .workers(1)
            .on_panic(move |payload| log.push(*payload.downcast_ref::<i32>().expect("a number")))
            .build()
            .unwrap();
        pool.execute(1, || panic_any(1)).unwrap();
        let handle = pool.submit(1, || panic_any(2)).unwrap();
        assert!(matches!(handle.wait().unwrap(), Outcome::<()>::Panicked(_)));
        pool.shutdown().unwrap();
        assert_eq!(told.take(), [1, 2]);
        assert_eq!(pool.inspect().snapshot(0).panicked, 2);
    });
}

/// The close event of a connection overtook its messages, and messages ran after it. The end of a
/// key is the last, once.
#[test]
fn seed_000_0h_the_close_event_overtakes_messages() {
    soon(|| {
        let pool = pool(3);
        for connection in 0..200 {
            let log = Log::new();
            for n in 0..10 {
                let log = log.clone();
                pool.execute(connection, move || log.push(n)).unwrap();
            }
            let last = log.clone();
            let closed = pool
                .task(connection)
                .last(OnClosedKey::Refuse)
                .submit(move || last.push(99))
                .unwrap();
            let late =
                pool.task(connection).try_execute(|| unreachable!("after the end")).unwrap_err();
            assert_eq!(late.kind(), SubmitErrorKind::KeyClosed);
            assert!(closed.wait().unwrap().is_completed());
            assert!(log.take().into_iter().eq((0..10).chain([99])));
        }
    });
}

/// A submission that failed left its key with a task that no thread would run, and all later ones
/// were taken for its duplicates: they were cancelled forever.
#[test]
fn seed_001_1a_a_failed_replacement_poisons_its_key() {
    soon(|| {
        let pool = Pool::<u32>::builder().workers(1).capacity(1).build().unwrap();
        let running = hold(&pool, 2);
        let refused = pool.task(1).latest().try_submit(|| 0).unwrap_err();
        assert_eq!(refused.kind(), SubmitErrorKind::Full);
        running.let_go();
        for n in 0..5 {
            assert_eq!(
                pool.task(1).latest().submit(move || n).unwrap().wait().unwrap().ok(),
                Some(n)
            );
        }
    });
}

/// The first submitter's future, of a text, yielded the number of the second, whose own future was
/// cancelled although its body ran.
#[test]
fn seed_001_1b_who_is_replaced_gets_anothers_result() {
    soon(|| {
        let pool = pool(2);
        let running = hold(&pool, 1);
        let first = pool.task(1).latest().submit(|| "text".to_owned()).unwrap();
        let second = pool.task(1).latest().submit(|| 42).unwrap();
        assert!(first.wait().unwrap().is_superseded());
        running.let_go();
        assert_eq!(second.wait().unwrap().ok(), Some(42));
    });
}

/// All threads of the pool waited for messages that the same pool was to handle.
#[test]
fn seed_000_0i_waiting_on_its_own_pool_deadlocks() {
    soon(|| {
        let pool = Arc::new(pool(2));
        let handles: Vec<_> = (0..4)
            .map(|key| {
                let own = Arc::downgrade(&pool);
                let work = move || {
                    let pool = own.upgrade().expect("the test waits");
                    let message = pool.submit(100 + key, || 7).unwrap();
                    let own_line = pool.submit(key, || 8).unwrap();
                    (message.wait().unwrap().ok(), own_line.wait().is_err())
                };
                pool.submit(key, work).unwrap()
            })
            .collect();
        for handle in handles {
            assert_eq!(handle.wait().unwrap().ok(), Some((Some(7), true)));
        }
    });
}

/// One full hot worker blocked the dispatcher, while three others had nothing to do.
#[test]
fn seed_001_1c_a_hot_key_blocks_the_dispatcher() {
    soon(|| {
        let pool = pool(3);
        let hot = hold(&pool, 1);
        for _ in 0..10_000 {
            pool.execute(1, || {}).unwrap();
        }
        for cold in 2..50 {
            assert!(pool.submit(cold, || {}).unwrap().wait().unwrap().is_completed());
        }
        hot.let_go();
    });
}

/// A key that had been put beside a busy one waited, with another worker idle.
#[test]
fn seed_001_1d_keys_are_glued_to_a_worker() {
    soon(|| {
        let pool: Pool<u32, Collide> = pool_of(2);
        for round in 0..100 {
            // Whatever worker has run the keys last, the other one takes them.
            for key in 2..6 {
                assert!(pool.submit(key, || {}).unwrap().wait().unwrap().is_completed());
            }
            let busy = hold(&pool, 1);
            for key in 2..6 {
                let first = pool.submit(key, || {}).unwrap();
                let second = pool.submit(key, move || round).unwrap();
                assert_eq!(second.wait().unwrap().ok(), Some(round));
                assert!(first.is_finished());
            }
            busy.let_go();
        }
    });
}

/// A task that submitted to its own full worker waited forever, and so did two workers that fed
/// each other.
#[test]
fn seed_001_1e_a_task_that_submits_to_its_full_pool_deadlocks() {
    soon(|| {
        for workers in [1, 2] {
            let pool = Pool::<u32>::builder().workers(workers).capacity(2).build().unwrap();
            let pool = Arc::new(pool);
            let meet = Arc::new(Barrier::new(workers));
            let ran = Arc::new(AtomicUsize::new(0));
            for key in 0..workers as u32 {
                let (own, meet, ran) = (Arc::downgrade(&pool), meet.clone(), ran.clone());
                let feed = move || {
                    meet.wait();
                    let pool = own.upgrade().expect("the test drains it");
                    for n in 0..50 {
                        let ran = ran.clone();
                        // To itself, and to the other one.
                        let work = move || _ = ran.fetch_add(1, Ordering::SeqCst);
                        pool.execute((key + n) % 2, work).unwrap();
                    }
                };
                pool.execute(key, feed).unwrap();
            }
            eventually(|| ran.load(Ordering::SeqCst) == 50 * workers);
            pool.shutdown().unwrap();
        }
    });
}

/// `close` had no gate, so that it could wait forever, and no deadline.
#[test]
fn seed_001_1f_closing_has_no_gate_and_no_deadline() {
    soon(|| {
        let pool = Arc::new(pool(1));
        let held = hold(&pool, 1);
        assert!(pool.shutdown_timeout(Duration::from_millis(1)).is_err());
        assert_eq!(pool.execute(1, || {}).unwrap_err().kind(), SubmitErrorKind::Closed);
        held.let_go();
        pool.shutdown().unwrap();
        // A task that feeds itself is refused as well, or a drain would never end.
        let pool = Arc::new(crate::common::pool(1));
        fn feed(pool: std::sync::Weak<Pool<u32>>) {
            if let Some(own) = pool.upgrade() {
                let _ = own.execute(1, move || feed(pool));
            }
        }
        let own = Arc::downgrade(&pool);
        pool.execute(1, move || feed(own)).unwrap();
        pool.shutdown().unwrap();
    });
}

/// To shrink the pool was safe only because a helper slept for five seconds.
#[test]
fn seed_001_1g_shrinking_rests_on_a_sleep() {
    soon(|| {
        let pool = pool(4);
        let log = Log::new();
        for n in 0..2_000 {
            let log = log.clone();
            pool.execute(1, move || log.push(n)).unwrap();
            if n % 10 == 0 {
                pool.settings().set_workers(1 + n / 10 % 4).unwrap();
            }
        }
        pool.shutdown().unwrap();
        assert!(log.take().into_iter().eq(0..2_000));
    });
}

/// Two new keys that came at the same moment chose the same least loaded worker, while another was
/// idle. Here keys are not placed: each pair runs at the same time, for each waits for the other.
#[test]
fn seed_001_1h_two_new_keys_choose_the_same_worker() {
    soon(|| {
        let pool = pool(2);
        for round in 0..300 {
            let meet = Arc::new(Barrier::new(2));
            thread::scope(|scope| {
                for key in [2 * round, 2 * round + 1] {
                    let (pool, meet) = (&pool, meet.clone());
                    let meets = move || _ = meet.wait();
                    scope.spawn(move || pool.submit(key, meets).unwrap().wait().unwrap().unwrap());
                }
            });
        }
        pool.shutdown().unwrap();
    });
}

/// Submitters that were blocked by a full queue overtook each other. `bounded.rs` has threads and
/// futures in one line.
#[test]
fn seed_001_1i_blocked_submitters_overtake_each_other() {
    soon(|| {
        let pool = Pool::<u32>::builder().workers(1).capacity(1).build().unwrap();
        let log = Log::new();
        let held = hold(&pool, 1);
        thread::scope(|scope| {
            for n in 0..8 {
                let (pool, log) = (&pool, log.clone());
                scope.spawn(move || pool.execute(1, move || log.push(n)).unwrap());
                eventually(|| pool.inspect().snapshot(0).submitters_waiting == n + 1);
            }
            held.let_go();
        });
        pool.shutdown().unwrap();
        assert!(log.take().into_iter().eq(0..8));
    });
}

/// The key was free before the handler of uncaught exceptions had run, so that it ran beside the
/// key's next task.
#[test]
fn seed_001_1j_the_error_handler_overlaps_the_next_task() {
    soon(|| {
        let handling = Arc::new(AtomicUsize::new(0));
        let inside = handling.clone();
        let pool = Pool::<u32>::builder()
            .workers(3)
            .on_panic(move |_| {
                inside.fetch_add(1, Ordering::SeqCst);
                (0..1_000).for_each(|_| std::hint::spin_loop());
                inside.fetch_sub(1, Ordering::SeqCst);
            })
            .build()
            .unwrap();
        for n in 0..500 {
            let keys = if n % 2 == 0 { vec![1] } else { vec![1, 2] };
            pool.execute(keys, || panic_any(())).unwrap();
            let handling = handling.clone();
            let next = pool.submit(1, move || handling.load(Ordering::SeqCst)).unwrap();
            assert_eq!(next.wait().unwrap().ok(), Some(0));
        }
    });
}

/// Every failed task cost a thread. `isolated.rs` compares the threads.
#[test]
fn seed_001_1k_a_thread_dies_with_each_failure() {
    soon(|| {
        let pool = pool(1);
        let id = || pool.submit(1, || thread::current().id()).unwrap().wait().unwrap().ok();
        let before = id();
        for _ in 0..100 {
            pool.execute(1, || panic_any(())).unwrap();
        }
        assert_eq!(id(), before);
        assert_eq!(pool.inspect().snapshot(0).workers[0].id, 0);
    });
}

/// With a key whose hash had changed meanwhile the count of its tasks never fell, and `close`
/// waited forever. Such a key has no order to be kept; all else continues, and ends.
#[test]
fn seed_001_1l_a_key_that_changes_its_hash_hangs_the_close() {
    /// Never twice the same.
    #[derive(Clone, PartialEq, Eq)]
    struct Restless(u32);

    impl Hash for Restless {
        fn hash<H: Hasher>(&self, state: &mut H) {
            static CALLS: AtomicUsize = AtomicUsize::new(0);
            CALLS.fetch_add(1, Ordering::Relaxed).hash(state);
        }
    }

    soon(|| {
        let pool = Pool::<Restless>::builder().workers(2).build().unwrap();
        let ran = Arc::new(AtomicUsize::new(0));
        for n in 0..3_000 {
            let ran = ran.clone();
            let work = move || _ = ran.fetch_add(1, Ordering::SeqCst);
            match n % 3 {
                0 => pool.execute([Restless(1), Restless(2), Restless(1)], work).unwrap(),
                1 => pool.execute(Claims::shared(Restless(1)), work).unwrap(),
                _ => pool.execute(Restless(n % 2), work).unwrap(),
            }
        }
        pool.shutdown().unwrap();
        assert_eq!(ran.load(Ordering::SeqCst), 3_000);
        assert!(pool.inspect().snapshot(9).hottest.is_empty(), "nothing is left of any key");
    });
}

/// The capacity was a plain field that was read outside of its lock. `resize.rs` has the rest.
#[test]
fn seed_001_1m_the_capacity_is_read_outside_of_its_lock() {
    soon(|| {
        let pool = Pool::<u32>::builder().workers(1).capacity(1).build().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0..3_000 {
                    pool.settings().set_capacity(1 + n % 5).unwrap();
                }
                pool.settings().set_capacity(1).unwrap();
            });
            for n in 0..3_000 {
                pool.execute(n % 3, || {}).unwrap();
            }
        });
        eventually(|| pool.inspect().snapshot(0).unfinished == 0);
        let held = hold(&pool, 1);
        assert!(pool.task(1).try_execute(|| {}).is_err(), "there is room for exactly one");
        held.let_go();
    });
}

/// Cancelling the future of a running task freed its key: the next one ran beside it. `cancel.rs`
/// has the handle that is dropped and the one that is timed out.
#[test]
fn seed_001_1n_cancelling_a_running_task_frees_its_key() {
    soon(|| {
        let pool = pool(2);
        let (begun, gate, together) = (Gate::new(), Gate::new(), Arc::new(AtomicUsize::new(0)));
        let (runs, wait, inside) = (begun.clone(), gate.clone(), together.clone());
        let first = pool
            .submit(1, move || {
                inside.fetch_add(1, Ordering::SeqCst);
                runs.open();
                wait.pass();
                inside.fetch_sub(1, Ordering::SeqCst);
            })
            .unwrap();
        begun.pass();
        assert!(!first.cancel());
        let second = pool.submit(1, move || together.load(Ordering::SeqCst)).unwrap();
        assert!(pool.submit(2, || {}).unwrap().wait().unwrap().is_completed());
        assert!(!second.is_finished());
        gate.open();
        assert_eq!(second.wait().unwrap().ok(), Some(0));
    });
}

/// Tasks that were given to `submit` instead of `execute` were wrapped, lost their keys and ran
/// beside each other.
#[test]
fn seed_003_3a_submit_and_execute_order_differently() {
    soon(|| {
        let pool = pool(3);
        let log = Log::new();
        for n in 0..3_000 {
            let own = log.clone();
            let work = move || own.push(n);
            match n % 3 {
                0 => drop(pool.submit(1, work).unwrap()),
                1 => pool.execute([1, 2], work).unwrap(),
                _ => drop(pool.submit(Claims::exclusive(1).and_shared(3), work).unwrap()),
            }
        }
        pool.shutdown().unwrap();
        assert!(log.take().into_iter().eq(0..3_000));
    });
}

/// A conflict that only one of the two declared was missed: A2 ran inside the rollup over A. Here
/// the keys decide conflicts, whichever of the two comes first.
#[test]
fn seed_003_3b_a_conflict_is_missed_from_one_side() {
    soon(|| {
        let pool = pool(3);
        for (first, second) in [
            (Claims::exclusive(1), Claims::exclusive(2).and_exclusive(1)),
            (Claims::exclusive(2).and_exclusive(1), Claims::exclusive(1)),
            (Claims::shared(1), Claims::exclusive(2).and_exclusive(1)),
            (Claims::exclusive(2).and_exclusive(1), Claims::shared(1)),
            (Claims::barrier(), Claims::none()),
            (Claims::none(), Claims::barrier()),
        ] {
            let held = hold(&pool, first);
            let behind = pool.submit(second, || {}).unwrap();
            assert!(!behind.is_finished() && behind.cancel(), "it has not begun");
            held.let_go();
            assert!(behind.wait().unwrap().is_cancelled());
        }
    });
}

/// An `Error` killed the worker: later rollups, and the shutdown, hung.
#[test]
fn seed_003_3c_3d_a_dead_worker_hangs_rollups_and_the_shutdown() {
    soon(|| {
        let pool = pool(2);
        for key in 0..20 {
            pool.execute(key, || panic_any(())).unwrap();
            pool.execute([key, key + 1], || panic_any(())).unwrap();
        }
        let all: Vec<u32> = (0..20).collect();
        assert!(pool.submit(all, || {}).unwrap().wait().unwrap().is_completed());
        assert_eq!(pool.inspect().snapshot(0).workers.len(), 2);
        pool.shutdown().unwrap();
    });
}

/// A rollup blocked a thread until its other keys came, and unrelated tasks behind it waited with
/// it although a thread was free.
#[test]
fn seed_003_3e_a_rollup_blocks_a_worker() {
    soon(|| {
        let pool = pool(2);
        let a = hold(&pool, 1);
        let rollups: Vec<_> = (2..20).map(|key| pool.submit([1, key], || {}).unwrap()).collect();
        for key in 30..60 {
            assert!(pool.submit(key, || {}).unwrap().wait().unwrap().is_completed());
        }
        assert!(rollups.iter().all(|rollup| !rollup.is_finished()));
        a.let_go();
        for rollup in rollups {
            assert!(rollup.wait().unwrap().is_completed());
        }
    });
}

/// After one rollup the tasks of A and of B ran on one thread for as long as there was a backlog.
#[test]
fn seed_003_3f_keys_stick_together_after_a_rollup() {
    soon(|| {
        let pool = pool(2);
        pool.execute([1, 2], || {}).unwrap();
        let held = hold(&pool, [1, 2]);
        let meet = Arc::new(Barrier::new(2));
        for _ in 0..20 {
            for key in [1, 2] {
                let meet = meet.clone();
                // All twenty pairs meet, so the keys run beside each other to the end.
                pool.execute(key, move || _ = meet.wait()).unwrap();
            }
        }
        held.let_go();
        pool.shutdown().unwrap();
    });
}

/// After the shutdown tasks were accepted and never ran; it reported that it was not shut down,
/// returned null for the pending tasks, and called from a task it waited for itself.
#[test]
fn seed_003_3g_nothing_works_after_the_shutdown() {
    soon(|| {
        let pool = Arc::new(pool(1));
        let held = hold(&pool, 1);
        pool.execute([1, 2], || {}).unwrap();
        pool.execute(1, || {}).unwrap();
        let own = Arc::downgrade(&pool);
        let (say, said) = mpsc::channel();
        pool.execute(1, move || {
            let pool = own.upgrade().expect("the test waits");
            say.send((pool.shutdown().is_err(), pool.shutdown_now().len())).unwrap();
        })
        .unwrap();
        pool.execute([1, 3], || {}).unwrap();
        held.let_go();
        assert_eq!(said.recv_timeout(LONG), Ok((true, 1)));
        assert!(pool.is_closed());
        assert_eq!(pool.execute(1, || {}).unwrap_err().kind(), SubmitErrorKind::Closed);
        pool.shutdown().unwrap();
    });
}

/// After `shutdownNow` the queued stripes never left the map: waiting for the end said no, for
/// ever.
#[test]
fn striped_a_stopped_pool_never_ends() {
    soon(|| {
        let pool = pool(1);
        let held = hold(&pool, 0);
        for n in 0..500 {
            pool.execute([n % 7, n % 11], || {}).unwrap();
        }
        drop(pool.shutdown_now());
        held.let_go();
        pool.shutdown_timeout(LONG).unwrap();
        assert_eq!(pool.inspect().snapshot(0).unfinished, 0);
    });
}

/// Stripes that were equal and not the same object overlapped.
#[test]
fn striped_keys_are_compared_by_identity() {
    soon(|| {
        let pool = Pool::<String>::builder().workers(3).build().unwrap();
        let log = Log::new();
        for n in 0..1_000 {
            let log = log.clone();
            let key = format!("ke{}", "y");
            pool.execute(key, move || log.push(n)).unwrap();
        }
        pool.shutdown().unwrap();
        assert!(log.take().into_iter().eq(0..1_000));
    });
}

/// Guava: a rejected task took the place of the one behind it. Kotlin: a needless dispatch after
/// the last task met a closed pool. Here a pool is closed at the moment at which a lane runs dry.
#[test]
fn relatives_a_lane_runs_dry_while_the_pool_closes() {
    soon(|| {
        for n in 0..300 {
            let pool = pool(2);
            let handles: Vec<_> = (0..n % 5).map(|key| pool.submit([key % 2], || {})).collect();
            pool.close();
            pool.shutdown_timeout(LONG).unwrap();
            for handle in handles {
                assert!(handle.unwrap().wait().unwrap().is_completed());
            }
        }
    });
}
