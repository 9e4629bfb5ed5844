//! State that all HTTP handlers share.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::auth::{Replaceable, Tokens};
use super::caller_connections::CallerConnections;
use super::connection_limits::StreamCount;
use super::settings::HttpSettings;
use crate::Service;
use crate::engine::Core;
use crate::node::Node;

/// State shared by the handlers.
#[derive(Clone, Debug)]
pub(super) struct AppState {
    pub(super) core: Arc<Core>,
    pub(super) settings: Arc<HttpSettings>,
    /// Tokens, which a reload replaces.
    pub(super) tokens: Replaceable<Tokens>,
    /// Cancelled when long-lived connections are to end.
    pub(super) closing: CancellationToken,
    /// Long-lived connections by caller, to end those of a revoked token.
    pub(super) admitted: CallerConnections,
    /// Tracker of the long-lived connections.
    pub(super) streams: TaskTracker,
    /// Number of open WebSockets.
    pub(super) websockets: Arc<StreamCount>,
    /// Number of open event streams.
    pub(super) event_streams: Arc<StreamCount>,
    /// This server as a node of a cluster, if it is one.
    pub(super) node: Option<Node>,
}

impl AppState {
    pub(super) fn new(service: &Service, settings: HttpSettings, node: Option<Node>) -> Self {
        let tokens = Replaceable::new(settings.tokens.clone());
        let closing = CancellationToken::new();
        AppState {
            core: Arc::clone(&service.core),
            admitted: CallerConnections::new(closing.clone(), tokens.clone()),
            tokens,
            settings: Arc::new(settings),
            closing,
            streams: TaskTracker::new(),
            websockets: Arc::default(),
            event_streams: Arc::default(),
            node,
        }
    }
}
