//! Numbers of subtasks that have not ended: of all tenants, and of each.

use std::collections::HashMap;

/// Numbers of unfinished subtasks. Only named tenants are counted; the rest are those of the default
/// tenant.
#[derive(Debug, Default)]
pub(super) struct UnfinishedCounts {
    all: u64,
    /// Sum over `of_tenants`.
    named: u64,
    of_tenants: HashMap<Box<str>, u64>,
}

impl UnfinishedCounts {
    /// Number of unfinished subtasks of all tenants.
    pub(super) fn all(&self) -> u64 {
        self.all
    }

    /// Number of unfinished subtasks of a tenant; `None`: the default one.
    pub(super) fn of(&self, tenant: Option<&str>) -> u64 {
        match tenant {
            Some(tenant) => self.of_tenants.get(tenant).copied().unwrap_or(0),
            None => self.all - self.named,
        }
    }

    pub(super) fn add(&mut self, tenant: Option<&str>, count: u64) {
        self.all += count;
        let Some(tenant) = tenant.filter(|_| count > 0) else { return };
        self.named += count;
        match self.of_tenants.get_mut(tenant) {
            Some(number) => *number += count,
            None => _ = self.of_tenants.insert(tenant.into(), count),
        }
    }

    /// Counts ended subtasks. More than there are count as all.
    pub(super) fn remove(&mut self, tenant: Option<&str>, count: u64) {
        let count = count.min(self.of(tenant));
        self.all -= count;
        let Some(tenant) = tenant else { return };
        self.named -= count;
        if let Some(number) = self.of_tenants.get_mut(tenant) {
            *number -= count;
            if *number == 0 {
                self.of_tenants.remove(tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::UnfinishedCounts;

    #[test]
    fn each_tenant_has_its_own_count_and_nothing_is_left_of_one_without_subtasks() {
        let mut counts = UnfinishedCounts::default();
        counts.add(None, 3);
        counts.add(Some("ann"), 2);
        counts.add(Some("bob"), 0);
        assert_eq!((counts.all(), counts.of(None), counts.of(Some("ann"))), (5, 3, 2));
        counts.remove(Some("bob"), 1);
        counts.remove(Some("ann"), 2);
        counts.remove(None, 1);
        assert_eq!((counts.all(), counts.of(None), counts.of_tenants.len()), (2, 2, 0));
        counts.remove(None, 9);
        assert_eq!(counts.all(), 0);
    }
}
