//! Settings of a simulated consumer, drawn from the seed, and the behaviour of its handler.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::super::cancellation::Cancellation;
use super::super::ordering::{OrderBy, RecordClaims, UnkeyedPolicy};
use super::super::partition::InFlightLimits;
use super::history::{AttemptEnd, Place};
use crate::retry::{Backoff, Jitter, OnExhausted, RetryLimit, RetryPolicy, RetryRule};
use keylane_testkit::Random;

/// Settings that all processes of a simulation share.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) partitions: u64,
    /// Number of keys; the first stands for records without a key.
    pub(super) keys: u64,
    /// Maximum number of processes at a time.
    pub(super) processes: u64,
    /// Maximum number of records in flight per partition.
    pub(super) records: usize,
    pub(super) commit_every: Duration,
    pub(super) commit_after: u64,
    pub(super) shutdown_timeout: Duration,
    pub(super) cancel_grace: Duration,
    pub(super) attempts: u32,
    pub(super) first_backoff: Duration,
    pub(super) on_exhausted: OnExhausted,
    /// Records of a partition are handled one after another, whatever their keys.
    pub(super) by_partition: bool,
    /// Handlers answer when they return, not later.
    pub(super) is_sync: bool,
    /// Handlers end when they are cancelled, as commands do.
    pub(super) is_cancellable: bool,
    /// Output and progress are committed in transactions.
    pub(super) is_transactional: bool,
    /// A record replaces the one of its key that has not begun.
    pub(super) is_latest: bool,
    /// Records have several keys, over all partitions.
    pub(super) has_claims: bool,
    /// Maximum number of records of a key that run at once.
    pub(super) limit_per_key: usize,
    /// Records without a key are in no order.
    pub(super) is_unkeyed_free: bool,
    /// Least times between the starts of records, and of those of a key, in microseconds.
    pub(super) interval: Option<u64>,
    pub(super) interval_per_key: Option<u64>,
}

impl Settings {
    pub(super) fn draw(random: &mut Random) -> Self {
        let is_transactional = random.chance(25);
        let by_partition = random.chance(15);
        let has_claims = random.chance(25) && !by_partition;
        let is_latest = random.chance(20) && !by_partition && !has_claims;
        let has_limit = random.chance(25) && !by_partition && !has_claims && !is_latest;
        Settings {
            partitions: random.within(1..4),
            keys: random.within(1..6),
            processes: random.within(1..4),
            records: usize::try_from(random.within(1..60)).unwrap(),
            commit_every: Duration::from_millis(random.within(20..1500)),
            commit_after: random.within(1..100),
            shutdown_timeout: Duration::from_millis(random.within(50..4000)),
            cancel_grace: Duration::from_millis(random.within(0..3000)),
            attempts: u32::try_from(random.within(1..5)).unwrap(),
            first_backoff: Duration::from_millis(random.within(5..400)),
            on_exhausted: match random.within(0..100) {
                0..60 => OnExhausted::DeadLetter,
                60..75 => OnExhausted::Skip,
                75..90 => OnExhausted::StopKey,
                _ => OnExhausted::Stop,
            },
            by_partition,
            is_sync: random.chance(25) && !is_transactional,
            is_cancellable: random.chance(70),
            is_transactional,
            is_latest,
            has_claims,
            limit_per_key: if has_limit { random.within(2..5) as usize } else { 1 },
            is_unkeyed_free: random.chance(25) && !by_partition,
            interval: random.chance(15).then(|| random.within(500..20_000)),
            interval_per_key: random.chance(15).then(|| random.within(1_000..60_000)),
        }
    }

    pub(super) fn order(&self) -> (OrderBy, UnkeyedPolicy) {
        let order = if self.by_partition {
            OrderBy::Partition
        } else if self.has_claims {
            OrderBy::Claims(Arc::new(|record| {
                let KeyUses { own, shared, is_barrier } = uses_of(record.payload()[0]);
                let keys = |keys: &[u8]| keys.iter().map(|key| vec![*key]).collect();
                RecordClaims { exclusive: keys(own), shared: keys(shared), is_barrier }
            }))
        } else {
            OrderBy::Key
        };
        let unkeyed = match self.is_unkeyed_free {
            true => UnkeyedPolicy::Unordered,
            false => UnkeyedPolicy::OneByOne,
        };
        (order, unkeyed)
    }

    pub(super) fn limits(&self) -> InFlightLimits {
        InFlightLimits { records: self.records, bytes: usize::MAX }
    }

    pub(super) fn policy(&self) -> RetryPolicy<()> {
        let backoff = Backoff {
            first: self.first_backoff,
            factor: 2,
            max: Duration::from_secs(5),
            jitter: Jitter::Equal,
        };
        let limit = RetryLimit::attempts(self.attempts);
        let rule = RetryRule { limit, backoff, on_exhausted: self.on_exhausted };
        RetryPolicy::new(rule).expect("the rule is valid")
    }
}

/// Keys of a record, by its number of a key, if records have several.
pub(super) struct KeyUses {
    pub(super) own: &'static [u8],
    pub(super) shared: &'static [u8],
    pub(super) is_barrier: bool,
}

pub(super) fn uses_of(key: u8) -> KeyUses {
    let (own, shared): (&[u8], &[u8]) = match key {
        0 | 5 => (&[], &[]),
        1 => (&[1], &[]),
        2 => (&[1, 2], &[]),
        3 => (&[3], &[1]),
        _ => (&[], &[1, 2]),
    };
    KeyUses { own, shared, is_barrier: key == 5 }
}

/// Behaviour of the handler: duration and end of each attempt.
#[derive(Debug)]
pub(super) struct Behaviour {
    seed: u64,
    /// Number of attempts at each record, over all processes.
    starts: HashMap<(u32, u64), u64>,
    pub(super) is_healed: bool,
}

impl Behaviour {
    pub(super) fn new(seed: u64) -> Self {
        Behaviour { seed, starts: HashMap::new(), is_healed: false }
    }

    /// Returns the time after which a cancelled attempt ends, in microseconds. One whose end is forced
    /// ends soon, and another one may take no notice.
    pub(super) fn cancelled(&self, place: Place, stage: Cancellation) -> Option<u64> {
        let part = [4, u64::from(place.partition), place.position, stage as u64];
        let mut random = Random::of(self.seed, &part);
        match stage {
            Cancellation::Forced => Some(random.within(100..50_000)),
            Cancellation::Requested if random.chance(60) => Some(random.within(100..3_000_000)),
            Cancellation::Requested => None,
        }
    }

    /// Returns the duration of the next attempt at a record, in microseconds, and its end.
    pub(super) fn next(&mut self, place: Place) -> (u64, AttemptEnd) {
        let start = self.starts.entry((place.partition, place.position)).or_default();
        *start += 1;
        let part = [2, u64::from(place.partition), place.position, *start];
        let mut random = Random::of(self.seed, &part);
        if self.is_healed {
            return (random.within(100..20_000), AttemptEnd::Succeeded);
        }
        let micros = match random.within(0..100) {
            0..70 => random.within(50..20_000),
            70..97 => random.within(20_000..1_000_000),
            _ => random.within(1_000_000..15_000_000),
        };
        // Some records fail whatever is tried.
        let is_poison = Random::of(self.seed, &[3, part[1], part[2]]).chance(4);
        let end = match random.within(0..100) {
            _ if is_poison => AttemptEnd::Failed,
            0..84 => AttemptEnd::Succeeded,
            84..94 => AttemptEnd::Failed,
            94..97 => AttemptEnd::Panicked,
            _ => AttemptEnd::Dropped,
        };
        (micros, end)
    }
}
