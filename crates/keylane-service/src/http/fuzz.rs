//! Fuzz targets: bodies of requests and messages of WebSockets. What is read is what a plain JSON reader reads.

use std::time::Duration;

use serde_json::Value;

use super::extract::json;
use super::problem::ApiError;
use super::ws::{ClientMessage, seq_of};
use crate::job_definition::{self, JobDefinition, SubmissionLimits};
use crate::kind_registry::KindRegistry;
use crate::tenant::TenantRegistry;
use crate::wire::{SubmitBatch, SubmitJob, Timestamp};
use crate::{Kind, RequestError};

/// Body of a submission, or of a batch of them.
pub fn fuzz_submission(input: &[u8]) {
    match json::<SubmitBatch>(input) {
        Ok(batch) => batch.jobs.iter().for_each(|job| submission(job.get().as_bytes())),
        Err(_) => submission(input),
    }
}

fn submission(input: &[u8]) {
    let job = match json::<SubmitJob>(input) {
        Ok(job) => job,
        Err(refusal) => return named(refusal),
    };
    // Numbers that no plain reader takes are kept as they are.
    if let Ok(plain) = serde_json::from_slice::<Value>(input) {
        assert_eq!(plain["kind"], *job.kind);
        let payload = job.payload.as_ref().map(|raw| serde_json::from_str(raw.get()).unwrap());
        assert_eq!(plain.get("payload").cloned(), payload);
        let subtasks = plain["subtasks"].as_array().map(Vec::len);
        assert_eq!(subtasks, job.subtasks.as_ref().map(Vec::len));
        let limit = job.weight.map(u64::from);
        assert_eq!(plain.get("weight").and_then(Value::as_u64), limit);
    }
    let kinds = KindRegistry::default();
    kinds.add("resize", Kind::leased(Duration::from_secs(1)));
    let bounds = SubmissionLimits { payload_bytes: 64, job_subtasks: 4, ..Default::default() };
    match job_definition::check(
        job,
        false,
        &kinds,
        &TenantRegistry::default(),
        &bounds,
        Timestamp(1_763_000_000_000),
    ) {
        Ok(checked) => {
            assert!((1..=4).contains(&checked.subtasks.len()));
            let text = serde_json::to_string(&checked.head).unwrap();
            let again: JobDefinition = serde_json::from_str(&text).expect("a stored head is read");
            assert_eq!(serde_json::to_string(&again).unwrap(), text);
        }
        Err(RequestError::Invalid(fields)) => {
            assert!(!fields.is_empty() && fields.iter().all(|(_, why)| !why.is_empty()));
        }
        Err(RequestError::TooLarge(why)) => assert!(!why.is_empty()),
        Err(other) => panic!("a check of the content is refused with {other}"),
    }
}

/// Message of a client.
pub fn fuzz_websocket(input: &[u8]) {
    // The library refuses other messages.
    let Ok(text) = std::str::from_utf8(input) else { return };
    match json::<ClientMessage>(input) {
        Ok(message) => {
            if serde_json::from_slice::<Value>(input).is_ok() {
                assert_eq!(seq_of(text), Some(message.seq));
            }
            if let Some(job) = message.job {
                submission(job.get().as_bytes());
            }
        }
        Err(refusal) => named(refusal),
    }
}

/// A refusal of a body names its cause.
fn named(refusal: ApiError) {
    assert_eq!(refusal.status().as_u16() / 100, 4);
    let problem = refusal.into_problem();
    assert!(!problem.detail.is_empty());
}
