//! Tasks with very many keys.
//!
//! The hash of each key was compared with those of all before it, so that 40,000 keys took half a
//! second of the submitter, and as many as here several minutes.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::{hold, soon};
use keylane::{Claims, Pool};

const KEYS: usize = 150_000;

/// A key that counts how often it is compared.
#[derive(Clone)]
struct Counted(usize, Arc<AtomicUsize>);

impl PartialEq for Counted {
    fn eq(&self, other: &Self) -> bool {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0 == other.0
    }
}

impl Eq for Counted {}

impl Hash for Counted {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

fn compares_few(bounded: bool) {
    let compared = Arc::new(AtomicUsize::new(0));
    let builder = Pool::<Counted>::builder().workers(2);
    let builder = if bounded { builder.capacity_per_key(2) } else { builder };
    let pool = builder.build().unwrap();
    // Each key twice.
    let keys = (0..2 * KEYS).map(|n| Counted(n % KEYS, compared.clone()));
    let claims = keys.fold(Claims::none(), Claims::and_exclusive);
    pool.submit(claims, || {}).unwrap().wait().unwrap().unwrap();
    pool.shutdown().unwrap();
    let compared = compared.load(Ordering::Relaxed);
    assert!(compared < 40 * KEYS, "{compared} comparisons for {KEYS} keys");
}

#[test]
fn a_key_is_compared_with_few_others() {
    soon(|| compares_few(false));
}

#[test]
fn a_key_is_compared_with_few_others_where_each_key_is_bounded() {
    soon(|| compares_few(true));
}

/// A key that is listed more than once counts once, in the mode that conflicts with the most.
#[test]
fn a_key_among_many_counts_once() {
    soon(|| {
        let pool = crate::common::pool(4);
        for exclusive in [0, 57, 99] {
            let listed = (0..300).fold(Claims::none(), |claims, n| match n == 100 + exclusive {
                true => claims.and_exclusive(n % 100),
                false => claims.and_shared(n % 100),
            });
            let held = hold(&pool, listed);
            for key in 0..100 {
                let reads = pool.submit(Claims::shared(key), || {}).unwrap();
                if key != exclusive {
                    assert!(reads.wait().unwrap().is_completed());
                } else {
                    assert!(!reads.is_finished());
                }
            }
            held.let_go();
            pool.submit(Claims::barrier(), || {}).unwrap().wait().unwrap().unwrap();
        }
    });
}
