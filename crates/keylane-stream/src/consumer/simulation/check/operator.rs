//! Promises to the operator: no attempt at a paused record begins between the confirmations of the pause
//! and of the resume.

use super::super::history::{Place, Scope};
use super::super::settings::{Settings, uses_of};
use super::super::source::UNKEYED;
use super::state::{Record, State};

pub(super) fn paused(state: &mut State<'_>, member: usize, scope: Scope) {
    state.members[member].has_paused = true;
    let paused = &mut state.members[member].paused;
    if !paused.contains(&scope) {
        paused.push(scope);
    }
}

pub(super) fn resumed(state: &mut State<'_>, member: usize, scope: Scope) {
    state.members[member].paused.retain(|paused| *paused != scope);
}

/// Records that wait for their next attempt need not wait for the rest of their backoff, and those that
/// have stopped their keys get one more attempt.
pub(super) fn retried(state: &mut State<'_>, member: usize, scope: Scope) {
    let settings = state.settings;
    for (partition, tenancy) in &mut state.members[member].tenancies {
        for (position, attempts) in &mut tenancy.attempts {
            let record = &state.records[&(*partition, *position)];
            if attempts.failed > 0 && is_in(settings, record, scope) {
                attempts.retried_after = attempts.failed;
            }
        }
    }
}

/// Returns the paused target that a record belongs to.
pub(super) fn pause_of(state: &State<'_>, member: usize, place: Place) -> Option<Scope> {
    let record = &state.records[&(place.partition, place.position)];
    let mut paused = state.members[member].paused.iter().copied();
    paused.find(|scope| is_in(state.settings, record, *scope))
}

fn is_in(settings: &Settings, record: &Record, scope: Scope) -> bool {
    match scope {
        Scope::All => true,
        Scope::Partition(partition) => record.place.partition == partition,
        Scope::Key(key) if settings.has_claims => {
            let uses = uses_of(record.own_key);
            uses.own.contains(&key) || uses.shared.contains(&key)
        }
        Scope::Key(key) => record.own_key == key && key != UNKEYED,
    }
}
