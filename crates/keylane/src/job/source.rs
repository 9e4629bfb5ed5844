//! Splitter of a job: an iterator that one worker at a time polls for subtasks.

use std::collections::VecDeque;

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
    Free,
    /// A subtask with keys.
    Keyed(ClaimedSubtask<K, F>),
    /// The splitter is exhausted.
    End,
}

/// Subtask with its keys.
pub(super) type ClaimedSubtask<K, F> = (Claims<K>, NumberedSubtask<F>);

impl<K, I: Iterator<Item = SplitItem<K, F>>, F> JobSource<K, I, F> {
    pub(super) fn new(iter: I, ahead: Option<usize>) -> Self {
        JobSource { iter, next: None, taken: 0, ahead }
    }

    /// Pulls subtasks without keys into `free`, up to a limit, or one that has keys. With `need_a_turn`, all count as
    /// having some.
    ///
    /// Unless configured, it pulls more than one only from an iterator of known length. Another
    /// iterator may block for its next item, like that of a channel, and the items pulled before
    /// would wait with it.
    pub(super) fn pull(
        &mut self,
        limit: usize,
        need_a_turn: bool,
        free: &mut VecDeque<NumberedSubtask<F>>,
    ) -> PullResult<K, F> {
        let is_sized = self.expected().is_some();
        let most = self.ahead.unwrap_or(if is_sized { usize::MAX } else { 1 });
        while free.len() < most.min(limit) {
            let Some((claims, work)) = self.next.take().or_else(|| self.iter.next()) else { break };
            let is_free = matches!(claims, Claims(ClaimsRepr::None)) && !need_a_turn;
            if is_free {
                free.push_back((self.number(), work));
            } else if free.is_empty() {
                return PullResult::Keyed((claims, (self.number(), work)));
            } else {
                self.next = Some((claims, work));
                break;
            }
        }
        if free.is_empty() { PullResult::End } else { PullResult::Free }
    }

    /// Pulls a subtask, with or without keys.
    pub(super) fn pull_one(&mut self) -> Option<ClaimedSubtask<K, F>> {
        let (claims, work) = self.next.take().or_else(|| self.iter.next())?;
        Some((claims, (self.number(), work)))
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
