//! With a strict quantum keys progress evenly: a key yields unless its wait queue is longer than
//! the next one's.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

use crate::common::{LONG, hold, soon};
use keylane::Pool;

const KEYS: u32 = 6;
const ROUNDS: u32 = 120;

/// One key is where no other is in the pool, if it has parts.
#[derive(Clone)]
struct Spread(u64);

impl BuildHasher for Spread {
    type Hasher = Spread;

    fn build_hasher(&self) -> Spread {
        Spread(0)
    }
}

impl Hasher for Spread {
    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are numbers");
    }

    fn write_u32(&mut self, key: u32) {
        self.0 = u64::from(key) | u64::from(key.min(1)) << 32;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Two workers run tasks of these keys in step. Returns the counts of each round.
fn in_rounds(strict: bool, keys: Vec<u32>, rounds: usize) -> Vec<[u32; 2]> {
    soon(move || {
        let (begin, begun) = mpsc::channel::<(u32, mpsc::Sender<()>)>();
        let pool = Pool::<u32>::builder().workers(2).quantum(1, LONG).hasher(Spread(0));
        let pool = if strict { pool.strict_quantum() } else { pool };
        let handler = move |key: &u32, (): ()| {
            let (end, ended) = mpsc::channel();
            // When the rounds are over, nothing delays it any more.
            if begin.send((*key, end)).is_ok() {
                let _ = ended.recv();
            }
        };
        let pool = pool.build_handler(handler).unwrap();
        pool.send_many(keys.into_iter().map(|key| (key, ()))).unwrap();
        let mut ran = Vec::new();
        for _ in 0..rounds {
            // Each of the two is in a task before either continues.
            let [one, two] = [(); 2].map(|()| begun.recv_timeout(LONG).unwrap());
            ran.push([one.0, two.0]);
        }
        drop(begun);
        ran
    })
}

fn even_keys() -> Vec<u32> {
    (0..KEYS * ROUNDS).map(|n| n % KEYS).collect()
}

/// How many of each key are among them.
fn counts(ran: &[[u32; 2]]) -> HashMap<u32, u32> {
    let mut counts = HashMap::new();
    for key in ran.iter().flatten() {
        *counts.entry(*key).or_default() += 1;
    }
    counts
}

#[test]
fn keys_with_as_much_to_do_take_turns_where_the_quantum_is_strict() {
    let ran = counts(&in_rounds(true, even_keys(), ROUNDS as usize));
    // Turns go round all keys, so each has had as many as all others; but for the turns that are
    // under way.
    let even = 2 * ROUNDS / KEYS;
    assert!(ran.values().all(|ran| ran.abs_diff(even) <= 2), "{ran:?}");
    assert_eq!(ran.len(), KEYS as usize, "{ran:?}");
}

/// One key has half of all tasks. If it had no more than its turns, the others would be over long
/// before it, and a worker had nothing to do.
#[test]
fn the_longest_line_goes_on_so_that_no_worker_is_idle_in_the_end() {
    let others = KEYS - 1;
    let long = (0..others * ROUNDS).map(|_| KEYS);
    let short = (0..others).flat_map(|key| (0..ROUNDS).map(move |_| key));
    // Until all lines are known, turns may go to any.
    let begin = 2 * KEYS as usize;
    let rounds = (others * ROUNDS) as usize - begin;
    let ran = in_rounds(true, long.chain(short).collect(), rounds);
    let with_long = ran.iter().filter(|round| round.contains(&KEYS)).count();
    assert!(with_long >= rounds - begin, "the long line ran in {with_long} of {rounds} rounds");
}

/// At most half of the workers stay with long wait queues: short ones have turns on the others.
#[test]
fn short_lines_have_turns_beside_many_long_ones() {
    let short = 2 * KEYS;
    let long = (0..KEYS).flat_map(|key| (0..ROUNDS).map(move |_| key));
    let keys = long.chain([short]).collect();
    let ran = in_rounds(true, keys, 4 * KEYS as usize);
    assert!(ran.iter().any(|round| round.contains(&short)), "{ran:?}");
}

/// Without a strict quantum one of the two workers stays with its key.
#[test]
fn otherwise_one_of_two_workers_stays_with_its_key() {
    let ran = counts(&in_rounds(false, even_keys(), ROUNDS as usize));
    assert!(ran.values().any(|ran| *ran > ROUNDS * 3 / 4), "{ran:?}");
}

/// All tasks of the key are in its wait queue, and the other task is not in the backlog yet.
#[test]
fn a_task_that_comes_last_waits_for_one_quantum_of_a_key_with_a_long_line() {
    const QUANTUM: usize = 2;
    soon(|| {
        let pool = Pool::<u32>::builder().workers(2).quantum(QUANTUM, LONG).strict_quantum();
        let pool = pool.build().unwrap();
        let long = hold(&pool, 0);
        let ran = Arc::new(AtomicUsize::new(0));
        for _ in 0..20 {
            let ran = ran.clone();
            pool.execute(0, move || _ = ran.fetch_add(1, Ordering::SeqCst)).unwrap();
        }
        // The second worker has entered all of these before it is busy itself.
        let busy = hold(&pool, 1);
        let count = ran.clone();
        let last = pool.submit(2, move || count.load(Ordering::SeqCst)).unwrap();
        long.let_go();
        let before = last.wait().unwrap().unwrap();
        assert!(before <= QUANTUM, "{before} tasks of the long line");
        busy.let_go();
        pool.shutdown().unwrap();
    });
}
