//! A task that waits inside its pool, where the operating system has no thread for the place of its
//! worker.
//!
//! A file of its own: the limit is the whole process's.

#![cfg(target_os = "linux")]

#[path = "it/common/mod.rs"]
mod common;

use std::sync::Arc;

use common::{Gate, soon};
use keylane::Pool;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// More than the limit leaves.
const STACK: usize = 1 << 32;

/// Leaves no address space for another stack, until it is dropped.
struct NoThreads(Rlimit);

impl NoThreads {
    fn new() -> Self {
        let before = getrlimit(Resource::As);
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
        let kibibytes: u64 = size.trim().trim_end_matches(" kB").parse().unwrap();
        let current = Some(kibibytes * 1024 + STACK as u64 / 2);
        setrlimit(Resource::As, Rlimit { current, ..before }).unwrap();
        NoThreads(before)
    }
}

impl Drop for NoThreads {
    fn drop(&mut self) {
        setrlimit(Resource::As, self.0).unwrap();
    }
}

fn pool(workers: usize) -> Arc<Pool<u32>> {
    Arc::new(Pool::<u32>::builder().workers(workers).stack_size(STACK).build().unwrap())
}

/// It waited forever, in silence. One test, for the limit.
#[test]
fn a_wait_that_leaves_no_worker_is_refused() {
    soon(|| {
        let (one, two) = (pool(1), pool(2));
        let no_threads = NoThreads::new();
        let own = one.clone();
        let outer = one.submit(1, move || {
            let inner = own.submit(2, || 7).unwrap();
            let refused = inner.wait().unwrap_err();
            let mut inner = refused.into_inner();
            let again = inner.wait_timeout(common::LONG).unwrap_err();
            (inner, again.to_string())
        });
        let (inner, why) = outer.unwrap().wait().unwrap().unwrap();
        assert!(why.contains("no thread"), "{why}");
        assert_eq!(inner.wait().unwrap().ok(), Some(7), "its task has lost nothing");

        // The same holds for a job of another pool; the refusal leaves the pool as it was.
        let gate = Gate::new();
        let (own, wait) = (two.clone(), gate.clone());
        let outer = one.submit(3, move || {
            let job = own.job("elsewhere").each([move || wait.pass()]).run().unwrap();
            job.wait().unwrap_err().into_inner()
        });
        let job = outer.unwrap().wait().unwrap().unwrap();
        gate.open();
        assert!(job.wait().unwrap().is_completed());

        // With another worker, which waits for nothing, it waits.
        let own = two.clone();
        let outer = two.submit(1, move || own.submit(2, || 8).unwrap().wait().unwrap().unwrap());
        assert_eq!(outer.unwrap().wait().unwrap().ok(), Some(8));

        // As soon as there is a thread again, it does with one.
        let (gate, tries) = (Gate::new(), Gate::new());
        let (own, tried, wait) = (one.clone(), tries.clone(), gate.clone());
        let outer = one.submit(1, move || {
            let inner = own.submit(2, || 9).unwrap();
            let inner = inner.wait().unwrap_err().into_inner();
            tried.open();
            wait.pass();
            inner.wait().unwrap().unwrap()
        });
        tries.pass();
        drop(no_threads);
        gate.open();
        assert_eq!(outer.unwrap().wait().unwrap().ok(), Some(9));
    });
}
