//! Account balances that are written once for several bookings: the batch of a key is read, summed
//! and written together, while other accounts are handled concurrently.
//!
//! `cargo run -p keylane-stream --example key_batches`

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use keylane_stream::Record;
use keylane_stream::consumer::{Attempt, BatchBy, BatchConfig, BatchFailure, Consumer};
use keylane_stream::memory::MemoryStream;
use keylane_stream::retry::{OnExhausted, RetryLimit, RetryPolicy, RetryRule};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let stream = MemoryStream::new("bookings", 1);
    for number in 0..1_000 {
        let account = format!("account {}", number % 7);
        let amount = if number == 500 { "much".to_owned() } else { number.to_string() };
        stream.push(0, Record::new(account, amount));
    }
    stream.exhaust();

    let balances: &Mutex<HashMap<Vec<u8>, i64>> = Box::leak(Box::default());
    let book = move |bookings: &[Attempt]| {
        let mut sum = 0;
        let mut bad = None;
        let mut done = 0;
        for booking in bookings {
            match std::str::from_utf8(booking.payload()).unwrap_or_default().parse::<i64>() {
                Ok(amount) => sum += amount,
                Err(why) => {
                    // The bookings before it are written; those after it are delivered again.
                    bad = Some(BatchFailure::new(done, why));
                    break;
                }
            }
            done += 1;
        }
        let account = bookings[0].key().unwrap_or_default();
        let mut balances = balances.lock().expect("no holder panics");
        *balances.entry(account.to_vec()).or_default() += sum;
        println!("{done} bookings, {sum} for {}", String::from_utf8_lossy(account));
        bad.map_or(Ok(()), Err)
    };
    let batch = BatchConfig {
        max_records: 50,
        linger: Duration::from_millis(5),
        split: false,
        by: BatchBy::Key,
    };
    let once = RetryRule {
        limit: RetryLimit::attempts(1),
        on_exhausted: OnExhausted::Skip,
        ..RetryRule::default()
    };
    let ended = Consumer::builder(stream.source())
        .threads(4)
        .retry(RetryPolicy::new(once)?, |_| ())
        .start_batches(batch, book)?
        .wait();

    let total: i64 = balances.lock().expect("no holder panics").values().sum();
    assert_eq!(total, (0..1_000).sum::<i64>() - 500);
    assert_eq!((ended.counts.handled, ended.counts.skipped), (999, 1));
    Ok(())
}
