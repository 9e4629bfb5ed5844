//! Type-erased body of a task, stored inline if it is small.
//!
//! A `Box<dyn FnOnce>` for each task would cost an allocation and a deallocation, on two threads:
//! more than all other work of the engine for a task. A body of up to four words is therefore
//! stored in the task's entry, and only a larger one in a box.

use std::any::{Any, TypeId};
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::sync::Arc;

use super::context::KeepValueContext;
use super::{ExecContext, Turn};
use crate::order::SlotRef;
use crate::prefetch::prefetch_shared_to_write;
use crate::unwind::{KeyPanic, drop_catch_unwind};

/// Inline capacity, in words: fits the captures of most closures, and an entry fits one cache line.
const WORDS: usize = 4;

type BodyWords = [MaybeUninit<usize>; WORDS];

/// Body that a worker can run once.
pub(crate) trait RunBody: Send + 'static {
    /// Whether the first word of the value is the address of memory that `run` uses.
    const BEGINS_WITH_ADDRESS: bool = false;

    /// Whether `name`, `supersede`, `fail` or `is_a` differ from the default. Otherwise they are not
    /// compiled for this type, since each closure has a type of its own.
    const REPORTS: bool = false;

    /// This type, also of a value in a box.
    const KIND: TypeId = TypeId::of::<Self>();

    fn run(self, ctx: &mut dyn ExecContext);

    /// Name of the task, if it has a handle.
    fn name(&self) -> Option<usize> {
        None
    }

    /// Discards the body because a newer task has replaced it, and ends `turn` after the captures
    /// are dropped: the newer task may then start.
    fn supersede(self, turn: Turn)
    where
        Self: Sized,
    {
        drop_catch_unwind(self);
        drop(turn);
    }

    /// Discards the body, which does not run because of a panic with this payload.
    fn fail(self, payload: KeyPanic)
    where
        Self: Sized,
    {
        drop_catch_unwind(self);
        drop_catch_unwind(payload);
    }

    /// Returns whether the body has this type, or wraps one that has.
    fn is_a(&self, kind: TypeId) -> bool {
        Self::KIND == kind
    }

    /// Moves the body into `place` if that is an `Option` of its type, and drops it otherwise.
    fn move_into(self, place: &mut dyn Any)
    where
        Self: Sized,
    {
        if let Some(place) = place.downcast_mut() {
            *place = Some(self);
        }
    }
}

/// Body of a task with a handle, which finds it by its name.
pub(crate) trait RunSharedBody: Send + Sync {
    fn run(self: Arc<Self>, ctx: &mut dyn ExecContext);

    /// Records that the body will never run.
    fn abandon(&self);

    /// Records that a newer task has replaced the body. Ends `turn` after the captures are dropped.
    fn supersede(&self, turn: Turn);

    /// Records that the body will never run, because of a panic with this payload.
    fn fail(&self, payload: KeyPanic);
}

/// Type-erased [`RunBody`].
pub(crate) struct TaskBody {
    words: BodyWords,
    vtable: &'static Vtable,
    /// Makes the type not `Sync`: the value in the words is `Send` only.
    _not_sync: PhantomData<Cell<()>>,
}

/// Does not compile if the type is `Sync`: then both implementations apply, and the call is
/// ambiguous.
const _: fn() = || {
    struct IsSync;
    trait Ambiguous<A> {
        fn call() {}
    }
    impl<T> Ambiguous<()> for T {}
    impl<T: Sync> Ambiguous<IsSync> for T {}
    <TaskBody as Ambiguous<_>>::call();
};

struct Vtable {
    /// [`RunBody::BEGINS_WITH_ADDRESS`].
    begins_with_address: bool,
    /// Moves the value out of the words and runs it.
    run: unsafe fn(*mut BodyWords, &mut dyn ExecContext),
    /// Drops the value in the words.
    drop: unsafe fn(*mut BodyWords),
    /// Moves the value out of the words and calls its `move_into`.
    move_into: unsafe fn(*mut BodyWords, &mut dyn Any),
    /// [`RunBody::KIND`].
    kind: TypeId,
    /// Functions of a type that [reports](RunBody::REPORTS).
    reports: Option<&'static ReportVtable>,
}

struct ReportVtable {
    /// Moves the value out of the words and calls its `supersede`.
    supersede: unsafe fn(*mut BodyWords, Turn),
    /// Moves the value out of the words and calls its `fail`.
    fail: unsafe fn(*mut BodyWords, KeyPanic),
    /// Returns the name of the value in the words.
    name: unsafe fn(*const BodyWords) -> Option<usize>,
    /// Returns whether the value in the words has this type, or wraps one that has.
    is_a: unsafe fn(*const BodyWords, TypeId) -> bool,
}

/// Namespace of the vtable functions of each type.
struct BodyVtable<R>(R);

impl<R: RunBody> BodyVtable<R> {
    const FITS: bool =
        size_of::<R>() <= size_of::<BodyWords>() && align_of::<R>() <= align_of::<BodyWords>();
    const VTABLE: Vtable = Vtable {
        begins_with_address: R::BEGINS_WITH_ADDRESS,
        run: Self::run,
        drop: Self::drop,
        move_into: Self::move_into,
        kind: R::KIND,
        reports: if R::REPORTS { Some(&Self::REPORT_VTABLE) } else { None },
    };
    const REPORT_VTABLE: ReportVtable = ReportVtable {
        supersede: Self::supersede,
        fail: Self::fail,
        name: Self::name,
        is_a: Self::is_a,
    };

    /// # Safety
    /// `words` holds an `R` that is not used again.
    unsafe fn run(words: *mut BodyWords, ctx: &mut dyn ExecContext) {
        // SAFETY: by this function's condition; `TaskBody::new` checked size and alignment.
        let value = unsafe { words.cast::<R>().read() };
        value.run(ctx);
    }

    /// # Safety
    /// `words` holds an `R` that is not used again.
    unsafe fn drop(words: *mut BodyWords) {
        // SAFETY: by this function's condition.
        unsafe { words.cast::<R>().drop_in_place() }
    }

    /// # Safety
    /// `words` holds an `R` that is not used again.
    unsafe fn supersede(words: *mut BodyWords, turn: Turn) {
        // SAFETY: by this function's condition; `TaskBody::new` checked size and alignment.
        unsafe { words.cast::<R>().read() }.supersede(turn);
    }

    /// # Safety
    /// `words` holds an `R` that is not used again.
    unsafe fn fail(words: *mut BodyWords, payload: KeyPanic) {
        // SAFETY: by this function's condition; `TaskBody::new` checked size and alignment.
        unsafe { words.cast::<R>().read() }.fail(payload);
    }

    /// # Safety
    /// `words` holds an `R`.
    unsafe fn name(words: *const BodyWords) -> Option<usize> {
        // SAFETY: by this function's condition.
        unsafe { &*words.cast::<R>() }.name()
    }

    /// # Safety
    /// `words` holds an `R`.
    unsafe fn is_a(words: *const BodyWords, kind: TypeId) -> bool {
        // SAFETY: by this function's condition.
        unsafe { &*words.cast::<R>() }.is_a(kind)
    }

    /// # Safety
    /// `words` holds an `R` that is not used again.
    unsafe fn move_into(words: *mut BodyWords, place: &mut dyn Any) {
        // SAFETY: by this function's condition; `TaskBody::new` checked size and alignment.
        unsafe { words.cast::<R>().read() }.move_into(place);
    }
}

/// Value that is too large for the words.
#[repr(transparent)]
struct BoxedBody<R>(Box<R>);

impl<R: RunBody> RunBody for BoxedBody<R> {
    const BEGINS_WITH_ADDRESS: bool = true;
    const REPORTS: bool = R::REPORTS;
    const KIND: TypeId = R::KIND;

    fn run(self, ctx: &mut dyn ExecContext) {
        self.0.run(ctx);
    }

    fn name(&self) -> Option<usize> {
        self.0.name()
    }

    fn supersede(self, turn: Turn) {
        self.0.supersede(turn);
    }

    fn fail(self, payload: KeyPanic) {
        self.0.fail(payload);
    }

    fn is_a(&self, kind: TypeId) -> bool {
        self.0.is_a(kind)
    }

    fn move_into(self, place: &mut dyn Any) {
        self.0.move_into(place);
    }
}

/// Body with a value that is dropped when its turn has ended: when the body returns, unless it
/// keeps the turn.
struct BodyWith<T> {
    body: TaskBody,
    value: T,
}

impl<T: Send + Sync + 'static> RunBody for BodyWith<T> {
    const REPORTS: bool = true;

    fn run(self, ctx: &mut dyn ExecContext) {
        self.body.run(&mut KeepValueContext::new(ctx, self.value));
    }

    fn name(&self) -> Option<usize> {
        self.body.name()
    }

    fn supersede(self, turn: Turn) {
        self.body.supersede(turn);
    }

    fn fail(self, payload: KeyPanic) {
        self.body.fail(payload);
    }

    fn is_a(&self, kind: TypeId) -> bool {
        // The body was made from a `RunBody`, which knows its own type.
        self.body.is_of(kind)
    }
}

/// Body of a task with a handle.
#[repr(C)]
struct SharedBody {
    /// Address of the task.
    name: usize,
    /// Task, until it runs.
    task: Option<Arc<dyn RunSharedBody>>,
}

impl RunBody for SharedBody {
    const BEGINS_WITH_ADDRESS: bool = true;
    const REPORTS: bool = true;

    fn run(mut self, ctx: &mut dyn ExecContext) {
        if let Some(task) = self.task.take() {
            task.run(ctx);
        }
    }

    fn name(&self) -> Option<usize> {
        Some(self.name)
    }

    fn supersede(mut self, turn: Turn) {
        if let Some(task) = self.task.take() {
            task.supersede(turn);
        }
    }

    fn fail(mut self, payload: KeyPanic) {
        if let Some(task) = self.task.take() {
            task.fail(payload);
        }
    }
}

impl Drop for SharedBody {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abandon();
        }
    }
}

impl TaskBody {
    #[inline(always)]
    pub(crate) fn new<R: RunBody>(value: R) -> Self {
        if BodyVtable::<R>::FITS {
            Self::store(value)
        } else {
            Self::store(BoxedBody(Box::new(value)))
        }
    }

    /// Creates the body of a task with a handle.
    pub(crate) fn shared<T: RunSharedBody + 'static>(task: Arc<T>) -> Self {
        Self::new(SharedBody { name: name_of(&task), task: Some(task) })
    }

    /// Name of the task, if it has a handle.
    pub(crate) fn name(&self) -> Option<usize> {
        let reports = self.vtable.reports?;
        // SAFETY: `store` put the value there for this vtable, and it is there until `run` or
        // `drop` consume the body.
        unsafe { (reports.name)(&self.words) }
    }

    /// Adds a value that is dropped when the turn of the body has ended.
    pub(crate) fn with<T: Send + Sync + 'static>(self, value: T) -> Self {
        TaskBody::new(BodyWith { body: self, value })
    }

    /// Stores a value inline. The caller has checked that `R` fits.
    #[inline(always)]
    fn store<R: RunBody>(value: R) -> Self {
        debug_assert!(BodyVtable::<R>::FITS);
        let mut words: BodyWords = [MaybeUninit::uninit(); WORDS];
        // SAFETY: `R` fits into the words in size and alignment: `new` checks it for its argument,
        // and a `BoxedBody` is one word.
        unsafe { words.as_mut_ptr().cast::<R>().write(value) };
        TaskBody { words, vtable: &BodyVtable::<R>::VTABLE, _not_sync: PhantomData }
    }

    /// Returns whether the stored value has this type.
    pub(crate) fn is<R: RunBody>(&self) -> bool {
        self.is_of(TypeId::of::<R>())
    }

    fn is_of(&self, kind: TypeId) -> bool {
        let Some(reports) = self.vtable.reports else { return self.vtable.kind == kind };
        // SAFETY: `store` put the value there for this vtable, and it is there until `run` or
        // `drop` consume the body.
        unsafe { (reports.is_a)(&self.words, kind) }
    }

    /// Prefetches a value that is not in the words. Another processor has written it, and its transfer
    /// takes longer than a tiny task.
    #[inline(always)]
    pub(crate) fn prefetch(&self) {
        if self.vtable.begins_with_address {
            // SAFETY: only `BoxedBody` and `SharedBody` set the flag, and their `repr` puts the address first.
            let address = unsafe { self.words.as_ptr().cast::<*const u8>().read() };
            // In a box the value begins at the start of the block, and the line before it is fetched in vain.
            prefetch_shared_to_write(address);
        }
    }

    /// Discards the body, notifies its handle, and then ends `turn`.
    pub(crate) fn supersede(self, turn: Turn) {
        let Some(reports) = self.vtable.reports else {
            drop_catch_unwind(self);
            return drop(turn);
        };
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `store` put the value there for this vtable, and `this` is not dropped.
        unsafe { (reports.supersede)(&mut this.words, turn) }
    }

    /// Discards the body, which does not run because of a panic with this payload, and notifies its
    /// handle.
    pub(crate) fn fail(self, payload: KeyPanic) {
        let Some(reports) = self.vtable.reports else {
            drop_catch_unwind(self);
            return drop_catch_unwind(payload);
        };
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `store` put the value there for this vtable, and `this` is not dropped.
        unsafe { (reports.fail)(&mut this.words, payload) }
    }

    /// Returns the value of a refused body to its submitter, which knows the type.
    #[cold]
    pub(crate) fn into_refused<R: RunBody>(self) -> R {
        self.into_value().expect("a refused body is the one that was submitted")
    }

    /// Returns the value of a body that did not run, if it has this type.
    fn into_value<R: RunBody>(self) -> Option<R> {
        let mut value: Option<R> = None;
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `store` put the value there for this vtable, and `this` is not dropped.
        unsafe { (this.vtable.move_into)(&mut this.words, &mut value) };
        value
    }

    #[inline]
    pub(crate) fn run(self, ctx: &mut dyn ExecContext) {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `store` put the value there for this vtable, and `this` is not dropped.
        unsafe { (this.vtable.run)(&mut this.words, ctx) }
    }
}

impl TaskBody {
    /// Runs a body in its slot, without moving it.
    #[inline(always)]
    pub(crate) fn run_in_slot(work: SlotRef<'_, TaskBody>, ctx: &mut dyn ExecContext) {
        let mut work = ManuallyDrop::new(work);
        let body: &mut TaskBody = &mut work;
        // SAFETY: `store` put the value there for this vtable, and `work` is not dropped.
        unsafe { (body.vtable.run)(&mut body.words, ctx) }
    }
}

/// Name of a task with a handle: the address of the state that it shares with the handle.
pub(crate) fn name_of<T: ?Sized>(task: &Arc<T>) -> usize {
    Arc::as_ptr(task).cast::<()>().addr()
}

impl Drop for TaskBody {
    fn drop(&mut self) {
        // SAFETY: `store` put the value there for this vtable; methods that consume the body skip
        // this drop.
        unsafe { (self.vtable.drop)(&mut self.words) }
    }
}

// SAFETY: the words hold only values that are `Send`, as every `RunBody` is.
unsafe impl Send for TaskBody {}

impl fmt::Debug for TaskBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskBody").field("name", &self.name()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    struct NoContext;
    impl ExecContext for NoContext {
        fn panicked(&self, _: &(dyn Any + Send)) {}
        fn keep_turn(&mut self) -> Turn {
            unreachable!("no body of these tests keeps its turn")
        }
    }

    /// Counts its runs and drops; has a size of `N` words and more.
    struct Probe<const N: usize> {
        runs: Arc<AtomicUsize>,
        _ballast: [usize; N],
    }
    impl<const N: usize> RunBody for Probe<N> {
        fn run(self, _: &mut dyn ExecContext) {
            self.runs.fetch_add(100, Ordering::Relaxed);
        }
    }
    impl<const N: usize> Drop for Probe<N> {
        fn drop(&mut self) {
            self.runs.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn check<const N: usize>() {
        let runs = Arc::new(AtomicUsize::new(0));
        let probe = || TaskBody::new(Probe::<N> { runs: runs.clone(), _ballast: [0; N] });
        probe().run(&mut NoContext);
        assert_eq!(runs.swap(0, Ordering::Relaxed), 101, "run once, dropped once");
        drop(probe());
        assert_eq!(runs.swap(0, Ordering::Relaxed), 1, "dropped once");
        let value = probe().into_value::<Probe<N>>();
        assert_eq!(runs.load(Ordering::Relaxed), 0, "moved out");
        drop(value.expect("the value has this type"));
        assert_eq!(runs.swap(0, Ordering::Relaxed), 1, "dropped once");
        assert!(probe().into_value::<Probe<1000>>().is_none());
        assert_eq!(runs.swap(0, Ordering::Relaxed), 1, "dropped once, as it has another type");
    }

    #[test]
    fn small_and_large_bodies_run_drop_or_are_moved_out_exactly_once() {
        check::<0>();
        check::<3>();
        check::<4>();
        check::<50>();
    }
}
