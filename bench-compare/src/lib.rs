//! Runs one workload on one pool and prints what happened as a JSON line, or runs whole tables of
//! such runs as child processes and prints them as markdown.
//!
//! The pieces: a [`plan`] says which key each task has, the [`world`] checks that each task is the
//! next of its key, a [`pool`] is whatever is measured, a module of [`workloads`] drives one run,
//! and [`table`] repeats runs, interleaved, and sums them up.

mod args;
mod cli;
mod job;
#[cfg(feature = "ours")]
mod ours;
#[cfg(not(feature = "ours"))]
#[path = "ours_absent.rs"]
mod ours;
mod plan;
mod pool;
mod probe;
mod record;
mod rivals;
mod rng;
mod table;
mod workloads;
mod world;

pub use cli::run;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;
