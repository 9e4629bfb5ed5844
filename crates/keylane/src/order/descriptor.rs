//! What a type of the user's says of which tasks may run at the same time.

use std::any::{Any, TypeId};
use std::fmt;
use std::sync::Arc;

/// Says which tasks may run at the same time, where keys cannot: a range that overlaps another, a
/// rectangle, a prefix, a table that reads while others write.
///
/// A task brings a value of such a type with it, its *descriptor*: see
/// [`Claims::described`](crate::Claims::described). Two tasks
/// conflict if **either** of their descriptors says that it is not compatible with the other; then
/// they run in the order in which they were submitted, one after the other. Descriptors of different
/// types never conflict, and a task without one conflicts only through its keys. A task may have keys
/// as well, and then waits for both.
///
/// ```
/// use keylane::{Claims, Compatibility, Pool};
///
/// /// A part of a file.
/// struct Span { from: u64, to: u64 }
///
/// impl Compatibility for Span {
///     fn is_compatible(&self, other: &Self) -> bool {
///         self.to <= other.from || other.to <= self.from
///     }
/// }
///
/// let pool = Pool::<u64>::builder().build()?;
/// pool.execute(Claims::described(Span { from: 0, to: 100 }), || { /* writes there */ })?;
/// pool.execute(Claims::described(Span { from: 100, to: 200 }), || { /* beside it */ })?;
/// pool.execute(Claims::described(Span { from: 50, to: 150 }), || { /* after both */ })?;
/// pool.drain(None)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # What it costs
///
/// Without [`class`](Self::class) a submission asks about each unfinished task with a descriptor of the
/// type, the newest first, but for those that it is known to come after: O(unfinished). Nothing is
/// locked meanwhile, and workers go on.
///
/// # What is asked of it
///
/// The answer depends on nothing but the two values, and does not change. It is asked on the thread
/// that submits, outside of all locks, and so may take its time and even submit; but it must not wait
/// for a task of the pool. If it panics, the two count as incompatible, so that the order is kept, and
/// the panic goes to [`on_panic`](crate::Builder::on_panic); the submission succeeds.
pub trait Compatibility: Send + Sync + 'static {
    /// Whether a task with this descriptor may run at the same time as one with the other.
    fn is_compatible(&self, other: &Self) -> bool;

    /// A class of tasks that are all alike: whatever is compatible with one of them is with each, and
    /// they are all compatible with each other or none is. `None`: in no class.
    ///
    /// Then it is enough to ask once for each pair of classes, for as long as each of the two has
    /// unfinished tasks, and a submission costs O(1 + unfinished classes that it conflicts with)
    /// instead of O(unfinished tasks). Asked once for each descriptor.
    ///
    /// ```
    /// use keylane::Compatibility;
    ///
    /// enum Access { Read, Write }
    ///
    /// impl Compatibility for Access {
    ///     fn is_compatible(&self, other: &Self) -> bool {
    ///         matches!((self, other), (Access::Read, Access::Read))
    ///     }
    ///
    ///     fn class(&self) -> Option<u64> {
    ///         Some(matches!(self, Access::Write).into())
    ///     }
    /// }
    /// ```
    fn class(&self) -> Option<u64> {
        None
    }
}

/// A [`Compatibility`] of a type that is no longer known. Two words, so that claims are no larger.
#[derive(Clone)]
pub(crate) struct Descriptor(Arc<dyn Comparable>);

/// A value, and what it was asked once.
struct Classed<C> {
    class: Option<u64>,
    value: C,
}

trait Comparable: Any + Send + Sync {
    fn class(&self) -> Option<u64>;

    fn is_compatible(&self, other: &dyn Any) -> bool;
}

impl<C: Compatibility> Comparable for Classed<C> {
    fn class(&self) -> Option<u64> {
        self.class
    }

    fn is_compatible(&self, other: &dyn Any) -> bool {
        // Only those of one type are asked about each other.
        other.downcast_ref().is_none_or(|other: &Self| self.value.is_compatible(&other.value))
    }
}

impl Descriptor {
    pub(crate) fn new<C: Compatibility>(value: C) -> Self {
        let class = value.class();
        Descriptor(Arc::new(Classed { class, value }))
    }

    /// Only those of one kind are compared.
    pub(crate) fn kind(&self) -> TypeId {
        (&*self.0 as &dyn Any).type_id()
    }

    pub(crate) fn class(&self) -> Option<u64> {
        self.0.class()
    }

    /// Whether either of the two says so. Calls what the user wrote.
    pub(crate) fn conflicts_with(&self, other: &Descriptor) -> bool {
        let (one, two): (&dyn Comparable, &dyn Comparable) = (&*self.0, &*other.0);
        !one.is_compatible(two as &dyn Any) || !two.is_compatible(one as &dyn Any)
    }
}

impl fmt::Debug for Descriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Descriptor").field("class", &self.class()).finish_non_exhaustive()
    }
}
