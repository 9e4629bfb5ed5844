//! Removes expired data: finished jobs, idempotency keys, and entries of the audit log.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio_util::sync::CancellationToken;

use super::audit::AuditLog;
use super::clock::{Clock, millis};
use super::engine_state::SharedState;
use super::executor::Executor;
use super::job_end_times::{JobEndTimes, JobNumberBlock};
use super::persistence::Persistence;
use super::store_status::StoreStatus;
use super::timer::sleep;
use crate::JobNumber;
use crate::kind::{KeepJobs, Kind};
use crate::kind_registry::KindRegistry;
use crate::store::{Changes, EndedJob, JobFilter, ReadError, Store, WriteError};

/// Minimum pause between two complete scans.
const REST: Duration = Duration::from_secs(30);

/// Ratio of the pause to the duration of the scan: the first scan reads all jobs, and there may be
/// millions.
const REST_SHARE: u32 = 20;

/// Lead of the clock over the newest job, in milliseconds, from which the clock may be wrong.
const FAR_AHEAD: u64 = 24 * 3_600_000;

/// Number of jobs removed at a time.
const AT_ONCE: usize = 500;

/// Retention times of finished jobs, in milliseconds; unlimited if `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct RetentionTimes {
    /// Of kinds without one of their own, and of kinds that are no longer configured.
    others: Option<u64>,
    by_kind: HashMap<Arc<str>, Option<u64>>,
}

impl RetentionTimes {
    fn of(&self, kind: &str) -> Option<u64> {
        self.by_kind.get(kind).copied().unwrap_or(self.others)
    }

    /// Returns the shortest one; `None` if all are unlimited.
    fn least(&self) -> Option<u64> {
        self.by_kind.values().chain([&self.others]).flatten().min().copied()
    }
}

/// Progress of the scans.
#[derive(Debug)]
struct Scans {
    /// First job that was not read since the start, or since a change of the retention times.
    unread: Option<JobNumber>,
    times: RetentionTimes,
}

impl Default for Scans {
    fn default() -> Self {
        Scans { unread: Some(JobNumber(0)), times: RetentionTimes::default() }
    }
}

/// Time before which jobs have expired, and the retention times.
#[derive(Clone, Copy, Debug)]
struct Expiry<'a> {
    now: u64,
    /// Shortest retention time.
    least: u64,
    times: &'a RetentionTimes,
}

impl Expiry<'_> {
    /// End time before which a job with the shortest retention time has expired.
    fn before(self) -> u64 {
        self.now.saturating_sub(self.least)
    }

    /// Returns the end time that the job would have if it had the shortest retention time and expired when it does;
    /// `None` if it never expires.
    fn as_if_ended(self, kind: &str, ended: u64) -> Option<u64> {
        Some(ended.saturating_add(self.times.of(kind)? - self.least))
    }
}

/// Reason why expired data was not removed.
#[derive(Debug, thiserror::Error)]
enum RemovalStopped {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Removal of expired data.
#[derive(Debug)]
pub(super) struct Retention {
    pub(super) state: Arc<SharedState>,
    pub(super) store: Store,
    pub(super) clock: Arc<Clock>,
    pub(super) executor: Executor,
    pub(super) status: Arc<StoreStatus>,
    pub(super) audit: Arc<AuditLog>,
    /// End times of finished jobs.
    pub(super) ends: Arc<JobEndTimes>,
    pub(super) kinds: Arc<KindRegistry>,
    pub(super) persistence: Arc<Persistence>,
    /// Retention time of finished jobs of kinds without one of their own; unlimited if `None`.
    pub(super) keep: Option<Duration>,
    /// Cancelled when the service has stopped.
    pub(super) stopped: CancellationToken,
}

impl Retention {
    /// Removes expired data until the service stops.
    pub(super) async fn run(self: Arc<Self>) {
        let mut scans = Scans::default();
        loop {
            let began = self.clock.steady();
            if let Err(error) = self.remove_old(&mut scans).await {
                tracing::warn!(%error, "expired data was not removed");
            }
            let took = self.clock.steady().saturating_sub(began);
            let rest = REST.max(took * REST_SHARE);
            tokio::select! {
                biased;
                () = self.stopped.cancelled() => return,
                () = sleep(rest) => {}
            }
        }
    }

    /// Checks for a clock that is far ahead of the newest job: it may be wrong, as on a machine
    /// that started without knowing the time. Data that is expired by such a clock stays until the
    /// clock has been consistent for an hour. Reads the store; called before the first request, so
    /// that no idempotency key has expired by then.
    pub(super) fn doubt_clock(&self) {
        let newest = self.store.jobs(&JobFilter::default(), None, 1);
        let newest = newest.ok().and_then(|page| page.jobs.first().map(|job| job.created_ms));
        if newest.is_some_and(|newest| newest.saturating_add(FAR_AHEAD) < self.clock.now().0) {
            self.clock.doubt();
        }
    }

    /// Removes webhooks that failed as long ago as finished jobs are kept.
    fn forget_failed_webhooks(&self, now: u64) {
        let Some(keep) = self.keep.map(millis) else { return };
        let mut engine = self.state.lock();
        let old = engine.deliveries.failed_before(now.saturating_sub(keep), AT_ONCE);
        for id in old {
            tracing::warn!(delivery = %id, "a failed webhook is removed for its age");
            engine.forget_delivery(id);
        }
        self.persistence.write_next(&mut engine);
    }

    /// Removes expired data.
    async fn remove_old(&self, scans: &mut Scans) -> Result<(), RemovalStopped> {
        if let Some(left) = self.clock.doubted_for() {
            tracing::debug!(?left, "the clock was set forward; nothing is removed for its age");
            return Ok(());
        }
        let now = self.clock.now().0;
        // A server without new requests since a full store has no other write that would show free
        // space.
        let mut is_wanted = self.status.is_out_of_room();
        loop {
            is_wanted |= self.read(move |store| store.has_expired(now)).await?;
            if !is_wanted || self.stopped.is_cancelled() {
                break;
            }
            let mut changes = Changes::new();
            changes.forget_idempotency(now);
            self.store.submit(changes).await?;
            self.status.found_room();
            is_wanted = false;
        }
        let kept = self.audit.kept();
        while !self.stopped.is_cancelled()
            && self.read(move |store| store.has_old_audit(kept)).await?
        {
            let mut changes = Changes::new();
            changes.forget_audit(kept);
            self.store.submit(changes).await?;
            self.status.found_room();
        }
        self.forget_failed_webhooks(now);
        let times = self.times();
        if times != scans.times {
            // The recorded times follow from the earlier settings.
            *scans = Scans { times, ..Scans::default() };
        }
        let Scans { unread, times } = scans;
        let Some(least) = times.least() else { return Ok(()) };
        let expiry = Expiry { now, least, times };
        if let Some(from) = *unread {
            self.learn_ends(expiry, from, unread).await?;
        }
        let mut awaited = Vec::new();
        let old = || self.ends.take_old(expiry.before()).filter(|_| !self.stopped.is_cancelled());
        while let Some(block) = old() {
            let earliest = self.remove_old_of(block, expiry).await?;
            awaited.extend(earliest.map(|ended| (block, ended)));
        }
        // The next scan looks at them again.
        awaited.into_iter().for_each(|(block, ended)| self.ends.note(block, ended));
        Ok(())
    }

    fn times(&self) -> RetentionTimes {
        let keep = |kind: &Kind| match kind.keep {
            KeepJobs::AsService => self.keep.map(millis),
            KeepJobs::For(time) => Some(millis(time)),
            KeepJobs::Forever => None,
        };
        let present = self.kinds.present().into_iter();
        RetentionTimes {
            others: self.keep.map(millis),
            by_kind: present.map(|entry| (entry.name, keep(&entry.kind))).collect(),
        }
    }

    /// Reads all jobs, for the first scan since the start.
    async fn learn_ends(
        &self,
        expiry: Expiry<'_>,
        from: JobNumber,
        unread: &mut Option<JobNumber>,
    ) -> Result<(), RemovalStopped> {
        let mut from = from;
        while !self.stopped.is_cancelled() {
            *unread = Some(from);
            let Some(next) = self.read(move |store| store.first_job_from(from)).await? else {
                *unread = None;
                break;
            };
            let block = JobNumberBlock::of(next);
            if let Some(ended) = self.remove_old_of(block, expiry).await? {
                self.ends.note(block, ended);
            }
            from = JobNumber(block.numbers().end);
        }
        Ok(())
    }

    /// Removes the expired jobs of a block, and records when the others ended. Returns the earliest end of an expired job
    /// that is kept because another one waits for it.
    async fn remove_old_of(
        &self,
        block: JobNumberBlock,
        expiry: Expiry<'_>,
    ) -> Result<Option<u64>, RemovalStopped> {
        let ends = self.read(move |store| store.ends(block.numbers())).await;
        let (old, kept): (Vec<_>, Vec<_>) = match ends {
            Ok(ends) => {
                let ends = ends.into_iter().filter_map(|EndedJob { number, kind, ended_ms }| {
                    Some((number, expiry.as_if_ended(&kind, ended_ms)?))
                });
                ends.partition(|(_, ended)| *ended < expiry.before())
            }
            Err(error) => {
                // The block is read again.
                self.ends.note(block, 0);
                return Err(error.into());
            }
        };
        if let Some(earliest) = kept.iter().map(|(_, ended)| *ended).min() {
            self.ends.note(block, earliest);
        }
        let mut awaited: Option<u64> = None;
        for some in old.chunks(AT_ONCE) {
            let (claimed, earliest) = self.claim(some);
            awaited = awaited.into_iter().chain(earliest).min();
            // One transaction each, because another request may have deleted or retried one of
            // them.
            let removed = claimed.iter().map(|job| self.store.submit(removal(*job)));
            let removed = join_all(removed).await;
            let mut engine = self.state.lock();
            claimed.iter().for_each(|job| engine.dependencies.end_removal(*job));
            drop(engine);
            for removed in removed {
                match removed {
                    Ok(_) => self.status.found_room(),
                    Err(WriteError::NoSuchJob { .. } | WriteError::NotEnded { .. }) => {}
                    Err(error) => {
                        self.ends.note(block, 0);
                        return Err(error.into());
                    }
                }
            }
        }
        Ok(awaited)
    }

    /// Claims the removal of jobs. Also returns the earliest end of those for which another job waits.
    fn claim(&self, jobs: &[(JobNumber, u64)]) -> (Vec<JobNumber>, Option<u64>) {
        let mut engine = self.state.lock();
        let (mut claimed, mut awaited) = (Vec::with_capacity(jobs.len()), None);
        for (job, ended) in jobs {
            match engine.dependencies.claim_removal(*job) {
                Ok(()) => claimed.push(*job),
                Err(_) => awaited = awaited.into_iter().chain([*ended]).min(),
            }
        }
        (claimed, awaited)
    }

    /// Runs a blocking read.
    async fn read<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Store) -> Result<T, ReadError> + Send + 'static,
    ) -> Result<T, ReadError> {
        let store = self.store.clone();
        self.executor.blocking_or_panic(move || look(&store)).await
    }
}

fn removal(job: JobNumber) -> Changes {
    let mut changes = Changes::new();
    changes.purge(job);
    changes
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use super::*;
    use crate::engine::ManualClock;
    use crate::engine::clock::SteadyClock;
    use crate::engine::idempotency::IdempotencyKeys;
    use crate::engine::wall_clock::WallClock;
    use crate::handle::{Attempt, FunctionHandler};
    use crate::{JobId, Kind, Service, ServiceSettings};

    const DAY: u64 = 24 * 3_600_000;

    /// Starts a service, and finishes a job in it that was submitted under the key `key` of the
    /// caller `caller`.
    async fn with_finished_job(folder: &Path, clock: &ManualClock) -> (Service, JobId) {
        let settings = ServiceSettings {
            keep: Some(Duration::from_secs(30)),
            clock: Some(clock.clone()),
            ..ServiceSettings::new(folder.join("store"))
        };
        let echo = FunctionHandler::new(|_: Attempt| async { Ok(None) });
        let service = Service::builder(settings).kind("echo", Kind::new(echo)).start();
        let service = service.await.unwrap();
        let job = serde_json::from_str(r#"{"kind":"echo","payload":1}"#).unwrap();
        let intake = service.core.submission.begin_intake(job, false).unwrap();
        let submitted = intake
            .submit(Some(("caller".into(), "key".into())), crate::engine::ExtraWrites::default())
            .await
            .unwrap()
            .outcome()
            .await
            .unwrap();
        service.wait(submitted.id).await.unwrap();
        (service, submitted.id)
    }

    /// Clock of which the test sets the wall time and the steady seconds.
    fn manual(wall: &ManualClock) -> (Arc<Clock>, Arc<AtomicU64>) {
        let seconds = Arc::new(AtomicU64::new(0));
        let steady = Arc::clone(&seconds);
        let steady = SteadyClock::new(move || Duration::from_secs(steady.load(Relaxed)));
        (Arc::new(Clock::start(WallClock::Manual(wall.clone()), steady)), seconds)
    }

    /// A jump of the clock by two days may be an error, so nothing is removed for an hour.
    #[tokio::test(flavor = "multi_thread")]
    async fn nothing_goes_for_an_hour_after_the_clock_was_set_far_forward() {
        let folder = tempfile::tempdir().unwrap();
        let wall = ManualClock::at(1_000_000_000_000);
        let (service, job) = with_finished_job(folder.path(), &wall).await;
        let core = &service.core;
        let (clock, seconds) = manual(&wall);
        let retention = Arc::into_inner(core.retention()).expect("it was just made");
        let retention = Retention { clock: Arc::clone(&clock), ..retention };
        let keep = Duration::from_secs(3600);
        let (store, executor) = (core.store.clone(), core.executor.clone());
        let keys = IdempotencyKeys::new(store, Arc::clone(&clock), executor, keep);
        let mut scans = Scans::default();

        wall.set(1_000_000_000_000 + 2 * DAY);
        clock.follow(clock.step().unwrap());
        for (passed, stays) in [(0, true), (3599, true), (3600, false)] {
            seconds.store(passed, Relaxed);
            // A repeated request finds its job, as long as the clock is doubted.
            let found = keys.find("caller", "key").unwrap().map(|(_, id)| id);
            assert_eq!(found, stays.then_some(job), "after {passed} s");
            retention.remove_old(&mut scans).await.unwrap();
            let left = core.store.job(job.number()).unwrap();
            assert_eq!(left.is_some(), stays, "after {passed} s");
            let left = core.store.idempotent("caller", "key").unwrap();
            assert_eq!(left.is_some(), stays, "after {passed} s");
        }
        service.stop(Duration::ZERO).await;
    }

    /// The clock of a machine that starts may be wrong, and no request comes before the check.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_clock_far_ahead_of_the_newest_job_is_doubted_from_the_start() {
        let folder = tempfile::tempdir().unwrap();
        let wall = ManualClock::at(1_000_000_000_000);
        let (service, job) = with_finished_job(folder.path(), &wall).await;
        service.stop(Duration::ZERO).await;
        wall.set(1_000_000_000_000 + 2 * DAY);
        let settings = ServiceSettings {
            clock: Some(wall.clone()),
            ..ServiceSettings::new(folder.path().join("store"))
        };
        let service = Service::builder(settings).start().await.unwrap();
        let core = &service.core;
        assert!(core.clock.doubted_for().is_some());
        let found = core.idempotency.find("caller", "key").unwrap();
        assert_eq!(found.map(|(_, id)| id), Some(job));
        service.stop(Duration::ZERO).await;
    }

    /// The first scan records when jobs ended, and later scans find those expired by then.
    #[tokio::test(flavor = "multi_thread")]
    async fn jobs_go_when_they_become_too_old_also_after_the_first_look() {
        let folder = tempfile::tempdir().unwrap();
        let clock = ManualClock::at(1_000_000_000_000);
        let settings = ServiceSettings {
            keep: Some(Duration::from_secs(30)),
            clock: Some(clock.clone()),
            ..ServiceSettings::new(folder.path().join("store"))
        };
        let echo = FunctionHandler::new(|_: Attempt| async { Ok(None) });
        let service = Service::builder(settings).kind("echo", Kind::new(echo)).start();
        let service = service.await.unwrap();
        let core = &service.core;
        let retention = core.retention();
        let mut scans = Scans::default();
        let first = service.submit(r#"{"kind":"echo","payload":1}"#).await.unwrap();
        service.wait(first).await.unwrap();
        retention.remove_old(&mut scans).await.unwrap();
        assert_eq!(scans.unread, None);
        clock.set(1_000_000_020_000);
        core.state.lock().follow_clock(&core.clock);
        let second = service.submit(r#"{"kind":"echo","payload":1}"#).await.unwrap();
        service.wait(second).await.unwrap();
        for (now, left) in [(40_000, 1), (60_000, 0)] {
            assert!(core.store.job(second.number()).unwrap().is_some());
            clock.set(1_000_000_000_000 + now);
            core.state.lock().follow_clock(&core.clock);
            retention.remove_old(&mut scans).await.unwrap();
            let page = core.store.jobs(&JobFilter::default(), None, 9).unwrap();
            assert_eq!(page.jobs.len(), left, "at {now}");
        }
        service.stop(Duration::ZERO).await;
    }
}
