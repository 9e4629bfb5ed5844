//! Decides which tasks may run now: keeps the lanes, the claims of tasks on keys, and the wait
//! queues.
//!
//! `README.md` beside this file has the protocol, its states and the proof sketch.

mod claims;
mod concurrency_limits;
mod conflicts;
mod entry;
mod failure_counts;
mod hot_keys;
mod inbox;
mod inbox_markers;
mod key_markers;
mod lane_index;
mod lanes;
mod one_or_many;
mod rate;
mod rate_limiter;
mod ready_queue;
mod rollup;
mod segment_queue;
mod task_meta;
mod task_slot;

pub(crate) use claims::{ClaimMode, ClaimsRepr, KeyClaim, WeighedClaims};
pub use claims::{Claims, IntoClaims};
pub use conflicts::Compatibility;
pub(crate) use conflicts::{
    ConflictEntry, ConflictRegistry, ConflictScan, Descriptor, Inserted, PageScan, ScanBatch,
};
pub(crate) use entry::InboxEntry;
pub(crate) use inbox::Inbox;
pub(crate) use key_markers::{MarkerId, Replacement};
pub(crate) use lanes::{
    AheadCounts, ClearedShard, FailedOwner, FailedTask, FoundTask, HeldLanes, KeyStop, Lanes,
    PauseReasons, ReplaceResult, TakenTasks, UnrunTask, UnrunTasks, take_rollup,
};
pub use rate::Rate;
pub(crate) use rate::TokenBucket;
pub(crate) use rate_limiter::RateDeadline;
pub(crate) use rollup::{
    MarkerRole, PartPlace, ReplacingEnd, Rollup, RollupPart, RollupScope, merge_claims,
};
pub(crate) use task_meta::TaskMeta;
pub(crate) use task_slot::{SlotRef, TaskSlot};
