//! Decides who gets a free worker: the four rules by which jobs share them, and how many workers
//! there should be.
//!
//! A *job* is many subtasks that belong together. Several share the workers so that none takes them
//! all, as few as possible wait, and the one that needs the least is done first:
//!
//! 1. An active job with something to do and no worker gets one.
//! 2. Else the first job that waits becomes active, if fewer than the bound are, and gets one.
//! 3. Else the active job with the least requirement that has something to do gets one.
//!
//! Those are the rules in the order of arrival; in the other [`Order`]s the places go to whoever needs least.
//!
//! The [`Allocator`] is these rules and nothing else: no clock, no lock, no thread. A pool calls it,
//! and so does a simulation. What the rules come from, what they promise, and where the text that they
//! come from contradicts itself is in the README beside the source.

mod allocator;
mod decision;
mod indexed_heap;
mod job;
mod policy;
mod ready_bitmap;
mod record;
mod rules;
mod sizing;

pub use allocator::Allocator;
pub use decision::{Claimant, Decision, End, JobId, Rule, Take};
pub use job::{Progress, Supply};
pub use policy::Order;
pub(crate) use ready_bitmap::{MAX_SHARDS, ReadyBitmap};
pub use record::{Divergence, Entry, Event, ParseRecordError, Record};
pub use sizing::{Machine, default_workers};
