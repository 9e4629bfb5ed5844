//! A task that has not begun can be cancelled, and never runs. One that runs is asked, and decides.
//!
//! Either way its turn is kept to its end: nothing that comes after it begins any earlier.

use std::error::Error;
use std::sync::mpsc;

use keylane::{Outcome, Pool, is_cancelled};

fn main() -> Result<(), Box<dyn Error>> {
    let pool = Pool::<&str>::builder().workers(1).build()?;
    let (began, begun) = mpsc::channel();

    let endless = pool.submit("key", move || {
        began.send(()).expect("main waits for it");
        while !is_cancelled() {
            std::thread::yield_now();
        }
        "the value at its cancellation"
    })?;
    let waiting = pool.submit("key", || unreachable!("it is cancelled before it begins"))?;
    let last = pool.submit("key", || "the next one of the key")?;
    begun.recv()?;

    assert!(waiting.cancel(), "it had not begun");
    assert!(matches!(waiting.wait()?, Outcome::Cancelled));
    println!("one was cancelled before it began");

    assert!(!last.is_finished(), "it waits for the turn of the first");
    assert!(!endless.cancel(), "it runs, and is only asked");
    println!("one was asked to stop, and returned {}", endless.wait()?.unwrap());
    println!("{}", last.wait()?.unwrap());
    Ok(())
}
