//! What a store in PostgreSQL promises while its database, its connections and the other nodes fail.

mod connections;
mod full_disk;
mod ownership;
mod promotion;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;

use crate::store_support::outcome;
use keylane_service::JobNumber;
use keylane_service::store::{
    Changes, OutcomeKind, PostgresSettings, RecoveredJobs, Store, StoreOpenError, StoreSettings,
    WriteError,
};
use keylane_testkit::PostgresServer;
use tempfile::TempDir;

/// A node: its folder, and the database that it shares with others.
struct Node {
    folder: TempDir,
    settings: StoreSettings,
}

impl Node {
    fn new(server: &PostgresServer) -> Self {
        Self::at(&server.address())
    }

    /// A node that reaches the database at this address.
    fn at(address: &str) -> Self {
        let postgres: PostgresSettings = address.parse().unwrap();
        let settings = StoreSettings { postgres: Some(postgres), ..StoreSettings::default() };
        Node { folder: tempfile::tempdir().unwrap(), settings }
    }

    /// A node that reaches the database by a port that leads to it.
    fn by(port: u16) -> Self {
        Self::at(&format!("postgres://keylane@127.0.0.1:{port}/postgres?sslmode=disable"))
    }

    fn open(&self) -> (Store, RecoveredJobs) {
        self.try_open().unwrap()
    }

    fn try_open(&self) -> Result<(Store, RecoveredJobs), StoreOpenError> {
        Store::open(self.folder.path().join("node"), &self.settings)
    }
}

/// Ends a subtask of a job.
fn end_one(store: &Store, job: JobNumber, number: u32) -> Result<(), WriteError> {
    let mut changes = Changes::new();
    changes.ended(job, outcome(number, OutcomeKind::Succeeded));
    store.submit(changes).wait().map(drop)
}

/// Ends subtask 0 of a job.
fn end(store: &Store, job: JobNumber) -> Result<(), WriteError> {
    end_one(store, job, 0)
}

/// Ends a subtask, again as long as that is refused: a refusal means that it was not written.
fn end_at_last(store: &Store, job: JobNumber, number: u32) -> Result<(), WriteError> {
    loop {
        match end_one(store, job, number) {
            Err(WriteError::Busy) => {}
            ended => return ended,
        }
    }
}

/// Number of subtasks of a job whose subtasks all end.
const ENDS: u32 = 6_000;

/// Ends the subtasks of a job from several threads, and calls `disturb` after each `between` acknowledged ends. If a write fails, returns the
/// numbers of the subtasks whose ends were acknowledged, and the error.
fn end_all_while(
    store: &Store,
    job: JobNumber,
    between: usize,
    mut disturb: impl FnMut(),
) -> Result<(), (Vec<u32>, WriteError)> {
    let (next, failed) = (AtomicU32::new(0), Mutex::new(None));
    let (acknowledged, heard) = mpsc::channel();
    let mut all = Vec::new();
    thread::scope(|scope| {
        for _ in 0..4 {
            let acknowledged = acknowledged.clone();
            scope.spawn(|| {
                let acknowledged = acknowledged;
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= ENDS {
                        return;
                    }
                    if let Err(error) = end_at_last(store, job, number) {
                        *failed.lock().unwrap() = Some(error);
                        return;
                    }
                    acknowledged.send(number).unwrap();
                }
            });
        }
        drop(acknowledged);
        loop {
            let before = all.len();
            all.extend(heard.iter().take(between));
            if all.len() < before + between {
                break;
            }
            disturb();
        }
    });
    match failed.into_inner().unwrap() {
        Some(error) => Err((all, error)),
        None => Ok(()),
    }
}

/// Checks that a store has the end of each subtask of its job once, also after it was opened again.
fn check_all_ended(node: &Node, store: Store) {
    assert_eq!(store.failure(), None);
    // An outcome that was written twice is damage.
    assert_eq!(store.check().unwrap().damage, []);
    drop(store);
    let (_store, mut recovered) = node.open();
    let found = recovered.next_job().unwrap().unwrap();
    assert_eq!(found.counts().succeeded, ENDS);
}
