//! Settings of the pace: rates, records of a key at a time, and records that only count as the latest of
//! their key.

use std::num::NonZeroU16;

use keylane::Rate;
use keylane_stream::consumer::ConsumerBuilder;

use super::settings::{ConsumeSettings, RecordOrder};

/// Validated settings of the pace.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlannedPace {
    pub(super) limit_per_key: Option<NonZeroU16>,
    pub(super) is_latest: bool,
    rate: Option<Rate>,
    rate_per_key: Option<Rate>,
}

impl PlannedPace {
    /// Returns the pace. An error has the name of the setting.
    pub(super) fn new(
        settings: &ConsumeSettings,
        order: RecordOrder,
        has_batches: bool,
    ) -> Result<Self, (&'static str, &'static str)> {
        let ConsumeSettings { limit_per_key, latest, rate, rate_per_key, .. } = settings;
        let is_latest = *latest == Some(true);
        let has_keys = order == RecordOrder::Key;
        let refused = [
            (
                "latest",
                is_latest && limit_per_key.is_some(),
                "--latest replaces records in their order, and --limit-per-key has none; leave out one of them",
            ),
            (
                "latest",
                is_latest && has_batches,
                "a batch has all records of a key that wait; leave out --latest or --batch",
            ),
            (
                "limit-per-key",
                limit_per_key.is_some() && has_batches,
                "a batch has records of a key in their order; leave out --limit-per-key or --batch",
            ),
            (
                "latest",
                is_latest && !has_keys,
                "--latest is for order by key; leave out --latest or --order",
            ),
            (
                "limit-per-key",
                limit_per_key.is_some() && !has_keys,
                "--limit-per-key is for order by key; leave out --limit-per-key or --order",
            ),
            (
                "rate-per-key",
                rate_per_key.is_some() && !has_keys,
                "--rate-per-key is for order by key; leave out --order, or write --rate",
            ),
        ];
        match refused.into_iter().find(|(_, is_refused, _)| *is_refused) {
            Some((setting, _, why)) => Err((setting, why)),
            None => Ok(PlannedPace {
                limit_per_key: *limit_per_key,
                is_latest,
                rate: rate.map(|rate| rate.0),
                rate_per_key: rate_per_key.map(|rate| rate.0),
            }),
        }
    }

    /// Gives the settings to a consumer.
    pub(super) fn apply(self, builder: ConsumerBuilder) -> ConsumerBuilder {
        let builder = self.rate.into_iter().fold(builder, ConsumerBuilder::rate);
        let builder = self.rate_per_key.into_iter().fold(builder, ConsumerBuilder::rate_per_key);
        let builder = self.limit_per_key.into_iter().fold(builder, ConsumerBuilder::limit_per_key);
        if self.is_latest { builder.latest() } else { builder }
    }
}
