//! Locks of idempotency keys and client ids: requests that may be equal run one after another. Only
//! the holder of a *claim* on a name looks up its job and submits one.
//!
//! A claim stays with the job until its commit or refusal, even if the client disconnects
//! meanwhile. So the next request finds the job of the one before and answers an equal request with
//! it. It waits for one commit, and no client has to repeat its request.
//!
//! A request that claims both a key and an id claims the key first. From then on a claim only waits
//! for the disk, whatever else its request does: a request with several jobs has claimed its key,
//! and its job was handed over, before the next one claims another. So two requests never wait for
//! each other.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::OwnedMutexGuard;

/// Scope and name.
type ScopedName = (String, String);

/// Claims that are held or waited for.
#[derive(Debug, Default)]
pub(super) struct NameLocks {
    /// Lock of each name. Cloned only under the outer lock, so that the owner of the last clone
    /// knows that it is the last.
    locks: Mutex<HashMap<ScopedName, Arc<tokio::sync::Mutex<()>>>>,
}

/// Exclusive right to a name. On drop the next waiter gets it, in arrival order.
#[derive(Debug)]
pub(super) struct NameLock {
    claims: Arc<NameLocks>,
    name: ScopedName,
    /// `None` during drop.
    lock: Option<Arc<tokio::sync::Mutex<()>>>,
    /// `None` while it waits.
    held: Option<OwnedMutexGuard<()>>,
}

impl NameLocks {
    /// Waits until no other request holds the name. Cancel safe.
    pub(super) async fn claim(self: &Arc<Self>, scope: &str, key: &str) -> NameLock {
        let name = (scope.to_owned(), key.to_owned());
        let lock = Arc::clone(self.locks().entry(name.clone()).or_default());
        let waiting = Arc::clone(&lock).lock_owned();
        // Created before the wait, so that its drop also removes an abandoned lock.
        let mut claim = NameLock { claims: Arc::clone(self), name, lock: Some(lock), held: None };
        claim.held = Some(waiting.await);
        claim
    }

    #[cfg(test)]
    pub(super) fn has(&self, scope: &str, key: &str) -> bool {
        self.locks().contains_key(&(scope.to_owned(), key.to_owned()))
    }

    fn locks(&self) -> MutexGuard<'_, HashMap<ScopedName, Arc<tokio::sync::Mutex<()>>>> {
        self.locks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for NameLock {
    fn drop(&mut self) {
        let mut locks = self.claims.locks();
        // Wakes the next waiter, which then waits for no lock held here.
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
        let claims = Arc::new(NameLocks::default());
        let first = claims.claim("a", "x").await;
        let other = claims.claim("b", "x").now_or_never().expect("it is another one");
        let mut second = Box::pin(claims.claim("a", "x"));
        let mut third = Box::pin(claims.claim("a", "x"));
        assert!(second.as_mut().now_or_never().is_none());
        assert!(third.as_mut().now_or_never().is_none());
        drop(first);
        // Arrival order; an abandoned claim blocks no other.
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
