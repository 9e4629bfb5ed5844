//! Finds the tasks without a class that share a summary bit with a new one, in pages of 64.
//!
//! A page has a word for each bit of the summaries, with a bit for each task of the page (a
//! bit-sliced index, as in signature files: Faloutsos and Christodoulakis, 1984). So a few words
//! tell which tasks of the page share a bit with a summary. The descriptors of a page are compared
//! in one call. The scanning thread holds no lock, but keeps the page alive: a page is changed in
//! place if no scan reads it, and otherwise replaced by a copy.

use std::collections::{BinaryHeap, VecDeque};
use std::fmt;
use std::sync::Arc;

use super::Descriptor;
use super::compatibility::DescriptorList;

/// Largest number of tasks on a page: each has a bit of a word. Tests need more than one page.
const PAGE_SIZE: usize = if cfg!(test) { 4 } else { 64 };

/// Largest number of pages that are visited under one lock: a few microseconds.
const MAX_PAGES_PER_LOCK: usize = if cfg!(test) { 3 } else { 256 };

/// Number of pages for which a scan allocates memory at once.
const SCAN_CAPACITY: usize = 16;

/// Number of tasks that end a round: enough to compare with in one go.
const SCAN_BATCH: u32 = PAGE_SIZE as u32;

/// All pages, the oldest first.
#[derive(Debug, Default)]
pub(super) struct BitSlicedIndex {
    /// Pages, each with its first position. Each has an unfinished task. Positions rise within a
    /// page and from page to page.
    pages: VecDeque<(u64, Arc<TaskPage>)>,
    /// Number of unfinished tasks.
    live: usize,
    /// Number of unfinished tasks, and of the gaps left by others.
    entries: usize,
}

/// Tasks that came one after the other. Entries with one index belong to one task.
struct TaskPage {
    places: Vec<u64>,
    /// For each bit of a summary, the tasks that have it, except those in `having_all`.
    having: [u64; 64],
    /// Tasks whose summary has all bits.
    having_all: u64,
    /// Tasks whose summary has any bit.
    having_any: u64,
    /// Tasks that have not ended.
    live: u64,
    /// For each task, the tasks without a class that it waits for, once its scan is over.
    behind: Vec<BlockedSet>,
    descriptors: Box<dyn DescriptorList>,
}

#[derive(Clone, Default)]
enum BlockedSet {
    #[default]
    None,
    One(u64),
    Many(Arc<[u64]>),
}

/// Page to compare with, as it was under the lock.
pub(crate) struct PageScan {
    page: Arc<TaskPage>,
    /// Tasks still to compare with.
    left: u64,
    /// Tasks whose predecessors are known to be implied.
    expanded: u64,
}

impl BitSlicedIndex {
    pub(super) fn is_empty(&self) -> bool {
        self.live == 0
    }

    #[cfg(test)]
    pub(super) fn entries(&self) -> usize {
        self.pages.iter().map(|(_, page)| page.places.len()).sum()
    }

    /// Adds a task, whose position is above all others.
    pub(super) fn push(&mut self, place: u64, descriptor: &Descriptor) {
        self.add(place, descriptor, BlockedSet::None);
    }

    fn add(&mut self, place: u64, descriptor: &Descriptor, behind: BlockedSet) {
        if self.pages.back().is_none_or(|(_, page)| page.places.len() == PAGE_SIZE) {
            self.pages.push_back((place, Arc::new(TaskPage::new(descriptor))));
        }
        let (_, page) = self.pages.back_mut().expect("one was just made sure of");
        Arc::make_mut(page).add(place, descriptor, behind);
        self.live += 1;
        self.entries += 1;
    }

    /// Records all tasks that a task waits for.
    pub(super) fn set_behind(&mut self, place: u64, behind: &[u64]) {
        let behind = match behind {
            [] => return,
            &[one] => BlockedSet::One(one),
            many => BlockedSet::Many(many.into()),
        };
        if let Some((page, at)) = self.find(place) {
            Arc::make_mut(&mut self.pages[page].1).behind[at] = behind;
        }
    }

    /// Removes a task that has ended. The caller owns a reference to its descriptor, so that it is
    /// not dropped here.
    pub(super) fn remove(&mut self, place: u64) {
        let Some((index, at)) = self.find(place) else { return };
        let page = Arc::make_mut(&mut self.pages[index].1);
        page.behind[at] = BlockedSet::None;
        page.descriptors.remove(at);
        page.live &= !(1 << at);
        self.live -= 1;
        if page.live == 0 {
            self.entries -= page.places.len();
            self.pages.remove(index);
        }
        // Amortized by the tasks that ended since the last time.
        if self.entries > 2 * self.live + 2 * PAGE_SIZE {
            self.close_gaps();
        }
    }

    fn close_gaps(&mut self) {
        let full = std::mem::take(self);
        for (_, page) in &full.pages {
            for (at, &place) in page.places.iter().enumerate() {
                if let Some(descriptor) = page.descriptors.get(at) {
                    self.add(place, &descriptor, page.behind[at].clone());
                }
            }
        }
    }

    fn find(&self, place: u64) -> Option<(usize, usize)> {
        let page = self.pages.partition_point(|(first, _)| *first <= place).checked_sub(1)?;
        Some((page, self.pages[page].1.find(place)?))
    }

    /// Returns the next tasks to compare with, the newest first, among those before the position
    /// `before`, which moves on toward 0. Only tasks that share a bit with `summary` count.
    pub(super) fn scan(&self, before: &mut u64, summary: u64) -> Vec<PageScan> {
        let (mut looked_at, mut found) = (0, 0);
        let end = self.pages.partition_point(|(first, _)| first < before);
        let mut scans = Vec::with_capacity(end.min(SCAN_CAPACITY));
        for (first, page) in self.pages.range(..end).rev() {
            if looked_at == MAX_PAGES_PER_LOCK || found >= SCAN_BATCH {
                return scans;
            }
            let left = page.sharing(*before, summary);
            if left != 0 {
                scans.push(PageScan { page: page.clone(), left, expanded: 0 });
            }
            looked_at += 1;
            found += left.count_ones();
            *before = *first;
        }
        *before = 0;
        scans
    }
}

impl TaskPage {
    /// Creates an empty page, for descriptors of this type.
    fn new(descriptor: &Descriptor) -> Self {
        TaskPage {
            places: Vec::new(),
            having: [0; 64],
            having_all: 0,
            having_any: 0,
            live: 0,
            behind: Vec::new(),
            descriptors: descriptor.list(),
        }
    }

    fn add(&mut self, place: u64, descriptor: &Descriptor, behind: BlockedSet) {
        let task = 1 << self.places.len();
        match descriptor.summary() {
            u64::MAX => self.having_all |= task,
            summary => bits(summary).for_each(|bit| self.having[bit] |= task),
        }
        if descriptor.summary() != 0 {
            self.having_any |= task;
        }
        self.live |= task;
        self.places.push(place);
        self.behind.push(behind);
        self.descriptors.push(descriptor);
    }

    fn first(&self) -> u64 {
        self.places[0]
    }

    fn find(&self, place: u64) -> Option<usize> {
        self.places.binary_search(&place).ok()
    }

    /// Returns a bit for each unfinished task before a position whose summary shares a bit with
    /// `summary`.
    fn sharing(&self, before: u64, summary: u64) -> u64 {
        let sharing = match summary {
            0 => 0,
            u64::MAX => self.having_any,
            _ => bits(summary).fold(self.having_all, |sharing, bit| sharing | self.having[bit]),
        };
        let later = match self.places.last() {
            Some(last) if *last >= before => {
                u64::MAX << self.places.partition_point(|place| *place < before)
            }
            _ => 0,
        };
        sharing & self.live & !later
    }
}

/// Iterates over the numbers of the bits that are set.
fn bits(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = (word != 0).then(|| word.trailing_zeros() as usize)?;
        word &= word - 1;
        Some(bit)
    })
}

impl Clone for TaskPage {
    fn clone(&self) -> Self {
        TaskPage {
            places: self.places.clone(),
            behind: self.behind.clone(),
            descriptors: self.descriptors.copy(),
            ..*self
        }
    }
}

impl fmt::Debug for TaskPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskPage").field("places", &self.places).finish_non_exhaustive()
    }
}

impl PageScan {
    /// Fetches the descriptors to compare with into the cache.
    pub(crate) fn prefetch(&self) {
        self.page.descriptors.prefetch(self.left);
    }

    /// Compares with the newest tasks that are left, up to and including one that conflicts, and
    /// returns its index. Calls user code, and may be called again if that panics.
    pub(crate) fn next_conflict(&mut self, scanning: &Descriptor) -> Option<usize> {
        self.page.descriptors.last_conflict(scanning, &mut self.left)
    }

    /// Returns the index of the task that [`next_conflict`](Self::next_conflict) was comparing with
    /// when it panicked, given the value of `left` before the call.
    pub(crate) fn last_compared(&self, left: u64) -> Option<usize> {
        let compared = left & !self.left;
        (compared != 0).then_some(compared.trailing_zeros() as usize)
    }

    /// Returns the tasks still to compare with, as bits.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    pub(super) fn place(&self, at: usize) -> u64 {
        self.page.places[at]
    }

    /// Skips a task that the scanning task comes after, and marks its predecessors as implied.
    pub(super) fn skip(&mut self, at: usize, implied: &mut BinaryHeap<u64>) {
        if self.expanded & 1 << at == 0 {
            self.expanded |= 1 << at;
            self.left &= !(1 << at);
            match &self.page.behind[at] {
                BlockedSet::None => {}
                BlockedSet::One(one) => implied.push(*one),
                BlockedSet::Many(many) => implied.extend(&**many),
            }
        }
    }

    /// Skips the implied tasks of this page, and collects their predecessors.
    pub(super) fn skip_implied(&mut self, implied: &mut BinaryHeap<u64>) {
        while let Some(&place) = implied.peek()
            && place >= self.page.first()
        {
            implied.pop();
            if let Some(at) = self.page.find(place) {
                self.skip(at, implied);
            }
        }
    }
}
