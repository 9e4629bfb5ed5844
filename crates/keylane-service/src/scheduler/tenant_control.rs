//! Settings of tenants, their rates, and the counts of their jobs and restored runs.
//!
//! The allocator shares the slots. A tenant without a token is blocked there until the time of the
//! next one.

use std::sync::Arc;

use keylane_allocate::TenantIndex;

use super::state::Scheduler;
use super::tenants::TenantState;
use super::timers::TimerEvent;
use super::token_bucket::TokenBucket;
use super::{TenantSettings, TenantView, WaitReason};

impl Scheduler {
    /// Sets the settings of a tenant; `None` as name: the default one. Without settings it has the
    /// defaults. Running subtasks are not stopped.
    pub fn set_tenant(
        &mut self,
        name: Option<&Arc<str>>,
        settings: Option<TenantSettings>,
        now: u64,
    ) {
        let now = self.at(now);
        let tenant = self.find_or_add_tenant(name);
        let state = self.tenants.get_mut(tenant);
        state.is_configured = settings.is_some();
        state.settings = settings.unwrap_or_default();
        let TenantSettings { share, rate } = state.settings;
        match (&mut state.bucket, rate) {
            (Some(bucket), Some(rate)) => bucket.change(rate, now),
            (bucket, rate) => *bucket = rate.map(|rate| TokenBucket::new(rate, now)),
        }
        self.allocator.set_limits(tenant, share, now);
        self.check_tokens(tenant, now);
        self.release_for_others(now);
        self.remove_unused_tenant(tenant);
    }

    fn find_or_add_tenant(&mut self, name: Option<&Arc<str>>) -> TenantIndex {
        let Some(name) = name else { return TenantIndex::DEFAULT };
        if let Some(tenant) = self.tenants.find(name) {
            return tenant;
        }
        let tenant = self.allocator.add_tenant(TenantSettings::default().share);
        self.tenants.insert(tenant, name);
        tenant
    }

    /// Counts a new job of a tenant.
    pub(super) fn enter_tenant(&mut self, name: Option<&Arc<str>>) -> TenantIndex {
        let tenant = self.find_or_add_tenant(name);
        self.tenants.get_mut(tenant).jobs += 1;
        tenant
    }

    /// Counts the end of a tenant's job.
    pub(super) fn leave_tenant(&mut self, tenant: TenantIndex) {
        self.tenants.get_mut(tenant).jobs -= 1;
        self.remove_unused_tenant(tenant);
    }

    fn remove_unused_tenant(&mut self, tenant: TenantIndex) {
        let Some(state) = self.tenants.take_unused(tenant) else { return };
        let timer = state.timer.iter();
        timer.for_each(|at| self.timers.call_off(*at, TimerEvent::TenantToken(tenant)));
        self.allocator.remove_tenant(tenant);
    }

    /// Counts a start of a tenant.
    pub(super) fn note_start_of_tenant(&mut self, tenant: TenantIndex, now: u64) {
        if let Some(bucket) = &mut self.tenants.get_mut(tenant).bucket {
            bucket.take(now);
            self.check_tokens(tenant, now);
        }
        if self.allocator.is_stopped(tenant) {
            self.release_for_others(now);
        }
    }

    /// Blocks a tenant without a token until the time of the next one.
    fn check_tokens(&mut self, tenant: TenantIndex, now: u64) {
        let state = self.tenants.get_mut(tenant);
        let (has_token, next) = match &mut state.bucket {
            Some(bucket) => (bucket.tokens(now) > 0, bucket.next(now)),
            None => (true, None),
        };
        let next = next.filter(|_| !has_token);
        let timer = std::mem::replace(&mut state.timer, next);
        if timer != next {
            timer.iter().for_each(|at| self.timers.call_off(*at, TimerEvent::TenantToken(tenant)));
            next.iter().for_each(|at| self.timers.set(*at, TimerEvent::TenantToken(tenant)));
        }
        self.allocator.set_blocked(tenant, !has_token);
    }

    pub(super) fn handle_tenant_token(&mut self, tenant: TenantIndex, at: u64, now: u64) {
        let state = self.tenants.get_mut(tenant);
        if state.timer == Some(at) {
            state.timer = None;
            self.check_tokens(tenant, now);
        }
    }

    /// Releases jobs that are held for a kind whose free capacity was meant for a tenant that starts
    /// nothing now. A job that finds no capacity at its turn is held again in its old place.
    fn release_for_others(&mut self, now: u64) {
        if self.kinds.held() == 0 {
            return;
        }
        for kind in self.kinds.all_with_room(now) {
            self.let_go(kind, now);
        }
    }

    /// Changes the number of restored runs, which have slots without a decision.
    pub(super) fn note_restored(&mut self, slot: u32, change: isize, now: u64) {
        let tenant = self.jobs[slot].tenant;
        let state = self.tenants.get_mut(tenant);
        state.restored = state.restored.strict_add_signed(change);
        self.allocator.set_outside(tenant, state.restored);
        self.restored = self.restored.strict_add_signed(change);
        self.fit_workers(now);
    }

    /// Reason for which nothing of a tenant starts.
    pub(super) fn reason_of_tenant(&self, tenant: TenantIndex) -> Option<WaitReason> {
        let state = self.tenants.get(tenant);
        let tokens = state.bucket.clone().map(|mut bucket| bucket.tokens(self.now));
        if tokens == Some(0) {
            let until = state.timer.map(|until| self.shown(until));
            return Some(WaitReason::TenantRate { until });
        }
        let running = self.allocator.running_of(tenant);
        let is_full = self.allocator.is_stopped(tenant);
        is_full.then_some(WaitReason::TenantBound { running })
    }

    /// Tenants that are configured or have unfinished jobs. O(tenants).
    #[must_use]
    pub fn tenants(&self) -> Vec<TenantView> {
        let view = |(index, state): (TenantIndex, &TenantState)| TenantView {
            name: state.name.clone(),
            settings: state.settings,
            is_configured: state.is_configured,
            jobs: state.jobs,
            running: self.allocator.running_of(index),
            waits: self.reason_of_tenant(index),
        };
        self.tenants.iter().map(view).collect()
    }
}
