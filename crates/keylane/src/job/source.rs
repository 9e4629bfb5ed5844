//! A job's splitter: an iterator that one worker asks at a time.

use std::collections::VecDeque;

use crate::order::{Claims, Repr};

/// A subtask, and its place in the order in which the splitter has made them.
pub(super) type Numbered<F> = (u64, F);

/// What a splitter yields.
pub(super) type SplitItem<K, F> = (Claims<K>, F);

/// What a splitter is.
pub(super) trait SubtaskSource<K, F>:
    Iterator<Item = SplitItem<K, F>> + Send + 'static
{
}

impl<K, F, I: Iterator<Item = SplitItem<K, F>> + Send + 'static> SubtaskSource<K, F> for I {}

pub(super) struct JobSource<K, I, F> {
    iter: I,
    /// A subtask with keys that came after some without, which were taken together.
    next: Option<SplitItem<K, F>>,
    /// How many were taken out.
    taken: u64,
    /// The most that are taken before the first of them runs, if somebody has said.
    ahead: Option<usize>,
}

/// What a splitter has made.
pub(super) enum Pull<K, F> {
    /// Subtasks without keys, at least one.
    Free(VecDeque<Numbered<F>>),
    /// One with keys.
    Keyed(Claims<K>, Numbered<F>),
    /// Nothing, and never more.
    End,
}

impl<K, I: Iterator<Item = SplitItem<K, F>>, F> JobSource<K, I, F> {
    pub(super) fn new(iter: I, ahead: Option<usize>) -> Self {
        JobSource { iter, next: None, taken: 0, ahead }
    }

    /// Takes up to `most` subtasks without keys, or one with keys. Where all `need_a_turn`, those without
    /// keys count as having some.
    ///
    /// If nothing else was said, it takes more than one only from an iterator that knows how many it has.
    /// Another may wait for its next one, as that of a channel does, and what was taken before would
    /// wait with it.
    pub(super) fn pull(&mut self, most: usize, need_a_turn: bool) -> Pull<K, F> {
        let knows = self.expected().is_some();
        let most = most.min(self.ahead.unwrap_or(if knows { usize::MAX } else { 1 }));
        let mut free = VecDeque::new();
        while free.len() < most {
            match self.next.take().or_else(|| self.iter.next()) {
                None if free.is_empty() => return Pull::End,
                None => break,
                Some((Claims(Repr::None), work)) if !need_a_turn => {
                    free.push_back((self.number(), work))
                }
                Some((claims, work)) if free.is_empty() => {
                    return Pull::Keyed(claims, (self.number(), work));
                }
                Some(keyed) => {
                    self.next = Some(keyed);
                    break;
                }
            }
        }
        Pull::Free(free)
    }

    fn number(&mut self) -> u64 {
        self.taken += 1;
        self.taken - 1
    }

    /// How many it will make, if it says so.
    pub(super) fn expected(&self) -> Option<u64> {
        let (least, most) = self.iter.size_hint();
        let left = usize::from(self.next.is_some());
        (most == Some(least)).then(|| least.saturating_add(left) as u64)
    }
}
