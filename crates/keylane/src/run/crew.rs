//! How many worker threads there are, and how many there should be.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use crate::observe::{Histogram, Statistics, WorkerTally};
use crate::sync::{AtomicBool, AtomicUsize, Mutex, Ordering, ThreadId};

/// The largest number of workers that stand in for others, which wait inside a task for another task. Each
/// is a thread, so nested waits without a bound would use up the threads of the machine.
pub const MAX_SUBSTITUTES: usize = 1024;

#[derive(Debug)]
pub(crate) struct Crew {
    /// Who belongs to the crew. Threads are started, but never joined, under the lock.
    roll: Mutex<Roll>,
    /// Whether there are more workers than there should be. Written under `roll`'s lock; read by
    /// every worker now and then, without it.
    surplus: AtomicBool,
    /// Workers on a lane that has used up its quantum.
    overtime: AtomicUsize,
    /// The most that there may be: half of the workers. Written under `roll`'s lock.
    most_overtime: AtomicUsize,
    /// When the pool was built; never changed.
    epoch: Instant,
    /// What the workers measure; never changed.
    statistics: Statistics,
}

#[derive(Debug)]
struct Roll {
    /// The number of workers that was asked for.
    wanted: usize,
    /// Workers that wait inside a task for another task. Each of the first `MAX_SUBSTITUTES` is to have
    /// a substitute.
    blocked: usize,
    /// What those have done who were dismissed.
    former: Option<Box<Former>>,
    /// The number of the next worker; none is given out twice.
    next_id: usize,
    /// The workers that have not been dismissed.
    members: Vec<Member>,
}

#[derive(Debug)]
pub(crate) struct Member {
    /// The worker's number.
    pub(crate) id: usize,
    /// What the worker has done; written by it.
    pub(crate) tally: Arc<WorkerTally>,
    /// Absent until its thread was started.
    pub(crate) thread: Option<JoinHandle<()>>,
}

/// What workers have done who are gone.
#[derive(Debug, Default)]
struct Former {
    ran: u64,
    wait: Histogram,
    run: Histogram,
}

impl Roll {
    /// How many workers there should be.
    fn due(&self) -> usize {
        self.wanted + self.blocked.min(MAX_SUBSTITUTES)
    }
}

impl Crew {
    pub(crate) fn new(wanted: usize, statistics: Statistics, epoch: Instant) -> Self {
        Crew {
            epoch,
            statistics,
            roll: Mutex::new(Roll {
                wanted,
                blocked: 0,
                former: None,
                next_id: 0,
                members: Vec::new(),
            }),
            surplus: AtomicBool::new(false),
            overtime: AtomicUsize::new(0),
            most_overtime: AtomicUsize::new(wanted / 2),
        }
    }

    /// Starts workers until there are as many as there should be.
    pub(crate) fn fill<E>(
        &self,
        start: impl Fn(usize, Arc<WorkerTally>) -> Result<JoinHandle<()>, E>,
    ) -> Result<(), E> {
        let mut roll = self.roll.lock();
        while roll.members.len() < roll.due() {
            let id = roll.next_id;
            let tally = Arc::new(WorkerTally::new(self.epoch, self.statistics));
            let thread = Some(start(id, tally.clone())?);
            roll.next_id += 1;
            roll.members.push(Member { id, tally, thread });
        }
        self.weigh(&roll);
        Ok(())
    }

    pub(crate) fn set_wanted(&self, wanted: usize) {
        let mut roll = self.roll.lock();
        roll.wanted = wanted;
        self.most_overtime.store(wanted / 2, Ordering::Relaxed);
        self.weigh(&roll);
    }

    pub(crate) fn wanted(&self) -> usize {
        self.roll.lock().wanted
    }

    /// How many there should be, with the substitutes of those that wait inside a task.
    pub(crate) fn size(&self) -> usize {
        self.roll.lock().due()
    }

    pub(crate) fn block(&self) {
        let mut roll = self.roll.lock();
        roll.blocked += 1;
        self.weigh(&roll);
    }

    /// Whether some worker does not wait inside a task. If there is none, nothing runs any more.
    pub(crate) fn has_unblocked(&self) -> bool {
        let roll = self.roll.lock();
        roll.members.len() > roll.blocked
    }

    pub(crate) fn unblock(&self) {
        let mut roll = self.roll.lock();
        roll.blocked -= 1;
        self.weigh(&roll);
    }

    fn weigh(&self, roll: &Roll) {
        self.surplus.store(roll.members.len() > roll.due(), Ordering::Release);
    }

    #[inline]
    pub(crate) fn has_surplus(&self) -> bool {
        self.surplus.load(Ordering::Acquire)
    }

    /// Counts the caller as being on overtime, unless half of the workers are.
    pub(crate) fn try_overtime(&self) -> bool {
        let most = self.most_overtime.load(Ordering::Relaxed);
        let counted = self.overtime.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |count| {
            (count < most).then_some(count + 1)
        });
        counted.is_ok()
    }

    pub(crate) fn end_overtime(&self) {
        self.overtime.fetch_sub(1, Ordering::AcqRel);
    }

    /// Takes a worker off the roll if there are too many. It must then end.
    pub(crate) fn dismiss(&self, id: usize) -> bool {
        let mut roll = self.roll.lock();
        if roll.members.len() <= roll.due() {
            return false;
        }
        let leaving = roll.members.iter().position(|member| member.id == id);
        let leaving = roll.members.remove(leaving.expect("a worker is dismissed once"));
        let former = roll.former.get_or_insert_default();
        former.ran += leaving.tally.ran();
        leaving.tally.add_times_to(&mut former.wait, &mut former.run);
        self.weigh(&roll);
        true
    }

    /// Everybody's thread, to be joined.
    pub(crate) fn disband(&self) -> Vec<JoinHandle<()>> {
        let mut roll = self.roll.lock();
        roll.members.iter_mut().filter_map(|member| member.thread.take()).collect()
    }

    /// How many tasks those have run who were dismissed, whose times are added to these.
    pub(crate) fn add_former_to(&self, wait: &mut Histogram, run: &mut Histogram) -> u64 {
        let roll = self.roll.lock();
        let Some(former) = &roll.former else { return 0 };
        wait.merge(&former.wait);
        run.merge(&former.run);
        former.ran
    }

    /// Every worker's number, its thread's name, and what it says of itself.
    pub(crate) fn members(&self) -> Vec<(usize, Option<String>, Arc<WorkerTally>)> {
        let roll = self.roll.lock();
        let name = |member: &Member| member.thread.as_ref()?.thread().name().map(str::to_owned);
        roll.members.iter().map(|it| (it.id, name(it), it.tally.clone())).collect()
    }

    /// The worker that this thread is.
    pub(crate) fn member_on(&self, thread: ThreadId) -> Option<(usize, Arc<WorkerTally>)> {
        let roll = self.roll.lock();
        let is_it = |member: &&Member| {
            member.thread.as_ref().is_some_and(|handle| handle.thread().id() == thread)
        };
        roll.members.iter().find(is_it).map(|member| (member.id, member.tally.clone()))
    }

    /// Looks at every worker.
    pub(crate) fn survey<R>(&self, mut look: impl FnMut(usize, &WorkerTally) -> R) -> Vec<R> {
        self.roll.lock().members.iter().map(|member| look(member.id, &member.tally)).collect()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Each wait inside a task took a thread more, which had no bound: 199 tasks that waited, 201 threads.
    #[test]
    fn no_more_workers_stand_in_than_the_bound_says() {
        let crew = Crew::new(2, Statistics::Off, Instant::now());
        let fill = || crew.fill(|_, _| std::thread::Builder::new().spawn(|| ())).unwrap();
        fill();
        for waits in 1..MAX_SUBSTITUTES + 2 {
            crew.block();
            fill();
            assert!(crew.has_unblocked());
            assert_eq!(crew.size(), 2 + waits.min(MAX_SUBSTITUTES));
        }
        crew.block();
        fill();
        assert!(!crew.has_unblocked(), "this one must not wait");
        assert_eq!(crew.disband().len(), 2 + MAX_SUBSTITUTES);
        crew.unblock();
        assert!(crew.has_unblocked());
    }
}
