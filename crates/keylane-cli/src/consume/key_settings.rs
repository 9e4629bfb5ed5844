//! Settings of the keys of records: which keys a record has, and how it uses them.

use super::pace_settings::PlannedPace;
use super::settings::{ConsumeSettings, RecordOrder};

/// Validated settings of the keys.
#[derive(Debug, Clone)]
pub(super) struct PlannedKeys {
    pub(super) key: Vec<String>,
    pub(super) shared_key: Vec<String>,
    pub(super) barrier: Option<String>,
}

impl PlannedKeys {
    /// Returns the keys. An error has the name of the setting.
    pub(super) fn new(
        settings: &ConsumeSettings,
        order: RecordOrder,
        pace: &PlannedPace,
    ) -> Result<Self, (&'static str, &'static str)> {
        let planned = PlannedKeys {
            key: settings.key.clone().unwrap_or_default(),
            shared_key: settings.shared_key.clone().unwrap_or_default(),
            barrier: settings.barrier.clone(),
        };
        let has_several = planned.has_several();
        let setting = match &planned {
            PlannedKeys { shared_key, .. } if !shared_key.is_empty() => "shared-key",
            PlannedKeys { barrier: Some(_), .. } => "barrier",
            _ => "key",
        };
        if order != RecordOrder::Key && (has_several || !planned.key.is_empty()) {
            return Err((setting, "keys are for order by key; leave out this option or --order"));
        }
        if has_several && settings.batch.is_some() {
            return Err((
                setting,
                "a batch has records of one key; leave out --batch, or name one key",
            ));
        }
        if has_several && pace.is_latest {
            return Err((
                setting,
                "--latest is for records with one key; leave out --latest, or name one key",
            ));
        }
        Ok(planned)
    }

    /// Whether a record can have more than one key, or wait for records without one in common.
    pub(super) fn has_several(&self) -> bool {
        let is_list = |key: &String| key.starts_with('.') && key.ends_with("[]");
        let has_several = self.key.len() > 1 || self.key.iter().any(is_list);
        has_several || !self.shared_key.is_empty() || self.barrier.is_some()
    }

    /// Whether records without a key of their own have one by these settings.
    pub(super) fn names_any(&self) -> bool {
        !self.key.is_empty() || !self.shared_key.is_empty()
    }
}
