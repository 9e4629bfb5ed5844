//! Limits of kinds, and the jobs that wait for a kind's capacity.
//!
//! A job of a kind without free capacity is *held*: the allocator skips it, so that it keeps no
//! slot from other jobs. It is held at its turn and not before, and released when capacity is free,
//! so that an event moves a few jobs and never all of a kind. Jobs are released by priority, and those of one
//! priority in the order in which they were first held; a job that has started a step goes behind the
//! others. A job that has been held for the ageing time goes before those of higher priorities, but only every other one, so
//! that these get at least half of the capacity.

use std::collections::BTreeMap;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use keylane_allocate::Priority;

use super::token_bucket::TokenBucket;
use super::{KindId, KindLimits, Step};

/// Free capacity of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KindCapacity {
    /// Number of steps that can start.
    Places(u64),
    /// The concurrency limit is reached.
    Bound,
    /// The rate limit is reached; time of the next token, or none.
    Rate(Option<u64>),
}

#[derive(Debug, Default)]
pub(super) struct LimitedKind {
    pub(super) limits: KindLimits,
    bucket: Option<TokenBucket>,
    pub(super) running: u32,
    /// Held jobs, by turn.
    held: BTreeMap<Turn, u32>,
    /// Whether the last job was released for its age, before one of a higher priority.
    was_aged: bool,
    /// Time of the last start of each priority.
    last_starts: [u64; Priority::ALL.len()],
    /// Time of the timer for its next token.
    pub(super) timer: Option<u64>,
}

/// Turn of a job that waits for capacity of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Turn {
    priority: Priority,
    number: u64,
    /// Time since which the job waits.
    since: u64,
}

impl LimitedKind {
    /// Returns the turn of the job that is released next: of the highest priority, unless another one has waited for the
    /// ageing time without a start. Of those that have, the highest one included, the one that has waited longest is next,
    /// but one below the highest not twice in a row. None starves, for the same reasons as in
    /// `keylane_allocate`'s priority classes.
    fn next_turn(&self, ageing: Option<u64>, now: u64) -> Option<Turn> {
        let highest = *self.held.first_key_value()?.0;
        if self.was_aged {
            return Some(highest);
        }
        let first_of = |priority| {
            let lowest = Turn { priority, number: 0, since: 0 };
            let (turn, _) = self.held.range(lowest..).next()?;
            (turn.priority == priority).then_some(*turn)
        };
        let since = |turn: &Turn| turn.since.max(self.last_starts[turn.priority as usize]);
        let has_aged = |turn: &Turn| ageing.is_some_and(|ageing| now - since(turn) >= ageing);
        let firsts = Priority::ALL.into_iter().filter_map(first_of);
        let aged = firsts.filter(has_aged).min_by_key(since);
        Some(aged.unwrap_or(highest))
    }

    pub(super) fn room(&mut self, now: u64) -> KindCapacity {
        let places = match self.limits.concurrency {
            Some(bound) if self.running >= bound => return KindCapacity::Bound,
            Some(bound) => u64::from(bound - self.running),
            None => u64::MAX,
        };
        let Some(bucket) = &mut self.bucket else { return KindCapacity::Places(places) };
        match bucket.tokens(now) {
            0 => KindCapacity::Rate(bucket.next(now)),
            tokens => KindCapacity::Places(places.min(tokens)),
        }
    }

    /// Free capacity, computed without a change of state.
    pub(super) fn room_seen(&self, now: u64) -> KindCapacity {
        let LimitedKind { limits, ref bucket, running, .. } = *self;
        LimitedKind { limits, bucket: bucket.clone(), running, ..LimitedKind::default() }.room(now)
    }

    /// Whether a run of this step uses the kind's capacity.
    fn counts(&self, step: Step) -> bool {
        !self.limits.subtasks_only || matches!(step, Step::Subtask(_))
    }

    pub(super) fn has_held(&self) -> bool {
        !self.held.is_empty()
    }
}

/// Kinds that have limits.
#[derive(Debug, Default)]
pub(super) struct KindTable {
    kinds: HashMap<u32, LimitedKind, FixedState>,
    /// Time without a start after which a priority comes before higher ones.
    ageing: Option<u64>,
    /// Number of turns given out.
    turns: u64,
    /// Number of held jobs of all kinds.
    held: usize,
    /// Number of runs of each kind, with or without limits.
    runs: HashMap<u32, KindRuns, FixedState>,
}

/// Number of runs of a kind.
#[derive(Debug, Default)]
struct KindRuns {
    subtasks: u32,
    /// Runs of splits and fan-ins.
    steps: u32,
}

impl KindRuns {
    fn of(&mut self, step: Step) -> &mut u32 {
        match step {
            Step::Subtask(_) => &mut self.subtasks,
            Step::Split | Step::FanIn => &mut self.steps,
        }
    }
}

impl KindTable {
    pub(super) fn new(ageing: Option<u64>) -> Self {
        KindTable { ageing, ..KindTable::default() }
    }

    /// Counts a start of a step of the kind.
    pub(super) fn note_start(&mut self, id: KindId, step: Step) {
        *self.runs.entry(id.0).or_default().of(step) += 1;
    }

    /// Counts an end of a step of the kind.
    pub(super) fn note_end(&mut self, id: KindId, step: Step) {
        if let Some(runs) = self.runs.get_mut(&id.0) {
            *runs.of(step) -= 1;
            if runs.subtasks + runs.steps == 0 {
                self.runs.remove(&id.0);
            }
        }
    }

    /// Sets the limits of a kind.
    pub(super) fn set(&mut self, id: KindId, limits: KindLimits, now: u64) {
        let running = self.runs.get(&id.0).map_or(0, |runs| match limits.subtasks_only {
            true => runs.subtasks,
            false => runs.subtasks + runs.steps,
        });
        let kind = self.kinds.entry(id.0).or_default();
        kind.limits = limits;
        kind.running = running;
        match (&mut kind.bucket, limits.rate) {
            (Some(bucket), Some(rate)) => bucket.change(rate, now),
            (bucket, rate) => *bucket = rate.map(|rate| TokenBucket::new(rate, now)),
        }
    }

    /// Removes a kind that has no limits and holds no job.
    pub(super) fn forget_if_free(&mut self, id: KindId) {
        let is_free =
            |kind: &mut LimitedKind| kind.limits == KindLimits::default() && !kind.has_held();
        if self.kinds.get_mut(&id.0).is_some_and(is_free) {
            self.kinds.remove(&id.0);
        }
    }

    /// Whether no kind has limits.
    pub(super) fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    pub(super) fn get(&mut self, id: KindId) -> Option<&mut LimitedKind> {
        self.kinds.get_mut(&id.0)
    }

    pub(super) fn look(&self, id: KindId) -> Option<&LimitedKind> {
        self.kinds.get(&id.0)
    }

    pub(super) fn start(&mut self, id: KindId, step: Step, priority: Priority, now: u64) {
        let Some(kind) = self.kinds.get_mut(&id.0).filter(|kind| kind.counts(step)) else { return };
        kind.running += 1;
        kind.last_starts[priority as usize] = now;
        if let Some(bucket) = &mut kind.bucket {
            bucket.take(now);
        }
    }

    /// Counts a restored run, which takes no token: it took one at its start.
    pub(super) fn restore(&mut self, id: KindId) {
        if let Some(kind) = self.kinds.get_mut(&id.0) {
            kind.running += 1;
        }
    }

    /// Ends a run. False if it used no capacity of its kind.
    pub(super) fn end(&mut self, id: KindId, step: Step) -> bool {
        let Some(kind) = self.kinds.get_mut(&id.0).filter(|kind| kind.counts(step)) else {
            return false;
        };
        kind.running -= 1;
        true
    }

    /// Holds a job at its earlier turn or behind all others; returns the turn.
    pub(super) fn hold(
        &mut self,
        id: KindId,
        job: u32,
        priority: Priority,
        turn: Option<Turn>,
        now: u64,
    ) -> Turn {
        let turn = turn.unwrap_or_else(|| {
            self.turns += 1;
            Turn { priority, number: self.turns, since: now }
        });
        let kind = self.kinds.get_mut(&id.0).expect("only a kind with limits holds jobs");
        kind.held.insert(turn, job);
        self.held += 1;
        turn
    }

    /// Slots of the held jobs of a kind.
    pub(super) fn held_of(&self, id: KindId) -> Vec<u32> {
        self.kinds.get(&id.0).map_or_else(Vec::new, |kind| kind.held.values().copied().collect())
    }

    /// Releases the job whose turn it is.
    pub(super) fn let_go(&mut self, id: KindId, now: u64) -> Option<u32> {
        let kind = self.kinds.get_mut(&id.0)?;
        let turn = kind.next_turn(self.ageing, now)?;
        let job = kind.held.remove(&turn)?;
        let is_passed_over = kind.held.first_key_value().is_some_and(|(first, _)| *first < turn);
        kind.was_aged = is_passed_over;
        self.held -= 1;
        Some(job)
    }

    /// Removes a held job that is finished.
    pub(super) fn forget(&mut self, id: KindId, turn: Turn) {
        let kind = self.kinds.get_mut(&id.0).expect("a kind that holds jobs is not forgotten");
        kind.held.remove(&turn);
        self.held -= 1;
    }

    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// Kinds with held jobs and free capacity.
    pub(super) fn all_with_room(&self, now: u64) -> Vec<KindId> {
        let has_room = |kind: &LimitedKind| matches!(kind.room_seen(now), KindCapacity::Places(_));
        let held = self.kinds.iter().filter(|(_, kind)| kind.has_held() && has_room(kind));
        held.map(|(id, _)| KindId(*id)).collect()
    }

    /// A kind with held jobs and free capacity.
    pub(super) fn with_room(&self, now: u64) -> Option<KindId> {
        if self.held == 0 {
            return None;
        }
        let has_room = |kind: &LimitedKind| matches!(kind.room_seen(now), KindCapacity::Places(_));
        let mut kinds = self.kinds.iter().filter(|(_, kind)| kind.has_held());
        kinds.find(|(_, kind)| has_room(kind)).map(|(id, _)| KindId(*id))
    }
}
