//! Queries of the API: jobs, subtasks, keys, and the whole service.

mod job;
mod logs;
mod results;
mod subtask;
mod whole;
mod words;

use keylane::allocate::Rule;
use serde_json::value::RawValue;

use super::{Core, Refused};
use crate::Key;
use crate::store::ReadError;

pub(crate) use job::Wanted;
pub(super) use job::{brief_view, final_view, live_view};
pub(super) use results::ByKey;
pub(crate) use results::ResultOrder;
pub(super) use whole::KeptSummary;

pub(super) fn text_of(key: &Key) -> String {
    String::from_utf8_lossy(&key.0).into_owned()
}

pub(super) fn rule_text(rule: Rule) -> &'static str {
    match rule {
        Rule::Keep => "keep",
        Rule::Aged => "aged",
        Rule::Admit => "admit",
        Rule::Least => "least",
    }
}

impl Core {
    pub(crate) fn read_refused(&self, error: ReadError) -> Refused {
        tracing::error!(%error, "the store cannot be read");
        match error {
            // Only this row is damaged: the store and all other jobs continue.
            ReadError::Damaged(damage) => Refused::Damaged(damage.to_string()),
            error => Refused::StoreFailed(error.to_string()),
        }
    }
}

/// Returns bytes that were JSON when they were written.
fn raw(bytes: &[u8]) -> Option<Box<RawValue>> {
    let text = std::str::from_utf8(bytes).ok()?;
    if text.is_empty() {
        return None;
    }
    RawValue::from_string(text.to_owned()).ok()
}
