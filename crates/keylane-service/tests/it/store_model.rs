//! Whatever is done to a store, in whatever order, and however often it is closed, killed and opened
//! again: it has what a plain model has.

use std::collections::{BTreeMap, HashMap};
use std::sync::mpsc;

use crate::store_support::{
    NOW, claims, copy_as_is, keys, new_job, open, open_with, outcome, payload, place, upload,
    waiting,
};
use keylane_service::store::{
    AttemptLog, Changes, IdempotencyEntry, JobState, JobStatus, JobUpload, KeyBlockReason,
    KeyRecord, OutcomeCounts, OutcomeKind, RecoveredJobs, Store, StoreSettings, SubtaskOutcome,
    WriteError,
};
use keylane_service::{JobId, JobNumber, Key, SubtaskId};
use proptest::prelude::*;
use tempfile::TempDir;

/// A plain store.
#[derive(Default)]
struct Model {
    /// In the order in which they have entered.
    entered: Vec<JobNumber>,
    jobs: BTreeMap<JobNumber, ModelJob>,
    keys: BTreeMap<Vec<u8>, KeyRecord>,
    idempotency: HashMap<String, (IdempotencyEntry, JobId)>,
}

struct ModelJob {
    total: u32,
    status: JobStatus,
    recorded: Vec<SubtaskOutcome>,
    /// By subtask, what it has ended with.
    ended: BTreeMap<u32, SubtaskOutcome>,
    /// How often each was begun, of those that have not ended since.
    attempts: BTreeMap<u32, u32>,
    /// What they said.
    logs: BTreeMap<u32, Vec<AttemptLog>>,
}

impl ModelJob {
    fn counts(&self) -> OutcomeCounts {
        let of = |kind| self.ended.values().filter(|one| one.kind == kind).count() as u32;
        OutcomeCounts {
            succeeded: of(OutcomeKind::Succeeded),
            failed: of(OutcomeKind::Failed),
            cancelled: of(OutcomeKind::Cancelled),
            skipped: of(OutcomeKind::Skipped),
            superseded: of(OutcomeKind::Superseded),
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// A job with this number of subtasks, perhaps under an idempotency key.
    Accept {
        total: u32,
        key: Option<u8>,
    },
    /// An upload that is left open, one that is finished, one that is dropped.
    Begin {
        total: u32,
    },
    Finish,
    DropUpload,
    /// Something of the job with this index among those there are.
    Start {
        job: prop::sample::Index,
        number: u32,
    },
    End {
        job: prop::sample::Index,
        numbers: Vec<u32>,
        kind: usize,
    },
    Say {
        job: prop::sample::Index,
        number: u32,
    },
    Status {
        job: prop::sample::Index,
        state: usize,
    },
    Reopen {
        job: prop::sample::Index,
    },
    /// One that was put off begins.
    Enter {
        job: prop::sample::Index,
    },
    /// This number of further subtasks.
    Extend {
        job: prop::sample::Index,
        more: u32,
    },
    Purge {
        job: prop::sample::Index,
    },
    Key {
        key: u8,
        paused: bool,
    },
    /// Closed and opened again; or copied as it is, as after a kill, and the copy gone on with.
    Reopened,
    Killed,
    /// Everything is compared.
    Look,
}

fn step() -> impl Strategy<Value = Step> {
    let index = any::<prop::sample::Index>;
    let total = || prop_oneof![4 => 0u32..6, 1 => 1000u32..3000];
    prop_oneof![
        4 => (total(), prop::option::weighted(0.3, 0u8..4))
            .prop_map(|(total, key)| Step::Accept { total, key }),
        1 => total().prop_map(|total| Step::Begin { total }),
        1 => Just(Step::Finish),
        1 => Just(Step::DropUpload),
        3 => (index(), 0u32..8).prop_map(|(job, number)| Step::Start { job, number }),
        4 => (index(), prop::collection::vec(0u32..8, 1..6), 0usize..4)
            .prop_map(|(job, numbers, kind)| Step::End { job, numbers, kind }),
        2 => (index(), 0u32..4).prop_map(|(job, number)| Step::Say { job, number }),
        3 => (index(), 0usize..6).prop_map(|(job, state)| Step::Status { job, state }),
        1 => index().prop_map(|job| Step::Reopen { job }),
        1 => index().prop_map(|job| Step::Enter { job }),
        1 => (index(), total()).prop_map(|(job, more)| Step::Extend { job, more }),
        1 => index().prop_map(|job| Step::Purge { job }),
        1 => (0u8..4, any::<bool>()).prop_map(|(key, paused)| Step::Key { key, paused }),
        1 => Just(Step::Reopened),
        1 => Just(Step::Killed),
        1 => Just(Step::Look),
    ]
}

/// A store, and the model of it.
struct Both {
    model: Model,
    store: Option<Store>,
    open: Option<(JobUpload, u32)>,
    path: std::path::PathBuf,
    _folder: TempDir,
    highest: JobNumber,
    /// How often it was opened.
    boots: u64,
    /// The number of the last opening.
    boot: u64,
}

impl Both {
    fn new() -> Self {
        let (folder, path) = place();
        let (store, _) = open(&path);
        Both {
            model: Model::default(),
            store: Some(store),
            open: None,
            path,
            _folder: folder,
            highest: JobNumber(0),
            boots: 1,
            boot: 0,
        }
    }

    fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Accept { total, key } => {
                let upload = upload(self.store(), total);
                let key = key.map(|key| format!("key {key}"));
                self.accept(upload, total, key);
            }
            Step::Begin { total } => self.open = Some((upload(self.store(), total), total)),
            Step::Finish => {
                if let Some((upload, total)) = self.open.take() {
                    self.accept(upload, total, None);
                }
            }
            Step::DropUpload => self.open = None,
            Step::Start { job, number } => self.start(job, number),
            Step::End { job, numbers, kind } => self.end(job, &numbers, OutcomeKind::ALL[kind]),
            Step::Say { job, number } => self.say(job, number),
            Step::Status { job, state } => self.status(job, JobState::ALL[state]),
            Step::Reopen { job } => self.reopen(job),
            Step::Enter { job } => self.enter(job),
            Step::Extend { job, more } => self.extend(job, more),
            Step::Purge { job } => self.purge(job),
            Step::Key { key, paused } => self.key(key, paused),
            Step::Reopened => self.reopened(),
            Step::Killed => self.killed(),
            Step::Look => self.look(),
        }
    }

    fn accept(&mut self, upload: JobUpload, total: u32, key: Option<String>) {
        let (job, id) = (upload.job(), upload.id());
        assert!(!self.model.jobs.contains_key(&job), "{job:?} was given before");
        self.highest = self.highest.max(job);
        let idempotency = key.map(|key| IdempotencyEntry {
            scope: "scope".into(),
            key,
            body_hash: [total as u8; 32],
            expires_ms: NOW + 1_000_000_000,
        });
        let mut new = new_job(job);
        new.idempotency = idempotency.clone();
        let answer = upload.finish(new).wait();
        if let Some(entry) = idempotency {
            if let Some((known, id)) = self.model.idempotency.get(&entry.key) {
                let duplicate = WriteError::Duplicate { job: *id, body_hash: known.body_hash };
                return assert_eq!(answer, Err(duplicate));
            }
            self.model.idempotency.insert(entry.key.clone(), (entry, id));
        }
        answer.unwrap();
        let known = ModelJob {
            total,
            status: JobStatus::WAITING,
            recorded: Vec::new(),
            ended: BTreeMap::new(),
            attempts: BTreeMap::new(),
            logs: BTreeMap::new(),
        };
        self.model.jobs.insert(job, known);
        self.model.entered.push(job);
    }

    /// It is behind all others now.
    fn goes_behind(&mut self, job: JobNumber) {
        self.model.entered.retain(|other| *other != job);
        self.model.entered.push(job);
    }

    fn job(&self, index: prop::sample::Index) -> Option<JobNumber> {
        let jobs: Vec<_> = self.model.jobs.keys().copied().collect();
        (!jobs.is_empty()).then(|| *index.get(&jobs))
    }

    /// Writes it, and says whether the model is to have it too; or makes sure that it was refused.
    fn write(&self, with: impl FnOnce(&mut Changes), expected: Result<(), WriteError>) -> bool {
        let mut changes = Changes::new();
        with(&mut changes);
        let answer = self.store().submit(changes).wait().map(drop);
        assert_eq!(answer, expected);
        answer.is_ok()
    }

    /// What a job says to something that is about these subtasks.
    fn expected(&self, job: JobNumber, numbers: &[u32]) -> Result<(), WriteError> {
        let known = &self.model.jobs[&job];
        if known.status.state.is_final() {
            return Err(WriteError::Ended { job });
        }
        let total = known.total;
        match numbers.iter().find(|number| **number >= total) {
            Some(number) => Err(WriteError::NoSuchSubtask { job, number: *number, total }),
            None => Ok(()),
        }
    }

    fn start(&mut self, index: prop::sample::Index, number: u32) {
        let Some(job) = self.job(index) else { return };
        let attempt = self.model.jobs[&job].attempts.get(&number).unwrap_or(&0) + 1;
        let subtask = SubtaskId { job, number };
        let expected = self.expected(job, &[number]);
        if self.write(|changes| changes.started(subtask, attempt), expected) {
            let known = self.model.jobs.get_mut(&job).unwrap();
            known.attempts.insert(number, attempt);
        }
    }

    fn end(&mut self, index: prop::sample::Index, numbers: &[u32], kind: OutcomeKind) {
        let Some(job) = self.job(index) else { return };
        // Each once: the code that runs them sees to that.
        let known = &self.model.jobs[&job];
        let mut fresh: Vec<u32> =
            numbers.iter().copied().filter(|number| !known.ended.contains_key(number)).collect();
        fresh.sort_unstable();
        fresh.dedup();
        let outcomes: Vec<_> = fresh.iter().map(|number| outcome(*number, kind)).collect();
        let expected = if fresh.is_empty() { Ok(()) } else { self.expected(job, &fresh) };
        let changes = outcomes.clone();
        let write = |to: &mut Changes| changes.into_iter().for_each(|one| to.ended(job, one));
        if self.write(write, expected) {
            let known = self.model.jobs.get_mut(&job).unwrap();
            for one in outcomes {
                known.attempts.remove(&one.number);
                known.ended.insert(one.number, one.clone());
                known.recorded.push(one);
            }
        }
    }

    /// Of a subtask that there is not, nothing is kept.
    fn say(&mut self, index: prop::sample::Index, number: u32) {
        let Some(job) = self.job(index) else { return };
        let known = self.model.jobs.get_mut(&job).unwrap();
        let fence = known.logs.values().map(Vec::len).sum::<usize>() as u64;
        let log = AttemptLog {
            number,
            fence,
            attempt: 1,
            kind: OutcomeKind::Failed,
            started_ms: NOW,
            ended_ms: NOW + fence,
            left_out: fence,
            text: format!("<said {number} {fence}>").into(),
        };
        if number < known.total {
            known.logs.entry(number).or_default().push(log.clone());
        }
        self.write(|changes| changes.said(job, log), Ok(()));
    }

    fn status(&mut self, index: prop::sample::Index, state: JobState) {
        let Some(job) = self.job(index) else { return };
        let known = &self.model.jobs[&job];
        let ended_ms = state.is_final().then_some(NOW + 1);
        let status = JobStatus { ended_ms, counts: known.counts(), ..JobStatus::of(state) };
        let expected = self.expected(job, &[]);
        if self.write(|changes| changes.status(job, status), expected) {
            let known = self.model.jobs.get_mut(&job).unwrap();
            known.status = status;
            if state.is_final() {
                known.attempts.clear();
            }
        }
    }

    /// All that has failed.
    fn reopen(&mut self, index: prop::sample::Index) {
        let Some(job) = self.job(index) else { return };
        let known = &self.model.jobs[&job];
        let failed = known.ended.values().filter(|one| one.kind == OutcomeKind::Failed);
        let failed: Vec<_> = failed.map(|one| one.number).collect();
        let is_over = known.status.state.is_final();
        let expected = if is_over { Ok(()) } else { Err(WriteError::NotEnded { job }) };
        let numbers = failed.clone();
        if !self.write(|changes| changes.reopen(job, numbers, NOW, JobStatus::WAITING), expected) {
            return;
        }
        let known = self.model.jobs.get_mut(&job).unwrap();
        known.status = JobStatus::WAITING;
        for number in &failed {
            known.ended.remove(number);
            known.attempts.remove(number);
            known.recorded.push(SubtaskOutcome {
                number: *number,
                attempt: 0,
                kind: OutcomeKind::Reopened,
                started_ms: NOW,
                ended_ms: NOW,
                result: Vec::new(),
            });
        }
        self.goes_behind(job);
    }

    fn enter(&mut self, index: prop::sample::Index) {
        let Some(job) = self.job(index) else { return };
        let expected = self.expected(job, &[]);
        if self.write(|changes| changes.enter(job, JobStatus::WAITING), expected) {
            self.model.jobs.get_mut(&job).unwrap().status = JobStatus::WAITING;
            self.goes_behind(job);
        }
    }

    fn extend(&mut self, index: prop::sample::Index, more: u32) {
        let Some(job) = self.job(index) else { return };
        let total = self.model.jobs[&job].total;
        let mut extension = self.store().extend(job, total);
        let (tell, told) = mpsc::channel();
        let bring = async {
            for number in total..total + more {
                extension.push_claims(&claims(&keys(job, number)), &payload(job, number)).unwrap();
                extension.flush_async().await.unwrap();
            }
            extension.finish_with(move |written| tell.send(written).unwrap()).await.unwrap();
        };
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(bring);
        told.recv().unwrap().unwrap();
        self.model.jobs.get_mut(&job).unwrap().total += more;
        self.goes_behind(job);
    }

    fn purge(&mut self, index: prop::sample::Index) {
        let Some(job) = self.job(index) else { return };
        let is_over = self.model.jobs[&job].status.state.is_final();
        let expected = if is_over { Ok(()) } else { Err(WriteError::NotEnded { job }) };
        if self.write(|changes| changes.purge(job), expected) {
            self.model.jobs.remove(&job);
            self.model.entered.retain(|other| *other != job);
        }
    }

    fn key(&mut self, key: u8, paused: bool) {
        let name = vec![key; 3];
        let record = KeyRecord {
            state: if key == 0 { KeyBlockReason::Stopped } else { KeyBlockReason::Paused },
            since_ms: u64::from(key),
            reason: format!("reason {key}"),
        };
        let said = paused.then(|| record.clone());
        self.write(|changes| changes.key(Key::new(&name), said), Ok(()));
        if paused {
            self.model.keys.insert(name, record);
        } else {
            self.model.keys.remove(&name);
        }
    }

    fn reopened(&mut self) {
        self.open = None;
        self.store = None;
        self.recover(true);
    }

    /// The copy is gone on with. Its upload, if there is one, has crashed with the process.
    fn killed(&mut self) {
        // So that nothing is being written while it is copied.
        self.write(|_| (), Ok(()));
        let (folder, path) = copy_as_is(&self.path);
        self.open = None;
        self.store = None;
        (self._folder, self.path) = (folder, path);
        self.recover(false);
    }

    fn recover(&mut self, clean: bool) {
        // Sometimes with nothing in memory.
        let max_cache_bytes = if self.boots.is_multiple_of(2) { 0 } else { 1 << 20 };
        let settings = StoreSettings { max_cache_bytes, ..StoreSettings::default() };
        let (store, recovered) = open_with(&self.path, settings).unwrap();
        self.boots += 1;
        assert!(store.boot() > self.boot);
        self.boot = store.boot();
        assert_eq!(recovered.was_clean(), clean);
        self.store = Some(store);
        self.look_at(recovered);
        self.look();
    }

    fn look_at(&self, mut recovered: RecoveredJobs) {
        let keys = recovered.keys().iter().map(|(key, record)| (key.0.to_vec(), record.clone()));
        assert_eq!(keys.collect::<BTreeMap<_, _>>(), self.model.keys);
        for job in &self.model.entered {
            let known = &self.model.jobs[job];
            if known.status.state.is_final() {
                continue;
            }
            let one = recovered.next_job().unwrap().unwrap();
            assert_eq!(one.job.number, *job);
            assert_eq!(one.counts(), known.counts());
            let numbers = (0..known.total).filter(|number| !known.ended.contains_key(number));
            let found = waiting(&one);
            assert!(found.iter().map(|(number, _)| *number).eq(numbers));
            for (number, attempts) in found {
                assert_eq!(attempts, known.attempts.get(&number).copied().unwrap_or(0));
            }
        }
        assert!(recovered.next_job().unwrap().is_none());
        recovered.taken_over();
    }

    fn look(&self) {
        let store = self.store();
        let report = store.check().unwrap();
        assert_eq!(report.damage, []);
        assert_eq!(report.jobs, self.model.jobs.len() as u64);
        for (number, known) in &self.model.jobs {
            let job = store.job(*number).unwrap().unwrap();
            assert_eq!((job.total, job.status), (known.total, known.status));
            let recorded = store.outcomes(*number, None, usize::MAX).unwrap();
            assert!(recorded.iter().map(|one| &one.outcome).eq(&known.recorded));
            let mut counting = store.that_count(*number, recorded).unwrap();
            counting.sort_by_key(|one| one.outcome.number);
            assert!(counting.iter().map(|one| &one.outcome).eq(known.ended.values()));
            let by_number = store.outcomes_of(*number, 0..known.total).unwrap();
            let expected = (0..known.total).map(|number| known.ended.get(&number).cloned());
            assert!(by_number.into_iter().eq(expected));
            for subtask in 0..known.total.min(4) {
                let said = known.logs.get(&subtask).cloned().unwrap_or_default();
                assert_eq!(store.logs(*number, subtask).unwrap(), said);
            }
            if let Some(last) = known.total.checked_sub(1) {
                let chunk = store.chunk(*number, last).unwrap();
                let subtask = chunk.subtask(last).unwrap();
                assert_eq!(subtask.payload(), payload(*number, last));
                assert!(subtask.keys().eq(claims(&keys(*number, last))));
            }
        }
        for (key, known) in &self.model.idempotency {
            assert_eq!(store.idempotent("scope", key).unwrap().as_ref(), Some(known));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn it_has_what_the_model_has(steps in prop::collection::vec(step(), 1..60)) {
        let mut both = Both::new();
        steps.into_iter().for_each(|step| both.take(step));
        both.killed();
        both.reopened();
    }
}
