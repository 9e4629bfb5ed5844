//! Handler of messages: the trait, and closures as handlers.

use crate::engine::KeyStates;
use crate::run::TaskContext;

/// Handler of the messages of a [`HandlerPool`](crate::HandlerPool).
///
/// A closure is one, if it takes the key by reference and the message, and returns nothing or a
/// `Result`. Its parameters need their types. An error counts as a failure of the key where failures
/// [count](crate::Builder::on_failure), and is dropped: a handler that needs it must store it itself.
///
/// ```
/// use keylane::{Handler, Pool, TaskContext};
///
/// struct Ledger {
///     name: String,
/// }
///
/// impl Handler<u32, i64> for Ledger {
///     fn handle(&self, account: &u32, amount: i64, task: TaskContext<'_>) {
///         match amount {
///             0 => task.fail(),
///             _ => println!("{}, {account}: {amount:+}", self.name),
///         }
///     }
/// }
///
/// let pool = Pool::<u32>::builder().build_handler(Ledger { name: "sales".to_owned() })?;
/// pool.send(7, 100)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot handle messages of type `{M}` with keys of type `{K}`",
    label = "expected a closure `|key: &{K}, message: {M}| ..`, or a type that implements `Handler`",
    note = "a closure's parameters need their types, and it returns nothing or a `Result<(), E>`",
    note = "for a closure with a state, a turn, attempts or costs see the module `keylane::handler`"
)]
pub trait Handler<K, M>: Send + Sync + 'static {
    /// Handles a message. Its turn ends on return, unless it was [kept](TaskContext::keep).
    fn handle(&self, key: &K, message: M, task: TaskContext<'_>);

    /// Returns the cost of a message, always the same, for a pool with
    /// [`capacity_bytes`](crate::Builder::capacity_bytes). It is called when the message is sent and
    /// before it is handled, and must not panic.
    ///
    /// ```
    /// use keylane::{Handler, Pool, SubmitErrorKind, TaskContext};
    ///
    /// struct Print;
    ///
    /// impl Handler<u32, Vec<u8>> for Print {
    ///     fn handle(&self, key: &u32, page: Vec<u8>, _: TaskContext<'_>) {
    ///         println!("{key}: {} bytes", page.len());
    ///     }
    ///
    ///     fn cost(&self, page: &Vec<u8>) -> usize {
    ///         page.len()
    ///     }
    /// }
    ///
    /// let pool = Pool::<u32>::builder().capacity_bytes(4096).build_handler(Print)?;
    /// pool.send(7, vec![0; 4096])?;
    /// let large = pool.send(7, vec![0; 4097]).unwrap_err();
    /// assert_eq!(large.kind(), SubmitErrorKind::TooLarge);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn cost(&self, message: &M) -> usize {
        let _ = message;
        0
    }

    /// Returns what the handler needs of its pool.
    #[doc(hidden)]
    fn needs(&self) -> HandlerNeeds {
        HandlerNeeds { timer: false, key_states: None }
    }
}

/// Parts of a pool that a handler needs.
#[doc(hidden)]
#[derive(Debug)]
pub struct HandlerNeeds {
    pub(crate) timer: bool,
    pub(crate) key_states: Option<KeyStates>,
}

/// Result of a handler: `()`, or a `Result` without a value.
#[diagnostic::on_unimplemented(
    message = "a handler cannot return `{Self}`",
    note = "it returns nothing, or a `Result<(), E>`"
)]
pub trait HandlerResult {
    /// Returns whether the handler has failed. Drops its error.
    #[doc(hidden)]
    fn into_failed(self) -> bool;
}

impl HandlerResult for () {
    fn into_failed(self) -> bool {
        false
    }
}

impl<E> HandlerResult for Result<(), E> {
    fn into_failed(self) -> bool {
        self.is_err()
    }
}

/// Type of a function's result, by which the type of a closure that never returns can be named.
#[doc(hidden)]
pub trait ResultOf {
    type Type;
}

impl<R> ResultOf for fn() -> R {
    type Type = R;
}

/// For handlers such as `|_: &u32, _: String| todo!()`.
impl HandlerResult for <fn() -> ! as ResultOf>::Type {
    fn into_failed(self) -> bool {
        self
    }
}

impl<K, M, R, F> Handler<K, M> for F
where
    F: Fn(&K, M) -> R + Send + Sync + 'static,
    R: HandlerResult,
{
    #[inline]
    fn handle(&self, key: &K, message: M, task: TaskContext<'_>) {
        if self(key, message).into_failed() {
            task.fail();
        }
    }
}
