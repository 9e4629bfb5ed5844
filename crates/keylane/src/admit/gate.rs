//! The public gate: a bound on how much goes on at a time, fair to whoever waits.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::error::{AcquireError, CapacityError};
use super::semaphore::{MAX_SLOTS, Semaphore, TryAcquireError};
use crate::sync::{AtomicUsize, Ordering};

/// A fair bounded count of slots: what a semaphore is, with the order of arrival kept.
///
/// - **First come, first served.** A freed slot is handed to whoever has waited longest. While
///   anybody waits, nobody who comes later gets one, not even by trying.
/// - **Weighted.** A caller may want several slots at once. It gets them together, and nobody behind
///   it gets any before, so that large requests do not starve.
/// - **Nothing is lost.** A wait that times out, or a future that is dropped, leaves the line at once,
///   and gives back what it was granted.
/// - **One line for all.** Threads and tasks of any async runtime wait in the same line.
///
/// While nobody waits, taking and giving back are one atomic operation each.
///
/// # Examples
/// ```
/// use keylane::admit::Gate;
///
/// let gate = Gate::new(2)?;
/// let one = gate.acquire()?;
/// let two = gate.acquire()?;
/// assert!(gate.try_acquire().is_err());
/// drop(one);
/// assert!(gate.try_acquire().is_ok());
/// # drop(two);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Gate {
    slots: Semaphore,
    /// Semaphore in use whose permits were forgotten. Raised by who forgets one, lowered by `release`; no lock.
    forgotten: AtomicUsize,
}

impl Gate {
    /// The most slots that a gate can have.
    pub const MAX_SLOTS: usize = MAX_SLOTS;

    /// A gate with so many slots, all free.
    ///
    /// # Errors
    /// If there are none, or more than [`MAX_SLOTS`](Self::MAX_SLOTS).
    pub fn new(slots: usize) -> Result<Self, CapacityError> {
        Ok(Gate { slots: Semaphore::new(checked(slots)?), forgotten: AtomicUsize::new(0) })
    }

    /// Takes a slot, waiting for one if there is none.
    ///
    /// # Errors
    /// If the gate is closed, or is closed meanwhile.
    #[inline]
    pub fn acquire(&self) -> Result<Permit<'_>, AcquireError> {
        self.acquire_until(1, None)
    }

    /// Takes a slot, waiting for one up to `timeout`.
    ///
    /// # Errors
    /// If there was none in time, or the gate is closed.
    pub fn acquire_timeout(&self, timeout: Duration) -> Result<Permit<'_>, AcquireError> {
        self.acquire_many_timeout(1, timeout)
    }

    /// Takes a slot, waiting for one until `deadline`.
    ///
    /// # Errors
    /// If there was none in time, or the gate is closed.
    pub fn acquire_deadline(&self, deadline: Instant) -> Result<Permit<'_>, AcquireError> {
        self.acquire_until(1, Some(deadline))
    }

    /// Takes a slot if one is free and nobody waits.
    ///
    /// # Errors
    /// If there is none to be had at once, or the gate is closed.
    #[inline]
    pub fn try_acquire(&self) -> Result<Permit<'_>, AcquireError> {
        self.try_acquire_many(1)
    }

    /// Takes a slot, waiting for one in the same line as threads do. The place in the line is taken
    /// when the future is first polled.
    ///
    /// # Cancel safety
    /// A dropped future leaves the line, or gives back what it was granted.
    ///
    /// # Errors
    /// If the gate is closed, or is closed meanwhile.
    pub async fn acquire_async(&self) -> Result<Permit<'_>, AcquireError> {
        self.acquire_many_async(1).await
    }

    /// Takes `want` slots together, waiting for them if they are not free.
    ///
    /// # Errors
    /// If the gate is closed, or has fewer slots than that, now or meanwhile.
    #[inline]
    pub fn acquire_many(&self, want: usize) -> Result<Permit<'_>, AcquireError> {
        self.acquire_until(want, None)
    }

    /// As [`acquire_many`](Self::acquire_many), waiting up to `timeout`.
    ///
    /// # Errors
    /// If they were not free in time, or as for `acquire_many`.
    pub fn acquire_many_timeout(
        &self,
        want: usize,
        timeout: Duration,
    ) -> Result<Permit<'_>, AcquireError> {
        self.acquire_until(want, Instant::now().checked_add(timeout))
    }

    /// As [`acquire_many`](Self::acquire_many), waiting until `deadline`.
    ///
    /// # Errors
    /// If they were not free in time, or as for `acquire_many`.
    pub fn acquire_many_deadline(
        &self,
        want: usize,
        deadline: Instant,
    ) -> Result<Permit<'_>, AcquireError> {
        self.acquire_until(want, Some(deadline))
    }

    /// Takes `want` slots if they are free and nobody waits.
    ///
    /// # Errors
    /// If they are not to be had at once, or the gate is closed or has fewer.
    #[inline]
    pub fn try_acquire_many(&self, want: usize) -> Result<Permit<'_>, AcquireError> {
        match self.slots.try_acquire(want) {
            Ok(()) => Ok(Permit { gate: self, slots: want }),
            Err(TryAcquireError::Closed) => Err(AcquireError::Closed),
            Err(TryAcquireError::Full) if want > self.capacity() => Err(AcquireError::TooLarge),
            Err(TryAcquireError::Full) => Err(AcquireError::Full),
        }
    }

    /// As [`acquire_many`](Self::acquire_many), as a future.
    ///
    /// # Cancel safety
    /// A dropped future leaves the line, or gives back what it was granted.
    ///
    /// # Errors
    /// As for `acquire_many`.
    pub async fn acquire_many_async(&self, want: usize) -> Result<Permit<'_>, AcquireError> {
        match self.slots.try_acquire(want) {
            Err(TryAcquireError::Full) => match self.slots.acquire_async(want).await {
                Ok(()) => Ok(Permit { gate: self, slots: want }),
                Err(_) => Err(self.why_never()),
            },
            settled => self.permit(settled, want),
        }
    }

    /// Makes a permit last for as long as the gate does, to be kept in a structure or sent to a
    /// thread or task of its own.
    ///
    /// # Panics
    /// If the permit is of another gate.
    ///
    /// # Examples
    /// ```
    /// use std::sync::Arc;
    /// use keylane::admit::Gate;
    ///
    /// let gate = Arc::new(Gate::new(4)?);
    /// let permit = gate.own(gate.acquire()?);
    /// std::thread::spawn(move || drop(permit)).join().unwrap();
    /// assert_eq!(gate.in_use(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn own(self: &Arc<Self>, permit: Permit<'_>) -> OwnedPermit {
        assert!(std::ptr::eq(&**self, permit.gate), "the permit is of another gate");
        let slots = mem::ManuallyDrop::new(permit).slots;
        OwnedPermit { gate: self.clone(), slots }
    }

    /// Gives slots back whose permits were [forgotten](Permit::forget).
    ///
    /// # Panics
    /// If fewer were forgotten: those of a permit that is there come back when it is dropped.
    pub fn release(&self, slots: usize) {
        // Who gives slots back has them from who has forgotten the permit, so no order is needed here.
        let rest = |forgotten: usize| forgotten.checked_sub(slots);
        let released = self.forgotten.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest);
        if let Err(forgotten) = released {
            panic!(
                "more slots are given back than were taken: {slots}, and permits of {forgotten} were forgotten; drop \
                 the permits of the others"
            );
        }
        self.slots.release(slots);
    }

    fn forget(&self, slots: usize) -> usize {
        self.forgotten.fetch_add(slots, Ordering::Relaxed);
        slots
    }

    /// Changes the number of slots. New ones go to those who wait. Where more are in use than there
    /// are now, nobody gets one until enough have come back; where somebody waits for more than
    /// there are now, it is refused with [`AcquireError::TooLarge`], for it would hold up everybody
    /// behind it, maybe for ever.
    ///
    /// # Errors
    /// If there are to be none, or more than [`MAX_SLOTS`](Self::MAX_SLOTS).
    pub fn resize(&self, slots: usize) -> Result<(), CapacityError> {
        self.slots.set_capacity(checked(slots)?);
        Ok(())
    }

    /// Refuses whoever waits, and whoever comes. Permits that are out stay good.
    pub fn close(&self) {
        self.slots.close();
    }

    /// Whether the gate was closed.
    pub fn is_closed(&self) -> bool {
        self.slots.is_closed()
    }

    /// How many slots are free. While anybody waits they are kept for it.
    pub fn available(&self) -> usize {
        self.slots.free()
    }

    /// How many slots are taken.
    pub fn in_use(&self) -> usize {
        self.slots.in_use()
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.slots.waiting()
    }

    /// How many slots there are.
    pub fn capacity(&self) -> usize {
        self.slots.capacity()
    }

    #[inline]
    fn acquire_until(
        &self,
        want: usize,
        deadline: Option<Instant>,
    ) -> Result<Permit<'_>, AcquireError> {
        match self.slots.try_acquire(want) {
            Ok(()) => Ok(Permit { gate: self, slots: want }),
            Err(_) => self.acquire_in_line(want, deadline),
        }
    }

    #[cold]
    fn acquire_in_line(
        &self,
        want: usize,
        deadline: Option<Instant>,
    ) -> Result<Permit<'_>, AcquireError> {
        let settled = match self.slots.enqueue_thread(want) {
            Ok(None) => Ok(()),
            Ok(Some(queued)) => queued.wait(deadline),
            Err(refused) => Err(refused),
        };
        self.permit(settled, want)
    }

    fn permit(
        &self,
        settled: Result<(), TryAcquireError>,
        want: usize,
    ) -> Result<Permit<'_>, AcquireError> {
        match settled {
            Ok(()) => Ok(Permit { gate: self, slots: want }),
            Err(TryAcquireError::Closed) => Err(self.why_never()),
            Err(TryAcquireError::Full) => Err(AcquireError::TimedOut),
        }
    }

    /// Why slots will never be had.
    fn why_never(&self) -> AcquireError {
        if self.is_closed() { AcquireError::Closed } else { AcquireError::TooLarge }
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate")
            .field("capacity", &self.capacity())
            .field("in_use", &self.in_use())
            .field("waiting", &self.waiting())
            .field("is_closed", &self.is_closed())
            .finish()
    }
}

/// Semaphore of a [`Gate`], given back when this is dropped.
#[must_use = "dropped at once, it gives its slots back at once"]
#[derive(Debug)]
pub struct Permit<'a> {
    gate: &'a Gate,
    slots: usize,
}

impl Permit<'_> {
    /// How many slots it holds.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Keeps the slots taken, and returns how many. [`Gate::release`] gives them back.
    pub fn forget(self) -> usize {
        let permit = mem::ManuallyDrop::new(self);
        permit.gate.forget(permit.slots)
    }
}

impl Drop for Permit<'_> {
    #[inline]
    fn drop(&mut self) {
        self.gate.slots.release(self.slots);
    }
}

/// A [`Permit`] that keeps its gate alive. Made by [`Gate::own`].
#[must_use = "dropped at once, it gives its slots back at once"]
#[derive(Debug)]
pub struct OwnedPermit {
    gate: Arc<Gate>,
    slots: usize,
}

impl OwnedPermit {
    /// How many slots it holds.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// The gate that it is of.
    pub fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }

    /// Keeps the slots taken, and returns how many. [`Gate::release`] gives them back.
    pub fn forget(mut self) -> usize {
        self.gate.forget(mem::take(&mut self.slots))
    }
}

impl Drop for OwnedPermit {
    fn drop(&mut self) {
        self.gate.slots.release(self.slots);
    }
}

fn checked(slots: usize) -> Result<usize, CapacityError> {
    match slots {
        0 => Err(CapacityError::Zero),
        1..=MAX_SLOTS => Ok(slots),
        _ => Err(CapacityError::TooLarge),
    }
}
