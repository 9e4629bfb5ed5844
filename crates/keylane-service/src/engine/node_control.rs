//! Commands on the servers that share the store.

use std::sync::PoisonError;

use super::control::Control;
use super::store_status::read_refused;
use crate::node::DrainOutcome;
use crate::request_error::RequestError;
use crate::wire::NodeView;

impl Control {
    /// Drains the server at an address, or ends that. Returns it as it is then. Reads and writes the store.
    pub(crate) fn drain_node(
        &self,
        address: &str,
        drained: bool,
    ) -> Result<NodeView, RequestError> {
        // Otherwise two requests could drain the last two servers, each because of the other one.
        let _one = self.draining_node.lock().unwrap_or_else(PoisonError::into_inner);
        let outcome = self.store.drain_node(address, drained).map_err(read_refused)?;
        match outcome {
            DrainOutcome::Done => {
                let nodes = self.query.nodes()?;
                let node = nodes.into_iter().find(|node| node.address == address);
                node.ok_or_else(|| unknown(address))
            }
            DrainOutcome::Unknown => Err(unknown(address)),
            DrainOutcome::LastNode => Err(RequestError::Conflict(format!(
                "no other server that is not drained could take over from {address}; start one first, or stop this one"
            ))),
        }
    }
}

fn unknown(address: &str) -> RequestError {
    RequestError::Unknown {
        what: format!("server with the address `{address}`; `GET /v1/nodes` lists all"),
    }
}
