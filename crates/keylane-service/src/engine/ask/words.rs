//! Reasons of the scheduler's, in words for people.

use super::text_of;
use crate::JobNumber;
use crate::engine::books::Books;
use crate::schedule::{Reason, State, Step};
use crate::wire::{Because, Timestamp};

/// A reason of the scheduler's in words.
pub(in crate::engine) fn because_of(books: &Books, reason: &Reason, now: Timestamp) -> Because {
    let plain = |reason: &str, text: String| Because {
        reason: reason.to_owned(),
        text,
        count: None,
        key: None,
        position: None,
        job: None,
        number: None,
        since: None,
        until: None,
    };
    let name = |job: JobNumber| books.live.get(&job).map(|live| live.id.to_string());
    let of = |step: Step| match step {
        Step::Subtask(number) => Some(number),
        Step::Split | Step::FanIn => None,
    };
    match reason {
        Reason::KeyOrder { key, ahead, behind, head } => {
            let at = name(head.of.job).unwrap_or_default();
            let text = format!(
                "its key `{}` is at {} of {at}, which {} ({} ahead)",
                text_of(key),
                head.of.step,
                state_text(&head.state, now),
                ahead
            );
            Because {
                key: Some(text_of(key)),
                position: Some(u64::from(*ahead) + 1),
                job: name(behind.job),
                number: of(behind.step),
                since: Some(Timestamp(head.since)),
                ..plain("key_order", text)
            }
        }
        Reason::Keys => plain("key_order", "their keys are taken by earlier subtasks".into()),
        Reason::KeyPaused { key } if let Some(text) = books.holds.because_of_key(key) => Because {
            key: Some(text_of(key)),
            since: books.paused_keys.get(key).copied(),
            ..plain("key_stopped", text)
        },
        Reason::KeyPaused { key } => Because {
            key: Some(text_of(key)),
            since: books.paused_keys.get(key).copied(),
            ..plain("key_paused", format!("its key `{}` is paused", text_of(key)))
        },
        Reason::KeyStopped { key, head } => Because {
            key: Some(text_of(key)),
            job: name(head.of.job),
            number: of(head.of.step),
            since: Some(Timestamp(head.since)),
            ..plain(
                "key_stopped",
                format!(
                    "its key `{}` stands still since {} failed; retry or skip that",
                    text_of(key),
                    head.of.step
                ),
            )
        },
        Reason::NoSlot { running, slots, ahead } => {
            let ahead = ahead.map_or_else(String::new, |ahead| {
                format!("; {ahead} jobs need less and come first")
            });
            plain(
                "no_slot",
                format!("all slots are taken: the job has {running} of {slots}{ahead}"),
            )
        }
        Reason::NotAdmitted { active, ahead } => Because {
            position: ahead.map(|ahead| ahead as u64 + 1),
            ..plain(
                "not_admitted",
                format!("{active} jobs are active, as many as may be, and it waits in the line"),
            )
        },
        Reason::KindBound { running } => {
            plain("kind_at_limit", format!("as many of its kind run as may: {running}"))
        }
        Reason::KindRate { until } => Because {
            until: until.map(Timestamp),
            ..plain("kind_rate_limited", "as many of its kind have begun as may for now".into())
        },
        Reason::BackingOff { until } => Because {
            until: Some(Timestamp(*until)),
            ..plain("backing_off", "it failed, and is tried again later".into())
        },
        Reason::Stopped => plain(
            "key_stopped",
            "it failed for the last time, and its key waits for a word: retry or skip it".into(),
        ),
        Reason::JobPaused => plain("job_paused", "somebody has paused the job".into()),
        Reason::Scheduled { until } => Because {
            until: Some(Timestamp(*until)),
            ..plain("scheduled", format!("its time is {}", Timestamp(*until)))
        },
        Reason::Entering { ahead: 0 } => plain(
            "entering",
            "its job is large and enters the order in slices; it begins when its slice has entered"
                .into(),
        ),
        Reason::Entering { ahead } => plain(
            "entering",
            format!(
                "{ahead} subtasks of jobs that were accepted before have yet to enter the order; it enters behind them"
            ),
        ),
        Reason::Split => plain("split", "its subtasks have yet to be made".into()),
        Reason::Others { left } => plain("fan_in", format!("{left} subtasks must end before")),
        Reason::Draining => {
            plain("draining", "the server is about to stop and begins nothing".into())
        }
    }
}

fn state_text(state: &State, now: Timestamp) -> String {
    match state {
        State::Scheduled { at } => format!("begins at {}", Timestamp(*at)),
        State::Waiting => "waits".into(),
        State::Ready => "could begin".into(),
        State::Running { since, .. } => format!("has run for {} ms", now.0.saturating_sub(*since)),
        State::BackingOff { until } => {
            format!("is tried again in {} ms", until.saturating_sub(now.0))
        }
        State::Stopped => "failed for the last time".into(),
    }
}
