//! Popping: at once, after a wait, or as a future.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use super::super::error::PopError;
use super::super::line::Fate;
use super::super::wait::{Caller, Calls, Seat};
use super::state::No;
use super::{Both, FairQueue};

impl<T> FairQueue<T> {
    /// Pops the oldest item, waiting for one if there is none.
    ///
    /// # Errors
    /// If the queue is closed and nothing is left in it.
    #[inline]
    pub fn pop(&self) -> Result<T, PopError> {
        self.pop_until(None)
    }

    /// Pops the oldest item, waiting for one up to `timeout`.
    ///
    /// # Errors
    /// If none came in time, or the queue is closed and nothing is left in it.
    pub fn pop_timeout(&self, timeout: Duration) -> Result<T, PopError> {
        self.pop_until(Instant::now().checked_add(timeout))
    }

    /// Pops the oldest item, waiting for one until `deadline`.
    ///
    /// # Errors
    /// If none came in time, or the queue is closed and nothing is left in it.
    pub fn pop_deadline(&self, deadline: Instant) -> Result<T, PopError> {
        self.pop_until(Some(deadline))
    }

    /// Pops the oldest item if there is one.
    ///
    /// # Errors
    /// If there is none.
    #[inline]
    pub fn try_pop(&self) -> Result<T, PopError> {
        let popped = self.front().pop();
        popped.map_or_else(|| self.pop_whole(), Ok)
    }

    /// Pops the oldest item, waiting for one in the same line as threads do. The place in the line
    /// is taken when the future is first polled.
    ///
    /// # Cancel safety
    /// A dropped future takes nothing: an item that it was handed goes back before all that came
    /// later, or to whoever waits next. Until the future is polled or dropped, that item counts
    /// towards the capacity. A future that is forgotten (`std::mem::forget`), or kept and never polled
    /// again, keeps its item for ever: the line serves in the order of arrival, so nothing takes the item
    /// back. Poll it, or drop it.
    ///
    /// # Errors
    /// If the queue is closed and nothing is left in it.
    pub async fn pop_async(&self) -> Result<T, PopError> {
        Popping { queue: self, place: None }.await
    }

    /// Pops up to `most` items at once, oldest first, waiting if there is none. It does not wait for
    /// more than one. With `most` 0 it returns none, at once.
    ///
    /// # Errors
    /// If the queue is closed and nothing is left in it.
    pub fn pop_many(&self, most: usize) -> Result<Vec<T>, PopError> {
        self.pop_many_until(most, None)
    }

    /// As [`pop_many`](Self::pop_many), waiting up to `timeout`.
    ///
    /// # Errors
    /// If none came in time, or the queue is closed and nothing is left in it.
    pub fn pop_many_timeout(&self, most: usize, timeout: Duration) -> Result<Vec<T>, PopError> {
        self.pop_many_until(most, Instant::now().checked_add(timeout))
    }

    /// As [`pop_many`](Self::pop_many), waiting until `deadline`.
    ///
    /// # Errors
    /// If none came in time, or the queue is closed and nothing is left in it.
    pub fn pop_many_deadline(&self, most: usize, deadline: Instant) -> Result<Vec<T>, PopError> {
        self.pop_many_until(most, Some(deadline))
    }

    /// Pops up to `most` items at once, without waiting.
    ///
    /// # Errors
    /// If there is none.
    pub fn try_pop_many(&self, most: usize) -> Result<Vec<T>, PopError> {
        let mut items = Vec::new();
        if most == 0 {
            return Ok(items);
        }
        self.change(|whole, calls| whole.pop_many(most, &mut items, calls))?;
        Ok(items)
    }

    /// As [`pop_many`](Self::pop_many), as a future.
    ///
    /// # Cancel safety
    /// As for [`pop_async`](Self::pop_async).
    ///
    /// # Errors
    /// If the queue is closed and nothing is left in it.
    pub async fn pop_many_async(&self, most: usize) -> Result<Vec<T>, PopError> {
        if most == 0 {
            return Ok(Vec::new());
        }
        let first = self.pop_async().await?;
        Ok(self.and_more(first, most - 1))
    }

    #[inline]
    fn pop_until(&self, deadline: Option<Instant>) -> Result<T, PopError> {
        let popped = self.front().pop();
        popped.map_or_else(|| self.pop_or_wait(deadline), Ok)
    }

    #[cold]
    fn pop_whole(&self) -> Result<T, PopError> {
        self.change(|whole, calls| whole.pop(calls)).map_err(PopError::from)
    }

    /// Pops what is in either part, or waits in the line.
    #[cold]
    fn pop_or_wait(&self, deadline: Option<Instant>) -> Result<T, PopError> {
        let mut calls = Calls::default();
        let mut both = self.both();
        match both.whole().pop(&mut calls) {
            Err(No::NotNow) => self.wait_to_pop(both, deadline),
            settled => {
                drop(both);
                calls.tell();
                settled.map_err(PopError::from)
            }
        }
    }

    fn pop_many_until(&self, most: usize, deadline: Option<Instant>) -> Result<Vec<T>, PopError> {
        match self.try_pop_many(most) {
            Err(PopError::Empty) => {}
            settled => return settled,
        }
        let first = self.pop_until(deadline)?;
        Ok(self.and_more(first, most - 1))
    }

    /// What was popped first, and what lies in the queue behind it, up to `most` items.
    fn and_more(&self, first: T, most: usize) -> Vec<T> {
        let mut items = vec![first];
        self.change(|whole, calls| whole.pop_more(most, &mut items, calls));
        items
    }

    /// Stands in the line, under the locks that found no item, and waits there.
    fn wait_to_pop(&self, mut both: Both<'_, T>, deadline: Option<Instant>) -> Result<T, PopError> {
        let seat = Seat::new();
        let place = both.whole().stand_to_pop(Caller::Thread(seat.clone()));
        drop(both);
        seat.wait(&self.to_pop, deadline);
        Popping { queue: self, place: None }.leave(place)
    }
}

/// A pop that stands in the line, or has not come there yet. Dropped, it leaves the line, and what
/// it was handed goes back.
struct Popping<'a, T> {
    queue: &'a FairQueue<T>,
    /// Where it stands.
    place: Option<usize>,
}

impl<T> Popping<'_, T> {
    /// Pops, or stands in the line.
    fn begin(&mut self, caller: Caller) -> Poll<Result<T, PopError>> {
        let mut calls = Calls::default();
        let mut both = self.queue.both();
        let popped = both.whole().pop(&mut calls);
        if let Err(No::NotNow) = popped {
            self.place = Some(both.whole().stand_to_pop(caller));
            return Poll::Pending;
        }
        drop(both);
        calls.tell();
        Poll::Ready(popped.map_err(PopError::from))
    }

    /// Goes from the line, with what became of the pop.
    fn leave(&mut self, place: usize) -> Result<T, PopError> {
        self.place = None;
        let mut calls = Calls::default();
        let (fate, item, _caller) = self.queue.back().leave_popping(place, &mut calls);
        calls.tell();
        item.ok_or(match fate {
            Fate::Waiting => PopError::TimedOut,
            Fate::Granted | Fate::Refused => PopError::Closed,
        })
    }
}

impl<T> Future for Popping<'_, T> {
    type Output = Result<T, PopError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // Made before the lock is taken, and dropped after: wakers are somebody else's code.
        let caller = Caller::Task(cx.waker().clone());
        let Some(place) = self.place else { return self.begin(caller) };
        let mut back = self.queue.back();
        if back.pop_waits(place) {
            let outdated = back.change_popper(place, caller);
            drop(back);
            drop(outdated);
            return Poll::Pending;
        }
        drop(back);
        Poll::Ready(self.leave(place))
    }
}

impl<T> Drop for Popping<'_, T> {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            let mut calls = Calls::default();
            let caller = self.queue.both().whole().cancel_popping(place, &mut calls);
            calls.tell();
            drop(caller);
        }
    }
}

impl From<No> for PopError {
    fn from(no: No) -> Self {
        match no {
            No::NotNow => PopError::Empty,
            No::Closed => PopError::Closed,
        }
    }
}
