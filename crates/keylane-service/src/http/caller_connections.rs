//! Long-lived connections end when the server stops, and when their token is revoked or expires.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::auth::{Caller, Replaceable, Tokens};
use crate::wire::Timestamp;

/// Maximum time between two looks at the clock until a token expires: the clock may be set meanwhile.
const GLANCE: Duration = Duration::from_secs(60);

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
    /// revoked or expired.
    pub(super) fn end_of(&self, caller: &Caller) -> CancellationToken {
        let mut callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, end)) = callers.iter().find(|(known, _)| known == caller) {
            return end.clone();
        }
        let end = self.closing.child_token();
        // Checked under the lock: tokens are replaced before `end_revoked` takes it, so none is
        // missed.
        if self.tokens.get().has(caller) && !caller.is_expired(Timestamp::now()) {
            callers.push((caller.clone(), end.clone()));
            if let Some(expires) = caller.expires() {
                tokio::spawn(self.clone().end_expired(caller.clone(), expires, end.clone()));
            }
        } else {
            end.cancel();
        }
        end
    }

    /// Ends the connections of a caller when the token expires.
    async fn end_expired(self, caller: Caller, expires: Timestamp, end: CancellationToken) {
        loop {
            let left = Duration::from_millis(expires.0.saturating_sub(Timestamp::now().0));
            if left.is_zero() {
                break;
            }
            tokio::select! {
                // The server has stopped, or the token was revoked.
                () = end.cancelled() => return,
                () = tokio::time::sleep(left.min(GLANCE)) => {}
            }
        }
        let mut callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        callers.retain(|(known, _)| *known != caller);
        end.cancel();
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
