//! Query for the servers that share the store.

use super::Query;
use crate::engine::store_status::read_refused;
use crate::node::ListedNode;
use crate::request_error::RequestError;
use crate::wire::{NodeView, Timestamp};

impl Query {
    /// Returns the servers that share the store. Reads the store.
    pub(crate) fn nodes(&self) -> Result<Vec<NodeView>, RequestError> {
        let nodes = self.store.nodes().map_err(read_refused)?;
        let now = self.clock.now();
        let view = |node: ListedNode| NodeView {
            address: node.address,
            version: node.version,
            owner: node.is_owner,
            drained: node.is_drained,
            last_contact: Timestamp(now.0.saturating_sub(node.silent_ms)),
        };
        Ok(nodes.into_iter().map(view).collect())
    }
}
