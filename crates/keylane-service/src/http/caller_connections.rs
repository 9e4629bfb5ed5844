//! Long-lived connections end when the server stops, and when their token is revoked.

use std::sync::{Arc, Mutex, PoisonError};

use tokio_util::sync::CancellationToken;

use super::auth::{Caller, Replaceable, Tokens};

/// Callers with open connections, and the signals that end these.
#[derive(Clone, Debug)]
pub(super) struct CallerConnections {
    /// Ends all connections.
    closing: CancellationToken,
    tokens: Replaceable<Tokens>,
    /// At most one entry for each token that the server has.
    callers: Arc<Mutex<Vec<(Caller, CancellationToken)>>>,
}

impl CallerConnections {
    pub(super) fn new(closing: CancellationToken, tokens: Replaceable<Tokens>) -> Self {
        CallerConnections { closing, tokens, callers: Arc::default() }
    }

    /// Returns the signal for a connection of this caller; already cancelled if the token is
    /// revoked.
    pub(super) fn end_of(&self, caller: &Caller) -> CancellationToken {
        let mut callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, end)) = callers.iter().find(|(known, _)| known == caller) {
            return end.clone();
        }
        let end = self.closing.child_token();
        // Checked under the lock: tokens are replaced before `end_revoked` takes it, so none is
        // missed.
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
