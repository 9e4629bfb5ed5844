//! A store after a power failure: accepted jobs, ended and begun subtasks, held keys and boot
//! numbers are there, and nothing is half there.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;

use keylane_service::store::{
    Changes, KeyBlockReason, KeyRecord, OutcomeKind, RecoveredJobs, Store, StoreSettings,
};
use keylane_service::{JobNumber, Key, SubtaskId};
use keylane_testkit::Random;
use keylane_testkit::power_loss::{Crashed, Recording, SyncPoint, Trace, check_all, check_needed};

use crate::store_support::{NOW, claims, keys, new_job, outcome, payload, waiting};

const NAME: &str = "a.store";

/// What the store has promised.
#[derive(Clone, Debug)]
enum Fact {
    /// The job is accepted.
    Accepted { job: JobNumber, total: u32 },
    /// The subtask has ended.
    Ended(SubtaskId),
    /// The attempt at the subtask has begun.
    Begun(SubtaskId, u32),
    /// The key is held.
    Held(u64),
    /// Fences of this boot number were given out.
    Boot(u64),
}

/// Unfinished jobs: the waiting subtasks of each, with the number of their last attempt.
type Jobs = BTreeMap<JobNumber, BTreeMap<u32, u32>>;

/// Runs of a store: opened, used, closed or killed, and opened again.
struct Run {
    recording: Option<Recording>,
    random: Random,
    facts: RefCell<Vec<Fact>>,
    jobs: Jobs,
}

impl Run {
    fn start(seed: u64) -> Run {
        let (recording, random) = (Some(Recording::start()), Random::new(seed));
        Run { recording, random, facts: RefCell::default(), jobs: Jobs::new() }
    }

    fn recording(&self) -> &Recording {
        self.recording.as_ref().unwrap()
    }

    fn note(&self, fact: Fact) {
        let mut facts = self.facts.borrow_mut();
        facts.push(fact);
        self.recording().note(facts.len() as u64 - 1);
    }

    /// Opens the store. Everything that can be read is promised, whatever process wrote it.
    fn open(&mut self) -> Result<Store, String> {
        let path = self.recording().folder().join(NAME);
        let (store, mut recovered) =
            Store::open(path, &StoreSettings::default()).map_err(|error| error.to_string())?;
        self.note(Fact::Boot(store.boot()));
        self.jobs = read(&mut recovered)?;
        for (job, waiting) in &self.jobs {
            let total = store.job(*job).unwrap().unwrap().total;
            self.note(Fact::Accepted { job: *job, total });
            let subtask = |number| SubtaskId { job: *job, number };
            for number in (0..total).filter(|number| !waiting.contains_key(number)) {
                self.note(Fact::Ended(subtask(number)));
            }
            for (number, attempt) in waiting {
                self.note(Fact::Begun(subtask(*number), *attempt));
            }
        }
        Ok(store)
    }

    /// Submits changes at random, up to a failure.
    fn work(&mut self, store: &Store) {
        for _ in 0..=self.random.below(8) {
            match self.random.below(7) {
                0..=2 => self.accept(store),
                3 => {
                    let key = self.random.number() % 5;
                    let record = KeyRecord {
                        state: KeyBlockReason::Paused,
                        since_ms: NOW,
                        reason: "why".into(),
                    };
                    let mut changes = Changes::new();
                    changes.key(Key::new(key.to_le_bytes()), Some(record));
                    self.submit(store, changes, Fact::Held(key));
                }
                4 => {
                    let boot = store.boot() + 1;
                    let mut changes = Changes::new();
                    changes.raise_boot(boot);
                    self.submit(store, changes, Fact::Boot(boot));
                }
                _ => self.run_subtask(store),
            }
        }
    }

    fn submit(&self, store: &Store, changes: Changes, fact: Fact) {
        if store.submit(changes).wait().is_ok() {
            self.note(fact);
        }
    }

    fn accept(&mut self, store: &Store) {
        let total = if self.random.once_in(6) { 1500 } else { 1 + self.random.below(4) as u32 };
        let Ok(mut upload) = store.upload(NOW) else { return };
        let job = upload.job();
        for number in 0..total {
            if upload.push_claims(&claims(&keys(job, number)), &payload(job, number)).is_err() {
                return;
            }
        }
        if upload.finish(new_job(job)).wait().is_ok() {
            self.note(Fact::Accepted { job, total });
            self.jobs.insert(job, (0..total).map(|number| (number, 0)).collect());
        }
    }

    /// Begins or ends a waiting subtask.
    fn run_subtask(&mut self, store: &Store) {
        let Some(at) = self.jobs.len().checked_sub(1) else { return };
        let chosen = self.random.below(at + 1);
        let (job, waiting) = self.jobs.iter_mut().nth(chosen).unwrap();
        let Some((number, attempt)) = waiting.iter_mut().next() else { return };
        let subtask = SubtaskId { job: *job, number: *number };
        let mut changes = Changes::new();
        let fact = if self.random.once_in(2) {
            *attempt += 1;
            changes.started(subtask, *attempt);
            Fact::Begun(subtask, *attempt)
        } else {
            waiting.pop_first();
            changes.ended(subtask.job, outcome(subtask.number, OutcomeKind::Succeeded));
            Fact::Ended(subtask)
        };
        self.submit(store, changes, fact);
    }

    /// Ends the process at a random moment of its life.
    fn kill(&mut self) {
        let trace = self.recording.take().unwrap().finish();
        let at = trace.len() - self.random.below(trace.len().min(200));
        self.recording = Some(Recording::after_kill(&trace, at));
    }

    fn finish(mut self) -> (Trace, Vec<Fact>) {
        (self.recording.take().unwrap().finish(), self.facts.into_inner())
    }
}

fn read(recovered: &mut RecoveredJobs) -> Result<Jobs, String> {
    let mut jobs = Jobs::new();
    while let Some(job) = recovered.next_job().map_err(|error| error.to_string())? {
        jobs.insert(job.job.number, waiting(&job).into_iter().collect());
    }
    Ok(jobs)
}

/// Checks a store after a power failure against the promises before it.
fn check(crashed: &Crashed, facts: &[Fact]) -> Result<(), String> {
    let known: Vec<_> = crashed.notes().iter().map(|note| &facts[*note as usize]).collect();
    let path = crashed.folder().join(NAME);
    let boots = known.iter().filter_map(|fact| match fact {
        Fact::Boot(boot) => Some(*boot),
        _ => None,
    });
    let highest = boots.max().unwrap_or(0);
    let beside = highest_boot(&path);
    if beside < highest {
        return Err(format!("fences of boot {highest} were given out, and -boot has {beside}"));
    }
    let (store, mut recovered) =
        Store::open(&path, &StoreSettings::default()).map_err(|error| error.to_string())?;
    if store.boot() <= highest {
        return Err(format!("boot {} after {highest}", store.boot()));
    }
    let keys: Vec<_> = recovered.keys().iter().map(|(key, _)| key.clone()).collect();
    let jobs = read(&mut recovered)?;
    let damage = store.check().map_err(|error| error.to_string())?.damage;
    if !damage.is_empty() {
        return Err(format!("{damage:?}"));
    }
    for fact in known {
        let waits = |one: &SubtaskId| jobs.get(&one.job).and_then(|job| job.get(&one.number));
        let is_kept = match fact {
            Fact::Accepted { job, total } => {
                store.job(*job).map_err(|error| error.to_string())?.map(|job| job.total)
                    == Some(*total)
            }
            Fact::Ended(one) => waits(one).is_none(),
            Fact::Begun(one, attempt) => waits(one).is_none_or(|found| found >= attempt),
            Fact::Held(key) => keys.contains(&Key::new(key.to_le_bytes())),
            Fact::Boot(_) => true,
        };
        if !is_kept {
            return Err(format!("{fact:?} is lost"));
        }
    }
    Ok(())
}

/// Returns the number in the file `-boot` of a store, 0 if it has none. `store/boot_number.rs` has its
/// layout.
fn highest_boot(store: &Path) -> u64 {
    let path = format!("{}-boot", store.display());
    let bytes = std::fs::read(path).unwrap_or_default();
    let is_whole = bytes.len() == 16 && crc32c::crc32c(&bytes[..12]).to_le_bytes() == bytes[12..];
    if is_whole { u64::from_le_bytes(bytes[4..12].try_into().unwrap()) } else { 0 }
}

/// Several processes after each other, some of them killed.
fn used(seed: u64) -> (Trace, Vec<Fact>) {
    let mut run = Run::start(seed);
    for _ in 0..=run.random.below(3) {
        let store = run.open().unwrap();
        run.work(&store);
        drop(store);
        if run.random.once_in(2) {
            run.kill();
        }
    }
    run.finish()
}

#[test]
fn nothing_acknowledged_or_read_is_lost() {
    check_all(40, used, |crashed, facts| check(crashed, facts));
}

/// A sync fails; the process goes on as it can, ends, and another one continues.
fn used_with_failing_sync(seed: u64) -> (Trace, Vec<Fact>) {
    let mut run = Run::start(seed);
    run.recording().fail_sync(Random::new(seed).below(16));
    for _ in 0..3 {
        if let Ok(store) = run.open() {
            run.work(&store);
        }
    }
    run.finish()
}

#[test]
fn nothing_acknowledged_is_lost_after_a_failed_sync() {
    // A file whose creation has failed promises nothing, and may be refused.
    check_all(40, used_with_failing_sync, |crashed, facts| match crashed.notes() {
        [] => Ok(()),
        _ => check(crashed, facts),
    });
}

fn used_twice(seed: u64) -> (Trace, Vec<Fact>) {
    let mut run = Run::start(seed);
    for _ in 0..2 {
        let store = run.open().unwrap();
        run.accept(&store);
        drop(store);
    }
    run.finish()
}

#[test]
fn the_sync_of_a_commit_is_needed() {
    let log = |sync: SyncPoint<'_>| sync == SyncPoint::File("a.store-wal");
    check_needed("the sync of the log", log, used_twice, |crashed, facts| check(crashed, facts));
}

#[test]
fn the_sync_of_a_checkpoint_is_needed() {
    let file = |sync: SyncPoint<'_>| sync == SyncPoint::File(NAME);
    check_needed("the sync of the file", file, used_twice, |crashed, facts| check(crashed, facts));
}

#[test]
fn the_sync_of_the_boot_number_is_needed() {
    let boot = |sync: SyncPoint<'_>| sync == SyncPoint::File("a.store-boot");
    check_needed("the sync of the boot number", boot, used_twice, |crashed, facts| {
        check(crashed, facts)
    });
}

#[test]
fn the_sync_of_the_folder_is_needed() {
    let folder = |sync: SyncPoint<'_>| sync == SyncPoint::Folder;
    check_needed("the sync of the folder", folder, used_twice, |crashed, facts| {
        check(crashed, facts)
    });
}

/// More than the log holds between two checkpoints, so that another thread copies it meanwhile.
fn filled(seed: u64) -> (Trace, Vec<Fact>) {
    let run = Run::start(seed);
    let path = run.recording().folder().join(NAME);
    let store = Store::open(path, &StoreSettings::default()).unwrap().0;
    for _ in 0..14 {
        let mut upload = store.upload(NOW).unwrap();
        let job = upload.job();
        let keys: [&[u8]; 0] = [];
        for number in 0..3_u32 {
            upload.push(&keys, &vec![number as u8; 500_000]).unwrap();
        }
        upload.finish(new_job(job)).wait().unwrap();
        run.note(Fact::Accepted { job, total: 3 });
    }
    drop(store);
    run.finish()
}

/// Checks the jobs of a large store, whose payloads differ from those of the others.
fn check_filled(crashed: &Crashed, facts: &[Fact]) -> Result<(), String> {
    let path = crashed.folder().join(NAME);
    let (store, _) =
        Store::open(&path, &StoreSettings::default()).map_err(|error| error.to_string())?;
    let report = store.check().map_err(|error| error.to_string())?;
    if !report.damage.is_empty() || report.jobs < crashed.notes().len() as u64 {
        return Err(format!("{report:?} after {} of {facts:?}", crashed.notes().len()));
    }
    Ok(())
}

#[test]
fn a_checkpoint_beside_the_writer_loses_nothing() {
    let (trace, facts) = filled(0);
    assert!(trace.syncs(|sync| sync == SyncPoint::File(NAME)) > 2, "no checkpoint");
    for seed in 0..10 {
        let crashed = trace.crash_anywhere(seed);
        check_filled(&crashed, &facts).unwrap_or_else(|why| panic!("{:?}: {why}", crashed.moment));
    }
}
