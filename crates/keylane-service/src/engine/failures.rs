//! Last failures of a job's unfinished subtasks, shown as the reason of a backoff.
//!
//! The failures of subtasks that back off or have stopped a key are also in their marks, so they
//! survive a restart.

use std::collections::BTreeMap;

use crate::scheduler::Step;

/// Maximum number of subtasks of a job whose failures are kept: those that failed first.
const MAX_KEPT: usize = 64;

/// Maximum length of a kept failure, in bytes.
const MAX_BYTES: usize = 300;

/// Errors of the last attempts, by step.
#[derive(Debug, Default)]
pub(super) struct LastErrors(BTreeMap<Step, Box<str>>);

impl LastErrors {
    /// Keeps the error of an attempt that is retried or has stopped its key.
    pub(super) fn note(&mut self, step: Step, error: &str) {
        if self.0.len() < MAX_KEPT || self.0.contains_key(&step) {
            let end = error.floor_char_boundary(MAX_BYTES);
            let rest = if end < error.len() { "…" } else { "" };
            self.0.insert(step, format!("{}{rest}", error[..end].trim()).into());
        }
    }

    /// Removes the failure of an ended subtask.
    pub(super) fn forget(&mut self, step: Step) {
        self.0.remove(&step);
    }

    /// Returns the error of the last attempt.
    pub(super) fn get(&self, step: Step) -> Option<&str> {
        self.0.get(&step).map(|error| &**error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_failure_is_kept_within_bounds() {
        let mut failures = LastErrors::default();
        (0..100).for_each(|number| failures.note(Step::Subtask(number), "first"));
        failures.note(Step::Subtask(3), &"ä".repeat(1000));
        assert_eq!(failures.0.len(), MAX_KEPT);
        let kept = failures.get(Step::Subtask(3)).unwrap();
        assert!(kept.len() <= MAX_BYTES + '…'.len_utf8() && kept.ends_with("ä…"));
        failures.forget(Step::Subtask(3));
        assert_eq!(failures.get(Step::Subtask(3)), None);
        assert_eq!(failures.get(Step::Subtask(99)), None);
    }
}
