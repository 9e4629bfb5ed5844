//! What the checker knows at a moment of the history.

use std::collections::BTreeMap;

use super::super::history::{Claim, Place, Scope};
use super::super::settings::Settings;
use super::super::source::UNKEYED;

pub(super) struct State<'a> {
    pub(super) settings: &'a Settings,
    pub(super) at: u64,
    /// Records by partition and position.
    pub(super) records: BTreeMap<(u32, u64), Record>,
    /// Processes by number.
    pub(super) members: Vec<Member>,
    /// Stored progress by partition.
    pub(super) stored: BTreeMap<u32, Claim>,
    pub(super) is_healed: bool,
    pub(super) is_finished: bool,
    pub(super) broken: Vec<String>,
}

pub(super) struct Record {
    pub(super) place: Place,
    /// Number of the key that its order is kept for.
    pub(super) key: u8,
    /// Number of its own key.
    pub(super) own_key: u8,
    /// Its handler has succeeded, its dead letter is acknowledged, or it was skipped.
    pub(super) is_resolved: bool,
    /// Time of the clean end of a tenancy that has resolved it.
    pub(super) settled_at: Option<u64>,
    /// Number of committed outputs.
    pub(super) published: u32,
    /// A dead letter of it was written, or it was skipped, so it need not have output.
    pub(super) is_given_up: bool,
    /// Its running attempts, by process.
    pub(super) running: Vec<usize>,
}

#[derive(Default)]
pub(super) struct Member {
    /// Assigned partitions.
    pub(super) tenancies: BTreeMap<u32, Tenancy>,
    /// Deadline of the running attempts of an orderly stop.
    pub(super) stop_by: Option<u64>,
    /// Earlier deadline that it has if it stopped by itself before it learned that it was told to.
    pub(super) may_stop_by: Option<u64>,
    /// It had no connection or did not run for a while.
    pub(super) is_disturbed: bool,
    /// What the operator has paused.
    pub(super) paused: Vec<Scope>,
    /// Records may have waited with their turns, which begin at once when they may.
    pub(super) has_paused: bool,
    /// Start of the last first attempt, of all and by key.
    pub(super) last_start: Option<u64>,
    pub(super) last_of_key: BTreeMap<(Option<(u32, u64)>, u8), u64>,
    pub(super) has_ended: bool,
}

/// Time during which a process has a partition.
#[derive(Default)]
pub(super) struct Tenancy {
    pub(super) begun_at: u64,
    /// Progress at its begin.
    pub(super) begin: Claim,
    pub(super) attempts: BTreeMap<u64, Attempts>,
    /// Resolved positions, and when they were.
    pub(super) resolved: BTreeMap<u64, u64>,
    /// A commit was sent and not answered.
    pub(super) is_committing: bool,
    /// The map of some commit was too long, so a later one may claim less.
    pub(super) is_shortened: bool,
    pub(super) revoked_at: Option<u64>,
}

/// Attempts at a record in a tenancy.
#[derive(Default)]
pub(super) struct Attempts {
    pub(super) failed: u32,
    pub(super) failed_at: u64,
    pub(super) is_running: bool,
    /// Number of failed attempts after which the operator wanted the next one at once.
    pub(super) retried_after: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TenancyEnd {
    /// The progress was committed.
    Clean,
    /// The process was killed, or lost the partition.
    Unclean,
}

impl<'a> State<'a> {
    pub(super) fn new(settings: &'a Settings) -> Self {
        State {
            settings,
            at: 0,
            records: BTreeMap::new(),
            members: Vec::new(),
            stored: BTreeMap::new(),
            is_healed: false,
            is_finished: false,
            broken: Vec::new(),
        }
    }

    pub(super) fn fail(&mut self, what: String) {
        let ms = self.at / 1000;
        self.broken.push(format!("{:5}.{:03} {what}", ms / 1000, ms % 1000));
    }

    pub(super) fn produced(&mut self, place: Place, key: u8) {
        let own_key = key;
        // Records of a partition that is handled one by one have one key, as it were.
        let key = if self.settings.by_partition { UNKEYED } else { key };
        let record = Record {
            place,
            key,
            own_key,
            is_resolved: false,
            settled_at: None,
            published: 0,
            is_given_up: false,
            running: Vec::new(),
        };
        self.records.insert((place.partition, place.position), record);
    }

    pub(super) fn opened(&mut self, member: usize) {
        assert_eq!(member, self.members.len(), "processes are numbered from 0");
        self.members.push(Member::default());
    }

    pub(super) fn assigned(&mut self, member: usize, partition: u32, claim: Claim) {
        let stored = self.stored.get(&partition).cloned().unwrap_or_default();
        if stored != claim {
            self.fail(format!("{partition} begins at {claim:?}, and {stored:?} is stored"));
        }
        let tenancy = Tenancy { begun_at: self.at, begin: claim, ..Tenancy::default() };
        let earlier = self.members[member].tenancies.insert(partition, tenancy);
        if earlier.is_some() {
            self.fail(format!("process {member} has {partition} already"));
        }
    }

    /// Sets the deadline of the running attempts of a process that stops, in microseconds from now.
    pub(super) fn stop(&mut self, member: usize, within: u64) {
        let by = self.at + within;
        let stop_by = &mut self.members[member].stop_by;
        *stop_by = Some(stop_by.map_or(by, |sooner| sooner.min(by)));
    }

    /// Returns whether a process ends its attempts before other processes have its partitions. One
    /// without a connection, or that does not run, learns too late that it has lost them.
    pub(super) fn must_end_attempts(&self, member: usize) -> bool {
        self.settings.is_cancellable && !self.members[member].is_disturbed
    }

    /// Sets the deadline of a process that stops by itself.
    pub(super) fn stop_by_itself(&mut self, member: usize) {
        let within = u64::try_from(self.settings.shutdown_timeout.as_micros()).unwrap();
        match self.members[member].stop_by {
            None => self.stop(member, within),
            Some(by) => {
                let may = &mut self.members[member].may_stop_by;
                *may = Some(may.unwrap_or(by).min(self.at + within));
            }
        }
    }

    pub(super) fn disturbed(&mut self, member: usize) {
        self.members[member].is_disturbed = true;
    }

    /// Returns the tenancy of a process, if the partition is assigned to it.
    pub(super) fn tenancy(&mut self, member: usize, partition: u32) -> Option<&mut Tenancy> {
        self.members[member].tenancies.get_mut(&partition)
    }

    pub(super) fn record(&mut self, place: Place) -> Option<&mut Record> {
        self.records.get_mut(&(place.partition, place.position))
    }

    /// Resolves a record in the tenancy of a process, if it has the partition.
    pub(super) fn resolve(&mut self, member: usize, place: Place) {
        if let Some(record) = self.record(place) {
            record.is_resolved = true;
        }
        let at = self.at;
        if let Some(tenancy) = self.tenancy(member, place.partition) {
            tenancy.resolved.insert(place.position, at);
        }
    }

    /// Returns the positions that a tenancy has resolved before the deadline of its attempts. Those
    /// that were resolved after it may count or not.
    pub(super) fn resolved_in_time(&self, member: usize, partition: u32) -> Vec<u64> {
        let timeout = u64::try_from(self.settings.shutdown_timeout.as_micros()).unwrap();
        let Some(tenancy) = self.members[member].tenancies.get(&partition) else {
            return Vec::new();
        };
        let revoked = tenancy.revoked_at.map(|at| at + timeout);
        let Member { stop_by, may_stop_by, .. } = self.members[member];
        let until = revoked.into_iter().chain(stop_by).chain(may_stop_by).min();
        let in_time = tenancy.resolved.iter().filter(|(_, at)| until.is_none_or(|by| **at < by));
        in_time.map(|(position, _)| *position).collect()
    }

    pub(super) fn end_tenancy(&mut self, member: usize, partition: u32, end: TenancyEnd) {
        let in_time = self.resolved_in_time(member, partition);
        let Some(tenancy) = self.members[member].tenancies.remove(&partition) else { return };
        // What a clean end has stored is never handled again.
        let is_clean = end == TenancyEnd::Clean && !self.members[member].is_disturbed;
        let is_settled = is_clean && !tenancy.is_shortened;
        let at = self.at;
        for position in in_time.into_iter().filter(|_| is_settled) {
            if let Some(record) = self.record(Place { partition, position }) {
                record.settled_at.get_or_insert(at);
            }
        }
    }

    /// Ends all tenancies and attempts of a process.
    pub(super) fn end_member(&mut self, member: usize, end: TenancyEnd) {
        let partitions: Vec<_> = self.members[member].tenancies.keys().copied().collect();
        partitions.into_iter().for_each(|partition| self.end_tenancy(member, partition, end));
        self.members[member].has_ended = true;
        for record in self.records.values_mut() {
            record.running.retain(|running| *running != member);
        }
    }
}
