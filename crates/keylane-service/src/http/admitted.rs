//! Connections that stay open end when the server stops, and when the token is revoked that they began with.

use std::sync::{Arc, Mutex, PoisonError};

use tokio_util::sync::CancellationToken;

use super::auth::{Caller, Current, Tokens};

/// Callers with open connections, and what ends these.
#[derive(Clone, Debug)]
pub(super) struct Admitted {
    /// Ends all connections.
    closing: CancellationToken,
    tokens: Current<Tokens>,
    /// At most one entry for each token that the server has.
    callers: Arc<Mutex<Vec<(Caller, CancellationToken)>>>,
}

impl Admitted {
    pub(super) fn new(closing: CancellationToken, tokens: Current<Tokens>) -> Self {
        Admitted { closing, tokens, callers: Arc::default() }
    }

    /// Returns what is cancelled when a connection of this caller is to end: now, if the token is revoked already.
    pub(super) fn end_of(&self, caller: &Caller) -> CancellationToken {
        let mut callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, end)) = callers.iter().find(|(known, _)| known == caller) {
            return end.clone();
        }
        let end = self.closing.child_token();
        // Under the lock: tokens are replaced before the revoked ones are looked for under it.
        if self.tokens.get().has(caller) {
            callers.push((caller.clone(), end.clone()));
        } else {
            end.cancel();
        }
        end
    }

    /// Ends the connections of callers whose tokens are revoked. Called when the tokens were replaced.
    pub(super) fn end_revoked(&self) {
        let mut callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        let tokens = self.tokens.get();
        callers.retain(|(caller, end)| {
            let is_known = tokens.has(caller);
            if !is_known {
                end.cancel();
            }
            is_known
        });
    }
}
