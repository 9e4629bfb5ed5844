//! Renamed settings: an old name of an option or a configuration key is accepted, with a warning that gives the new
//! name. Both names at once are an error.

#[cfg(any(feature = "consume", feature = "service"))]
pub(crate) mod file;
mod options;

pub(crate) use options::with_new_names;

/// A setting with another name than before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Renamed {
    pub(crate) old: &'static str,
    pub(crate) new: &'static str,
}

impl Renamed {
    pub(crate) const fn new(old: &'static str, new: &'static str) -> Self {
        Renamed { old, new }
    }
}

/// Options of `keylane consume` without their dashes, which are also keys of its configuration file.
pub(crate) const CONSUME: &[Renamed] = &[
    Renamed::new("member", "group-instance-id"),
    Renamed::new("longest-backoff", "max-backoff"),
    Renamed::new("commit-every", "commit-interval"),
    Renamed::new("commit-after", "commit-batch-size"),
    Renamed::new("most-records", "max-in-flight"),
    Renamed::new("most-bytes", "max-in-flight-bytes"),
    Renamed::new("stop-within", "shutdown-timeout"),
    Renamed::new("stalled-after", "stall-timeout"),
];
