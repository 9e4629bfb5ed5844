//! Handlers with a value for each key. `../admit/kept_states.rs` has the protocol of the values.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use crate::engine::KeyStates;
use crate::key_state::ErasedKeyState;
use crate::message_handler::{Handler, HandlerNeeds, HandlerResult};
use crate::run::TaskContext;

/// Handler with a state for each key: see [`stateful`].
#[derive(Debug)]
pub struct Stateful<C, H> {
    create: C,
    handle: H,
    /// Time for which a state outlives the messages of its key, if it does.
    idle: Option<Duration>,
}

/// Returns a handler with a state for each key. `create` is called for the first message of a key,
/// and `handle` for each message, with the state of its key.
///
/// - A state exists while its key has unfinished messages, or longer with
///   [`keep_idle`](Stateful::keep_idle). After the last message it is dropped before that message
///   ends, so that the next one creates its state anew.
/// - All messages that are accepted before that use the same state: of a paused or stopped key, and
///   delayed ones, too.
/// - If `handle` panics, the state is dropped, since it may be half changed. An error leaves it. If
///   `create` panics, the message has panicked, and the next one creates the state.
/// - If the last messages of a key do not run, because they were taken, replaced or returned, the
///   thread that removes them drops the state. A pool that is dropped drops the states that are left.
///
/// The state is `Send`, and no two threads use it at a time. It costs each message five short
/// sections of a lock that few keys share; handlers without a state pay nothing.
///
/// ```
/// use keylane::{Pool, handler};
///
/// struct Average {
///     sum: f64,
///     count: u32,
/// }
///
/// let averages = handler::stateful(
///     |_: &u32| Average { sum: 0.0, count: 0 },
///     |sensor: &u32, average: &mut Average, reading: f64| {
///         average.sum += reading;
///         average.count += 1;
///         println!("sensor {sensor}: {}", average.sum / f64::from(average.count));
///     },
/// );
/// let pool = Pool::<u32>::builder().build_handler(averages)?;
/// pool.send_many([(1, 20.5), (2, 18.0), (1, 21.5)])?;
/// pool.shutdown()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn stateful<K, M, T, R, C, H>(create: C, handle: H) -> Stateful<C, H>
where
    C: Fn(&K) -> T + Send + Sync + 'static,
    H: Fn(&K, &mut T, M) -> R + Send + Sync + 'static,
    T: Send + 'static,
    R: HandlerResult,
{
    Stateful { create, handle, idle: None }
}

impl<C, H> Stateful<C, H> {
    /// Keeps the state of a key for `time` after its last message, and at most a quarter of it
    /// longer. Closing the pool ends that: then a state is dropped with its last message.
    ///
    /// ```
    /// use std::time::Duration;
    /// use keylane::{Pool, handler};
    ///
    /// let connections = handler::stateful(
    ///     |host: &&str| format!("connection to {host}"),
    ///     |_: &&str, connection: &mut String, request: &str| println!("{request} over {connection}"),
    /// );
    /// let connections = connections.keep_idle(Duration::from_secs(30));
    /// let pool = Pool::<&str>::builder().build_handler(connections)?;
    /// pool.send("alpha", "GET /")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn keep_idle(mut self, time: Duration) -> Self {
        self.idle = Some(time);
        self
    }
}

impl<K, M, T, R, C, H> Handler<K, M> for Stateful<C, H>
where
    C: Fn(&K) -> T + Send + Sync + 'static,
    H: Fn(&K, &mut T, M) -> R + Send + Sync + 'static,
    T: Send + 'static,
    R: HandlerResult,
{
    fn handle(&self, key: &K, message: M, task: TaskContext<'_>) {
        let ctx = task.into_inner();
        let mut state = ctx.take_state().unwrap_or_else(|| ErasedKeyState::new((self.create)(key)));
        let value = state.get_mut().expect("all states of a pool have the type of its handler");
        let handled = catch_unwind(AssertUnwindSafe(|| {
            if (self.handle)(key, value, message).into_failed() {
                ctx.failed();
            }
        }));
        if let Err(payload) = handled {
            drop(state);
            resume_unwind(payload);
        }
        // Within the turn, so that the next message of the key begins after the drop.
        if let Some(state) = ctx.put_state(state) {
            state.end();
        }
    }

    fn needs(&self) -> HandlerNeeds {
        let key_states = Some(KeyStates { idle: self.idle });
        HandlerNeeds { timer: self.idle.is_some(), key_states }
    }
}
