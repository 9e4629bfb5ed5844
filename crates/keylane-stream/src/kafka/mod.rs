//! Kafka as a [`Source`](crate::source::Source) of records, and as a place to write them to.
//!
//! [`KafkaSource`] is a member of a consumer group. [`KafkaSink`] writes records and says when the brokers have
//! them; [`KafkaOutput`] is a topic for what handlers make of records, [`KafkaDeadLetters`] one for dead letters. All speak through librdkafka, whose settings a
//! [`ClientSettings`] passes on; TLS and SCRAM take the feature `kafka-tls`.
//!
//! # What the source promises
//! - **Nothing is lost.** What is committed for a partition is what the consumer says is done. Nothing is
//!   committed by itself, and nothing is skipped without a notice, except records that were never committed
//!   by their producer.
//! - **Little is repeated.** What is done beyond the committed offset stands in its metadata, so a restart,
//!   a rebalance or a crash repeats only what was finished since the last commit.
//! - **Handing over waits for what runs.** A partition that is to move stays ours until the consumer has
//!   released it. Meanwhile the client is polled and the group goes on. One that was lost is reported at
//!   once, and nothing of it is committed any more.
//! - **Holding back fetches nothing twice**, unless it lasts: about a thousand records of a partition that is
//!   held back are kept.
//! - **A topic that was deleted and made again** is told by its id, which is looked at every five seconds and
//!   stands in the map beside each offset. It is read from its first record, or is an error: [`RecreatedTopic`].
//!   What was read of it before that is delivered again.
//! - **A record that does not exist any more** before it was read ends the source with the remedy, unless
//!   [`KafkaSettings::out_of_range`] says where to continue: retention has removed it, an administrator has, or brokers
//!   have lost it. What is passed over is counted. A log that lost its tail and grew again is told by leader epochs
//!   (KIP-320), which stand in each commit and in the map.
//!
//! - **Exactly once from topic to topic**, for the asking: [`KafkaSource::join_exactly_once`] commits what was made of
//!   records in transactions with their progress. The protocol, and why it is right, is at the top of
//!   `kafka/transaction/mod.rs`. Without it what is produced after processing is written at least once.
//!
//! # What it does not
//! What handlers do beside that happens at least once.
//!
//! A group's session that is over, because its broker was away for longer than `session.timeout.ms`, loses the
//! partitions: what was not committed by then is done again, by whoever gets them.
//!
//! # Examples
//! ```no_run
//! use std::time::Duration;
//!
//! use keylane_stream::kafka::{ClientSettings, KafkaSource, KafkaSettings};
//! use keylane_stream::source::{SourceEvent, Source};
//!
//! let client = ClientSettings::new("localhost:9092");
//! let mut source = KafkaSource::join(KafkaSettings::new(client, ["orders"], "billing"))?;
//! let mut events = Vec::new();
//! loop {
//!     source.poll(Duration::from_millis(100), 500, &mut events)?;
//!     for event in events.drain(..) {
//!         match event {
//!             SourceEvent::Records { partition, records } => println!("{partition}: {}", records.len()),
//!             SourceEvent::Revoked(partitions) => source.release(&partitions),
//!             event => println!("{event:?}"),
//!         }
//!     }
//! }
//! # #[allow(unreachable_code)]
//! # Ok::<(), keylane_stream::source::SourceError>(())
//! ```

mod address;
mod context;
mod dead_letters;
mod epochs;
mod error;
mod exactly_once;
mod fetch;
mod ffi;
mod lag;
mod member;
mod metadata_thread;
mod output;
mod partition;
mod pause_buffer;
mod rebalance;
mod settings;
mod sink;
mod source;
mod start_offset;
mod topic_partition;
mod transaction;

pub use address::{Address, AddressError};
pub use dead_letters::KafkaDeadLetters;
pub use lag::{Lag, lag, topic_exists};
pub use output::KafkaOutput;
pub use settings::{
    ClientSettings, KafkaSettings, MapVersion, Protocol, RecreatedTopic, StartFrom,
};
pub use sink::{KafkaSink, SendError, Written};
pub use source::KafkaSource;
pub use transaction::TransactionalOutput;
