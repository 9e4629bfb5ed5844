//! A consumer with an async handler on a journal: in order per key, hundreds of keys at a time,
//! nothing lost. A second run continues where the first ended.
//!
//! ```text
//! cargo run -p keylane-stream --features tokio --example consume -- /tmp/orders.journal
//! ```

use std::error::Error;
use std::time::Duration;

use keylane_stream::Record;
use keylane_stream::consumer::{Attempt, AttemptFailure, Consumer};
use keylane_stream::journal::{Journal, JournalSource};

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "orders.journal".to_owned());
    let journal = Journal::open(path)?;
    let orders = (0..1_000).map(|number| Record::new(format!("client {}", number % 300), "1 book"));
    journal.append_all(&orders.collect::<Vec<_>>())?;

    let runtime = tokio::runtime::Runtime::new()?;
    let source = JournalSource::new(journal, "billing").to_the_end();
    let consumer = Consumer::builder(source).start_async(
        runtime.handle().clone(),
        500,
        async |order: Attempt| {
            // Stands for a call to a slow service.
            tokio::time::sleep(Duration::from_millis(10)).await;
            let what = std::str::from_utf8(order.payload())?;
            if order.position().get().is_multiple_of(250) {
                println!("{} of {:?}", what, order.key().map(String::from_utf8_lossy));
            }
            Ok::<_, AttemptFailure>(())
        },
    )?;
    let ended = consumer.wait();
    println!("{} handled; it ended because {}", ended.counts.handled, ended.reason);
    Ok(())
}
