//! Deliveries in memory: which one is next, within the limits of requests at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};
use std::sync::Arc;

use tokio::sync::Notify;

use super::delivery::{Delivery, DeliveryId, MAX_DELAY_MS};

/// Maximum number of deliveries that wait or have failed.
const MAX_KEPT: usize = 100_000;

/// Maximum number of requests at a time, and to one host.
const MAX_IN_FLIGHT: usize = 32;
const MAX_PER_HOST: usize = 4;

/// See the [module](self).
#[derive(Debug, Default)]
pub(in crate::engine) struct DeliveryTable {
    /// All deliveries that are on the disk.
    all: BTreeMap<DeliveryId, Entry>,
    /// Those that wait, and the number of requests, by host. Without hosts that have neither.
    hosts: BTreeMap<String, Host>,
    in_flight: usize,
    /// Number of deliveries on their way to the disk.
    reserved: usize,
    /// Whether the service sends webhooks.
    pub(in crate::engine) is_enabled: bool,
    pub(super) counters: DeliveryCounters,
    /// Notified when a delivery may have become the next.
    pub(super) changed: Arc<Notify>,
}

#[derive(Debug)]
struct Entry {
    delivery: Delivery,
    state: EntryState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EntryState {
    /// Waits until this time on the steady clock, in milliseconds.
    Waiting(u64),
    InFlight,
    Failed,
}

#[derive(Debug, Default)]
struct Host {
    waiting: BTreeSet<(u64, DeliveryId)>,
    in_flight: usize,
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DeliveryCounters {
    pub(super) delivered: u64,
    /// Attempts that failed and will be repeated.
    pub(super) retried: u64,
    pub(super) failed: u64,
    /// Ends of jobs whose webhooks were left out.
    pub(super) dropped: u64,
}

impl DeliveryTable {
    /// Reserves a place for a delivery on its way to the disk. False if there is none: it is left out, and counted.
    pub(super) fn reserve(&mut self) -> bool {
        let is_free = self.all.len() + self.reserved < MAX_KEPT;
        self.reserved += usize::from(is_free);
        self.counters.dropped += u64::from(!is_free);
        is_free
    }

    /// Adds a delivery with a reserved place, which is on the disk now.
    pub(in crate::engine) fn add_reserved(
        &mut self,
        id: DeliveryId,
        delivery: Delivery,
        steady_ms: u64,
    ) {
        self.reserved -= 1;
        self.add(id, delivery, steady_ms);
    }

    /// Adds a delivery whose next attempt is at this time on the steady clock.
    fn add(&mut self, id: DeliveryId, delivery: Delivery, due_ms: u64) {
        let state = match delivery.next {
            Some(_) => EntryState::Waiting(due_ms),
            None => EntryState::Failed,
        };
        self.put(id, Entry { delivery, state });
    }

    /// Adds a delivery of an earlier process. The wall clock may have been set back since, so it waits no longer than it had to
    /// after its last attempt.
    pub(in crate::engine) fn add_recovered(
        &mut self,
        id: DeliveryId,
        delivery: Delivery,
        now_ms: u64,
        steady_ms: u64,
    ) {
        let next = delivery.next.map_or(0, |next| next.0);
        let delay = delivery.failed.map_or(0, |failed| next.saturating_sub(failed.0));
        let left = next.saturating_sub(now_ms).min(delay).min(MAX_DELAY_MS);
        self.add(id, delivery, steady_ms + left);
    }

    fn put(&mut self, id: DeliveryId, entry: Entry) {
        self.remove(id);
        if let EntryState::Waiting(due) = entry.state {
            self.hosts.entry(entry.delivery.host()).or_default().waiting.insert((due, id));
            self.changed.notify_one();
        }
        self.all.insert(id, entry);
    }

    /// Removes a delivery.
    pub(super) fn remove(&mut self, id: DeliveryId) -> Option<Delivery> {
        let Entry { delivery, state } = self.all.remove(&id)?;
        let name = delivery.host();
        if let Some(host) = self.hosts.get_mut(&name) {
            match state {
                EntryState::Waiting(due) => _ = host.waiting.remove(&(due, id)),
                EntryState::InFlight => {
                    host.in_flight -= 1;
                    self.in_flight -= 1;
                    self.changed.notify_one();
                }
                EntryState::Failed => {}
            }
            if host.waiting.is_empty() && host.in_flight == 0 {
                self.hosts.remove(&name);
            }
        }
        Some(delivery)
    }

    /// Returns the first delivery that waits for a host with room, and its time.
    fn first(&self) -> Option<(u64, DeliveryId)> {
        if self.in_flight >= MAX_IN_FLIGHT || !self.is_enabled {
            return None;
        }
        let with_room = self.hosts.values().filter(|host| host.in_flight < MAX_PER_HOST);
        with_room.filter_map(|host| host.waiting.first().copied()).min()
    }

    /// Returns the time of the next delivery on the steady clock; `None` if none can be sent before another one ends.
    pub(super) fn next_due(&self) -> Option<u64> {
        Some(self.first()?.0)
    }

    /// Takes a delivery whose time has come. Its request counts until [`take_back`](Self::take_back) or [`remove`](Self::remove).
    pub(super) fn take_due(&mut self, steady_ms: u64) -> Option<DeliveryId> {
        let (due, id) = self.first().filter(|(due, _)| *due <= steady_ms)?;
        let entry = self.all.get_mut(&id).expect("a delivery that waits is in the table");
        entry.state = EntryState::InFlight;
        let host = self.hosts.get_mut(&entry.delivery.host()).expect("its host has it");
        host.waiting.remove(&(due, id));
        host.in_flight += 1;
        self.in_flight += 1;
        Some(id)
    }

    /// Takes a delivery back after its request, with its next attempt at this time on the steady clock, if it has one.
    pub(super) fn take_back(&mut self, id: DeliveryId, delivery: Delivery, due_ms: u64) {
        self.add(id, delivery, due_ms);
    }

    pub(super) fn get(&self, id: DeliveryId) -> Option<&Delivery> {
        self.all.get(&id).map(|entry| &entry.delivery)
    }

    pub(super) fn is_in_flight(&self, id: DeliveryId) -> bool {
        self.all.get(&id).is_some_and(|entry| entry.state == EntryState::InFlight)
    }

    /// Returns the deliveries below an id, the greatest first.
    pub(super) fn before(
        &self,
        id: Option<DeliveryId>,
    ) -> impl Iterator<Item = (DeliveryId, &Delivery)> {
        let all = match id {
            Some(id) => self.all.range(..id),
            None => self.all.range(..),
        };
        all.rev().map(|(id, entry)| (*id, &entry.delivery))
    }

    /// Returns failed deliveries whose last attempt was before this time, a bounded number.
    pub(in crate::engine) fn failed_before(&self, before_ms: u64, most: usize) -> Vec<DeliveryId> {
        let is_old = |entry: &Entry| {
            entry.state == EntryState::Failed
                && entry.delivery.failed.is_some_and(|failed| failed.0 < before_ms)
        };
        let old = self.all.iter().filter(|(_, entry)| is_old(entry)).map(|(id, _)| *id);
        old.take(most).collect()
    }

    /// Writes the metrics in the text format of Prometheus.
    pub(in crate::engine) fn write_metrics(&self, to: &mut String) -> fmt::Result {
        let DeliveryCounters { delivered, retried, failed, dropped } = self.counters;
        writeln!(
            to,
            "# HELP keylane_webhook_attempts_total Attempts at webhooks since the start."
        )?;
        writeln!(to, "# TYPE keylane_webhook_attempts_total counter")?;
        for (outcome, count) in [("delivered", delivered), ("retried", retried), ("failed", failed)]
        {
            writeln!(to, "keylane_webhook_attempts_total{{outcome=\"{outcome}\"}} {count}")?;
        }
        let help = "Ended jobs whose webhooks were left out, because too many wait or have failed.";
        writeln!(to, "# HELP keylane_webhooks_dropped_total {help}")?;
        writeln!(to, "# TYPE keylane_webhooks_dropped_total counter")?;
        writeln!(to, "keylane_webhooks_dropped_total {dropped}")?;
        let unsent: usize = self.hosts.values().map(|host| host.waiting.len()).sum();
        let waiting = unsent + self.in_flight;
        writeln!(to, "# HELP keylane_webhooks Webhooks that are not delivered, by state.")?;
        writeln!(to, "# TYPE keylane_webhooks gauge")?;
        writeln!(to, "keylane_webhooks{{state=\"waiting\"}} {waiting}")?;
        writeln!(to, "keylane_webhooks{{state=\"failed\"}} {}", self.all.len() - waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::JobId;
    use crate::wire::Timestamp;

    fn id(number: u8) -> DeliveryId {
        DeliveryId { job: JobId([number; 16]), version: 1 }
    }

    fn to(host: &str) -> Delivery {
        Delivery::new(
            "job.succeeded".into(),
            "mail".into(),
            format!("http://{host}/"),
            Timestamp(0),
        )
    }

    fn table() -> DeliveryTable {
        DeliveryTable { is_enabled: true, ..DeliveryTable::default() }
    }

    #[test]
    fn a_host_that_hangs_does_not_delay_another_one() {
        let mut table = table();
        for number in 0..10 {
            table.add(id(number), to("slow"), number.into());
        }
        table.add(id(20), to("other"), 50);
        for number in 0..4 {
            assert_eq!(table.take_due(100), Some(id(number)));
        }
        assert_eq!(table.take_due(49), None);
        assert_eq!(table.next_due(), Some(50));
        assert_eq!(table.take_due(50), Some(id(20)));
        assert_eq!((table.take_due(100), table.next_due()), (None, None));
        table.remove(id(2)).unwrap();
        assert_eq!(table.take_due(100), Some(id(4)));
    }

    #[test]
    fn the_number_of_requests_is_bounded() {
        let mut table = table();
        for number in 0..40 {
            table.add(id(number), to(&format!("host{number}")), 0);
        }
        let taken = std::iter::from_fn(|| table.take_due(0)).count();
        assert_eq!(taken, MAX_IN_FLIGHT);
        table.take_back(id(0), to("host0"), 7);
        assert_eq!(table.take_due(0), Some(id(32)));
    }

    #[test]
    fn places_are_reserved_before_the_write() {
        let mut table = table();
        table.reserved = MAX_KEPT - 2;
        table.add(id(1), to("host"), 0);
        assert!(table.reserve());
        assert!(!table.reserve());
        table.add_reserved(id(2), to("host"), 0);
        assert!(!table.reserve());
        table.remove(id(1)).unwrap();
        assert!(table.reserve());
    }

    #[test]
    fn a_failed_delivery_is_kept_until_it_is_old() {
        let mut table = table();
        let mut failed = to("host");
        assert_eq!(failed.note_failure("x".into(), false, None, Timestamp(500)), None);
        table.add(id(1), failed, 0);
        table.add(id(2), to("host"), 0);
        assert_eq!(table.take_due(1000), Some(id(2)));
        assert_eq!(table.take_due(1000), None);
        assert_eq!(table.failed_before(500, 9), []);
        assert_eq!(table.failed_before(501, 9), [id(1)]);
        let text = |table: &DeliveryTable| {
            let mut text = String::new();
            table.write_metrics(&mut text).unwrap();
            text
        };
        assert!(text(&table).contains("keylane_webhooks{state=\"waiting\"} 1\n"));
        assert!(text(&table).contains("keylane_webhooks{state=\"failed\"} 1\n"));
    }

    #[test]
    fn a_delay_is_not_longer_after_the_clock_was_set_back() {
        let mut table = table();
        let mut failed = to("host");
        failed.note_failure("x".into(), true, None, Timestamp(60_000)).unwrap();
        for (now, left) in [(62_000, 3_000), (65_000, 0), (99_000, 0), (1_000, 5_000)] {
            table.add_recovered(id(1), failed.clone(), now, 100);
            assert_eq!(table.next_due(), Some(100 + left));
        }
        table.add_recovered(id(1), to("host"), 0, 100);
        assert_eq!(table.next_due(), Some(100));
        table.is_enabled = false;
        assert_eq!(table.next_due(), None);
    }
}
