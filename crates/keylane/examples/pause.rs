//! Pause a key, inspect its waiting tasks, take them or resume the key.
//!
//! An account is under review: its orders are accepted and wait, those of others go on. One more
//! account is closed, and its waiting orders are run elsewhere.

use std::error::Error;

use keylane::Pool;

fn main() -> Result<(), Box<dyn Error>> {
    let pool = Pool::<&str>::builder().workers(2).build()?;
    let order = |account: &'static str, n: u32| move || println!("{account}: order {n}");

    pool.keys().pause(&"alice");
    pool.keys().pause(&"carol");
    for n in 1..=3 {
        for account in ["alice", "bob", "carol"] {
            pool.execute(account, order(account, n))?;
        }
    }
    assert!(pool.submit("bob", || println!("bob: all done"))?.wait()?.is_completed());
    for held in pool.keys().list_paused() {
        println!("{}: {:?}", held.key, held.hold);
    }

    // Taken tasks can be run by the caller, or dropped.
    let orders = pool.keys().take(&"carol");
    println!("carol: {} orders are cancelled", orders.len());
    assert_eq!(orders.len(), 3);
    drop(orders);
    pool.keys().resume(&"carol");

    // Her waiting orders run in their order, and later ones after them.
    pool.keys().resume(&"alice");
    let last = pool.submit("alice", order("alice", 4))?;
    assert!(last.wait()?.is_completed());
    assert!(pool.keys().list_paused().is_empty());
    pool.shutdown()?;
    Ok(())
}
