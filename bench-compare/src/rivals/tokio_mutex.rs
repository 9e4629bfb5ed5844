//! `tokio-mutex-fair`: a spawned task per job, and a fair tokio mutex per key. The lock is asked
//! for, that is polled once, at submission, so that the mutex queues in the order of submission;
//! asking inside the spawned task, as people do, loses the order.
//!
//! Lacks: a bound on queued work, and the map keeps a mutex for every key ever seen. Kindly, each
//! producer keeps its own map, so that the map needs no lock.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tokio::runtime::{Handle, Runtime};
use tokio::sync::Mutex;

use super::tokio_form::{Form, Work, Wrap, runtime};
use super::{Hasher, hasher};
use crate::pool::{Pool, Submit};

pub(crate) struct TokioMutex<F> {
    runtime: Runtime,
    form: F,
}

impl<F: Form> TokioMutex<F> {
    pub(crate) fn new(workers: usize, form: F) -> TokioMutex<F> {
        TokioMutex { runtime: runtime(workers), form }
    }
}

impl<F: Form> Pool for TokioMutex<F> {
    type Submitter = MutexSubmitter<F>;

    fn submitter(&self) -> MutexSubmitter<F> {
        MutexSubmitter {
            runtime: self.runtime.handle().clone(),
            form: self.form.clone(),
            turns: HashMap::with_hasher(hasher()),
        }
    }
}

pub(crate) struct MutexSubmitter<F> {
    runtime: Handle,
    form: F,
    turns: HashMap<u64, Arc<Mutex<()>>, Hasher>,
}

impl<J, F: Wrap<J>> Submit<J> for MutexSubmitter<F> {
    #[inline]
    fn submit(&mut self, key: u64, job: J) {
        let work = self.form.wrap(job);
        let mut turn = Box::pin(self.turns.entry(key).or_default().clone().lock_owned());
        match turn.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(held) => self.runtime.spawn(async move {
                let _held = held;
                work.run().await;
            }),
            Poll::Pending => self.runtime.spawn(async move {
                let _held = turn.await;
                work.run().await;
            }),
        };
    }
}
