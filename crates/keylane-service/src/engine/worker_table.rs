//! Remote workers that have leases or open claims, or were heard of lately.
//!
//! A worker is known by the name of its token and the name that it gives. Workers that give none are
//! one for each token. The table is in memory only: a lease that survives a restart brings the name of
//! its worker, whose token is known from its next request on.
//!
//! A worker with a lease or an open claim stays. Of the others, at most [`MAX_WORKERS`] together with
//! these are kept, for [`KEPT_MS`] after their last request.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound::{Excluded, Unbounded};

/// Maximum number of workers, while some of them have neither a lease nor a claim.
const MAX_WORKERS: usize = 1000;

/// Time for which a worker is kept after its last request, in milliseconds of the steady clock.
const KEPT_MS: u64 = 10 * 60 * 1000;

/// Maximum length of the name that a worker gives, in bytes; the rest is cut.
const MAX_NAME_BYTES: usize = 256;

/// Name of a remote worker.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct WorkerName {
    /// Name of its token. `None` after a restart, until its first request.
    pub(super) token: Option<String>,
    /// Name that the worker gives.
    pub(super) name: Option<String>,
}

/// State of a remote worker.
#[derive(Debug)]
pub(super) struct WorkerEntry {
    pub(super) name: WorkerName,
    /// Kinds of its last claim.
    pub(super) kinds: Vec<u32>,
    /// Number of open claims.
    pub(super) claims: u32,
    /// Number of leases, including promised ones.
    leases: u32,
    /// Time of its last request, on the steady clock in milliseconds. `None` after a restart, until its
    /// first request.
    pub(super) seen_ms: Option<u64>,
}

impl WorkerEntry {
    fn is_idle(&self) -> bool {
        self.claims == 0 && self.leases == 0
    }
}

/// Remote workers by number, in the order of their first requests.
#[derive(Debug, Default)]
pub(super) struct WorkerTable {
    workers: BTreeMap<u64, WorkerEntry>,
    by_name: HashMap<WorkerName, u64>,
    next: u64,
}

impl WorkerTable {
    /// Notes a request of a worker, and returns the worker's number.
    pub(super) fn heard(&mut self, token: &str, name: Option<&str>, now_ms: u64) -> u64 {
        let number = self.enter(Some(token), name, now_ms);
        self.entry(number).seen_ms = Some(now_ms);
        number
    }

    /// Notes a request of a token about a lease of a worker. Returns the number of the worker that has
    /// the lease from now on: another token may have taken it over.
    pub(super) fn heard_of_lease(&mut self, worker: u64, token: &str, now_ms: u64) -> u64 {
        let entry = self.entry(worker);
        if entry.name.token.as_deref() == Some(token) {
            entry.seen_ms = Some(now_ms);
            return worker;
        }
        let name = entry.name.name.clone();
        let other = self.heard(token, name.as_deref(), now_ms);
        self.lease_begins(other);
        self.lease_ends(worker);
        if self.entry(worker).name.token.is_none() && self.entry(worker).is_idle() {
            self.remove(worker);
        }
        other
    }

    /// Notes a lease that has survived a restart, and returns the number of its worker.
    pub(super) fn restore_lease(&mut self, name: Option<&str>, now_ms: u64) -> u64 {
        let number = self.enter(None, name, now_ms);
        self.lease_begins(number);
        number
    }

    /// Returns the number of a worker, which is added if it is not known.
    fn enter(&mut self, token: Option<&str>, name: Option<&str>, now_ms: u64) -> u64 {
        let name = name.map(|name| name[..name.floor_char_boundary(MAX_NAME_BYTES)].to_owned());
        let name = WorkerName { token: token.map(str::to_owned), name };
        if let Some(number) = self.by_name.get(&name) {
            return *number;
        }
        self.forget_old(now_ms);
        if self.workers.len() >= MAX_WORKERS {
            self.forget_one();
        }
        self.next += 1;
        self.by_name.insert(name.clone(), self.next);
        let entry = WorkerEntry { name, kinds: Vec::new(), claims: 0, leases: 0, seen_ms: None };
        self.workers.insert(self.next, entry);
        self.next
    }

    /// Removes the workers that have not been heard of for long.
    pub(super) fn forget_old(&mut self, now_ms: u64) {
        let is_old = |worker: &WorkerEntry| {
            worker.is_idle() && worker.seen_ms.is_none_or(|seen| seen + KEPT_MS <= now_ms)
        };
        let old = self.workers.extract_if(.., |_, worker| is_old(worker));
        for (_, worker) in old {
            self.by_name.remove(&worker.name);
        }
    }

    /// Removes the idle worker that was heard of first.
    fn forget_one(&mut self) {
        let idle = self.workers.iter().filter(|(_, worker)| worker.is_idle());
        if let Some((number, _)) = idle.min_by_key(|(_, worker)| worker.seen_ms) {
            self.remove(*number);
        }
    }

    fn remove(&mut self, number: u64) {
        if let Some(worker) = self.workers.remove(&number) {
            self.by_name.remove(&worker.name);
        }
    }

    fn entry(&mut self, number: u64) -> &mut WorkerEntry {
        self.workers.get_mut(&number).expect("a worker with a lease or a claim stays")
    }

    /// Notes that a worker opens a claim for these kinds.
    pub(super) fn claim_begins(&mut self, number: u64, kinds: &[u32]) {
        let entry = self.entry(number);
        entry.claims += 1;
        kinds.clone_into(&mut entry.kinds);
    }

    /// Notes the end of a claim.
    pub(super) fn claim_ends(&mut self, number: u64, now_ms: u64) {
        let entry = self.entry(number);
        entry.claims -= 1;
        entry.seen_ms = Some(now_ms);
    }

    /// Notes that a lease is promised to a worker.
    pub(super) fn lease_begins(&mut self, number: u64) {
        self.entry(number).leases += 1;
    }

    /// Notes the end of a lease.
    pub(super) fn lease_ends(&mut self, number: u64) {
        self.entry(number).leases -= 1;
    }

    /// Returns the name that a worker gives.
    pub(super) fn name(&self, number: u64) -> Option<&str> {
        self.workers.get(&number)?.name.name.as_deref()
    }

    /// Returns whether a worker gives this name, with a token of that name. The token is not known after a restart, until the worker's
    /// first request.
    pub(super) fn is_named(&self, number: u64, token: &str, name: &str) -> bool {
        self.workers.get(&number).is_some_and(|worker| {
            let WorkerName { token: known, name: given } = &worker.name;
            known.as_deref().is_none_or(|known| known == token) && given.as_deref() == Some(name)
        })
    }

    /// Returns the workers behind this number, in their order.
    pub(super) fn after(&self, number: u64) -> impl Iterator<Item = (u64, &WorkerEntry)> {
        self.workers.range((Excluded(number), Unbounded)).map(|(number, worker)| (*number, worker))
    }

    /// Returns the number of workers with leases or open claims.
    pub(super) fn connected(&self) -> usize {
        self.workers.values().filter(|worker| !worker.is_idle()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(table: &WorkerTable) -> Vec<(Option<&str>, Option<&str>)> {
        let names = table.workers.values().map(|worker| &worker.name);
        names.map(|name| (name.token.as_deref(), name.name.as_deref())).collect()
    }

    #[test]
    fn a_worker_stays_while_it_has_a_lease_or_a_claim_and_a_while_longer() {
        let mut table = WorkerTable::default();
        let [one, two, three] = ["a", "b", "c"].map(|name| table.heard("t", Some(name), 0));
        assert_eq!(table.heard("t", Some("a"), 1), one);
        table.claim_begins(one, &[4]);
        table.lease_begins(two);
        assert_eq!(table.connected(), 2);
        table.forget_old(KEPT_MS + 1);
        assert_eq!(names(&table), [(Some("t"), Some("a")), (Some("t"), Some("b"))]);
        table.claim_ends(one, KEPT_MS + 1);
        table.lease_ends(two);
        table.forget_old(KEPT_MS + 1);
        assert_eq!(names(&table), [(Some("t"), Some("a"))]);
        assert!(table.heard("t", Some("c"), KEPT_MS + 1) > three);
    }

    #[test]
    fn a_lease_that_survives_a_restart_is_its_workers_when_it_is_heard_of() {
        let mut table = WorkerTable::default();
        let [one, other] = [0, 0].map(|now| table.restore_lease(Some("w"), now));
        assert_eq!((one, names(&table)), (other, vec![(None, Some("w"))]));
        let heard = table.heard_of_lease(one, "t", 5);
        assert_eq!(names(&table), [(None, Some("w")), (Some("t"), Some("w"))]);
        assert_eq!(table.heard_of_lease(heard, "t", 6), heard);
        assert_eq!(table.heard_of_lease(other, "t", 7), heard);
        assert_eq!(names(&table), [(Some("t"), Some("w"))]);
        assert_eq!((table.workers[&heard].leases, table.workers[&heard].seen_ms), (2, Some(7)));
    }

    #[test]
    fn the_table_is_bounded_but_for_workers_with_leases() {
        let mut table = WorkerTable::default();
        for number in 0..2 * MAX_WORKERS as u64 {
            let worker = table.heard("t", Some(&format!("w{number}")), number);
            if number < 3 {
                table.lease_begins(worker);
            }
        }
        assert_eq!((table.workers.len(), table.by_name.len()), (MAX_WORKERS, MAX_WORKERS));
        assert_eq!(
            table.after(0).take(4).map(|(number, _)| number).collect::<Vec<_>>()[..3],
            [1, 2, 3]
        );
        let long = "é".repeat(200);
        let worker = table.heard("t", Some(&long), 0);
        assert_eq!(table.name(worker).map(str::len), Some(MAX_NAME_BYTES));
    }
}
