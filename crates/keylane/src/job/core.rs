//! A running job: what its workers, its entries in the lanes, and its handle share.

#[cfg(feature = "tokio")]
mod futures;
#[cfg(all(test, loom))]
mod models;
mod run;
mod shared_batch;

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

use slab::Slab;

#[cfg(feature = "tokio")]
use futures::JobFutures;
use shared_batch::SharedBatch;

use super::builder::OnError;
use super::keyed::{KeyedSubtask, OnGranted};
use super::sink::{Ending, OnPanic, Sink};
use super::source::{JobSource, Numbered, Pull, SubtaskSource};
use super::subtask::SubtaskBody;
use crate::allocate::{End, JobId, Progress, Take};
use crate::complete::{Outcome, PanicPayload, with_cancel_flag};
use crate::engine::{BatchReport, JobControl, JobRunner, Key, WeakJobControl, WorkerCtx};
use crate::order::Claims;
use crate::run::{ExecContext, SavedPosition, TaskBody, Turn};
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering};
use crate::unwind::drop_catch_unwind;

pub(super) struct JobCore<K, I, F, T, E> {
    me: Weak<Self>,
    name: Arc<str>,
    on_error: OnError,
    control: WeakJobControl,
    /// What the rules know it by. Written once, before any worker comes.
    id: Mutex<Option<JobId>>,
    /// Nothing begins any more. Set before anything is dropped, and read under the lock of each of the
    /// three places below before something is put there, so that nothing is left behind.
    cancelled: Arc<AtomicBool>,
    /// The splitter, unless a worker asks it.
    source: Mutex<SourceSlot<JobSource<K, I, F>>>,
    /// Subtasks that wait in the lanes, by place.
    blocked: Mutex<Slab<BlockedSubtask<F>>>,
    /// Subtasks that wait for a worker only, the first to become ready first.
    granted: Mutex<VecDeque<Granted<F>>>,
    /// Batches that workers are at.
    batches: Mutex<Vec<Arc<SharedBatch<F>>>>,
    /// Granted subtasks that were taken out of a batch, and that the rules have not been told of yet.
    /// Raised under the lock of the batch; taken to nothing in the section that tells them.
    stolen: AtomicU64,
    sink: Arc<dyn Sink<T, E>>,
    /// Its futures.
    #[cfg(feature = "tokio")]
    futures: Mutex<JobFutures>,
    /// How many of its subtasks may wait.
    max_waiting: u64,
    /// Why it ends, if it is not that all subtasks have ended. The first reason holds.
    ending: Mutex<Option<Ending>>,
    /// How far it was when it was over.
    last: Mutex<Option<Progress>>,
    results: PhantomData<fn() -> (T, E)>,
}

/// A subtask that waits in the lanes.
enum BlockedSubtask<F> {
    /// Exits: it is removed, when it has its keys; `Dropping`, when the job is cancelled.
    Waiting(Numbered<F>),
    /// The thread that has cancelled the job drops the captures, and then removes this and ends the
    /// turns: that of the entry, if a worker has reached it meanwhile; and that of one that had the
    /// same place before, if it was reached late.
    Dropping(Vec<Turn>),
}

/// What one worker at a time takes out.
enum SourceSlot<T> {
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
    place: Option<(Turn, SavedPosition)>,
}

/// What a job is made of.
pub(super) struct CoreParts<T, E> {
    pub(super) name: Arc<str>,
    pub(super) on_error: OnError,
    pub(super) control: WeakJobControl,
    pub(super) sink: Arc<dyn Sink<T, E>>,
    pub(super) max_waiting: u64,
}

impl<K, I, F, T, E> JobCore<K, I, F, T, E>
where
    K: Key,
    I: SubtaskSource<K, F>,
    F: SubtaskBody<T, E>,
    T: Send + 'static,
    E: Send + 'static,
{
    pub(super) fn new(source: JobSource<K, I, F>, parts: CoreParts<T, E>) -> Arc<Self> {
        Arc::new_cyclic(|me| JobCore {
            me: me.clone(),
            name: parts.name,
            on_error: parts.on_error,
            control: parts.control,
            id: Mutex::new(None),
            cancelled: Arc::new(AtomicBool::new(false)),
            source: Mutex::new(SourceSlot::Here(source)),
            blocked: Mutex::new(Slab::new()),
            granted: Mutex::new(VecDeque::new()),
            batches: Mutex::default(),
            stolen: AtomicU64::new(0),
            sink: parts.sink,
            #[cfg(feature = "tokio")]
            futures: Mutex::default(),
            max_waiting: parts.max_waiting,
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
        drop_catch_unwind(late);
        self.drop_waiting();
    }

    /// Begins no more subtasks, drops those that wait, and aborts those that go on elsewhere.
    fn drop_waiting(&self) {
        self.cancelled.store(true, Ordering::Release);
        let mut slot = self.source.lock();
        let source = match std::mem::replace(&mut *slot, SourceSlot::Gone) {
            SourceSlot::Out => {
                *slot = SourceSlot::Out;
                SourceSlot::Gone
            }
            other => other,
        };
        drop(slot);
        drop_catch_unwind(source);
        self.drop_blocked();
        let batches = self.batches.lock().clone();
        batches.iter().for_each(|batch| batch.drop_all());
        let granted = std::mem::take(&mut *self.granted.lock());
        for Granted { subtask, place } in granted {
            drop_catch_unwind(subtask);
            // Ends the turn.
            drop(place);
        }
        #[cfg(feature = "tokio")]
        self.abort_futures();
    }

    /// The subtask at this place, unless the job was cancelled.
    fn take_blocked(&self, place: usize) -> Option<Numbered<F>> {
        let mut blocked = self.blocked.lock();
        match blocked.get(place)? {
            BlockedSubtask::Dropping(_) => None,
            BlockedSubtask::Waiting(_) => match blocked.remove(place) {
                BlockedSubtask::Waiting(subtask) => Some(subtask),
                BlockedSubtask::Dropping(_) => unreachable!("it has just been looked at"),
            },
        }
    }

    /// Drops the subtasks that wait in the lanes, of a job that is cancelled. The turn of each ends after
    /// its captures are gone, whether a worker has reached it by then or not.
    fn drop_blocked(&self) {
        let mut waiting = Vec::new();
        for (place, entry) in self.blocked.lock().iter_mut() {
            match std::mem::replace(entry, BlockedSubtask::Dropping(Vec::new())) {
                BlockedSubtask::Waiting(subtask) => waiting.push((place, subtask)),
                // Another thread drops this one.
                dropping => *entry = dropping,
            }
        }
        for (place, subtask) in waiting {
            self.drop_subtask(place, subtask);
        }
        let mut blocked = self.blocked.lock();
        if blocked.is_empty() {
            // The memory goes as well.
            *blocked = Slab::new();
        }
    }

    /// Drops a subtask of a job that is cancelled, and then ends the turn of its entry.
    fn drop_subtask(&self, place: usize, subtask: Numbered<F>) {
        drop_catch_unwind(subtask);
        let dropped = self.blocked.lock().try_remove(place);
        // Outside the lock: a turn that ends takes others.
        drop(dropped);
    }

    /// The turn of a subtask that is not there any more: it ends when the captures are gone.
    fn end_when_dropped(&self, place: usize, ctx: &mut dyn ExecContext) {
        if !self.blocked.lock().contains(place) {
            return;
        }
        // Made before the lock is taken: it takes another.
        let turn = ctx.keep_turn();
        let mut blocked = self.blocked.lock();
        match blocked.get_mut(place) {
            Some(BlockedSubtask::Dropping(ends)) => ends.push(turn),
            _ => {
                drop(blocked);
                drop(turn);
            }
        }
    }

    /// Tells the handle.
    fn tell(&self) {
        let ending = self.ending.lock().take().unwrap_or(Ending::Ended);
        self.sink.finish(ending);
    }
}

impl<K, I, F, T, E> JobRunner<K, TaskBody> for JobCore<K, I, F, T, E>
where
    K: Key,
    I: SubtaskSource<K, F>,
    F: SubtaskBody<T, E>,
    T: Send + 'static,
    E: Send + 'static,
{
    fn run_batch(
        &self,
        take: Take,
        most: usize,
        ctx: &mut dyn WorkerCtx<K, TaskBody>,
    ) -> Option<BatchReport> {
        match take {
            Take::Ready => self.run_granted(ctx),
            Take::Split => self.split(most, ctx),
        }
    }

    fn release_batches(&self) -> usize {
        self.empty_batches()
    }

    fn stolen(&self) -> &AtomicU64 {
        &self.stolen
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
        if !self.futures.lock().finish() {
            return;
        }
        self.tell();
    }

    fn max_waiting(&self) -> u64 {
        self.max_waiting
    }

    fn name(&self) -> &Arc<str> {
        &self.name
    }
}

impl<K, I, F, T, E> OnGranted for JobCore<K, I, F, T, E>
where
    K: Key,
    I: SubtaskSource<K, F>,
    F: SubtaskBody<T, E>,
    T: Send + 'static,
    E: Send + 'static,
{
    fn granted(&self, place: usize, ctx: &mut dyn ExecContext) {
        let Some(subtask) = self.take_blocked(place) else {
            return self.end_when_dropped(place, ctx);
        };
        let place = Some((ctx.keep_turn(), SavedPosition::here()));
        let mut granted = self.granted.lock();
        if self.is_cancelled() {
            drop(granted);
            drop_catch_unwind(subtask);
            return drop(place);
        }
        granted.push_back(Granted { subtask, place });
        drop(granted);
        let id = *self.id.lock();
        if let (Some(control), Some(id)) = (self.control.upgrade(), id) {
            control.ready(id);
        }
    }
}

/// A job, as its handle sees it.
pub(super) trait JobOps: Send + Sync {
    fn name(&self) -> &str;
    fn named(&self, id: JobId);
    fn progress(&self) -> Progress;
    fn cancel(&self);
    /// False if it is over.
    fn ask(&self, ask: &mut dyn FnMut(&dyn JobControl, JobId) -> bool) -> bool;
}

impl<K, I, F, T, E> JobOps for JobCore<K, I, F, T, E>
where
    K: Key,
    I: SubtaskSource<K, F>,
    F: SubtaskBody<T, E>,
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
            self.ask(&mut |control, id| {
                progress = control.progress_of(id);
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
        self.ask(&mut |control, id| {
            control.cancel_job(id);
            true
        });
    }

    fn ask(&self, ask: &mut dyn FnMut(&dyn JobControl, JobId) -> bool) -> bool {
        // Not under the lock: what follows may drop what is the user's.
        let id = *self.id.lock();
        match (self.control.upgrade(), id) {
            (Some(control), Some(id)) => ask(&*control, id),
            _ => false,
        }
    }
}
