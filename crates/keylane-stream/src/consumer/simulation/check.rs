//! Judgement of a history, by the promises of a consumer. It uses no code of the product, and of its
//! answers only what the broker, handlers and dead letters saw.

mod attempts;
mod commits;
mod conflicts;
mod operator;
mod state;

use state::{State, TenancyEnd};

use super::history::{Entry, Event};
use super::settings::Settings;

/// Time that an orderly stop may take beyond that of the running attempts, in microseconds.
const STOP_SLACK: u64 = 2_500_000;

/// Returns the broken promises.
pub(super) fn judge(settings: &Settings, entries: &[Entry]) -> Vec<String> {
    let mut state = State::new(settings);
    for Entry { at, event } in entries {
        state.at = *at;
        judge_event(&mut state, event);
    }
    end(&mut state);
    state.broken
}

fn judge_event(state: &mut State<'_>, event: &Event) {
    match event {
        Event::Produced { place, key } => state.produced(*place, *key),
        Event::Opened { member } => state.opened(*member),
        Event::Assigned { member, partition, claim } => {
            state.assigned(*member, *partition, claim.clone());
        }
        Event::Started { member, place, attempt } => {
            attempts::started(state, *member, *place, *attempt);
        }
        Event::Ended { member, place, attempt, end } => {
            attempts::ended(state, *member, *place, *attempt, *end);
        }
        Event::Letter { member, place, attempts, is_acknowledged } => {
            attempts::letter(state, *member, *place, *attempts, *is_acknowledged);
        }
        Event::Skipped { place, .. } => attempts::skipped(state, *place),
        Event::Replaced { member, place, by } => attempts::replaced(state, *member, *place, *by),
        Event::Committing { member, partition, claim } => {
            commits::committing(state, *member, *partition, claim);
        }
        Event::Stored { member, partition, claim } => {
            commits::stored(state, *member, *partition, claim);
        }
        Event::Committed { member, partition, answer } => {
            commits::answered(state, *member, *partition, *answer);
        }
        Event::Cancelled { .. } | Event::Output { .. } | Event::Aborted { .. } => {}
        Event::Published { outputs, .. } => commits::published(state, outputs),
        Event::Revoked { member, partitions } => {
            commits::revoked(state, *member, partitions);
            if state.settings.has_claims {
                state.stop_by_itself(*member);
            }
        }
        Event::Released { member, partitions } => {
            commits::released(state, *member, partitions);
        }
        Event::Lost { member, partitions } => {
            for partition in partitions {
                state.end_tenancy(*member, *partition, TenancyEnd::Unclean);
            }
        }
        Event::Cut { member } | Event::Frozen { member, .. } | Event::Back { member } => {
            state.disturbed(*member);
        }
        Event::Paused { member, scope } => operator::paused(state, *member, *scope),
        Event::Resumed { member, scope } => operator::resumed(state, *member, *scope),
        Event::Retried { member, scope } => operator::retried(state, *member, *scope),
        Event::Stopping { member, ms } => state.stop(*member, ms * 1000),
        Event::Failed { member } => {
            // It cannot commit any more.
            state.disturbed(*member);
            state.stop_by_itself(*member);
        }
        Event::Stopped { member, .. } => stopped(state, *member),
        Event::Killed { member } => state.end_member(*member, TenancyEnd::Unclean),
        Event::Set { .. } => {}
        Event::Healed => state.is_healed = true,
        Event::Finished => state.is_finished = true,
    }
}

/// An orderly stop ends in its time, repeats nothing, and commits everything.
fn stopped(state: &mut State<'_>, number: usize) {
    let at = state.at;
    let member = &state.members[number];
    if let Some(by) = member.stop_by.filter(|_| !member.is_disturbed)
        && at > by + STOP_SLACK
    {
        state.fail(format!("process {number} ended {} us after its deadline", at - by));
    }
    let runs = state.records.values().filter(|record| record.running.contains(&number));
    let runs: Vec<_> = runs.map(|record| record.place).collect();
    if state.must_end_attempts(number) && !runs.is_empty() {
        state.fail(format!("process {number} ends while attempts at {runs:?} run"));
    }
    let partitions: Vec<_> = state.members[number].tenancies.keys().copied().collect();
    for partition in partitions {
        commits::gave_up(state, number, partition);
    }
    state.end_member(number, TenancyEnd::Clean);
}

/// When the faults have ended, all work ends.
fn end(state: &mut State<'_>) {
    if !state.is_healed || !state.is_finished {
        state.fail("the history has no end".to_owned());
    }
    let open: Vec<_> = state.records.values().filter(|record| !record.is_resolved).collect();
    let open: Vec<_> = open.iter().map(|record| record.place).collect();
    if !open.is_empty() {
        state.fail(format!("not handled at the end: {open:?}"));
    }
    commits::all_published(state);
    let records = state.records.keys().copied();
    let not_stored = |(partition, position): &(u32, u64)| {
        !state.stored.get(partition).is_some_and(|claim| claim.has(*position))
    };
    let left: Vec<_> = records.filter(not_stored).collect();
    if !left.is_empty() {
        state.fail(format!("not in the stored progress at the end: {left:?}"));
    }
}
