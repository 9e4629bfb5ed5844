//! Settings of the scheduler and of kinds.

use keylane_allocate::{JobPolicy, TenantLimits};

/// Units of work of one slice: a subtask counts one unit, and each of its keys one more. With a
/// million lanes in memory, a unit was measured at 0.2 to 1 µs, so a slice holds the lock for about
/// a millisecond.
pub(super) const SLICE: u32 = 1024;

/// Settings of a scheduler.
#[derive(Clone, Debug)]
pub struct SchedulerSettings {
    /// Maximum number of subtasks that run at the same time. With 0 none starts.
    pub slots: usize,
    /// Order in which the rules prefer jobs. Default: arrival.
    pub order: JobPolicy,
    /// Maximum number of active jobs; `None`: the default of `order`.
    pub max_active: Option<usize>,
    /// Maximum time for which a job may be held at one slot, in milliseconds; `None`: unlimited.
    pub patience: Option<u64>,
    /// Time after which jobs of a lower priority get a slot although those of higher ones wait, in milliseconds; `None`:
    /// never.
    pub ageing: Option<u64>,
    /// Fence of the first start: higher than all fences given before, also by earlier processes.
    pub first_fence: u64,
    /// Number of recent decisions that are kept.
    pub decisions_kept: usize,
    /// Units of work that one call does for a large job: a subtask counts one unit, and each of its
    /// keys one more. 0 counts as 1.
    pub slice: u32,
}

impl SchedulerSettings {
    /// Returns the default settings with this number of slots: order by arrival, as many active
    /// jobs as slots, no patience, no ageing, fences from 1, the last 1024 decisions (about 64 KiB).
    #[must_use]
    pub fn new(slots: usize) -> Self {
        SchedulerSettings {
            slots,
            order: JobPolicy::Arrival,
            max_active: None,
            patience: None,
            ageing: None,
            first_fence: 1,
            decisions_kept: 1024,
            slice: SLICE,
        }
    }
}

/// Id of a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KindId(pub u32);

/// Limits of a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KindLimits {
    /// Maximum number of running subtasks; `None`: the number of slots. With 0 none starts.
    pub concurrency: Option<u32>,
    /// Maximum rate of starts; `None`: no limit.
    pub rate: Option<RateLimit>,
    /// Maximum rate of starts of subtasks with the same key; `None`: no limit. Keys that a subtask shares
    /// do not count.
    pub rate_per_key: Option<RateLimit>,
    /// Whether the limits apply to subtasks only: the split and the fan-in of a job then need only
    /// a slot. Jobs of such a kind that have a split have only the subtasks that it adds.
    pub subtasks_only: bool,
}

/// Share and limits of a tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TenantSettings {
    /// Its share of the slots.
    pub share: TenantLimits,
    /// Maximum rate of its starts; `None`: no limit.
    pub rate: Option<RateLimit>,
}

/// Limit on the rate of starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Number of starts per `period_ms`.
    pub tokens: u32,
    /// Length of the period, in milliseconds, with starts evenly spread; 0 counts as 1.
    pub period_ms: u32,
    /// Maximum number of starts at once after an idle time; 0 counts as 1.
    pub burst: u32,
}
