//! The entries of keys in every order of events.
//!
//! Each model names the mistakes that it was seen to catch.

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

/// A task's whole way, once its submitter has a place: in, and its end.
fn pass(bound: &KeyBound<usize>, key_refs: &[KeyRef<'_, usize>]) {
    key_refs.iter().for_each(|key_ref| drop(bound.entered(key_ref)));
    key_refs.iter().for_each(|key_ref| drop(bound.end(key_ref)));
}

/// Nobody stands anywhere, and no key has anything.
fn assert_deserted(bound: &KeyBound<usize>) {
    assert_eq!((bound.blocked(), bound.entries()), (0, 0));
}

/// A place is had by one at a time, and whoever waits for it gets it.
///
/// Caught: an end that lets nobody in.
#[test]
fn a_place_is_handed_on_and_never_lost() {
    check(|| {
        let bound = Arc::new((KeyBound::new(1, 1), Plain::<u32>::default()));
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
        assert_deserted(&bound.0);
    });
}

/// Two rollups that meet at two keys: were they to stand in the two lines in different orders, each
/// would have what the other waits for.
///
/// Caught: an end that lets nobody in; standing in the lines one after the other, the later first for
/// one of the two.
#[test]
fn crossing_rollups_both_come_in() {
    check(|| {
        let bound = Arc::new(KeyBound::new(1, 2));
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
        assert_deserted(&bound);
    });
}

/// A wait that ends by its time, and a future that is dropped, while the place comes.
///
/// Caught: an end that lets nobody in; a wait that keeps the one place that it was granted of two; a
/// dropped future that keeps both.
#[test]
fn who_gives_up_neither_takes_a_place_nor_loses_one() {
    check(|| {
        let bound = Arc::new(KeyBound::new(1, 2));
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
        assert_deserted(&bound);
    });
}

/// Whoever waits when it is closed learns it, though no place ever comes.
///
/// Caught: closing that forgets those who wait.
#[test]
fn closing_wakes_whoever_is_held() {
    check(|| {
        let bound = Arc::new(KeyBound::new(1, 2));
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
        assert_deserted(&bound);
    });
}
