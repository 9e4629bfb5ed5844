//! Pushing: at once, after a wait, or as a future.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use super::super::error::{PushError, PushErrorKind};
use super::super::line::Fate;
use super::super::wait::{Caller, Calls, Seat};
use super::state::{No, Parcel};
use super::{Both, FairQueue};

impl<T> FairQueue<T> {
    /// Pushes an item, waiting for room if there is none.
    ///
    /// # Errors
    /// If the queue is closed, or is closed meanwhile.
    #[inline]
    pub fn push(&self, item: T) -> Result<(), PushError<T>> {
        self.push_until(item, None)
    }

    /// Pushes an item, waiting for room up to `timeout`.
    ///
    /// # Errors
    /// If there was no room in time, or the queue is closed.
    pub fn push_timeout(&self, item: T, timeout: Duration) -> Result<(), PushError<T>> {
        self.push_until(item, Instant::now().checked_add(timeout))
    }

    /// Pushes an item, waiting for room until `deadline`.
    ///
    /// # Errors
    /// If there was no room in time, or the queue is closed.
    pub fn push_deadline(&self, item: T, deadline: Instant) -> Result<(), PushError<T>> {
        self.push_until(item, Some(deadline))
    }

    /// Pushes an item if there is room.
    ///
    /// # Errors
    /// If there is none, or the queue is closed.
    #[inline]
    pub fn try_push(&self, item: T) -> Result<(), PushError<T>> {
        let pushed = self.back().push(item);
        pushed.or_else(|item| {
            self.try_push_parcel(Parcel::One(Some(item))).map_err(|error| error.map(one))
        })
    }

    /// Pushes an item, waiting for room if there is none, in the same line as threads do. The place
    /// in the line is taken when the future is first polled.
    ///
    /// # Cancel safety
    /// Dropped while it waits, the future leaves the line and drops the item. Dropped after its item
    /// was placed, but before it was polled again, it leaves the item in the queue.
    ///
    /// # Errors
    /// If the queue is closed, or is closed meanwhile.
    pub async fn push_async(&self, item: T) -> Result<(), PushError<T>> {
        let pushed = Pushing::new(self, Parcel::One(Some(item))).await;
        pushed.map_err(|error| error.map(one))
    }

    /// Pushes all items, waiting for room as often as it takes. They stand in the queue one after
    /// another: nobody else's item comes between them. There may be more of them than the capacity.
    ///
    /// # Errors
    /// If the queue is closed, or is closed meanwhile. The error has those that were not pushed.
    pub fn push_many(&self, items: impl IntoIterator<Item = T>) -> Result<(), PushError<Vec<T>>> {
        self.push_many_until(items, None)
    }

    /// As [`push_many`](Self::push_many), waiting up to `timeout` in all.
    ///
    /// # Errors
    /// If there was not enough room in time, or the queue is closed. The error has those that were
    /// not pushed.
    pub fn push_many_timeout(
        &self,
        items: impl IntoIterator<Item = T>,
        timeout: Duration,
    ) -> Result<(), PushError<Vec<T>>> {
        self.push_many_until(items, Instant::now().checked_add(timeout))
    }

    /// As [`push_many`](Self::push_many), waiting until `deadline`.
    ///
    /// # Errors
    /// If there was not enough room in time, or the queue is closed. The error has those that were
    /// not pushed.
    pub fn push_many_deadline(
        &self,
        items: impl IntoIterator<Item = T>,
        deadline: Instant,
    ) -> Result<(), PushError<Vec<T>>> {
        self.push_many_until(items, Some(deadline))
    }

    /// Pushes as many of the items as there is room for.
    ///
    /// # Errors
    /// If some were not pushed. The error has them.
    pub fn try_push_many(
        &self,
        items: impl IntoIterator<Item = T>,
    ) -> Result<(), PushError<Vec<T>>> {
        let parcel = Parcel::Many(items.into_iter().collect());
        self.try_push_parcel(parcel).map_err(|error| error.map(many))
    }

    /// As [`push_many`](Self::push_many), as a future.
    ///
    /// # Cancel safety
    /// Dropped while it waits, the future leaves the line and drops the items that have not been
    /// placed. Those that have been stay in the queue.
    ///
    /// # Errors
    /// If the queue is closed, or is closed meanwhile. The error has those that were not pushed.
    pub async fn push_many_async(
        &self,
        items: impl IntoIterator<Item = T>,
    ) -> Result<(), PushError<Vec<T>>> {
        let items = items.into_iter().collect();
        let pushed = Pushing::new(self, Parcel::Many(items)).await;
        pushed.map_err(|error| error.map(many))
    }

    #[inline]
    fn push_until(&self, item: T, deadline: Option<Instant>) -> Result<(), PushError<T>> {
        // Most often there is room, and nobody waits.
        let pushed = self.back().push(item);
        pushed.or_else(|item| {
            self.push_or_wait(Parcel::One(Some(item)), deadline).map_err(|error| error.map(one))
        })
    }

    fn push_many_until(
        &self,
        items: impl IntoIterator<Item = T>,
        deadline: Option<Instant>,
    ) -> Result<(), PushError<Vec<T>>> {
        let parcel = Parcel::Many(items.into_iter().collect());
        self.push_or_wait(parcel, deadline).map_err(|error| error.map(many))
    }

    #[cold]
    fn try_push_parcel(&self, mut parcel: Parcel<T>) -> Result<(), PushError<Parcel<T>>> {
        match self.change(|whole, calls| whole.push(&mut parcel, calls)) {
            Ok(()) => Ok(()),
            Err(no) => Err(PushError::new(no.into(), parcel)),
        }
    }

    /// Pushes what there is room for, and waits in the line with the rest.
    #[cold]
    fn push_or_wait(
        &self,
        mut parcel: Parcel<T>,
        deadline: Option<Instant>,
    ) -> Result<(), PushError<Parcel<T>>> {
        let mut calls = Calls::default();
        let mut both = self.both();
        match both.whole().push(&mut parcel, &mut calls) {
            Err(No::NotNow) => self.wait_to_push(both, parcel, calls, deadline),
            settled => {
                drop(both);
                calls.tell();
                settled.map_err(|no| PushError::new(no.into(), parcel))
            }
        }
    }

    /// Stands in the line, under the locks that found no room, and waits there.
    fn wait_to_push(
        &self,
        mut both: Both<'_, T>,
        parcel: Parcel<T>,
        calls: Calls,
        deadline: Option<Instant>,
    ) -> Result<(), PushError<Parcel<T>>> {
        let seat = Seat::new();
        let place = both.whole().stand_to_push(parcel, Caller::Thread(seat.clone()));
        drop(both);
        let mut pushing = Pushing { queue: self, parcel: None, place: Some(place) };
        calls.tell();
        seat.wait(&self.to_push, deadline);
        pushing.leave(place)
    }
}

/// A push that stands in the line, or has not come there yet. Dropped, it leaves the line and drops
/// what was not placed.
struct Pushing<'a, T> {
    queue: &'a FairQueue<T>,
    /// What is to be pushed, until it is in the line or in the queue.
    parcel: Option<Parcel<T>>,
    /// Where it stands.
    place: Option<usize>,
}

impl<'a, T> Pushing<'a, T> {
    fn new(queue: &'a FairQueue<T>, parcel: Parcel<T>) -> Self {
        Pushing { queue, parcel: Some(parcel), place: None }
    }

    /// Pushes what there is room for, and stands in the line with the rest.
    fn begin(
        &mut self,
        mut parcel: Parcel<T>,
        caller: Caller,
    ) -> Poll<Result<(), PushError<Parcel<T>>>> {
        let mut calls = Calls::default();
        let mut both = self.queue.both();
        let pushed = both.whole().push(&mut parcel, &mut calls);
        if pushed == Err(No::NotNow) {
            self.place = Some(both.whole().stand_to_push(parcel, caller));
            drop(both);
            calls.tell();
            return Poll::Pending;
        }
        drop(both);
        calls.tell();
        Poll::Ready(pushed.map_err(|no| PushError::new(no.into(), parcel)))
    }

    /// Goes from the line, with what became of the push.
    fn leave(&mut self, place: usize) -> Result<(), PushError<Parcel<T>>> {
        self.place = None;
        let (fate, rest, _caller) = self.queue.back().leave_pushing(place);
        match fate {
            Fate::Granted => Ok(()),
            Fate::Refused => Err(PushError::new(PushErrorKind::Closed, rest)),
            Fate::Waiting => Err(PushError::new(PushErrorKind::TimedOut, rest)),
        }
    }
}

/// Nothing is pinned in it.
impl<T> Unpin for Pushing<'_, T> {}

impl<T> Future for Pushing<'_, T> {
    type Output = Result<(), PushError<Parcel<T>>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // Made before the lock is taken, and dropped after: wakers are somebody else's code.
        let caller = Caller::Task(cx.waker().clone());
        if let Some(parcel) = self.parcel.take() {
            return self.begin(parcel, caller);
        }
        let place = self.place.expect("it is not polled after it was ready");
        let mut back = self.queue.back();
        if back.push_waits(place) {
            let outdated = back.change_pusher(place, caller);
            drop(back);
            drop(outdated);
            return Poll::Pending;
        }
        drop(back);
        Poll::Ready(self.leave(place))
    }
}

impl<T> Drop for Pushing<'_, T> {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            // The error has what was not placed, and drops it here, without the lock.
            let _ = self.leave(place);
        }
    }
}

impl From<No> for PushErrorKind {
    fn from(no: No) -> Self {
        match no {
            No::NotNow => PushErrorKind::Full,
            No::Closed => PushErrorKind::Closed,
        }
    }
}

fn one<T>(mut parcel: Parcel<T>) -> T {
    parcel.next().expect("an item that was not pushed is still there")
}

fn many<T>(parcel: Parcel<T>) -> Vec<T> {
    match parcel {
        Parcel::One(item) => item.into_iter().collect(),
        Parcel::Many(items) => items.into(),
    }
}
