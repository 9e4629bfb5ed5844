//! A task's body: any runnable value, stored in place if it is small.
//!
//! A `Box<dyn FnOnce>` per task would cost two trips to the allocator, on two threads; that is more
//! than everything else that the engine does for a task. So a body of up to four words lives in the
//! entry of the task itself, and only a larger one in a box.

use std::any::TypeId;
use std::fmt;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::sync::Arc;

use super::Stage;
use crate::order::InHand;

/// Room for the captures of most closures. With it an entry is one cache line.
const WORDS: usize = 4;

type Words = [MaybeUninit<usize>; WORDS];

/// What a worker can run once.
pub(crate) trait Run: Send + 'static {
    fn run(self, stage: &mut dyn Stage);
}

/// A task that a handle waits for, and that its handle can find by name.
pub(crate) trait RunShared: Send + Sync {
    fn run(self: Arc<Self>, stage: &mut dyn Stage);

    /// It will never run.
    fn abandon(&self);
}

/// A [`Run`] of a type that is no longer known.
pub(crate) struct Body {
    words: Words,
    vtable: &'static Vtable,
}

struct Vtable {
    /// Moves the value out of the words and runs it.
    run: unsafe fn(*mut Words, &mut dyn Stage),
    /// Drops the value in the words.
    drop: unsafe fn(*mut Words),
    type_id: fn() -> TypeId,
}

/// Gives each type its vtable.
struct Stored<R>(R);

impl<R: Run> Stored<R> {
    const FITS: bool =
        size_of::<R>() <= size_of::<Words>() && align_of::<R>() <= align_of::<Words>();
    const VTABLE: Vtable = Vtable { run: Self::run, drop: Self::drop, type_id: TypeId::of::<R> };

    /// # Safety
    /// `words` holds an `R` that nobody will use again.
    unsafe fn run(words: *mut Words, stage: &mut dyn Stage) {
        // SAFETY: by this function's condition; `Body::new` checked size and alignment.
        let value = unsafe { words.cast::<R>().read() };
        value.run(stage);
    }

    /// # Safety
    /// `words` holds an `R` that nobody will use again.
    unsafe fn drop(words: *mut Words) {
        // SAFETY: by this function's condition.
        unsafe { words.cast::<R>().drop_in_place() }
    }
}

/// A value that is too large for the words.
struct Boxed<R>(Box<R>);

impl<R: Run> Run for Boxed<R> {
    fn run(self, stage: &mut dyn Stage) {
        self.0.run(stage);
    }
}

/// The task of a handle.
struct Shared {
    name: usize,
    task: Arc<dyn RunShared>,
}

impl Run for Shared {
    fn run(self, stage: &mut dyn Stage) {
        self.task.clone().run(stage);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Of no effect if it has run.
        self.task.abandon();
    }
}

impl Body {
    #[inline(always)]
    pub(crate) fn new<R: Run>(value: R) -> Self {
        if Stored::<R>::FITS { Self::store(value) } else { Self::store(Boxed(Box::new(value))) }
    }

    /// The body of a task that a handle waits for.
    pub(crate) fn shared<T: RunShared + 'static>(task: Arc<T>) -> Self {
        Self::new(Shared { name: name_of(&task), task })
    }

    /// The name of the task, if a handle waits for it.
    pub(crate) fn name(&self) -> Option<usize> {
        self.view::<Shared>().map(|shared| shared.name)
    }

    /// The caller has checked that `R` fits.
    #[inline(always)]
    fn store<R: Run>(value: R) -> Self {
        debug_assert!(Stored::<R>::FITS);
        let mut words: Words = [MaybeUninit::uninit(); WORDS];
        // SAFETY: `R` fits into the words and is no more strictly aligned: `new` checks it for what
        // it is given, and a `Boxed` is one word.
        unsafe { words.as_mut_ptr().cast::<R>().write(value) };
        Body { words, vtable: &Stored::<R>::VTABLE }
    }

    /// Whether the value in it is of this type.
    pub(crate) fn is<R: Run>(&self) -> bool {
        const { assert!(Stored::<R>::FITS) };
        self.holds::<R>()
    }

    fn holds<R: Run>(&self) -> bool {
        (self.vtable.type_id)() == TypeId::of::<R>()
    }

    fn view<R: Run>(&self) -> Option<&R> {
        // SAFETY: `store` wrote an `R` if the type says so, and it is there until `run` or
        // `drop` consume the body.
        self.holds::<R>().then(|| unsafe { &*self.words.as_ptr().cast::<R>() })
    }

    #[inline]
    pub(crate) fn run(self, stage: &mut dyn Stage) {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `store` put the value there for this vtable, and `this` is not dropped.
        unsafe { (this.vtable.run)(&mut this.words, stage) }
    }
}

impl Body {
    /// Runs a body where it lies.
    #[inline(always)]
    pub(crate) fn run_in_hand(work: InHand<'_, Body>, stage: &mut dyn Stage) {
        let mut work = ManuallyDrop::new(work);
        let body: &mut Body = &mut work;
        // SAFETY: `store` put the value there for this vtable, and `work` is not dropped.
        unsafe { (body.vtable.run)(&mut body.words, stage) }
    }
}

/// What a task is called while somebody may wait for it: the address of what it shares with its
/// handle.
pub(crate) fn name_of<T: ?Sized>(task: &Arc<T>) -> usize {
    Arc::as_ptr(task).cast::<()>().addr()
}

impl Drop for Body {
    fn drop(&mut self) {
        // SAFETY: `store` put the value there for this vtable; who consumes it forgets the body.
        unsafe { (self.vtable.drop)(&mut self.words) }
    }
}

// SAFETY: only values that are `Send`, as every `Run` is, are ever in the words.
unsafe impl Send for Body {}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body").field("name", &self.name()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::any::Any;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::run::Turn;

    struct NoStage;
    impl Stage for NoStage {
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
    impl<const N: usize> Run for Probe<N> {
        fn run(self, _: &mut dyn Stage) {
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
        let probe = || Body::new(Probe::<N> { runs: runs.clone(), _ballast: [0; N] });
        probe().run(&mut NoStage);
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
