//! Tenants: their settings, and what they have.

use super::Query;
use crate::scheduler;
use crate::tenant::Tenant;
use crate::wire::TenantView;

/// Maximum number of listed tenants without settings.
const MAX_UNKNOWN: usize = 1000;

impl Query {
    /// Returns the configured tenants, the default one, and those with unfinished jobs, by name: at
    /// most `MAX_UNKNOWN` that are not configured.
    pub(crate) fn tenant_views(&self) -> Vec<TenantView> {
        let engine = self.state.lock();
        let mut found = engine.scheduler.tenants();
        found.sort_by(|one, other| one.name.cmp(&other.name));
        let mut unknown = 0;
        let is_shown = |tenant: &scheduler::TenantView| {
            let is_own = tenant.is_configured || tenant.name.is_none();
            unknown += usize::from(!is_own);
            is_own || unknown <= MAX_UNKNOWN
        };
        found.retain(is_shown);
        let unfinished =
            |tenant: &scheduler::TenantView| engine.unfinished.of(tenant.name.as_deref());
        let counted: Vec<_> = found.iter().map(unfinished).collect();
        drop(engine);
        let views = found.into_iter().zip(counted);
        views.map(|(tenant, unfinished)| self.tenant_view(&tenant, unfinished)).collect()
    }

    fn tenant_view(&self, tenant: &scheduler::TenantView, unfinished: u64) -> TenantView {
        let settings = self.tenants.get(tenant.name.as_deref());
        let Tenant { weight, min_workers, max_workers, rate, max_waiting } = settings;
        TenantView {
            name: tenant.name.as_deref().unwrap_or(Tenant::DEFAULT_NAME).into(),
            configured: tenant.is_configured,
            weight,
            min_workers: min_workers as u64,
            max_workers: max_workers.map(|most| most as u64),
            per_second: rate.map(|rate| rate.per_second),
            max_waiting,
            jobs: tenant.jobs as u64,
            running: tenant.running as u64,
            unfinished,
        }
    }
}
