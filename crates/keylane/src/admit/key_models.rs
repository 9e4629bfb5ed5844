//! Loom models of the per-key limit: every interleaving of grants, ends, cancellations and closing.
//!
//! Each model lists the mutations that it was seen to catch.

use std::pin::pin;
use std::sync::Arc;
use std::task::Context;
use std::time::Instant;

use super::key_bound::{KeyBound, KeyRef};
use super::semaphore::TryAcquireError;
use crate::sync::model::{Plain, block_on, check, spawn, waker};

fn key_ref(key: &usize) -> KeyRef<'_, usize> {
    KeyRef { part: *key, hash: 0, key }
}

/// Enqueues and finishes a task whose submitter holds its permits.
fn pass(bound: &KeyBound<usize>, key_refs: &[KeyRef<'_, usize>]) {
    key_refs.iter().for_each(|key_ref| drop(bound.entered(key_ref)));
    key_refs.iter().for_each(|key_ref| drop(bound.end(key_ref)));
}

/// Asserts that no submitter waits and no key has an entry.
fn assert_unused(bound: &KeyBound<usize>) {
    assert_eq!((bound.blocked(), bound.entries()), (0, 0));
}

/// A permit has one holder at a time, and every waiter gets it.
///
/// Caught: an end that grants nothing.
#[test]
fn a_permit_is_passed_on_and_never_lost() {
    check(|| {
        let bound = Arc::new((KeyBound::new(1, 1, false), Plain::<u32>::default()));
        let others = [false, true].map(|as_task| {
            let bound = bound.clone();
            spawn(move || {
                let here = [key_ref(&0)];
                match as_task {
                    false => assert_eq!(bound.0.acquire(&here, None), Ok(())),
                    true => assert_eq!(block_on(bound.0.acquire_async(&here)), Ok(())),
                }
                bound.1.change(|uses| *uses += 1);
                pass(&bound.0, &here);
            })
        });
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(bound.1.get(), 2);
        assert_unused(&bound.0);
    });
}

/// Two rollups that share two keys: joining the two queues in different orders would let each hold
/// what the other waits for.
///
/// Caught: an end that grants nothing; joining the queues one after the other, in the opposite
/// order for one of the two.
#[test]
fn crossing_rollups_both_get_their_permits() {
    check(|| {
        let bound = Arc::new(KeyBound::new(1, 2, false));
        let other = {
            let bound = bound.clone();
            spawn(move || {
                let both = [key_ref(&0), key_ref(&1)];
                assert_eq!(bound.acquire(&both, None), Ok(()));
                pass(&bound, &both);
            })
        };
        let both = [key_ref(&0), key_ref(&1)];
        assert_eq!(bound.acquire(&both, None), Ok(()));
        pass(&bound, &both);
        other.join().unwrap();
        assert_unused(&bound);
    });
}

/// A wait that times out, and a future that is dropped, while the permit is granted.
///
/// Caught: an end that grants nothing; a wait that keeps the one permit that it was granted of two;
/// a dropped future that keeps both.
#[test]
fn cancelling_neither_takes_nor_loses_a_permit() {
    check(|| {
        let bound = Arc::new(KeyBound::new(1, 2, false));
        assert_eq!(bound.try_acquire(&[key_ref(&0)]), Ok(()));
        let other = {
            let bound = bound.clone();
            spawn(move || pass(&bound, &[key_ref(&0)]))
        };
        let both = [key_ref(&0), key_ref(&1)];
        {
            let mut take = pin!(bound.acquire_async(&both));
            let waker = waker();
            if take.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
                bound.release(&both);
            }
        }
        if bound.acquire(&both, Some(Instant::now())).is_ok() {
            bound.release(&both);
        }
        assert_eq!(bound.acquire(&both, None), Ok(()));
        pass(&bound, &both);
        other.join().unwrap();
        assert_unused(&bound);
    });
}

/// Closing ends every wait, though no permit is ever granted.
///
/// Caught: closing that does not refuse the waiters.
#[test]
fn closing_wakes_every_waiter() {
    check(|| {
        let bound = Arc::new(KeyBound::new(1, 2, false));
        assert_eq!(bound.try_acquire(&[key_ref(&1)]), Ok(()));
        let other = {
            let bound = bound.clone();
            spawn(move || {
                let both = [key_ref(&0), key_ref(&1)];
                assert_eq!(bound.acquire(&both, None), Err(TryAcquireError::Closed));
            })
        };
        bound.close();
        other.join().unwrap();
        pass(&bound, &[key_ref(&1)]);
        assert_unused(&bound);
    });
}
