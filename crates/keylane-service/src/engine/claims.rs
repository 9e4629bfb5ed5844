//! Requests that may be the same come one after another: whoever has *claimed* an idempotency key, or an id of a
//! client's own, is the only one that looks whether there is a job for it and submits one.
//!
//! A claim goes with the job to the disk, and ends when that is there, or was refused: also when whoever asked has gone
//! away meanwhile. So the next one finds what the one before has submitted, and answers equal requests alike; it
//! waits for one commit, and nobody is told to ask again.
//!
//! Who claims both a key and an id claims the key first. After that a claim waits for the disk alone, whatever else its
//! request does: one of several jobs has claimed its key, and was handed over, before the next one claims another.
//! So no two wait for each other.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::OwnedMutexGuard;

/// In whose name, and what.
type Name = (String, String);

/// What is claimed, or waited for.
#[derive(Debug, Default)]
pub(super) struct Claims {
    /// A lock for each. Cloned only under this lock, so that the last one who has a clone knows that it is the last.
    locks: Mutex<HashMap<Name, Arc<tokio::sync::Mutex<()>>>>,
}

/// Something that nobody else has claimed. Dropped, the next one has it: in the order in which they came.
#[derive(Debug)]
pub(super) struct Claim {
    claims: Arc<Claims>,
    name: Name,
    /// None when it is dropped.
    lock: Option<Arc<tokio::sync::Mutex<()>>>,
    /// None while it waits.
    held: Option<OwnedMutexGuard<()>>,
}

impl Claims {
    /// Waits until nobody else has claimed that. Given up, it has done nothing.
    pub(super) async fn claim(self: &Arc<Self>, scope: &str, key: &str) -> Claim {
        let name = (scope.to_owned(), key.to_owned());
        let lock = Arc::clone(self.locks().entry(name.clone()).or_default());
        let waiting = Arc::clone(&lock).lock_owned();
        // Forgotten also if it is given up while it waits.
        let mut claim = Claim { claims: Arc::clone(self), name, lock: Some(lock), held: None };
        claim.held = Some(waiting.await);
        claim
    }

    #[cfg(test)]
    pub(super) fn has(&self, scope: &str, key: &str) -> bool {
        self.locks().contains_key(&(scope.to_owned(), key.to_owned()))
    }

    fn locks(&self) -> MutexGuard<'_, HashMap<Name, Arc<tokio::sync::Mutex<()>>>> {
        self.locks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut locks = self.claims.locks();
        // Wakes the next one, which then waits for nothing that is locked here.
        self.held = None;
        self.lock = None;
        if let Entry::Occupied(entry) = locks.entry(std::mem::take(&mut self.name))
            && Arc::strong_count(entry.get()) == 1
        {
            entry.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_claim_is_one_ones_at_a_time_and_then_forgotten() {
        let claims = Arc::new(Claims::default());
        let first = claims.claim("a", "x").await;
        let other = claims.claim("b", "x").now_or_never().expect("it is another one");
        let mut second = Box::pin(claims.claim("a", "x"));
        let mut third = Box::pin(claims.claim("a", "x"));
        assert!(second.as_mut().now_or_never().is_none());
        assert!(third.as_mut().now_or_never().is_none());
        drop(first);
        // In their order; and one that is given up is in nobody's way.
        assert!(third.as_mut().now_or_never().is_none());
        drop(second);
        let third = third.await;
        let mut fourth = Box::pin(claims.claim("a", "x"));
        assert!(fourth.as_mut().now_or_never().is_none());
        drop(fourth);
        assert_eq!(claims.locks().len(), 2);
        drop((third, other));
        assert_eq!(claims.locks().len(), 0);
    }
}
