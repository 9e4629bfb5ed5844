//! Targets that the operator has paused. They outlast the assignments of their partitions, and end
//! with the consumer.

use std::collections::BTreeMap;
use std::time::Instant;

use super::ordering::{OrderBy, RecordLane};
use super::target::{ControlError, PausedTarget, Target};
use crate::{DeliveredRecord, Partition};

/// Maximum number of paused targets, which bounds their memory and the status.
const MAX_PAUSED: usize = 10_000;

/// Paused targets, each with the time of its pause.
#[derive(Debug, Default)]
pub(super) struct OperatorPauses {
    topics: BTreeMap<String, Instant>,
    partitions: BTreeMap<Partition, Instant>,
    keys: BTreeMap<Vec<u8>, Instant>,
}

impl OperatorPauses {
    /// Adds a target, and returns whether it was not paused before.
    pub(super) fn add(&mut self, target: &Target, now: Instant) -> Result<bool, ControlError> {
        if self.has(target) {
            return Ok(false);
        }
        if self.count() >= MAX_PAUSED {
            return Err(ControlError::TooMany(MAX_PAUSED));
        }
        match target {
            Target::Topic(topic) => _ = self.topics.insert(topic.clone(), now),
            Target::Partition(partition) => _ = self.partitions.insert(partition.clone(), now),
            Target::Key(key) => _ = self.keys.insert(key.clone(), now),
        }
        Ok(true)
    }

    /// Removes a target, and returns whether it was paused.
    pub(super) fn remove(&mut self, target: &Target) -> bool {
        let since = match target {
            Target::Topic(topic) => self.topics.remove(topic),
            Target::Partition(partition) => self.partitions.remove(partition),
            Target::Key(key) => self.keys.remove(key),
        };
        since.is_some()
    }

    fn has(&self, target: &Target) -> bool {
        match target {
            Target::Topic(topic) => self.topics.contains_key(topic),
            Target::Partition(partition) => self.partitions.contains_key(partition),
            Target::Key(key) => self.keys.contains_key(key),
        }
    }

    fn count(&self) -> usize {
        self.topics.len() + self.partitions.len() + self.keys.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// Returns whether a partition is paused as a whole.
    pub(super) fn holds_partition(&self, partition: &Partition) -> bool {
        self.partitions.contains_key(partition) || self.topics.contains_key(partition.stream())
    }

    /// Returns whether a key of a record is paused.
    pub(super) fn holds_record(
        &self,
        order: &OrderBy,
        delivered: &DeliveredRecord,
        lane: &RecordLane,
    ) -> bool {
        !self.keys.is_empty() && order.has_key(delivered, lane, |key| self.keys.contains_key(key))
    }

    /// Returns whether keys are paused.
    pub(super) fn has_keys(&self) -> bool {
        !self.keys.is_empty()
    }

    /// Lists the paused targets.
    pub(super) fn list(&self, now: Instant) -> Vec<PausedTarget> {
        let topics = self.topics.iter().map(|(topic, at)| (Target::Topic(topic.clone()), at));
        let partitions = self.partitions.iter();
        let partitions = partitions.map(|(name, at)| (Target::Partition(name.clone()), at));
        let keys = self.keys.iter().map(|(key, at)| (Target::Key(key.clone()), at));
        let all = topics.chain(partitions).chain(keys);
        let listed = all
            .map(|(target, at)| PausedTarget { target, age: now.saturating_duration_since(*at) });
        listed.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_paused_once_and_resumed_once() {
        let mut pauses = OperatorPauses::default();
        let now = Instant::now();
        let partition = Partition::new("t", 3);
        let targets = [
            Target::Topic("t".to_owned()),
            Target::Partition(partition.clone()),
            Target::Key(b"k".to_vec()),
        ];
        for target in &targets {
            assert_eq!(pauses.add(target, now), Ok(true));
            assert_eq!(pauses.add(target, now), Ok(false));
        }
        let listed: Vec<_> = pauses.list(now).into_iter().map(|paused| paused.target).collect();
        assert_eq!(listed, targets);
        assert!(pauses.remove(&targets[0]));
        assert!(!pauses.remove(&targets[0]));
        assert!(pauses.holds_partition(&partition));
        assert!(pauses.remove(&targets[1]));
        assert!(!pauses.holds_partition(&partition));
        assert!(pauses.remove(&targets[2]) && pauses.is_empty());
    }

    #[test]
    fn the_number_of_paused_targets_is_bounded() {
        let mut pauses = OperatorPauses::default();
        let now = Instant::now();
        let key = |number: usize| Target::Key(number.to_string().into_bytes());
        for number in 0..MAX_PAUSED {
            assert_eq!(pauses.add(&key(number), now), Ok(true));
        }
        assert_eq!(pauses.add(&key(MAX_PAUSED), now), Err(ControlError::TooMany(MAX_PAUSED)));
        assert_eq!(pauses.add(&key(0), now), Ok(false));
        assert!(pauses.remove(&key(0)));
        assert_eq!(pauses.add(&key(MAX_PAUSED), now), Ok(true));
    }
}
