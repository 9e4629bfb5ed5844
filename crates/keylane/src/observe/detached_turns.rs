//! Kept turns of a shard: claims that are held without a worker, each released exactly once.
//!
//! A kept turn has two owners: the body, which may run for long after it has kept the turn, and the
//! holder of the [`Turn`](crate::Turn), which may drop it at once, on any thread. The last of the
//! two to leave releases the claims, so no other task gets the lanes while either continues. Each
//! leaves once, under the lock, and the second removes the entry; so exactly one of them gets the
//! claims, and the number of a turn is not reused while either may still use it.

use slab::Slab;

use super::histogram::{Histogram, HistogramRecorder};

/// Kept turns of a shard. They have a lock of their own, which is held only while a turn is kept or
/// one of its owners leaves. `H` is the type of the claims, `F` that of the result: of two results
/// the greater counts.
#[derive(Debug)]
pub(crate) struct DetachedTurns<H, F> {
    kept: Slab<DetachedTurn<H, F>>,
    /// Number of turns without a worker: their bodies have returned.
    alone: usize,
    /// Durations of the turns that have ended. Allocated at the end of the first.
    run: Option<Box<HistogramRecorder>>,
}

/// Kept turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DetachedTurn<H, F> {
    /// Claims of the turn.
    pub(crate) held: H,
    /// Start of the body.
    pub(crate) began: StartRange,
    /// Time until which the turn is marked as idle, in nanoseconds since the pool was built.
    pub(crate) resumes_at: u64,
    left: Option<LeftBy<F>>,
}

/// Bounds of the start of a body, in nanoseconds since the pool was built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StartRange {
    /// Lower bound.
    pub(crate) earliest: u64,
    /// Upper bound.
    pub(crate) latest: u64,
}

/// First owner that has left, with its result.
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
    /// Adds a kept turn, and returns its number.
    pub(crate) fn keep(&mut self, held: H, began: StartRange) -> usize {
        self.kept.insert(DetachedTurn { held, began, resumes_at: 0, left: None })
    }

    /// Marks a turn as idle until this time.
    pub(crate) fn back_off(&mut self, turn: usize, until: u64) {
        self.kept[turn].resumes_at = until;
    }

    /// Records the return of the body. Returns the claims and the result if the turn was dropped
    /// before.
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

    /// Records the drop of the turn. Returns the turn and the result if the body has returned
    /// before.
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
                    let run = self.run.get_or_insert_with(|| Box::new(HistogramRecorder::new()));
                    run.record(now.saturating_sub(kept.began.earliest), 1);
                }
                Some((kept, first.max(turn_result)))
            }
            Some(LeftBy::Turn(_)) => unreachable!("a turn is dropped once"),
        }
    }

    /// Claims of a turn.
    pub(crate) fn held(&self, turn: usize) -> Option<&H> {
        self.kept.get(turn).map(|kept| &kept.held)
    }

    /// Claims of a turn whose body has returned.
    pub(crate) fn held_alone(&self, turn: usize) -> Option<&H> {
        let kept = self.kept.get(turn)?;
        matches!(kept.left, Some(LeftBy::TaskBody(_))).then_some(&kept.held)
    }

    /// Removes such a turn, whose holder will not drop it any more.
    pub(crate) fn withdraw(&mut self, turn: usize) -> H {
        self.alone -= 1;
        self.remove(turn).held
    }

    fn remove(&mut self, turn: usize) -> DetachedTurn<H, F> {
        let kept = self.kept.remove(turn);
        if self.kept.is_empty() && self.kept.capacity() > 1024 {
            // Frees the memory of a burst.
            self.kept = Slab::new();
        }
        kept
    }

    /// Iterates over the turns without a worker, with their numbers.
    pub(crate) fn alone(&self) -> impl Iterator<Item = (usize, &DetachedTurn<H, F>)> {
        self.kept.iter().filter(|(_, kept)| matches!(kept.left, Some(LeftBy::TaskBody(_))))
    }

    /// Iterates over all kept turns, including those with a worker.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &DetachedTurn<H, F>> {
        self.kept.iter().map(|(_, kept)| kept)
    }

    /// Number of turns without a worker.
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
    fn a_turn_ends_with_the_second_of_its_owners() {
        let mut turns = DetachedTurns::default();
        let (first, second) = (turns.keep('a', BEGAN), turns.keep('b', BEGAN));
        assert_eq!(turns.count_alone(), 0);
        assert_eq!(turns.leave_body(first, 0), None);
        assert_eq!(turns.count_alone(), 1);
        assert!(turns.leave_turn(second, 0, (50, true)).is_none());
        // The worker of the second turn still runs its body.
        assert!(turns.alone().map(|(turn, _)| turn).eq([first]));
        assert_eq!(turns.leave_body(second, 0), Some(('b', 0)));
        let (kept, turn_result) = turns.leave_turn(first, 0, (50, true)).unwrap();
        assert_eq!((kept.held, turn_result), ('a', 0));
        assert_eq!((turns.count_alone(), turns.iter().count()), (0, 0));
    }

    #[test]
    fn the_greater_result_counts() {
        let result_of = |body, turn| {
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
            assert_eq!(result_of(body, turn), body.max(turn));
        }
    }
}
