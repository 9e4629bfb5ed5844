//! What the server does with what comes: the part that a user would write.

/// Which connection something concerns. Keys of the pool.
pub type ConnectionId = u64;

/// The business end. Its methods run on the pool's workers, and may block and take their time.
pub trait Handler: Send + Sync + 'static {
    /// A message of a connection. After all of its earlier ones, and never beside one.
    fn message(&self, connection: ConnectionId, text: &str) -> String;

    /// A connection is over. After all of its messages, exactly once.
    fn closed(&self, connection: ConnectionId);

    /// A request that has no order.
    fn request(&self, question: &str) -> String;
}
