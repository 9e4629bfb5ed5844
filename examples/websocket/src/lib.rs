//! Network messages in order: a WebSocket server on axum whose handlers run on a Keylane pool.
//!
//! - The messages of a connection are handled in the order in which they came, one at a time; those of
//!   different connections in parallel, on as many threads as the pool has. A connection that takes long
//!   holds no other up.
//! - HTTP requests that have no order run beside them, in the same pool.
//! - A connection is read no faster than it is handled, and handled no faster than its answers are taken:
//!   when its bounds are reached its socket is not read, so that its peer has to wait, and no other does.
//! - The close handler runs last, after everything that the connection has sent, and exactly once, however
//!   the connection ended.

mod connection;
mod handler;
mod server;

pub use handler::{ConnectionId, Handler};
pub use server::{Limits, Server};
