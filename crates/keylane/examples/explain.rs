//! Asks a pool why things wait: a task, a key, a job, the pool; and which task has held its keys too long.

use std::sync::mpsc::channel;
use std::time::Duration;

use keylane::Pool;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pool = Pool::<&str>::builder().workers(2).max_active_jobs(1).build()?;
    let watch = pool.watch_stalls(Duration::from_millis(20), |task| println!("stalled: {task}"))?;

    let ((begin, begun), (end, ended)) = (channel(), channel::<()>());
    pool.execute("alice", move || {
        begin.send(()).expect("somebody waits for it");
        ended.recv().expect("somebody ends it");
    })?;
    begun.recv()?;
    let payment = pool.submit("alice", || "paid")?;
    let transfer = pool.submit(["alice", "bob"], || "sent")?;
    println!("the payment: {}", pool.explain_task(&payment));
    println!("the transfer: {}", pool.explain_task(&transfer));
    println!("the key: {}", pool.explain_key(&"alice"));
    println!("the pool: {}", pool.explain());

    while pool.stalled(Duration::from_millis(30)).is_empty() {
        std::thread::yield_now();
    }
    let stalled = pool.stalled(Duration::from_millis(30));
    assert_eq!(stalled[0].keys, ["alice"]);
    drop(watch);

    end.send(())?;
    assert!(payment.wait()?.is_done() && transfer.wait()?.is_done());
    println!("afterwards: {}", pool.explain_key(&"alice"));
    Ok(())
}
