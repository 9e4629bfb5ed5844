//! A pool that checks itself finds nothing wrong, whatever runs in it, and looks at every task.

use std::sync::mpsc;

use crate::common::{eventually, soon, with_turns};
use keylane::observe::Violations;
use keylane::{Claims, Pool};

fn is_clean(violations: Option<Violations>) -> bool {
    violations.expect("the pool checks itself").is_none()
}

#[test]
fn every_kind_of_task_passes() {
    soon(|| {
        let pool =
            Pool::<u64>::builder().workers(4).capacity(500).self_check(true).build().unwrap();
        std::thread::scope(|scope| {
            for thread in 0..3_u64 {
                let pool = &pool;
                scope.spawn(move || {
                    for task in 0..5_000_u64 {
                        let key = (task * 7 + thread) % 11;
                        match task % 40 {
                            0 => pool.execute([key, key + 1, key + 2], || {}).unwrap(),
                            1 => pool.execute(Claims::barrier(), || {}).unwrap(),
                            2 => pool.execute(Claims::none(), || {}).unwrap(),
                            3..12 => pool.execute(Claims::shared(key), || {}).unwrap(),
                            12 => {
                                let reads = Claims::shared(key).and_exclusive(key + 1);
                                pool.execute(reads, || {}).unwrap();
                            }
                            13 => _ = pool.submit(key, || {}).unwrap().cancel(),
                            14..20 => {
                                let most = 1 + (task % 3) as u16;
                                pool.execute(Claims::limited(key, most), || {}).unwrap();
                            }
                            20 => {
                                let limits = Claims::limited(key, 2).and_limited(key + 1, 3);
                                pool.execute(limits, || {}).unwrap();
                            }
                            _ => pool.execute(key % 3, || {}).unwrap(),
                        }
                    }
                });
            }
        });
        let job = (0..500_u64).map(|n| ([n % 3, n % 5], move || n));
        let job = pool.job("keyed").each_keyed(job).collect().unwrap();
        job.wait().unwrap().unwrap();
        pool.shutdown().unwrap();
        assert!(
            is_clean(pool.inspect().snapshot(0).violations),
            "{:?}",
            pool.inspect().snapshot(0).violations
        );
        // Every task was looked at: those of the job ran in turns that were kept. The last may be
        // counted after its end, but before its worker rests.
        eventually(|| pool.inspect().snapshot(0).workers.iter().all(|worker| !worker.busy));
        assert_eq!(pool.inspect().snapshot(0).run_time.count(), 15_000 + 500);
    });
}

#[test]
fn kept_turns_pass() {
    soon(|| {
        let (send, turns) = mpsc::channel::<keylane::Turn>();
        let send = std::sync::Mutex::new(send);
        let pool = Pool::<u64>::builder().workers(2).self_check(true);
        let pool = pool.build_handler(with_turns(move |_, _: (), turn| {
            send.lock().unwrap().send(turn).unwrap();
        }));
        let pool = pool.unwrap();
        let ender = std::thread::spawn(move || turns.into_iter().for_each(drop));
        for task in 0..5_000 {
            pool.send(task % 3, ()).unwrap();
        }
        pool.shutdown().unwrap();
        assert!(is_clean(pool.inspect().snapshot(0).violations));
        drop(pool);
        ender.join().unwrap();
    });
}

#[test]
fn a_pool_that_does_not_check_itself_claims_nothing() {
    soon(|| {
        let pool = Pool::<u64>::builder().build().unwrap();
        pool.execute(1, || {}).unwrap();
        eventually(|| pool.inspect().snapshot(0).unfinished == 0);
        assert!(pool.inspect().snapshot(0).violations.is_none());
    });
}
