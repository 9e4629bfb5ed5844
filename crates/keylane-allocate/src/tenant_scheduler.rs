//! Sharing among tenants, and the four rules among the jobs of each.

use super::priority::PriorityClasses;
use super::tenant_shares::{TenantChoice, TenantLimits, TenantShares};
use super::{
    Claimant, Decision, End, JobId, JobPolicy, JobProgress, JobScheduler, Priority, Record, Supply,
};

/// Index of a tenant of one [`TenantScheduler`]; reused after the tenant was removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TenantIndex(u32);

impl TenantIndex {
    /// The default tenant, which always exists.
    pub const DEFAULT: TenantIndex = TenantIndex(0);

    /// Index among the tenants.
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Identifier of a job of one [`TenantScheduler`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TenantJobId {
    tenant: TenantIndex,
    priority: Priority,
    job: JobId,
}

impl TenantJobId {
    /// Tenant of the job.
    pub fn tenant(self) -> TenantIndex {
        self.tenant
    }

    /// Priority of the job.
    pub fn priority(self) -> Priority {
        self.priority
    }

    /// Number of jobs of its tenant and priority that were submitted before this one.
    pub fn serial(self) -> u64 {
        self.job.serial()
    }
}

/// Shares workers among tenants, and those of each tenant among its jobs, by priority and by the four
/// rules: a [`JobScheduler`] for each tenant and priority, and a choice among those with work.
///
/// A tenant with a thousand jobs gets the share of one tenant. With one tenant without limits the
/// decisions are those of one `JobScheduler`. The bound on active jobs holds for each tenant and priority. A call
/// costs O(log jobs + log tenants).
///
/// ```
/// use keylane_allocate::{End, Priority, Supply, TenantIndex, TenantLimits, TenantScheduler};
///
/// let mut scheduler = TenantScheduler::new(2);
/// let other = scheduler.add_tenant(TenantLimits::default());
/// let many: Vec<_> = (0..1000)
///     .map(|_| scheduler.submit(TenantIndex::DEFAULT, Priority::Normal, Supply::Ready(1), 1, 0))
///     .collect();
/// let one = scheduler.submit(other, Priority::Normal, Supply::Ready(5), 1, 0);
/// let (first, _) = scheduler.next(0).unwrap();
/// let (second, _) = scheduler.next(0).unwrap();
/// assert_eq!((first, second), (many[0], one));
/// scheduler.ended(one, End::Done, 1);
/// assert_eq!(scheduler.next(1).unwrap().0, one);
/// ```
#[derive(Clone, Debug)]
pub struct TenantScheduler {
    tenants: Vec<Option<Tenant>>,
    free: Vec<u32>,
    shares: TenantShares,
    settings: JobSettings,
    workers: usize,
    /// Sums over the tenants.
    busy: usize,
    active: usize,
    outside: usize,
    /// Whether `shares` is up to date: false while the default tenant is alone and without limits.
    is_shared: bool,
}

#[derive(Clone, Copy, Debug)]
struct JobSettings {
    policy: JobPolicy,
    max_active: Option<usize>,
    patience: Option<u64>,
    ageing: Option<u64>,
}

#[derive(Clone, Debug)]
struct Tenant {
    jobs: PriorityClasses,
    limits: TenantLimits,
    /// Workers that it has without a decision.
    outside: usize,
    is_blocked: bool,
    /// Counts of `jobs` that are included in the sums.
    busy: usize,
    active: usize,
}

impl TenantScheduler {
    /// Creates a scheduler with the default tenant, and the defaults of [`JobScheduler::new`].
    pub fn new(workers: usize) -> Self {
        let settings = JobSettings {
            policy: JobPolicy::Arrival,
            max_active: None,
            patience: None,
            ageing: None,
        };
        let mut scheduler = TenantScheduler {
            tenants: Vec::new(),
            free: Vec::new(),
            shares: TenantShares::default(),
            settings,
            workers,
            busy: 0,
            active: 0,
            outside: 0,
            is_shared: false,
        };
        scheduler.shares.resize(workers);
        scheduler.add_tenant(TenantLimits::default());
        scheduler
    }

    /// Sets the bound of rule 2 for each tenant, as [`JobScheduler::with_max_active`] does.
    #[must_use]
    pub fn with_max_active(mut self, most: impl Into<Option<usize>>) -> Self {
        self.set_max_active(most.into(), 0);
        self
    }

    /// Sets the ageing bound, as [`JobScheduler::with_patience`] does.
    #[must_use]
    pub fn with_patience(mut self, patience: u64) -> Self {
        self.settings.patience = Some(patience);
        self.rebuild(|jobs| jobs.with_patience(patience))
    }

    /// Sets the policy, as [`JobScheduler::with_policy`] does.
    #[must_use]
    pub fn with_policy(mut self, policy: JobPolicy) -> Self {
        self.settings.policy = policy;
        self.rebuild(|jobs| jobs.with_policy(policy))
    }

    /// Sets the maximum time for which jobs of one priority wait while all workers go to those of higher ones. Then the next
    /// worker is theirs. The default is no maximum.
    #[must_use]
    pub fn with_ageing(mut self, ageing: u64) -> Self {
        self.settings.ageing = Some(ageing);
        self.tenants.iter_mut().flatten().for_each(|tenant| tenant.jobs.set_ageing(Some(ageing)));
        self
    }

    fn rebuild(mut self, change: impl Fn(JobScheduler) -> JobScheduler) -> Self {
        self.tenants.iter_mut().flatten().for_each(|tenant| tenant.jobs.rebuild(&change));
        self
    }

    /// Adds a tenant without jobs.
    pub fn add_tenant(&mut self, limits: TenantLimits) -> TenantIndex {
        let index = self.free.pop().unwrap_or_else(|| {
            self.tenants.push(None);
            u32::try_from(self.tenants.len() - 1).expect("tenants are fewer than 2^32")
        });
        let jobs = new_class(self.settings, self.workers, limits);
        let jobs = PriorityClasses::new(jobs, self.settings.ageing);
        let tenant = Tenant { jobs, limits, outside: 0, is_blocked: false, busy: 0, active: 0 };
        self.tenants[index as usize] = Some(tenant);
        self.shares.set_limits(index, limits);
        self.check_shared();
        TenantIndex(index)
    }

    /// Removes a tenant.
    ///
    /// # Panics
    ///
    /// If it has jobs or workers, or is the default tenant.
    pub fn remove_tenant(&mut self, index: TenantIndex) {
        let tenant = self.tenant(index);
        let is_idle = tenant.jobs.unfinished() == 0 && tenant.outside == 0;
        assert!(is_idle && index != TenantIndex::DEFAULT, "the tenant is in use");
        self.shares.set_limits(index.0, TenantLimits::default());
        self.shares.update(index.0, 0, false);
        self.tenants[index.0 as usize] = None;
        self.free.push(index.0);
        self.check_shared();
    }

    /// Changes the limits of a tenant. No worker is taken away.
    pub fn set_limits(&mut self, index: TenantIndex, limits: TenantLimits, now: u64) {
        let bound = bound_of(self.settings, self.workers, limits);
        let tenant = self.tenant_mut(index);
        tenant.limits = limits;
        tenant.jobs.for_each(now, |jobs| jobs.set_max_active(bound, now));
        self.shares.set_limits(index.0, limits);
        self.check_shared();
        self.update(index);
    }

    /// Sets whether nothing of the tenant starts for a while, whatever it offers.
    pub fn set_blocked(&mut self, index: TenantIndex, is_blocked: bool) {
        self.tenant_mut(index).is_blocked = is_blocked;
        self.check_shared();
        self.update(index);
    }

    /// Sets the number of workers that the tenant has without a decision. They count against its
    /// share and its maximum, and not against [`workers`](Self::workers).
    pub fn set_outside(&mut self, index: TenantIndex, outside: usize) {
        let before = std::mem::replace(&mut self.tenant_mut(index).outside, outside);
        self.outside = self.outside - before + outside;
        self.shares.resize(self.workers + self.outside);
        self.update(index);
    }

    /// Submits a job of a tenant, as [`JobScheduler::submit`] does.
    pub fn submit(
        &mut self,
        index: TenantIndex,
        priority: Priority,
        supply: Supply,
        weight: u32,
        now: u64,
    ) -> TenantJobId {
        let job = self.with_class(index, priority, now, |jobs| jobs.submit(supply, weight, now));
        TenantJobId { tenant: index, priority, job }
    }

    /// Assigns a free worker, as [`JobScheduler::next`] does.
    pub fn next(&mut self, now: u64) -> Option<(TenantJobId, Decision)> {
        let choice = self.choose()?;
        let index = TenantIndex(choice.tenant);
        let jobs = &mut self.tenant_mut(index).jobs;
        let priority = jobs.choose(now)?;
        let decision = jobs.start(priority, now)?;
        self.shares.charge(choice);
        self.update(index);
        let Claimant::Job(job) = decision.to else { unreachable!("all work belongs to a job") };
        Some((TenantJobId { tenant: index, priority, job }, decision))
    }

    /// Returns the job that [`next`](Self::next) would choose.
    pub fn peek(&mut self, now: u64) -> Option<TenantJobId> {
        let index = TenantIndex(self.choose()?.tenant);
        let jobs = &mut self.tenant_mut(index).jobs;
        let priority = jobs.choose(now)?;
        let job = jobs.peek(priority, now)?;
        Some(TenantJobId { tenant: index, priority, job })
    }

    fn choose(&self) -> Option<TenantChoice> {
        let free = self.workers.saturating_sub(self.busy);
        match self.is_shared {
            true => self.shares.choose(free),
            false => (free > 0).then_some(TenantChoice::DEFAULT),
        }
    }

    /// Records that an assigned worker is free again, as [`JobScheduler::ended`] does.
    ///
    /// # Panics
    ///
    /// If the job has no worker.
    pub fn ended(&mut self, id: TenantJobId, end: End, now: u64) -> bool {
        self.with(id, now, |jobs, job| jobs.ended(Claimant::Job(job), end, now))
    }

    /// Changes a job as the method of [`JobScheduler`] does.
    pub fn exhausted(&mut self, id: TenantJobId, now: u64) -> bool {
        self.with(id, now, |jobs, job| jobs.exhausted(job, now))
    }

    /// Changes a job as the method of [`JobScheduler`] does.
    ///
    /// # Panics
    ///
    /// If fewer than `count` subtasks wait.
    pub fn ready(&mut self, id: TenantJobId, count: u64, now: u64) -> bool {
        self.with(id, now, |jobs, job| jobs.ready(job, count, now))
    }

    /// Changes a job as the method of [`JobScheduler`] does.
    ///
    /// # Panics
    ///
    /// If fewer than `count` subtasks are ready.
    pub fn unready(&mut self, id: TenantJobId, count: u64, now: u64) -> bool {
        self.with(id, now, |jobs, job| jobs.unready(job, count, now))
    }

    /// Changes a job as the method of [`JobScheduler`] does.
    pub fn came(&mut self, id: TenantJobId, ready: u64, waiting: u64, now: u64) -> bool {
        self.with(id, now, |jobs, job| jobs.came(job, ready, waiting, now))
    }

    /// Changes a job as the method of [`JobScheduler`] does.
    ///
    /// # Panics
    ///
    /// If no subtask waits.
    pub fn settled(&mut self, id: TenantJobId, failed: bool, now: u64) -> bool {
        self.with(id, now, |jobs, job| jobs.settled(job, failed, now))
    }

    /// Changes a job as the method of [`JobScheduler`] does.
    pub fn hold_splitter(&mut self, id: TenantJobId, held: bool, now: u64) -> bool {
        self.with(id, now, |jobs, job| jobs.hold_splitter(job, held, now))
    }

    /// Changes a job as the method of [`JobScheduler`] does.
    pub fn pause(&mut self, id: TenantJobId, now: u64) -> bool {
        self.with(id, now, |jobs, job| jobs.pause(job, now))
    }

    /// Changes a job as the method of [`JobScheduler`] does.
    pub fn resume(&mut self, id: TenantJobId, now: u64) -> bool {
        self.with(id, now, |jobs, job| jobs.resume(job, now))
    }

    /// Changes a job as the method of [`JobScheduler`] does.
    pub fn cancel(&mut self, id: TenantJobId, now: u64) -> bool {
        self.with(id, now, |jobs, job| jobs.cancel(job, now))
    }

    /// Changes a job as the method of [`JobScheduler`] does.
    pub fn set_weight(&mut self, id: TenantJobId, weight: u32, now: u64) -> bool {
        self.with(id, now, |jobs, job| jobs.set_weight(job, weight, now))
    }

    /// Changes the number of workers, as [`JobScheduler::resize`] does.
    pub fn resize(&mut self, workers: usize, now: u64) {
        self.workers = workers;
        self.shares.resize(workers + self.outside);
        for tenant in self.tenants.iter_mut().flatten() {
            let bound = bound_of(self.settings, workers, tenant.limits);
            let is_bound = tenant.limits.max_workers.is_some();
            tenant.jobs.for_each(now, |jobs| {
                jobs.resize(workers, now);
                if is_bound {
                    jobs.set_max_active(bound, now);
                }
            });
        }
        self.update_shares();
    }

    /// Changes the bound of rule 2 for each tenant, as [`JobScheduler::set_max_active`] does.
    pub fn set_max_active(&mut self, most: Option<usize>, now: u64) {
        self.settings.max_active = most;
        for tenant in self.tenants.iter_mut().flatten() {
            let bound = bound_of(self.settings, self.workers, tenant.limits);
            tenant.jobs.for_each(now, |jobs| jobs.set_max_active(bound, now));
        }
        self.update_shares();
    }

    /// Starts to record the events of the default tenant's jobs with normal priority, as [`JobScheduler::record`] does.
    ///
    /// # Panics
    ///
    /// If `capacity` is 0.
    pub fn record(&mut self, capacity: usize) {
        self.tenant_mut(TenantIndex::DEFAULT).jobs.normal_mut().record(capacity);
    }

    /// Recorded events, or `None` if recording is off.
    pub fn recorded(&self) -> Option<&Record> {
        self.tenant(TenantIndex::DEFAULT).jobs.class(Priority::Normal)?.recorded()
    }

    /// Progress of a job, or `None` if it has ended.
    pub fn progress(&self, id: TenantJobId) -> Option<JobProgress> {
        self.tenant(id.tenant).jobs.class(id.priority)?.progress(id.job)
    }

    /// Number of workers.
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// Number of assigned workers.
    pub fn busy(&self) -> usize {
        self.busy
    }

    /// Number of admitted jobs that run or could run.
    pub fn active(&self) -> usize {
        self.active
    }

    /// Number of admitted jobs of a tenant with this priority that run or could run.
    pub fn active_of(&self, index: TenantIndex, priority: Priority) -> usize {
        self.tenant(index).jobs.class(priority).map_or(0, JobScheduler::active)
    }

    /// Whether jobs of the same tenant with a higher priority offer work.
    pub fn is_behind(&self, id: TenantJobId) -> bool {
        self.tenant(id.tenant).jobs.is_behind(id.priority)
    }

    /// Number of jobs that have not ended, queued ones included.
    pub fn unfinished(&self) -> usize {
        self.tenants.iter().flatten().map(|tenant| tenant.jobs.unfinished()).sum()
    }

    /// Number of workers of a tenant, those without a decision included.
    pub fn running_of(&self, index: TenantIndex) -> usize {
        let tenant = self.tenant(index);
        tenant.busy + tenant.outside
    }

    /// Whether nothing of the tenant starts, because of its maximum or because it is blocked.
    pub fn is_stopped(&self, index: TenantIndex) -> bool {
        let tenant = self.tenant(index);
        let is_at = |most: usize| tenant.busy + tenant.outside >= most;
        tenant.is_blocked || tenant.limits.max_workers.is_some_and(is_at)
    }

    fn with<T>(
        &mut self,
        id: TenantJobId,
        now: u64,
        change: impl FnOnce(&mut JobScheduler, JobId) -> T,
    ) -> T {
        self.with_class(id.tenant, id.priority, now, |jobs| change(jobs, id.job))
    }

    /// Changes the jobs of a tenant with one priority.
    fn with_class<T>(
        &mut self,
        index: TenantIndex,
        priority: Priority,
        now: u64,
        change: impl FnOnce(&mut JobScheduler) -> T,
    ) -> T {
        let (settings, workers) = (self.settings, self.workers);
        let tenant = self.tenant_mut(index);
        let limits = tenant.limits;
        let create = || new_class(settings, workers, limits);
        let result = tenant.jobs.with(priority, now, create, change);
        self.update(index);
        result
    }

    /// Updates the sums and the tenant's claim after a change of its jobs.
    fn update(&mut self, index: TenantIndex) {
        let tenant = self.tenants[index.0 as usize].as_mut().expect("the tenant exists");
        let (busy, active) = (tenant.jobs.busy(), tenant.jobs.active());
        self.busy = self.busy - std::mem::replace(&mut tenant.busy, busy) + busy;
        self.active = self.active - std::mem::replace(&mut tenant.active, active) + active;
        self.update_share(index.0);
    }

    fn update_shares(&mut self) {
        (0..self.tenants.len() as u32).for_each(|index| self.update_share(index));
    }

    /// Decides whether there is something to share, and brings the shares up to date if so.
    fn check_shared(&mut self) {
        let default = self.tenant(TenantIndex::DEFAULT);
        let is_plain = default.limits == TenantLimits::default() && !default.is_blocked;
        let was_shared = self.is_shared;
        self.is_shared = !is_plain || self.tenants.len() - self.free.len() > 1;
        if self.is_shared && !was_shared {
            self.update_shares();
        }
    }

    fn update_share(&mut self, index: u32) {
        if !self.is_shared {
            return;
        }
        let Some(tenant) = &self.tenants[index as usize] else { return };
        let offers = !tenant.is_blocked && tenant.jobs.could_decide();
        self.shares.update(index, tenant.busy + tenant.outside, offers);
    }

    fn tenant(&self, index: TenantIndex) -> &Tenant {
        self.tenants[index.0 as usize].as_ref().expect("the tenant exists")
    }

    fn tenant_mut(&mut self, index: TenantIndex) -> &mut Tenant {
        self.tenants[index.0 as usize].as_mut().expect("the tenant exists")
    }
}

/// Returns a scheduler for the jobs of one priority.
fn new_class(settings: JobSettings, workers: usize, limits: TenantLimits) -> JobScheduler {
    let jobs = JobScheduler::new(workers)
        .with_policy(settings.policy)
        .with_max_active(bound_of(settings, workers, limits));
    match settings.patience {
        Some(patience) => jobs.with_patience(patience),
        None => jobs,
    }
}

/// Bound on the active jobs of a tenant. In the order of arrival it is the number of workers that the
/// tenant can have, unless another one is set.
fn bound_of(settings: JobSettings, workers: usize, limits: TenantLimits) -> Option<usize> {
    let most = limits.max_workers.filter(|_| settings.policy == JobPolicy::Arrival);
    settings.max_active.or(most.map(|most| most.min(workers)))
}
