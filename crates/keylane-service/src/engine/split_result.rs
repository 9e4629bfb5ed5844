//! Parses and validates the result of a split step: a list of subtasks.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::KeyClaim;
use crate::job_definition::{SubmissionLimits, fits};
use crate::wire::Object;

/// Subtask that a split step has produced.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewSubtaskSpec {
    #[serde(default)]
    key: Option<String>,
    #[serde(default)]
    keys: Option<Vec<String>>,
    #[serde(default)]
    shared_keys: Option<Vec<String>>,
    #[serde(default)]
    barrier: bool,
    #[serde(default)]
    latest: bool,
    #[serde(default)]
    payload: Option<Box<RawValue>>,
}

impl NewSubtaskSpec {
    /// Parses a split step's result. The error names the fault and its place.
    pub(super) fn read(
        answer: Option<&RawValue>,
        bounds: &SubmissionLimits,
    ) -> Result<Vec<Self>, String> {
        let text = answer.map_or("[]", RawValue::get);
        let all: Vec<Object<NewSubtaskSpec>> = serde_json::from_str(text).map_err(|error| {
            format!("the split step's result is not a list of subtasks: {error}")
        })?;
        let all: Vec<NewSubtaskSpec> = all.into_iter().map(|made| made.0).collect();
        if all.len() > bounds.job_subtasks as usize {
            let (made, most) = (all.len(), bounds.job_subtasks);
            return Err(format!(
                "the split step returned {made} subtasks; at most {most} are allowed"
            ));
        }
        for (index, one) in all.iter().enumerate() {
            one.check(bounds).map_err(|why| format!("the split step's subtask {index}: {why}"))?;
        }
        Ok(all)
    }

    fn check(&self, bounds: &SubmissionLimits) -> Result<(), String> {
        if self.key.is_some() && self.keys.is_some() {
            return Err("`key` and `keys` are both set; keep one".into());
        }
        let fit = fits(self.claims().into_iter(), self.payload().len(), bounds);
        fit.map_err(|(at, why)| format!("{at}: {why}"))
    }

    pub(super) fn claims(&self) -> Vec<KeyClaim<'_>> {
        let exclusive = self.keys.iter().flatten().chain(&self.key);
        let exclusive = exclusive.map(|key| KeyClaim::exclusive(key.as_bytes()));
        let shared = self.shared_keys.iter().flatten();
        let shared = shared.map(|key| KeyClaim::shared(key.as_bytes()));
        let barrier = self.barrier.then_some(KeyClaim::BARRIER);
        let latest = self.latest.then_some(KeyClaim::LATEST);
        exclusive.chain(shared).chain(barrier).chain(latest).collect()
    }

    pub(super) fn payload(&self) -> &str {
        self.payload.as_ref().map_or("null", |payload| payload.get())
    }
}

/// Returns the JSON `null`.
pub(super) fn null() -> Box<RawValue> {
    RawValue::from_string("null".into()).expect("null is JSON")
}

/// Fuzz target: the result of a split step. Accepted subtasks are within the limits, and are what a plain JSON reader
/// reads.
#[cfg(any(test, fuzzing))]
pub fn fuzz_split_result(input: &[u8]) {
    let Some(text) = std::str::from_utf8(input).ok() else { return };
    let Ok(raw) = RawValue::from_string(text.to_owned()) else { return };
    let bounds = SubmissionLimits { payload_bytes: 64, job_subtasks: 8, ..Default::default() };
    let made = match NewSubtaskSpec::read(Some(&raw), &bounds) {
        Ok(made) => made,
        Err(why) => return assert!(why.starts_with("the split step"), "{why}"),
    };
    assert!(made.len() <= 8);
    let plain: Option<Vec<serde_json::Value>> = serde_json::from_str(text).ok();
    for (place, one) in made.iter().enumerate() {
        assert!(
            one.payload().len() <= 64 && one.claims().iter().all(|claim| claim.key.len() <= 1024)
        );
        if let Some(plain) = &plain {
            let payload: serde_json::Value = serde_json::from_str(one.payload()).unwrap();
            assert_eq!(plain[place]["payload"], payload);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<NewSubtaskSpec>, String> {
        let raw = RawValue::from_string(text.to_owned()).unwrap();
        NewSubtaskSpec::read(Some(&raw), &SubmissionLimits::default())
    }

    #[test]
    fn an_answer_is_taken_apart() {
        let made = read(
            r#"[{"key":"a","payload":1.0},{"barrier":true},{"keys":["b"],"shared_keys":["c"]}]"#,
        )
        .unwrap();
        let plain: Vec<_> = made.iter().map(|one| (one.claims(), one.payload())).collect();
        let [a, b] = [&b"a"[..], b"b"].map(KeyClaim::exclusive);
        let wanted = [
            (vec![a], "1.0"),
            (vec![KeyClaim::BARRIER], "null"),
            (vec![b, KeyClaim::shared(b"c")], "null"),
        ];
        assert_eq!(plain, wanted);
        assert_eq!(NewSubtaskSpec::read(None, &SubmissionLimits::default()).unwrap().len(), 0);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        assert!(read(r#"{"a":1}"#).unwrap_err().contains("is not a list of subtasks"));
        assert!(read(r#"[{},{"ky":1}]"#).unwrap_err().contains("unknown field"));
        assert!(read(r#"[{},{"key":""}]"#).unwrap_err().contains("subtask 1: /key"));
    }
}
