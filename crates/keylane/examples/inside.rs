//! A task may submit to its own pool. It never waits for capacity, since it might wait for capacity
//! that only its own end can free; and waiting for a task that is ordered behind it is an error
//! instead of a hang.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use keylane::Pool;

fn main() -> Result<(), Box<dyn Error>> {
    // Capacity for one task: a submission from outside waits for the one before.
    let pool = Arc::new(Pool::<u64>::builder().workers(2).capacity(1).build()?);
    let visited = Arc::new(AtomicU64::new(0));

    let (own, count) = (pool.clone(), visited.clone());
    pool.submit(1, move || visit(&own, 1, count))?.wait()?;
    while pool.inspect().snapshot(0).unfinished != 0 {
        std::thread::yield_now();
    }
    println!("{} nodes were visited", visited.load(Relaxed));
    assert_eq!(visited.load(Relaxed), 999);

    let own = Arc::downgrade(&pool);
    let outcome = pool.submit(7, move || {
        let pool = own.upgrade().expect("main waits");
        let beside = pool.submit(8, || "of another key").expect("it is open");
        let behind = pool.submit(7, || ()).expect("it is open");
        (beside.wait().map(|outcome| outcome.unwrap()).ok(), behind.wait().is_err())
    })?;
    let (beside, is_refused) = outcome.wait()?.unwrap();
    println!("a task can wait for one {}", beside.expect("nothing is in its way"));
    assert!(is_refused, "its own end would have to come first");
    println!("and is told that it can't for one of its own key");
    Ok(())
}

/// Visits a node of a tree, and its children beside each other.
fn visit(pool: &Arc<Pool<u64>>, node: u64, visited: Arc<AtomicU64>) {
    visited.fetch_add(1, Relaxed);
    for child in [2 * node, 2 * node + 1].into_iter().filter(|child| *child < 1000) {
        let (own, visited) = (Arc::downgrade(pool), visited.clone());
        let task = move || visit(&own.upgrade().expect("main has it"), child, visited);
        pool.execute(child, task).expect("main drains it when all is done");
    }
}
