//! Renamed settings: an old name of an option or a configuration key is accepted, with a warning that gives the new
//! name. Both names at once are an error.

#[cfg(any(feature = "consume", feature = "service"))]
pub(crate) mod file;
mod options;

pub(crate) use options::with_new_names;

/// A setting with another name than before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RenamedSetting {
    pub(crate) old: &'static str,
    pub(crate) new: &'static str,
}

impl RenamedSetting {
    pub(crate) const fn new(old: &'static str, new: &'static str) -> Self {
        RenamedSetting { old, new }
    }
}

/// Options of `keylane consume` without their dashes, which are also keys of its configuration file.
pub(crate) const CONSUME: &[RenamedSetting] = &[
    RenamedSetting::new("member", "group-instance-id"),
    RenamedSetting::new("longest-backoff", "max-backoff"),
    RenamedSetting::new("commit-every", "commit-interval"),
    RenamedSetting::new("commit-after", "commit-batch-size"),
    RenamedSetting::new("most-records", "max-in-flight"),
    RenamedSetting::new("most-bytes", "max-in-flight-bytes"),
    RenamedSetting::new("stop-within", "shutdown-timeout"),
    RenamedSetting::new("stalled-after", "stall-timeout"),
];
