//! Reading thread: submits the records to the pool in the order of the input, and waits while the
//! buffer is full.

use std::num::NonZeroU16;
use std::sync::Arc;

use anyhow::Context;
use keylane::{Claims, HandlerPool, Pool, Retry, TaskContext};

use crate::input::{InputFiles, InputRecord};
use crate::key::RecordKey;
use crate::record_keys::{KeyRules, RecordKeys};
use crate::run_stats::{RecordGroup, RecordLocation, RunStats};
use crate::worker::WorkerPool;

use super::batch_pace::RecordPace;
use super::batch_submitter::BatchSubmitter;
use super::command_task::{CommandRunner, CommandTask, TaskRecord};
use super::dispatched_record::RecordDetails;
use super::log::{LoggedKeys, LoggedResult, record_hash};
use super::logs::RunLogs;
use super::record_pool::RecordPool;
use super::record_sinks::RecordSinks;
use super::record_task::{LineTask, RecordBody};
use super::record_template::{RecordError, RecordTemplate};
use super::resume::RecordChoice;
use super::worker_events::RunObserver;
use super::worker_task::WaitingRecord;

/// Reads all of an input.
#[derive(Debug)]
pub(super) struct InputReader {
    pub(super) source: InputFiles,
    pub(super) keys: KeyRules,
    pub(super) plan: RecordTemplate,
    pub(super) stats: Arc<RunStats>,
    pub(super) order: RunOrder,
    pub(super) sinks: RecordSinks,
    /// Runner of commands, unless there are workers.
    pub(super) commands: Option<Arc<CommandRunner>>,
    pub(super) workers: Option<Arc<WorkerPool<RunObserver>>>,
    /// Whether workers need the details of a record.
    pub(super) has_details: bool,
    pub(super) logs: Arc<RunLogs>,
    /// Which records run, if the run continues an earlier one.
    pub(super) choice: Option<RecordChoice>,
    /// Way of records into batches, if there are any.
    pub(super) batches: Option<Arc<BatchSubmitter>>,
    /// Pace of the records of batches.
    pub(super) pace: Option<RecordPace>,
}

/// Order among the records of a run, beyond their keys.
#[derive(Debug, Clone, Copy)]
pub(super) struct RunOrder {
    /// Whether each record waits for the one before it, whatever their keys are.
    pub(super) is_sequential: bool,
    /// Whether a record replaces the waiting one of its key.
    pub(super) is_latest: bool,
    /// Maximum number of records of a key that run at once, without order.
    pub(super) limit_per_key: Option<NonZeroU16>,
}

impl InputReader {
    /// Gives every record to the pool, until the input or the pool ends.
    pub(super) fn read_all(mut self, pool: &RecordPool) -> anyhow::Result<()> {
        let outcome = self.read_records(pool);
        // No other record joins those that wait.
        self.batches.iter().for_each(|batches| batches.end());
        outcome
    }

    fn read_records(&mut self, pool: &RecordPool) -> anyhow::Result<()> {
        let mut record = InputRecord::default();
        while self.next(&mut record)? {
            let at = || format!("{}:{}", self.source.name(), record.line);
            let hash = if self.logs.has_log() { record_hash(&record.raw) } else { 0 };
            let runs = self.choice.as_ref().map_or(Ok(true), |choice| choice.runs(&record, hash));
            if !runs.with_context(at)? {
                continue;
            }
            let keys = self.keys.keys_of(&record).with_context(at)?;
            self.stats.read(&keys.first);
            self.stats.hot_keys.read(keys.all());
            if !self.accept(&record, hash, keys, pool)? {
                return Ok(());
            }
            self.pace.iter_mut().for_each(RecordPace::added);
        }
        Ok(())
    }

    /// Reads the next record, when its output may wait for its turn.
    fn next(&mut self, record: &mut InputRecord) -> anyhow::Result<bool> {
        if let Some(batches) = self.batches.as_ref().filter(|_| !self.sinks.output.has_room()) {
            // The output that holds up the others can be that of a batch that lingers.
            batches.submit_all();
        }
        self.sinks.output.wait_for_room();
        self.pace.iter().for_each(RecordPace::wait);
        // The wait may have ended with the run, which counts what it reads.
        if self.stats.is_stopping() {
            return Ok(false);
        }
        self.source.next(record)
    }

    /// Hands one record over; false if the pool takes no more.
    fn accept(
        &self,
        record: &InputRecord,
        hash: u64,
        keys: RecordKeys,
        pool: &RecordPool,
    ) -> anyhow::Result<bool> {
        let file = self.source.file().cloned();
        let place = RecordLocation { number: record.number, line: record.line, file, hash };
        let (sink, tagged) = self.sinks.sink(record, &place, &keys);
        let body = self.plan.body(record, keys.first.bytes());
        let is_accepted = match (tagged.map_err(RecordError::from).and(body), pool) {
            (Err(unfit), _) => {
                let why = unfit.to_string();
                let result = match sink.refuse(&why) {
                    Ok(()) => LoggedResult::Failed,
                    // The error ends the run, which reports it.
                    Err(_) => LoggedResult::Interrupted,
                };
                self.stats.refused(&RecordGroup::one(&place, &keys.first), &why);
                self.logs.without_attempt(&place, LoggedKeys::All(&keys), why, result)?;
                true
            }
            (Ok(RecordBody::Argv(argv)), RecordPool::Tasks(pool)) => {
                let runner = self.commands.as_ref().expect("commands have a runner");
                let claims = self.claims(&keys);
                let needs_record = runner.failures.needs_record();
                let raw = if needs_record { record.raw.clone() } else { Vec::new() };
                let task = CommandTask::new(runner, TaskRecord { place, raw }, keys, argv, sink);
                self.submit(pool, claims, task, runner.failures.retry())
            }
            (Ok(RecordBody::Line(line)), RecordPool::Lines(pool)) => {
                let details = self.details(record, &keys, &line);
                let (key, own_key) = match self.order.is_sequential {
                    true => (RecordKey::Serial, Some(keys.first)),
                    false => (keys.first, None),
                };
                self.send(pool, key, LineTask { place, own_key, line, sink, details })?
            }
            (Ok(RecordBody::Line(line)), RecordPool::Tasks(pool)) => {
                let workers = self.workers.as_ref().expect("lines have workers");
                let workers = Arc::clone(workers);
                let details = self.details(record, &keys, &line);
                let claims = self.claims(&keys);
                let task = LineTask { place, own_key: Some(keys.first), line, sink, details };
                let waiting = WaitingRecord::new(&self.stats, task);
                let give = move |task: TaskContext<'_>| waiting.give(&workers, task.keep());
                pool.execute_with_context(claims, give).is_ok()
            }
            (Ok(RecordBody::BatchLine(line)), _) => {
                let batches = self.batches.as_ref().expect("batches have a submitter");
                batches.add(line, place, keys, sink)
            }
            (Ok(_), RecordPool::Lines(_) | RecordPool::Batches { .. }) => {
                unreachable!("a pool of lines has workers, and one of batches has lines of batches")
            }
        };
        Ok(is_accepted && !self.stats.is_stopping())
    }

    /// Details of a record for workers, if they are needed.
    fn details(
        &self,
        record: &InputRecord,
        keys: &RecordKeys,
        line: &[u8],
    ) -> Option<Box<RecordDetails>> {
        let workers = self.workers.as_ref().filter(|_| self.has_details)?;
        let failures = &workers.observer.failures;
        let raw = if failures.needs_record() { record.raw.clone() } else { Vec::new() };
        let line = if failures.retry().is_some() { line.to_vec() } else { Vec::new() };
        Some(Box::new(RecordDetails { keys: keys.clone(), raw, line, attempts: 0 }))
    }

    /// Sends a record with one key; false if the pool takes no more.
    fn send(
        &self,
        pool: &HandlerPool<RecordKey, LineTask>,
        key: RecordKey,
        task: LineTask,
    ) -> anyhow::Result<bool> {
        let is_latest = self.order.is_latest && matches!(key, RecordKey::Named(_));
        if !is_latest {
            let is_accepted = pool.send(key, task).is_ok();
            self.stats.not_run(u64::from(!is_accepted));
            return Ok(is_accepted);
        }
        match pool.send_latest(key.clone(), task) {
            Ok(Some(replaced)) => self.replaced(&replaced, &key)?,
            Ok(None) => {}
            Err(_) => {
                self.stats.not_run(1);
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Counts and logs a record for a worker as replaced.
    fn replaced(&self, task: &LineTask, key: &RecordKey) -> anyhow::Result<()> {
        self.stats.replaced();
        let keys = match &task.details {
            Some(details) => LoggedKeys::All(&details.keys),
            None => LoggedKeys::One(key),
        };
        self.logs.without_attempt(
            &task.place,
            keys,
            "a later record of the key replaced it".to_owned(),
            LoggedResult::Replaced,
        )
    }

    fn claims(&self, keys: &RecordKeys) -> Claims<RecordKey> {
        match self.order.is_sequential {
            true => Claims::exclusive(RecordKey::Serial),
            false => keys.claims(self.order.limit_per_key),
        }
    }

    /// Submits a record; false if the pool takes no more, and the task has counted itself.
    fn submit(
        &self,
        pool: &Pool<RecordKey>,
        claims: Claims<RecordKey>,
        mut work: CommandTask,
        retry: Option<Retry>,
    ) -> bool {
        // Records without a key have nothing in common that a later one could replace.
        let has_key = matches!(work.first_key(), RecordKey::Named(_));
        let task = pool.task(claims);
        let task = if self.order.is_latest && has_key { task.latest() } else { task };
        match retry {
            Some(retry) => task.fallible().retry(retry).execute(move || work.attempt()).is_ok(),
            None => task
                .execute(move || {
                    let ended = work.attempt();
                    ended.expect("there is one attempt");
                })
                .is_ok(),
        }
    }
}
