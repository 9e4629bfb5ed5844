//! Three ways to end a pool: finish everything, finish until a deadline, or take back the tasks
//! that have not begun.
//!
//! Dropping a pool drops the tasks that have not begun, and waits for the running ones.

use std::error::Error;
use std::sync::mpsc;
use std::time::Duration;

use keylane::{Outcome, Pool, SubmitErrorKind, WaitError};

fn main() -> Result<(), Box<dyn Error>> {
    drain()?;
    stop()
}

/// `shutdown` closes the pool and waits until all accepted tasks have ended.
fn drain() -> Result<(), Box<dyn Error>> {
    let pool = Pool::<u32>::builder().workers(2).build()?;
    let last = pool.submit(1, || "the last task")?;
    pool.shutdown()?;
    println!("drained, and {} has run", last.wait()?.unwrap());

    let refused = pool.submit(1, || "too late").unwrap_err();
    assert_eq!(refused.kind(), SubmitErrorKind::Closed);
    let (_keys, task) = refused.into_inner();
    println!("refused, and still here: {}", task());
    Ok(())
}

/// `shutdown_now` returns exactly the tasks that have not begun.
fn stop() -> Result<(), Box<dyn Error>> {
    let pool = Pool::<u32>::builder().workers(1).build()?;
    let (begin, begun) = mpsc::channel();
    let (end, ended) = mpsc::channel();
    let running = pool.submit(1, move || {
        begin.send(()).expect("main waits for this");
        ended.recv().expect("main says when");
        "the tasks that had begun"
    })?;
    begun.recv()?;
    let waiting = [1, 2, 3].map(|key| pool.submit(key, move || key));

    assert_eq!(pool.shutdown_timeout(Duration::from_millis(10)), Err(WaitError::TimedOut));
    println!("not empty in time");
    let mut unrun = pool.shutdown_now();
    println!("{} tasks have not begun", unrun.len());
    assert_eq!(unrun.len(), 3);

    // The tasks are ours now: to run, here on this thread, or to drop.
    unrun.remove(0).run();
    drop(unrun);
    let mut ran = 0;
    for handle in waiting {
        match handle?.wait()? {
            Outcome::Completed(_) => ran += 1,
            other => assert!(other.is_cancelled()),
        }
    }
    assert_eq!(ran, 1);

    end.send(())?;
    println!("{} has ended", running.wait()?.unwrap());
    Ok(())
}
