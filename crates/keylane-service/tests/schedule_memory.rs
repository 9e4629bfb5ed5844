//! What waiting costs: well below 200 bytes for a subtask with a key of its own, nothing for one without keys,
//! and nothing stays.
//!
//! One test, for the allocator that counts is the whole process's.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicIsize, Ordering};

use keylane_service::JobNumber;
use keylane_service::scheduler::{NewJob, NewSubtask, RunEnd, Scheduler, SchedulerSettings, Step};

struct Counting;

static LIVE: AtomicIsize = AtomicIsize::new(0);

// SAFETY: every call is passed on to the system's allocator as it came; counting beside it touches no memory
// of the caller's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller keeps what `GlobalAlloc` asks of it.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const MILLION: u32 = 1_000_000;

/// A page of each kind of thing is kept, the largest of jobs.
const KEPT: isize = 128 * 1024;

fn live() -> isize {
    LIVE.load(Ordering::Relaxed)
}

/// Accepts a million subtasks, and says what they cost.
fn accept(scheduler: &mut Scheduler, number: u64, key: fn(u32) -> Option<u32>) -> isize {
    accept_many(scheduler, number, MILLION, key)
}

fn accept_many(
    scheduler: &mut Scheduler,
    number: u64,
    count: u32,
    key: fn(u32) -> Option<u32>,
) -> isize {
    let text = |key: u32| -> [u8; 16] {
        format!("customer-{key:07}").into_bytes().try_into().expect("it has sixteen bytes")
    };
    let keys: Vec<Option<[u8; 16]>> = (0..count).map(|number| key(number).map(text)).collect();
    let before = live();
    let subtasks = keys.iter().zip(0..).map(|(key, number)| {
        let keys = key.iter().map(|key| &key[..]);
        NewSubtask { number, keys, attempts_made: 0 }
    });
    scheduler.accept(NewJob::new(JobNumber(number), subtasks), 0);
    work_off(scheduler);
    live() - before
}

/// Has everything enter or leave that does so in slices.
fn work_off(scheduler: &mut Scheduler) {
    while scheduler.work_off(0).is_some() {
        drop(scheduler.take_trash());
    }
    drop(scheduler.take_trash());
}

/// Cancels a job, and returns how many of its subtasks were dropped.
fn cancel(scheduler: &mut Scheduler, number: u64) -> u64 {
    let dropped = scheduler.cancel_job(JobNumber(number), 0).expect("it is not over").dropped;
    work_off(scheduler);
    dropped
}

fn run_all(scheduler: &mut Scheduler) {
    while let Some(start) = scheduler.poll_start(0) {
        scheduler.ended(start.job, start.step, start.fence, RunEnd::Succeeded, 0).unwrap();
    }
    assert_eq!(scheduler.slots().unfinished_jobs, 0);
}

#[test]
fn waiting_costs_little_and_nothing_stays() {
    let mut scheduler =
        Scheduler::new(SchedulerSettings { decisions_kept: 0, ..SchedulerSettings::new(1) });
    let before = live();

    let distinct = accept(&mut scheduler, 1, Some);
    assert!(distinct < 170 * MILLION as isize, "{distinct} bytes for a million keys");
    let explained = scheduler.explain(JobNumber(1), Step::Subtask(MILLION - 1)).unwrap();
    assert_eq!(explained.attempts, 0);
    run_all(&mut scheduler);
    work_off(&mut scheduler);
    let left = live() - before;
    assert!(left < KEPT, "{left} bytes are left of a million keys");

    // A hash table of the keys has a tenth of those of before.
    accept_many(&mut scheduler, 4, MILLION / 10, Some);
    run_all(&mut scheduler);
    work_off(&mut scheduler);
    let left = live() - before;
    assert!(left < KEPT, "{left} bytes are left of a hundred thousand keys");

    let one_key = accept(&mut scheduler, 2, |_| Some(7));
    assert!(one_key < 90 * MILLION as isize, "{one_key} bytes for one key");
    assert_eq!(cancel(&mut scheduler, 2), u64::from(MILLION));

    let without = accept(&mut scheduler, 3, |_| None);
    assert!(without < 4096, "{without} bytes for a million without keys");
    assert_eq!(cancel(&mut scheduler, 3), u64::from(MILLION));
    let left = live() - before;
    assert!(left < KEPT, "{left} bytes are left of all");
    println!("distinct {distinct}, one key {one_key}, without {without}, left {left}");
}
