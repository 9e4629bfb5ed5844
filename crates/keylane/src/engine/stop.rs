//! Ends an engine: close, drain, stop.

use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Engine, EngineBounds, Execute, Key};
use crate::error::WaitError;
use crate::observe::TraceEvents;
use crate::order::{UnrunTask, UnrunTasks, take_rollup};
use crate::sync::Ordering;
use crate::unwind::{call_catch_unwind, drop_catch_unwind};

/// Engine of a pool, shared by the clones of the pool. The drop of the last one stops the engine.
pub(crate) struct EngineOwner<K: Key, X: Execute<K>, S: BuildHasher>(Arc<Engine<K, X, S>>);

impl<K: Key, X: Execute<K>, S: BuildHasher> EngineOwner<K, X, S> {
    pub(crate) fn new(engine: &Arc<Engine<K, X, S>>) -> Arc<Self> {
        Arc::new(EngineOwner(engine.clone()))
    }
}

impl<K: Key, X: Execute<K>, S: BuildHasher> Drop for EngineOwner<K, X, S> {
    fn drop(&mut self) {
        self.0.shut_down();
    }
}

impl<K: Key, X: Execute<K>, S: BuildHasher> Engine<K, X, S> {
    /// Refuses new work from now on.
    pub(crate) fn close(&self) {
        if !self.admission.is_closed() {
            TraceEvents::closed(&self.settings.thread_name);
        }
        self.admission.close();
        if let Some(bounds) = &self.bounds {
            bounds.close();
        }
    }

    /// Closes, and waits until all accepted tasks have ended.
    pub(crate) fn drain_for(&self, timeout: Option<Duration>) -> Result<(), WaitError> {
        self.close();
        self.wait_idle(timeout)
    }

    /// Closes, and waits until all accepted tasks have ended, without blocking the thread.
    pub(crate) async fn drain_async(&self) -> Result<(), WaitError> {
        self.close();
        self.wait_idle_async().await
    }

    /// Waits for a moment without accepted and unfinished tasks.
    pub(crate) fn wait_idle(&self, timeout: Option<Duration>) -> Result<(), WaitError> {
        self.check_wait()?;
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        match self.admission.wait_empty(deadline, || self.collect()) {
            true => Ok(()),
            false if self.is_poisoned() => Err(WaitError::Poisoned),
            false => Err(WaitError::TimedOut),
        }
    }

    /// Waits for a moment without accepted and unfinished tasks, without blocking the thread.
    pub(crate) async fn wait_idle_async(&self) -> Result<(), WaitError> {
        self.check_wait()?;
        match self.admission.wait_empty_async(|| self.collect()).await {
            true => Ok(()),
            false => Err(WaitError::Poisoned),
        }
    }

    /// Returns why the caller cannot wait for the end of all tasks.
    fn check_wait(&self) -> Result<(), WaitError> {
        if self.is_inside() {
            return Err(WaitError::FromInside);
        }
        if self.is_poisoned() {
            return Err(WaitError::Poisoned);
        }
        Ok(())
    }

    /// Stops, drops the tasks that have not run, and waits for the workers, unless called from one.
    pub(crate) fn shut_down(&self) {
        // Captures and keys are user values; the threads must be joined even if their drops panic.
        call_catch_unwind(|| self.stop().into_iter().for_each(drop_catch_unwind));
        let threads = self.workers.take_handles();
        if self.is_inside() {
            // This worker ends when its task does; waiting for the others here could deadlock.
            return;
        }
        self.rates.join();
        for thread in threads {
            // A worker catches all panics that it can; one that died nevertheless held a task.
            if thread.join().is_err() {
                self.poison();
            }
        }
    }

    /// Stops the workers, and returns the tasks that no worker has taken, in an order in which they
    /// could have run.
    pub(crate) fn stop(&self) -> Vec<UnrunTask<K, X::Work>> {
        self.begin_stop();
        if self.is_poisoned() {
            // The tasks that had not begun were dropped.
            return Vec::new();
        }
        self.take_unrun()
    }

    /// Signals the workers to end after their current tasks, and ends the jobs and the tasks that
    /// wait for a further attempt.
    pub(super) fn begin_stop(&self) {
        self.close();
        self.stopping.store(true, Ordering::Release);
        self.stop_jobs();
        self.rates.end();
        self.end_attempts();
        self.idle.wake_all();
    }

    fn take_unrun(&self) -> Vec<UnrunTask<K, X::Work>> {
        let mut unrun = UnrunTasks::default();
        let mut delayed = self.end_delays(true);
        // All inboxes are closed before the first is emptied: so a rollup is in all of its inboxes
        // or in none.
        for shard in &self.shards {
            shard.inbox.lock().close();
        }
        for shard in &self.shards {
            let mut lanes = shard.lanes.lock();
            let mut inbox = shard.inbox.lock();
            lanes.take_unrun(&mut inbox, &mut unrun);
        }
        // A task that waits only for conflicts of its descriptor is in no shard.
        let described = self.registry.lock().clear();
        described.iter().for_each(|rollup| take_rollup(rollup, &mut unrun));
        let UnrunTasks { tasks: mut unrun, failed } = unrun;
        self.admission.release(failed.len());
        failed.into_iter().for_each(|(work, payload)| self.fail_work(work, payload));
        unrun.sort_by_key(|task| task.number);
        if let Some(bounds) = &self.bounds {
            self.intact(|| self.forget(bounds, &unrun));
        }
        self.admission.release(unrun.len());
        unrun.append(&mut delayed);
        TraceEvents::stopped(&self.settings.thread_name, unrun.len());
        unrun
    }

    /// Releases the other bounds of tasks that will not run.
    pub(super) fn forget(&self, bounds: &EngineBounds<K>, unrun: &[UnrunTask<K, X::Work>]) {
        for task in unrun {
            self.leave_keys(bounds, &task.claims);
            if let Some(bytes) = &bounds.bytes {
                drop(bytes.taken(self.executor.weigh(&task.work)));
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::mpsc::channel;

    use crate::Pool;

    /// The halves of the sequence numbers wrap around between the tasks.
    #[test]
    fn tasks_are_returned_in_order_however_many_were_submitted_between_them() {
        let pool = Pool::<u32>::builder().workers(1).capacity(99).build().unwrap();
        pool.keys().pause(&1);
        let engine = pool.engine();
        let pass = |submissions: u64| {
            engine.shards.iter().for_each(|shard| shard.inbox.lock().clock += submissions);
        };
        let (tell, told) = channel();
        let submit = |keys: &[u32], number: u32| {
            let tell = tell.clone();
            pool.execute(keys.to_vec(), move || tell.send(number).unwrap()).unwrap();
        };
        submit(&[1], 0);
        submit(&[1], 1);
        pass((1 << 32) - 3);
        submit(&[1, 2], 2);
        submit(&[2], 3);
        pass(3 << 32);
        submit(&[1], 4);
        submit(&[2, 3], 5);
        pass((1 << 32) - 5);
        submit(&[3], 6);
        pool.shutdown_now().into_iter().for_each(|task| task.run());
        drop(tell);
        let order: Vec<_> = told.iter().collect();
        let place = |number| order.iter().position(|it| *it == number);
        for (first, second) in [(0, 1), (1, 2), (2, 3), (2, 4), (3, 5), (5, 6)] {
            assert!(place(first) < place(second), "{first} before {second}: {order:?}");
        }
        assert_eq!(order.len(), 7);
    }
}
