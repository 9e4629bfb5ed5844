//! Kafka as a [`Source`](crate::source::Source) of records, and as a destination.
//!
//! [`KafkaSource`] is a member of a consumer group. [`KafkaSink`] writes records and reports when
//! the brokers have them; [`KafkaOutput`] is a topic for the output of handlers,
//! [`KafkaDeadLetters`] one for dead letters. All use librdkafka, with the settings of
//! [`ClientSettings`]; TLS and SCRAM need the feature `kafka-tls`.
//!
//! # Guarantees of the source
//! - **No loss.** Only the consumer's progress is committed. There are no automatic commits, and no
//!   record is skipped without a notice, except those that their producer has aborted.
//! - **Little repetition.** Completed records above the committed offset are in its metadata, so a
//!   restart, a rebalance or a crash repeats only records completed since the last commit.
//! - **Orderly rebalances.** A revoked partition stays assigned until the consumer has released it.
//!   Meanwhile the client is polled and the group continues. A lost partition is reported at once,
//!   and nothing is committed for it any more.
//! - **Pauses fetch nothing twice**: the client keeps what it has fetched of a paused partition, at
//!   most its read-ahead.
//! - **Recreated topics** are detected by their id, which is checked every five seconds and is part
//!   of the map beside each offset. They are read from the first record, or are an error:
//!   [`RecreatedTopic`]. Records read before the detection are delivered again.
//! - **Missing records** stop the source with the remedy, unless [`KafkaSettings::out_of_range`]
//!   sets where to continue: records removed by retention or an administrator, or lost by brokers,
//!   before they were read. Skipped records are counted. A log that was truncated and grew again is
//!   detected by leader epochs (KIP-320), which are in each commit and in the map.
//! - **Exactly once from topic to topic**, on request: [`KafkaSource::join_exactly_once`] commits
//!   output and progress in transactions. `kafka/transaction/mod.rs` has the protocol, and why it
//!   is right. Without it, output is written at least once.
//!
//! # Not guaranteed
//! Other effects of handlers happen at least once.
//!
//! When a group's session expires, because the broker was away for longer than
//! `session.timeout.ms`, the partitions are lost: records that were not committed by then are
//! handled again by their next owner.
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

mod abort_state;
mod address;
mod context;
mod dead_letters;
mod epochs;
mod error;
mod exactly_once;
mod fetch;
mod fetched_batch;
mod ffi;
mod lag;
mod member;
mod metadata_thread;
mod output;
mod ownership;
mod partition;
mod partition_queues;
mod pending_assignment;
mod rebalance;
mod settings;
mod sink;
mod source;
mod start_offset;
mod target;
mod topic_partition;
mod topic_partitions;
mod transaction;

pub use address::{AddressError, SubscriptionAddress, TopicAddress};
pub use dead_letters::KafkaDeadLetters;
pub use lag::{PartitionLag, lag, topic_names};
pub use output::KafkaOutput;
pub use settings::{
    ClientSettings, KafkaSettings, OffsetMapVersion, RebalanceProtocol, RecreatedTopic, StartFrom,
};
pub use sink::{KafkaSink, SendError, WrittenPosition};
pub use source::KafkaSource;
pub use target::{TargetState, target_state};
pub use transaction::TransactionalOutput;
