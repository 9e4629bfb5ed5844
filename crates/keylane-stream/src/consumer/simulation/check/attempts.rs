//! Promises about attempts: order and no overlap for each key, no needless repetition, the rules of
//! retries.

use super::super::history::{AttemptEnd, Place};
use super::super::settings::uses_of;
use super::super::source::UNKEYED;
use super::conflicts::conflict;
use super::operator;
use super::state::State;
use crate::retry::OnExhausted;

pub(super) fn started(state: &mut State<'_>, member: usize, place: Place, attempt: u32) {
    let Some(record) = state.record(place) else {
        return state.fail(format!("{place:?} starts and does not exist"));
    };
    let settled_at = record.settled_at;
    record.running.push(member);
    let mut wrong = Vec::new();
    // Keys are kept apart in a process, also over two assignments of the partition.
    let settings = state.settings;
    let own = &state.records[&(place.partition, place.position)];
    // Records without a key run one by one in each case.
    let limit = if own.key == UNKEYED { 1 } else { settings.limit_per_key };
    let mut overlapping = 0;
    for other in state.records.values() {
        let is_same = conflict(settings, own, other);
        if is_same && other.place != place && other.running.contains(&member) {
            overlapping += 1;
            if overlapping >= limit {
                wrong.push(format!("overlaps {:?} of its key", other.place));
            }
        }
        let elsewhere = other.running.iter().copied().filter(|running| *running != member);
        let both =
            |other: &usize| state.must_end_attempts(*other) && state.must_end_attempts(member);
        for running in elsewhere.filter(|running| is_same && both(running)) {
            wrong.push(format!("overlaps {:?} of its key in process {running}", other.place));
        }
    }
    let twice = state.records[&(place.partition, place.position)].running.iter();
    if twice.filter(|running| **running == member).count() > 1 {
        wrong.push("runs twice at a time".to_owned());
    }
    if let Some(scope) = operator::pause_of(state, member, place) {
        wrong.push(format!("begins while {scope:?} is paused"));
    }
    match state.members[member].tenancies.get(&place.partition) {
        None => wrong.push("is not assigned to its process".to_owned()),
        Some(tenancy) => {
            // A process that has not learned of its loss can still begin an attempt.
            if settled_at.is_some_and(|at| at <= tenancy.begun_at) {
                wrong.push("was done, and its process had ended orderly".to_owned());
            }
            let is_done = |position: u64| {
                tenancy.begin.has(position) || tenancy.resolved.contains_key(&position)
            };
            if is_done(place.position) {
                wrong.push("was done already".to_owned());
            }
            let before =
                state.records.range((place.partition, 0)..(place.partition, place.position));
            let of_key = before.filter(|(_, earlier)| conflict(settings, earlier, own));
            let open = of_key.filter(|(_, earlier)| !is_done(earlier.place.position));
            for (_, earlier) in open.skip(limit - 1) {
                wrong.push(format!("starts before {:?} of its key is done", earlier.place));
            }
            let running = tenancy.attempts.values().filter(|attempts| attempts.is_running);
            if running.count() >= state.settings.records {
                wrong.push("exceeds the limit on records in flight".to_owned());
            }
        }
    }
    let now = state.at;
    let first_backoff = u64::try_from(state.settings.first_backoff.as_micros()).unwrap();
    if let Some(tenancy) = state.tenancy(member, place.partition) {
        let attempts = tenancy.attempts.entry(place.position).or_default();
        if attempt != attempts.failed + 1 {
            wrong.push(format!(
                "has failed {} times, so this is no attempt {attempt}",
                attempts.failed
            ));
        }
        // At least half of the backoff.
        let is_retried = attempts.retried_after == attempts.failed;
        if attempts.failed > 0 && !is_retried && now < attempts.failed_at + first_backoff / 2 {
            wrong.push("is tried again before its backoff is over".to_owned());
        }
        attempts.is_running = true;
    }
    if attempt == 1 {
        wrong.extend(paced(state, member, place));
    }
    wrong.into_iter().for_each(|what| state.fail(format!("{place:?} {what}")));
}

/// First attempts keep the rates. Those behind a pause or a stopped key count when they get their turns,
/// and begin later.
fn paced(state: &mut State<'_>, member: usize, place: Place) -> Vec<String> {
    let (settings, now) = (state.settings, state.at);
    let record = &state.records[&(place.partition, place.position)];
    let keys: &[u8] = match record.own_key {
        _ if settings.by_partition => &[],
        own if settings.has_claims => uses_of(own).own,
        UNKEYED => &[],
        _ => std::slice::from_ref(&record.own_key),
    };
    let member = &mut state.members[member];
    let is_exact = !member.has_paused && settings.on_exhausted != OnExhausted::StopKey;
    let is_early = |last: Option<u64>, interval: Option<u64>| {
        is_exact && last.zip(interval).is_some_and(|(last, interval)| now < last + interval)
    };
    let mut wrong = Vec::new();
    if is_early(member.last_start.replace(now), settings.interval) {
        wrong.push("begins before the rate allows it".to_owned());
    }
    for key in keys {
        // Each assignment of a partition has keys of its own, unless records have several.
        let assignment = member.tenancies.get(&place.partition).filter(|_| !settings.has_claims);
        let of = assignment.map(|tenancy| (place.partition, tenancy.begun_at));
        if is_early(member.last_of_key.insert((of, *key), now), settings.interval_per_key) {
            wrong.push(format!("begins before the rate of key {key} allows it"));
        }
    }
    wrong
}

pub(super) fn ended(
    state: &mut State<'_>,
    member: usize,
    place: Place,
    attempt: u32,
    end: AttemptEnd,
) {
    let Some(record) = state.record(place) else { return };
    if let Some(at) = record.running.iter().position(|running| *running == member) {
        record.running.remove(at);
    }
    let now = state.at;
    let Some(tenancy) = state.tenancy(member, place.partition) else {
        // The answer comes after the loss of the partition, and does not count.
        return;
    };
    // An attempt of an earlier assignment can end during a later one.
    let Some(attempts) = tenancy.attempts.get_mut(&place.position) else { return };
    if !attempts.is_running || attempts.failed + 1 != attempt {
        return;
    }
    attempts.is_running = false;
    if matches!(end, AttemptEnd::Withdrawn | AttemptEnd::Cancelled) {
        return;
    }
    if end == AttemptEnd::Succeeded {
        return state.resolve(member, place);
    }
    let is_retried = attempts.retried_after > 0 && attempts.retried_after == attempts.failed;
    attempts.failed += 1;
    attempts.failed_at = now;
    let limit = state.settings.attempts;
    // The consumer reports that later.
    match state.settings.on_exhausted {
        OnExhausted::Skip if attempt == limit => {
            give_up(state, place);
            state.resolve(member, place);
        }
        OnExhausted::Stop if attempt == limit => state.stop_by_itself(member),
        _ => {}
    }
    if attempt > limit && !is_retried {
        state.fail(format!("{place:?} has attempt {attempt} of {limit}"));
    }
}

/// A dead letter follows the last attempt.
pub(super) fn letter(
    state: &mut State<'_>,
    member: usize,
    place: Place,
    attempts: u32,
    is_acknowledged: bool,
) {
    let limit = state.settings.attempts;
    if state.settings.on_exhausted != OnExhausted::DeadLetter || attempts != limit {
        state.fail(format!("{place:?} has a dead letter after {attempts} of {limit} attempts"));
    }
    give_up(state, place);
    if is_acknowledged {
        state.resolve(member, place);
    }
}

fn give_up(state: &mut State<'_>, place: Place) {
    if let Some(record) = state.record(place) {
        record.is_given_up = true;
    }
}

/// A report of a skipped record can come after a new assignment of its partition. What is skipped too
/// early shows in the commits.
pub(super) fn skipped(state: &mut State<'_>, place: Place) {
    if state.settings.on_exhausted != OnExhausted::Skip {
        state.fail(format!("{place:?} is skipped"));
    }
}

/// A record can be replaced only by a later one of its key, and before it begins. It is resolved then.
pub(super) fn replaced(state: &mut State<'_>, member: usize, place: Place, by: Place) {
    if by.position <= place.position {
        // It was delivered in an earlier assignment, and is delivered again.
        return;
    }
    let key_of = |place: &Place| {
        let record = state.records.get(&(place.partition, place.position));
        record.map(|record| record.key).filter(|key| *key != UNKEYED)
    };
    let has_key = key_of(&place).is_some() && key_of(&place) == key_of(&by);
    if !state.settings.is_latest || !has_key || by.partition != place.partition {
        state.fail(format!("{place:?} is replaced by {by:?}"));
    }
    let Some(tenancy) = state.tenancy(member, place.partition) else { return };
    if tenancy.attempts.contains_key(&place.position) {
        return state.fail(format!("{place:?} is replaced by {by:?} and has begun"));
    }
    give_up(state, place);
    state.resolve(member, place);
}
