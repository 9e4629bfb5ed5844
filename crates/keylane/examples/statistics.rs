//! Looks at a pool while it works: where its tasks are, how long they wait and run, what its
//! workers do, and which keys have most to do.

use std::thread::sleep;
use std::time::Duration;

use keylane::Pool;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pool = Pool::<&str>::builder().workers(2).build()?;
    for request in 0..200 {
        let client = ["alice", "bob", "carol"][request % 3];
        pool.execute(client, || sleep(Duration::from_micros(200)))?;
    }
    for _ in 0..50 {
        pool.execute("alice", || sleep(Duration::from_micros(200)))?;
    }

    let now = pool.inspect().snapshot(2);
    println!(
        "{} unfinished: {} run, {} ready, {} behind another one, {} not looked at yet",
        now.unfinished, now.running, now.ready, now.blocked, now.queued
    );
    for lane in &now.hottest {
        println!("{} has {} tasks; its first came {:?} ago", lane.key, lane.len, lane.head_age);
    }

    pool.shutdown()?;
    let end = pool.inspect().snapshot(0);
    assert_eq!(end.finished, 250);
    for (what, times) in [("waited", &end.wait_time), ("ran", &end.run_time)] {
        let (half, most) = (times.quantile(0.5), times.quantile(0.99));
        println!("half of the tasks {what} for up to {half:?}, 99 % for up to {most:?}");
    }
    for worker in &end.workers {
        println!(
            "worker {}: {} tasks, busy for {:?}",
            worker.id, worker.finished, worker.busy_time
        );
    }
    assert!(end.run_time.quantile(0.0) >= Duration::from_micros(200));
    Ok(())
}
