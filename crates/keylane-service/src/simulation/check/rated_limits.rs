//! Limits that operators give to a kind while it runs, as far as clients know which is in force.

use crate::simulation::work::RATED_AT_ONCE;

/// Limits that may be in force.
#[derive(Debug)]
pub(super) struct RatedLimits(Vec<Limit>);

#[derive(Debug)]
struct Limit {
    /// Number of its command; `None` for the configured one.
    command: Option<u64>,
    at_once: usize,
    /// Place of its answer.
    answered: Option<usize>,
    /// Time without sleep at which a later one was answered.
    replaced: Option<u64>,
}

impl Default for RatedLimits {
    fn default() -> Self {
        let configured =
            Limit { command: None, at_once: RATED_AT_ONCE, answered: Some(0), replaced: None };
        RatedLimits(vec![configured])
    }
}

impl RatedLimits {
    /// An operator sends a limit for the first time.
    pub(super) fn sent(&mut self, command: u64, at_once: usize) {
        let command = Some(command);
        self.0.push(Limit { command, at_once, answered: None, replaced: None });
    }

    /// A limit is answered at `place`, which was sent at `sent`: those that were answered before it was sent are
    /// replaced, now and after every restart.
    pub(super) fn answered(&mut self, command: u64, place: usize, sent: usize, awake: u64) {
        for limit in &mut self.0 {
            if limit.answered.is_some_and(|answered| answered <= sent) {
                limit.replaced = limit.replaced.or(Some(awake));
            }
            if limit.command == Some(command) {
                limit.answered = Some(place);
            }
        }
    }

    /// Returns the highest limit that may be in force. `is_past` is whether what was chosen at a time has begun.
    pub(super) fn most(&self, is_past: impl Fn(u64) -> bool) -> usize {
        let may_be_in_force = |limit: &&Limit| !limit.replaced.is_some_and(&is_past);
        self.0.iter().filter(may_be_in_force).map(|limit| limit.at_once).max().unwrap_or(0)
    }
}
