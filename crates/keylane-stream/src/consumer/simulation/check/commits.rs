//! Promises about commits and revocations: progress is true and never goes back, a partition that
//! was given back has all of its progress stored, and only its owner commits it.

use super::super::history::{Claim, CommitAnswer, Place};
use super::state::{Member, State, TenancyEnd};

/// The time that a revocation may take for its last step after the deadline of its attempts, in
/// microseconds: a second for the reports of attempts whose end was forced, and the steps after it.
const REVOCATION_SLACK: u64 = 1_100_000;

/// A commit claims only what is done, and comes from the owner, after the answer to the one before.
pub(super) fn committing(state: &mut State<'_>, member: usize, partition: u32, claim: &Claim) {
    let Some(tenancy) = state.members[member].tenancies.get(&partition) else {
        return state.fail(format!("process {member} commits {partition}, which it does not have"));
    };
    let records = state.records.range((partition, 0)..(partition + 1, 0));
    let is_open = |position: u64| {
        claim.has(position)
            && !tenancy.begin.has(position)
            && !tenancy.resolved.contains_key(&position)
    };
    let open = records.map(|((_, position), _)| *position).filter(|position| is_open(*position));
    let open: Vec<_> = open.collect();
    let is_early = tenancy.is_committing;
    if !open.is_empty() {
        state.fail(format!("process {member} commits {open:?} of {partition}, which are not done"));
    }
    if is_early {
        state.fail(format!("process {member} commits {partition} before an answer"));
    }
    if let Some(tenancy) = state.tenancy(member, partition) {
        tenancy.is_committing = true;
    }
}

pub(super) fn stored(state: &mut State<'_>, member: usize, partition: u32, claim: &Claim) {
    let before = state.stored.insert(partition, claim.clone()).unwrap_or_default();
    if claim.watermark < before.watermark {
        state.fail(format!("process {member} sets {partition} back from {before:?} to {claim:?}"));
    }
}

pub(super) fn answered(state: &mut State<'_>, member: usize, partition: u32, answer: CommitAnswer) {
    if let Some(tenancy) = state.tenancy(member, partition) {
        tenancy.is_committing = false;
        tenancy.is_shortened |= answer == CommitAnswer::TooLong;
    }
}

pub(super) fn revoked(state: &mut State<'_>, member: usize, partitions: &[u32]) {
    let at = state.at;
    for partition in partitions {
        if let Some(tenancy) = state.tenancy(member, *partition) {
            tenancy.revoked_at.get_or_insert(at);
        }
    }
}

/// A partition is given back when its attempts have ended or their deadline has passed, and its
/// progress is stored.
pub(super) fn released(state: &mut State<'_>, member: usize, partitions: &[u32]) {
    let timeout = u64::try_from(state.settings.shutdown_timeout.as_micros()).unwrap();
    for partition in partitions {
        let Member { stop_by, may_stop_by, .. } = state.members[member];
        let Some(tenancy) = state.members[member].tenancies.get(partition) else {
            continue;
        };
        let deadline = tenancy.revoked_at.map(|at| at + timeout);
        let deadline = deadline.into_iter().chain(stop_by).min();
        let runs = tenancy.attempts.values().any(|attempts| attempts.is_running);
        let at = state.at;
        let is_early = deadline.into_iter().chain(may_stop_by).min().is_none_or(|by| at < by);
        if runs && (is_early || state.must_end_attempts(member)) {
            state.fail(format!("process {member} gives {partition} back while attempts run"));
        }
        let is_disturbed = state.members[member].is_disturbed;
        if !is_disturbed && deadline.is_some_and(|it| at > it + REVOCATION_SLACK) && !runs {
            state.fail(format!("process {member} gives {partition} back late"));
        }
        gave_up(state, member, *partition);
        state.end_tenancy(member, *partition, TenancyEnd::Clean);
    }
}

/// The stored progress has all that was done in a tenancy, unless its map was too long. A commit
/// that was refused for now is sent again.
pub(super) fn gave_up(state: &mut State<'_>, member: usize, partition: u32) {
    let Some(tenancy) = state.members[member].tenancies.get(&partition) else { return };
    if tenancy.is_shortened || state.members[member].is_disturbed {
        return;
    }
    let stored = state.stored.get(&partition).cloned().unwrap_or_default();
    let in_time = state.resolved_in_time(member, partition).into_iter();
    let missing = in_time.filter(|position| !stored.has(*position));
    let missing: Vec<_> = missing.map(|position| Place { partition, position }).collect();
    if !missing.is_empty() {
        state.fail(format!("process {member} has ended {missing:?} without a commit"));
    }
}

/// Output is committed once, and with the progress of its record.
pub(super) fn published(state: &mut State<'_>, outputs: &[Place]) {
    for place in outputs {
        let stored = state.stored.get(&place.partition);
        if !stored.is_some_and(|stored| stored.has(place.position)) {
            state.fail(format!("{place:?} has output, and the stored progress does not have it"));
        }
        let Some(record) = state.record(*place) else { continue };
        record.published += 1;
        if record.published > 1 {
            state.fail(format!("{place:?} has output twice"));
        }
    }
    all_published(state);
}

/// With transactions, each record in the stored progress has its output.
pub(super) fn all_published(state: &mut State<'_>) {
    if !state.settings.is_transactional {
        return;
    }
    let is_stored = |place: &Place| {
        state.stored.get(&place.partition).is_some_and(|claim| claim.has(place.position))
    };
    let missing = state.records.values().filter(|it| it.published == 0 && !it.is_given_up);
    let missing: Vec<_> = missing.map(|it| it.place).filter(is_stored).collect();
    if !missing.is_empty() {
        state.fail(format!("{missing:?} are in the stored progress without output"));
    }
}
