//! Decision of a node that waits for a store: when it may take the store over.

use std::time::Duration;

use super::nodes::Nonce;

/// Time without a heartbeat after which another node takes over.
const SILENCE: Duration = Duration::from_secs(5);

/// Further time for which a drained node leaves a store without an owner to the others.
const DEFERENCE: Duration = Duration::from_secs(30);

/// Owner of the store and its last heartbeat, as a node has seen them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// Number of takeovers.
    pub(super) epoch: i64,
    /// Owner. `None`: it has closed the store.
    pub(super) node: Option<Nonce>,
    /// Number of its last heartbeat, 0 without one.
    pub(super) heartbeat: i64,
    /// Whether the store was last opened on another server or timeline. Then the owner of it may be missing here, and not know that.
    pub(super) is_moved: bool,
}

/// Node that waits for a store. It knows what it has seen, and by its own clock since when nothing has changed.
#[derive(Debug)]
pub(super) struct Candidate {
    /// Its name.
    node: Nonce,
    seen: Seen,
    /// Time of the answer to the first look that has seen this, so it was true then at the latest.
    since: Duration,
}

impl Candidate {
    /// Creates a candidate from its first look.
    pub(super) fn new(node: Nonce, seen: Seen, answered: Duration) -> Self {
        Candidate { node, seen, since: answered }
    }

    /// Returns what was seen last.
    pub(super) fn seen(&self) -> &Seen {
        &self.seen
    }

    /// Records what a look has seen that was answered at `answered`. Returns whether something has changed.
    pub(super) fn record(&mut self, seen: Seen, answered: Duration) -> bool {
        let changed = seen != self.seen;
        if changed {
            *self = Candidate::new(self.node, seen, answered);
        }
        changed
    }

    /// Returns whether the node may take the store now, if its owner and heartbeat still are as they were seen last: the takeover
    /// checks that.
    pub(super) fn may_take(&self, now: Duration, is_drained: bool) -> bool {
        now.saturating_sub(self.since) >= self.wait(is_drained)
    }

    /// Returns for how long the owner and its heartbeat must not have changed.
    fn wait(&self, is_drained: bool) -> Duration {
        // This node is the only process with its name, so an owner of that name has ended.
        let has_ended = self.seen.node.is_none_or(|owner| owner == self.node);
        let silence = if has_ended && !self.seen.is_moved { Duration::ZERO } else { SILENCE };
        silence + if is_drained { DEFERENCE } else { Duration::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Nonce = [1; 16];

    fn candidate(owner: Option<Nonce>, is_moved: bool) -> Candidate {
        let seen = Seen { epoch: 7, node: owner, heartbeat: 3, is_moved };
        Candidate::new(OWN, seen, Duration::from_secs(100))
    }

    #[test]
    fn a_drained_node_takes_a_store_only_when_no_other_one_has_taken_it_for_half_a_minute() {
        for (owner, silence) in [(None, 0), (Some(OWN), 0), (Some([2; 16]), 5)] {
            let wait = |is_drained| candidate(owner, false).wait(is_drained).as_secs();
            assert_eq!((wait(false), wait(true)), (silence, silence + 30), "{owner:?}");
        }
    }

    #[test]
    fn an_owner_that_is_missing_after_a_promotion_is_waited_for() {
        for owner in [None, Some(OWN), Some([2; 16])] {
            assert_eq!(candidate(owner, true).wait(false), SILENCE, "{owner:?}");
        }
    }

    #[test]
    fn the_silence_is_counted_from_the_first_look_that_has_seen_the_heartbeat() {
        let at = |seconds| Duration::from_secs(seconds);
        let mut candidate = candidate(Some([2; 16]), false);
        let seen = candidate.seen().clone();
        assert!(!candidate.record(seen.clone(), at(104)));
        assert!(!candidate.may_take(at(104), false));
        assert!(candidate.may_take(at(105), false));
        let later = Seen { heartbeat: 4, ..seen };
        assert!(candidate.record(later.clone(), at(107)));
        assert!(!candidate.record(later, at(111)));
        assert!(!candidate.may_take(at(111), false));
        assert!(candidate.may_take(at(112), false));
    }
}
