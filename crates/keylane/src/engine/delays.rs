//! Delays submissions: a task is admitted at once, and enters the order when its delay is over.
//!
//! # Protocol
//! 1. Delay: admit the task as any other; then, under the lock of the queue, add it, unless the
//!    engine has stopped; then set the timer.
//! 2. Replace: a latest task with a delay takes the place and, if it needs no bytes, the permits of
//!    the delayed latest one of its key, in one section of the queue. Its delay begins anew.
//!    Work that the engine drops is dropped outside of the section; until then the series of
//!    replacements is in `dropping`, and its task does not enter (`dropped` enters it).
//! 3. Enter, on the timer thread: remove the task under the lock and set `entering`; enqueue it as a
//!    submission would; clear `entering` under the lock.
//! 4. Withdraw: a task that is cancelled is removed under the lock, and its permits are released.
//! 5. Stop, after the workers were told to end and before the inboxes are emptied: set `over`; wait
//!    until `entering` is unset; remove all tasks.
//!
//! # Why a stop returns each task once
//! A task is in the queue, or the timer enters it, or it is in an inbox. Step 5 takes what is in the
//! queue. If the timer enters a task, step 5 waits, for the time of an enqueue; then the task is in
//! its inboxes, which are open until then, and which the stop empties afterwards. No task enters the
//! queue after `over` is set.
//!
//! # Order
//! The timer fires alarms in the order of their times, and those of equal times in the order of the
//! numbers. So of two tasks with the same delay the one that was submitted first enters first.

#[cfg(all(test, loom))]
mod models;

use super::delay_queue::DelayedRole;
use super::rate_state::TimerEvent;
use super::*;
use crate::order::UnrunTask;
use crate::unwind::{call_catch_unwind, drop_catch_unwind};

/// Delayed task of an engine.
type DelayedTask<K, W> = super::delay_queue::DelayedTask<K, W, AdmissionTicket>;

/// Delayed latest task: its number, and the work that it has replaced, if any, with its series.
type DelayedLatest<W> = (u64, Option<(W, u64)>);

impl<K: Key, X: Execute<K>, S: BuildHasher> Engine<K, X, S> {
    /// Step 1 for an admitted task. Returns the number of the delayed task.
    pub(crate) fn delay(
        &self,
        claims: Claims<K>,
        work: X::Work,
        ticket: AdmissionTicket,
        role: DelayedRole,
        delay: Duration,
    ) -> Result<u64, RejectedTask<K, X::Work>> {
        if self.has_closed_key(&claims) {
            self.retract(&claims);
            return Err((SubmitErrorKind::KeyClosed, claims, work));
        }
        let at = self.end_of_delay(delay);
        match self.delays.insert(DelayedTask { claims, work, ticket, role, at, series: 0 }) {
            Ok(number) => {
                self.rates.set_alarm(None, Some(at), TimerEvent::Delayed { number });
                Ok(number)
            }
            Err(DelayedTask { claims, work, .. }) => {
                self.retract(&claims);
                Err((self.refusal(SubmitErrorKind::Closed), claims, work))
            }
        }
    }

    /// Steps 1 and 2 for a latest task. Without a ticket it must replace another one, or is rejected
    /// as `Full`. With [`Execute::DROPS_REPLACED`] the caller drops the replaced work, and then calls
    /// [`end_delayed_replacing`](Self::end_delayed_replacing).
    pub(crate) fn delay_latest(
        &self,
        claims: Claims<K>,
        work: X::Work,
        ticket: Option<AdmissionTicket>,
        delay: Duration,
    ) -> Result<DelayedLatest<X::Work>, RejectedTask<K, X::Work>> {
        let has_permit = ticket.is_some();
        let refused = match &ticket {
            _ if self.has_closed_key(&claims) => Some(SubmitErrorKind::KeyClosed),
            None if self.admission.is_closed() => Some(SubmitErrorKind::Closed),
            None if self.needs_bytes(&claims, &work) => Some(SubmitErrorKind::Full),
            _ => None,
        };
        if let Some(why) = refused {
            if has_permit {
                self.retract(&claims);
            }
            return Err((self.refusal(why), claims, work));
        }
        let at = self.end_of_delay(delay);
        let (hash, _, _) = self.find_inbox(&claims);
        let role = DelayedRole::Latest { hash };
        let key = claims.only_key().expect("a task with a role has one key").clone();
        let mut task = Some((claims, work, ticket));
        let put = self.delays.insert_latest((hash, &key), X::DROPS_REPLACED, |replaces| {
            if !replaces && !has_permit {
                return None;
            }
            let (claims, work, ticket) = task.take()?;
            // The permits of the replaced task pass on, but for its bytes.
            let ticket = ticket.unwrap_or_else(AdmissionTicket::none);
            Some(DelayedTask { claims, work, ticket, role, at, series: 0 })
        });
        // A panic of the drop at the end would lose the replaced work.
        drop_catch_unwind(key);
        let Ok(Some((number, replaced))) = put else {
            let (claims, work, _) = task.expect("the task was not added");
            if has_permit {
                self.retract(&claims);
            }
            let why = if put.is_err() { SubmitErrorKind::Closed } else { SubmitErrorKind::Full };
            return Err((self.refusal(why), claims, work));
        };
        let was = replaced.as_ref().map(|(number, task)| (*number, task.at));
        if let Some((number, at)) = was {
            self.rates.set_alarm(Some(at), None, TimerEvent::Delayed { number });
        }
        self.rates.set_alarm(None, Some(at), TimerEvent::Delayed { number });
        let replaced = replaced.map(|(_, task)| {
            let series = task.series;
            (self.discard_replaced(task, has_permit), series)
        });
        Ok((number, replaced))
    }

    /// Ends a replacement: the captures of the replaced work are dropped, so the delayed task of the
    /// series may enter.
    pub(crate) fn end_delayed_replacing(&self, series: u64) {
        if let Some(number) = self.delays.dropped(series) {
            let now = self.rates.now();
            self.rates.set_alarm(None, Some(now), TimerEvent::Delayed { number });
        }
    }

    /// Returns the work of a replaced task, and releases its bytes, and its permits, unless they
    /// passed on.
    fn discard_replaced(&self, task: DelayedTask<K, X::Work>, releases: bool) -> X::Work {
        let DelayedTask { claims, work, ticket, .. } = task;
        self.counters.count_superseded();
        if releases {
            self.retract(&claims);
        }
        drop_catch_unwind((claims, ticket));
        work
    }

    /// Returns whether a task with these claims is refused because one of its keys was closed.
    fn has_closed_key(&self, claims: &Claims<K>) -> bool {
        self.refuses_some() && self.refuses(claims)
    }

    fn end_of_delay(&self, delay: Duration) -> u64 {
        let delay = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
        self.rates.now().saturating_add(delay)
    }

    /// Step 3. Returns the work that a latest task has replaced.
    fn enter_delayed(&self, number: u64) -> Option<SupersededWork<K, X::Work>> {
        let task = self.delays.enter(number)?;
        let DelayedTask { claims, work, ticket, role, .. } = task;
        let work = ReadyWork(work);
        let mut replaced = None;
        let mut refused = None;
        // A key may panic, which costs this task alone.
        let panic = catch_key_panic(|| {
            let entered = match role {
                DelayedRole::Ordinary => self.enqueue(claims, work, ticket),
                DelayedRole::End { refuses } => self.enqueue_end(claims, refuses, work, ticket),
                DelayedRole::Latest { .. } => {
                    self.enqueue_latest(claims, work, ticket).map(|by| replaced = by)
                }
            };
            refused = entered.err();
        });
        self.delays.entered();
        if let Err(payload) = panic {
            self.panicked(&*payload);
            drop_catch_unwind(payload);
        }
        if refused.is_some() {
            // One of its keys was closed meanwhile.
            self.counters.count_cancelled();
        }
        drop_catch_unwind(refused);
        replaced
    }

    /// Step 4.
    pub(crate) fn withdraw_delayed(&self, number: u64) {
        if let Some(task) = self.delays.withdraw(number) {
            self.rates.set_alarm(Some(task.at), None, TimerEvent::Delayed { number });
            self.counters.count_cancelled();
            call_catch_unwind(|| self.retract(&task.claims));
            drop_catch_unwind(task);
        }
    }

    /// Takes out the delayed tasks that have only this key, in the order of their times.
    pub(super) fn take_delayed(&self, key: &K) -> Vec<UnrunTask<K, X::Work>> {
        let taken = self.delays.take_key(key, X::may_take);
        for (number, task) in &taken {
            self.rates.set_alarm(Some(task.at), None, TimerEvent::Delayed { number: *number });
        }
        taken.into_iter().map(|(_, task)| self.return_delayed(task)).collect()
    }

    /// Step 5. Returns the tasks in the order of their times. Without `waits`, a task that is being
    /// entered may be missing: a panic in its key has poisoned the engine, on the timer thread.
    pub(super) fn end_delays(&self, waits: bool) -> Vec<UnrunTask<K, X::Work>> {
        self.delays.end(waits).into_iter().map(|task| self.return_delayed(task)).collect()
    }

    /// Releases the permits of a delayed task that is returned.
    fn return_delayed(&self, task: DelayedTask<K, X::Work>) -> UnrunTask<K, X::Work> {
        let DelayedTask { claims, work, ticket, .. } = task;
        call_catch_unwind(|| self.retract(&claims));
        // It keeps its bytes, as any task that is returned.
        let work = ticket.charge::<_, K, X>(ReadyWork(work)).into_work();
        if let Some(bytes) = self.bounds.as_ref().and_then(|bounds| bounds.bytes.as_ref()) {
            drop(bytes.taken(self.executor.weigh(&work)));
        }
        UnrunTask { claims, work, number: 0 }
    }

    /// Returns the time until the task with this name enters the order, if it is delayed.
    pub(super) fn explain_delay(&self, name: usize) -> Option<Duration> {
        let at = self.delays.find(|work| X::name(work) == Some(name))?;
        Some(self.rates.left_until(at))
    }

    /// Returns whether a task whose name satisfies `is_it` is delayed. It may enter behind any
    /// running task.
    pub(super) fn is_delayed(&self, is_it: &dyn Fn(usize) -> bool) -> bool {
        self.delays.find(|work| X::name(work).is_some_and(is_it)).is_some()
    }
}

impl<K: Key, X: Execute<K>, S: BuildHasher + Send + Sync + 'static> Engine<K, X, S> {
    /// Enters a task whose delay is over, on the timer thread.
    pub(super) fn delay_is_over(self: &Arc<Self>, number: u64) {
        if let Some(replaced) = self.enter_delayed(number) {
            self.supersede(replaced);
        }
    }
}
