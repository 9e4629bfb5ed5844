//! The integration tests of this crate, a module for each promise. They are one program, which links once.

mod bad_input;
mod calibrate;
mod children;
mod client_commands;
mod client_kinds;
mod client_server;
mod client_submit;
mod client_tenants;
mod client_top;
mod client_watch;
mod client_webhooks;
mod client_workers;
mod closed_pipe;
mod closed_streams;
mod common;
mod consume;
mod consume_batches;
mod consume_keys;
mod consume_letters;
mod consume_limits;
mod consume_lost_output;
mod consume_pace;
mod consume_pause;
mod consume_tables;
mod consume_timeout;
mod consume_worker;
mod consume_worker_stderr;
mod consume_worker_timeout;
mod documents;
mod endless_input;
mod exit_codes;
mod flights;
mod kafka;
#[cfg(feature = "kafka")]
mod kafka_guarantees;
#[cfg(feature = "kafka")]
mod kafka_moves;
#[cfg(feature = "kafka")]
mod kafka_operations;
mod kafka_output;
#[cfg(feature = "kafka-tls")]
mod kafka_tls;
#[cfg(feature = "kafka")]
mod kafka_topics;
mod mock;
mod no_certificates;
mod old_names;
mod older_files;
mod ops;
mod order_per_key;
mod output_whole;
mod parallel_examples;
mod python_client;
mod run_batch;
mod run_batch_logs;
mod run_compressed;
mod run_dry;
mod run_failures;
mod run_files;
mod run_joblog;
mod run_keep_order;
mod run_keys;
mod run_output;
mod run_plan;
#[cfg(target_os = "linux")]
mod run_progress;
mod run_resume;
mod run_resume_model;
mod serve_backup;
#[cfg(feature = "postgres")]
mod serve_cluster;
mod serve_first_minute;
mod serve_limits;
mod serve_refuses;
mod serve_stops;
#[cfg(target_os = "linux")]
mod serve_terminal;
mod shell_files;
mod signals;
mod simulate;
mod slots;
mod start_order;
mod store_commands;
mod templates;
mod trace;
mod verify;
mod worker_failures;
mod worker_keys;
mod worker_mode;
mod worker_order;
