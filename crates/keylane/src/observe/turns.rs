//! The turns of a shard that have outlived their bodies: who holds lanes without a worker.

use slab::Slab;

use super::histogram::{Histogram, Recorder};

/// Kept under a lock of their own, which is taken when a turn is kept and when it ends, and never for
/// longer than that takes. A turn is here for as long as it holds its lanes.
#[derive(Debug)]
pub(crate) struct Turns<H> {
    kept: Slab<Kept<H>>,
    /// How long those took that have ended. Made when the first has.
    run: Option<Box<Recorder>>,
}

/// A turn that goes on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept<H> {
    /// What it holds.
    pub(crate) held: H,
    /// When it was kept, in nanoseconds since the pool was built: while its body ran.
    pub(crate) since: u64,
    /// Nothing is done in it before this time.
    pub(crate) resumes_at: u64,
}

impl<H> Default for Turns<H> {
    fn default() -> Self {
        Turns { kept: Slab::new(), run: None }
    }
}

impl<H> Turns<H> {
    /// Returns what the turn is known by until it ends.
    pub(crate) fn keep(&mut self, held: H, now: u64) -> usize {
        self.kept.insert(Kept { held, since: now, resumes_at: 0 })
    }

    /// Nothing is done in a turn before this time.
    pub(crate) fn back_off(&mut self, turn: usize, until: u64) {
        self.kept[turn].resumes_at = until;
    }

    /// The turn is about to give back what it holds.
    pub(crate) fn end(&mut self, turn: usize, now: u64, measure: bool) -> Kept<H> {
        let kept = self.kept.remove(turn);
        if measure {
            let run = self.run.get_or_insert_with(|| Box::new(Recorder::new()));
            run.record(now.saturating_sub(kept.since), 1);
        }
        if self.kept.is_empty() && self.kept.capacity() > 1024 {
            // A burst's memory is given back.
            self.kept = Slab::new();
        }
        kept
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Kept<H>> {
        self.kept.iter().map(|(_, kept)| kept)
    }

    pub(crate) fn len(&self) -> usize {
        self.kept.len()
    }

    pub(crate) fn add_times_to(&self, run: &mut Histogram) {
        if let Some(times) = &self.run {
            times.add_to(run);
        }
    }
}
