//! The gate keeps its bound and the order of arrival, whatever waits there and however it ends.

use std::collections::BTreeMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use crate::common::{LONG, Log, Rng, Wakes, block_on, eventually, poll, soon};
use keylane::admit::{AcquireError, CapacityError, Gate, Permit};

fn gate(slots: usize) -> Arc<Gate> {
    Arc::new(Gate::new(slots).unwrap())
}

#[test]
fn a_gate_without_slots_or_with_too_many_is_refused() {
    assert_eq!(Gate::new(0).unwrap_err(), CapacityError::Zero);
    assert_eq!(Gate::new(usize::MAX).unwrap_err(), CapacityError::TooLarge);
    let gate = Gate::new(Gate::MAX_SLOTS).unwrap();
    assert_eq!((gate.available(), gate.in_use()), (Gate::MAX_SLOTS, 0));
    assert_eq!(gate.resize(0), Err(CapacityError::Zero));
    assert_eq!(gate.resize(Gate::MAX_SLOTS + 1), Err(CapacityError::TooLarge));
    assert!(CapacityError::Zero.to_string().contains("at least 1"));
}

#[test]
fn permits_are_counted_and_given_back() {
    let gate = gate(3);
    let one = gate.try_acquire().unwrap();
    let two = gate.acquire_many(2).unwrap();
    assert_eq!((gate.available(), gate.in_use(), two.slots()), (0, 3, 2));
    assert_eq!(gate.try_acquire().unwrap_err(), AcquireError::Full);
    drop(two);
    assert_eq!((gate.available(), gate.in_use()), (2, 1));
    drop(one);
    assert_eq!((gate.available(), gate.in_use(), gate.capacity()), (3, 0, 3));
}

#[test]
fn a_permit_comes_back_when_its_holder_panics() {
    let gate = gate(1);
    let panicked = thread::spawn({
        let gate = gate.clone();
        move || {
            let _permit = gate.acquire().unwrap();
            panic!("the holder fails");
        }
    });
    assert!(panicked.join().is_err());
    assert!(gate.try_acquire().is_ok());
}

#[test]
fn forgotten_slots_stay_taken_until_they_are_released() {
    let gate = gate(2);
    assert_eq!(gate.acquire_many(2).unwrap().forget(), 2);
    assert_eq!(gate.in_use(), 2);
    gate.release(1);
    let owned = gate.own(gate.try_acquire().unwrap());
    assert_eq!((owned.slots(), owned.forget(), gate.in_use()), (1, 1, 2));
    gate.release(2);
    assert_eq!(gate.in_use(), 0);
}

#[test]
#[should_panic(expected = "`Gate::release` of 2 slots, but only 1 belong to forgotten permits")]
fn slots_of_a_permit_that_is_there_cannot_be_given_back() {
    let gate = Arc::new(gate(3));
    let permit = gate.acquire().unwrap();
    let owned = gate.own(gate.acquire().unwrap());
    gate.acquire().unwrap().forget();
    // The bound would be broken in silence: `permit` gives its slot back as well.
    let release = AssertUnwindSafe(|| gate.release(2));
    let refused = catch_unwind(release).unwrap_err();
    assert_eq!(gate.in_use(), 3);
    gate.release(1);
    assert_eq!(gate.in_use(), 2);
    assert_eq!(owned.forget(), 1);
    gate.release(1);
    drop(permit);
    assert_eq!(gate.in_use(), 0);
    resume_unwind(refused);
}

#[test]
#[should_panic(expected = "belong to forgotten permits")]
fn more_than_was_taken_is_not_taken_back() {
    gate(2).release(1);
}

#[test]
fn an_owned_permit_outlives_its_borrow() {
    let gate = gate(1);
    let permit = gate.own(gate.acquire().unwrap());
    thread::spawn(move || drop(permit)).join().unwrap();
    assert_eq!(gate.in_use(), 0);
}

#[test]
#[should_panic(expected = "another gate")]
fn a_gate_does_not_own_the_permit_of_another() {
    let (one, other) = (gate(1), gate(1));
    let _owned = one.own(other.acquire().unwrap());
}

#[test]
fn whoever_waits_is_served_in_the_order_of_arrival() {
    soon(|| {
        let (gate, served) = (gate(1), Log::new());
        let held = gate.acquire().unwrap();
        thread::scope(|scope| {
            for i in 0..8 {
                let (gate, served) = (&gate, served.clone());
                scope.spawn(move || {
                    let permit = match i % 3 {
                        0 => gate.acquire(),
                        1 => gate.acquire_timeout(LONG),
                        _ => block_on(gate.acquire_async()),
                    };
                    served.push(i);
                    drop(permit.unwrap());
                });
                eventually(|| gate.waiting() == i + 1);
            }
            drop(held);
        });
        assert_eq!(served.take(), (0..8).collect::<Vec<_>>());
    });
}

#[test]
fn nobody_barges_while_somebody_waits() {
    let gate = gate(2);
    let held = gate.acquire().unwrap();
    let (mut large, wakes) = (Box::pin(gate.acquire_many_async(2)), Wakes::new());
    assert!(poll(large.as_mut(), &wakes).is_pending());
    assert_eq!(gate.available(), 1);
    assert_eq!(gate.try_acquire().unwrap_err(), AcquireError::Full, "it is kept for the first");
    let (mut small, later) = (Box::pin(gate.acquire_async()), Wakes::new());
    assert!(poll(small.as_mut(), &later).is_pending(), "a large request does not starve");
    drop(held);
    assert_eq!((wakes.count(), later.count()), (1, 0));
    let Poll::Ready(Ok(permit)) = poll(large.as_mut(), &wakes) else { panic!("it was granted") };
    drop(permit);
    assert!(poll(small.as_mut(), &later).is_ready());
}

#[test]
fn more_than_the_bound_is_refused_at_once() {
    let gate = gate(2);
    assert_eq!(gate.try_acquire_many(3).unwrap_err(), AcquireError::TooLarge);
    assert_eq!(gate.acquire_many(3).unwrap_err(), AcquireError::TooLarge);
    assert_eq!(gate.acquire_many_timeout(3, LONG).unwrap_err(), AcquireError::TooLarge);
    assert_eq!(block_on(gate.acquire_many_async(3)).unwrap_err(), AcquireError::TooLarge);
    assert_eq!(gate.acquire_many(0).unwrap().slots(), 0);
    assert!(gate.acquire_many(2).is_ok());
}

#[test]
fn a_timeout_neither_takes_nor_loses_a_slot() {
    let gate = gate(2);
    let held = gate.acquire().unwrap();
    let timed_out = AcquireError::TimedOut;
    assert_eq!(gate.acquire_many_timeout(2, Duration::ZERO).unwrap_err(), timed_out);
    assert_eq!((gate.waiting(), gate.available()), (0, 1));
    assert_eq!(gate.acquire_many_timeout(2, Duration::from_millis(5)).unwrap_err(), timed_out);
    drop(held);
    assert!(gate.acquire_many_timeout(2, Duration::MAX).is_ok());
}

#[test]
fn one_who_gives_up_lets_those_behind_pass() {
    let gate = gate(2);
    let _held = gate.acquire().unwrap();
    let (mut large, mut small) =
        (Box::pin(gate.acquire_many_async(2)), Box::pin(gate.acquire_async()));
    let wakes = Wakes::new();
    assert!(poll(large.as_mut(), &wakes).is_pending() && poll(small.as_mut(), &wakes).is_pending());
    drop(large);
    assert_eq!(wakes.count(), 1);
    assert!(poll(small.as_mut(), &wakes).is_ready());
}

#[test]
fn a_dropped_future_passes_its_slot_on() {
    let gate = gate(1);
    let held = gate.acquire().unwrap();
    let (mut one, mut two) = (Box::pin(gate.acquire_async()), Box::pin(gate.acquire_async()));
    let wakes = Wakes::new();
    assert!(poll(one.as_mut(), &wakes).is_pending() && poll(two.as_mut(), &wakes).is_pending());
    drop(held);
    drop(one);
    assert!(poll(two.as_mut(), &wakes).is_ready());
}

#[test]
fn growing_admits_and_shrinking_holds_back() {
    let gate = gate(2);
    let mut held: Vec<_> = (0..2).map(|_| gate.acquire().unwrap()).collect();
    let (mut waiter, wakes) = (Box::pin(gate.acquire_async()), Wakes::new());
    assert!(poll(waiter.as_mut(), &wakes).is_pending());
    gate.resize(3).unwrap();
    let Poll::Ready(Ok(third)) = poll(waiter.as_mut(), &wakes) else { panic!("there is room") };
    held.push(third);
    gate.resize(1).unwrap();
    assert_eq!((gate.in_use(), gate.available(), gate.capacity()), (3, 0, 1));
    for left in [2, 1] {
        held.pop();
        assert_eq!((gate.in_use(), gate.try_acquire().is_err()), (left, true));
    }
    held.pop();
    assert!(gate.try_acquire().is_ok());
}

#[test]
fn shrinking_refuses_who_wants_more_than_there_will_be() {
    let gate = gate(3);
    let _held = gate.acquire().unwrap();
    let (mut large, mut small) =
        (Box::pin(gate.acquire_many_async(3)), Box::pin(gate.acquire_async()));
    let wakes = Wakes::new();
    assert!(poll(large.as_mut(), &wakes).is_pending() && poll(small.as_mut(), &wakes).is_pending());
    gate.resize(2).unwrap();
    let Poll::Ready(refused) = poll(large.as_mut(), &wakes) else { panic!("it can never be had") };
    assert_eq!(refused.unwrap_err(), AcquireError::TooLarge);
    assert!(poll(small.as_mut(), &wakes).is_ready());
}

#[test]
fn closing_refuses_everybody_and_takes_back_no_permit() {
    soon(|| {
        let gate = gate(1);
        let held = gate.acquire().unwrap();
        let waiter = thread::spawn({
            let gate = gate.clone();
            move || gate.acquire().map(Permit::forget)
        });
        eventually(|| gate.waiting() == 1);
        gate.close();
        assert_eq!(waiter.join().unwrap(), Err(AcquireError::Closed));
        assert_eq!(gate.try_acquire().unwrap_err(), AcquireError::Closed);
        assert_eq!(gate.acquire().unwrap_err(), AcquireError::Closed);
        assert_eq!(block_on(gate.acquire_async()).unwrap_err(), AcquireError::Closed);
        assert_eq!((gate.in_use(), gate.is_closed()), (1, true));
        drop(held);
        assert_eq!(gate.in_use(), 0);
        assert!(format!("{gate:?}").contains("is_closed: true"));
    });
}

/// Threads that wait, give up, are cancelled and want different amounts, while the bound changes:
/// never more than the largest bound are in, and nothing is left over.
#[test]
fn the_bound_holds_under_stress() {
    soon(|| {
        const MOST: usize = 5;
        let (gate, inside) = (gate(MOST), AtomicUsize::new(0));
        thread::scope(|scope| {
            for seed in 0..6 {
                let (gate, inside) = (&gate, &inside);
                scope.spawn(move || {
                    let mut rng = Rng(seed);
                    for _ in 0..3000 {
                        let want = 1 + rng.below(3) as usize;
                        let permit = match rng.below(5) {
                            0 => gate.acquire_many(want),
                            1 => gate
                                .acquire_many_timeout(want, Duration::from_micros(rng.below(50))),
                            2 => block_on(gate.acquire_many_async(want)),
                            3 => gate.try_acquire_many(want),
                            _ => {
                                let mut dropped = Box::pin(gate.acquire_many_async(want));
                                let _ = poll(dropped.as_mut(), &Wakes::new());
                                continue;
                            }
                        };
                        if let Ok(permit) = permit {
                            let before = inside.fetch_add(permit.slots(), Ordering::SeqCst);
                            assert!(before + permit.slots() <= MOST);
                            inside.fetch_sub(permit.slots(), Ordering::SeqCst);
                        }
                        if rng.below(50) == 0 {
                            gate.resize(3 + rng.below(3) as usize).unwrap();
                        }
                    }
                });
            }
        });
        gate.resize(MOST).unwrap();
        assert_eq!((gate.in_use(), gate.available(), gate.waiting()), (0, MOST, 0));
        assert!(gate.try_acquire_many(MOST).is_ok());
    });
}

/// A gate as one would explain it.
#[derive(Default)]
struct Model {
    capacity: usize,
    in_use: usize,
    line: Vec<(usize, usize)>,
    granted: BTreeMap<usize, usize>,
    refused: Vec<usize>,
}

impl Model {
    fn free(&self) -> usize {
        self.capacity.saturating_sub(self.in_use)
    }

    fn settle(&mut self) {
        while let Some(&(waiter, want)) = self.line.first()
            && want <= self.free()
            && self.in_use <= self.capacity
        {
            self.line.remove(0);
            self.in_use += want;
            self.granted.insert(waiter, want);
        }
    }
}

type Waiter<'a> = Pin<Box<dyn Future<Output = Result<Permit<'a>, AcquireError>> + 'a>>;

/// Random programs agree with the model.
#[test]
fn random_programs_do_what_the_model_does() {
    for seed in 0..4000 {
        let mut rng = Rng(seed);
        let capacity = 1 + rng.below(4) as usize;
        let gate = Gate::new(capacity).unwrap();
        let mut model = Model { capacity, ..Model::default() };
        let mut waiters: Vec<(usize, Waiter<'_>, Arc<Wakes>)> = Vec::new();
        let mut permits: Vec<Permit<'_>> = Vec::new();
        for step in 0..80 {
            let want = 1 + rng.below(3) as usize;
            match rng.below(6) {
                0 => {
                    let may = model.line.is_empty() && want <= model.free();
                    match gate.try_acquire_many(want) {
                        Ok(permit) => {
                            assert!(may);
                            model.in_use += want;
                            permits.push(permit);
                        }
                        Err(AcquireError::TooLarge) => assert!(want > model.capacity),
                        Err(_) => assert!(!may && want <= model.capacity),
                    }
                }
                1 => {
                    let (mut waiter, wakes): (Waiter<'_>, _) =
                        (Box::pin(gate.acquire_many_async(want)), Wakes::new());
                    match poll(waiter.as_mut(), &wakes) {
                        Poll::Ready(Err(_)) => assert!(want > model.capacity),
                        Poll::Ready(Ok(permit)) => {
                            assert!(model.line.is_empty() && want <= model.free());
                            model.in_use += want;
                            permits.push(permit);
                        }
                        Poll::Pending => {
                            assert!(!model.line.is_empty() || want > model.free());
                            model.line.push((step, want));
                            waiters.push((step, waiter, wakes));
                        }
                    }
                }
                2 if !permits.is_empty() => {
                    let permit = permits.swap_remove(rng.below(permits.len() as u64) as usize);
                    model.in_use -= permit.slots();
                    drop(permit);
                    model.settle();
                }
                3 if !waiters.is_empty() => {
                    let at = rng.below(waiters.len() as u64) as usize;
                    let (number, mut waiter, wakes) = waiters.swap_remove(at);
                    match poll(waiter.as_mut(), &wakes) {
                        Poll::Ready(Ok(permit)) => {
                            assert_eq!(model.granted.remove(&number), Some(permit.slots()));
                            assert!(wakes.count() > 0);
                            permits.push(permit);
                        }
                        Poll::Ready(Err(_)) => assert!(model.refused.contains(&number)),
                        Poll::Pending => waiters.push((number, waiter, wakes)),
                    }
                }
                4 if !waiters.is_empty() => {
                    let at = rng.below(waiters.len() as u64) as usize;
                    let (number, waiter, _) = waiters.swap_remove(at);
                    drop(waiter);
                    model.line.retain(|&(other, _)| other != number);
                    model.in_use -= model.granted.remove(&number).unwrap_or(0);
                    model.settle();
                }
                5 if rng.below(4) == 0 => {
                    model.capacity = 1 + rng.below(5) as usize;
                    gate.resize(model.capacity).unwrap();
                    let capacity = model.capacity;
                    model
                        .refused
                        .extend(model.line.extract_if(.., |w| w.1 > capacity).map(|w| w.0));
                    model.settle();
                }
                _ => {}
            }
            assert_eq!((gate.in_use(), gate.available()), (model.in_use, model.free()));
            assert_eq!(gate.waiting(), model.line.len());
        }
        drop((waiters, permits));
        assert_eq!((gate.in_use(), gate.waiting()), (0, 0));
    }
}
