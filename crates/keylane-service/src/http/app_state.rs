//! State that all HTTP handlers share.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::admitted::Admitted;
use super::auth::{Current, Tokens};
use super::places::Streams;
use super::settings::Settings;
use crate::Service;
use crate::engine::Core;

/// State shared by the handlers.
#[derive(Clone, Debug)]
pub(super) struct AppState {
    pub(super) core: Arc<Core>,
    pub(super) settings: Arc<Settings>,
    /// Tokens, which a reload replaces.
    pub(super) tokens: Current<Tokens>,
    /// Cancelled when long-lived connections are to end.
    pub(super) closing: CancellationToken,
    /// Long-lived connections by caller, to end those of a revoked token.
    pub(super) admitted: Admitted,
    /// Tracker of the long-lived connections.
    pub(super) streams: TaskTracker,
    /// Number of open WebSockets.
    pub(super) websockets: Arc<Streams>,
    /// Number of open event streams.
    pub(super) event_streams: Arc<Streams>,
}

impl AppState {
    pub(super) fn new(service: &Service, settings: Settings) -> Self {
        let tokens = Current::new(settings.tokens.clone());
        let closing = CancellationToken::new();
        AppState {
            core: Arc::clone(&service.core),
            admitted: Admitted::new(closing.clone(), tokens.clone()),
            tokens,
            settings: Arc::new(settings),
            closing,
            streams: TaskTracker::new(),
            websockets: Arc::default(),
            event_streams: Arc::default(),
        }
    }
}
