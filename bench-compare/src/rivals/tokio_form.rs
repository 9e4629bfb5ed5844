//! The two forms of work that the tokio rivals run: closures, and naps that do not hold a thread.

use std::future::Future;
use std::sync::Arc;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;

use crate::job::{Job, SLEEP, Sleep, Task, boxed};

/// A piece of work as tokio sees it.
pub(crate) trait Work: Send + 'static {
    fn run(self) -> impl Future<Output = ()> + Send;
}

/// Which work a rival runs, and how it is made of a job.
pub(crate) trait Form: Clone + Send + Sync + 'static {
    type Work: Work;
}

pub(crate) trait Wrap<J>: Form {
    fn wrap(&self, job: J) -> Self::Work;
}

/// Boxed closures, as in the other rivals.
#[derive(Clone)]
pub(crate) struct Closures;

impl Form for Closures {
    type Work = Task;
}

impl<J: Job> Wrap<J> for Closures {
    #[inline]
    fn wrap(&self, job: J) -> Task {
        boxed(job)
    }
}

impl Work for Task {
    async fn run(self) {
        self();
    }
}

/// Sleeps on tokio's timer, at most as many at a time as there are permits.
#[derive(Clone)]
pub(crate) struct Naps {
    permits: Arc<Semaphore>,
}

impl Naps {
    pub(crate) fn at_most(count: usize) -> Naps {
        Naps { permits: Arc::new(Semaphore::new(count)) }
    }
}

impl Form for Naps {
    type Work = Nap;
}

impl Wrap<Sleep> for Naps {
    fn wrap(&self, job: Sleep) -> Nap {
        Nap { job, permits: self.permits.clone() }
    }
}

pub(crate) struct Nap {
    job: Sleep,
    permits: Arc<Semaphore>,
}

impl Work for Nap {
    async fn run(self) {
        let _permit = self.permits.acquire().await.expect("the semaphore is never closed");
        let entered = self.job.world.enter(self.job.step.0);
        tokio::time::sleep(SLEEP).await;
        self.job.world.leave(self.job.step, entered);
    }
}

pub(super) fn runtime(workers: usize) -> Runtime {
    let runtime = Builder::new_multi_thread().worker_threads(workers).enable_time().build();
    runtime.expect("the machine has threads to give")
}
