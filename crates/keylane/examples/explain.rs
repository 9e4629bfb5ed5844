//! Asks a pool why things wait: a task, a key, a job, the pool; and which task has held its keys
//! too long.

use std::sync::mpsc::channel;
use std::time::Duration;

use keylane::Pool;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pool = Pool::<&str>::builder().workers(2).max_active_jobs(1).build()?;
    let watch = pool
        .inspect()
        .watch_stalls(Duration::from_millis(20), |task| println!("stalled: {task}"))?;

    let ((begin, begun), (end, ended)) = (channel(), channel::<()>());
    pool.execute("alice", move || {
        begin.send(()).expect("the main thread waits for it");
        ended.recv().expect("the main thread ends it");
    })?;
    begun.recv()?;
    let payment = pool.submit("alice", || "paid")?;
    let transfer = pool.submit(["alice", "bob"], || "sent")?;
    println!("the payment: {}", pool.inspect().explain(&payment));
    println!("the transfer: {}", pool.inspect().explain(&transfer));
    println!("the key: {}", pool.inspect().explain_key(&"alice"));
    println!("the pool: {}", pool.inspect().explain_pool());

    while pool.inspect().stalled(Duration::from_millis(30)).is_empty() {
        std::thread::yield_now();
    }
    let stalled = pool.inspect().stalled(Duration::from_millis(30));
    assert_eq!(stalled[0].keys, ["alice"]);
    drop(watch);

    end.send(())?;
    assert!(payment.wait()?.is_completed() && transfer.wait()?.is_completed());
    println!("afterwards: {}", pool.inspect().explain_key(&"alice"));
    Ok(())
}
