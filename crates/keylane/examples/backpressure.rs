//! A pool accepts at most `capacity` tasks. A submission to a full pool waits, waits for at most a
//! timeout, or returns the task.

use std::error::Error;
use std::sync::mpsc;
use std::time::Duration;

use keylane::{Pool, SubmitErrorKind};

fn main() -> Result<(), Box<dyn Error>> {
    let pool = Pool::<&str>::builder().workers(1).capacity(2).build()?;

    // Fill it: one task runs until the channel closes, one waits behind it.
    let (end, ended) = mpsc::channel::<()>();
    pool.execute("key", move || ended.recv().expect("main says when"))?;
    pool.execute("key", || println!("the second task"))?;

    // Not waiting: the task comes back, to be dropped, kept, or run right here.
    let full =
        pool.task("other").try_execute(|| println!("the third task, run by main")).unwrap_err();
    assert_eq!(full.kind(), SubmitErrorKind::Full);
    let (_keys, task) = full.into_inner();
    task();

    // Waiting for a while.
    let late = pool.task("other").timeout(Duration::from_millis(10)).execute(|| ()).unwrap_err();
    assert_eq!(late.kind(), SubmitErrorKind::TimedOut);
    println!("{late}");

    // Waiting, first come, first served, until there is capacity.
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| pool.execute("other", || println!("the fourth task")));
        while pool.inspect().snapshot(0).submitters_waiting == 0 {
            std::thread::yield_now();
        }
        end.send(()).expect("the first task waits for this");
        waits.join().expect("it does not panic")
    })?;

    // The capacity can grow while the pool runs.
    pool.settings().set_capacity(1000)?;
    for _ in 0..100 {
        pool.task("key").try_execute(|| ())?;
    }
    pool.shutdown()?;
    assert_eq!(pool.inspect().snapshot(0).unfinished, 0);
    println!("all done");
    Ok(())
}
