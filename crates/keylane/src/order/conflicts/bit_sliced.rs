//! The unfinished tasks of a conflict index that are in no class, laid out for asking about all of them.
//!
//! They are on pages of 64. A page has a word for each bit of the summaries, which says who has that bit (a
//! bit-sliced index, as in signature files: Faloutsos and Christodoulakis, 1984): so few words say who on the
//! page has something in common with somebody. The descriptors of a page are compared in one call. Who asks
//! holds no lock, and so keeps the page alive: a page is changed in place if nobody reads it, and else
//! replaced by a copy.

use std::collections::{BinaryHeap, VecDeque};
use std::fmt;
use std::sync::Arc;

use super::Descriptor;
use super::descriptor::DescriptorList;

/// So many tasks are on one page, at most: a bit of a word for each. A test wants more than one page.
const PAGE_SIZE: usize = if cfg!(test) { 4 } else { 64 };

/// So many pages are looked at under one lock, at most: a few microseconds.
const MAX_PAGES_PER_LOCK: usize = if cfg!(test) { 3 } else { 256 };

/// Room for so many pages is made at once.
const SCAN_CAPACITY: usize = 16;

/// From so many tasks on, those to be asked about are enough for one round.
const SCAN_BATCH: u32 = PAGE_SIZE as u32;

/// All pages, the oldest first.
#[derive(Debug, Default)]
pub(super) struct BitSlicedIndex {
    /// With the first place of each. None of them is without an unfinished task. The places rise, on a page
    /// and from page to page.
    pages: VecDeque<(u64, Arc<TaskPage>)>,
    /// The unfinished tasks.
    live: usize,
    /// Those, and the gaps that others have left.
    entries: usize,
}

/// Some tasks that came one after the other. Entries of one index belong together.
struct TaskPage {
    places: Vec<u64>,
    /// For each bit of a summary those that have it, but for those that have all.
    having: [u64; 64],
    /// Those whose summary has all bits.
    having_all: u64,
    /// Those whose summary has any bit.
    having_any: u64,
    /// Those that have not ended.
    live: u64,
    /// The tasks without a class for which each of these waits, once it has asked about all.
    behind: Vec<Behind>,
    descriptors: Box<dyn DescriptorList>,
}

#[derive(Clone, Default)]
enum Behind {
    #[default]
    None,
    One(u64),
    Many(Arc<[u64]>),
}

/// A page for somebody who asks, as it was under the lock.
pub(crate) struct PageScan {
    page: Arc<TaskPage>,
    /// Whom to ask about.
    left: u64,
    /// Those whose predecessors are known to be implied.
    passed: u64,
}

impl BitSlicedIndex {
    pub(super) fn is_empty(&self) -> bool {
        self.live == 0
    }

    #[cfg(test)]
    pub(super) fn entries(&self) -> usize {
        self.pages.iter().map(|(_, page)| page.places.len()).sum()
    }

    /// Adds a task, whose place is above all others.
    pub(super) fn push(&mut self, place: u64, descriptor: &Descriptor) {
        self.add(place, descriptor, Behind::None);
    }

    fn add(&mut self, place: u64, descriptor: &Descriptor, behind: Behind) {
        if self.pages.back().is_none_or(|(_, page)| page.places.len() == PAGE_SIZE) {
            self.pages.push_back((place, Arc::new(TaskPage::new(descriptor))));
        }
        let (_, page) = self.pages.back_mut().expect("one was just made sure of");
        Arc::make_mut(page).add(place, descriptor, behind);
        self.live += 1;
        self.entries += 1;
    }

    /// A task knows all that it waits for.
    pub(super) fn set_behind(&mut self, place: u64, behind: &[u64]) {
        let behind = match behind {
            [] => return,
            &[one] => Behind::One(one),
            many => Behind::Many(many.into()),
        };
        if let Some((page, at)) = self.find(place) {
            Arc::make_mut(&mut self.pages[page].1).behind[at] = behind;
        }
    }

    /// A task has ended. The caller has its descriptor, so that it is not dropped here.
    pub(super) fn remove(&mut self, place: u64) {
        let Some((index, at)) = self.find(place) else { return };
        let page = Arc::make_mut(&mut self.pages[index].1);
        page.behind[at] = Behind::None;
        page.descriptors.remove(at);
        page.live &= !(1 << at);
        self.live -= 1;
        if page.live == 0 {
            self.entries -= page.places.len();
            self.pages.remove(index);
        }
        // Paid for by those that ended since the last time.
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

    /// The next to ask about, from the newest to the oldest, of those before a place, which moves on to 0.
    /// Somebody with this summary asks.
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
                scans.push(PageScan { page: page.clone(), left, passed: 0 });
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
    /// An empty one, for descriptors of this type.
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

    fn add(&mut self, place: u64, descriptor: &Descriptor, behind: Behind) {
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

    /// A bit for each unfinished task before a place whose summary has something in common with this one.
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

/// The numbers of the bits that are set.
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
    /// Fetches what is to be asked about.
    pub(crate) fn fetch(&self) {
        self.page.descriptors.fetch(self.left);
    }

    /// Asks about the newest ones that are left, up to and with one that conflicts, and returns its index.
    /// Calls what the user wrote, and may be called again if that panics.
    pub(crate) fn ask(&mut self, asking: &Descriptor) -> Option<usize> {
        self.page.descriptors.last_conflict(asking, &mut self.left)
    }

    /// The one about which [`ask`](Self::ask) was asking when it panicked, if `left` were left before.
    pub(crate) fn asked_last(&self, left: u64) -> Option<usize> {
        let asked = left & !self.left;
        (asked != 0).then_some(asked.trailing_zeros() as usize)
    }

    /// Those that are left.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    pub(super) fn place(&self, at: usize) -> u64 {
        self.page.places[at]
    }

    /// The asking task comes after this one, and so after those for which it waits.
    pub(super) fn pass(&mut self, at: usize, implied: &mut BinaryHeap<u64>) {
        if self.passed & 1 << at == 0 {
            self.passed |= 1 << at;
            self.left &= !(1 << at);
            match &self.page.behind[at] {
                Behind::None => {}
                Behind::One(one) => implied.push(*one),
                Behind::Many(many) => implied.extend(&**many),
            }
        }
    }

    /// Leaves out those after which the asking task comes anyway, and collects the ones behind which they
    /// are.
    pub(super) fn pass_implied(&mut self, implied: &mut BinaryHeap<u64>) {
        while let Some(&place) = implied.peek()
            && place >= self.page.first()
        {
            implied.pop();
            if let Some(at) = self.page.find(place) {
                self.pass(at, implied);
            }
        }
    }
}
