//! Jobs in a running engine: which worker goes where, told by the rules in `allocate`.
//!
//! While there are jobs, a worker asks the [`Allocator`] before each sitting: a sitting is one subtask
//! of a job, a batch of tiny ones of a job that is alone, or one slice of the work outside jobs. While
//! there are none, it looks at one word and goes on as ever.
//!
//! # Protocol
//! 1. Everything that is told to the allocator, or asked of it, is one *section* under the lock of the
//!    books. No user code runs in it, and no other lock is taken in it.
//! 2. At its end, and still under the lock, a section writes down in `offers` whether the allocator
//!    could give a worker to somebody. If that has just become so, it wakes a worker after the lock is
//!    released, as whoever sets a bit on the ready bitmap does (`run/idle.rs`).
//! 3. A worker that is given nothing falls asleep as ever, and reads `offers` with a read-modify-write
//!    beside the ready bitmap when it is on the list of sleepers.
//!    A batch of a job that others may take from counts in the same word, and whoever opens one wakes a
//!    worker alike (`job/core/lot.rs`).
//! 4. Jobs that a section has ended are finished after it: their handles are told without the lock.
//!
//! # Why no subtask is left while a worker sleeps
//! Suppose that the allocator could give a worker to a job, and all workers without work are asleep for
//! good. The last section that ended has written `offers`, as true, for whether the allocator could
//! decide changes in sections only. (What it knows of the work outside jobs may be out of date; that can
//! make `offers` true for nothing, and the ready bitmap says the rest.) From there on it is the proof in
//! `run/idle.rs`, with `offers` as one more bit: who fell asleep last read it as unset, so it was set
//! later, by a section that saw the sleeper on the list and woke it, or saw another who was searching,
//! and that one asks. A worker that was woken and given something passes the wake-up on while `offers`
//! is set.
//!
//! # Barriers and subtasks without keys
//! A subtask without keys runs without an entry in any inbox, unless a barrier is unfinished: see
//! [`Engine::begin_free`].

mod books;
mod crowd;
#[cfg(test)]
mod few;
#[cfg(all(test, loom))]
mod models;
mod office;

use crossbeam_utils::CachePadded;

use super::*;
use crate::allocate::{Claimant, End, JobId, Take};
use crate::sync::AtomicU64;
use books::Books;

pub(crate) use books::JobRules;
pub(crate) use crowd::{Back, Crowd, Desk, Given, Office, Sat, Seat, Site, WeakOffice};

/// A worker that asks may be given something.
const COULD: usize = 1;
/// Added for each open lot.
const LOT: usize = 2;

/// What an engine knows of jobs.
pub(crate) struct Sharing<K, W> {
    /// Jobs that are not over. Changed under `books`; read by workers, between slices, without it.
    jobs: CachePadded<AtomicUsize>,
    /// What keeps a worker from falling asleep. `COULD` is set if one that asks may be given something:
    /// written at the end of every section of `books`. `LOT` is added for each batch of a job from
    /// which others may take: by the worker that has it, and taken off by whoever empties it.
    offers: CachePadded<AtomicUsize>,
    /// Raised by each section that tells a worker in the middle of a batch to ask again. Read by those.
    changes: CachePadded<AtomicUsize>,
    /// Barriers that are unfinished. Raised before one enters its inboxes, lowered when its last fence
    /// is down.
    pub(super) barriers: CachePadded<AtomicUsize>,
    /// Made for the first job. Innermost: no other lock is taken under it.
    books: Mutex<Books<K, W>>,
}

impl<K, W> Sharing<K, W> {
    pub(crate) fn new() -> Self {
        Sharing {
            jobs: CachePadded::new(AtomicUsize::new(0)),
            offers: CachePadded::new(AtomicUsize::new(0)),
            changes: CachePadded::new(AtomicUsize::new(0)),
            barriers: CachePadded::new(AtomicUsize::new(0)),
            books: Mutex::new(Books::new()),
        }
    }

    /// Whether there are jobs, so that a worker is to ask where it goes.
    #[inline(always)]
    pub(crate) fn has_jobs(&self) -> bool {
        self.jobs.load(Ordering::Relaxed) != 0
    }

    /// Whether a worker that asks may be given something.
    pub(crate) fn offers(&self) -> bool {
        self.offers.load(Ordering::Acquire) != 0
    }

    /// The same, read so that it is ordered with every section that sets it.
    pub(crate) fn offers_for_certain(&self) -> bool {
        self.offers.fetch_or(0, Ordering::AcqRel) != 0
    }

    /// Whether the last section said so. Under `books` it is exact.
    fn could(&self) -> bool {
        self.offers.load(Ordering::Relaxed) & COULD != 0
    }

    /// Whether somebody has a batch from which others may take.
    pub(crate) fn has_lots(&self) -> bool {
        self.offers.load(Ordering::Relaxed) >= LOT
    }

    /// What `is_disturbed` is to be asked with.
    pub(crate) fn changes(&self) -> usize {
        self.changes.load(Ordering::Relaxed)
    }

    fn disturb(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
    }
}

impl<K: Key, X: Execute<K>, S: BuildHasher> Engine<K, X, S> {
    /// A section of the books; what follows from it is done after the lock is released.
    fn section<R>(&self, section: impl FnOnce(&mut Books<K, X::Work>, u64) -> R) -> R {
        let clock = self.clock.now();
        let mut books = self.sharing.books.lock_politely();
        let time = books.pass(clock);
        let result = section(&mut books, time);
        let (could, jobs) = match &books.allocator {
            None => (false, 0),
            // Without jobs it is not asked.
            Some(allocator) => match allocator.unfinished() {
                0 => (false, 0),
                jobs => (allocator.could_decide(), jobs),
            },
        };
        // Written only if they change: others read them all the time.
        if self.sharing.jobs.load(Ordering::Relaxed) != jobs {
            self.sharing.jobs.store(jobs, Ordering::Relaxed);
        }
        let changed = self.sharing.could() != could;
        match could {
            true if changed => self.sharing.offers.fetch_or(COULD, Ordering::AcqRel),
            false if changed => self.sharing.offers.fetch_and(!COULD, Ordering::AcqRel),
            _ => 0,
        };
        let over = std::mem::take(&mut books.over);
        drop(books);
        if changed && could {
            self.idle.offered();
        }
        for (crowd, last) in over {
            crowd.finish(last);
            self.admission.release(1);
        }
        result
    }

    /// Takes a worker back from where it was, and says where it goes next, if it asks.
    pub(crate) fn share(
        &self,
        back: Option<Back>,
        asks: bool,
        desk: &mut Desk<K, X::Work>,
    ) -> Given {
        let loose = asks && self.ready_shards.any();
        let (given, cancelled) = self.section(|books, _| {
            let cancelled = back.is_some_and(|back| books.take_back(back));
            let given = if asks { books.give(loose, desk) } else { Given::Nothing };
            (given, cancelled)
        });
        if cancelled {
            self.sharing.disturb();
        }
        given
    }

    /// A job's splitter may be asked by others.
    pub(crate) fn split(&self, id: JobId, exhausted: bool) {
        self.section(|books, time| books.split(id, exhausted, time));
    }

    /// The subtask that a worker was given for waits in the lanes. If it still has the splitter, it says whether
    /// that is exhausted, and others may ask it now.
    pub(crate) fn waits(&self, id: JobId, take: Take, exhausted: Option<bool>) {
        self.section(|books, time| {
            books.take_back(Back { who: Claimant::Job(id), take, sat: Sat::ended(End::Waits) });
            books.line_up(id);
            if let Some(exhausted) = exhausted {
                books.split(id, exhausted, time);
            }
        });
    }

    /// The subtask that a worker was given for goes on without it, and will be settled.
    #[cfg(feature = "tokio")]
    pub(crate) fn goes_on(&self, id: JobId, take: Take) {
        self.section(|books, _| {
            books.take_back(Back { who: Claimant::Job(id), take, sat: Sat::ended(End::Waits) })
        });
    }

    /// A worker that splits leaves so many subtasks to whoever comes.
    pub(crate) fn split_more(&self, id: JobId, count: u64) {
        self.section(|books, time| {
            if let Some(allocator) = &mut books.allocator {
                allocator.split_more(id, count, time);
            }
        });
    }

    /// A worker has a batch from which others may take.
    pub(crate) fn open_lot(&self) {
        self.sharing.offers.fetch_add(LOT, Ordering::AcqRel);
        self.idle.offered();
    }

    /// Nothing is left in so many of them.
    pub(crate) fn close_lots(&self, count: usize) {
        self.sharing.offers.fetch_sub(count * LOT, Ordering::AcqRel);
    }

    /// Tells the rules of subtasks that were taken out of a batch.
    pub(crate) fn tell_untold(&self, id: JobId, untold: &AtomicU64) {
        self.section(|books, time| {
            // In the section, so that whoever finds nothing knows that it was told.
            let count = untold.swap(0, Ordering::AcqRel);
            if count != 0
                && let Some(allocator) = &mut books.allocator
            {
                allocator.split_more(id, count, time);
            }
        });
    }

    /// Lets anybody have what waits behind other subtasks in the batches of workers: `job/core/lot.rs`.
    /// False if there was nothing.
    pub(crate) fn relieve(&self) -> bool {
        let jobs: Vec<_> = self.section(|books, _| {
            books.jobs.iter().flatten().map(|listed| (listed.id, listed.crowd.clone())).collect()
        });
        let mut any = false;
        for (id, crowd) in jobs {
            let closed = crowd.relieve();
            if closed != 0 {
                self.tell_untold(id, crowd.untold());
                self.close_lots(closed);
                any = true;
            }
        }
        any
    }

    /// The workers are as many as the crew says. Read again after it was told: another may have told what it had
    /// read before.
    pub(crate) fn share_anew(&self) {
        loop {
            let workers = self.crew.size();
            self.section(|books, time| {
                if let Some(allocator) = &mut books.allocator
                    && allocator.workers() != workers
                {
                    allocator.resize(workers, time);
                }
            });
            if self.crew.size() == workers {
                break;
            }
        }
        self.sharing.disturb();
    }

    /// Marks subtasks without keys as running, unless they must wait for a barrier: then they have to
    /// be entered like tasks without keys.
    ///
    /// A barrier is counted before it enters its inboxes, and is granted a shard when no task without
    /// keys runs there. A mark is made under the lock of a shard's lanes, then the barriers are
    /// counted. If the fence came to these lanes before, the lock has shown us the count. If it comes
    /// later, it finds the mark.
    pub(crate) fn begin_free(&self, shard: usize) -> bool {
        let mut lanes = self.shards[shard].lanes.lock();
        lanes.begin_free();
        drop(lanes);
        let may = self.sharing.barriers.load(Ordering::Acquire) == 0;
        if !may {
            self.end_free(shard);
        }
        may
    }

    /// Takes the mark back.
    pub(crate) fn end_free(&self, shard: usize) {
        let mut lanes = self.shards[shard].lanes.lock();
        drop(lanes.release(&Held::Free));
        let offer = lanes.has_offer();
        drop(lanes);
        if offer {
            self.offer(shard);
        }
    }
}
