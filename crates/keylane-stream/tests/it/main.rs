//! Integration tests of this crate, one module for each guarantee. One program, so that they link
//! once.

mod common;
mod consumer_batches;
mod consumer_bounds;
mod consumer_cancels;
mod consumer_crash;
mod consumer_failures;
mod consumer_journal;
mod consumer_key_batches;
mod consumer_keys;
mod consumer_letters;
mod consumer_lines;
mod consumer_order;
mod consumer_outputs;
mod consumer_partitions;
mod consumer_pauses;
mod consumer_retries;
mod consumer_transactions;
mod consumer_waits;
mod consuming;
mod guarantees;
mod journal_basics;
mod journal_crash;
mod journal_damage;
#[cfg(target_os = "linux")]
mod journal_disk;
mod journal_full;
#[cfg(feature = "kafka")]
mod kafka_broker;
#[cfg(feature = "kafka")]
mod kafka_exactly_once;
#[cfg(feature = "kafka")]
mod kafka_guarantees;
#[cfg(feature = "kafka")]
mod kafka_mock;
#[cfg(feature = "kafka")]
mod kafka_out_of_range;
#[cfg(feature = "kafka")]
mod kafka_output;
#[cfg(feature = "kafka")]
mod kafka_processes;
#[cfg(feature = "kafka")]
mod kafka_sink;
#[cfg(feature = "kafka")]
mod kafka_support;
#[cfg(feature = "kafka")]
mod kafka_to_the_end;
#[cfg(feature = "kafka")]
mod kafka_topics;
mod tracker_maps;
mod tracker_model;
