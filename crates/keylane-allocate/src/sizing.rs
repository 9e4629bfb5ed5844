//! Default number of workers for CPU-bound work, and its reason.
//!
//! Two hardware threads of one core share its execution units, so a worker on the second one gains
//! little and uses CPU time that the rest of the process may need. On the two cores and four
//! threads of an i3 the fourth worker added 6 % throughput for 53 % more CPU time, and slowed the
//! HTTP thread. The default is therefore one worker for each physical core, within affinity and
//! quota, and one logical CPU is left to the front end where there is one to spare.

mod cgroup;
mod topology;

use std::fmt;
use std::num::NonZeroUsize;
use std::path::Path;

/// Smallest number of CPUs from which one is spared: it is then at most a quarter of them.
const MIN_CORES_TO_SPARE_ONE: usize = 4;

/// Default number of workers of a pool: see [`Machine::workers`].
///
/// Each call reads quota and affinity anew, because they can change. It reads a few small files.
///
/// ```
/// assert!(keylane_allocate::default_workers() >= 1);
/// ```
pub fn default_workers() -> usize {
    Machine::here().workers()
}

/// CPUs and CPU time that the process may use.
///
/// ```
/// use keylane_allocate::Machine;
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
    /// Online logical CPUs on which the calling thread may run.
    pub logical: usize,
    /// Physical cores of these CPUs. Where the system does not report which CPUs share a core, each
    /// counts as one.
    pub physical: usize,
    /// CPU time that the control groups of the process may use, in thousandths of a CPU; `None` if
    /// unlimited.
    pub quota_millis: Option<u64>,
}

impl Machine {
    /// Reads this machine, as the calling thread may use it.
    ///
    /// On Linux from `/proc` and `/sys`. Elsewhere, or where these are missing, from
    /// [`std::thread::available_parallelism`], with each CPU counted as a core.
    pub fn here() -> Self {
        Self::read(Path::new("/")).unwrap_or_else(|| {
            let cpus = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
            Machine { logical: cpus, physical: cpus, quota_millis: None }
        })
    }

    /// Reads a Linux machine whose `proc` and `sys` are under `root`. Returns `None` if they do not
    /// list the CPUs.
    pub fn read(root: &Path) -> Option<Self> {
        let cpus = topology::usable_cpus(root)?;
        Some(Machine {
            logical: cpus.len(),
            physical: topology::cores(root, &cpus),
            quota_millis: cgroup::quota_millis(root),
        })
    }

    /// Number of workers for CPU-bound work, at least 1:
    ///
    /// - one for each physical core;
    /// - at most the whole CPUs of the quota, because threads beyond it are stopped for the rest of
    ///   each period, with any locks that they hold;
    /// - one less if there are at least four CPUs and otherwise no logical CPU would be left for
    ///   the rest of the process.
    pub fn workers(&self) -> usize {
        let workers = self.physical.min(self.budget());
        if self.one_is_spared() { workers - 1 } else { workers.max(1) }
    }

    /// Number of physical cores that can be busy all the time, within the quota, at least 1: a number
    /// of parallel processes that leaves nothing for other work.
    ///
    /// ```
    /// use keylane_allocate::Machine;
    ///
    /// let halved = Machine { logical: 16, physical: 8, quota_millis: Some(4_000) };
    /// assert_eq!(halved.cores(), 4);
    /// ```
    pub fn cores(&self) -> usize {
        self.physical.min(self.budget()).max(1)
    }

    /// Number of CPUs that can be busy all the time, within the quota.
    fn budget(&self) -> usize {
        let quota = self.quota_millis.map_or(u64::MAX, |millis| millis / 1000);
        self.logical.min(usize::try_from(quota).unwrap_or(usize::MAX))
    }

    fn one_is_spared(&self) -> bool {
        self.physical >= self.budget() && self.budget() >= MIN_CORES_TO_SPARE_ONE
    }
}

/// Writes the number of workers and its reason.
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
