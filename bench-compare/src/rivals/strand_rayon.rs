//! `strand-rayon`: strands ([`super::strand`]) on a rayon pool; a ready strand is a spawned job.

use std::sync::Arc;

use rayon::{ThreadPool, ThreadPoolBuilder};

use super::strand::{Scheduler, Strand, StrandPool};

pub(crate) struct Rayon(ThreadPool);

impl Scheduler for Rayon {
    fn ready(self: &Arc<Self>, strand: Arc<Strand>) {
        let scheduler = self.clone();
        self.0.spawn(move || strand.run(&scheduler));
    }
}

pub(crate) fn pool(workers: usize) -> StrandPool<Rayon> {
    let threads = ThreadPoolBuilder::new().num_threads(workers).build();
    StrandPool::over(Arc::new(Rayon(threads.expect("the machine has threads to give"))))
}
