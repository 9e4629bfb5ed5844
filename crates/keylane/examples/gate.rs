//! A gate is a fair bound without a pool: at most `n` callers proceed at a time, and the others
//! wait first come, first served, threads and futures in one queue.

use std::error::Error;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use keylane::admit::Gate;

fn main() -> Result<(), Box<dyn Error>> {
    // At most three calls of a service at a time, from all threads together.
    let gate = Gate::new(3)?;
    let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..100 {
                    let _permit = gate.acquire().expect("the gate is not closed");
                    most.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
                    std::thread::yield_now();
                    now.fetch_sub(1, SeqCst);
                    // The permit is given back here, also if the caller panics.
                }
            });
        }
    });
    assert!(most.load(SeqCst) <= 3);
    println!("8 threads made 800 calls, at most {} at a time", most.load(SeqCst));

    // Something large takes more than one slot, and keeps those out that come later.
    let large = gate.acquire_many(2)?;
    let small = gate.try_acquire()?;
    assert!(gate.try_acquire().is_err());
    assert!(gate.acquire_timeout(Duration::from_millis(1)).is_err(), "and no slot is lost by that");
    drop((large, small));

    gate.resize(1)?;
    println!("from now on it is {} at a time", gate.capacity());
    gate.close();
    println!("{}", gate.acquire().unwrap_err());
    Ok(())
}
