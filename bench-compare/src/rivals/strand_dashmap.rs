//! `strand-dashmap`: strands ([`super::strand`]) on threads of our own, which take ready strands
//! from a crossbeam injector, in batches, and steal from each other.

use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use crossbeam_deque::{Injector, Steal, Stealer, Worker};

use super::strand::{Scheduler, Strand, StrandPool};

/// Empty looks around before a worker sleeps.
const LOOKS_BEFORE_SLEEP: u32 = 8;

pub(crate) struct Workers {
    ready: Injector<Arc<Strand>>,
    /// Workers in or before their wait on `wake`.
    sleepers: AtomicUsize,
    sleep: Mutex<()>,
    wake: Condvar,
}

pub(crate) fn pool(workers: usize) -> StrandPool<Workers> {
    let scheduler = Arc::new(Workers {
        ready: Injector::new(),
        sleepers: AtomicUsize::new(0),
        sleep: Mutex::new(()),
        wake: Condvar::new(),
    });
    let locals: Vec<Worker<Arc<Strand>>> = (0..workers).map(|_| Worker::new_fifo()).collect();
    let stealers: Vec<_> = locals.iter().map(Worker::stealer).collect();
    for local in locals {
        let (scheduler, stealers) = (scheduler.clone(), stealers.clone());
        thread::spawn(move || scheduler.work(&local, &stealers));
    }
    StrandPool::over(scheduler)
}

impl Scheduler for Workers {
    fn ready(self: &Arc<Self>, strand: Arc<Strand>) {
        self.ready.push(strand);
        // Pairs with the fence in `sleep`: either we see the sleeper, or it sees the strand.
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            let _guard = self.sleep.lock().unwrap();
            self.wake.notify_one();
        }
    }
}

impl Workers {
    fn work(self: Arc<Self>, local: &Worker<Arc<Strand>>, stealers: &[Stealer<Arc<Strand>>]) -> ! {
        let mut looks = 0;
        loop {
            if let Some(strand) = self.find(local, stealers) {
                strand.run(&self);
                looks = 0;
            } else if looks < LOOKS_BEFORE_SLEEP {
                looks += 1;
                thread::yield_now();
            } else {
                self.sleep();
                looks = 0;
            }
        }
    }

    fn find(
        &self,
        local: &Worker<Arc<Strand>>,
        stealers: &[Stealer<Arc<Strand>>],
    ) -> Option<Arc<Strand>> {
        if let Some(strand) = local.pop() {
            return Some(strand);
        }
        loop {
            let injected = self.ready.steal_batch_and_pop(local);
            let found = injected.or_else(|| stealers.iter().map(Stealer::steal).collect());
            match found {
                Steal::Success(strand) => return Some(strand),
                Steal::Empty => return None,
                Steal::Retry => {}
            }
        }
    }

    fn sleep(&self) {
        let guard = self.sleep.lock().unwrap();
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if self.ready.is_empty() {
            // The time limit brings a worker back to steal what another took as a batch.
            drop(self.wake.wait_timeout(guard, Duration::from_millis(50)).unwrap());
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}
