//! Kind as a runner has it.

use std::fmt;
use std::sync::Arc;

use crate::handle::Handler;

/// Kind with a lease and a handler.
#[derive(Clone)]
pub(super) struct LeasedKind {
    pub(super) handler: Arc<dyn Handler>,
    /// Maximum size of an attempt's log, in bytes.
    pub(super) log_bytes: usize,
}

impl PartialEq for LeasedKind {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.handler, &other.handler) && self.log_bytes == other.log_bytes
    }
}

impl fmt::Debug for LeasedKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LeasedKind").field(&self.handler.sort()).finish()
    }
}
