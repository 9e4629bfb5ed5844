//! Where the quantum is strict, no key keeps a worker beyond it while others are ready, and keys get on evenly.

mod common;

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};
use std::sync::mpsc;

use common::{LONG, soon};
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

/// Two workers go through their tasks in step: how many of each key had run when the rounds were over.
fn in_rounds(strict: bool) -> HashMap<u32, u32> {
    soon(move || {
        let (begin, begun) = mpsc::channel::<(u32, mpsc::Sender<()>)>();
        let pool = Pool::<u32>::builder().workers(2).quantum(1, LONG).hasher(Spread(0));
        let pool = if strict { pool.strict_quantum() } else { pool };
        let handler = move |key: &u32, (): ()| {
            let (end, ended) = mpsc::channel();
            // When the rounds are over nobody holds it up any more.
            if begin.send((*key, end)).is_ok() {
                let _ = ended.recv();
            }
        };
        let pool = pool.build_handler(handler).unwrap();
        pool.send_many((0..KEYS * ROUNDS).map(|n| (n % KEYS, ()))).unwrap();
        let mut ran = HashMap::new();
        for _ in 0..ROUNDS {
            // Each of the two is in a task before either goes on.
            let [one, two] = [(); 2].map(|()| begun.recv_timeout(LONG).unwrap());
            for (key, _end) in [one, two] {
                *ran.entry(key).or_default() += 1;
            }
        }
        drop(begun);
        ran
    })
}

#[test]
fn no_key_keeps_a_worker_beyond_a_strict_quantum() {
    let ran = in_rounds(true);
    // Turns go round all keys, so each has had as many as all others; but for the turns that are under way.
    let even = 2 * ROUNDS / KEYS;
    assert!(ran.values().all(|ran| ran.abs_diff(even) <= 2), "{ran:?}");
    assert_eq!(ran.len(), KEYS as usize, "{ran:?}");
}

/// What it is for: by default one of the two workers stays with its key.
#[test]
fn otherwise_one_of_two_workers_stays_with_its_key() {
    let ran = in_rounds(false);
    assert!(ran.values().any(|ran| *ran > ROUNDS * 3 / 4), "{ran:?}");
}
