//! Everything that the service takes from outside of the process, except for its files and its
//! handlers.

use tokio::runtime::Handle;

use super::clock::SteadyClock;
use super::executor::{Executor, SystemThreads};
use super::wall_clock::WallClock;
use crate::store;

/// Clocks, runtime, threads, and what the store takes from outside.
#[derive(Debug)]
pub(crate) struct Outside {
    pub(crate) wall: WallClock,
    pub(crate) steady: SteadyClock,
    pub(crate) executor: Executor,
    pub(crate) store: store::Outside,
}

impl Outside {
    /// Returns the machine and this runtime.
    pub(super) fn system(runtime: Handle) -> Self {
        Outside {
            wall: WallClock::system(),
            steady: SteadyClock::system(),
            executor: Executor::new(runtime, SystemThreads),
            store: store::Outside::system(),
        }
    }
}
