//! Compatibility of tasks as decided by a user's type, and its type-erased form.

use std::any::{Any, TypeId};
use std::fmt;
use std::hint::black_box;
use std::mem::needs_drop;
use std::sync::Arc;

use crate::unwind::drop_catch_unwind;

/// Decides which tasks may run at the same time, where keys cannot: a range that overlaps another,
/// a rectangle, a prefix, a table that reads while others write.
///
/// A task carries a value of such a type, its *descriptor*: see
/// [`Claims::described`](crate::Claims::described). Two tasks conflict if **either** of their
/// descriptors says that it is not compatible with the other; then they run in the order in which
/// they were submitted, one after the other. Descriptors of different types never conflict, and a
/// task without a descriptor conflicts only through its keys. A task may have keys as well, and
/// then waits for both.
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
/// pool.shutdown()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Cost
///
/// Without [`class`](Self::class) a submission compares with each unfinished task whose descriptor
/// has the same type, the newest first, except those that it is known to come after: O(unfinished).
/// No lock is held meanwhile, and workers go on. With a [`summary`](Self::summary) it compares only
/// with tasks that share a bit with it, and skips the others at a fraction of a nanosecond each.
///
/// # Requirements
///
/// The result depends only on the two values, and does not change. The methods are called on the
/// thread that submits, outside of all locks, so they may be slow and may even submit; but they
/// must not wait for a task of the pool. If one panics, the two tasks count as incompatible, so
/// that the order is kept, and the panic goes to [`on_panic`](crate::Builder::on_panic); the
/// submission succeeds. A descriptor is dropped when its task has ended, or by a thread that was
/// comparing with it then; a panic in its drop is discarded.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot describe what a task conflicts with",
    note = "implement `keylane::Compatibility` for `{Self}`: its `is_compatible` compares the descriptors of two tasks"
)]
pub trait Compatibility: Send + Sync + 'static {
    /// Returns whether a task with this descriptor may run at the same time as one with the other.
    fn is_compatible(&self, other: &Self) -> bool;

    /// Returns the class of the task, or `None` if it is in no class. All tasks of a class are
    /// alike: a task that is compatible with one of them is compatible with each, and they are all
    /// compatible with each other, or none is.
    ///
    /// One comparison then serves each pair of classes, for as long as both have unfinished tasks,
    /// and a submission costs O(1 + unfinished classes that it conflicts with) instead of
    /// O(unfinished tasks). Called once for each descriptor.
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

    /// Returns the things that the task touches, folded into 64 bits: **two descriptors whose
    /// summaries have no bit in common are compatible**, and are not compared. Bits in common
    /// decide nothing; the two are compared. So a bit may represent many things, and a summary may
    /// have more bits than it needs, but no fewer: a task could then run beside one that it
    /// conflicts with.
    ///
    /// The default is all bits: every pair is compared. No bit: compatible with everything. The
    /// result must not change. Called once for each descriptor.
    ///
    /// The fewer bits a task has, the more comparisons it saves: use one bit for each of the few
    /// things that it touches, chosen by a hash or by position. With [classes](Self::class) a
    /// summary saves the comparison for each pair of classes that have no bit in common.
    ///
    /// ```
    /// use keylane::Compatibility;
    ///
    /// /// Accounts that a transfer touches.
    /// struct Transfer { from: u64, to: u64 }
    ///
    /// impl Compatibility for Transfer {
    ///     fn is_compatible(&self, other: &Self) -> bool {
    ///         ![other.from, other.to].iter().any(|account| [self.from, self.to].contains(account))
    ///     }
    ///
    ///     fn summary(&self) -> u64 {
    ///         // Transfers that have an account in common have its bit in common.
    ///         1 << (self.from % 64) | 1 << (self.to % 64)
    ///     }
    /// }
    /// ```
    fn summary(&self) -> u64 {
        u64::MAX
    }
}

/// Type-erased [`Compatibility`]. Two words, so that claims are no larger.
#[derive(Clone)]
pub(crate) struct Descriptor(Arc<dyn ErasedCompatibility>);

/// Value, with its summary and class computed once. `repr(C)`: reading `summary` brings the
/// beginning of the value into the cache.
#[repr(C)]
struct CachedDescriptor<C> {
    summary: u64,
    value: C,
    class: Option<u64>,
}

impl<C: Compatibility> CachedDescriptor<C> {
    /// Returns whether either of the two is incompatible with the other.
    #[inline]
    fn conflicts_with(&self, other: &Self) -> bool {
        !self.value.is_compatible(&other.value) || !other.value.is_compatible(&self.value)
    }
}

/// Value whose drop may panic. The panic is discarded: the last owner drops the value in the middle
/// of something else, such as the end of its task or the scan of another one.
struct PanicSafeDrop<C>(Option<C>);

impl<C> PanicSafeDrop<C> {
    fn value(&self) -> &C {
        self.0.as_ref().expect("the value is present until the drop")
    }
}

impl<C> Drop for PanicSafeDrop<C> {
    fn drop(&mut self) {
        drop_catch_unwind(self.0.take());
    }
}

impl<C: Compatibility> Compatibility for PanicSafeDrop<C> {
    #[inline]
    fn is_compatible(&self, other: &Self) -> bool {
        self.value().is_compatible(other.value())
    }

    fn class(&self) -> Option<u64> {
        self.value().class()
    }

    fn summary(&self) -> u64 {
        self.value().summary()
    }
}

trait ErasedCompatibility: Any + Send + Sync {
    fn class(&self) -> Option<u64>;

    fn summary(&self) -> u64;

    fn conflicts_with(&self, other: &dyn Any) -> bool;

    /// Creates an empty list for descriptors of this type.
    fn list(&self) -> Box<dyn DescriptorList>;
}

impl<C: Compatibility> ErasedCompatibility for CachedDescriptor<C> {
    fn class(&self) -> Option<u64> {
        self.class
    }

    fn summary(&self) -> u64 {
        self.summary
    }

    fn conflicts_with(&self, other: &dyn Any) -> bool {
        // Descriptors of different types are never compared.
        other.downcast_ref().is_some_and(|other| CachedDescriptor::conflicts_with(self, other))
    }

    fn list(&self) -> Box<dyn DescriptorList> {
        Box::new(TypedDescriptors::<C>(Vec::new()))
    }
}

impl Descriptor {
    pub(crate) fn new<C: Compatibility>(value: C) -> Self {
        // Plain data needs no guard.
        match needs_drop::<C>() {
            true => Self::of(PanicSafeDrop(Some(value))),
            false => Self::of(value),
        }
    }

    fn of<C: Compatibility>(value: C) -> Self {
        let (summary, class) = (value.summary(), value.class());
        Descriptor(Arc::new(CachedDescriptor { summary, value, class }))
    }

    /// Returns the type of the descriptor. Only descriptors of one type are compared.
    pub(crate) fn kind(&self) -> TypeId {
        (&*self.0 as &dyn Any).type_id()
    }

    pub(crate) fn class(&self) -> Option<u64> {
        self.0.class()
    }

    pub(crate) fn summary(&self) -> u64 {
        self.0.summary()
    }

    /// Returns whether either of the two is incompatible with the other. Calls user code, unless
    /// the summaries decide.
    pub(crate) fn conflicts_with(&self, other: &Descriptor) -> bool {
        self.summary() & other.summary() != 0 && self.0.conflicts_with(&*other.0 as &dyn Any)
    }

    /// Creates an empty list for descriptors of this type.
    pub(super) fn list(&self) -> Box<dyn DescriptorList> {
        self.0.list()
    }
}

impl fmt::Debug for Descriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Descriptor").field("class", &self.class()).finish_non_exhaustive()
    }
}

/// Descriptors of one type, next to each other. The list knows the type, so that one virtual call
/// compares many, and the loop over them is compiled for that type.
pub(super) trait DescriptorList: Send + Sync {
    fn push(&mut self, descriptor: &Descriptor);

    fn get(&self, at: usize) -> Option<Descriptor>;

    /// Removes one descriptor; the others keep their indexes.
    fn remove(&mut self, at: usize);

    /// Returns the last descriptor that conflicts with `asking`, of those whose bits are set in
    /// `left`. The bit of each is cleared before it is compared. Calls user code.
    fn last_conflict(&self, scanning: &Descriptor, left: &mut u64) -> Option<usize>;

    /// Reads a word of each descriptor whose bit is set. Nothing depends on the values, so the
    /// processor waits for all cache misses together, and not for each at its comparison.
    fn prefetch(&self, which: u64);

    fn copy(&self) -> Box<dyn DescriptorList>;
}

struct TypedDescriptors<C>(Vec<Option<Arc<CachedDescriptor<C>>>>);

impl<C: Compatibility> DescriptorList for TypedDescriptors<C> {
    fn push(&mut self, descriptor: &Descriptor) {
        let any: Arc<dyn Any + Send + Sync> = descriptor.0.clone();
        self.0.push(any.downcast().ok());
    }

    fn get(&self, at: usize) -> Option<Descriptor> {
        self.0[at].clone().map(|one| Descriptor(one))
    }

    fn remove(&mut self, at: usize) {
        self.0[at] = None;
    }

    fn last_conflict(&self, scanning: &Descriptor, left: &mut u64) -> Option<usize> {
        let scanning = (&*scanning.0 as &dyn Any).downcast_ref::<CachedDescriptor<C>>()?;
        while *left != 0 {
            let at = left.ilog2() as usize;
            *left ^= 1 << at;
            if self.0[at].as_ref().is_some_and(|other| scanning.conflicts_with(other)) {
                return Some(at);
            }
        }
        None
    }

    fn prefetch(&self, mut which: u64) {
        let mut read = 0;
        while which != 0 {
            let at = which.trailing_zeros() as usize;
            which &= which - 1;
            read ^= self.0[at].as_ref().map_or(0, |one| one.summary);
        }
        black_box(read);
    }

    fn copy(&self) -> Box<dyn DescriptorList> {
        Box::new(TypedDescriptors(self.0.clone()))
    }
}
