use std::sync::Arc;
use std::thread::{self, JoinHandle};

use super::burial::Burials;
use super::order::Lane;
use super::shared::Shared;
use super::{Ended, Pool, StartError};
use crate::dead_letters::DeadLetters;

/// The threads beside the owner's: they end when this is dropped.
pub(super) struct Threads {
    shared: Arc<Shared>,
    /// Until the end.
    pool: Option<Arc<Pool>>,
    timer: Option<JoinHandle<()>>,
    burials: Option<JoinHandle<()>>,
    /// Something runs that nobody waits for.
    is_abandoned: bool,
}

impl Threads {
    pub(super) fn start(
        shared: &Arc<Shared>,
        pool: &Arc<Pool>,
        letters: Option<Box<dyn DeadLetters>>,
    ) -> Result<Self, StartError> {
        let mut threads = Threads {
            shared: shared.clone(),
            pool: Some(pool.clone()),
            timer: None,
            burials: None,
            is_abandoned: false,
        };
        let (timers, pool) = (shared.clone(), pool.clone());
        threads.timer = Some(spawn("keylane-timer", move || run_timer(&timers, &pool))?);
        if let Some(mut letters) = letters {
            let shared = shared.clone();
            let run = move || Burials::run(&shared, &mut *letters);
            threads.burials = Some(spawn("keylane-letters", run)?);
        }
        Ok(threads)
    }

    /// Ends them, after the owner.
    pub(super) fn end_with(mut self, ended: Ended) -> Ended {
        self.is_abandoned = ended.abandoned > 0;
        ended
    }
}

/// Sends what is due to any worker: it has its turn already.
fn run_timer(shared: &Shared, pool: &Pool) {
    // The owner counts those of records without a lane upwards.
    let mut number = u64::MAX;
    shared.timer.run(|flights| {
        let free = flights.into_iter().map(|flight| {
            number -= 1;
            (Lane::Free { number }, flight)
        });
        // If the pool is closed all is over, and those who wait for an attempt will have no other.
        let _ = pool.send_many(free);
    });
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, StartError> {
    thread::Builder::new().name(name.to_owned()).spawn(run).map_err(StartError::Thread)
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.mailbox.close();
        self.shared.timer.stop();
        self.shared.burials.stop();
        join(self.timer.take());
        let pool = self.pool.take();
        // Their assignments are closed: they would not begin.
        drop(pool.as_ref().map(|pool| pool.stop_now()));
        let (burials, end) = (self.burials.take(), move || drop(pool));
        if self.is_abandoned {
            // Both would wait for what nobody waits for.
            drop(burials);
            drop(thread::spawn(end));
        } else {
            join(burials);
            end();
        }
    }
}

fn join(thread: Option<JoinHandle<()>>) {
    if let Some(thread) = thread {
        // If it has panicked, there is nobody left to be told.
        let _ = thread.join();
    }
}
