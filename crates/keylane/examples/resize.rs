//! The number of workers, and the capacity, can be changed while the pool runs: no task is lost,
//! and none overtakes another.

use std::error::Error;
use std::sync::{Arc, Barrier};

use keylane::Pool;

fn main() -> Result<(), Box<dyn Error>> {
    let pool = Pool::<usize>::builder().workers(1).capacity(10).build()?;

    // Three tasks that wait for each other can't end on one worker.
    let together = Arc::new(Barrier::new(3));
    let tasks: Vec<_> = (0..3)
        .map(|key| {
            let together = together.clone();
            pool.submit(key, move || together.wait().is_leader())
        })
        .collect::<Result<_, _>>()?;
    pool.settings().set_workers(3)?;
    let leaders = tasks.into_iter().map(|task| task.wait().map(|outcome| outcome.unwrap()));
    assert_eq!(leaders.filter(|leader| matches!(leader, Ok(true))).count(), 1);
    println!("three workers ran what one could not");

    // Fewer: surplus workers end after their current task.
    pool.settings().set_workers(1)?;
    pool.settings().set_capacity(1000)?;
    for n in 0..500 {
        pool.task(n % 10).try_execute(|| ())?;
    }
    pool.shutdown()?;
    println!("{} worker is wanted now", pool.inspect().snapshot(0).workers_wanted);
    Ok(())
}
