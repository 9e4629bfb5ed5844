//! GroupedThreadPool's defects (seed 003), asked of tasks whose order a predicate decides, as its
//! was. `defects.rs` asks the same of keys.

use std::panic::panic_any;
use std::sync::{Arc, Barrier, mpsc};
use std::thread;

use crate::common::{Gate, LONG, Live, Log, One, eventually, hold, hold_soon, pool, soon};
use keylane::{Claims, Compatibility, Pool, SubmitErrorKind};

/// Scope of a task in the seed's own tests: one key, or all of them.
#[derive(Clone, Debug)]
struct Group {
    keys: Vec<u32>,
    /// Declares no conflict itself, so that the other task's declaration decides.
    is_silent: bool,
}

impl Compatibility for Group {
    fn is_compatible(&self, other: &Self) -> bool {
        self.is_silent || !self.keys.iter().any(|key| other.keys.contains(key))
    }
}

fn group(keys: &[u32]) -> Claims<u32> {
    Claims::described(Group { keys: keys.to_vec(), is_silent: false })
}

fn silent(keys: &[u32]) -> Claims<u32> {
    Claims::described(Group { keys: keys.to_vec(), is_silent: true })
}

/// `submit` wrapped a task in a FutureTask, which was compatible with everything: two tasks of one
/// key ran at the same time.
#[test]
fn seed_003_3a_a_task_with_a_handle_loses_its_predicate() {
    soon(|| {
        let pool = pool(3);
        let log = Log::new();
        for n in 0..3_000 {
            let own = log.clone();
            let work = move || own.push(n);
            match n % 5 {
                0 => drop(pool.submit(group(&[1]), work).unwrap()),
                1 => pool.execute(group(&[1, 2]), work).unwrap(),
                2 => drop(pool.submit_many([(group(&[1, 3]), work)]).unwrap()),
                3 => drop(pool.submit(group(&[1]).and_shared(9).with_cost(8), work).unwrap()),
                _ => {
                    let task = move || work();
                    pool.job("one")
                        .each_keyed([(group(&[1]), task)])
                        .run()
                        .unwrap()
                        .wait()
                        .unwrap();
                }
            }
        }
        pool.shutdown().unwrap();
        assert!(log.take().into_iter().eq(0..3_000));
    });
}

/// A rollup was kept as an anonymous wrapper and given as that to the predicates of others: a
/// conflict that only the others knew of was missed, and A2 ran inside the rollup.
#[test]
fn seed_003_3b_a_conflict_that_one_side_declares_is_missed() {
    soon(|| {
        let pool = pool(3);
        type Make = fn(&[u32]) -> Claims<u32>;
        for (first, second) in [(silent as Make, group as Make), (group, silent), (group, group)] {
            let rollup = hold(&pool, first(&[1, 2]));
            let inside = pool.submit(second(&[1]), || {}).unwrap();
            let held = hold(&pool, second(&[3]));
            let (behind, begun) = hold_soon(&pool, first(&[3, 4]));
            pool.submit(7, || {}).unwrap().wait().unwrap().unwrap();
            assert!(!inside.is_finished() && !begun.is_open());
            drop((rollup, held, behind));
            assert!(inside.wait().unwrap().is_completed());
            begun.pass();
        }
        // Where neither objects they are compatible.
        let _held = hold(&pool, silent(&[1]));
        assert!(pool.submit(silent(&[1]), || {}).unwrap().wait().unwrap().is_completed());
    });
}

/// An `Error` killed the worker; later rollups, and the shutdown, hung.
#[test]
fn seed_003_3c_an_error_hangs_rollups_and_the_shutdown() {
    soon(|| {
        let pool = pool(2);
        for key in 0..20 {
            pool.execute(group(&[key]), || panic_any(())).unwrap();
            pool.execute(group(&[key, key + 1]), || panic_any(())).unwrap();
        }
        let all: Vec<u32> = (0..20).collect();
        assert!(pool.submit(group(&all), || {}).unwrap().wait().unwrap().is_completed());
        assert_eq!(pool.inspect().snapshot(0).workers.len(), 2);
        pool.shutdown().unwrap();
    });
}

/// A task that left the interrupt flag set killed its worker silently. The counterpart in Rust is
/// the token of `unpark` that a task leaves behind on its thread.
#[test]
fn seed_003_3d_a_flag_that_a_task_leaves_behind_ends_its_worker() {
    soon(|| {
        let pool = pool(2);
        for round in 0..200 {
            for key in 0..4 {
                pool.execute(group(&[key]), || thread::current().unpark()).unwrap();
            }
            if round % 20 == 0 {
                // All workers are there, and run something at the same time.
                let meet = Arc::new(Barrier::new(2));
                for key in [10, 11] {
                    let meet = meet.clone();
                    pool.execute(group(&[key]), move || _ = meet.wait()).unwrap();
                }
                pool.submit(Claims::barrier(), || {}).unwrap().wait().unwrap().unwrap();
            }
        }
        assert_eq!(pool.inspect().snapshot(0).workers.len(), 2);
        pool.shutdown().unwrap();
    });
}

/// A rollup held a thread on a latch: an unrelated task behind it ran at 501 ms, though a thread
/// was free from 20 ms on.
#[test]
fn seed_003_3e_a_rollup_holds_a_thread() {
    soon(|| {
        let pool = pool(2);
        let a = hold(&pool, group(&[1]));
        let rollups: Vec<_> =
            (2..20).map(|key| pool.submit(group(&[1, key]), || {}).unwrap()).collect();
        for key in 30..60 {
            assert!(pool.submit(group(&[key]), || {}).unwrap().wait().unwrap().is_completed());
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
fn seed_003_3f_groups_stick_together_after_a_rollup() {
    soon(|| {
        let pool = pool(2);
        let held = hold(&pool, group(&[1, 2]));
        let meet = Arc::new(Barrier::new(2));
        for _ in 0..20 {
            for key in [1, 2] {
                let meet = meet.clone();
                // All twenty pairs meet, so the two run beside each other to the end.
                pool.execute(group(&[key]), move || _ = meet.wait()).unwrap();
            }
        }
        held.let_go();
        pool.shutdown().unwrap();
    });
}

/// After the shutdown tasks were accepted and never ran; nothing reported the pending tasks; called
/// from a task it waited for itself.
#[test]
fn seed_003_3g_the_shutdown_accepts_loses_and_hangs() {
    soon(|| {
        let pool = Arc::new(pool(1));
        let held = hold(&pool, group(&[1]));
        pool.execute(group(&[1, 2]), || {}).unwrap();
        let own = Arc::downgrade(&pool);
        let (say, said) = mpsc::channel();
        pool.execute(group(&[1]), move || {
            let pool = own.upgrade().expect("the test waits");
            // From inside it may submit, and neither waits nor hangs.
            pool.execute(group(&[1]), || {}).unwrap();
            say.send((pool.shutdown().is_err(), pool.shutdown_now().len())).unwrap();
        })
        .unwrap();
        pool.execute(group(&[1, 3]), || {}).unwrap();
        held.let_go();
        assert_eq!(said.recv_timeout(LONG), Ok((true, 2)));
        assert!(pool.is_closed());
        let refused = pool.execute(group(&[1]), || {}).unwrap_err();
        assert_eq!(refused.kind(), SubmitErrorKind::Closed);
        pool.shutdown().unwrap();
    });
}

/// A group that is counted while it lives.
struct Counted(u32, #[expect(dead_code, reason = "its drop counts")] One);

impl Compatibility for Counted {
    fn is_compatible(&self, other: &Self) -> bool {
        self.0 != other.0
    }
}

/// Whatever had ended stayed in the mirrors until the next submission; there was no bound; a rollup
/// waited for unrelated tasks that were queued before its markers; a pool without threads was made,
/// and failed later.
#[test]
fn seed_003_3h_what_has_ended_is_kept_and_what_is_unrelated_is_waited_for() {
    soon(|| {
        let live = Live::new();
        let small = Pool::<u32>::builder().workers(2).capacity(3).build().unwrap();
        let counted = |key| Claims::described(Counted(key, live.one()));
        let payload = live.one();
        small.submit(counted(1), move || drop(payload)).unwrap().wait().unwrap().unwrap();
        eventually(|| live.count() == 0);

        // A rollup over groups 1 and 2 waits for those before it in these, and not for the others.
        let unrelated = hold(&small, counted(9));
        let rollup = Claims::described(Counted(1, live.one()));
        assert!(small.submit(rollup, || {}).unwrap().wait().unwrap().is_completed());

        let (_waits, begun) = hold_soon(&small, counted(9));
        let (_also, _) = hold_soon(&small, counted(9));
        assert!(!begun.is_open());
        assert_eq!(
            small.task(counted(5)).try_execute(|| {}).unwrap_err().kind(),
            SubmitErrorKind::Full
        );
        unrelated.let_go();
        assert!(Pool::<u32>::builder().workers(0).build().is_err());
    });
}

/// A rollup whose wait was interrupted was dropped in silence.
#[test]
fn seed_003_3h_a_rollup_that_is_given_up_vanishes() {
    soon(|| {
        let pool = pool(2);
        let (held, gate) = (hold(&pool, group(&[1])), Gate::new());
        let given_up = pool.submit(group(&[1, 2]), || {}).unwrap();
        let opens = gate.clone();
        pool.execute(group(&[2]), move || opens.open()).unwrap();
        assert!(given_up.cancel());
        held.let_go();
        gate.pass();
        assert!(given_up.wait().unwrap().is_cancelled(), "its submitter is told");
    });
}
