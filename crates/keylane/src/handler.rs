//! Handlers of messages: the trait, and the forms of handlers that are no plain closure.
//!
//! [`Builder::build_handler`](crate::Builder::build_handler) takes any [`Handler`]: a closure, a type
//! that implements it, or what a function of this module returns.
//!
//! | handler | gets |
//! |---|---|
//! | closure `\|key: &K, message: M\|` | the key and the message; returns nothing, or a `Result` |
//! | [`stateful`] | a value of its own for each key |
//! | [`retrying`] | further calls for a message that failed |
//! | [`with_context`] | the message's turn, to end it later than the call |
//! | [`weighed`] | a cost for each message, bounded by [`capacity_bytes`](crate::Builder::capacity_bytes) |

mod retrying;
mod stateful;

pub use self::retrying::retrying;
pub use self::stateful::{Stateful, stateful};
pub use crate::message_handler::HandlerResult;
use crate::message_handler::{Handler, HandlerNeeds};
use crate::run::TaskContext;

/// Returns a handler that gets the context of its message, by which it can keep the turn: see
/// [`TaskContext`]. A handler that never keeps a turn costs as much as a closure without a context.
///
/// ```
/// use std::thread;
/// use keylane::{Pool, TaskContext, handler};
///
/// // The worker is free at once; the next message of the account waits for the thread.
/// let start = handler::with_context(|account: &u32, amount: i64, task: TaskContext<'_>| {
///     let (account, turn) = (*account, task.keep());
///     thread::spawn(move || {
///         println!("{account}: {amount:+}");
///         drop(turn);
///     });
/// });
/// let pool = Pool::<u32>::builder().build_handler(start)?;
/// pool.send_many([(7, 100), (7, -30)])?;
/// pool.shutdown()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn with_context<K, M, R, F>(handler: F) -> impl Handler<K, M>
where
    F: Fn(&K, M, TaskContext<'_>) -> R + Send + Sync + 'static,
    R: HandlerResult,
{
    WithContext(handler)
}

struct WithContext<F>(F);

impl<K, M, R, F> Handler<K, M> for WithContext<F>
where
    F: Fn(&K, M, TaskContext<'_>) -> R + Send + Sync + 'static,
    R: HandlerResult,
{
    #[inline]
    fn handle(&self, key: &K, message: M, task: TaskContext<'_>) {
        let ctx = task.into_inner();
        if (self.0)(key, message, TaskContext::new(ctx)).into_failed() {
            ctx.failed();
        }
    }
}

/// Returns a handler whose messages have a cost, of which
/// [`capacity_bytes`](crate::Builder::capacity_bytes) bounds the total. The cost is released when the
/// message has ended.
///
/// `cost` is called twice, when a message is sent and before it is handled, and must return the same
/// value. It must not panic.
///
/// ```
/// use keylane::{Pool, handler};
///
/// let print = |key: &u32, page: Vec<u8>| println!("{key}: {}", page.len());
/// let pool = Pool::<u32>::builder()
///     .capacity_bytes(64 << 20)
///     .build_handler(handler::weighed(Vec::len, print))?;
/// pool.send(7, vec![0; 4096])?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn weighed<K: 'static, M: 'static>(
    cost: impl Fn(&M) -> usize + Send + Sync + 'static,
    handler: impl Handler<K, M>,
) -> impl Handler<K, M> {
    Weighed { cost, handler }
}

struct Weighed<C, H> {
    cost: C,
    handler: H,
}

impl<K, M, C, H> Handler<K, M> for Weighed<C, H>
where
    C: Fn(&M) -> usize + Send + Sync + 'static,
    H: Handler<K, M>,
{
    fn handle(&self, key: &K, message: M, task: TaskContext<'_>) {
        self.handler.handle(key, message, task);
    }

    fn cost(&self, message: &M) -> usize {
        (self.cost)(message)
    }

    fn needs(&self) -> HandlerNeeds {
        self.handler.needs()
    }
}
