//! The turns of a shard that are kept: who holds lanes without a worker.
//!
//! A turn that is kept is two parties': the body's, which may go on for long after it has kept the turn, and
//! that of whoever has the [`Turn`](crate::Turn), which may be dropped at once, on any thread. What it holds
//! is given back by the one that leaves last, so nothing else has the lanes as long as either goes on. Each
//! leaves once, under the lock, and the entry is removed by the second; so exactly one of them gets what is
//! to be given back, and a turn's number is nobody else's while one of the two may still use it.

use slab::Slab;

use super::histogram::{Histogram, Recorder};

/// Kept under a lock of their own, which is taken when a turn is kept and when one of its parties leaves, and
/// never for longer than that takes. `H` is what a turn holds, `F` what a party says of the task: of the two the
/// greater holds.
#[derive(Debug)]
pub(crate) struct DetachedTurns<H, F> {
    kept: Slab<DetachedTurn<H, F>>,
    /// How many of them no worker has any more: their bodies have returned.
    alone: usize,
    /// How long those took that have ended. Made when the first has.
    run: Option<Box<Recorder>>,
}

/// A turn that goes on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DetachedTurn<H, F> {
    /// What it holds.
    pub(crate) held: H,
    /// When its body began.
    pub(crate) began: StartRange,
    /// Nothing is done in it before this time.
    pub(crate) resumes_at: u64,
    left: Option<LeftBy<F>>,
}

/// When a body began, in nanoseconds since the pool was built, as far as that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StartRange {
    /// Not before this time,
    pub(crate) earliest: u64,
    /// and not after this one.
    pub(crate) latest: u64,
}

/// Which of the two has left a turn, and what it says of the task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeftBy<F> {
    TaskBody(F),
    Turn(F),
}

impl<H, F> Default for DetachedTurns<H, F> {
    fn default() -> Self {
        DetachedTurns { kept: Slab::new(), alone: 0, run: None }
    }
}

impl<H, F: Copy + Ord> DetachedTurns<H, F> {
    /// Returns what the turn is known by until both have left it.
    pub(crate) fn keep(&mut self, held: H, began: StartRange) -> usize {
        self.kept.insert(DetachedTurn { held, began, resumes_at: 0, left: None })
    }

    /// Nothing is done in a turn before this time.
    pub(crate) fn back_off(&mut self, turn: usize, until: u64) {
        self.kept[turn].resumes_at = until;
    }

    /// The body has returned. If the turn was dropped before, the caller has what it holds, and what has
    /// become of the task.
    pub(crate) fn leave_body(&mut self, turn: usize, turn_result: F) -> Option<(H, F)> {
        match self.kept[turn].left {
            None => {
                self.kept[turn].left = Some(LeftBy::TaskBody(turn_result));
                self.alone += 1;
                None
            }
            Some(LeftBy::Turn(first)) => Some((self.remove(turn).held, first.max(turn_result))),
            Some(LeftBy::TaskBody(_)) => unreachable!("a body returns once"),
        }
    }

    /// The turn was dropped. If the body has returned before, the caller has it.
    pub(crate) fn leave_turn(
        &mut self,
        turn: usize,
        turn_result: F,
        (now, measure): (u64, bool),
    ) -> Option<(DetachedTurn<H, F>, F)> {
        match self.kept[turn].left {
            None => {
                self.kept[turn].left = Some(LeftBy::Turn(turn_result));
                None
            }
            Some(LeftBy::TaskBody(first)) => {
                let kept = self.remove(turn);
                self.alone -= 1;
                if measure {
                    let run = self.run.get_or_insert_with(|| Box::new(Recorder::new()));
                    run.record(now.saturating_sub(kept.began.earliest), 1);
                }
                Some((kept, first.max(turn_result)))
            }
            Some(LeftBy::Turn(_)) => unreachable!("a turn is dropped once"),
        }
    }

    /// What a turn holds whose body has returned.
    pub(crate) fn held_alone(&self, turn: usize) -> Option<&H> {
        let kept = self.kept.get(turn)?;
        matches!(kept.left, Some(LeftBy::TaskBody(_))).then_some(&kept.held)
    }

    /// Takes such a turn from the one that has it, who no longer will drop it.
    pub(crate) fn withdraw(&mut self, turn: usize) -> H {
        self.alone -= 1;
        self.remove(turn).held
    }

    fn remove(&mut self, turn: usize) -> DetachedTurn<H, F> {
        let kept = self.kept.remove(turn);
        if self.kept.is_empty() && self.kept.capacity() > 1024 {
            // A burst's memory is given back.
            self.kept = Slab::new();
        }
        kept
    }

    /// Those that no worker has any more, with what they are known by.
    pub(crate) fn alone(&self) -> impl Iterator<Item = (usize, &DetachedTurn<H, F>)> {
        self.kept.iter().filter(|(_, kept)| matches!(kept.left, Some(LeftBy::TaskBody(_))))
    }

    /// All of them: a worker may still have some.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &DetachedTurn<H, F>> {
        self.kept.iter().map(|(_, kept)| kept)
    }

    /// How many no worker has any more.
    pub(crate) fn count_alone(&self) -> usize {
        self.alone
    }

    pub(crate) fn add_times_to(&self, run: &mut Histogram) {
        if let Some(times) = &self.run {
            times.add_to(run);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGAN: StartRange = StartRange { earliest: 10, latest: 20 };

    #[test]
    fn a_turn_ends_with_the_second_of_its_parties() {
        let mut turns = DetachedTurns::default();
        let (first, second) = (turns.keep('a', BEGAN), turns.keep('b', BEGAN));
        assert_eq!(turns.count_alone(), 0);
        assert_eq!(turns.leave_body(first, 0), None);
        assert_eq!(turns.count_alone(), 1);
        assert!(turns.leave_turn(second, 0, (50, true)).is_none());
        // Its worker still has it.
        assert!(turns.alone().map(|(turn, _)| turn).eq([first]));
        assert_eq!(turns.leave_body(second, 0), Some(('b', 0)));
        let (kept, turn_result) = turns.leave_turn(first, 0, (50, true)).unwrap();
        assert_eq!((kept.held, turn_result), ('a', 0));
        assert_eq!((turns.count_alone(), turns.iter().count()), (0, 0));
    }

    #[test]
    fn of_what_they_say_the_greater_holds() {
        let judged = |body, turn| {
            let mut turns = DetachedTurns::default();
            let it = turns.keep((), BEGAN);
            assert!(turns.leave_body(it, body).is_none());
            let (_, late) = turns.leave_turn(it, turn, (50, false)).unwrap();
            let it = turns.keep((), BEGAN);
            assert!(turns.leave_turn(it, turn, (50, false)).is_none());
            assert_eq!(turns.leave_body(it, body), Some(((), late)));
            late
        };
        for (body, turn) in [(0, 0), (1, 0), (0, 1), (2, 1), (0, 2)] {
            assert_eq!(judged(body, turn), body.max(turn));
        }
    }
}
