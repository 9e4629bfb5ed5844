//! State of a simulation that outlives the processes of the service.

use std::collections::{BTreeSet, HashMap};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::sync::Notify;

use super::clock::Clock;
use super::cuts::{Cuts, Part};
use super::history::{Entry, Event};
use super::storage::Storage;
use super::work::{Behaviour, JobSpec};
use keylane_testkit::Random;

#[derive(Debug)]
pub(super) struct World {
    pub(super) seed: u64,
    pub(super) cuts: Cuts,
    pub(super) clock: Clock,
    history: Mutex<Vec<Entry>>,
    process: AtomicU64,
    /// Whether the process has crashed: what its tasks still do has not happened.
    is_dead: AtomicBool,
    is_healed: AtomicBool,
    /// Event at which the process ends.
    fatal: Mutex<Option<Fatal>>,
    /// Notified when the process ends by a fault.
    pub(super) crashed: Notify,
    pub(super) disk: Mutex<DiskState>,
    pub(super) storage: Mutex<Storage>,
    /// Random numbers of the process: identifiers.
    random: Mutex<Random>,
    jobs: Mutex<Vec<JobSpec>>,
    /// Identifiers of accepted jobs.
    pub(super) accepted: Mutex<Vec<(usize, String)>>,
    commands: AtomicU64,
    batches: AtomicU64,
    faults: AtomicU64,
    /// Ids of webhooks that the receiver has refused.
    pub(super) refused_webhooks: Mutex<BTreeSet<String>>,
    /// Number of starts of each subtask.
    starts: Mutex<HashMap<(usize, u32), u64>>,
    /// Fences of the leases that the runners of all processes have had.
    pub(super) runner_leases: Mutex<BTreeSet<u64>>,
}

/// Event at which a process ends: while the disk is slow, what the event promises may be missing on
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fatal {
    LeaseStarted,
    Ended,
    Reported,
    Accepted,
    Commanded,
    FannedIn,
    Fired,
}

impl Fatal {
    pub(super) const ALL: [Fatal; 7] = [
        Fatal::LeaseStarted,
        Fatal::Ended,
        Fatal::Reported,
        Fatal::Accepted,
        Fatal::Commanded,
        Fatal::FannedIn,
        Fatal::Fired,
    ];

    fn is(self, event: &Event) -> bool {
        match event {
            Event::Started(run) => self == Fatal::LeaseStarted && run.is_lease,
            Event::Ended(..) => self == Fatal::Ended,
            Event::Reported { .. } => self == Fatal::Reported,
            Event::Accepted { .. } => self == Fatal::Accepted,
            Event::FannedIn { .. } => self == Fatal::FannedIn,
            Event::Followed(followed) => self == Fatal::Fired && followed.kind == "schedule_fired",
            Event::Commanded { .. } => self == Fatal::Commanded,
            _ => false,
        }
    }
}

/// Faults of the disk.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DiskState {
    pub(super) is_full: bool,
    pub(super) is_slow: bool,
    /// The process ends after the next write, before it answers.
    pub(super) crashes_after_write: bool,
}

impl World {
    pub(super) fn new(seed: u64, cuts: Cuts) -> Self {
        World {
            seed,
            cuts,
            clock: Clock::default(),
            history: Mutex::default(),
            process: AtomicU64::new(0),
            is_dead: AtomicBool::new(false),
            is_healed: AtomicBool::new(false),
            fatal: Mutex::default(),
            crashed: Notify::new(),
            disk: Mutex::default(),
            storage: Mutex::new(Storage::new()),
            random: Mutex::new(Random::of(seed, &[1])),
            jobs: Mutex::default(),
            accepted: Mutex::default(),
            commands: AtomicU64::new(0),
            batches: AtomicU64::new(0),
            faults: AtomicU64::new(0),
            refused_webhooks: Mutex::default(),
            starts: Mutex::default(),
            runner_leases: Mutex::default(),
        }
    }

    pub(super) fn record(&self, event: Event) {
        if self.is_dead.load(Relaxed) {
            return;
        }
        if self.fatal.lock().unwrap().take_if(|fatal| fatal.is(&event)).is_some() {
            self.crashed.notify_one();
        }
        let process = u32::try_from(self.process.load(Relaxed)).unwrap();
        let entry = Entry { at: self.clock.steady(), wall: self.clock.wall(), process, event };
        self.history.lock().unwrap().push(entry);
    }

    pub(super) fn history(&self) -> Vec<Entry> {
        self.history.lock().unwrap().clone()
    }

    /// Begins a process on the present runtime.
    pub(super) fn begin_process(&self, number: u64) {
        self.process.store(number, Relaxed);
        self.clock.begin();
        self.is_dead.store(false, Relaxed);
        *self.disk.lock().unwrap() = DiskState::default();
    }

    /// Lets the process end at the next event of a sort.
    pub(super) fn end_at(&self, fatal: Fatal) {
        *self.fatal.lock().unwrap() = Some(fatal);
        self.disk.lock().unwrap().is_slow = true;
    }

    /// Ends the present process: nothing that its tasks do from here on has happened.
    pub(super) fn end_process(&self) {
        self.is_dead.store(true, Relaxed);
        *self.fatal.lock().unwrap() = None;
    }

    /// Ends all faults; the wall clock no longer lags behind what it has shown before.
    pub(super) fn heal(&self) {
        if let Some(ms) = self.clock.catch_up() {
            self.record(Event::Set { ms });
        }
        self.record(Event::Healed);
        self.is_healed.store(true, Relaxed);
        *self.disk.lock().unwrap() = DiskState::default();
    }

    pub(super) fn is_healed(&self) -> bool {
        self.is_healed.load(Relaxed)
    }

    /// Notes that the process ends after the write that begins now.
    pub(super) fn write_begins(&self) {
        self.storage.lock().unwrap().write_begins();
    }

    /// Returns the time for which ended jobs are kept. Short in some simulations.
    pub(super) fn keep(&self) -> Duration {
        Duration::from_secs(if self.seed.is_multiple_of(4) { 20 } else { 7 * 24 * 3_600 })
    }

    pub(super) fn random(&self) -> u64 {
        self.random.lock().unwrap().number()
    }

    /// Adds a job and returns its number.
    pub(super) fn add_job(&self, spec: JobSpec) -> usize {
        let mut jobs = self.jobs.lock().unwrap();
        jobs.push(spec);
        jobs.len() - 1
    }

    pub(super) fn job(&self, number: usize) -> JobSpec {
        self.jobs.lock().unwrap()[number].clone()
    }

    pub(super) fn next_command(&self) -> u64 {
        self.commands.fetch_add(1, Relaxed)
    }

    pub(super) fn next_batch(&self) -> usize {
        self.batches.fetch_add(1, Relaxed) as usize
    }

    /// Counts a fault, and returns whether it is left out.
    pub(super) fn skips_fault(&self) -> bool {
        self.cuts.has(Part::Fault(self.faults.fetch_add(1, Relaxed)))
    }

    /// Returns the number of faults so far.
    pub(super) fn faults(&self) -> u64 {
        self.faults.load(Relaxed)
    }

    /// Returns the behaviour of the next attempt at a subtask.
    pub(super) fn behaviour(&self, job: usize, number: u32) -> Behaviour {
        let mut starts = self.starts.lock().unwrap();
        let start = starts.entry((job, number)).or_default();
        *start += 1;
        let part = [2, job as u64, u64::from(number), *start];
        let is_calm = self.is_healed() || self.cuts.has(Part::Failures);
        Behaviour::draw(&mut Random::of(self.seed, &part), is_calm)
    }
}
