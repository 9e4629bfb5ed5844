//! Control of kinds by operators: pause, resume, change and reset.
//!
//! A change is in force at once for everything that starts from then on; what runs goes on. It is
//! written in the order of all changes, answered after that, and stays in force over restarts and
//! reloads of the configuration until it is reset.

use super::audit::AuditedRequest;
use super::control::Control;
use super::scheduler_job::set_kind;
use crate::job_definition::MAX_MS;
use crate::kind::Kind;
use crate::kind_override::{KindOverride, KindPause};
use crate::kind_registry::KindEntry;
use crate::request_error::RequestError;
use crate::wire::{KindPatch, KindSetting, KindView, Timestamp};

/// Maximum length of the reason of a pause, in bytes.
pub(crate) const MAX_PAUSE_REASON: usize = 1024;

/// Maximum rate, in starts per second.
pub(crate) const MAX_RATE: f64 = 1e9;

/// Command on a kind.
#[derive(Debug)]
pub(crate) enum KindCommand {
    /// Nothing of the kind starts.
    Pause {
        /// Reason, for operators and clients.
        reason: Option<String>,
    },
    Resume,
    Patch(KindPatch),
    Reset(Vec<KindSetting>),
}

impl Control {
    /// Applies a command to a kind.
    pub(crate) async fn steer_kind(
        &self,
        name: &str,
        command: KindCommand,
        act: &AuditedRequest,
    ) -> Result<KindView, RequestError> {
        check(&command)?;
        {
            let mut engine = self.persistence.writable_engine()?;
            let now = self.clock.now();
            let unknown = || RequestError::Unknown { what: format!("kind `{name}`") };
            let number = self.kinds.number(name).ok_or_else(unknown)?;
            let KindEntry { configured, changed: before, .. } = self.kinds.entry(number);
            let mut changed = (*before).clone();
            if let KindCommand::Patch(patch) = &command {
                check_effect(patch, &changed, &configured)?;
            }
            apply(&mut changed, command, now);
            if changed != *before {
                let body = serde_json::to_vec(&changed).expect("changes can be written as JSON");
                let body = (!changed.is_empty()).then_some(body);
                engine.unwritten.changes.setting(&KindOverride::record_name(name), body);
                if before.paused.is_some() && changed.paused.is_none() {
                    engine.released_ms = self.clock.steady_ms();
                }
                let entry = self.kinds.change(name, changed);
                set_kind(&entry, &mut engine, now);
                self.log_in(&mut engine, act);
                self.persistence.write_next(&mut engine);
            }
        }
        self.wake.notify();
        self.persistence.all_written().await?;
        self.query.kind_view(name)
    }
}

fn apply(changed: &mut KindOverride, command: KindCommand, now: Timestamp) {
    match command {
        // A second pause gives another reason, and keeps the time.
        KindCommand::Pause { reason } => {
            let since = changed.paused.take().map_or(now, |pause| pause.since);
            changed.paused = Some(KindPause { since, reason });
        }
        KindCommand::Resume => changed.paused = None,
        KindCommand::Patch(patch) => changed.patch(&patch),
        KindCommand::Reset(settings) => {
            settings.into_iter().for_each(|setting| changed.reset(setting));
        }
    }
}

/// Refuses limits that would have no effect on this kind, as the configuration does.
fn check_effect(
    patch: &KindPatch,
    changed: &KindOverride,
    configured: &Kind,
) -> Result<(), RequestError> {
    let conflict = |text: String| Err(RequestError::Conflict(text));
    let mut patched = changed.clone();
    patched.patch(patch);
    let kind = patched.applied(configured);
    if patch.burst.is_some() && kind.rate.is_none() {
        return conflict("`burst` has no effect without a rate: set `per_second` too, on the command line `--rate`".into());
    }
    if patch.burst_per_key.is_some() && kind.rate_per_key.is_none() {
        let text = "`burst_per_key` has no effect without a rate: set `per_second_per_key` too, on the command line `--rate-per-key`";
        return conflict(text.into());
    }
    let wanted = patch.concurrency.and_then(|most| usize::try_from(most).ok());
    match (wanted, KindOverride::workers(configured)) {
        (Some(wanted), Some(workers)) if wanted > workers => conflict(format!(
            "the configured workers run {workers} subtasks of the kind: configure more `workers`, and reload"
        )),
        _ => Ok(()),
    }
}

/// Refuses values that the configuration would not take.
fn check(command: &KindCommand) -> Result<(), RequestError> {
    let mut wrong = Vec::new();
    let mut need = |holds: bool, field: &str, why: &str| {
        if !holds {
            wrong.push((format!("/{field}"), why.to_owned()));
        }
    };
    match command {
        KindCommand::Pause { reason } => {
            let length = reason.as_ref().map_or(0, String::len);
            need(length <= MAX_PAUSE_REASON, "reason", "a reason has 1024 bytes at most");
        }
        KindCommand::Patch(patch) => {
            let positive = "1 is the least; to start nothing, pause the kind";
            need(patch.concurrency != Some(0), "concurrency", positive);
            for (field, burst) in [("burst", patch.burst), ("burst_per_key", patch.burst_per_key)] {
                need(burst != Some(0), field, "1 is the least");
            }
            need(patch.attempts != Some(0), "attempts", "1 is the least");
            let timeouts = 1..=MAX_MS;
            let is_timeout = patch.timeout_ms.is_none_or(|timeout| timeouts.contains(&timeout));
            need(is_timeout, "timeout_ms", "from 1 to a hundred years");
            let rates = [
                ("per_second", patch.per_second),
                ("per_second_per_key", patch.per_second_per_key),
            ];
            for (field, rate) in rates {
                let is_rate = rate.is_none_or(|rate| rate > 0.0 && rate <= MAX_RATE);
                let why = "more than 0, and 10^9 at most; to start nothing, pause the kind";
                need(is_rate, field, why);
            }
        }
        KindCommand::Resume | KindCommand::Reset(_) => {}
    }
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(RequestError::Invalid(wrong)),
    }
}
