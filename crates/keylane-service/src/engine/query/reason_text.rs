//! Reasons of the scheduler as sentences for clients, with the remedy where an operator can act.

use super::text::text_of;
use crate::engine::engine_state::EngineState;
use crate::kind::KindExecutor;
use crate::kind_registry::KindRegistry;
use crate::scheduler::{JobStep, KindId, LaneHead, Step, UnfinishedState, WaitReason};
use crate::tenant::Tenant;
use crate::wire::{AfterCondition, Because, Timestamp};
use crate::{JobNumber, SubtaskNumber};

/// Returns a reason of the scheduler with a sentence that names the cause and, where an operator can act, the remedy.
/// `job` is the job that the reason keeps.
pub(in crate::engine) fn because_of(
    kinds: &KindRegistry,
    engine: &EngineState,
    job: JobNumber,
    reason: &WaitReason,
    now: Timestamp,
) -> Because {
    let words = SentenceContext { kinds, engine, now };
    let text = words.text(job, reason);
    let plain = |code: &str| plain(code, text.clone());
    match reason {
        WaitReason::KeyOrder { .. }
        | WaitReason::KeyLimit { .. }
        | WaitReason::KeyRate { .. }
        | WaitReason::KeyPaused { .. }
        | WaitReason::KeyStopped { .. } => words.because_of_key(reason, text),
        WaitReason::Barrier { ahead, behind, head, .. } => Because {
            position: Some(u64::from(*ahead) + 1),
            job: words.job(behind.job),
            number: number_of(behind.step),
            since: Some(Timestamp(head.since)),
            ..plain("barrier")
        },
        WaitReason::Keys => plain("key_order"),
        // These subtasks start as soon as possible, so the reason that stops all starts is their
        // reason.
        WaitReason::Starting
        | WaitReason::NoSlot { .. }
        | WaitReason::Priority { .. }
        | WaitReason::NotAdmitted { .. }
            if engine.refused.is_some() =>
        {
            self::plain("disk_full", DISK_FULL.into())
        }
        WaitReason::Starting => plain("starting"),
        WaitReason::NoSlot { .. } => plain("no_slot"),
        WaitReason::Priority { .. } => plain("priority"),
        WaitReason::NotAdmitted { ahead, .. } => {
            Because { position: ahead.map(|ahead| ahead as u64 + 1), ..plain("not_admitted") }
        }
        WaitReason::KindBound { kind, .. } if kinds.entry(kind.0).is_paused() => Because {
            since: kinds.entry(kind.0).changed.paused.as_ref().map(|pause| pause.since),
            ..plain("kind_paused")
        },
        WaitReason::KindBound { kind, running } if words.lacks_workers(*kind, *running) => {
            plain("no_worker")
        }
        WaitReason::KindBound { .. } => plain("kind_at_limit"),
        WaitReason::KindRate { until } => {
            Because { until: until.map(Timestamp), ..plain("kind_rate_limited") }
        }
        WaitReason::TenantBound { .. } => plain("tenant_at_limit"),
        WaitReason::TenantRate { until } => {
            Because { until: until.map(Timestamp), ..plain("tenant_rate_limited") }
        }
        WaitReason::BackingOff { until } => {
            Because { until: Some(Timestamp(*until)), ..plain("backing_off") }
        }
        WaitReason::Stopped => plain("key_stopped"),
        WaitReason::JobPaused => engine.holds.because(job).unwrap_or_else(|| plain("job_paused")),
        WaitReason::Scheduled { .. } if engine.awaited_by(job).next().is_some() => {
            let first = engine.awaited_by(job).next();
            Because { job: first.map(|id| id.to_string()), ..plain("after_job") }
        }
        WaitReason::Scheduled { until: 0 } => plain("starting"),
        WaitReason::Scheduled { until } => {
            Because { until: Some(Timestamp(*until)), ..plain("scheduled") }
        }
        WaitReason::Entering { .. } => plain("entering"),
        WaitReason::Split => plain("split"),
        WaitReason::Others { .. } => plain("fan_in"),
        WaitReason::Draining => plain("draining"),
    }
}

/// Returns true if the reason lasts until an operator acts, a worker appears or the disk has free space:
/// until then there is no estimate of the remaining time.
pub(super) fn is_open_ended(because: &Because) -> bool {
    matches!(
        &*because.reason,
        "key_paused"
            | "kind_paused"
            | "key_stopped"
            | "job_paused"
            | "no_worker"
            | "disk_full"
            | "draining"
            | "no_kind"
            | "damaged"
            | "behind_damaged"
    )
}

/// Returns true if the head of a key, and every subtask behind it, waits for such a reason.
pub(super) fn is_held_open_ended(
    kinds: &KindRegistry,
    engine: &EngineState,
    reason: &WaitReason,
    now: Timestamp,
) -> bool {
    let (WaitReason::KeyOrder { head, .. }
    | WaitReason::KeyLimit { head, .. }
    | WaitReason::Barrier { head, .. }) = reason
    else {
        return false;
    };
    let root = engine.scheduler.root_of(head);
    root.is_some_and(|(job, root)| is_open_ended(&because_of(kinds, engine, job, &root, now)))
}

const DISK_FULL: &str =
    "the server's disk is full, and nothing starts whose end could not be written; free disk space";

fn plain(code: &str, text: String) -> Because {
    Because {
        reason: code.to_owned(),
        text,
        count: None,
        key: None,
        position: None,
        job: None,
        number: None,
        since: None,
        until: None,
    }
}

fn number_of(step: Step) -> Option<SubtaskNumber> {
    match step {
        Step::Subtask(number) => Some(number),
        Step::Split | Step::FanIn => None,
    }
}

/// Context of a sentence.
struct SentenceContext<'a> {
    kinds: &'a KindRegistry,
    engine: &'a EngineState,
    now: Timestamp,
}

impl SentenceContext<'_> {
    fn job(&self, job: JobNumber) -> Option<String> {
        self.engine.live.get(&job).map(|live| live.id.to_string())
    }

    /// Name of the job's tenant.
    fn tenant(&self, job: JobNumber) -> &str {
        let tenant = self.engine.live.get(&job).and_then(|live| live.head.tenant.as_deref());
        tenant.unwrap_or(Tenant::DEFAULT_NAME)
    }

    fn step(&self, of: JobStep) -> String {
        format!("{} of {}", of.step, self.job(of.job).unwrap_or_default())
    }

    /// Returns true if remote workers are the only bound of a kind, and none of them has an open
    /// claim.
    fn lacks_workers(&self, kind: KindId, running: u32) -> bool {
        let kind_of = self.kinds.get(kind.0);
        let is_below = |most: usize| (running as usize) < most;
        matches!(kind_of.work, KindExecutor::Lease { .. })
            && kind_of.concurrency.is_none_or(is_below)
    }

    fn text(&self, job: JobNumber, reason: &WaitReason) -> String {
        match reason {
            WaitReason::KeyOrder { .. }
            | WaitReason::KeyLimit { .. }
            | WaitReason::KeyRate { .. }
            | WaitReason::KeyPaused { .. }
            | WaitReason::KeyStopped { .. } => self.text_of_key(job, reason),
            WaitReason::Barrier { is_barrier: true, ahead, head, .. } => format!(
                "it is a barrier, and waits for {} earlier subtasks of its job; the first is {}, which {}",
                counted(*ahead),
                self.step(head.of),
                self.state(head)
            ),
            WaitReason::Barrier { behind, .. } => {
                format!("it waits for the barrier {}", self.step(*behind))
            }
            WaitReason::Keys => "earlier subtasks have their keys".into(),
            WaitReason::Starting => "a slot is free, and it starts now".into(),
            WaitReason::NoSlot { running, slots, ahead } => {
                let ahead = match ahead {
                    None | Some(0) => String::new(),
                    Some(1) => "; 1 job needs less and comes first".into(),
                    Some(ahead) => format!("; {ahead} jobs need less and come first"),
                };
                format!("all slots are taken: the job has {running} of {slots}{ahead}")
            }
            WaitReason::Priority { ahead } => {
                let (jobs, come) = match ahead {
                    Some(1) => ("1 job".into(), "comes"),
                    Some(ahead) => (format!("{ahead} jobs"), "come"),
                    None => ("jobs".into(), "come"),
                };
                format!("all slots are taken, and {jobs} of its tenant with a higher priority {come} first")
            }
            WaitReason::NotAdmitted { active, ahead } => self.not_admitted(*active, *ahead),
            WaitReason::KindBound { kind, running } => self.kind_bound(*kind, *running),
            WaitReason::KindRate { until } => {
                let next = until.map(|at| format!("; the next starts in {}", self.until(at)));
                let next = next.unwrap_or_default();
                format!("its kind has started as many subtasks as its `rate` allows{next}")
            }
            WaitReason::TenantBound { running } => format!(
                "its tenant `{}` has as many slots as its `max_workers` allows, which is {running}; raise it, or wait until one is free",
                self.tenant(job)
            ),
            WaitReason::TenantRate { until } => {
                let next = until.map(|at| format!("; the next starts in {}", self.until(at)));
                let next = next.unwrap_or_default();
                let tenant = self.tenant(job);
                format!("its tenant `{tenant}` has started as many subtasks as its `rate` allows{next}")
            }
            WaitReason::BackingOff { until } => {
                format!("its last attempt failed, and the next starts in {}", self.until(*until))
            }
            WaitReason::Stopped => {
                "it failed for the last time, and its key is stopped; retry or skip the key's head"
                    .into()
            }
            WaitReason::JobPaused => {
                let held = self.engine.holds.because(job).map(|held| held.text);
                held.unwrap_or_else(|| "the job is paused; resume it".into())
            }
            WaitReason::Scheduled { .. } if self.engine.awaited_by(job).next().is_some() => {
                self.after_jobs(job)
            }
            WaitReason::Scheduled { until: 0 } => {
                "the jobs that it waited for have ended, and it starts now".into()
            }
            WaitReason::Scheduled { until } => format!("it starts at {}", Timestamp(*until)),
            WaitReason::Entering { ahead: 0 } => {
                "its job is large and enters the order in slices; it begins when its slice has entered"
                    .into()
            }
            WaitReason::Entering { ahead } => format!(
                "{ahead} subtasks of jobs that were accepted before have yet to enter the order; it enters behind them"
            ),
            WaitReason::Split => "the split step has not made all subtasks yet".into(),
            WaitReason::Others { left: 1 } => "1 subtask has to end before the fan-in step".into(),
            WaitReason::Others { left } => {
                format!("{left} subtasks have to end before the fan-in step")
            }
            WaitReason::Draining => "the server is about to stop, and starts nothing more".into(),
        }
    }

    /// Returns the sentence of a reason that a key has; empty for any other reason.
    fn text_of_key(&self, job: JobNumber, reason: &WaitReason) -> String {
        match reason {
            WaitReason::KeyOrder { key, is_shared, ahead, head, .. } => format!(
                "its {}key `{}` is at {}, which {} ({} ahead){}",
                if *is_shared { "shared " } else { "" },
                text_of(key),
                self.step(head.of),
                self.state(head),
                counted(*ahead),
                self.after_priority(job, head.of.job)
            ),
            WaitReason::KeyLimit { key, limit, ahead, .. } => format!(
                "its key `{}` has as many subtasks at a time as `max_per_key` allows, which is {limit} ({} ahead)",
                text_of(key),
                counted(*ahead)
            ),
            WaitReason::KeyRate { key, until } => {
                let next = until.map(|at| format!("; the next starts in {}", self.until(at)));
                let key = text_of(key);
                format!(
                    "its key `{key}` has started as often as `rate_per_key` allows{}",
                    next.unwrap_or_default()
                )
            }
            WaitReason::KeyPaused { key } => {
                let damaged = self.engine.holds.because_of_key(key);
                damaged.unwrap_or_else(|| {
                    format!("its key `{}` is paused; resume the key", text_of(key))
                })
            }
            WaitReason::KeyStopped { key, head } => format!(
                "its key `{}` is stopped, because {} failed for the last time{}; retry or skip the key's head",
                text_of(key),
                self.step(head.of),
                self.failure(head.of)
            ),
            _ => String::new(),
        }
    }

    /// Says that the order of a key comes before priority, if that matters for `job`.
    fn after_priority(&self, job: JobNumber, first: JobNumber) -> &'static str {
        let priority = |job| self.engine.live.get(&job).map(|live| live.head.priority);
        match priority(job) < priority(first) {
            true => "; the order of a key comes before the priorities of jobs",
            false => "",
        }
    }

    /// Returns a reason that a key has.
    fn because_of_key(&self, reason: &WaitReason, text: String) -> Because {
        match reason {
            WaitReason::KeyOrder { key, ahead, behind, head, .. } => Because {
                key: Some(text_of(key)),
                position: Some(u64::from(*ahead) + 1),
                job: self.job(behind.job),
                number: number_of(behind.step),
                since: Some(Timestamp(head.since)),
                ..plain("key_order", text)
            },
            WaitReason::KeyLimit { key, ahead, head, .. } => Because {
                key: Some(text_of(key)),
                position: Some(u64::from(*ahead) + 1),
                job: self.job(head.of.job),
                number: number_of(head.of.step),
                since: Some(Timestamp(head.since)),
                ..plain("key_limit", text)
            },
            WaitReason::KeyRate { key, until } => Because {
                key: Some(text_of(key)),
                until: until.map(Timestamp),
                ..plain("key_rate_limited", text)
            },
            WaitReason::KeyPaused { key } => Because {
                key: Some(text_of(key)),
                since: self.engine.paused_keys.get(key).copied(),
                ..plain(
                    match self.engine.holds.because_of_key(key) {
                        Some(_) => "key_stopped",
                        None => "key_paused",
                    },
                    text,
                )
            },
            WaitReason::KeyStopped { key, head } => Because {
                key: Some(text_of(key)),
                job: self.job(head.of.job),
                number: number_of(head.of.step),
                since: Some(Timestamp(head.since)),
                ..plain("key_stopped", text)
            },
            _ => plain("key_order", text),
        }
    }

    /// Describes the jobs for which a job waits.
    fn after_jobs(&self, job: JobNumber) -> String {
        let waits = self.engine.live.get(&job);
        let must = match waits.map(|live| live.head.after_on) {
            Some(AfterCondition::End) => "ended",
            _ => "succeeded",
        };
        let mut awaited = self.engine.awaited_by(job);
        let first = awaited.next().map(|id| {
            let state = self.engine.live.get(&id.number()).map(|live| live.state().as_str());
            format!("{id} ({})", state.unwrap_or("damaged; remove it to let this one go on"))
        });
        let (more, have) = match awaited.count() {
            0 => (String::new(), "has"),
            more => (format!(" and {more} more of `after`"), "have"),
        };
        format!("it starts when {}{more} {have} {must}", first.unwrap_or_default())
    }

    fn not_admitted(&self, active: usize, ahead: Option<usize>) -> String {
        let slots = self.engine.scheduler.slots();
        let why = match slots.busy >= slots.total {
            true => format!("all {} slots are taken", slots.total),
            false if active == 1 => "1 job is active, which is the maximum".into(),
            false => format!("{active} jobs are active, which is the maximum"),
        };
        match ahead {
            None => format!("{why}, and other jobs are before it"),
            Some(0) => format!("{why}, and it is the first job that waits"),
            Some(1) => format!("{why}, and 1 job that waits is before it"),
            Some(ahead) => format!("{why}, and {ahead} jobs that wait are before it"),
        }
    }

    fn kind_bound(&self, kind: KindId, running: u32) -> String {
        let name = self.kinds.name(kind.0);
        if let Some(pause) = &self.kinds.entry(kind.0).changed.paused {
            let why = pause.reason.as_ref().map_or(String::new(), |reason| format!(" ({reason})"));
            return format!("its kind `{name}` is paused{why}; resume the kind");
        }
        match (self.lacks_workers(kind, running), running) {
            (true, 0) => {
                format!("no remote worker asks for leases of its kind `{name}`; start one")
            }
            (true, _) => format!(
                "no more remote workers ask for leases of its kind `{name}`, and those that do have {running}"
            ),
            (false, 1) => {
                format!("1 subtask of its kind `{name}` runs, which is its `concurrency`")
            }
            (false, _) => {
                format!("{running} subtasks of its kind `{name}` run, which is its `concurrency`")
            }
        }
    }

    /// Describes the head of a key: its progress, or the reason why it waits.
    fn state(&self, head: &LaneHead) -> String {
        match head.state {
            UnfinishedState::Scheduled { at } => format!("starts at {}", Timestamp(at)),
            UnfinishedState::Running { since, .. } => {
                format!("has run for {}", duration(self.now.0.saturating_sub(since)))
            }
            UnfinishedState::BackingOff { until } => {
                let failure = self.failure(head.of);
                format!("has failed{failure} and is tried again in {}", self.until(until))
            }
            UnfinishedState::Stopped => {
                format!("failed for the last time{}", self.failure(head.of))
            }
            UnfinishedState::Waiting | UnfinishedState::Ready => {
                match self.engine.scheduler.root_of(head) {
                    Some((job, root)) => format!("waits: {}", self.text(job, &root)),
                    None => "waits".into(),
                }
            }
        }
    }

    /// Returns the failure of the last attempt at a subtask, if it is known.
    fn failure(&self, of: JobStep) -> String {
        let live = self.engine.live.get(&of.job);
        let error = live.and_then(|live| live.failures.get(of.step));
        error.map(|error| format!(" ({error})")).unwrap_or_default()
    }

    fn until(&self, at: u64) -> String {
        duration(at.saturating_sub(self.now.0))
    }
}

fn counted(ahead: u32) -> String {
    match ahead < WaitReason::COUNTED {
        true => ahead.to_string(),
        false => format!("{ahead} or more"),
    }
}

/// Formats a duration in the largest unit of which there are at least two.
fn duration(ms: u64) -> String {
    match ms {
        0..2_000 => format!("{ms} ms"),
        2_000..120_000 => format!("{} s", ms / 1000),
        120_000..7_200_000 => format!("{} min", ms / 60_000),
        7_200_000..172_800_000 => format!("{} h", ms / 3_600_000),
        _ => format!("{} days", ms / 86_400_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_fitting_unit() {
        let all = [0, 1_999, 2_000, 119_999, 120_000, 7_200_000, 172_800_000];
        let words = all.map(duration);
        assert_eq!(words, ["0 ms", "1999 ms", "2 s", "119 s", "2 min", "2 h", "2 days"]);
    }
}
