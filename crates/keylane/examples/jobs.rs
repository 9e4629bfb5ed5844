//! Jobs share the workers: none takes them all, and the one with the least to do is done first.
//!
//! A long job is under way when a short one comes. The short one does not wait until the long one
//! is over, though that one was first and has subtasks for every worker.

use std::error::Error;
use std::sync::mpsc;

use keylane::{OnError, Outcome, Pool};

fn main() -> Result<(), Box<dyn Error>> {
    let pool = Pool::<&str>::builder().workers(2).build()?;

    // Its subtasks are split when a worker is free for them, so there may be millions.
    let (under_way, is_under_way) = mpsc::channel();
    let long = pool
        .job("long")
        .each((0..200_000_u64).map(move |n| {
            let under_way = under_way.clone();
            move || {
                if n == 1000 {
                    under_way.send(()).expect("main waits for this");
                }
                n % 7
            }
        }))
        .fold(0, |sum, n| sum + n)?;
    is_under_way.recv()?;
    let short = pool.job("short").each((0..10_u64).map(|n| move || n * n)).collect()?;
    println!("short: {:?}", short.wait()?.unwrap());
    println!("long: {}", long.wait()?.unwrap());

    // Subtasks with keys belong to the same order as everything else in the pool.
    pool.execute("stock", || println!("stock: counted"))?;
    let lines = ["stock", "orders", "stock"].map(|key| (key, move || println!("{key}: a subtask")));
    let keyed = pool.job("keyed").each_keyed(lines).run()?;
    assert!(keyed.wait()?.is_completed());

    // One that fails ends its job, unless the others are to go on.
    let numbers = ["1", "two", "3"].map(|text| move || text.parse::<u32>());
    let strict = pool.job("strict").try_each(numbers).collect()?;
    if let Outcome::Failed(error) = strict.wait()? {
        println!("strict: {error}");
    }
    let numbers = ["1", "two", "3"].map(|text| move || text.parse::<u32>());
    let lenient = pool.job("lenient").on_error(OnError::FinishAll).try_each(numbers);
    let lenient = lenient.fold_outcomes(0, |sum, number| sum + number.ok().unwrap_or(0))?;
    println!("lenient: {}", lenient.wait()?.unwrap());
    Ok(())
}
