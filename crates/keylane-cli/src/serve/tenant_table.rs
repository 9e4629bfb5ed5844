//! Tables of tenants in the configuration.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};

use anyhow::{Context, bail, ensure};
use keylane_service::{StartRate, Tenant, Tenants};
use serde::Deserialize;

use super::rate_text::RateText;

/// Tenants with settings of their own, by name.
pub(super) type TenantTables = BTreeMap<String, TenantTable>;

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct TenantTable {
    weight: Option<NonZeroU32>,
    min_workers: Option<NonZeroUsize>,
    max_workers: Option<NonZeroUsize>,
    rate: Option<RateText>,
    burst: Option<NonZeroU32>,
    max_waiting: Option<NonZeroU64>,
}

/// Handling of jobs of tenants without a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum UnknownTenants {
    #[default]
    Allow,
    Refuse,
}

/// Tenants of a server with this number of slots.
pub(super) fn tenants(
    tables: &TenantTables,
    unknown: UnknownTenants,
    slots: usize,
) -> anyhow::Result<Tenants> {
    let mut named = BTreeMap::new();
    for (name, table) in tables {
        Tenant::check_name(name)
            .map_err(anyhow::Error::msg)
            .and_then(|()| table.tenant())
            .map(|tenant| named.insert(name.clone(), tenant))
            .with_context(|| format!("tenants.{name}"))?;
    }
    let minimums: usize = named.values().map(|tenant| tenant.min_workers).sum();
    ensure!(
        minimums == 0 || minimums < slots,
        "tenants: the sum of all `min_workers` is {minimums}, and there are {slots} `slots`; make it less, so that other tenants get one"
    );
    Ok(Tenants { named, refuse_unknown: unknown == UnknownTenants::Refuse })
}

impl TenantTable {
    fn tenant(&self) -> anyhow::Result<Tenant> {
        if self.burst.is_some() && self.rate.is_none() {
            bail!(
                "`burst` is a part of a rate: add `rate`, such as rate = \"100/s\", or leave it out"
            );
        }
        let plain = Tenant::default();
        let min_workers = self.min_workers.map_or(plain.min_workers, NonZeroUsize::get);
        let max_workers = self.max_workers.map(NonZeroUsize::get);
        ensure!(
            max_workers.is_none_or(|most| min_workers <= most),
            "`min_workers` is more than `max_workers`; make it less"
        );
        Ok(Tenant {
            weight: self.weight.map_or(plain.weight, NonZeroU32::get),
            min_workers,
            max_workers,
            rate: self.rate.map(|rate| StartRate {
                per_second: rate.per_second(),
                burst: self.burst.map_or(1, NonZeroU32::get),
            }),
            max_waiting: self.max_waiting.map(NonZeroU64::get),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, slots: usize) -> Result<Tenants, String> {
        let tables: TenantTables = toml::from_str(text).map_err(|error| error.to_string())?;
        let all = tenants(&tables, UnknownTenants::Refuse, slots);
        all.map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn a_table_has_the_limits_of_a_tenant() {
        let text = "[ann]\nweight = 3\nmin_workers = 2\nmax_workers = 4\nrate = \"30/m\"\nburst = 5\nmax_waiting = 1000\n[bob]\n";
        let all = read(text, 8).unwrap();
        assert!(all.refuse_unknown);
        let rate = Some(StartRate { per_second: 0.5, burst: 5 });
        let ann = Tenant {
            weight: 3,
            min_workers: 2,
            max_workers: Some(4),
            rate,
            max_waiting: Some(1000),
        };
        assert_eq!((all.named["ann"], all.named["bob"]), (ann, Tenant::default()));
    }

    #[test]
    fn a_table_that_makes_no_sense_is_refused_with_the_remedy() {
        for (text, remedy) in [
            ("[ann]\nburst = 5\n", "tenants.ann: `burst` is a part of a rate"),
            ("[ann]\nmin_workers = 3\nmax_workers = 2\n", "`min_workers` is more than"),
            ("[ann]\nmin_workers = 4\n[bob]\nmin_workers = 4\n", "make it less, so that other"),
            ("[\"a b\"]\n", "letters, digits"),
            ("[ann]\nweight = 0\n", "nonzero"),
            ("[ann]\nworkers = 1\n", "unknown field"),
        ] {
            let refused = read(text, 8).unwrap_err();
            assert!(refused.contains(remedy), "{refused}");
        }
    }
}
