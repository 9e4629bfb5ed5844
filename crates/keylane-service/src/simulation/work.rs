//! Jobs of a simulation, and the behaviour of their attempts.

use std::time::Duration;

use serde_json::{Value, json};

use super::random::Random;

/// Number of keys. Few, so that most jobs share one.
pub(super) const KEYS: u64 = 5;

/// Kind of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JobKind {
    /// Handler in the service; a failed subtask lets its keys continue.
    Local,
    /// Handler in the service; a failed subtask stops its keys.
    Stop,
    /// Remote workers.
    Lease,
}

/// Duration of a lease without a heartbeat, in milliseconds.
pub(super) const LEASE: u64 = 10_000;

impl JobKind {
    pub(super) fn name(self) -> &'static str {
        match self {
            JobKind::Local => "local",
            JobKind::Stop => "stop",
            JobKind::Lease => "lease",
        }
    }

    pub(super) fn attempts(self) -> u32 {
        match self {
            JobKind::Local | JobKind::Lease => 3,
            JobKind::Stop => 2,
        }
    }

    /// Wait before the next attempt, in milliseconds.
    pub(super) fn backoff(self) -> u64 {
        match self {
            JobKind::Local => 2_000,
            JobKind::Stop => 1_000,
            JobKind::Lease => 3_000,
        }
    }
}

/// Job: its kind, and the keys of each subtask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JobSpec {
    pub(super) kind: JobKind,
    pub(super) subtasks: Vec<Vec<u8>>,
}

impl JobSpec {
    pub(super) fn draw(random: &mut Random) -> Self {
        let kind = match random.within(0..100) {
            0..45 => JobKind::Local,
            45..65 => JobKind::Stop,
            _ => JobKind::Lease,
        };
        let keys = |random: &mut Random| {
            let count = [0, 1, 1, 1, 1, 1, 2, 2, 3][random.within(0..9) as usize];
            let mut keys: Vec<u8> = (0..count).map(|_| random.within(0..KEYS) as u8).collect();
            keys.sort_unstable();
            keys.dedup();
            keys
        };
        let count = random.within(1..5);
        JobSpec { kind, subtasks: (0..count).map(|_| keys(random)).collect() }
    }

    /// Returns the body of its submission.
    pub(super) fn body(&self, job: usize) -> Value {
        let named = |keys: &[u8]| keys.iter().map(|key| format!("k{key}")).collect::<Vec<_>>();
        let subtask = |(number, keys): (usize, &Vec<u8>)| match keys.is_empty() {
            true => json!({"payload": {"job": job, "number": number}}),
            false => json!({"payload": {"job": job, "number": number}, "keys": named(keys)}),
        };
        let subtasks: Vec<Value> = self.subtasks.iter().enumerate().map(subtask).collect();
        json!({"kind": self.kind.name(), "subtasks": subtasks})
    }
}

/// End of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunEnd {
    Succeeded,
    /// Failed; the next attempt may follow after the kind's backoff, or after `after` milliseconds.
    Failed {
        after: Option<u64>,
    },
    /// Failed, and a retry does not help.
    FailedForGood,
    /// The handler was dropped, or gave up when the attempt was cancelled.
    GaveUp,
}

/// Behaviour of an attempt.
#[derive(Clone, Copy, Debug)]
pub(super) struct Behaviour {
    pub(super) lasts: Duration,
    pub(super) end: RunEnd,
    /// Whether the handler ends when its attempt is cancelled.
    pub(super) heeds_cancel: bool,
    /// Whether a remote worker sends no heartbeats, and reports late.
    pub(super) is_silent: bool,
    /// Whether a remote worker never reports.
    pub(super) vanishes: bool,
}

impl Behaviour {
    pub(super) fn draw(random: &mut Random, is_healed: bool) -> Self {
        let lasts = match random.within(0..10) {
            0..3 => random.within(0..5),
            3..8 => random.within(5..1_500),
            8 => random.within(1_500..8_000),
            _ => random.within(8_000..15_000),
        };
        let end = match random.within(0..100) {
            0..70 => RunEnd::Succeeded,
            70..84 => RunEnd::Failed { after: None },
            84..90 => RunEnd::Failed { after: Some(random.within(500..8_000)) },
            90..95 => RunEnd::Failed { after: Some(random.within(8_000..60_000)) },
            _ => RunEnd::FailedForGood,
        };
        let behaviour = Behaviour {
            lasts: Duration::from_millis(lasts),
            end,
            heeds_cancel: random.chance(50),
            is_silent: random.chance(10),
            vanishes: random.chance(10),
        };
        match is_healed {
            true => {
                Behaviour { end: RunEnd::Succeeded, is_silent: false, vanishes: false, ..behaviour }
            }
            false => behaviour,
        }
    }
}
