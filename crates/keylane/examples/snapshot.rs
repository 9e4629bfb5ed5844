//! A running pool can be looked into: what its workers do, how full it is, and which keys have the
//! most to do.

use std::error::Error;
use std::sync::mpsc;

use keylane::Pool;

fn main() -> Result<(), Box<dyn Error>> {
    let pool = Pool::<&str>::builder().workers(2).capacity(100).build()?;
    let (end, ended) = mpsc::channel::<()>();
    let (began, begun) = mpsc::channel();

    pool.execute("busy", move || {
        began.send(()).expect("main waits for it");
        ended.recv().expect("main says when");
    })?;
    for _ in 0..9 {
        pool.execute("busy", || ())?;
    }
    begun.recv()?;

    let now = pool.inspect().snapshot(3);
    println!("{} of {} unfinished", now.unfinished, now.capacity);
    for worker in &now.workers {
        let does = if worker.busy { "has a task" } else { "has none" };
        println!("worker {} {does}, for {:?}", worker.id, worker.since);
    }
    for lane in &now.hottest {
        println!("{:?} has {}, the first for {:?}", lane.key, lane.len, lane.head_age);
    }
    assert_eq!((now.unfinished, now.hottest[0].len), (10, 10));

    end.send(())?;
    pool.shutdown()?;
    let after = pool.inspect().snapshot(3);
    assert!(after.hottest.is_empty(), "a key without tasks is forgotten");
    assert_eq!(after.accepted, 10);
    println!("{} were accepted, {} panicked", after.accepted, after.panicked);
    Ok(())
}
