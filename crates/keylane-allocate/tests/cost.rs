//! A decision costs no memory: beyond the largest number of jobs so far, the scheduler allocates
//! nothing, and finished jobs leave nothing.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use keylane_allocate::{Claimant, End, JobPolicy, JobScheduler, Supply};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// Counts what this thread asks for; other tests run beside it.
struct Counting;

// SAFETY: every call is forwarded to `System`, which keeps the contract; counting touches no memory
// that is being allocated, and the thread's counter needs no allocation and no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Jobs that come, run on some workers and end, with as many unfinished as the capacity allows.
fn rounds(scheduler: &mut JobScheduler, out: &mut Vec<Claimant>, rounds: u64) {
    for round in 0..rounds {
        while scheduler.unfinished() < 100 {
            scheduler.submit(Supply::Ready(1 + round % 7), 1, round);
        }
        while let Some(decision) = scheduler.next(round) {
            out.push(decision.to);
        }
        let who = out.swap_remove(round as usize % out.len());
        scheduler.ended(who, End::Done, round);
    }
}

#[test]
fn decisions_allocate_nothing_once_there_have_been_as_many_jobs() {
    let orders = [
        JobScheduler::new(8),
        JobScheduler::new(8).with_max_active(50).with_patience(20),
        JobScheduler::new(8).with_policy(JobPolicy::Shortest).with_patience(20),
    ];
    for mut scheduler in orders {
        scheduler.record(64);
        let mut out = Vec::with_capacity(8);
        rounds(&mut scheduler, &mut out, 1000);
        let before = ALLOCATIONS.get();
        rounds(&mut scheduler, &mut out, 10_000);
        assert_eq!(ALLOCATIONS.get() - before, 0);
    }
}

#[test]
fn ending_everything_at_once_allocates_nothing() {
    let mut scheduler = JobScheduler::new(2);
    let jobs: Vec<_> = (0..100).map(|now| scheduler.submit(Supply::Ready(3), 1, now)).collect();
    let before = ALLOCATIONS.get();
    assert!(jobs.into_iter().all(|job| scheduler.cancel(job, 100)));
    assert_eq!(ALLOCATIONS.get() - before, 0);
}

#[test]
fn jobs_that_are_over_leave_nothing_behind() {
    let mut scheduler = JobScheduler::new(2);
    let mut out = Vec::with_capacity(2);
    rounds(&mut scheduler, &mut out, 1000);
    let before = ALLOCATIONS.get();
    for round in 0..100_000 {
        let job = scheduler.submit(Supply::Ready(3), 1, round);
        assert!(scheduler.cancel(job, round));
        assert_eq!(scheduler.progress(job), None);
    }
    assert_eq!(ALLOCATIONS.get() - before, 0, "slots are used again");
}
