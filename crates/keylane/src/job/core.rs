//! Running job: state shared by its workers, its entries in the lanes, and its handle.

mod batches;
#[cfg(feature = "tokio")]
mod futures;
#[cfg(all(test, loom))]
mod models;
mod run;

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

use keylane_allocate::{End, JobId, JobProgress, Take};

use super::blocked::BlockedSubtasks;
#[cfg(feature = "tokio")]
use super::future_slots::JobFutures;
use super::keyed_subtask::{KeyedSubtask, OnGranted, SharedJob};
use super::options::OnError;
use super::shared_batch::SharedBatch;
use super::sink::{JobEnding, OnPanic, OutcomeSink};
use super::source::{ClaimedSubtask, JobSource, NumberedSubtask, PullResult, SubtaskSource};
use super::subtask::SubtaskBody;
use crate::complete::{Outcome, PanicPayload};
use crate::engine::{
    BatchLimits, BatchReport, JobControl, JobRunner, Key, WeakJobControl, WorkerCtx,
};
use crate::order::Claims;
use crate::run::{
    CancelFlag, ExecContext, LaneJob, SavedPosition, SubtaskEnd, TaskBody, Turn, with_cancel_flag,
};
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering};
use crate::unwind::{KeyPanic, drop_catch_unwind};

pub(super) struct JobCore<K, I, F, T, E> {
    me: Weak<Self>,
    name: Arc<str>,
    on_error: OnError,
    control: WeakJobControl,
    /// Id of the job in the scheduler. Written once, before the first worker comes.
    id: Mutex<Option<JobId>>,
    /// Set once: no subtask starts any more. Set before any subtask is dropped, and checked under
    /// the lock of each of `source`, `blocked` and `granted` before a subtask is added, so that
    /// none is leaked.
    cancelled: Arc<AtomicBool>,
    /// Splitter, unless a worker has it.
    source: Mutex<SourceSlot<JobSource<K, I, F>>>,
    /// Subtasks that wait in the lanes, by index.
    blocked: BlockedSubtasks<F>,
    /// Subtasks that wait for a worker only, in the order in which they became ready.
    granted: Mutex<VecDeque<GrantedSubtask<F>>>,
    /// Batches that workers are running.
    batches: Mutex<Vec<Arc<SharedBatch<F>>>>,
    /// Number of granted subtasks that were stolen from a batch and are not reported to the
    /// scheduler yet. Raised under the lock of the batch; reset in the scheduler section that
    /// reports them.
    stolen: AtomicU64,
    sink: Arc<dyn OutcomeSink<T, E>>,
    /// Futures of the job.
    #[cfg(feature = "tokio")]
    futures: Mutex<JobFutures>,
    /// Maximum of waiting subtasks.
    max_waiting: u64,
    /// Reason for the end, if not the end of all subtasks. The first reason counts.
    ending: Mutex<Option<JobEnding>>,
    /// Final progress.
    last: Mutex<Option<JobProgress>>,
    results: PhantomData<fn() -> (T, E)>,
}

/// Slot of the splitter, which one worker at a time takes.
enum SourceSlot<T> {
    Here(T),
    /// A worker has it.
    Out,
    /// Dropped.
    Gone,
}

/// Subtask that a worker can run, or report, now.
enum GrantedSubtask<F> {
    Ready {
        subtask: NumberedSubtask<F>,
        /// Turn and position in the order. `None` for a subtask without keys, which was in no lane.
        held_turn: Option<(Turn, SavedPosition)>,
    },
    /// Subtask with this number that failed because one of its keys panicked. Its captures are
    /// dropped.
    Failed { number: u64, payload: KeyPanic },
}

/// Parameters of a job.
pub(super) struct CoreParts<T, E> {
    pub(super) name: Arc<str>,
    pub(super) on_error: OnError,
    pub(super) control: WeakJobControl,
    pub(super) sink: Arc<dyn OutcomeSink<T, E>>,
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
            blocked: BlockedSubtasks::new(),
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

    /// Ends the job for this reason: no further subtask starts.
    fn end(&self, ending: JobEnding) {
        let mut first = self.ending.lock();
        let late = match &*first {
            None => first.replace(ending),
            Some(_) => Some(ending),
        };
        drop(first);
        drop_catch_unwind(late);
        self.drop_waiting();
    }

    /// Drops all waiting subtasks, including the splitter, and aborts futures. No further subtask
    /// starts.
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
        self.blocked.drop_all();
        let batches = self.batches.lock().clone();
        batches.iter().for_each(|batch| batch.drop_all());
        let granted = std::mem::take(&mut *self.granted.lock());
        for granted in granted {
            match granted {
                GrantedSubtask::Ready { subtask, held_turn } => {
                    drop_catch_unwind(subtask);
                    // Dropping the turn ends it.
                    drop(held_turn);
                }
                GrantedSubtask::Failed { payload, .. } => drop_catch_unwind(payload),
            }
        }
        #[cfg(feature = "tokio")]
        self.abort_futures();
    }

    /// Reports to the scheduler that a subtask in the lanes has become ready.
    fn report_ready(&self) {
        let id = *self.id.lock();
        if let (Some(control), Some(id)) = (self.control.upgrade(), id) {
            control.ready(id);
        }
    }

    /// Publishes the result to the handle.
    fn publish(&self) {
        let ending = self.ending.lock().take().unwrap_or(JobEnding::Ended);
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
        limits: BatchLimits,
        ctx: &mut dyn WorkerCtx<K, TaskBody>,
    ) -> Option<BatchReport> {
        match take {
            Take::Ready => self.run_granted(ctx),
            Take::Split => self.split(limits, ctx),
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
        self.end(JobEnding::Cancelled);
    }

    fn finish(&self, last: JobProgress) {
        *self.last.lock() = Some(last);
        // Released here, because the job may be dropped on any thread from now on.
        self.drop_waiting();
        #[cfg(feature = "tokio")]
        if !self.futures.lock().finish() {
            return;
        }
        self.publish();
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
    fn granted(&self, index: usize, ctx: &mut dyn ExecContext) {
        let Some(subtask) = self.blocked.take(index) else {
            return self.blocked.end_when_dropped(index, || ctx.keep_turn());
        };
        if !F::IS_FUTURE && ctx.begin_subtask(self) {
            return self.run_in_lane(subtask, ctx);
        }
        let held_turn = Some((ctx.keep_turn(), SavedPosition::here()));
        let mut granted = self.granted.lock();
        if self.is_cancelled() {
            drop(granted);
            drop_catch_unwind(subtask);
            return drop(held_turn);
        }
        granted.push_back(GrantedSubtask::Ready { subtask, held_turn });
        drop(granted);
        self.report_ready();
    }

    fn failed(&self, index: usize, payload: KeyPanic) {
        let Some((number, subtask)) = self.blocked.take(index) else {
            return drop_catch_unwind(payload);
        };
        drop_catch_unwind(subtask);
        let mut granted = self.granted.lock();
        if self.is_cancelled() {
            drop(granted);
            return drop_catch_unwind(payload);
        }
        granted.push_back(GrantedSubtask::Failed { number, payload });
        drop(granted);
        self.report_ready();
    }
}

impl<K, I, F, T, E> LaneJob for JobCore<K, I, F, T, E> {
    fn id(&self) -> Option<JobId> {
        *self.id.lock()
    }

    fn cancel_flag(&self) -> Arc<dyn CancelFlag> {
        self.cancelled.clone()
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

/// Job, as seen by its handle.
pub(super) trait JobOps: Send + Sync {
    fn name(&self) -> &str;
    fn set_id(&self, id: JobId);
    fn progress(&self) -> JobProgress;
    fn cancel(&self);
    /// Calls `ask` with the job's scheduler. Returns false if the job has ended.
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

    fn set_id(&self, id: JobId) {
        *self.id.lock() = Some(id);
    }

    fn progress(&self) -> JobProgress {
        let mut backoff = crate::sync::Backoff::default();
        loop {
            if let Some(last) = &*self.last.lock() {
                return *last;
            }
            let mut progress = None;
            self.ask(&mut |control, id| {
                progress = control.progress_of(id);
                true
            });
            // The job has ended, and the thread that ended it is about to store its final progress.
            match progress {
                Some(progress) => return progress,
                None => backoff.pause(),
            }
        }
    }

    fn cancel(&self) {
        if self.last.lock().is_some() {
            return;
        }
        self.end(JobEnding::Cancelled);
        self.ask(&mut |control, id| {
            control.cancel_job(id);
            true
        });
    }

    fn ask(&self, ask: &mut dyn FnMut(&dyn JobControl, JobId) -> bool) -> bool {
        // Copied out of the lock, because the call may drop user values.
        let id = *self.id.lock();
        match (self.control.upgrade(), id) {
            (Some(control), Some(id)) => ask(&*control, id),
            _ => false,
        }
    }
}
