//! Jobs as users of rayon write them: a scope for each, in which its subtasks are spawned.

use crate::workloads::jobs_mix::{JobPool, JobWorld};

pub(crate) struct RayonScope {
    pool: rayon::ThreadPool,
}

impl RayonScope {
    pub(crate) fn new(workers: usize) -> RayonScope {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(workers).build();
        RayonScope { pool: pool.expect("threads can be started") }
    }
}

impl JobPool for RayonScope {
    fn submit(&self, world: &'static JobWorld, job: u32) {
        self.pool.spawn(move || {
            rayon::scope(|scope| {
                for subtask in 0..world.subtasks(job) {
                    scope.spawn(move |_| world.run(job, subtask));
                }
            });
        });
    }
}
