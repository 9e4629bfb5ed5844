//! A task can have several keys, share a key with other readers, or be a barrier.
//!
//! - A *rollup* over A and B runs after all tasks that were submitted on A and on B before it, and
//!   before all later ones. It holds no worker while it waits, and does not affect C.
//! - Tasks that *share* a key run beside each other, and in order with those that use it
//!   exclusively.
//! - A *barrier* runs alone, after everything before it and before everything after it.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use keylane::{Claims, Pool};

fn main() -> Result<(), Box<dyn Error>> {
    let pool = Pool::<char>::builder().workers(4).build()?;
    // No lock and no strong ordering is needed: a task sees all that those before it wrote.
    let (a, b) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));

    for _ in 0..1000 {
        pool.execute('A', increment(&a))?;
        pool.execute('B', increment(&b))?;
    }
    let sum = pool.submit(['A', 'B'], {
        let (a, b) = (a.clone(), b.clone());
        move || a.load(Relaxed) + b.load(Relaxed)
    })?;
    let aside = pool.submit('C', || "C has waited for no other task")?;
    pool.execute('A', increment(&a))?;

    let readers: Vec<_> = (0..3)
        .map(|_| {
            let a = a.clone();
            pool.submit(Claims::shared('A'), move || a.load(Relaxed))
        })
        .collect::<Result<_, _>>()?;
    pool.execute('A', increment(&a))?;

    let checkpoint = pool.submit(Claims::barrier(), {
        let (a, b) = (a.clone(), b.clone());
        move || (a.load(Relaxed), b.load(Relaxed))
    })?;

    println!("{}", aside.wait()?.unwrap());
    let sum = sum.wait()?.unwrap();
    assert_eq!(sum, 2000, "the rollup sees all earlier tasks, and no later one");
    println!("A and B together had {sum}");
    for reader in readers {
        assert_eq!(reader.wait()?.unwrap(), 1001);
    }
    println!("three readers of A saw 1001 each");
    let (a, b) = checkpoint.wait()?.unwrap();
    assert_eq!((a, b), (1002, 1000));
    println!("at the checkpoint A had {a} and B had {b}");
    Ok(())
}

/// Task that increments its key's count in two steps, which works only without another task in
/// between.
fn increment(count: &Arc<AtomicU64>) -> impl FnOnce() + Send + 'static {
    let count = count.clone();
    move || count.store(count.load(Relaxed) + 1, Relaxed)
}
