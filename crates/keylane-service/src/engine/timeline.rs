//! Timeline of recent runs, for diagrams: a bounded list of slices, sampled under load.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::wire::{Slice, Timeline};

/// Maximum number of slices.
const MAX_SLICES: usize = 20_000;

/// Approximate maximum size of all slices, in bytes. A slice includes the keys of its subtask,
/// which may be many and long.
const MAX_SLICE_BYTES: usize = 16 * 1024 * 1024;

/// Approximate maximum size of the slices in one response, in bytes.
const MAX_RESPONSE_BYTES: usize = 4 * 1024 * 1024;

/// Maximum number of slices recorded per second; more are only counted. A screen shows no more.
const MAX_PER_SECOND: u32 = 2_000;

/// Maximum number of slices in one response.
const MAX_PER_RESPONSE: usize = 5_000;

/// Slices of the last minutes.
#[derive(Debug, Default)]
pub(crate) struct TimelineRecorder {
    inner: Mutex<RecorderState>,
}

#[derive(Debug, Default)]
struct RecorderState {
    /// Number of the oldest slice.
    first: u64,
    slices: VecDeque<Slice>,
    /// Total size of `slices`: the sum of [`bytes_of`] over all of them.
    bytes: usize,
    dropped: u64,
    /// Second that `noted` refers to.
    second: u64,
    noted: u32,
}

impl TimelineRecorder {
    fn inner(&self) -> MutexGuard<'_, RecorderState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a slice that has ended, unless the limit of this second is reached. `slice` is
    /// called only if it is recorded.
    pub(crate) fn note(&self, ended_ms: u64, slice: impl FnOnce() -> Slice) {
        let mut inner = self.inner();
        let second = ended_ms / 1000;
        if inner.second != second {
            (inner.second, inner.noted) = (second, 0);
        }
        if inner.noted >= MAX_PER_SECOND {
            inner.dropped += 1;
            return;
        }
        inner.noted += 1;
        let slice = slice();
        inner.bytes += bytes_of(&slice);
        inner.slices.push_back(slice);
        while inner.slices.len() > MAX_SLICES
            || inner.bytes > MAX_SLICE_BYTES && inner.slices.len() > 1
        {
            let oldest = inner.slices.pop_front().expect("the list has more than one slice");
            inner.bytes -= bytes_of(&oldest);
            inner.first += 1;
        }
    }

    /// Returns the `most` longest slices that were recorded after position `place`, and the position behind the last one.
    pub(crate) fn longest_after(&self, place: u64, most: usize) -> (Vec<Slice>, u64) {
        let inner = self.inner();
        let end = inner.first + inner.slices.len() as u64;
        let from = place.clamp(inner.first, end) - inner.first;
        let from = usize::try_from(from).expect("the position is within the kept slices");
        let mut slices: Vec<&Slice> = inner.slices.range(from..).collect();
        let length = |slice: &Slice| slice.end.map_or(0, |end| end.0.saturating_sub(slice.begin.0));
        slices.sort_by_key(|slice| std::cmp::Reverse(length(slice)));
        slices.truncate(most);
        (slices.into_iter().cloned().collect(), end)
    }

    /// Returns the slices that ended after position `place`, an earlier `next`; only the newest if
    /// they exceed the limits.
    pub(crate) fn after(&self, place: u64) -> Timeline {
        let inner = self.inner();
        let end = inner.first + inner.slices.len() as u64;
        let from = place.clamp(inner.first, end).max(end.saturating_sub(MAX_PER_RESPONSE as u64));
        let skipped =
            usize::try_from(from - inner.first).expect("the position is within the kept slices");
        let mut bytes = 0;
        let newest = inner.slices.iter().skip(skipped).rev();
        let fit = newest.take_while(|slice| {
            let is_first = bytes == 0;
            bytes += bytes_of(slice);
            is_first || bytes <= MAX_RESPONSE_BYTES
        });
        let mut slices: Vec<Slice> = fit.cloned().collect();
        slices.reverse();
        Timeline { slices, next: end, dropped: inner.dropped }
    }
}

/// Returns the approximate size of a slice, in bytes.
fn bytes_of(slice: &Slice) -> usize {
    let keys =
        slice.keys.iter().chain(&slice.shared_keys).map(|key| size_of::<String>() + key.len());
    size_of::<Slice>() + slice.job.len() + keys.sum::<usize>()
}

/// Allocator of row numbers, so that concurrent runs have different rows in a diagram: the lowest
/// free number is used.
#[derive(Debug, Default)]
pub(crate) struct RowAllocator {
    free: BTreeSet<u32>,
    /// One past the highest number ever used.
    end: u32,
}

impl RowAllocator {
    pub(crate) fn take(&mut self) -> u32 {
        self.free.pop_first().unwrap_or_else(|| {
            self.end += 1;
            self.end - 1
        })
    }

    pub(crate) fn give_back(&mut self, slot: u32) {
        self.free.insert(slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Timestamp;

    fn slice(number: u32) -> Slice {
        Slice {
            slot: 0,
            job: "job_0".into(),
            number,
            keys: Vec::new(),
            shared_keys: Vec::new(),
            attempt: 1,
            begin: Timestamp(0),
            end: Some(Timestamp(1)),
            outcome: None,
            rule: "keep".into(),
        }
    }

    #[test]
    fn a_reader_goes_on_where_it_was() {
        let recorder = TimelineRecorder::default();
        recorder.note(5, || slice(1));
        let first = recorder.after(0);
        assert_eq!((first.slices.len(), first.next), (1, 1));
        recorder.note(6, || slice(2));
        assert_eq!(recorder.after(first.next).slices, [slice(2)]);
        assert!(recorder.after(2).slices.is_empty() && recorder.after(99).slices.is_empty());
    }

    #[test]
    fn under_load_it_is_thinned_out_and_says_so() {
        let recorder = TimelineRecorder::default();
        (0..MAX_PER_SECOND + 10).for_each(|number| recorder.note(999, || slice(number)));
        recorder.note(1000, || slice(7));
        let seen = recorder.after(0);
        assert_eq!((seen.slices.len() as u32, seen.dropped), (MAX_PER_SECOND + 1, 10));
    }

    /// Regression: with a bound on their number only, 20,000 slices with 64 keys of 1 KiB each took
    /// 1.3 GB.
    #[test]
    fn what_is_kept_and_answered_is_bounded_by_its_bytes_as_well() {
        let recorder = TimelineRecorder::default();
        let keys = vec!["k".repeat(1024); 64];
        for number in 0..1000 {
            let slice = Slice { keys: keys.clone(), ..slice(number) };
            recorder.note(u64::from(number) * 1000, || slice);
        }
        let inner = recorder.inner();
        assert!(
            inner.bytes <= MAX_SLICE_BYTES && inner.slices.len() > 200,
            "{}",
            inner.slices.len()
        );
        assert_eq!(inner.bytes, inner.slices.iter().map(bytes_of).sum::<usize>());
        drop(inner);
        let seen = recorder.after(0);
        assert!(seen.slices.iter().map(bytes_of).sum::<usize>() <= MAX_RESPONSE_BYTES);
        assert_eq!((seen.slices.last().map(|slice| slice.number), seen.next), (Some(999), 1000));
    }

    #[test]
    fn the_lowest_free_slot_is_taken() {
        let mut slots = RowAllocator::default();
        assert_eq!([slots.take(), slots.take(), slots.take()], [0, 1, 2]);
        slots.give_back(1);
        slots.give_back(0);
        assert_eq!([slots.take(), slots.take(), slots.take()], [0, 1, 3]);
    }
}
