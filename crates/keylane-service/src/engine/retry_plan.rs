//! Selection of the subtasks of a finished job to retry.

use std::collections::{BTreeMap, VecDeque};

use serde_json::value::RawValue;

use super::step_numbers::StepNumbers;
use crate::SubtaskNumber;
use crate::job_definition::JobDefinition;
use crate::request_error::RequestError;
use crate::scheduler::{KeySet, NewSubtask, PackedSubtasks, Step};
use crate::store::{Chunk, OutcomeCounts, OutcomeKind, StoredJob, StoredSubtask, SubtaskOutcome};
use crate::wire::{RetryOnly, RetryRequest, RetrySubtask, Timestamp};

/// Maximum number of chosen subtasks in a request.
const MAX_CHOSEN: usize = 1000;

/// Maximum number of new payloads in a request. Each replaces a chunk, and all chunks are in one transaction.
const MAX_EDITED: usize = 100;

/// Subtasks of a finished job that a request retries.
#[derive(Debug)]
pub(crate) enum RetrySelection {
    /// By their results.
    Only(RetryOnly),
    /// By their numbers, some with a new payload.
    Chosen(BTreeMap<u32, Option<Box<RawValue>>>),
}

impl RetrySelection {
    /// Checks a request. The payloads have at most `max_payload_bytes` each.
    pub(crate) fn of(
        request: RetryRequest,
        max_payload_bytes: usize,
    ) -> Result<Self, RequestError> {
        let invalid = |at: String, why: String| RequestError::Invalid(vec![(at, why)]);
        let Some(subtasks) = request.subtasks else {
            return Ok(RetrySelection::Only(request.only.unwrap_or_default()));
        };
        if request.only.is_some() {
            return Err(invalid("/only".into(), "give `only` or `subtasks`, not both".into()));
        }
        if subtasks.is_empty() || subtasks.len() > MAX_CHOSEN {
            let why = format!("there are {}, and 1 to {MAX_CHOSEN} are allowed", subtasks.len());
            return Err(invalid("/subtasks".into(), why));
        }
        let (mut chosen, mut edited) = (BTreeMap::new(), 0);
        for (place, RetrySubtask { number, payload }) in subtasks.into_iter().enumerate() {
            let bytes = payload.as_ref().map_or(0, |payload| payload.get().len());
            if bytes > max_payload_bytes {
                let why = format!("it has {bytes} bytes, and {max_payload_bytes} are the most");
                return Err(invalid(format!("/subtasks/{place}/payload"), why));
            }
            edited += usize::from(payload.is_some());
            if edited > MAX_EDITED {
                let why = format!("{MAX_EDITED} payloads are the most in a request");
                return Err(invalid(format!("/subtasks/{place}/payload"), why));
            }
            if chosen.insert(number, payload).is_some() {
                let why = format!("subtask {number} is named twice; name it once");
                return Err(RequestError::Conflict(why));
            }
        }
        Ok(RetrySelection::Chosen(chosen))
    }

    /// Returns whether a retry includes a subtask with this outcome.
    ///
    /// # Errors
    /// Returns an error if the request names the subtask, and it has no outcome that can be retried.
    fn includes(&self, number: u32, kind: Option<OutcomeKind>) -> Result<bool, RequestError> {
        let (is_chosen, only) = match self {
            RetrySelection::Only(only) => (false, *only),
            RetrySelection::Chosen(chosen) if !chosen.contains_key(&number) => return Ok(false),
            RetrySelection::Chosen(_) => (true, RetryOnly::Unsuccessful),
        };
        let is_included = match kind {
            Some(OutcomeKind::Failed | OutcomeKind::Skipped) => true,
            Some(OutcomeKind::Cancelled) | None => only == RetryOnly::Unsuccessful,
            _ => false,
        };
        if is_chosen && !is_included {
            let how = match kind {
                Some(OutcomeKind::Superseded) => "was replaced by a later one of its key",
                _ => "has succeeded",
            };
            return Err(RequestError::Conflict(format!(
                "subtask {number} {how}; only subtasks that failed or were cancelled can be retried"
            )));
        }
        Ok(is_included)
    }

    /// Returns the payload that replaces the one of a subtask.
    fn payload(&self, number: u32) -> Option<&[u8]> {
        match self {
            RetrySelection::Only(_) => None,
            RetrySelection::Chosen(chosen) => {
                chosen.get(&number)?.as_ref().map(|payload| payload.get().as_bytes())
            }
        }
    }

    /// Checks that a job of `count` subtasks has all that the request names.
    fn check_numbers(&self, count: u32) -> Result<(), RequestError> {
        let RetrySelection::Chosen(chosen) = self else { return Ok(()) };
        match chosen.last_key_value() {
            Some((number, _)) if *number >= count => Err(RequestError::Conflict(match count {
                0 => "the job has no subtasks".into(),
                _ => {
                    let last = count - 1;
                    format!("the job has no subtask {number}; its numbers are 0 to {last}")
                }
            })),
            _ => Ok(()),
        }
    }
}

/// Subtasks and steps of a finished job to retry.
#[derive(Debug)]
pub(super) struct RetryPlan {
    pub(super) head: JobDefinition,
    pub(super) kind: u32,
    pub(super) created: Timestamp,
    pub(super) started: Option<u64>,
    pub(super) plan: StepNumbers,
    /// The split is retried.
    pub(super) split: bool,
    /// Subtasks to retry, in parts of one transaction each.
    pub(super) parts: VecDeque<RetryPart>,
    /// Number of subtasks in all parts.
    pub(super) count: u64,
    /// Total size of their keys, in bytes.
    pub(super) key_bytes: u64,
    /// Their keys.
    pub(super) keys: KeySet,
    /// Whether one of them is a barrier.
    pub(super) has_barriers: bool,
    /// Whether one of them may be replaced.
    pub(super) has_latest: bool,
    /// Counts of the other subtasks, by outcome.
    pub(super) ended: OutcomeCounts,
    /// Subtasks that were cancelled with the job and stay cancelled. While the job was over they
    /// needed no outcome of their own; in an active job a subtask without an outcome waits to run.
    pub(super) dropped: Vec<SubtaskNumber>,
    /// Chunks with new payloads.
    pub(super) edited: Vec<Chunk>,
    /// End of the job, in milliseconds since 1970.
    pub(super) ended_ms: u64,
}

/// Part of a retry: one transaction.
#[derive(Debug, Default)]
pub(super) struct RetryPart {
    /// Store numbers of the subtasks whose outcomes are removed.
    pub(super) reopened: Vec<SubtaskNumber>,
    /// All subtasks of the part, including those without an outcome.
    pub(super) subtasks: PackedSubtasks,
}

/// Maximum number of subtasks in a part: their outcomes are written within some milliseconds.
pub(super) const MAX_PART_SUBTASKS: usize = if cfg!(test) { 16 } else { 8192 };

impl RetryPlan {
    pub(super) fn new(stored: &StoredJob, head: JobDefinition, kind: u32) -> Self {
        RetryPlan {
            plan: StepNumbers::new(&head, stored.total),
            head,
            kind,
            created: Timestamp(stored.created_ms),
            started: stored.status.started_ms,
            split: false,
            parts: VecDeque::new(),
            count: 0,
            key_bytes: 0,
            keys: KeySet::default(),
            has_barriers: false,
            has_latest: false,
            ended: OutcomeCounts::default(),
            dropped: Vec::new(),
            edited: Vec::new(),
            ended_ms: stored.status.ended_ms.unwrap_or_default(),
        }
    }

    /// Adds the subtasks of a chunk that qualify, and counts the outcomes of the others.
    pub(super) fn look_at_chunk(
        &mut self,
        chunk: &Chunk,
        outcomes: impl IntoIterator<Item = Option<OutcomeKind>>,
        selection: &RetrySelection,
    ) -> Result<(), RequestError> {
        for (subtask, kind) in chunk.subtasks().zip(outcomes) {
            self.look_at(&subtask, kind, selection)?;
        }
        let payload = |stored| match self.plan.step(stored) {
            Step::Subtask(number) => selection.payload(number),
            Step::Split | Step::FanIn => None,
        };
        if chunk.numbers().any(|stored| payload(stored).is_some()) {
            self.edited.push(chunk.with_payloads(payload));
        }
        Ok(())
    }

    /// Checks that the job has all subtasks that a request names.
    pub(super) fn check_numbers(&self, selection: &RetrySelection) -> Result<(), RequestError> {
        selection.check_numbers(self.plan.total())
    }

    /// Adds `subtask` to the retry if it qualifies, or counts its outcome.
    fn look_at(
        &mut self,
        subtask: &StoredSubtask<'_>,
        kind: Option<OutcomeKind>,
        selection: &RetrySelection,
    ) -> Result<(), RequestError> {
        let stored = subtask.number();
        match self.plan.step(stored) {
            Step::Subtask(number) if selection.includes(number, kind)? => {
                // A subtask without an outcome was cancelled with the job: there is no outcome to
                // remove.
                self.count += 1;
                self.key_bytes += subtask.keys().map(|claim| claim.key.len() as u64).sum::<u64>();
                for claim in subtask.keys() {
                    // A mark is no key, and concerns its own job alone.
                    self.has_barriers |= claim.is_barrier();
                    self.has_latest |= claim.is_latest();
                    if !claim.is_of_job() {
                        self.keys.add(claim.key);
                    }
                }
                let part = self.part();
                part.reopened.extend(kind.map(|_| stored));
                let (keys, attempts_made) = (subtask.keys(), 0);
                part.subtasks.push(NewSubtask { number, keys, attempts_made });
            }
            Step::Subtask(_) => {
                if kind.is_none() {
                    self.dropped.push(stored);
                }
                self.count(kind);
            }
            Step::Split | Step::FanIn if kind == Some(OutcomeKind::Succeeded) => {}
            step => {
                self.split |= step == Step::Split && self.plan.is_unsplit();
                self.part().reopened.extend(kind.map(|_| stored));
            }
        }
        Ok(())
    }

    /// Returns the part with free capacity, and adds one if necessary.
    fn part(&mut self) -> &mut RetryPart {
        let is_full = |part: &RetryPart| part.subtasks.count() >= MAX_PART_SUBTASKS as u64;
        if self.parts.back().is_none_or(is_full) {
            self.parts.push_back(RetryPart::default());
        }
        self.parts.back_mut().expect("a part was just added")
    }

    /// Returns explicit outcomes for subtasks that were cancelled with the job and stay cancelled.
    pub(super) fn cancelled(
        &self,
        dropped: &[SubtaskNumber],
    ) -> impl Iterator<Item = SubtaskOutcome> {
        dropped.iter().map(|number| SubtaskOutcome {
            number: *number,
            attempt: 0,
            kind: OutcomeKind::Cancelled,
            started_ms: self.ended_ms,
            ended_ms: self.ended_ms,
            result: Vec::new(),
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.parts.iter().all(|part| part.reopened.is_empty() && part.subtasks.is_empty())
    }

    fn count(&mut self, kind: Option<OutcomeKind>) {
        match kind {
            Some(OutcomeKind::Succeeded) => self.ended.succeeded += 1,
            Some(OutcomeKind::Failed) => self.ended.failed += 1,
            Some(OutcomeKind::Skipped) => self.ended.skipped += 1,
            Some(OutcomeKind::Superseded) => self.ended.superseded += 1,
            _ => self.ended.cancelled += 1,
        }
    }
}
