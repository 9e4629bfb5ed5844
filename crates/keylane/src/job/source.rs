//! Splitter of a job: an iterator that one worker at a time polls for subtasks.

use std::collections::VecDeque;

use crate::engine::BatchLimits;
use crate::order::{Claims, ClaimsRepr};

/// Subtask with its number, in the order in which the splitter has produced them.
pub(super) type NumberedSubtask<F> = (u64, F);

/// Item of a splitter.
pub(super) type SplitItem<K, F> = (Claims<K>, F);

/// Iterator that can serve as a splitter.
pub(super) trait SubtaskSource<K, F>:
    Iterator<Item = SplitItem<K, F>> + Send + 'static
{
}

impl<K, F, I: Iterator<Item = SplitItem<K, F>> + Send + 'static> SubtaskSource<K, F> for I {}

pub(super) struct JobSource<K, I, F> {
    iter: I,
    /// Subtask that the splitter produced after some of the other sort, with keys or without, in one
    /// pull.
    next: Option<SplitItem<K, F>>,
    /// Number of subtasks pulled.
    taken: u64,
    /// Configured maximum of subtasks pulled before the first of them runs.
    ahead: Option<usize>,
}

/// Result of a pull.
pub(super) enum PullResult<K, F> {
    /// Subtasks without keys, at least one.
    Free(VecDeque<NumberedSubtask<F>>),
    /// Subtasks with keys, at least one.
    Keyed(Vec<(Claims<K>, NumberedSubtask<F>)>),
    /// The splitter is exhausted.
    End,
}

impl<K, I: Iterator<Item = SplitItem<K, F>>, F> JobSource<K, I, F> {
    pub(super) fn new(iter: I, ahead: Option<usize>) -> Self {
        JobSource { iter, next: None, taken: 0, ahead }
    }

    /// Pulls subtasks that all have keys, or all have none, up to the limit for those. With
    /// `need_a_turn`, those without keys count as having some.
    ///
    /// Unless configured, it pulls more than one only from an iterator of known length. Another
    /// iterator may block for its next item, like that of a channel, and the items pulled before
    /// would wait with it.
    pub(super) fn pull(&mut self, limits: BatchLimits, need_a_turn: bool) -> PullResult<K, F> {
        let is_sized = self.expected().is_some();
        let most = self.ahead.unwrap_or(if is_sized { usize::MAX } else { 1 });
        let (mut free, mut keyed) = (VecDeque::new(), Vec::new());
        while free.len() < most.min(limits.free) && keyed.len() < most.min(limits.keyed) {
            let Some((claims, work)) = self.next.take().or_else(|| self.iter.next()) else { break };
            let is_free = matches!(claims, Claims(ClaimsRepr::None)) && !need_a_turn;
            if !(if is_free { keyed.is_empty() } else { free.is_empty() }) {
                self.next = Some((claims, work));
                break;
            }
            let subtask = (self.number(), work);
            match is_free {
                true => free.push_back(subtask),
                false => keyed.push((claims, subtask)),
            }
        }
        match (free.is_empty(), keyed.is_empty()) {
            (true, true) => PullResult::End,
            (true, false) => PullResult::Keyed(keyed),
            _ => PullResult::Free(free),
        }
    }

    fn number(&mut self) -> u64 {
        self.taken += 1;
        self.taken - 1
    }

    /// Number of subtasks still to come, if the iterator knows it.
    pub(super) fn expected(&self) -> Option<u64> {
        let (least, most) = self.iter.size_hint();
        let left = usize::from(self.next.is_some());
        (most == Some(least)).then(|| least.saturating_add(left) as u64)
    }
}
