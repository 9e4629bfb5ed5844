//! Public fair semaphore: limits how much is in flight, and serves waiters in the order of arrival.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::error::{AcquireError, CapacityError};
use super::semaphore::{MAX_SLOTS, Semaphore, TryAcquireError};
use crate::sync::{AtomicUsize, Ordering};

/// Fair counting semaphore: grants slots in the order of arrival.
///
/// - **First come, first served.** A released slot goes to the caller that has waited longest.
///   While callers wait, none that arrives later gets a slot, not even through `try_acquire`.
/// - **Weighted.** A caller may acquire several slots at once. It gets them together, and no later
///   caller gets any before, so that large requests do not starve.
/// - **Nothing is lost.** A wait that times out, or a future that is dropped, leaves the wait queue
///   at once and releases what it was granted.
/// - **One wait queue.** Threads and tasks of any async runtime wait in the same queue.
///
/// Uncontended, acquiring and releasing are one atomic operation each.
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
    /// Slots in use whose permits were forgotten. Raised by `forget`, lowered by `release`; no
    /// lock.
    forgotten: AtomicUsize,
}

impl Gate {
    /// Maximum number of slots of a gate.
    pub const MAX_SLOTS: usize = MAX_SLOTS;

    /// Creates a gate with `slots` free slots.
    ///
    /// # Errors
    /// If `slots` is 0 or more than [`MAX_SLOTS`](Self::MAX_SLOTS).
    pub fn new(slots: usize) -> Result<Self, CapacityError> {
        Ok(Gate { slots: Semaphore::new(checked(slots)?), forgotten: AtomicUsize::new(0) })
    }

    /// Acquires a slot, waiting until one is free.
    ///
    /// # Errors
    /// If the gate is closed, before or during the wait.
    #[inline]
    pub fn acquire(&self) -> Result<Permit<'_>, AcquireError> {
        self.acquire_until(1, None)
    }

    /// Acquires a slot, waiting at most for `timeout`.
    ///
    /// # Errors
    /// If no slot was free in time, or the gate is closed.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use keylane::admit::{AcquireError, Gate};
    ///
    /// let gate = Gate::new(1)?;
    /// let permit = gate.acquire()?;
    /// let late = gate.acquire_timeout(Duration::from_millis(1));
    /// assert_eq!(late.unwrap_err(), AcquireError::TimedOut);
    /// drop(permit);
    /// assert!(gate.acquire_timeout(Duration::from_secs(60)).is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn acquire_timeout(&self, timeout: Duration) -> Result<Permit<'_>, AcquireError> {
        self.acquire_many_timeout(1, timeout)
    }

    /// Acquires a slot if one is free and no caller waits.
    ///
    /// # Errors
    /// If no slot is available at once, or the gate is closed.
    #[inline]
    pub fn try_acquire(&self) -> Result<Permit<'_>, AcquireError> {
        self.try_acquire_many(1)
    }

    /// Acquires a slot, waiting in the same queue as threads. The future joins the queue when it is
    /// first polled.
    ///
    /// # Cancel safety
    /// A dropped future leaves the queue, or releases what it was granted.
    ///
    /// # Errors
    /// If the gate is closed, before or during the wait.
    ///
    /// # Examples
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// use keylane::admit::Gate;
    ///
    /// let gate = Gate::new(2)?;
    /// let permit = gate.acquire_async().await?;
    /// assert_eq!(gate.available(), 1);
    /// drop(permit);
    /// assert_eq!(gate.available(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn acquire_async(&self) -> Result<Permit<'_>, AcquireError> {
        self.acquire_many_async(1).await
    }

    /// Acquires `want` slots together, waiting until they are free.
    ///
    /// # Errors
    /// If the gate is closed or its capacity is below `want`, before or during the wait.
    ///
    /// # Examples
    /// ```
    /// use keylane::admit::{AcquireError, Gate};
    ///
    /// let gate = Gate::new(4)?;
    /// let permit = gate.acquire_many(3)?;
    /// assert_eq!(gate.available(), 1);
    /// assert_eq!(gate.acquire_many(5).unwrap_err(), AcquireError::TooLarge);
    /// # drop(permit);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn acquire_many(&self, want: usize) -> Result<Permit<'_>, AcquireError> {
        self.acquire_until(want, None)
    }

    /// Acquires `want` slots together, waiting at most for `timeout`.
    ///
    /// # Errors
    /// If the slots were not free in time, or as for [`acquire_many`](Self::acquire_many).
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use keylane::admit::{AcquireError, Gate};
    ///
    /// let gate = Gate::new(4)?;
    /// let permit = gate.acquire_many_timeout(3, Duration::from_secs(60))?;
    /// let late = gate.acquire_many_timeout(2, Duration::from_millis(1));
    /// assert_eq!(late.unwrap_err(), AcquireError::TimedOut);
    /// assert_eq!(gate.available(), 1);
    /// # drop(permit);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn acquire_many_timeout(
        &self,
        want: usize,
        timeout: Duration,
    ) -> Result<Permit<'_>, AcquireError> {
        self.acquire_until(want, Instant::now().checked_add(timeout))
    }

    /// Acquires `want` slots if they are free and no caller waits.
    ///
    /// # Errors
    /// If the slots are not available at once, the gate is closed, or its capacity is below `want`.
    ///
    /// # Examples
    /// ```
    /// use keylane::admit::{AcquireError, Gate};
    ///
    /// let gate = Gate::new(4)?;
    /// let permit = gate.try_acquire_many(3)?;
    /// assert_eq!(gate.try_acquire_many(2).unwrap_err(), AcquireError::Full);
    /// drop(permit);
    /// assert!(gate.try_acquire_many(2).is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn try_acquire_many(&self, want: usize) -> Result<Permit<'_>, AcquireError> {
        match self.slots.try_acquire(want) {
            Ok(()) => Ok(Permit { gate: self, slots: want }),
            Err(TryAcquireError::Closed) => Err(AcquireError::Closed),
            Err(TryAcquireError::Full) if want > self.capacity() => Err(AcquireError::TooLarge),
            Err(TryAcquireError::Full) => Err(AcquireError::Full),
        }
    }

    /// Acquires `want` slots together, waiting in the same queue as threads. The future joins the
    /// queue when it is first polled.
    ///
    /// # Cancel safety
    /// A dropped future leaves the queue, or releases what it was granted.
    ///
    /// # Errors
    /// As for [`acquire_many`](Self::acquire_many).
    ///
    /// # Examples
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// use keylane::admit::{AcquireError, Gate};
    ///
    /// let gate = Gate::new(4)?;
    /// let permit = gate.acquire_many_async(3).await?;
    /// assert_eq!(permit.slots(), 3);
    /// assert_eq!(gate.acquire_many_async(5).await.unwrap_err(), AcquireError::TooLarge);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn acquire_many_async(&self, want: usize) -> Result<Permit<'_>, AcquireError> {
        match self.slots.try_acquire(want) {
            Err(TryAcquireError::Full) => match self.slots.acquire_async(want).await {
                Ok(()) => Ok(Permit { gate: self, slots: want }),
                Err(_) => Err(self.refusal()),
            },
            result => self.permit(result, want),
        }
    }

    /// Converts a permit into one that keeps its gate alive, for storage in a structure or use in
    /// another thread or task.
    ///
    /// # Panics
    /// If the permit belongs to another gate.
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
        assert!(
            std::ptr::eq(&**self, permit.gate),
            "the permit belongs to another gate; call `own` on the gate that granted it"
        );
        let slots = mem::ManuallyDrop::new(permit).slots;
        OwnedPermit { gate: self.clone(), slots }
    }

    /// Releases slots whose permits were [forgotten](Permit::forget).
    ///
    /// # Panics
    /// If `slots` is larger than the number of forgotten slots. Slots of a live permit are released
    /// when it is dropped.
    ///
    /// # Examples
    /// ```
    /// use keylane::admit::Gate;
    ///
    /// let gate = Gate::new(4)?;
    /// let slots = gate.acquire_many(3)?.forget();
    /// assert_eq!(gate.available(), 1);
    /// gate.release(slots);
    /// assert_eq!(gate.available(), 4);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn release(&self, slots: usize) {
        // Relaxed: a caller of `release` learned of the `forget` by other means, which order the
        // two.
        let rest = |forgotten: usize| forgotten.checked_sub(slots);
        let released = self.forgotten.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest);
        if let Err(forgotten) = released {
            panic!(
                "`Gate::release` of {slots} slots, but only {forgotten} belong to forgotten permits; drop the other \
                 permits instead"
            );
        }
        self.slots.release(slots);
    }

    fn forget(&self, slots: usize) -> usize {
        self.forgotten.fetch_add(slots, Ordering::Relaxed);
        slots
    }

    /// Changes the number of slots and grants new ones to waiters. While more slots are in use than
    /// the new number, none is granted. A waiter that wants more slots than the new number is
    /// refused with [`AcquireError::TooLarge`], because it could block all later waiters forever.
    ///
    /// # Errors
    /// If `slots` is 0 or more than [`MAX_SLOTS`](Self::MAX_SLOTS).
    ///
    /// # Examples
    /// ```
    /// use keylane::admit::{AcquireError, Gate};
    ///
    /// let gate = Gate::new(1)?;
    /// let first = gate.acquire()?;
    /// assert_eq!(gate.try_acquire().unwrap_err(), AcquireError::Full);
    /// gate.resize(2)?;
    /// let second = gate.try_acquire()?;
    /// # drop((first, second));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn resize(&self, slots: usize) -> Result<(), CapacityError> {
        self.slots.set_capacity(checked(slots)?);
        Ok(())
    }

    /// Closes the gate: refuses all current and future waiters. Existing permits stay valid.
    ///
    /// # Examples
    /// ```
    /// use keylane::admit::{AcquireError, Gate};
    ///
    /// let gate = Gate::new(2)?;
    /// let permit = gate.acquire()?;
    /// gate.close();
    /// assert_eq!(gate.acquire().unwrap_err(), AcquireError::Closed);
    /// assert_eq!(gate.in_use(), 1); // the permit stays valid
    /// drop(permit);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn close(&self) {
        self.slots.close();
    }

    /// Returns whether the gate is closed.
    ///
    /// # Examples
    /// ```
    /// use keylane::admit::Gate;
    ///
    /// let gate = Gate::new(2)?;
    /// assert!(!gate.is_closed());
    /// gate.close();
    /// assert!(gate.is_closed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_closed(&self) -> bool {
        self.slots.is_closed()
    }

    /// Number of free slots. While callers wait, these are reserved for them.
    ///
    /// # Examples
    /// ```
    /// use keylane::admit::Gate;
    ///
    /// let gate = Gate::new(4)?;
    /// let permit = gate.acquire_many(3)?;
    /// assert_eq!(gate.available(), 1);
    /// # drop(permit);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn available(&self) -> usize {
        self.slots.free()
    }

    /// Number of slots in use.
    ///
    /// # Examples
    /// ```
    /// use keylane::admit::Gate;
    ///
    /// let gate = Gate::new(4)?;
    /// let permit = gate.acquire_many(3)?;
    /// assert_eq!(gate.in_use(), 3);
    /// drop(permit);
    /// assert_eq!(gate.in_use(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn in_use(&self) -> usize {
        self.slots.in_use()
    }

    /// Number of waiting callers.
    ///
    /// # Examples
    /// ```
    /// use keylane::admit::Gate;
    ///
    /// let gate = Gate::new(1)?;
    /// let permit = gate.acquire()?;
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| drop(gate.acquire()));
    ///     while gate.waiting() == 0 {
    ///         std::thread::yield_now();
    ///     }
    ///     drop(permit); // the thread gets its slot
    /// });
    /// assert_eq!(gate.waiting(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn waiting(&self) -> usize {
        self.slots.waiting()
    }

    /// Number of slots, free or in use.
    ///
    /// # Examples
    /// ```
    /// use keylane::admit::Gate;
    ///
    /// let gate = Gate::new(4)?;
    /// let permit = gate.acquire_many(3)?;
    /// assert_eq!(gate.capacity(), 4);
    /// assert_eq!(gate.capacity(), gate.available() + permit.slots());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
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
            Err(_) => self.acquire_slow(want, deadline),
        }
    }

    #[cold]
    fn acquire_slow(
        &self,
        want: usize,
        deadline: Option<Instant>,
    ) -> Result<Permit<'_>, AcquireError> {
        let result = match self.slots.enqueue_thread(want) {
            Ok(None) => Ok(()),
            Ok(Some(queued)) => queued.wait(deadline),
            Err(refused) => Err(refused),
        };
        self.permit(result, want)
    }

    fn permit(
        &self,
        result: Result<(), TryAcquireError>,
        want: usize,
    ) -> Result<Permit<'_>, AcquireError> {
        match result {
            Ok(()) => Ok(Permit { gate: self, slots: want }),
            Err(TryAcquireError::Closed) => Err(self.refusal()),
            Err(TryAcquireError::Full) => Err(AcquireError::TimedOut),
        }
    }

    /// Error of a wait that can never succeed.
    fn refusal(&self) -> AcquireError {
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

/// Slots of a [`Gate`], released when this is dropped.
#[must_use = "a permit that is dropped at once releases its slots at once"]
#[derive(Debug)]
pub struct Permit<'a> {
    gate: &'a Gate,
    slots: usize,
}

impl Permit<'_> {
    /// Number of slots held.
    ///
    /// # Examples
    /// ```
    /// use keylane::admit::Gate;
    ///
    /// let gate = Gate::new(4)?;
    /// assert_eq!(gate.acquire()?.slots(), 1);
    /// assert_eq!(gate.acquire_many(3)?.slots(), 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Keeps the slots in use and returns their number. [`Gate::release`] releases them.
    ///
    /// # Examples
    /// ```
    /// use keylane::admit::Gate;
    ///
    /// let gate = Gate::new(4)?;
    /// // One part of a program acquires the slots, and another one releases them.
    /// let slots = gate.acquire_many(3)?.forget();
    /// assert_eq!((slots, gate.in_use()), (3, 3));
    /// gate.release(slots);
    /// assert_eq!(gate.in_use(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
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
#[must_use = "a permit that is dropped at once releases its slots at once"]
#[derive(Debug)]
pub struct OwnedPermit {
    gate: Arc<Gate>,
    slots: usize,
}

impl OwnedPermit {
    /// Number of slots held.
    ///
    /// # Examples
    /// ```
    /// use std::sync::Arc;
    /// use keylane::admit::Gate;
    ///
    /// let gate = Arc::new(Gate::new(4)?);
    /// let permit = gate.own(gate.acquire_many(3)?);
    /// assert_eq!(permit.slots(), 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Gate that granted the permit.
    ///
    /// # Examples
    /// ```
    /// use std::sync::Arc;
    /// use keylane::admit::Gate;
    ///
    /// let gate = Arc::new(Gate::new(4)?);
    /// let permit = gate.own(gate.acquire()?);
    /// drop(gate);
    /// assert_eq!(permit.gate().available(), 3); // the permit keeps it alive
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }

    /// Keeps the slots in use and returns their number. [`Gate::release`] releases them.
    ///
    /// # Examples
    /// ```
    /// use std::sync::Arc;
    /// use keylane::admit::Gate;
    ///
    /// let gate = Arc::new(Gate::new(4)?);
    /// let slots = gate.own(gate.acquire_many(3)?).forget();
    /// assert_eq!(gate.in_use(), 3);
    /// gate.release(slots);
    /// assert_eq!(gate.in_use(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
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
