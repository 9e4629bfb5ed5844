//! Scope of tasks that borrow. `scoped_body.rs` has the proof.

use std::fmt;
use std::hash::BuildHasher;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use super::closures::ClosureExecutor;
use super::scoped_body::{ScopeError, ScopeState, ScopedTask};
use crate::engine::{Engine, Key, WaitLimit};
use crate::error::SubmitError;
#[cfg(doc)]
use crate::error::SubmitErrorKind;
use crate::order::{Claims, IntoClaims};
use crate::run::current_engine_hooks;

/// Scope of tasks that borrow: see [`Pool::scope`](crate::Pool::scope).
///
/// `'scope` is the life of the scope, which its tasks may submit to; `'env` is the life of the values
/// that they borrow.
pub struct Scope<'scope, 'env: 'scope, K: Key, S>
where
    S: BuildHasher + Send + Sync + 'static,
{
    engine: Arc<Engine<K, ClosureExecutor, S>>,
    state: Arc<ScopeState>,
    /// Makes `'scope` invariant, so that no task of a longer life is taken for one of this scope.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

/// Runs `f` with a scope in this engine, and waits for its tasks.
pub(super) fn with_scope<'env, K: Key, S: BuildHasher + Send + Sync + 'static, R>(
    engine: &Arc<Engine<K, ClosureExecutor, S>>,
    f: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env, K, S>) -> R,
) -> Result<R, ScopeError> {
    if engine.is_inside() {
        return Err(ScopeError::FromInside);
    }
    let (engine, state) = (engine.clone(), Arc::<ScopeState>::default());
    let scope = Scope { engine, state, scope: PhantomData, env: PhantomData };
    let result = catch_unwind(AssertUnwindSafe(|| f(&scope)));
    let hooks = current_engine_hooks().filter(|(hooks, _)| hooks.block());
    let ended = scope.state.wait();
    if let Some((hooks, _)) = hooks {
        hooks.unblock();
    }
    match result {
        Ok(value) => ended.map(|()| value),
        Err(payload) => resume_unwind(payload),
    }
}

impl<'scope, K: Key, S: BuildHasher + Send + Sync + 'static> Scope<'scope, '_, K, S> {
    /// Submits a task that may borrow from outside of the scope. Waits for capacity, first come,
    /// first served; never inside a task of this pool.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicU32, Ordering};
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// let sum = AtomicU32::new(0);
    /// pool.scope(|scope| {
    ///     for key in 0..10 {
    ///         let sum = &sum;
    ///         let add = move || _ = sum.fetch_add(key, Ordering::Relaxed);
    ///         // A task may submit further tasks to its scope.
    ///         let first = move || scope.execute(key, add).expect("the pool is open");
    ///         scope.execute(key, first).expect("the pool is open");
    ///     }
    /// })?;
    /// assert_eq!(sum.into_inner(), 45);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Closed`](SubmitErrorKind::Closed), [`TooLarge`](SubmitErrorKind::TooLarge) or
    /// [`KeyClosed`](SubmitErrorKind::KeyClosed); the error contains the task.
    pub fn execute<F>(
        &'scope self,
        keys: impl IntoClaims<K>,
        work: F,
    ) -> Result<(), SubmitError<(Claims<K>, F)>>
    where
        F: FnOnce() + Send + 'scope,
    {
        let claims = keys.into_claims();
        let scoped = ScopedTask { work, pending: self.state.begin() };
        let entered = self.engine.submit(claims, scoped, WaitLimit::Endless);
        entered
            .map_err(|(why, claims, ScopedTask { work, .. })| SubmitError::new(why, (claims, work)))
    }
}

impl<K: Key, S: BuildHasher + Send + Sync + 'static> fmt::Debug for Scope<'_, '_, K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").field("pending", &self.state.pending()).finish_non_exhaustive()
    }
}
