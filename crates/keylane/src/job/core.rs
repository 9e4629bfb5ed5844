//! A running job: what its workers, its entries in the lanes, and its handle share.

#[cfg(feature = "tokio")]
mod afloat;

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

use slab::Slab;

#[cfg(feature = "tokio")]
use afloat::Afloat;

use super::entry::{Entry, Lined};
use super::plan::OnError;
use super::sink::{Ending, OnPanic, Sink};
use super::source::{Numbered, Piece, Pulled, Source};
use super::work::Work;
use crate::allocate::{End, JobId, Progress, Take};
use crate::complete::{Outcome, PanicPayload, answering};
use crate::engine::{Crowd, Key, Office, Sat, Site, WeakOffice};
use crate::order::Claims;
use crate::run::{Body, Stage, Standing, Turn, drop_quietly};
use crate::sync::{AtomicBool, Mutex, Ordering};

pub(super) struct Core<K, I, F, T, E> {
    me: Weak<Self>,
    name: Arc<str>,
    on_error: OnError,
    office: WeakOffice,
    /// What the rules know it by. Written once, before any worker comes.
    id: Mutex<Option<JobId>>,
    /// Nothing begins any more. Set before anything is dropped, and read under the lock of each of the
    /// three places below before something is put there, so that nothing is left behind.
    cancelled: Arc<AtomicBool>,
    /// The splitter, unless a worker asks it.
    source: Mutex<Spot<Source<K, I, F>>>,
    /// Subtasks that wait in the lanes, by place.
    lined: Mutex<Slab<Numbered<F>>>,
    /// Subtasks that wait for a worker only, the first to become ready first.
    granted: Mutex<VecDeque<Granted<F>>>,
    sink: Arc<dyn Sink<T, E>>,
    /// Its futures.
    #[cfg(feature = "tokio")]
    afloat: Mutex<Afloat>,
    /// How many of its subtasks may wait.
    most_waiting: u64,
    /// Why it ends, if it is not that all subtasks have ended. The first reason holds.
    ending: Mutex<Option<Ending>>,
    /// How far it was when it was over.
    last: Mutex<Option<Progress>>,
    results: PhantomData<fn() -> (T, E)>,
}

/// What one worker at a time takes out.
enum Spot<T> {
    Here(T),
    /// A worker has it.
    Out,
    /// It is not needed any more.
    Gone,
}

/// A subtask that could run now.
struct Granted<F> {
    subtask: Numbered<F>,
    /// Its place in the order. Without one it has no keys, and has not been in any lane.
    place: Option<(Turn, Standing)>,
}

/// What a job is made of.
pub(super) struct Parts<T, E> {
    pub(super) name: Arc<str>,
    pub(super) on_error: OnError,
    pub(super) office: WeakOffice,
    pub(super) sink: Arc<dyn Sink<T, E>>,
    pub(super) most_waiting: u64,
}

impl<K, I, F, T, E> Core<K, I, F, T, E>
where
    K: Key,
    I: Iterator<Item = Piece<K, F>> + Send + 'static,
    F: Work<T, E>,
    T: Send + 'static,
    E: Send + 'static,
{
    pub(super) fn new(source: Source<K, I, F>, parts: Parts<T, E>) -> Arc<Self> {
        Arc::new_cyclic(|me| Core {
            me: me.clone(),
            name: parts.name,
            on_error: parts.on_error,
            office: parts.office,
            id: Mutex::new(None),
            cancelled: Arc::new(AtomicBool::new(false)),
            source: Mutex::new(Spot::Here(source)),
            lined: Mutex::new(Slab::new()),
            granted: Mutex::new(VecDeque::new()),
            sink: parts.sink,
            #[cfg(feature = "tokio")]
            afloat: Mutex::default(),
            most_waiting: parts.most_waiting,
            ending: Mutex::new(None),
            last: Mutex::new(None),
            results: PhantomData,
        })
    }

    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// Nothing more is to begin, for this reason.
    fn end(&self, ending: Ending) {
        let mut first = self.ending.lock();
        let late = match &*first {
            None => first.replace(ending),
            Some(_) => Some(ending),
        };
        drop(first);
        drop_quietly(late);
        self.drop_waiting();
    }

    /// Begins no more subtasks, drops those that wait, and aborts those that go on elsewhere.
    fn drop_waiting(&self) {
        self.cancelled.store(true, Ordering::Release);
        let mut spot = self.source.lock();
        let source = match std::mem::replace(&mut *spot, Spot::Gone) {
            Spot::Out => {
                *spot = Spot::Out;
                Spot::Gone
            }
            other => other,
        };
        drop(spot);
        drop_quietly(source);
        let lined = std::mem::take(&mut *self.lined.lock());
        lined.into_iter().for_each(drop_quietly);
        let granted = std::mem::take(&mut *self.granted.lock());
        for Granted { subtask, place } in granted {
            drop_quietly(subtask);
            // Ends the turn.
            drop(place);
        }
        #[cfg(feature = "tokio")]
        self.abort_futures();
    }

    /// Asks the splitter, and runs what it yields.
    fn split(&self, most: usize, site: &mut dyn Site<K, Body>) -> Option<Sat> {
        let Spot::Here(mut source) = std::mem::replace(&mut *self.source.lock(), Spot::Out) else {
            // Cancelled; what is said of a subtask then is forgotten.
            *self.source.lock() = Spot::Gone;
            return Some(Sat::ended(End::Waits));
        };
        let asked = catch_unwind(AssertUnwindSafe(|| {
            let pulled = source.pull(most, F::GOES_ON);
            let exhausted = source.expected() == Some(0);
            (pulled, exhausted)
        }));
        match asked {
            Err(payload) => {
                site.panicked(&*payload);
                *self.source.lock() = Spot::Gone;
                drop_quietly(source);
                self.end(Ending::Panicked(PanicPayload::new(payload)));
                Some(Sat { cancels: true, ..Sat::ended(End::Waits) })
            }
            Ok((Pulled::End, _)) => {
                *self.source.lock() = Spot::Gone;
                drop_quietly(source);
                Some(Sat::ended(End::Nothing))
            }
            Ok((Pulled::Keyed(claims, subtask), exhausted)) => {
                self.put_back(source);
                self.line_up(claims, subtask, exhausted, site)
            }
            Ok((Pulled::Free(batch), exhausted)) => {
                self.put_back(source);
                site.split(exhausted);
                self.run_free(batch, site)
            }
        }
    }

    /// Before the splitter is said to be free.
    fn put_back(&self, source: Source<K, I, F>) {
        let mut spot = self.source.lock();
        if self.is_cancelled() {
            *spot = Spot::Gone;
            drop(spot);
            drop_quietly(source);
        } else {
            *spot = Spot::Here(source);
        }
    }

    /// Puts a subtask into the order of the pool. Only then may another worker ask the splitter, whose
    /// next subtask is to come after this one.
    fn line_up(
        &self,
        claims: Claims<K>,
        subtask: Numbered<F>,
        exhausted: bool,
        site: &mut dyn Site<K, Body>,
    ) -> Option<Sat> {
        let mut lined = self.lined.lock();
        if self.is_cancelled() {
            drop(lined);
            drop_quietly((claims, subtask));
            return Some(Sat::ended(End::Waits));
        }
        let place = lined.insert(subtask);
        drop(lined);
        let job = self.me.upgrade().expect("a job with a worker is alive");
        site.enter(claims, Body::new(Entry { job, place }));
        site.waits(exhausted);
        None
    }

    /// Runs subtasks without keys.
    fn run_free(
        &self,
        mut batch: VecDeque<Numbered<F>>,
        site: &mut dyn Site<K, Body>,
    ) -> Option<Sat> {
        if !site.begin_free() {
            // Behind a barrier: each has to stand in line like any task.
            let first = batch.pop_front().expect("a batch has at least one");
            self.leave(batch, site);
            return self.line_up(Claims::none(), first, false, site);
        }
        let mut outcomes = Vec::with_capacity(batch.len());
        let mut count = Count::default();
        answering(self.cancelled.clone(), || {
            while let Some((number, work)) = batch.pop_front() {
                site.begins_one();
                let outcome = self.attempt(work, site);
                site.ran_one();
                count.add(&outcome);
                outcomes.push((number, outcome));
                if count.failed != 0 && self.on_error == OnError::FailFast
                    || site.is_disturbed()
                    || self.is_cancelled()
                {
                    break;
                }
            }
        });
        let cancels = self
            .deliver(&mut outcomes.drain(..), count.failed != 0, &|payload| site.panicked(payload));
        site.end_free();
        self.leave(batch, site);
        Some(count.sat(cancels))
    }

    /// Leaves subtasks to whoever comes, unless nobody shall.
    fn leave(&self, batch: VecDeque<Numbered<F>>, site: &mut dyn Site<K, Body>) {
        let count = batch.len() as u64;
        if count == 0 {
            return;
        }
        let mut granted = self.granted.lock();
        if self.is_cancelled() {
            drop(granted);
            return batch.into_iter().for_each(drop_quietly);
        }
        granted.extend(batch.into_iter().map(|subtask| Granted { subtask, place: None }));
        drop(granted);
        site.leave(count);
    }

    /// Runs a subtask that waited for a worker only.
    fn run_granted(&self, site: &mut dyn Site<K, Body>) -> Option<Sat> {
        let first = self.granted.lock().pop_front();
        let Some(Granted { subtask, place }) = first else {
            // Cancelled.
            return Some(Sat::ended(End::Waits));
        };
        let Some((turn, standing)) = place else {
            return self.run_free(VecDeque::from([subtask]), site);
        };
        #[cfg(feature = "tokio")]
        if F::GOES_ON {
            self.launch(subtask, turn, standing, site);
            return None;
        }
        let (number, work) = subtask;
        let mut count = Count::default();
        let outcome =
            standing.visit(|| answering(self.cancelled.clone(), || self.attempt(work, site)));
        count.add(&outcome);
        let cancels =
            self.deliver(&mut std::iter::once((number, outcome)), count.failed != 0, &|payload| {
                site.panicked(payload)
            });
        drop(turn);
        Some(count.sat(cancels))
    }

    fn attempt(&self, work: F, site: &mut dyn Site<K, Body>) -> Outcome<T, E> {
        let run = || work.run(|| unreachable!("what goes on is not attempted"));
        match catch_unwind(AssertUnwindSafe(run)) {
            Ok(Some(Ok(value))) => Outcome::Done(value),
            Ok(Some(Err(error))) => {
                site.failed();
                Outcome::Failed(error)
            }
            Ok(None) => unreachable!("what goes on is not attempted"),
            Err(payload) => {
                site.panicked(&*payload);
                Outcome::Panicked(PanicPayload::new(payload))
            }
        }
    }

    /// Tells the handle.
    fn tell(&self) {
        let ending = self.ending.lock().take().unwrap_or(Ending::Ended);
        self.sink.finish(ending);
    }

    /// Hands outcomes on, and says whether the job is to be cancelled.
    fn deliver(
        &self,
        outcomes: &mut dyn Iterator<Item = (u64, Outcome<T, E>)>,
        any_failed: bool,
        on_panic: OnPanic<'_>,
    ) -> bool {
        let folds = self.sink.put(outcomes, on_panic);
        let ends = !folds || any_failed && self.on_error == OnError::FailFast;
        if ends {
            self.end(Ending::Ended);
        }
        ends
    }
}

/// What a worker has run.
#[derive(Default)]
struct Count {
    done: u64,
    failed: u64,
}

impl Count {
    fn add<T, E>(&mut self, outcome: &Outcome<T, E>) {
        match outcome {
            Outcome::Done(_) => self.done += 1,
            _ => self.failed += 1,
        }
    }

    /// The last one is what the worker was given for.
    fn sat(self, cancels: bool) -> Sat {
        let Count { done, failed } = self;
        let (end, more_done, more_failed) = match done {
            0 => (End::Failed, 0, failed - 1),
            _ => (End::Done, done - 1, failed),
        };
        Sat { end, more_done, more_failed, cancels }
    }
}

impl<K, I, F, T, E> Crowd<K, Body> for Core<K, I, F, T, E>
where
    K: Key,
    I: Iterator<Item = Piece<K, F>> + Send + 'static,
    F: Work<T, E>,
    T: Send + 'static,
    E: Send + 'static,
{
    fn sit(&self, take: Take, most: usize, site: &mut dyn Site<K, Body>) -> Option<Sat> {
        match take {
            Take::Ready => self.run_granted(site),
            Take::Split => self.split(most, site),
        }
    }

    fn is_full(&self) -> bool {
        self.sink.is_full()
    }

    fn stop(&self) {
        self.end(Ending::Cancelled);
    }

    fn finish(&self, last: Progress) {
        *self.last.lock() = Some(last);
        // What is left of it is nobody's but the job's, which may be dropped anywhere from here on.
        self.drop_waiting();
        #[cfg(feature = "tokio")]
        if !self.afloat.lock().finish() {
            return;
        }
        self.tell();
    }

    fn most_waiting(&self) -> u64 {
        self.most_waiting
    }

    fn name(&self) -> &Arc<str> {
        &self.name
    }
}

impl<K, I, F, T, E> Lined for Core<K, I, F, T, E>
where
    K: Key,
    I: Iterator<Item = Piece<K, F>> + Send + 'static,
    F: Work<T, E>,
    T: Send + 'static,
    E: Send + 'static,
{
    fn granted(&self, place: usize, stage: &mut dyn Stage) {
        let Some(subtask) = self.lined.lock().try_remove(place) else { return };
        let place = Some((stage.keep_turn(), Standing::here()));
        let mut granted = self.granted.lock();
        if self.is_cancelled() {
            drop(granted);
            drop_quietly(subtask);
            return drop(place);
        }
        granted.push_back(Granted { subtask, place });
        drop(granted);
        if let (Some(office), Some(id)) = (self.office.upgrade(), *self.id.lock()) {
            office.ready(id);
        }
    }
}

/// A job, as its handle sees it.
pub(super) trait Steer: Send + Sync {
    fn name(&self) -> &str;
    fn named(&self, id: JobId);
    fn progress(&self) -> Progress;
    fn cancel(&self);
    /// False if it is over.
    fn ask(&self, ask: &mut dyn FnMut(&dyn Office, JobId) -> bool) -> bool;
}

impl<K, I, F, T, E> Steer for Core<K, I, F, T, E>
where
    K: Key,
    I: Iterator<Item = Piece<K, F>> + Send + 'static,
    F: Work<T, E>,
    T: Send + 'static,
    E: Send + 'static,
{
    fn name(&self) -> &str {
        &self.name
    }

    fn named(&self, id: JobId) {
        *self.id.lock() = Some(id);
    }

    fn progress(&self) -> Progress {
        loop {
            if let Some(last) = &*self.last.lock() {
                return *last;
            }
            let mut progress = None;
            self.ask(&mut |office, id| {
                progress = office.progress_of(id);
                true
            });
            // If it is over, whoever has ended it is about to write down how far it was.
            match progress {
                Some(progress) => return progress,
                None => crate::sync::yield_now(),
            }
        }
    }

    fn cancel(&self) {
        if self.last.lock().is_some() {
            return;
        }
        self.end(Ending::Cancelled);
        self.ask(&mut |office, id| {
            office.cancel_job(id);
            true
        });
    }

    fn ask(&self, ask: &mut dyn FnMut(&dyn Office, JobId) -> bool) -> bool {
        match (self.office.upgrade(), *self.id.lock()) {
            (Some(office), Some(id)) => ask(&*office, id),
            _ => false,
        }
    }
}
