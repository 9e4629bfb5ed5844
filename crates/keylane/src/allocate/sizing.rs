//! Decides how many workers a pool for CPU-bound work should have, and can say why.
//!
//! Two hardware threads of one core share its arithmetic, so a worker on the second one buys little
//! and costs CPU time that the rest of the process may need: on the two cores and four threads of an
//! i3 the fourth worker bought 6 % for 53 % more CPU time, and slowed the HTTP thread. So there is a
//! worker for each physical core, not more than affinity and quota allow, and a logical CPU is left
//! for the front end where there is one to spare.

mod cgroup;
mod topology;

use std::fmt;
use std::num::NonZeroUsize;
use std::path::Path;

/// From so many CPUs on one can be spared: it is at most a quarter of them.
const MIN_CORES_TO_SPARE_ONE: usize = 4;

/// How many workers a pool has unless it is told: see [`Machine::workers`].
///
/// It is read anew in each call, for quota and affinity can change. It costs a few small files.
///
/// ```
/// assert!(keylane::allocate::default_workers() >= 1);
/// ```
pub fn default_workers() -> usize {
    Machine::here().workers()
}

/// What a process may use of the machine that it runs on.
///
/// ```
/// use keylane::allocate::Machine;
///
/// let i3 = Machine { logical: 4, physical: 2, quota_millis: None };
/// assert_eq!(i3.workers(), 2);
/// assert_eq!(
///     i3.to_string(),
///     "2 workers: one for each of 2 physical cores, which leaves 2 of 4 logical CPUs for the rest",
/// );
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Logical CPUs that are online, and on which the calling thread may run.
    pub logical: usize,
    /// Physical cores that these belong to. Where the system does not say which CPUs share a core,
    /// each counts as one.
    pub physical: usize,
    /// The CPU time that the control groups of the process may use, in thousandths of a CPU; `None`
    /// if there is no limit.
    pub quota_millis: Option<u64>,
}

impl Machine {
    /// This machine, as the calling thread may use it.
    ///
    /// On Linux from `/proc` and `/sys`. Elsewhere, or where they are missing, it is what
    /// [`std::thread::available_parallelism`] says, each CPU counted as a core.
    pub fn here() -> Self {
        Self::read(Path::new("/")).unwrap_or_else(|| {
            let cpus = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
            Machine { logical: cpus, physical: cpus, quota_millis: None }
        })
    }

    /// A Linux machine whose `proc` and `sys` are under `root`; `None` if they don't even say which
    /// CPUs there are.
    pub fn read(root: &Path) -> Option<Self> {
        let cpus = topology::usable_cpus(root)?;
        Some(Machine {
            logical: cpus.len(),
            physical: topology::cores(root, &cpus),
            quota_millis: cgroup::quota_millis(root),
        })
    }

    /// How many workers it should have for CPU-bound work, at least one:
    ///
    /// - one for each physical core;
    /// - no more than the quota has whole CPUs, for what exceeds it is stopped for the rest of each
    ///   period, whatever it holds;
    /// - one less if that would leave no logical CPU for the rest of the process, and there are four
    ///   or more.
    pub fn workers(&self) -> usize {
        let workers = self.physical.min(self.budget());
        if self.one_is_spared() { workers - 1 } else { workers.max(1) }
    }

    /// The CPUs that can be busy all the time: those there are, or those that the quota pays for.
    fn budget(&self) -> usize {
        let quota = self.quota_millis.map_or(u64::MAX, |millis| millis / 1000);
        self.logical.min(usize::try_from(quota).unwrap_or(usize::MAX))
    }

    fn one_is_spared(&self) -> bool {
        self.physical >= self.budget() && self.budget() >= MIN_CORES_TO_SPARE_ONE
    }
}

/// The number of workers, and its reason.
impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Machine { logical, physical, quota_millis } = *self;
        let workers = self.workers();
        write!(f, "{workers} worker{}: ", if workers == 1 { "" } else { "s" })?;
        let is_capped = self.budget() < physical;
        match quota_millis {
            Some(millis) if is_capped => {
                write!(f, "a quota of {:.2} CPUs", millis as f64 / 1000.0)?;
            }
            _ if physical == 1 => write!(f, "one physical core")?,
            _ => write!(f, "one for each of {physical} physical cores")?,
        }
        if self.one_is_spared() {
            write!(f, ", less one for the rest of the process")
        } else if !is_capped && logical > workers {
            write!(f, ", which leaves {} of {logical} logical CPUs for the rest", logical - workers)
        } else {
            write!(f, ", and none to spare")
        }
    }
}
