//! Execution of records by processes or by workers, behind one interface for the supervisor.

use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;

use crate::key::Key;
use crate::ledger::Ledger;
use crate::process::{Children, Processes};
use crate::worker::{Crew, DISPATCHERS};

use super::books::Books;
use super::work::{Pool, RecordBody, Work};

/// Executor of the records.
#[derive(Debug)]
pub(super) enum Engine {
    /// A process per record.
    Processes(Arc<Processes>),
    /// Lines to long-lived children, and the threads that look after them.
    Workers(Arc<Crew<Books>>, Mutex<Vec<JoinHandle<()>>>),
}

impl Engine {
    /// Builds the pool in front of it.
    pub(super) fn pool(&self, jobs: usize, buffer: usize) -> anyhow::Result<Pool> {
        let builder = keylane::Pool::builder()
            .workers(self.threads(jobs))
            .capacity(buffer)
            .thread_name("keylane-run");
        match self {
            Self::Processes(processes) => {
                let processes = Arc::clone(processes);
                Ok(builder.build_handler(move |key: &Key, work: Work| {
                    let key = work.own_key.as_ref().unwrap_or(key);
                    match work.body {
                        RecordBody::Argv(argv) => processes.run(&work.place, key, argv),
                        RecordBody::Line(_) => unreachable!("lines are for workers"),
                    }
                })?)
            }
            Self::Workers(crew, _) => {
                let crew = Arc::clone(crew);
                Ok(builder.build_handler_with_turns(move |key: &Key, work: Work, turn| {
                    let key = work.own_key.as_ref().unwrap_or(key);
                    match work.body {
                        RecordBody::Line(line) => crew.dispatch(work.place, key, &line, Some(turn)),
                        RecordBody::Argv(_) => unreachable!("commands are for processes"),
                    }
                })?)
            }
        }
    }

    /// Number of pool threads for this number of slots.
    pub(super) fn threads(&self, jobs: usize) -> usize {
        match self {
            Self::Processes(_) => jobs,
            Self::Workers(..) => DISPATCHERS,
        }
    }

    /// Abandons records that have not started; the pool has abandoned its own.
    pub(super) fn stop(&self) {
        if let Self::Workers(crew, _) = self {
            crew.stop();
        }
    }

    /// Releases workers that outlive the records, and waits for their end.
    pub(super) fn finish(&self) {
        if let Self::Workers(crew, attendants) = self {
            crew.dismiss();
            let attendants =
                std::mem::take(&mut *attendants.lock().expect("no holder of the lock panics"));
            for attendant in attendants {
                attendant.join().expect("an attendant does not panic");
            }
        }
    }

    /// Checks conditions without an event.
    pub(super) fn look_after(&self, input_ended: bool, pool: &Pool) {
        if let Self::Workers(crew, _) = self {
            crew.look_after(input_ended, || pool.inspect().snapshot(0).unfinished, Instant::now());
        }
    }

    pub(super) fn children(&self) -> &Children {
        match self {
            Self::Processes(processes) => &processes.children,
            Self::Workers(crew, _) => &crew.children,
        }
    }

    pub(super) fn ledger(&self) -> &Ledger {
        match self {
            Self::Processes(processes) => &processes.ledger,
            Self::Workers(crew, _) => &crew.employer.ledger,
        }
    }
}
