//! A task's body: any runnable value, stored in place if it is small.
//!
//! A `Box<dyn FnOnce>` per task would cost two trips to the allocator, on two threads; that is more
//! than everything else that the engine does for a task. So a body of up to four words lives in the
//! entry of the task itself, and only a larger one in a box.

use std::any::TypeId;
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::sync::Arc;

use super::context::KeepValueContext;
use super::{ExecContext, Turn};
use crate::order::SlotRef;
use crate::unwind::drop_catch_unwind;

/// Room for the captures of most closures. With it an entry is one cache line.
const WORDS: usize = 4;

type Words = [MaybeUninit<usize>; WORDS];

/// What a worker can run once.
pub(crate) trait RunBody: Send + 'static {
    fn run(self, ctx: &mut dyn ExecContext);

    /// What the task is called, if a handle waits for it.
    fn name(&self) -> Option<usize> {
        None
    }

    /// Another has taken its place, so it will never run. The turn of that other begins when `turn`
    /// has ended: after the captures are gone.
    fn supersede(self, turn: Turn)
    where
        Self: Sized,
    {
        drop_catch_unwind(self);
        drop(turn);
    }

    /// Whether it is of this type, or has one of this type inside.
    fn is_a(&self, kind: TypeId) -> bool {
        TypeId::of::<Self>() == kind
    }
}

/// A task that a handle waits for, and that its handle can find by name.
pub(crate) trait RunSharedBody: Send + Sync {
    fn run(self: Arc<Self>, ctx: &mut dyn ExecContext);

    /// It will never run.
    fn abandon(&self);

    /// It will never run, for another has taken its place. Ends `turn` when the captures are gone.
    fn supersede(&self, turn: Turn);
}

/// A [`RunBody`] of a type that is no longer known.
pub(crate) struct TaskBody {
    words: Words,
    vtable: &'static Vtable,
    /// The words may hold what is `Send` and not `Sync`.
    _not_sync: PhantomData<Cell<()>>,
}

struct Vtable {
    /// Moves the value out of the words and runs it.
    run: unsafe fn(*mut Words, &mut dyn ExecContext),
    /// Drops the value in the words.
    drop: unsafe fn(*mut Words),
    /// Moves the value out of the words and lets it know that it was superseded.
    supersede: unsafe fn(*mut Words, Turn),
    /// The name of the value in the words.
    name: unsafe fn(*const Words) -> Option<usize>,
    /// Whether the value in the words is of this type.
    is_a: unsafe fn(*const Words, TypeId) -> bool,
}

/// Gives each type its vtable.
struct Stored<R>(R);

impl<R: RunBody> Stored<R> {
    const FITS: bool =
        size_of::<R>() <= size_of::<Words>() && align_of::<R>() <= align_of::<Words>();
    const VTABLE: Vtable = Vtable {
        run: Self::run,
        drop: Self::drop,
        supersede: Self::supersede,
        name: Self::name,
        is_a: Self::is_a,
    };

    /// # Safety
    /// `words` holds an `R` that nobody will use again.
    unsafe fn run(words: *mut Words, ctx: &mut dyn ExecContext) {
        // SAFETY: by this function's condition; `TaskBody::new` checked size and alignment.
        let value = unsafe { words.cast::<R>().read() };
        value.run(ctx);
    }

    /// # Safety
    /// `words` holds an `R` that nobody will use again.
    unsafe fn drop(words: *mut Words) {
        // SAFETY: by this function's condition.
        unsafe { words.cast::<R>().drop_in_place() }
    }

    /// # Safety
    /// `words` holds an `R` that nobody will use again.
    unsafe fn supersede(words: *mut Words, turn: Turn) {
        // SAFETY: by this function's condition; `TaskBody::new` checked size and alignment.
        unsafe { words.cast::<R>().read() }.supersede(turn);
    }

    /// # Safety
    /// `words` holds an `R`.
    unsafe fn name(words: *const Words) -> Option<usize> {
        // SAFETY: by this function's condition.
        unsafe { &*words.cast::<R>() }.name()
    }

    /// # Safety
    /// `words` holds an `R`.
    unsafe fn is_a(words: *const Words, kind: TypeId) -> bool {
        // SAFETY: by this function's condition.
        unsafe { &*words.cast::<R>() }.is_a(kind)
    }
}

/// A value that is too large for the words.
struct Boxed<R>(Box<R>);

impl<R: RunBody> RunBody for Boxed<R> {
    fn run(self, ctx: &mut dyn ExecContext) {
        self.0.run(ctx);
    }

    fn name(&self) -> Option<usize> {
        self.0.name()
    }

    fn supersede(self, turn: Turn) {
        self.0.supersede(turn);
    }

    fn is_a(&self, kind: TypeId) -> bool {
        self.0.is_a(kind)
    }
}

/// A body, and what is dropped when its turn has ended: as soon as it has returned, unless it keeps
/// the turn.
struct BodyWith<T> {
    body: TaskBody,
    value: T,
}

impl<T: Send + Sync + 'static> RunBody for BodyWith<T> {
    fn run(self, ctx: &mut dyn ExecContext) {
        self.body.run(&mut KeepValueContext::new(ctx, self.value));
    }

    fn name(&self) -> Option<usize> {
        self.body.name()
    }

    fn supersede(self, turn: Turn) {
        self.body.supersede(turn);
    }

    fn is_a(&self, kind: TypeId) -> bool {
        // The body was made of a `RunBody`, and asks it.
        self.body.is_of(kind)
    }
}

/// The task of a handle.
struct SharedBody {
    name: usize,
    /// There until it runs.
    task: Option<Arc<dyn RunSharedBody>>,
}

impl RunBody for SharedBody {
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
        if Stored::<R>::FITS { Self::store(value) } else { Self::store(Boxed(Box::new(value))) }
    }

    /// The body of a task that a handle waits for.
    pub(crate) fn shared<T: RunSharedBody + 'static>(task: Arc<T>) -> Self {
        Self::new(SharedBody { name: name_of(&task), task: Some(task) })
    }

    /// The name of the task, if a handle waits for it.
    pub(crate) fn name(&self) -> Option<usize> {
        // SAFETY: `store` put the value there for this vtable, and it is there until `run` or
        // `drop` consume the body.
        unsafe { (self.vtable.name)(&self.words) }
    }

    /// The same body, with something that is dropped when its turn has ended.
    pub(crate) fn with<T: Send + Sync + 'static>(self, value: T) -> Self {
        TaskBody::new(BodyWith { body: self, value })
    }

    /// The caller has checked that `R` fits.
    #[inline(always)]
    fn store<R: RunBody>(value: R) -> Self {
        debug_assert!(Stored::<R>::FITS);
        let mut words: Words = [MaybeUninit::uninit(); WORDS];
        // SAFETY: `R` fits into the words and is no more strictly aligned: `new` checks it for what
        // it is given, and a `Boxed` is one word.
        unsafe { words.as_mut_ptr().cast::<R>().write(value) };
        TaskBody { words, vtable: &Stored::<R>::VTABLE, _not_sync: PhantomData }
    }

    /// Whether the value in it is of this type.
    pub(crate) fn is<R: RunBody>(&self) -> bool {
        self.is_of(TypeId::of::<R>())
    }

    fn is_of(&self, kind: TypeId) -> bool {
        // SAFETY: `store` put the value there for this vtable, and it is there until `run` or
        // `drop` consume the body.
        unsafe { (self.vtable.is_a)(&self.words, kind) }
    }

    /// Another has taken its place: it is dropped, its handle learns why, and then `turn` ends.
    pub(crate) fn supersede(self, turn: Turn) {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `store` put the value there for this vtable, and `this` is not dropped.
        unsafe { (this.vtable.supersede)(&mut this.words, turn) }
    }

    #[inline]
    pub(crate) fn run(self, ctx: &mut dyn ExecContext) {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `store` put the value there for this vtable, and `this` is not dropped.
        unsafe { (this.vtable.run)(&mut this.words, ctx) }
    }
}

impl TaskBody {
    /// Runs a body where it lies.
    #[inline(always)]
    pub(crate) fn run_in_hand(work: SlotRef<'_, TaskBody>, ctx: &mut dyn ExecContext) {
        let mut work = ManuallyDrop::new(work);
        let body: &mut TaskBody = &mut work;
        // SAFETY: `store` put the value there for this vtable, and `work` is not dropped.
        unsafe { (body.vtable.run)(&mut body.words, ctx) }
    }
}

/// What a task is called while somebody may wait for it: the address of what it shares with its
/// handle.
pub(crate) fn name_of<T: ?Sized>(task: &Arc<T>) -> usize {
    Arc::as_ptr(task).cast::<()>().addr()
}

impl Drop for TaskBody {
    fn drop(&mut self) {
        // SAFETY: `store` put the value there for this vtable; who consumes it forgets the body.
        unsafe { (self.vtable.drop)(&mut self.words) }
    }
}

// SAFETY: only values that are `Send`, as every `RunBody` is, are ever in the words.
unsafe impl Send for TaskBody {}

impl fmt::Debug for TaskBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskBody").field("name", &self.name()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::any::Any;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    struct NoContext;
    impl ExecContext for NoContext {
        fn panicked(&self, _: &(dyn Any + Send)) {}
        fn keep_turn(&mut self) -> Turn {
            unreachable!("no body here asks for it")
        }
    }

    /// Counts its runs and drops, and is as large as one likes.
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
    }

    #[test]
    fn small_and_large_bodies_run_or_drop_exactly_once() {
        check::<0>();
        check::<3>();
        check::<4>();
        check::<50>();
    }
}
