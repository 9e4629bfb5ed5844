//! Reuses the memory of ended tasks for new ones.
//!
//! A task with a handle has a block of memory, its cell, which the submitter allocates and a worker
//! frees. That is the most expensive order for a general allocator, because each block returns to the
//! submitter on its own. Here a worker collects the cells whose handles are gone, and hands them over
//! in batches. The submitter knows the addresses of a batch, so it prefetches each cell before it
//! writes there.
//!
//! A spare cell has no value of the user. It serves a task with a closure of the same type; otherwise it
//! is freed, and the task gets a new one. All threads share one exchange of batches, because a cell
//! does not know its pool.

use std::any::Any;
use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError};

use crate::prefetch::prefetch_shared_to_write;

/// Number of cells in a batch.
const BATCH: usize = 64;

/// Largest number of batches that wait for a submitter; their cells have at most 512 KiB.
const MAX_BATCHES: usize = 64;

/// Largest cell that is kept, with the two counts of its `Arc`.
const MAX_SIZE: usize = 128;

/// Distance, in cells, at which a cell is prefetched.
const AHEAD: usize = 4;

/// Whether cells are kept. Those of a loom model or of a shuttle schedule end with it.
const IS_ON: bool = cfg!(not(any(loom, all(test, shuttle))));

type SpareCell = Arc<dyn Any + Send + Sync>;

thread_local! {
    /// Spare cells of this thread, at most a batch.
    static SPARES: RefCell<Vec<SpareCell>> = const { RefCell::new(Vec::new()) };
}

static EXCHANGE: Exchange = Exchange::new();

/// Batches on their way from workers to submitters.
struct Exchange(Mutex<Batches>);

struct Batches {
    full: Vec<Vec<SpareCell>>,
    /// Emptied ones, for their memory. At most as many as there were full ones at once.
    empty: Vec<Vec<SpareCell>>,
}

/// Returns an owner of this value, in a spare cell if the next one has this type.
pub(super) fn reuse_or_allocate<C: Send + Sync + 'static>(value: C) -> Arc<C> {
    if !is_kept::<C>() {
        return Arc::new(value);
    }
    let Some(mut cell) = take_spare().and_then(|spare| spare.downcast::<C>().ok()) else {
        return Arc::new(value);
    };
    *Arc::get_mut(&mut cell).expect("a spare cell has one owner") = value;
    cell
}

/// Keeps the cell of an ended task, which has no other owner and no value of the user.
pub(super) fn keep<C: Send + Sync + 'static>(cell: Arc<C>) {
    if is_kept::<C>() {
        keep_erased(cell);
    }
}

#[inline]
fn keep_erased(cell: SpareCell) {
    // The thread-local may be gone, if the destructor of another one runs a task.
    let _ = SPARES.try_with(|spares| {
        let mut spares = spares.borrow_mut();
        if spares.len() == BATCH {
            EXCHANGE.hand_over(&mut spares);
        }
        spares.push(cell);
    });
}

const fn is_kept<C>() -> bool {
    IS_ON && 2 * size_of::<usize>() + size_of::<C>() <= MAX_SIZE
}

#[inline]
fn take_spare() -> Option<SpareCell> {
    let taken = SPARES.try_with(|spares| {
        let mut spares = spares.borrow_mut();
        if spares.is_empty() {
            EXCHANGE.fetch(&mut spares);
            spares.iter().rev().take(AHEAD).for_each(prefetch_cell);
        }
        let spare = spares.pop();
        if let Some(later) = spares.len().checked_sub(AHEAD) {
            prefetch_cell(&spares[later]);
        }
        spare
    });
    taken.ok().flatten()
}

fn prefetch_cell(spare: &SpareCell) {
    prefetch_shared_to_write(Arc::as_ptr(spare));
}

impl Exchange {
    const fn new() -> Self {
        Exchange(Mutex::new(Batches { full: Vec::new(), empty: Vec::new() }))
    }

    /// Takes a full batch, or frees it if there are enough, and leaves an empty one.
    #[cold]
    fn hand_over(&self, spares: &mut Vec<SpareCell>) {
        let mut batches = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if batches.full.len() == MAX_BATCHES {
            drop(batches);
            return spares.clear();
        }
        let empty = batches.empty.pop().unwrap_or_default();
        batches.full.push(std::mem::replace(spares, empty));
    }

    /// Replaces an empty batch by a full one, if there is any.
    #[cold]
    fn fetch(&self, spares: &mut Vec<SpareCell>) {
        let mut batches = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(full) = batches.full.pop() else { return };
        batches.empty.push(std::mem::replace(spares, full));
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::thread;

    use super::*;

    /// Runs a test on a thread of its own, which has no spare cells yet.
    fn on_a_new_thread(test: impl FnOnce() + Send) {
        thread::scope(|scope| scope.spawn(test).join()).unwrap();
    }

    fn address<C>(cell: &Arc<C>) -> usize {
        Arc::as_ptr(cell).addr()
    }

    #[test]
    fn a_cell_is_reused_for_a_value_of_its_type() {
        struct Value(&'static str);
        on_a_new_thread(|| {
            let first = reuse_or_allocate(Value("first"));
            let place = address(&first);
            keep(first);
            let second = reuse_or_allocate(Value("second"));
            assert_eq!((address(&second), second.0), (place, "second"));
            let third = reuse_or_allocate(Value("third"));
            assert_ne!(address(&third), place, "the cell has an owner");
        });
    }

    #[test]
    fn a_cell_of_another_type_is_freed() {
        on_a_new_thread(|| {
            let owned = Arc::new(());
            keep(reuse_or_allocate(Some(owned.clone())));
            let other = reuse_or_allocate(7_u64);
            assert_eq!((*other, Arc::strong_count(&owned)), (7, 1));
        });
    }

    #[test]
    fn a_large_cell_is_not_kept() {
        on_a_new_thread(|| {
            let owned = Arc::new(());
            keep(reuse_or_allocate((owned.clone(), [0_u64; 16])));
            assert_eq!(Arc::strong_count(&owned), 1);
        });
    }

    #[test]
    fn a_bounded_number_of_batches_waits() {
        let owned = Arc::new(());
        let exchange = Exchange::new();
        let mut spares: Vec<SpareCell> = Vec::new();
        for _ in 0..MAX_BATCHES + 3 {
            spares.extend((0..BATCH).map(|_| -> SpareCell { Arc::new(owned.clone()) }));
            exchange.hand_over(&mut spares);
            assert!(spares.is_empty());
        }
        assert_eq!(Arc::strong_count(&owned), 1 + MAX_BATCHES * BATCH);
        for _ in 0..MAX_BATCHES {
            exchange.fetch(&mut spares);
            assert_eq!(spares.len(), BATCH);
            spares.clear();
        }
        exchange.fetch(&mut spares);
        assert!(spares.is_empty());
    }
}
