//! Servers that share a store.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Timestamp;

/// Server that shares the store in a database with others: `GET /v1/nodes`.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct NodeView {
    /// Address at which the other servers reach it.
    pub address: String,
    /// Version of the program.
    pub version: String,
    /// Whether it owns the store and decides what runs. The others forward requests to it.
    pub owner: bool,
    /// Whether it is drained: it owns no store and leases no subtasks until it is resumed.
    #[serde(default)]
    pub drained: bool,
    /// Time at which it last wrote to the database that it is there: it does so every few seconds. A minute later it is no longer listed,
    /// unless it is drained.
    pub last_contact: Timestamp,
}

/// Servers that share the store.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Nodes)]
pub(crate) struct NodeList {
    /// All servers, by address. Empty if the store is in a file.
    pub(crate) items: Vec<NodeView>,
}
