//! Tenants: the settings of each, the rate of its starts, and the jobs and restored runs that it has.
//!
//! A tenant exists while it is configured or has a job, so names that clients choose cost no memory
//! later.

use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use keylane_allocate::TenantIndex;

use super::TenantSettings;
use super::token_bucket::TokenBucket;

#[derive(Debug, Default)]
pub(super) struct TenantState {
    /// `None` for the default tenant.
    pub(super) name: Option<Arc<str>>,
    pub(super) settings: TenantSettings,
    pub(super) is_configured: bool,
    pub(super) bucket: Option<TokenBucket>,
    /// Time of the timer for its next token, while it is blocked.
    pub(super) timer: Option<u64>,
    /// Number of its unfinished jobs.
    pub(super) jobs: usize,
    /// Number of its restored runs.
    pub(super) restored: usize,
}

/// Tenants that are configured or have jobs.
#[derive(Debug)]
pub(super) struct TenantTable {
    /// By their index in the allocator; the first is the default tenant.
    all: Vec<Option<TenantState>>,
    by_name: HashMap<Arc<str>, TenantIndex, FixedState>,
}

impl Default for TenantTable {
    fn default() -> Self {
        TenantTable { all: vec![Some(TenantState::default())], by_name: HashMap::default() }
    }
}

impl TenantTable {
    pub(super) fn get(&self, tenant: TenantIndex) -> &TenantState {
        self.all[tenant.index()].as_ref().expect("the tenant exists")
    }

    pub(super) fn get_mut(&mut self, tenant: TenantIndex) -> &mut TenantState {
        self.all[tenant.index()].as_mut().expect("the tenant exists")
    }

    pub(super) fn insert(&mut self, tenant: TenantIndex, name: &Arc<str>) {
        if self.all.len() <= tenant.index() {
            self.all.resize_with(tenant.index() + 1, || None);
        }
        let name = Arc::clone(name);
        self.by_name.insert(Arc::clone(&name), tenant);
        self.all[tenant.index()] = Some(TenantState { name: Some(name), ..TenantState::default() });
    }

    pub(super) fn find(&self, name: &str) -> Option<TenantIndex> {
        self.by_name.get(name).copied()
    }

    /// Removes a tenant that is neither configured nor has jobs, and returns its state.
    pub(super) fn take_unused(&mut self, tenant: TenantIndex) -> Option<TenantState> {
        let state = &mut self.all[tenant.index()];
        let is_unused = |state: &mut TenantState| !state.is_configured && state.jobs == 0;
        let state = state.take_if(|state| tenant != TenantIndex::DEFAULT && is_unused(state))?;
        state.name.iter().for_each(|name| _ = self.by_name.remove(name));
        Some(state)
    }

    /// All tenants with their indexes, the default one first.
    pub(super) fn iter(&self) -> impl Iterator<Item = (TenantIndex, &TenantState)> {
        let index = |state: &TenantState| {
            let name = state.name.as_ref().map(|name| self.by_name[name]);
            name.unwrap_or(TenantIndex::DEFAULT)
        };
        self.all.iter().flatten().map(move |state| (index(state), state))
    }
}
