//! Futures as tasks: a future holds its turn until it ends, and no worker waits for it.
//!
//! Needs the feature `tokio`: `cargo run -p keylane --features tokio --example futures`.

use std::collections::HashMap;
use std::error::Error;
use std::sync::{Arc, Mutex};

use keylane::Pool;

const CLIENTS: u32 = 20;
const REQUESTS: u32 = 5;

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build()?;
    // At most 8 futures run at a time, with one worker, which only starts them.
    let pool = Pool::<u32>::builder().workers(1).runtime(runtime.handle().clone(), 8).build()?;

    // Requests served to each client, across an await in the middle of each request.
    let served: Arc<Mutex<HashMap<u32, Vec<u32>>>> = Arc::default();
    for request in 0..REQUESTS {
        for client in 0..CLIENTS {
            let served = served.clone();
            drop(pool.task(client).submit(async move {
                let before = served.lock().unwrap().remove(&client).unwrap_or_default();
                tokio::task::yield_now().await; // others run here, but none of this client
                let after = [before, vec![request]].concat();
                served.lock().unwrap().insert(client, after);
            })?);
        }
    }
    let reply = pool.task(0).submit(async { "the last request of client 0" })?;
    println!("{} has a reply", runtime.block_on(reply)?.unwrap());
    pool.shutdown()?;

    let in_order: Vec<u32> = (0..REQUESTS).collect();
    let served = served.lock().unwrap();
    assert!((0..CLIENTS).all(|client| served[&client] == in_order));
    println!("{CLIENTS} clients, {REQUESTS} requests each, all in order");
    Ok(())
}
