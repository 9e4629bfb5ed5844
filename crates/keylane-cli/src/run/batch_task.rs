//! Task of the pool for a batch: gathers its records when it starts, and runs their command.

use std::sync::Arc;

use super::batch_queue::{BatchQueue, BatchRecord};
use super::command_task::{CommandRunner, CommandTask, FollowedByAttempt, TaskRecord};
use super::record_bound::RecordPermit;
use super::record_template::RecordTemplate;
use super::waiting_batches::BatchNumber;

/// What the batches of a run have in common.
#[derive(Debug)]
pub(super) struct BatchRunner {
    pub(super) queue: Arc<BatchQueue>,
    pub(super) commands: Arc<CommandRunner>,
    /// Arguments of the command.
    pub(super) template: RecordTemplate,
}

/// A batch that is ready. Dropped before its start, its records count as not run.
#[derive(Debug)]
pub(super) struct BatchTask {
    runner: Arc<BatchRunner>,
    number: BatchNumber,
    started: Option<StartedBatch>,
}

#[derive(Debug)]
struct StartedBatch {
    command: CommandTask,
    /// Free the places of the records when the batch has ended.
    _permits: Vec<RecordPermit>,
}

impl BatchTask {
    pub(super) fn new(runner: &Arc<BatchRunner>, number: BatchNumber) -> Self {
        BatchTask { runner: Arc::clone(runner), number, started: None }
    }

    /// Runs the next attempt.
    ///
    /// # Errors
    /// If it has failed and another one follows.
    pub(super) fn attempt(&mut self) -> Result<(), FollowedByAttempt> {
        if self.started.is_none() {
            self.started = self.runner.start(self.number);
        }
        // The records of a run that stops may be gone.
        self.started.as_mut().map_or(Ok(()), |started| started.command.attempt())
    }
}

impl BatchRunner {
    /// Takes the records of a batch, which are complete from now on.
    fn start(&self, number: BatchNumber) -> Option<StartedBatch> {
        let mut records = self.queue.take(number).into_iter();
        let first = records.next()?;
        let argv = self.template.batch_argv(first.keys.first.bytes());
        let needs_record = self.commands.failures.needs_record();
        let (mut input, mut tasks, mut permits) = (Vec::new(), Vec::new(), Vec::new());
        let mut add = |place, mut line: Vec<u8>, permit| {
            input.extend_from_slice(&line);
            line.truncate(if needs_record { line.len() - 1 } else { 0 });
            line.shrink_to_fit();
            tasks.push(TaskRecord { place, raw: line });
            permits.push(permit);
        };
        let BatchRecord { place, keys, line, sink, permit } = first;
        add(place, line, permit);
        // The output of the batch has the place of its first record, so the other sinks end.
        records.for_each(|BatchRecord { place, line, permit, .. }| add(place, line, permit));
        let command = CommandTask::batch(&self.commands, tasks, keys, argv, input, sink);
        Some(StartedBatch { command, _permits: permits })
    }
}

impl Drop for BatchTask {
    fn drop(&mut self) {
        if self.started.is_none() {
            let records = self.runner.queue.take(self.number);
            self.runner.commands.processes.stats.not_run(records.len() as u64);
        }
    }
}
