//! Each key has at most one state. It is created for the first message of the key, used by its
//! messages in order, and dropped once: with the last unfinished message, or after its idle time.

use std::collections::HashMap;
use std::panic::panic_any;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::common::{Gate, Live, Log, One, Rng, eventually, lock, soon};
use keylane::handler::{self, Stateful};
use keylane::{Handler, HandlerPool, MockClock, OnClosedKey, OnFailure, Pool, SubmitErrorKind};

const SECOND: Duration = Duration::from_secs(1);

/// Message of a test.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Count,
    Fail,
    Panic,
}

/// State of a key: the number of messages that have used it.
struct Counter {
    used: u32,
    _live: One,
}

/// Handler that logs the key, and the number of uses of its state.
fn counting(live: &Live, log: &Log<(u32, u32)>) -> impl Handler<u32, Step> + use<> {
    counter(live, log)
}

type Create = Box<dyn Fn(&u32) -> Counter + Send + Sync>;
type Handle = Box<dyn Fn(&u32, &mut Counter, Step) -> Result<(), ()> + Send + Sync>;

fn counter(live: &Live, log: &Log<(u32, u32)>) -> Stateful<Create, Handle> {
    let (live, log) = (live.clone(), log.clone());
    let create = move |_: &u32| Counter { used: 0, _live: live.one() };
    let handle = move |key: &u32, counter: &mut Counter, step: Step| {
        counter.used += 1;
        log.push((*key, counter.used));
        match step {
            Step::Count => Ok(()),
            Step::Fail => Err(()),
            Step::Panic => panic_any("as expected"),
        }
    };
    handler::stateful(Box::new(create) as Create, Box::new(handle) as Handle)
}

fn pool(handler: impl Handler<u32, Step>) -> HandlerPool<u32, Step> {
    Pool::<u32>::builder().workers(2).build_handler(handler).unwrap()
}

#[test]
fn waiting_messages_share_a_state_that_ends_with_the_last() {
    soon(|| {
        let (live, log) = (Live::new(), Log::new());
        let pool = pool(counting(&live, &log));
        for _ in 0..2 {
            pool.keys().pause(&1);
            pool.send_many((0..3).map(|_| (1, Step::Count))).unwrap();
            pool.send(2, Step::Count).unwrap();
            pool.keys().resume(&1);
            pool.wait_idle().unwrap();
            assert_eq!(live.count(), 0, "no key has a message");
            let (one, two): (Vec<_>, Vec<_>) = log.take().into_iter().partition(|it| it.0 == 1);
            assert_eq!((one, two), (vec![(1, 1), (1, 2), (1, 3)], vec![(2, 1)]));
        }
    });
}

#[test]
fn a_state_is_dropped_before_the_next_message_creates_one() {
    soon(|| {
        let alive = Arc::new(AtomicUsize::new(0));
        struct Alone(Arc<AtomicUsize>);
        impl Drop for Alone {
            fn drop(&mut self) {
                assert_eq!(self.0.fetch_sub(1, Ordering::SeqCst), 1);
            }
        }
        let create = move |_: &u32| {
            assert_eq!(alive.fetch_add(1, Ordering::SeqCst), 0, "two states of a key");
            Alone(alive.clone())
        };
        let handler = handler::stateful(create, |_: &u32, _: &mut Alone, (): ()| ());
        let pool = Pool::<u32>::builder().workers(2).build_handler(handler).unwrap();
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..2000).for_each(|_| pool.send(1, ()).unwrap()));
            }
        });
        pool.shutdown().unwrap();
        assert_eq!(pool.inspect().snapshot(0).panicked, 0);
    });
}

#[test]
fn an_error_leaves_the_state_and_a_panic_drops_it() {
    soon(|| {
        let (live, log) = (Live::new(), Log::new());
        let pool = pool(counting(&live, &log));
        pool.keys().pause(&1);
        let steps = [Step::Count, Step::Fail, Step::Count, Step::Panic, Step::Count];
        pool.send_many(steps.map(|step| (1, step))).unwrap();
        pool.keys().resume(&1);
        pool.shutdown().unwrap();
        assert_eq!(log.take(), [(1, 1), (1, 2), (1, 3), (1, 4), (1, 1)]);
        assert_eq!(live.count(), 0);
        let snapshot = pool.inspect().snapshot(0);
        assert_eq!((snapshot.failed, snapshot.panicked), (1, 1));
    });
}

#[test]
fn a_panic_of_create_or_of_a_drop_ends_its_message_alone() {
    struct Fragile(bool);
    impl Drop for Fragile {
        fn drop(&mut self) {
            assert!(!self.0, "as expected");
        }
    }
    soon(|| {
        let (log, created) = (Log::new(), AtomicU64::new(0));
        let seen = log.clone();
        let create = move |_: &u32| {
            let number = created.fetch_add(1, Ordering::SeqCst);
            assert!(number != 0, "as expected");
            Fragile(number == 1)
        };
        let handle = move |_: &u32, _: &mut Fragile, number: u32| seen.push(number);
        let pool = Pool::<u32>::builder().workers(1);
        let pool = pool.build_handler(handler::stateful(create, handle)).unwrap();
        for number in 0..3 {
            pool.send(1, number).unwrap();
            pool.wait_idle().unwrap();
        }
        assert_eq!(log.take(), [1, 2]);
        assert_eq!(pool.inspect().snapshot(0).panicked, 2, "of one create and one drop");
    });
}

#[test]
fn a_stopped_key_keeps_its_state_until_its_messages_are_taken() {
    soon(|| {
        let (live, log) = (Live::new(), Log::new());
        let builder = Pool::<u32>::builder().workers(1);
        let builder = builder.on_failure(OnFailure::StopKey { after: 1 });
        let pool = builder.build_handler(counting(&live, &log)).unwrap();
        pool.keys().pause(&1);
        pool.send_many([(1, Step::Fail), (1, Step::Count), (1, Step::Count)]).unwrap();
        pool.keys().resume(&1);
        eventually(|| !pool.keys().list_stopped().is_empty());
        assert_eq!(live.count(), 1, "two messages wait");
        assert_eq!(pool.keys().take(&1).len(), 2);
        assert_eq!(live.count(), 0);
        pool.keys().resume(&1);
        pool.send(1, Step::Count).unwrap();
        pool.shutdown().unwrap();
        assert_eq!((log.take(), live.count()), (vec![(1, 1), (1, 1)], 0));
    });
}

#[test]
fn a_closed_key_ends_its_state_with_its_last_message() {
    soon(|| {
        let (live, log) = (Live::new(), Log::new());
        let pool = pool(counting(&live, &log));
        pool.keys().pause(&1);
        pool.send(1, Step::Count).unwrap();
        pool.close_key(1, OnClosedKey::Refuse, Step::Count).unwrap();
        assert_eq!(pool.send(1, Step::Count).unwrap_err().kind(), SubmitErrorKind::KeyClosed);
        pool.keys().resume(&1);
        pool.shutdown().unwrap();
        assert_eq!((log.take(), live.count()), (vec![(1, 1), (1, 2)], 0));
    });
}

#[test]
fn a_stop_and_a_drop_of_the_pool_drop_the_states() {
    soon(|| {
        for stops in [true, false] {
            let (live, log) = (Live::new(), Log::new());
            let pool = pool(counter(&live, &log).keep_idle(SECOND));
            pool.send(2, Step::Count).unwrap();
            pool.wait_idle().unwrap();
            pool.keys().pause(&1);
            pool.send_many([(1, Step::Count), (1, Step::Count)]).unwrap();
            assert_eq!(live.count(), 1, "of key 2");
            if stops {
                assert_eq!(pool.shutdown_now().len(), 2);
                assert_eq!(live.count(), 0);
            }
            drop(pool);
            assert_eq!(live.count(), 0);
        }
    });
}

#[test]
fn an_idle_state_is_kept_for_its_time() {
    soon(|| {
        let (live, log, clock) = (Live::new(), Log::new(), MockClock::new());
        let builder = Pool::<u32>::builder().workers(2).clock(&clock);
        let pool = builder.build_handler(counter(&live, &log).keep_idle(4 * SECOND)).unwrap();
        let send = |key| {
            pool.send(key, Step::Count).unwrap();
            pool.wait_idle().unwrap();
        };
        send(1);
        clock.advance(3 * SECOND);
        send(1);
        send(2);
        assert_eq!((log.take(), live.count()), (vec![(1, 1), (1, 2), (2, 1)], 2));
        // The sweep for the first use finds both states in time, and comes again.
        clock.advance(SECOND);
        send(2);
        clock.advance(3 * SECOND);
        eventually(|| live.count() == 1);
        send(2);
        assert_eq!(log.take(), [(2, 2), (2, 3)]);
        clock.advance(5 * SECOND);
        eventually(|| live.count() == 0);
        send(1);
        assert_eq!(log.take(), [(1, 1)]);
        assert_eq!(live.count(), 1);
        pool.close();
        assert_eq!(live.count(), 0, "a closed pool keeps no idle state");
        pool.shutdown().unwrap();
        assert_eq!(pool.inspect().snapshot(0).retried, 0, "a sweep is no attempt");
    });
}

#[test]
fn a_message_of_the_handler_itself_finds_the_state() {
    soon(|| {
        let (log, home) = (Log::new(), Arc::new(Mutex::new(None::<HandlerPool<u32, u32>>)));
        let (seen, own) = (log.clone(), home.clone());
        let handle = move |key: &u32, sum: &mut u32, left: u32| {
            *sum += left;
            seen.push(*sum);
            if left != 0 {
                lock(&own).as_ref().unwrap().send(*key, left - 1).unwrap();
            }
        };
        let handler = handler::stateful(|_: &u32| 0, handle);
        let pool = Pool::<u32>::builder().workers(2).build_handler(handler).unwrap();
        *lock(&home) = Some(pool.clone());
        pool.send(1, 3).unwrap();
        pool.wait_idle().unwrap();
        assert_eq!(log.take(), [3, 5, 6, 6]);
        drop(lock(&home).take());
    });
}

/// State of the random test: checks that messages of its key come in order, one at a time.
struct Checked {
    last: u64,
    busy: Arc<AtomicBool>,
    _live: One,
}

/// Random messages of few keys from several threads, with errors and panics, while keys are paused,
/// taken and resumed, workers and bounds change, and the pool is shut down or stopped.
#[test]
fn random_programs_use_each_state_in_order_and_drop_it_once() {
    for seed in 0..40 {
        soon(move || random_program(seed));
    }
}

const KEYS: u64 = 3;

fn random_program(seed: u64) {
    let (live, busy) = (Live::new(), (0..KEYS).map(|_| Arc::default()).collect::<Vec<_>>());
    let (of_key, states): (Vec<Arc<AtomicBool>>, _) = (busy, live.clone());
    let create = move |key: &u64| Checked {
        last: 0,
        busy: of_key[*key as usize].clone(),
        _live: states.one(),
    };
    let handle = |_: &u64, state: &mut Checked, (number, step): (u64, Step)| {
        assert!(!state.busy.swap(true, Ordering::SeqCst), "two messages use one state");
        assert!(state.last < number, "out of order");
        state.last = number;
        thread::yield_now();
        state.busy.store(false, Ordering::SeqCst);
        match step {
            Step::Count => Ok(()),
            Step::Fail => Err(()),
            Step::Panic => panic_any(Step::Panic),
        }
    };
    let mut handler = handler::stateful(create, handle);
    let clock = MockClock::new();
    if seed.is_multiple_of(2) {
        handler = handler.keep_idle(SECOND);
    }
    let unexpected = Arc::new(AtomicUsize::new(0));
    let count = unexpected.clone();
    let builder = Pool::<u64>::builder().workers(2).clock(&clock).capacity(64);
    let builder = if seed.is_multiple_of(3) { builder.capacity_per_key(8) } else { builder };
    let builder = builder.on_panic(move |payload: &(dyn std::any::Any + Send)| {
        if payload.downcast_ref::<Step>().is_none() {
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    let pool = builder.build_handler(handler).unwrap();
    thread::scope(|scope| {
        let senders = (0..2).map(|sender| {
            let pool = &pool;
            scope.spawn(move || {
                // Numbers of one sender grow; a key has one sender only.
                let mut rng = Rng(seed * 10 + sender);
                for number in 1..300 {
                    let key = if rng.below(3) == 0 { 2 * sender } else { sender };
                    let key = key.min(KEYS - 1);
                    let step = [Step::Count, Step::Fail, Step::Panic][rng.below(8).min(2) as usize];
                    let step = if rng.below(2) == 0 { Step::Count } else { step };
                    if pool.send(key, (number, step)).is_err() {
                        break;
                    }
                }
            })
        });
        let senders: Vec<_> = senders.collect();
        control(&pool, &clock, seed);
        senders.into_iter().for_each(|sender| sender.join().unwrap());
    });
    if seed.is_multiple_of(4) {
        drop(pool.shutdown_now());
    }
    (0..KEYS).for_each(|key| _ = pool.keys().resume(&key));
    pool.shutdown().unwrap();
    assert_eq!(unexpected.load(Ordering::SeqCst), 0, "seed {seed}");
    drop(pool);
    eventually(|| live.count() == 0);
}

/// Pauses, takes and resumes keys, changes sizes, and lets time pass.
fn control(pool: &HandlerPool<u64, (u64, Step)>, clock: &MockClock, seed: u64) {
    let mut rng = Rng(seed + 1000);
    for _ in 0..60 {
        let key = rng.below(KEYS);
        match rng.below(7) {
            0 => _ = pool.keys().pause(&key),
            1 | 2 => _ = pool.keys().resume(&key),
            3 => _ = pool.keys().take(&key),
            4 => pool.settings().set_workers(1 + rng.below(3) as usize).unwrap(),
            5 => pool.settings().set_capacity(8 + rng.below(64) as usize).unwrap(),
            _ => clock.advance(SECOND / 2),
        }
        thread::yield_now();
    }
    (0..KEYS).for_each(|key| _ = pool.keys().resume(&key));
    // A stop while messages wait.
    if seed.is_multiple_of(5) {
        drop(pool.shutdown_now());
    }
}

/// A key without messages is not remembered.
#[test]
fn no_key_is_left_when_its_state_has_ended() {
    soon(|| {
        let keys = Arc::new(());
        let gate = Gate::new();
        let wait = gate.clone();
        #[derive(Clone)]
        struct Key(u32, #[allow(dead_code, reason = "counts the copies")] Arc<()>);
        impl PartialEq for Key {
            fn eq(&self, other: &Self) -> bool {
                self.0 == other.0
            }
        }
        impl Eq for Key {}
        impl std::hash::Hash for Key {
            fn hash<H: std::hash::Hasher>(&self, hasher: &mut H) {
                self.0.hash(hasher);
            }
        }
        let handle = move |_: &Key, uses: &mut HashMap<u32, u32>, n: u32| {
            wait.pass();
            *uses.entry(n).or_default() += 1;
        };
        let handler = handler::stateful(|_: &Key| HashMap::new(), handle);
        let pool = Pool::<Key>::builder().workers(2).build_handler(handler).unwrap();
        for n in 0..1000 {
            pool.send(Key(n % 10, keys.clone()), n).unwrap();
        }
        gate.open();
        pool.wait_idle().unwrap();
        eventually(|| Arc::strong_count(&keys) == 1);
    });
}
