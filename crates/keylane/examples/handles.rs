//! Uses of a handle: the result, an error, a panic, cancelling before the start and while the task
//! runs.
//!
//! Dropping a handle does not affect its task, which runs nevertheless.

use std::error::Error;
use std::sync::mpsc;
use std::time::Duration;

use keylane::{Outcome, Pool};

fn main() -> Result<(), Box<dyn Error>> {
    // The tasks of key 2 panic and fail on purpose; the process' own message would only disturb.
    std::panic::set_hook(Box::new(|_| {}));
    let pool = Pool::<u32>::builder().workers(2).build()?;

    let sum = pool.submit(1, || 19 + 23)?;
    println!("the result: {}", sum.wait()?.unwrap());

    let panics = pool.submit(2, || panic!("out of paper"))?;
    let fails = pool.task(2).fallible().submit(|| "forty-two".parse::<u32>())?;
    let goes_on = pool.submit(2, || "key 2 continues")?;
    match panics.wait()? {
        Outcome::<()>::Panicked(payload) => println!("a panic: {}", payload.message().unwrap()),
        other => unreachable!("{other:?}"),
    }
    match fails.wait()? {
        Outcome::Failed(error) => println!("an error: {error}"),
        other => unreachable!("{other:?}"),
    }
    println!("and after both: {}", goes_on.wait()?.unwrap());

    // A task that runs decides by itself when to stop.
    let (begin, begun) = mpsc::channel();
    let mut running = pool.submit(3, move || {
        begin.send(()).expect("main waits for this");
        let mut rounds = 0_u64;
        while !keylane::is_cancelled() {
            rounds += 1;
            std::thread::yield_now();
        }
        rounds
    })?;
    let waiting = pool.submit(3, || unreachable!("cancelled before it began"))?;
    let last = pool.submit(3, || "the last of key 3")?;
    begun.recv()?;

    assert!(waiting.cancel(), "it stood behind a running task, so this was in time");
    assert!(waiting.wait()?.is_cancelled());
    assert!(running.wait_timeout(Duration::from_millis(1))?.is_none());
    assert!(!last.is_finished(), "a cancelled task keeps its place, so no task overtakes another");
    assert!(!running.cancel(), "it runs, so it was only asked to stop");
    let rounds = running.wait()?.unwrap();
    println!("asked to stop, after {}", if rounds == 1 { "a round" } else { "some rounds" });
    println!("then came {}", last.wait()?.unwrap());
    Ok(())
}
