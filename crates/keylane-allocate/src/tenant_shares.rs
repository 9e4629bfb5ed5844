//! Choice of the tenant that gets a free worker: minimum, maximum and weight of each tenant, as a
//! pure state machine.
//!
//! A tenant is a *candidate* while it offers work and is below its maximum. Three rules, in this
//! order:
//!
//! 1. **Minimum.** A candidate below its minimum; of several, the one with the smallest part of it.
//! 2. **Share.** A candidate that stays within its share with one more worker; of several, the one
//!    with the fewest workers for its weight then.
//! 3. **Turn.** Of the candidates below their share, the one whose turn it is. A turn costs a
//!    tenant the less the larger the part of its share that rule 2 cannot give as a whole worker.
//!
//! The *share* of a tenant is `weight * level`. The level divides the free workers and those of all
//! tenants that offer work by weight, without the tenants that have less by their maximum, or more
//! by their minimum or because others did not need it. So workers that a tenant cannot use go to
//! the others.
//!
//! # Proof that no worker stays free
//!
//! *Claim: if there is a candidate and a free worker, a rule chooses one.* Let rule 1 choose none, so
//! every candidate has at least its minimum. Tenants below their share that are at their maximum are
//! excluded first, with their workers; no candidate is among them. Then tenants that have more than
//! their share by a worker are excluded, with their workers, and tenants with a minimum above their
//! share, with that minimum. `rest` is the number of free workers and of all others less the
//! excluded ones. It exceeds the workers of the tenants that are left, because an excluded one has
//! at least what was subtracted for it. If no tenant were left, the last one would have more workers
//! than `rest`, or a minimum above it; but `rest` is at least that number and a free worker.
//! The shares of those that are left sum to `rest`, so one of them is below its share. It is not at
//! its maximum: such a tenant is excluded, or was not below a share that has only fallen since. So
//! rule 2 or 3 chooses a candidate.
//!
//! # No tenant starves
//!
//! Minimums that leave no worker shrink in proportion (`fit_minimums`), so rules 2 and 3 get a
//! worker. Rule 2 gives whole workers of shares, whose sum is below the shares of all. So each
//! candidate with a part of a share is below its share until rule 3 has chosen it. A turn moves a
//! tenant behind those that wait, and the time of turns advances with each of them, so a tenant that
//! comes later does not go before one that has waited for a round.

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeSet;

/// Share of a tenant in the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenantLimits {
    /// Weight of its share; 0 counts as 1.
    pub weight: u32,
    /// Number of workers that it gets before others get more than their minimum.
    pub min_workers: usize,
    /// Maximum number of its workers; `None`: no maximum.
    pub max_workers: Option<usize>,
}

impl Default for TenantLimits {
    fn default() -> Self {
        TenantLimits { weight: 1, min_workers: 0, max_workers: None }
    }
}

/// Cost of a turn with weight 1 for a tenant without a worker.
const TURN: u128 = 1 << 32;

/// Maximum cost of a turn, as a multiple of that without a worker: shares change, and a tenant must
/// not pay for a small part for long.
const MAX_COST: u128 = 64;

/// Maximum number of turns that a tenant can have later because it did not offer work, or was at its
/// maximum, while its subtasks ran.
const MAX_KEPT: u128 = 2;

/// Quotient of numbers of workers or weights, compared exactly.
#[derive(Clone, Copy, Debug)]
struct Ratio(u64, u64);

impl Ord for Ratio {
    fn cmp(&self, other: &Self) -> Ordering {
        let [one, two] =
            [(self, other), (other, self)].map(|(a, b)| u128::from(a.0) * u128::from(b.1));
        one.cmp(&two)
    }
}

impl PartialOrd for Ratio {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ratio {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Ratio {}

/// Level of the shares: workers for each unit of weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Level {
    workers: u128,
    weight: u128,
}

impl Level {
    /// Leaves a tenant out that has a fixed number of workers.
    fn exclude(&mut self, share: &TenantShare, workers: usize) {
        self.workers -= workers as u128;
        self.weight -= u128::from(share.weight());
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct TenantShare {
    limits: TenantLimits,
    /// Minimum in force.
    minimum: usize,
    running: usize,
    offers: bool,
    /// Time of its next turn.
    turn: u128,
    is_candidate: bool,
}

impl TenantShare {
    fn weight(&self) -> u64 {
        self.limits.weight.max(1).into()
    }

    fn is_present(&self) -> bool {
        self.offers || self.running > 0
    }

    fn present_weight(&self) -> u64 {
        if self.is_present() { self.weight() } else { 0 }
    }

    fn has_minimum_above(&self, level: Level) -> bool {
        self.minimum as u128 * level.weight > level.workers * u128::from(self.weight())
    }

    /// Whether its share has room for `more` workers beyond those that it has.
    fn has_room(&self, more: usize, level: Level) -> bool {
        (self.running + more) as u128 * level.weight <= level.workers * u128::from(self.weight())
    }

    /// Whether it has more than its share by a worker.
    fn exceeds(&self, level: Level) -> bool {
        self.running > 1
            && (self.running - 1) as u128 * level.weight
                >= level.workers * u128::from(self.weight())
    }

    fn is_below(&self, level: Level) -> bool {
        self.running as u128 * level.weight < level.workers * u128::from(self.weight())
    }

    /// Cost of a turn: inverse to the part of the share beyond the workers that it has.
    fn cost(&self, level: Level) -> u128 {
        let weight = u128::from(self.weight());
        let part = level.workers * weight - self.running as u128 * level.weight;
        (TURN * level.workers / part).min(MAX_COST * TURN / weight)
    }
}

/// Tenant that gets a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TenantChoice {
    pub(super) tenant: u32,
    /// Level at which it is the tenant's turn; `None` for the other rules.
    turn_at: Option<Level>,
}

impl TenantChoice {
    /// The default tenant, while there is no other.
    pub(super) const DEFAULT: TenantChoice = TenantChoice { tenant: 0, turn_at: None };
}

/// Workers of all tenants, and their claims.
#[derive(Clone, Debug, Default)]
pub(super) struct TenantShares {
    workers: usize,
    tenants: Vec<TenantShare>,
    /// Candidates below their minimum, the smallest part first.
    below_minimum: BTreeSet<(Ratio, u32)>,
    /// Candidates, the fewest workers for their weight first, one more counted.
    by_workers: BTreeSet<(Ratio, u32)>,
    /// Candidates by their next turn.
    by_turn: BTreeSet<(u128, u32)>,
    /// Tenants with a minimum, the largest for its weight first.
    minimums: Vec<u32>,
    /// Tenants that offer work and are at their maximum, the smallest for its weight first.
    at_maximum: BTreeSet<(Ratio, u32)>,
    /// Tenants that offer work and have several workers, the most beyond the first for their weight
    /// first.
    by_excess: BTreeSet<(Reverse<Ratio>, u32)>,
    /// Sums over the tenants that offer work.
    weight: u64,
    running: usize,
    /// Sum of the weights of the tenants that offer work or have workers.
    present: u64,
    /// Time of turns: at most the average of the turns of these tenants.
    time: u128,
}

impl TenantShares {
    /// Changes the number of workers.
    pub(super) fn resize(&mut self, workers: usize) {
        self.workers = workers;
        self.fit_minimums();
    }

    /// Adds a tenant, or changes its limits.
    pub(super) fn set_limits(&mut self, tenant: u32, limits: TenantLimits) {
        let index = tenant as usize;
        if self.tenants.len() <= index {
            self.tenants.resize(index + 1, TenantShare::default());
        }
        let has_minimum = limits.min_workers > 0;
        let had_minimum = self.tenants[index].limits.min_workers > 0;
        self.change(tenant, |share| share.limits = limits);
        if has_minimum || had_minimum {
            self.change(tenant, |share| share.minimum = 0);
            self.minimums.retain(|other| *other != tenant);
            self.minimums.extend(has_minimum.then_some(tenant));
            self.fit_minimums();
        }
    }

    /// Changes the number of the tenant's workers and whether it offers work.
    pub(super) fn update(&mut self, tenant: u32, running: usize, offers: bool) {
        let share = &self.tenants[tenant as usize];
        if (share.running, share.offers) != (running, offers) {
            self.change(tenant, |share| (share.running, share.offers) = (running, offers));
        }
    }

    /// Tenant that gets the next of `free` workers.
    pub(super) fn choose(&self, free: usize) -> Option<TenantChoice> {
        if free == 0 || self.by_turn.is_empty() {
            return None;
        }
        let whole = |tenant| Some(TenantChoice { tenant, turn_at: None });
        if let Some((_, tenant)) = self.below_minimum.first() {
            return whole(*tenant);
        }
        let level = self.level(free);
        let (_, tenant) = *self.by_workers.first()?;
        if self.tenants[tenant as usize].has_room(1, level) {
            return whole(tenant);
        }
        // A tenant that is passed over has a worker, so there are few of them.
        let mut turns = self.by_turn.iter().map(|(_, tenant)| *tenant);
        let tenant = turns.find(|tenant| self.tenants[*tenant as usize].is_below(level))?;
        Some(TenantChoice { tenant, turn_at: Some(level) })
    }

    /// Charges the chosen tenant for its turn.
    pub(super) fn charge(&mut self, choice: TenantChoice) {
        let Some(level) = choice.turn_at else { return };
        self.time += TURN / u128::from(self.present);
        self.change(choice.tenant, |share| share.turn += share.cost(level));
    }

    fn level(&self, free: usize) -> Level {
        let mut level =
            Level { workers: (self.running + free) as u128, weight: self.weight.into() };
        // Each ranking loses a prefix, so its last excluded entry tells which tenants are excluded.
        let (mut last_full, mut last_excess) = (None, None);
        for (ratio, tenant) in &self.at_maximum {
            let share = &self.tenants[*tenant as usize];
            if !share.is_below(level) {
                break;
            }
            level.exclude(share, share.running);
            last_full = Some((*ratio, *tenant));
        }
        let is_full = |tenant: u32, share: &TenantShare| {
            !share.is_candidate && Some((maximum_of(share), tenant)) <= last_full
        };
        for (ratio, tenant) in &self.by_excess {
            let share = &self.tenants[*tenant as usize];
            if is_full(*tenant, share) {
                continue;
            }
            if !share.exceeds(level) {
                break;
            }
            level.exclude(share, share.running);
            last_excess = Some((*ratio, *tenant));
        }
        for tenant in &self.minimums {
            let share = &self.tenants[*tenant as usize];
            let is_excess = Some((excess_of(share), *tenant)) <= last_excess;
            if !share.offers || is_full(*tenant, share) || is_excess {
                continue;
            }
            if !share.has_minimum_above(level) {
                break;
            }
            level.exclude(share, share.minimum);
        }
        level
    }

    /// Changes a tenant and its places in the rankings.
    fn change(&mut self, tenant: u32, change: impl FnOnce(&mut TenantShare)) {
        let share = &mut self.tenants[tenant as usize];
        if share.offers {
            self.weight -= share.weight();
            self.running -= share.running;
            self.at_maximum.remove(&(maximum_of(share), tenant));
            self.by_excess.remove(&(excess_of(share), tenant));
        }
        if share.is_candidate {
            self.below_minimum.remove(&(part_of(share), tenant));
            self.by_workers.remove(&(next_of(share), tenant));
            self.by_turn.remove(&(share.turn, tenant));
        }
        self.present -= share.present_weight();
        let (was_candidate, was_present) = (share.is_candidate, share.is_present());
        change(share);
        self.present += share.present_weight();
        share.is_candidate =
            share.offers && share.limits.max_workers.is_none_or(|most| share.running < most);
        if share.offers {
            self.weight += share.weight();
            self.running += share.running;
            if share.running > 1 {
                self.by_excess.insert((excess_of(share), tenant));
            }
        }
        if !share.is_candidate {
            if share.offers {
                self.at_maximum.insert((maximum_of(share), tenant));
            }
            return;
        }
        if !was_candidate {
            let kept = if was_present { MAX_KEPT * TURN / u128::from(share.weight()) } else { 0 };
            share.turn = share.turn.max(self.time.saturating_sub(kept));
        }
        if share.running < share.minimum {
            self.below_minimum.insert((part_of(share), tenant));
        }
        self.by_workers.insert((next_of(share), tenant));
        self.by_turn.insert((share.turn, tenant));
    }

    /// Sets the minimums in force: those of the limits, or less in proportion if they would leave
    /// no worker to others.
    fn fit_minimums(&mut self) {
        let wanted = |tenant: &u32| limits_of(&self.tenants, *tenant).min_workers;
        let wanted: Vec<usize> = self.minimums.iter().map(wanted).collect();
        let sum: u128 = wanted.iter().map(|wanted| *wanted as u128).sum();
        let most = self.workers.saturating_sub(1) as u128;
        for (tenant, wanted) in self.minimums.clone().into_iter().zip(wanted) {
            let fits = if sum > most { wanted as u128 * most / sum } else { wanted as u128 };
            let max = limits_of(&self.tenants, tenant).max_workers.unwrap_or(usize::MAX);
            self.change(tenant, |share| share.minimum = (fits as usize).min(max));
        }
        let tenants = &self.tenants;
        self.minimums.sort_by_key(|tenant| {
            let share = &tenants[*tenant as usize];
            Reverse(Ratio(share.minimum as u64, share.weight()))
        });
    }
}

fn limits_of(tenants: &[TenantShare], tenant: u32) -> TenantLimits {
    tenants[tenant as usize].limits
}

/// Part of its minimum that the tenant has.
fn part_of(share: &TenantShare) -> Ratio {
    Ratio(share.running as u64, share.minimum.max(1) as u64)
}

/// Maximum for its weight.
fn maximum_of(share: &TenantShare) -> Ratio {
    Ratio(share.limits.max_workers.map_or(u64::MAX, |most| most as u64), share.weight())
}

/// Workers beyond the first for its weight.
fn excess_of(share: &TenantShare) -> Reverse<Ratio> {
    Reverse(Ratio(share.running as u64 - u64::from(share.running > 0), share.weight()))
}

/// Workers for its weight, with one more.
fn next_of(share: &TenantShare) -> Ratio {
    Ratio(share.running as u64 + 1, share.weight())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotients_are_equal_whatever_their_terms() {
        assert_eq!(Ratio(1, 2), Ratio(2, 4));
        assert_ne!(Ratio(1, 2), Ratio(2, 3));
        assert!(Ratio(1, 2) < Ratio(2, 3) && Ratio(u64::MAX, 1) > Ratio(u64::MAX, 2));
    }
}
