//! A delivery, as it is stored until its receiver has it.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::JobId;
use crate::wire::Timestamp;

/// Prefix of the names of deliveries among the settings in the store.
const PREFIX: &str = "webhook:";

/// Delays before the second and each later attempt, in seconds. The last attempt is about 28 hours after the first.
const DELAYS_S: [u64; 7] = [5, 5 * 60, 30 * 60, 2 * 3600, 5 * 3600, 10 * 3600, 10 * 3600];

/// Maximum number of attempts.
#[expect(clippy::cast_possible_truncation, reason = "there are few delays")]
pub(super) const MAX_ATTEMPTS: u32 = DELAYS_S.len() as u32 + 1;

/// Maximum delay before an attempt, in milliseconds.
pub(super) const MAX_DELAY_MS: u64 = DELAYS_S[DELAYS_S.len() - 1] * 1000;

/// Id of a delivery: the job, and the version that it had at its end. A job that is retried has another one at its next end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::engine) struct DeliveryId {
    pub(in crate::engine) job: JobId,
    pub(in crate::engine) version: u64,
}

impl DeliveryId {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (job, version) = text.split_once('.')?;
        let id = DeliveryId { job: JobId::parse(job)?, version: version.parse().ok()? };
        (id.to_string() == text).then_some(id)
    }

    /// Returns the name of its record in the store.
    pub(in crate::engine) fn record_name(self) -> String {
        format!("{PREFIX}{self}")
    }

    /// Returns the id of the delivery whose record has this name.
    pub(in crate::engine) fn of_record(name: &str) -> Option<Self> {
        DeliveryId::parse(name.strip_prefix(PREFIX)?)
    }

    /// Returns whether a record with this name is a delivery.
    pub(in crate::engine) fn is_record(name: &str) -> bool {
        name.starts_with(PREFIX)
    }
}

impl fmt::Display for DeliveryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.job, self.version)
    }
}

/// A delivery without the body of its request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::engine) struct Delivery {
    /// Type of its event: `job.succeeded`, `job.failed` or `job.cancelled`.
    pub(super) event: String,
    /// Kind of the job.
    pub(super) kind: String,
    pub(super) url: String,
    /// Time of the job's end.
    pub(super) created: Timestamp,
    /// Number of attempts that have failed.
    pub(super) attempts: u32,
    /// Time of the next attempt; `None` if there is none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) next: Option<Timestamp>,
    /// Time of the last attempt that failed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) failed: Option<Timestamp>,
    /// Its error.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) error: Option<String>,
}

impl Delivery {
    /// Returns a delivery without an attempt.
    pub(super) fn new(event: String, kind: String, url: String, now: Timestamp) -> Self {
        let (attempts, next) = (0, Some(now));
        Delivery { event, kind, url, created: now, attempts, next, failed: None, error: None }
    }

    /// Returns the host and port of its receiver, under which deliveries share a limit.
    pub(super) fn host(&self) -> String {
        let url = reqwest::Url::parse(&self.url).ok();
        let host = url.as_ref().and_then(|url| url.host_str()).unwrap_or_default();
        let port = url.as_ref().and_then(reqwest::Url::port_or_known_default).unwrap_or(0);
        format!("{host}:{port}")
    }

    /// Records a failed attempt. Returns the delay before the next one, or `None` if it was the last.
    pub(super) fn note_failure(
        &mut self,
        error: String,
        may_pass: bool,
        wanted: Option<Duration>,
        now: Timestamp,
    ) -> Option<u64> {
        self.attempts += 1;
        self.failed = Some(now);
        self.error = Some(error);
        let planned = DELAYS_S.get(self.attempts as usize - 1).filter(|_| may_pass);
        let delay = planned.map(|planned| {
            let wanted =
                wanted.map_or(0, |wanted| wanted.as_millis().try_into().unwrap_or(u64::MAX));
            wanted.clamp(planned * 1000, MAX_DELAY_MS)
        });
        self.next = delay.map(|delay| Timestamp(now.0 + delay));
        delay
    }
}

/// Record of a delivery in the store.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::engine) struct DeliveryRecord {
    #[serde(flatten)]
    pub(in crate::engine) delivery: Delivery,
    /// Body of its requests.
    pub(super) body: String,
}

impl DeliveryRecord {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a delivery can be written as JSON")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delivery() -> Delivery {
        Delivery::new(
            "job.failed".into(),
            "mail".into(),
            "https://example.com/hook?a=1".into(),
            Timestamp(7),
        )
    }

    #[test]
    fn a_delivery_is_tried_eight_times_within_28_hours() {
        let mut delivery = delivery();
        let mut all = 0;
        for attempt in 1..MAX_ATTEMPTS {
            let delay = delivery.note_failure("x".into(), true, None, Timestamp(all)).unwrap();
            all += delay;
            assert_eq!((delivery.attempts, delivery.next), (attempt, Some(Timestamp(all))));
        }
        assert_eq!(all / 3_600_000, 27);
        assert_eq!(delivery.note_failure("x".into(), true, None, Timestamp(all)), None);
        assert_eq!((delivery.attempts, delivery.next), (8, None));
    }

    #[test]
    fn a_receiver_may_ask_for_a_longer_delay_and_for_no_more() {
        let wanted = |seconds| Some(Duration::from_secs(seconds));
        let delay = |seconds| {
            delivery().note_failure("x".into(), true, wanted(seconds), Timestamp(0)).unwrap()
        };
        assert_eq!((delay(1), delay(60), delay(u64::MAX)), (5_000, 60_000, MAX_DELAY_MS));
        assert_eq!(delivery().note_failure("x".into(), false, wanted(1), Timestamp(0)), None);
    }

    #[test]
    fn an_id_is_read_as_it_is_written() {
        let id = DeliveryId { job: JobId([5; 16]), version: 12 };
        assert_eq!(DeliveryId::of_record(&id.record_name()), Some(id));
        assert_eq!(DeliveryId::parse(&format!("{id}x")), None);
        assert_eq!(DeliveryId::parse(&id.to_string().replace(".12", ".012")), None);
        assert_eq!(DeliveryId::parse("job_1"), None);
        assert_eq!(delivery().host(), "example.com:443");
    }
}
