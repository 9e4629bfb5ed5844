//! Specification of a job without its subtasks, and validation of a submission.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::engine::check_webhook;
use crate::kind::Kind;
use crate::kind_registry::KindRegistry;
use crate::request_error::RequestError;
use crate::tenant::{Tenant, TenantRegistry};
use crate::trace_context::TraceContext;
use crate::wire::{
    AfterCondition, JobPriority, OnError, OnFail, SubmitJob, SubmitSubtask, Timestamp,
};
use crate::{JobId, KeyClaim};

/// Limits of submissions: they keep one request from exhausting the resources of all others.
#[derive(Clone, Copy, Debug)]
pub struct SubmissionLimits {
    /// Maximum size of a JSON body, in bytes. An NDJSON body is read line by line and may be
    /// larger. Default: 8 MiB.
    pub body_bytes: usize,
    /// Maximum size of a subtask's payload and of an NDJSON line, in bytes. Default: 1 MiB.
    pub payload_bytes: usize,
    /// Maximum number of subtasks of a job. Default: 10 million.
    pub job_subtasks: u32,
    /// Maximum number of unfinished subtasks of all jobs together. At the maximum, jobs are
    /// refused. Default: 20 million.
    pub waiting_subtasks: u64,
    /// Maximum size of the keys of all unfinished subtasks together, in bytes; they are in memory.
    /// At the maximum, jobs are refused. Default: 1 GiB.
    pub waiting_key_bytes: u64,
}

impl Default for SubmissionLimits {
    fn default() -> Self {
        SubmissionLimits {
            body_bytes: 8 * 1024 * 1024,
            payload_bytes: 1024 * 1024,
            job_subtasks: 10_000_000,
            waiting_subtasks: 20_000_000,
            waiting_key_bytes: 1024 * 1024 * 1024,
        }
    }
}

/// Maximum size of a key, in bytes: Kafka keys can have some hundreds.
pub(crate) const MAX_KEY_BYTES: usize = 1024;

/// Maximum number of keys of a subtask.
pub(crate) const MAX_KEYS: usize = 64;

/// Maximum number of jobs for which a job waits.
pub(crate) const MAX_AFTER: usize = 64;

pub(crate) const MAX_NAME_BYTES: usize = 256;
pub(crate) const MAX_LABELS: usize = 32;
pub(crate) const MAX_LABEL_BYTES: usize = 256;

/// Maximum of every delay and timeout: 100 years, in milliseconds. A sum of it and the current time
/// cannot overflow.
pub(crate) const MAX_MS: u64 = 100 * 365 * 24 * 3600 * 1000;

/// Job without its subtasks, as the store keeps it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct JobDefinition {
    pub(crate) kind: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) name: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) weight: u32,
    #[serde(skip_serializing_if = "JobPriority::is_default", default)]
    pub(crate) priority: JobPriority,
    /// Tenant; `None`: the default one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) tenant: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) run_at: Option<Timestamp>,
    /// Time from which no subtask starts.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) expires_at: Option<Timestamp>,
    /// Whether this time came before the end of the job.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub(crate) is_expired: bool,
    /// Jobs that must end before it enters the order.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(crate) after: Vec<JobId>,
    #[serde(skip_serializing_if = "AfterCondition::is_default", default)]
    pub(crate) after_on: AfterCondition,
    /// Job of `after` that did not succeed, for which it was cancelled.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) after_failed: Option<JobId>,
    pub(crate) on_error: OnError,
    pub(crate) on_fail: OnFail,
    pub(crate) attempts: u32,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) timeout_ms: Option<u64>,
    /// The job has a split step, which has not yet made subtasks from `payload`.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub(crate) split: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub(crate) fan_in: bool,
    /// A subtask of the job is a barrier.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub(crate) barriers: bool,
    /// Maximum number of subtasks that have a key at a time.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) max_per_key: Option<u16>,
    /// Name of the job given by the client.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) client_id: Option<String>,
    /// Address to which the end of the job is sent.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) webhook: Option<String>,
    /// Trace context from the submission.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) trace: Option<TraceContext>,
    /// Input of the split step.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) payload: Option<Box<RawValue>>,
}

impl JobDefinition {
    /// Returns the limit of its subtasks' keys; 0 if they have them one after another.
    pub(crate) fn limit(&self) -> u16 {
        self.max_per_key.filter(|limit| *limit > 1).unwrap_or(0)
    }

    /// Time from which the job may begin; `None` if it begins when it is accepted. A job that waits for others begins
    /// later than `accepted`.
    pub(crate) fn begins_at(&self, accepted: Timestamp) -> Option<Timestamp> {
        self.run_at.or((!self.after.is_empty()).then_some(accepted))
    }

    /// Returns the time at which the scheduler names the job as due, in milliseconds; `None` if it begins when it is
    /// accepted. One that waits only for other jobs is due from the start, whatever the clock shows.
    pub(crate) fn due_ms(&self) -> Option<u64> {
        self.run_at.map(|at| at.0).or((!self.after.is_empty()).then_some(0))
    }

    /// Removes the time at which the job expires, if it has passed, and the mark of a job that did not succeed before it:
    /// the retry of an operator counts more. Returns whether this changed the definition.
    pub(crate) fn renew(&mut self, now: Timestamp) -> bool {
        // The clock may have been set back since.
        let is_over = self.is_expired || self.expires_at.is_some_and(|at| at <= now);
        if is_over {
            (self.expires_at, self.is_expired) = (None, false);
        }
        self.after_failed.take().is_some() || is_over
    }

    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.timeout_ms.map(Duration::from_millis)
    }
}

/// Validated submission.
#[derive(Debug)]
pub(crate) struct ValidatedSubmission {
    pub(crate) kind: u32,
    pub(crate) head: JobDefinition,
    /// Subtasks of the submission.
    pub(crate) subtasks: Vec<SubmitSubtask>,
    /// Ids of the jobs that must end before it enters the order.
    pub(crate) after: Vec<String>,
}

/// Invalid fields, as pairs of JSON pointer and message. All are collected, so that a client can
/// correct them in one go.
#[derive(Debug, Default)]
struct InvalidFields(Vec<(String, String)>);

impl InvalidFields {
    fn add(&mut self, pointer: impl Into<String>, why: impl Into<String>) {
        self.0.push((pointer.into(), why.into()));
    }

    fn check(&mut self, is_right: bool, pointer: &str, why: impl FnOnce() -> String) {
        if !is_right {
            self.add(pointer, why());
        }
    }
}

/// Validates a submission. With `more`, subtasks follow as NDJSON lines.
pub(crate) fn check(
    mut job: SubmitJob,
    more: bool,
    kinds: &KindRegistry,
    tenants: &TenantRegistry,
    bounds: &SubmissionLimits,
    now: Timestamp,
) -> Result<ValidatedSubmission, RequestError> {
    let mut wrong = InvalidFields::default();
    let number = kinds.number(&job.kind);
    if number.is_none() {
        let known = kinds.all().into_iter().filter(|entry| entry.is_there);
        let known: Vec<String> = known.map(|entry| entry.name.to_string()).collect();
        let known = known.join(", ");
        wrong.add("/kind", format!("there is no kind `{}`; known kinds: {known}", job.kind));
    }
    let name_length = job.name.as_ref().map_or(0, String::len);
    wrong.check(name_length <= MAX_NAME_BYTES, "/name", || {
        format!("it has {name_length} bytes, and {MAX_NAME_BYTES} are the most")
    });
    check_labels(&job.labels, &mut wrong);
    if let Some(Err(why)) = job.tenant.as_deref().map(|tenant| tenants.check(tenant)) {
        wrong.add("/tenant", why);
    }
    wrong.check(job.weight != Some(0), "/weight", || "1 is the least".into());
    wrong.check(job.attempts != Some(0), "/attempts", || "1 is the least".into());
    wrong.check(job.timeout_ms != Some(0), "/timeout_ms", || "1 is the least".into());
    let limits = 1..=u32::from(Kind::MAX_PER_KEY);
    wrong.check(job.max_per_key.is_none_or(|max| limits.contains(&max)), "/max_per_key", || {
        let most = Kind::MAX_PER_KEY;
        format!("it is from 1 to {most}; without it, or with 1, a key's subtasks run in order")
    });
    let durations = [
        (job.delay_ms, "/delay_ms"),
        (job.timeout_ms, "/timeout_ms"),
        (job.expires_ms, "/expires_ms"),
        (job.unique_ms, "/unique_ms"),
    ];
    for (value, pointer) in durations {
        wrong.check(value.unwrap_or(0) <= MAX_MS, pointer, || {
            format!("{MAX_MS} is the most: a hundred years")
        });
    }
    wrong.check(job.run_at.is_none() || job.delay_ms.is_none(), "/delay_ms", || {
        "one of `run_at` and `delay_ms`".into()
    });
    let latest = now.0 + MAX_MS;
    for (time, pointer) in [(job.run_at, "/run_at"), (job.expires_at, "/expires_at")] {
        wrong.check(time.is_none_or(|at| at.0 <= latest), pointer, || {
            "the time is more than a hundred years away".into()
        });
    }
    wrong.check(job.expires_at.is_none() || job.expires_ms.is_none(), "/expires_ms", || {
        "one of `expires_at` and `expires_ms`".into()
    });
    wrong.check(job.expires_ms != Some(0), "/expires_ms", || "1 is the least".into());
    wrong.check(job.unique_ms != Some(0), "/unique_ms", || "1 is the least".into());
    let after = job.after.take().unwrap_or_default();
    wrong.check(after.len() <= MAX_AFTER, "/after", || {
        format!("there are {}, and {MAX_AFTER} are the most", after.len())
    });
    if let Some(Err(why)) = job.webhook.as_deref().map(check_webhook) {
        wrong.add("/webhook", why);
    }
    let found = number.map(|number| kinds.get(number));
    let kind = found.as_deref();
    let split = kind.is_some_and(|kind| kind.split.is_some());
    let is_list = job.subtasks.is_some();
    let (subtasks, payload) = work_of(&mut job, more, split, &mut wrong);
    for (index, subtask) in subtasks.iter().enumerate() {
        let at = if is_list { format!("/subtasks/{index}") } else { String::new() };
        check_subtask(subtask, &at, bounds, &mut wrong);
        // Bounds the size of the problem response.
        if wrong.0.len() >= 20 {
            break;
        }
    }
    let most = bounds.job_subtasks as usize;
    wrong.check(subtasks.len() <= most, "/subtasks", || {
        format!("there are {}, and {most} are the most", subtasks.len())
    });
    let (Some(number), Some(kind), true) = (number, kind, wrong.0.is_empty()) else {
        return Err(RequestError::Invalid(wrong.0));
    };
    let head = head_of(job, kind, split, payload, now);
    Ok(ValidatedSubmission { kind: number, head, subtasks, after })
}

fn check_labels(labels: &BTreeMap<String, String>, wrong: &mut InvalidFields) {
    wrong.check(labels.len() <= MAX_LABELS, "/labels", || {
        format!("there are {}, and {MAX_LABELS} are the most", labels.len())
    });
    for (name, value) in labels {
        let longest = name.len().max(value.len());
        wrong.check(
            !name.is_empty() && longest <= MAX_LABEL_BYTES,
            &pointer("/labels", name),
            || format!("a name has one byte at least, and both have {MAX_LABEL_BYTES} at most"),
        );
    }
}

/// Validates the new labels, name and weight of a job.
pub(crate) fn check_patch(
    labels: Option<&BTreeMap<String, String>>,
    name: Option<&String>,
    weight: Option<u32>,
) -> Result<(), RequestError> {
    let mut wrong = InvalidFields::default();
    if let Some(labels) = labels {
        check_labels(labels, &mut wrong);
    }
    let length = name.map_or(0, String::len);
    wrong.check(length <= MAX_NAME_BYTES, "/name", || {
        format!("it has {length} bytes, and {MAX_NAME_BYTES} are the most")
    });
    wrong.check(weight != Some(0), "/weight", || "1 is the least".into());
    if wrong.0.is_empty() { Ok(()) } else { Err(RequestError::Invalid(wrong.0)) }
}

/// Returns the subtasks and the input of the split step.
fn work_of(
    job: &mut SubmitJob,
    more: bool,
    split: bool,
    wrong: &mut InvalidFields,
) -> (Vec<SubmitSubtask>, Option<Box<RawValue>>) {
    let has_keys = job.key.is_some() || job.keys.is_some() || job.shared_keys.is_some();
    let has_keys = has_keys || job.latest;
    let single = job.payload.is_some() || has_keys;
    let ways = usize::from(single) + usize::from(job.subtasks.is_some()) + usize::from(more);
    if ways > 1 {
        wrong.add(
            "",
            "the work is one of `subtasks`, a `payload` with its keys, and lines of NDJSON",
        );
    }
    if split {
        wrong.check(job.subtasks.is_none() && !more, "/subtasks", || {
            "this kind splits its jobs itself: give it a `payload`".into()
        });
        wrong.check(!has_keys, "/key", || {
            "this kind splits its jobs itself: its subtasks have keys, not the job".into()
        });
        return (Vec::new(), job.payload.take());
    }
    if ways == 0 {
        wrong.add("", "there is nothing to do: give `subtasks`, or a `payload`");
    }
    let subtasks = match job.subtasks.take() {
        Some(subtasks) => subtasks,
        None if single => {
            let (key, keys, shared_keys) =
                (job.key.take(), job.keys.take(), job.shared_keys.take());
            let payload = job.payload.take();
            let latest = job.latest;
            vec![SubmitSubtask { key, keys, shared_keys, barrier: false, latest, payload }]
        }
        None => Vec::new(),
    };
    (subtasks, None)
}

fn check_subtask(
    subtask: &SubmitSubtask,
    at: &str,
    bounds: &SubmissionLimits,
    wrong: &mut InvalidFields,
) {
    if subtask.key.is_some() && subtask.keys.is_some() {
        wrong.add(format!("{at}/keys"), "one of `key` and `keys`");
    }
    let bytes = subtask.payload.as_ref().map_or(0, |payload| payload.get().len());
    if let Err((place, why)) = fits(subtask.claims(), bytes, bounds) {
        wrong.add(format!("{at}{place}"), why);
    }
}

/// Checks a subtask against the limits. The error is the JSON pointer of the field and a message.
pub(crate) fn fits<'a>(
    keys: impl Iterator<Item = KeyClaim<'a>>,
    payload_bytes: usize,
    bounds: &SubmissionLimits,
) -> Result<(), (&'static str, String)> {
    let (mut count, mut is_latest, mut is_plain) = (0, false, true);
    for claim in keys {
        let KeyClaim { key, is_shared } = claim;
        is_latest |= claim.is_latest();
        is_plain &= !claim.is_barrier() && !is_shared;
        if claim.is_of_job() {
            continue;
        }
        count += 1;
        let at = if is_shared { "/shared_keys" } else { "/key" };
        if key.is_empty() {
            let why = "a key has one byte at least; leave it out if there is none";
            return Err((at, why.into()));
        }
        if key.len() > MAX_KEY_BYTES {
            let why = format!(
                "the key `{}…` has {} bytes, and {MAX_KEY_BYTES} are the most",
                start_of(key),
                key.len()
            );
            return Err((at, why));
        }
    }
    if count > MAX_KEYS {
        let why = format!("there are {count} with the shared ones, and {MAX_KEYS} are the most");
        return Err(("/keys", why));
    }
    if is_latest && !(is_plain && count == 1) {
        let why = "it needs one `key`, and no further keys, no shared ones and no `barrier`; \
                   leave `latest` out, or the others";
        return Err(("/latest", why.into()));
    }
    if payload_bytes > bounds.payload_bytes {
        let most = bounds.payload_bytes;
        let why = format!("it has {payload_bytes} bytes, and {most} are the most");
        return Err(("/payload", why));
    }
    Ok(())
}

/// Returns the first characters of a key, by which people recognize it.
fn start_of(key: &[u8]) -> String {
    String::from_utf8_lossy(key).chars().take(40).collect()
}

/// Returns a limit on the subtasks of a key as it is stored.
fn limit_of(max_per_key: u32) -> u16 {
    u16::try_from(max_per_key).unwrap_or(u16::MAX).clamp(1, Kind::MAX_PER_KEY)
}

fn head_of(
    job: SubmitJob,
    kind: &Kind,
    split: bool,
    payload: Option<Box<RawValue>>,
    now: Timestamp,
) -> JobDefinition {
    let run_at = job.run_at.or(job.delay_ms.map(|delay| Timestamp(now.0 + delay)));
    let timeout_ms =
        kind.timeout.map(|timeout| u64::try_from(timeout.as_millis()).unwrap_or(MAX_MS));
    JobDefinition {
        kind: job.kind,
        name: job.name,
        labels: job.labels,
        weight: job.weight.unwrap_or(1),
        priority: job.priority.unwrap_or_default(),
        tenant: job.tenant.filter(|tenant| tenant != Tenant::DEFAULT_NAME),
        run_at: run_at.filter(|at| *at > now),
        expires_at: job.expires_at.or(job.expires_ms.map(|after| Timestamp(now.0 + after))),
        is_expired: false,
        after: Vec::new(),
        after_on: job.after_on.unwrap_or_default(),
        after_failed: None,
        on_error: job.on_error.unwrap_or(kind.on_error),
        on_fail: job.on_fail.unwrap_or(kind.on_fail),
        attempts: job.attempts.unwrap_or(kind.attempts.max(1)),
        timeout_ms: job.timeout_ms.or(timeout_ms),
        split,
        fan_in: kind.fan_in.is_some() && job.fan_in.unwrap_or(true),
        barriers: false,
        max_per_key: job.max_per_key.or(kind.max_per_key).map(limit_of),
        client_id: None,
        webhook: job.webhook.or_else(|| kind.webhook.clone()),
        trace: None,
        payload,
    }
}

/// Returns the JSON pointer extended by one step: `~` and `/` in the step are written `~0` and `~1`
/// (RFC 6901).
pub(crate) fn pointer(at: &str, step: &str) -> String {
    format!("{at}/{}", step.replace('~', "~0").replace('/', "~1"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handle::FunctionHandler;

    fn kinds() -> KindRegistry {
        let kinds = KindRegistry::default();
        kinds.add("plain", Kind::new(FunctionHandler::new(|_| async { Ok(None) })));
        let split: std::sync::Arc<dyn crate::handle::Handler> =
            std::sync::Arc::new(FunctionHandler::new(|_| async { Ok(None) }));
        let kind = Kind::new(FunctionHandler::new(|_| async { Ok(None) }));
        kinds.add("split", Kind { split: Some(split), ..kind });
        kinds
    }

    fn checked(json: &str) -> Result<ValidatedSubmission, Vec<String>> {
        let job = serde_json::from_str(json).unwrap();
        let (kinds, tenants) = (kinds(), TenantRegistry::default());
        let bounds = SubmissionLimits::default();
        let checked = check(job, false, &kinds, &tenants, &bounds, Timestamp(1000));
        checked.map_err(|refused| match refused {
            RequestError::Invalid(wrong) => wrong.into_iter().map(|(at, _)| at).collect(),
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn what_is_left_out_is_the_kinds_choice() {
        let job =
            checked(r#"{"kind":"plain","payload":{"a":1.50},"key":"u7","delay_ms":5}"#).unwrap();
        assert_eq!((job.kind, job.head.attempts, job.head.weight), (0, 5, 1));
        assert_eq!(job.head.run_at, Some(Timestamp(1005)));
        assert_eq!(job.subtasks.len(), 1);
        // Payloads keep their original text.
        assert_eq!(job.subtasks[0].payload.as_ref().unwrap().get(), r#"{"a":1.50}"#);
    }

    #[test]
    fn the_default_tenant_is_stored_as_none() {
        let tenant = |json| checked(json).unwrap().head.tenant;
        assert_eq!(
            tenant(r#"{"kind":"plain","payload":1,"tenant":"ann"}"#).as_deref(),
            Some("ann")
        );
        assert_eq!(tenant(r#"{"kind":"plain","payload":1,"tenant":"default"}"#), None);
    }

    #[test]
    fn every_wrong_place_is_named() {
        let wrong = |json| checked(json).unwrap_err();
        assert_eq!(wrong(r#"{"kind":"none","weight":0}"#), ["/kind", "/weight", ""]);
        assert_eq!(wrong(r#"{"kind":"plain","subtasks":[],"payload":1}"#), [""]);
        assert_eq!(wrong(r#"{"kind":"plain","subtasks":[{},{"key":""}]}"#), ["/subtasks/1/key"]);
        assert_eq!(
            wrong(r#"{"kind":"plain","subtasks":[{"key":"a","keys":["b"]}]}"#),
            ["/subtasks/0/keys"]
        );
        assert_eq!(wrong(r#"{"kind":"plain","payload":1,"labels":{"":"x"}}"#), ["/labels/"]);
        assert_eq!(
            wrong(r#"{"kind":"plain","payload":1,"delay_ms":99999999999999}"#),
            ["/delay_ms"]
        );
        assert_eq!(wrong(r#"{"kind":"plain","payload":1,"tenant":"a b"}"#), ["/tenant"]);
        assert_eq!(wrong(r#"{"kind":"split","key":"a","payload":1}"#), ["/key"]);
        assert_eq!(wrong(r#"{"kind":"split","subtasks":[]}"#), ["/subtasks"]);
    }

    #[test]
    fn a_key_that_is_too_long_is_named_by_its_start() {
        let key = format!("order-{}", "é".repeat(MAX_KEY_BYTES));
        let claims = [KeyClaim::exclusive(b"a"), KeyClaim::exclusive(key.as_bytes())];
        let (at, why) = fits(claims.into_iter(), 0, &SubmissionLimits::default()).unwrap_err();
        let expected =
            format!("the key `order-{}…` has 2054 bytes, and 1024 are the most", "é".repeat(34));
        assert_eq!((at, why), ("/key", expected));
    }

    #[test]
    fn a_payload_of_null_is_a_payload() {
        let job = checked(r#"{"kind":"plain","payload":null}"#).unwrap();
        assert_eq!(job.subtasks[0].payload.as_ref().unwrap().get(), "null");
    }

    #[test]
    fn a_job_without_subtasks_is_none_without_a_word() {
        assert!(checked(r#"{"kind":"plain","subtasks":[]}"#).unwrap().subtasks.is_empty());
        assert!(checked(r#"{"kind":"split"}"#).unwrap().head.split);
    }

    #[test]
    fn a_time_that_is_past_is_now() {
        let job =
            checked(r#"{"kind":"plain","payload":1,"run_at":"1970-01-01T00:00:00Z"}"#).unwrap();
        assert_eq!(job.head.run_at, None);
    }
}
