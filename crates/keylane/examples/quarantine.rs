//! A key whose tasks keep failing stops, so that it does no more harm and loses nothing.
//!
//! One tenant's database is down. After two failures in a row its work waits, while that of the
//! others continues; once the database is back, it continues where it was.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use keylane::{OnFailure, Pool};

fn main() -> Result<(), Box<dyn Error>> {
    let is_up = Arc::new(AtomicBool::new(false));
    let up = is_up.clone();
    let pool = Pool::<&str>::builder()
        .workers(2)
        .on_failure(OnFailure::StopKey { after: 2 })
        .build_handler(move |tenant: &&str, write: u32| {
            if *tenant == "acme" && !up.load(Ordering::Relaxed) {
                println!("{tenant}: write {write} failed");
                return Err("the database is down");
            }
            println!("{tenant}: write {write}");
            Ok(())
        })?;
    for write in 1..=4 {
        pool.send("acme", write)?;
        pool.send("globex", write)?;
    }
    let stopped = loop {
        match pool.keys().list_stopped().pop() {
            Some(stopped) => break stopped,
            None => std::thread::yield_now(),
        }
    };
    println!("{}: {:?}", stopped.key, stopped.hold);

    // The handler must repeat the failed message; the waiting ones run in order.
    is_up.store(true, Ordering::Relaxed);
    pool.keys().resume(&"acme");
    pool.shutdown()?;
    Ok(())
}
