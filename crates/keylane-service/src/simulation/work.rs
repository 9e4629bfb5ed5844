//! Jobs of a simulation, and the behaviour of their attempts.

use std::time::Duration;

use serde_json::{Value, json};

use keylane_testkit::Random;

/// Number of keys. Few, so that most jobs share one.
pub(super) const KEYS: u64 = 5;

/// Number of slots of the service.
pub(super) const SLOTS: usize = 3;

/// Duration of a lease without a heartbeat, in milliseconds.
pub(super) const LEASE: u64 = 10_000;

/// Address of a job's webhook, before the job's number.
pub(super) const RECEIVER: &str = "https://receiver.example/";

/// Numbers of the split and of the fan-in of a job, as in [`Run::number`](super::history::Run).
pub(super) const SPLIT: u32 = u32::MAX;
pub(super) const FAN_IN: u32 = u32::MAX - 1;

/// Limits of the kind [`JobKind::Rated`]: starts per second, starts at once, and running subtasks.
pub(super) const RATE: u64 = 2;
pub(super) const BURST: u64 = 2;
pub(super) const RATED_AT_ONCE: usize = 2;

/// Interval of the starts of a key in that kind, in milliseconds, one at once.
pub(super) const KEY_INTERVAL: u64 = 2_000;

/// Kind of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JobKind {
    /// Handler in the service; a failed subtask lets its keys continue.
    Local,
    /// Handler in the service; a failed subtask stops its keys.
    Stop,
    /// Remote workers.
    Lease,
    /// A split makes the subtasks, and a fan-in gets their results.
    Split,
    /// Limited starts per second, and a limited number at once.
    Rated,
}

impl JobKind {
    pub(super) const ALL: [JobKind; 5] =
        [JobKind::Local, JobKind::Stop, JobKind::Lease, JobKind::Split, JobKind::Rated];

    pub(super) fn name(self) -> &'static str {
        match self {
            JobKind::Local => "local",
            JobKind::Stop => "stop",
            JobKind::Lease => "lease",
            JobKind::Split => "split",
            JobKind::Rated => "rated",
        }
    }

    pub(super) fn attempts(self) -> u32 {
        match self {
            JobKind::Local | JobKind::Lease | JobKind::Split => 3,
            JobKind::Stop | JobKind::Rated => 2,
        }
    }

    /// Time for which its ended jobs are kept, where `keep` is the service's, in milliseconds.
    pub(super) fn keep(self, keep: u64) -> u64 {
        if self == JobKind::Rated { keep / 2 } else { keep }
    }

    /// Wait before the next attempt, in milliseconds.
    pub(super) fn backoff(self) -> u64 {
        match self {
            JobKind::Local | JobKind::Split => 2_000,
            JobKind::Stop | JobKind::Rated => 1_000,
            JobKind::Lease => 3_000,
        }
    }
}

/// Keys of a subtask.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SubtaskKeys {
    pub(super) all: Vec<u8>,
    /// Those that other subtasks may share.
    pub(super) shared: Vec<u8>,
    /// Whether the subtask is a barrier in its job.
    pub(super) is_barrier: bool,
    /// Whether it replaces the latest subtask of its only key, and may be replaced.
    pub(super) is_latest: bool,
    /// Number of subtasks that may have one of the keys that it does not share, as in its job.
    pub(super) limit: Option<u32>,
}

impl SubtaskKeys {
    fn draw(random: &mut Random) -> Self {
        let count = [0, 1, 1, 1, 1, 1, 2, 2, 3][random.within(0..9) as usize];
        let mut all: Vec<u8> = (0..count).map(|_| random.within(0..KEYS) as u8).collect();
        all.sort_unstable();
        all.dedup();
        let shared: Vec<u8> = all.iter().copied().filter(|_| random.chance(30)).collect();
        let roll = random.within(0..100);
        let is_latest = (10..40).contains(&roll) && all.len() == 1 && shared.is_empty();
        SubtaskKeys { all, shared, is_barrier: roll < 10, is_latest, limit: None }
    }

    /// Returns whether both have a key that not both share, and not both limit.
    pub(super) fn conflicts(&self, other: &SubtaskKeys) -> bool {
        let both_share = |key| self.shared.contains(key) && other.shared.contains(key);
        let limits = |keys: &SubtaskKeys, key| keys.limit.is_some() && !keys.shared.contains(key);
        let both_limit = |key| limits(self, key) && limits(other, key);
        let is_common = |key| other.all.contains(key) && !both_share(key) && !both_limit(key);
        self.all.iter().any(is_common)
    }

    /// Returns the body of a subtask with these keys.
    fn body(&self, payload: Value) -> Value {
        let named = |is_shared: bool| -> Vec<String> {
            let keys = self.all.iter().filter(|key| self.shared.contains(key) == is_shared);
            keys.map(|key| format!("k{key}")).collect()
        };
        let mut body = json!({"payload": payload});
        if self.is_barrier {
            body["barrier"] = json!(true);
        }
        if self.is_latest {
            body["latest"] = json!(true);
        }
        for (field, keys) in [("keys", named(false)), ("shared_keys", named(true))] {
            if !keys.is_empty() {
                body[field] = json!(keys);
            }
        }
        body
    }
}

/// Tenant of which at most [`SMALL_AT_ONCE`] subtasks run.
pub(super) const SMALL: &str = "small";

/// Maximum number of running subtasks of the tenant [`SMALL`].
pub(super) const SMALL_AT_ONCE: usize = 1;

/// Tenant with a larger share, a minimum, and a rate.
pub(super) const LARGE: &str = "large";

/// Job: its kind, and the keys of each subtask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JobSpec {
    pub(super) kind: JobKind,
    pub(super) subtasks: Vec<SubtaskKeys>,
    pub(super) weight: u32,
    pub(super) max_per_key: Option<u32>,
    pub(super) tenant: Option<&'static str>,
    /// Delay before its start, in milliseconds.
    pub(super) delay: Option<u64>,
    /// Time after its acceptance from which nothing of it starts, in milliseconds.
    pub(super) expires: Option<u64>,
    /// Number of the batch in which it is submitted.
    pub(super) batch: Option<usize>,
    /// Job that must end before.
    pub(super) after: Option<AfterJob>,
}

/// Job that must end before another one begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AfterJob {
    /// Number of the job in the simulation.
    pub(super) job: usize,
    pub(super) id: String,
    /// Whether it must succeed.
    pub(super) must_succeed: bool,
}

impl JobSpec {
    pub(super) fn draw(random: &mut Random) -> Self {
        let kind = match random.within(0..100) {
            0..35 => JobKind::Local,
            35..50 => JobKind::Stop,
            50..75 => JobKind::Lease,
            75..90 => JobKind::Split,
            _ => JobKind::Rated,
        };
        let count = random.within(1..5);
        let mut subtasks: Vec<_> = (0..count).map(|_| SubtaskKeys::draw(random)).collect();
        let weight = random.within(1..5) as u32;
        let max_per_key = (weight == 4).then_some(2 + count as u32 % 2);
        subtasks.iter_mut().for_each(|keys| keys.limit = max_per_key);
        let delay = random.chance(15).then(|| random.within(0..40_000));
        // Without a random number, so that the kept histories have their meaning.
        let tenant = [None, Some(SMALL), Some(LARGE), Some("unknown")];
        let tenant = tenant[(weight as usize + subtasks.len()) % 4];
        // Some expire before they may start, most while they wait or run.
        let sum: u64 = subtasks.iter().flat_map(|it| &it.all).map(|key| u64::from(*key) + 1).sum();
        let expires = (weight == 3 && count.is_multiple_of(2))
            .then(|| delay.unwrap_or(0) / 2 + 400 * (sum + 1));
        JobSpec {
            kind,
            subtasks,
            weight,
            max_per_key,
            tenant,
            delay,
            expires,
            batch: None,
            after: None,
        }
    }

    /// Lets some jobs wait for one of those accepted before. Without a random number, so that the kept histories have their
    /// meaning.
    pub(super) fn after_one_of(self, accepted: &[(usize, String)]) -> Self {
        let is_chosen = self.weight == 2 && !self.subtasks.len().is_multiple_of(2);
        let lags = [0, 1, 3];
        let lag = lags[self.subtasks[0].all.len() % lags.len()];
        let chosen = accepted.iter().rev().nth(lag).filter(|_| is_chosen);
        let after = chosen.map(|(job, id)| AfterJob {
            job: *job,
            id: id.clone(),
            must_succeed: self.subtasks.len() == 1,
        });
        JobSpec { after, ..self }
    }

    /// Returns whether the job has a split and a fan-in.
    pub(super) fn has_steps(&self) -> bool {
        self.kind == JobKind::Split
    }

    /// Returns whether its end is sent to the receiver. Without a random number, so that the kept histories have their meaning.
    pub(super) fn has_webhook(&self) -> bool {
        self.weight != 2
    }

    /// Returns the place of a subtask, of the split or of the fan-in among all of them.
    pub(super) fn place(&self, number: u32) -> usize {
        match number {
            SPLIT => self.subtasks.len(),
            FAN_IN => self.subtasks.len() + 1,
            number => number as usize,
        }
    }

    /// Returns its subtasks in the form in which they are submitted.
    pub(super) fn subtasks_body(&self, job: usize) -> Value {
        let subtask = |(number, keys): (usize, &SubtaskKeys)| {
            keys.body(json!({"job": job, "number": number}))
        };
        self.subtasks.iter().enumerate().map(subtask).collect()
    }

    /// Returns the body of its submission.
    pub(super) fn body(&self, job: usize) -> Value {
        let mut body = json!({"kind": self.kind.name(), "weight": self.weight});
        match self.has_steps() {
            true => body["payload"] = json!({"job": job}),
            false => body["subtasks"] = self.subtasks_body(job),
        }
        if let Some(max) = self.max_per_key {
            body["max_per_key"] = json!(max);
        }
        if let Some(tenant) = self.tenant {
            body["tenant"] = json!(tenant);
        }
        match self.weight {
            1 => body["priority"] = json!("high"),
            3 => body["priority"] = json!("low"),
            _ => {}
        }
        if let Some(delay) = self.delay {
            body["delay_ms"] = json!(delay);
        }
        if let Some(expires) = self.expires {
            body["expires_ms"] = json!(expires);
        }
        if self.has_webhook() {
            body["webhook"] = json!(format!("{RECEIVER}{job}"));
        }
        if let Some(after) = &self.after {
            body["after"] = json!([after.id]);
            body["after_on"] = json!(if after.must_succeed { "success" } else { "end" });
        }
        body
    }
}

/// Returns the result of a subtask.
pub(super) fn result_of(job: usize, number: u32) -> Value {
    json!([job, number])
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
    /// A remote worker returns the lease and has not begun: the attempt does not count.
    Released,
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
    /// `is_calm` is whether nothing fails.
    pub(super) fn draw(random: &mut Random, is_calm: bool) -> Self {
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
        match is_calm {
            true => {
                Behaviour { end: RunEnd::Succeeded, is_silent: false, vanishes: false, ..behaviour }
            }
            false => behaviour,
        }
    }
}
