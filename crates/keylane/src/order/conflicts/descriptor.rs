//! What a type of the user's says of which tasks may run at the same time.

use std::any::{Any, TypeId};
use std::fmt;
use std::hint::black_box;
use std::mem::needs_drop;
use std::sync::Arc;

use crate::unwind::drop_catch_unwind;

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
/// locked meanwhile, and workers go on. With a [`summary`](Self::summary) it only asks about those with
/// which it may have something in common, and passes over the others at a fraction of a nanosecond each.
///
/// # What is asked of it
///
/// The answer depends on nothing but the two values, and does not change. It is asked on the thread
/// that submits, outside of all locks, and so may take its time and even submit; but it must not wait
/// for a task of the pool. If it panics, the two count as incompatible, so that the order is kept, and
/// the panic goes to [`on_panic`](crate::Builder::on_panic); the submission succeeds. It is dropped when its
/// task has ended, or by who was asking about it then; a panic in its drop goes nowhere.
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

    /// What the task touches, folded into 64 bits: **two descriptors whose summaries have no bit in common
    /// are compatible**, and are not asked about each other. Bits in common mean nothing; then they are
    /// asked. So a bit may stand for many things, and a summary may have more bits than it needs, but
    /// none less: a task could then run beside one that it conflicts with.
    ///
    /// All bits, if nothing is said; then everything is asked. No bit: compatible with everything. It
    /// must not change, and is asked once for each descriptor.
    ///
    /// What it saves depends on how few bits a task has: one bit for each of a few things that it touches,
    /// chosen by a hash or by where it is. In [classes](Self::class) it saves the question for each pair
    /// of classes, which the class itself would answer for all others.
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

/// A [`Compatibility`] of a type that is no longer known. Two words, so that claims are no larger.
#[derive(Clone)]
pub(crate) struct Descriptor(Arc<dyn Comparable>);

/// A value, and what it was asked once. Laid out as written: whoever reads `summary` has the beginning of
/// the value in the cache.
#[repr(C)]
struct CachedDescriptor<C> {
    summary: u64,
    value: C,
    class: Option<u64>,
}

impl<C: Compatibility> CachedDescriptor<C> {
    /// Whether either of the two says so.
    #[inline]
    fn conflicts_with(&self, other: &Self) -> bool {
        !self.value.is_compatible(&other.value) || !other.value.is_compatible(&self.value)
    }
}

/// A value whose drop may panic, which is nobody's business: whoever has it last lets go of it in the middle of
/// something else. A worker is ending its task, or somebody is asking for another.
struct Guarded<C>(Option<C>);

impl<C> Guarded<C> {
    fn value(&self) -> &C {
        self.0.as_ref().expect("it is there until it is dropped")
    }
}

impl<C> Drop for Guarded<C> {
    fn drop(&mut self) {
        drop_catch_unwind(self.0.take());
    }
}

impl<C: Compatibility> Compatibility for Guarded<C> {
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

trait Comparable: Any + Send + Sync {
    fn class(&self) -> Option<u64>;

    fn summary(&self) -> u64;

    fn conflicts_with(&self, other: &dyn Any) -> bool;

    /// An empty list for descriptors of this type.
    fn list(&self) -> Box<dyn DescriptorList>;
}

impl<C: Compatibility> Comparable for CachedDescriptor<C> {
    fn class(&self) -> Option<u64> {
        self.class
    }

    fn summary(&self) -> u64 {
        self.summary
    }

    fn conflicts_with(&self, other: &dyn Any) -> bool {
        // Only those of one type are asked about each other.
        other.downcast_ref().is_some_and(|other| CachedDescriptor::conflicts_with(self, other))
    }

    fn list(&self) -> Box<dyn DescriptorList> {
        Box::new(Typed::<C>(Vec::new()))
    }
}

impl Descriptor {
    pub(crate) fn new<C: Compatibility>(value: C) -> Self {
        // Plain data is asked about as it is.
        match needs_drop::<C>() {
            true => Self::of(Guarded(Some(value))),
            false => Self::of(value),
        }
    }

    fn of<C: Compatibility>(value: C) -> Self {
        let (summary, class) = (value.summary(), value.class());
        Descriptor(Arc::new(CachedDescriptor { summary, value, class }))
    }

    /// Only those of one kind are compared.
    pub(crate) fn kind(&self) -> TypeId {
        (&*self.0 as &dyn Any).type_id()
    }

    pub(crate) fn class(&self) -> Option<u64> {
        self.0.class()
    }

    pub(crate) fn summary(&self) -> u64 {
        self.0.summary()
    }

    /// Whether either of the two says so. Calls what the user wrote, unless the summaries answer.
    pub(crate) fn conflicts_with(&self, other: &Descriptor) -> bool {
        self.summary() & other.summary() != 0 && self.0.conflicts_with(&*other.0 as &dyn Any)
    }

    /// An empty list for descriptors of this type.
    pub(super) fn list(&self) -> Box<dyn DescriptorList> {
        self.0.list()
    }
}

impl fmt::Debug for Descriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Descriptor").field("class", &self.class()).finish_non_exhaustive()
    }
}

/// Descriptors of one type, next to each other. It knows the type, so that one call through a table
/// compares many, and the loop over them is compiled for that type.
pub(super) trait DescriptorList: Send + Sync {
    fn push(&mut self, descriptor: &Descriptor);

    fn get(&self, at: usize) -> Option<Descriptor>;

    /// Takes one out; the others keep their places.
    fn remove(&mut self, at: usize);

    /// The last one in conflict with this one, of those whose bits are set in `left`. The bits of all that
    /// were asked are taken out, each before it is asked. Calls what the user wrote.
    fn last_conflict(&self, asking: &Descriptor, left: &mut u64) -> Option<usize>;

    /// Reads something of those whose bits are set. Nothing depends on what is read, so the processor waits
    /// for all of them together, and not for each when it is asked.
    fn fetch(&self, which: u64);

    fn copy(&self) -> Box<dyn DescriptorList>;
}

struct Typed<C>(Vec<Option<Arc<CachedDescriptor<C>>>>);

impl<C: Compatibility> DescriptorList for Typed<C> {
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

    fn last_conflict(&self, asking: &Descriptor, left: &mut u64) -> Option<usize> {
        let asking = (&*asking.0 as &dyn Any).downcast_ref::<CachedDescriptor<C>>()?;
        while *left != 0 {
            let at = left.ilog2() as usize;
            *left ^= 1 << at;
            if self.0[at].as_ref().is_some_and(|other| asking.conflicts_with(other)) {
                return Some(at);
            }
        }
        None
    }

    fn fetch(&self, mut which: u64) {
        let mut read = 0;
        while which != 0 {
            let at = which.trailing_zeros() as usize;
            which &= which - 1;
            read ^= self.0[at].as_ref().map_or(0, |one| one.summary);
        }
        black_box(read);
    }

    fn copy(&self) -> Box<dyn DescriptorList> {
        Box::new(Typed(self.0.clone()))
    }
}
