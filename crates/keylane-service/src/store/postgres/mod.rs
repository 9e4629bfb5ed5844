//! Store in PostgreSQL: the tables of a store in a database that several nodes reach, of which one at a time owns it.
//!
//! `README.md` beside this file has the protocol, and why no acknowledged write is lost and no two nodes schedule one store.

mod candidate;
mod client;
mod connection;
mod database;
mod heartbeat;
mod layout;
mod lease;
mod node_file;
mod nodes;
mod open;
mod ownership;
mod password_file;
mod readers;
mod settings;
#[cfg(test)]
mod simulation;
mod tls;

pub use layout::Migration;
pub(super) use lease::Lease;
pub(super) use nodes::{drain as drain_node, list as list_nodes};
pub(super) use open::open;
pub(super) use readers::PostgresReaders;
pub use settings::{PostgresSettings, PostgresUrlError};
