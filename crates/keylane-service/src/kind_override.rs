//! Live changes of a kind: what operators have changed while the service runs, over its configuration.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::kind::{Kind, StartRate};
use crate::wire::{KindPatch, KindSetting, Timestamp};

/// Prefix of the names of these records in the store.
const PREFIX: &str = "kind:";

/// Changes of a kind, as stored. They stay in force over restarts and reloads, until they are reset.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct KindOverride {
    /// Nothing of the kind starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) paused: Option<KindPause>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) concurrency: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) per_second: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) burst: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) per_second_per_key: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) burst_per_key: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) attempts: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) timeout_ms: Option<u64>,
}

/// A pause of a kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct KindPause {
    pub(crate) since: Timestamp,
    #[serde(default)]
    pub(crate) reason: Option<String>,
}

impl KindOverride {
    /// Returns the name of the record of a kind in the store.
    pub(crate) fn record_name(kind: &str) -> String {
        format!("{PREFIX}{kind}")
    }

    /// Returns the kind whose record has this name.
    pub(crate) fn kind_of(record: &str) -> Option<&str> {
        record.strip_prefix(PREFIX)
    }

    /// The override of a kind whose record is damaged: it starts nothing, because it may have been paused.
    pub(crate) fn damaged(now: Timestamp) -> Self {
        let reason = "the stored changes of the kind are damaged; reset them, and resume the kind";
        let paused = Some(KindPause { since: now, reason: Some(reason.to_owned()) });
        KindOverride { paused, ..KindOverride::default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        *self == KindOverride::default()
    }

    /// Changes the settings that the patch has.
    pub(crate) fn patch(&mut self, patch: &KindPatch) {
        self.concurrency = patch.concurrency.or(self.concurrency);
        self.per_second = patch.per_second.or(self.per_second);
        self.burst = patch.burst.or(self.burst);
        self.per_second_per_key = patch.per_second_per_key.or(self.per_second_per_key);
        self.burst_per_key = patch.burst_per_key.or(self.burst_per_key);
        self.attempts = patch.attempts.or(self.attempts);
        self.timeout_ms = patch.timeout_ms.or(self.timeout_ms);
    }

    /// Resets a setting to its configured value.
    pub(crate) fn reset(&mut self, setting: KindSetting) {
        match setting {
            KindSetting::Concurrency => self.concurrency = None,
            KindSetting::PerSecond => self.per_second = None,
            KindSetting::Burst => self.burst = None,
            KindSetting::PerSecondPerKey => self.per_second_per_key = None,
            KindSetting::BurstPerKey => self.burst_per_key = None,
            KindSetting::Attempts => self.attempts = None,
            KindSetting::TimeoutMs => self.timeout_ms = None,
        }
    }

    /// Returns the changed settings.
    pub(crate) fn changed(&self) -> Vec<KindSetting> {
        let is_set = |setting: &KindSetting| match setting {
            KindSetting::Concurrency => self.concurrency.is_some(),
            KindSetting::PerSecond => self.per_second.is_some(),
            KindSetting::Burst => self.burst.is_some(),
            KindSetting::PerSecondPerKey => self.per_second_per_key.is_some(),
            KindSetting::BurstPerKey => self.burst_per_key.is_some(),
            KindSetting::Attempts => self.attempts.is_some(),
            KindSetting::TimeoutMs => self.timeout_ms.is_some(),
        };
        KindSetting::ALL.into_iter().filter(is_set).collect()
    }

    /// Returns the number of subtasks that the workers of a kind can run, if it has workers.
    pub(crate) fn workers(configured: &Kind) -> Option<usize> {
        configured.concurrency.filter(|_| configured.sort() == "worker")
    }

    /// Returns the kind with these changes.
    pub(crate) fn applied(&self, configured: &Kind) -> Kind {
        let rate = |was: Option<StartRate>, per_second: Option<f64>, burst: Option<u32>| {
            let per_second = per_second.or(was.map(|was| was.per_second))?;
            let burst = burst.or(was.map(|was| was.burst)).unwrap_or(1);
            Some(StartRate { per_second, burst })
        };
        let concurrency = self.concurrency.and_then(|most| usize::try_from(most).ok());
        // More would only hold slots: also after a reload that has fewer workers.
        let workers = KindOverride::workers(configured).unwrap_or(usize::MAX);
        Kind {
            concurrency: concurrency.map(|most| most.min(workers)).or(configured.concurrency),
            rate: rate(configured.rate, self.per_second, self.burst),
            rate_per_key: rate(
                configured.rate_per_key,
                self.per_second_per_key,
                self.burst_per_key,
            ),
            attempts: self.attempts.unwrap_or(configured.attempts),
            timeout: self.timeout_ms.map(Duration::from_millis).or(configured.timeout),
            ..configured.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_changes_what_it_names_and_a_reset_undoes_it() {
        let configured = Kind {
            concurrency: Some(8),
            rate: Some(StartRate { per_second: 2.0, burst: 3 }),
            ..Kind::leased(Duration::from_secs(1))
        };
        let mut changed = KindOverride::default();
        changed.patch(&KindPatch {
            concurrency: Some(2),
            per_second: Some(5.0),
            timeout_ms: Some(1500),
            ..KindPatch::default()
        });
        let settings = [KindSetting::Concurrency, KindSetting::PerSecond, KindSetting::TimeoutMs];
        assert_eq!(changed.changed(), settings);
        let kind = changed.applied(&configured);
        assert_eq!((kind.concurrency, kind.timeout), (Some(2), Some(Duration::from_millis(1500))));
        assert_eq!(kind.rate, Some(StartRate { per_second: 5.0, burst: 3 }));
        changed.reset(KindSetting::Concurrency);
        assert_eq!(changed.applied(&configured).concurrency, Some(8));
        changed.paused = Some(KindPause { since: Timestamp(7), reason: None });
        KindSetting::ALL.into_iter().for_each(|setting| changed.reset(setting));
        assert!(changed.changed().is_empty() && changed.paused.is_some() && !changed.is_empty());
        assert_eq!(changed.applied(&configured).rate, configured.rate);
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let changed = KindOverride {
            paused: Some(KindPause { since: Timestamp(7000), reason: Some("deploy".into()) }),
            attempts: Some(3),
            ..KindOverride::default()
        };
        let text = serde_json::to_string(&changed).unwrap();
        assert_eq!(serde_json::from_str::<KindOverride>(&text).unwrap(), changed);
        // A later version may have written more.
        assert!(serde_json::from_str::<KindOverride>(r#"{"attempts":1,"later":2}"#).is_ok());
        assert_eq!(KindOverride::kind_of(&KindOverride::record_name("a")), Some("a"));
    }
}
