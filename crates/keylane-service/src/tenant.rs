//! Tenants: owners of jobs, among which the slots are shared first, and their limits.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use crate::kind::StartRate;
use crate::wire::DEFAULT_TENANT;

/// Share and limits of a tenant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tenant {
    /// Weight of its share of the slots. Default: 1.
    pub weight: u32,
    /// Number of slots that it gets before other tenants get more than their minimum. It is lent
    /// while the tenant needs less. Default: 0.
    pub min_workers: usize,
    /// Maximum number of its running subtasks. Default: no maximum.
    pub max_workers: Option<usize>,
    /// Maximum rate of its starts. Default: no limit.
    pub rate: Option<StartRate>,
    /// Maximum number of its unfinished subtasks. Default: no limit but that of all tenants.
    pub max_waiting: Option<u64>,
}

impl Default for Tenant {
    fn default() -> Self {
        Tenant { weight: 1, min_workers: 0, max_workers: None, rate: None, max_waiting: None }
    }
}

impl Tenant {
    /// Name of the tenant of jobs that name none.
    pub const DEFAULT_NAME: &str = DEFAULT_TENANT;

    /// Maximum length of a name, in bytes.
    pub const MAX_NAME_BYTES: usize = 64;

    /// Checks the name of a tenant: letters, digits, `.`, `_` and `-`.
    ///
    /// # Errors
    /// The rule, if the name breaks it.
    pub fn check_name(name: &str) -> Result<(), String> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        match (1..=Tenant::MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(is_plain) {
            true => Ok(()),
            false => Err(format!(
                "a tenant's name has 1 to {} characters out of letters, digits, `.`, `_`, `-`",
                Tenant::MAX_NAME_BYTES
            )),
        }
    }
}

/// Tenants of a service, by name. The default tenant has the name [`Tenant::DEFAULT_NAME`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tenants {
    /// Tenants with settings of their own.
    pub named: BTreeMap<String, Tenant>,
    /// Whether jobs of tenants without settings are refused. By default they are accepted, with the
    /// defaults of [`Tenant`].
    pub refuse_unknown: bool,
}

/// Configured tenants, which a reload replaces.
#[derive(Debug, Default)]
pub(crate) struct TenantRegistry {
    /// Innermost lock, held briefly.
    tenants: RwLock<Arc<Tenants>>,
}

impl TenantRegistry {
    pub(crate) fn new(tenants: Tenants) -> Self {
        TenantRegistry { tenants: RwLock::new(Arc::new(tenants)) }
    }

    pub(crate) fn all(&self) -> Arc<Tenants> {
        Arc::clone(&self.tenants.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the tenants, and returns the old ones.
    pub(crate) fn replace(&self, tenants: Tenants) -> Arc<Tenants> {
        let mut current = self.tenants.write().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut current, Arc::new(tenants))
    }

    /// Settings of a tenant; `None`: the default one.
    pub(crate) fn get(&self, name: Option<&str>) -> Tenant {
        let name = name.unwrap_or(Tenant::DEFAULT_NAME);
        self.all().named.get(name).copied().unwrap_or_default()
    }

    /// Checks that jobs of the tenant are accepted.
    pub(crate) fn check(&self, name: &str) -> Result<(), String> {
        Tenant::check_name(name)?;
        let all = self.all();
        let is_known = name == Tenant::DEFAULT_NAME || all.named.contains_key(name);
        if is_known || !all.refuse_unknown {
            return Ok(());
        }
        let known: Vec<&str> = all.named.keys().map(String::as_str).take(20).collect();
        let known = known.join(", ");
        Err(format!("there is no tenant `{name}`; known tenants: {known}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_tenants_are_refused_only_on_request() {
        let named = BTreeMap::from([("ann".to_owned(), Tenant { weight: 3, ..Tenant::default() })]);
        let registry = TenantRegistry::new(Tenants { named: named.clone(), refuse_unknown: false });
        assert_eq!((registry.check("ann"), registry.check("bob")), (Ok(()), Ok(())));
        assert_eq!((registry.get(Some("ann")).weight, registry.get(Some("bob")).weight), (3, 1));
        registry.replace(Tenants { named, refuse_unknown: true });
        assert!(registry.check("bob").unwrap_err().contains("known tenants: ann"));
        assert_eq!(registry.check(Tenant::DEFAULT_NAME), Ok(()));
    }

    #[test]
    fn a_name_is_plain() {
        let long = "x".repeat(65);
        for wrong in ["", "a b", "ü", "a/b", &long] {
            assert!(Tenant::check_name(wrong).is_err(), "{wrong}");
        }
        assert_eq!(Tenant::check_name("team-7.eu_1"), Ok(()));
    }
}
