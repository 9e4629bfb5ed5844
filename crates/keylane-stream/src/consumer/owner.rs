//! The one thread that has the source, the trackers, and the say. See the [module](super) for the
//! protocol.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::assignment::Assignment;
use super::attempt::Flight;
use super::failure::Failure;
use super::held::{Held, Room, Taking};
use super::leaving::{Leaving, Stage};
use super::notice::{AfterFailure, Notice};
use super::order::{Lane, NoKey, Order};
use super::report::{Failed, How, Report, Then};
use super::shared::Shared;
use super::survey::{Counts, Survey};
use super::{Ended, Pool, Stopped, Why};
use crate::source::{Assigned, Commit, CommitError, Event, Source, SourceError};
use crate::{Partition, Position};

/// The longest that the source is left alone: it has to keep in touch with a broker.
const MOST_BETWEEN_POLLS: Duration = Duration::from_millis(50);
/// The longest that it is waited for, if nothing else is.
const LONGEST_POLL: Duration = Duration::from_millis(100);
/// The same while the end of an attempt is waited for as well, and nothing could wake the source.
const SHORT_POLL: Duration = Duration::from_millis(2);
/// How many records are asked for at a time: enough to spread what a poll costs.
const RECORDS_A_POLL: usize = 1024;
/// How long the last commit of a partition may take; then it is given up without it.
const LONGEST_LAST_COMMIT: Duration = Duration::from_secs(10);
/// The same when everything should have ended already, at least.
const HURRIED_LAST_COMMIT: Duration = Duration::from_secs(1);
/// How long a transaction is left alone that could not be cut.
const CUT_AGAIN_AFTER: Duration = Duration::from_millis(2);
/// How long the source may take to leave.
const LONGEST_CLOSE: Duration = Duration::from_secs(10);
/// The same when everything should have ended already.
const HURRIED_CLOSE: Duration = Duration::from_secs(1);

/// Who is told what a person may want to know.
pub(super) type Listener = dyn Fn(&Notice) + Send;

/// What was chosen when the consumer was built.
pub(super) struct Plan {
    pub(super) order: Order,
    pub(super) no_key: NoKey,
    /// For each partition.
    pub(super) room: Room,
    pub(super) commit_every: Duration,
    pub(super) commit_after: u64,
    pub(super) stop_within: Duration,
    pub(super) on_notice: Option<Box<Listener>>,
}

pub(super) struct Owner {
    source: Box<dyn Source>,
    pool: Arc<Pool>,
    shared: Arc<Shared>,
    plan: Plan,
    /// All partitions that were ever ours, so that each keeps its slot.
    slots: Vec<Option<Held>>,
    slot_of: HashMap<Partition, usize>,
    /// What is being given up.
    leaving: Vec<Leaving>,
    /// Of the last assignment.
    epoch: u64,
    /// Of the last record without a lane of its own.
    free_lanes: u64,
    counts: Counts,
    /// Why it is to end, once it is.
    ending: Option<Why>,
    /// Until when what runs is awaited, once it is to end.
    stop_by: Option<Instant>,
    /// There is no use in waiting for it.
    source_is_dead: bool,
    /// How many attempts were not awaited at the end.
    abandoned: usize,
    /// What attempts may still run of that were not awaited before.
    given_up: Vec<Arc<Assignment>>,
    stopped: Vec<Stopped>,
    /// Where commits have what handlers made with them: whether something is in the transaction whose record is
    /// not done here, so that it must not be committed.
    tainted: bool,
    /// The transaction is being given up: until the source says that it was, there is none to be cut.
    aborting: bool,
    /// Before that no transaction is cut again that could not be.
    cut_after: Instant,
    polled_at: Instant,
    events: Vec<Event>,
    /// Empty but while it is read.
    reports: Vec<Report>,
    /// Empty but while records are taken on.
    batch: Vec<(Lane, Flight)>,
}

impl Owner {
    pub(super) fn new(
        source: Box<dyn Source>,
        pool: Arc<Pool>,
        shared: Arc<Shared>,
        plan: Plan,
    ) -> Self {
        Owner {
            source,
            pool,
            shared,
            plan,
            slots: Vec::new(),
            slot_of: HashMap::new(),
            leaving: Vec::new(),
            epoch: 0,
            free_lanes: 0,
            counts: Counts::default(),
            ending: None,
            stop_by: None,
            source_is_dead: false,
            abandoned: 0,
            given_up: Vec::new(),
            stopped: Vec::new(),
            tainted: false,
            aborting: false,
            cut_after: Instant::now(),
            polled_at: Instant::now(),
            events: Vec::new(),
            reports: Vec::new(),
            batch: Vec::new(),
        }
    }

    /// Runs until the consumer ends.
    pub(super) fn run(mut self) -> Ended {
        loop {
            self.read_reports();
            self.take_on();
            self.advance_leaving();
            self.commit_what_is_due();
            self.end_if_nothing_is_left();
            if self.ending.is_some() && self.leaving.is_empty() {
                return self.leave();
            }
            self.wait();
            self.handle_events();
        }
    }

    fn leave(mut self) -> Ended {
        let left = self.stop_by.map(|by| by.saturating_duration_since(Instant::now()));
        let within = left.unwrap_or(LONGEST_CLOSE).clamp(HURRIED_CLOSE, LONGEST_CLOSE);
        if let Err(error) = self.source.close(within) {
            self.notice(&Notice::Source(error.to_string()));
        }
        let still_running: usize = self.given_up.iter().map(|given_up| given_up.running()).sum();
        Ended {
            why: self.ending.expect("that is why it leaves"),
            counts: self.counts,
            abandoned: self.abandoned + still_running,
            stopped: self.stopped,
        }
    }

    fn held(&self) -> impl Iterator<Item = &Held> {
        self.slots.iter().flatten()
    }

    fn notice(&self, notice: &Notice) {
        if let Some(tell) = &self.plan.on_notice {
            // What listens is not part of this: it cannot stop it.
            let _ = catch_unwind(AssertUnwindSafe(|| tell(notice)));
        }
    }

    fn read_reports(&mut self) {
        self.shared.mailbox.take(&mut self.reports);
        self.handle_reports();
    }

    fn handle_reports(&mut self) {
        let now = Instant::now();
        let mut reports = std::mem::take(&mut self.reports);
        for report in reports.drain(..) {
            match report {
                Report::Ended { slot, epoch, position, place, how } => {
                    self.ended((slot, epoch), (position, place), how, now);
                }
                Report::Failed(failed) => self.failed(*failed),
                Report::Stop(within) => self.stop(Why::Asked, within),
                Report::Survey(reply) => {
                    // Who no longer waits doesn't want to know.
                    let _ = reply.send(self.survey());
                }
            }
        }
        self.reports = reports;
    }

    /// The partition, if this stretch of owning it still counts.
    fn current(&mut self, slot: usize, epoch: u64) -> Option<&mut Held> {
        let held = self.slots[slot].as_mut()?;
        (held.assignment.epoch == epoch && !held.assignment.is_fenced()).then_some(held)
    }

    fn ended(
        &mut self,
        (slot, epoch): (usize, u64),
        (position, place): (Position, usize),
        how: How,
        now: Instant,
    ) {
        let Some(held) = self.current(slot, epoch) else {
            self.counts.fenced += 1;
            self.tainted |= how == How::Produced;
            return;
        };
        if !held.ended(position, place, now) {
            return;
        }
        match how {
            How::Handled | How::Produced => self.counts.handled += 1,
            How::Skipped => self.counts.skipped += 1,
            How::DeadLettered => self.counts.dead_lettered += 1,
        }
    }

    fn failed(&mut self, failed: Failed) {
        let assignment = failed.cargo.assignment.clone();
        let (position, attempt) = (failed.cargo.delivered.position, failed.attempt);
        let (failure, then) = (failed.failure.clone(), AfterFailure::from(&failed.then));
        if attempt > 0 && !matches!(then, AfterFailure::DeadLetterRefused(_)) {
            self.counts.failed_attempts += 1;
        }
        let partition = assignment.partition.clone();
        let stops = then == AfterFailure::Stop;
        self.notice(&Notice::Failed {
            partition: partition.clone(),
            position,
            attempt,
            failure: failure.clone(),
            then,
        });
        let order = (&self.plan.order.clone(), self.plan.no_key);
        let Some(held) = self.current(assignment.slot, assignment.epoch) else { return };
        held.failed(failed, order);
        if stops {
            let why = Why::Failed { partition, position, failure };
            self.stop(why, self.plan.stop_within);
        }
    }

    /// Begins to end, or hurries up.
    fn stop(&mut self, why: Why, within: Duration) {
        let by = Instant::now() + within;
        self.ending.get_or_insert(why);
        self.stop_by = Some(self.stop_by.map_or(by, |sooner| sooner.min(by)));
        let until = self.last_commit_until(Instant::now());
        for leaving in &mut self.leaving {
            if let Stage::Committing { deadline } = &mut leaving.stage {
                *deadline = until.min(*deadline);
            }
        }
        let left: Vec<_> = self.held().filter(|held| !held.closing).map(slot_of).collect();
        if !left.is_empty() {
            self.begin_leaving(left, by, Vec::new());
        }
    }

    fn begin_leaving(&mut self, slots: Vec<usize>, deadline: Instant, release: Vec<Partition>) {
        for slot in &slots {
            let Some(held) = self.slots[*slot].as_mut() else { continue };
            held.close();
            self.shared.timer.purge(held.assignment.epoch);
        }
        self.leaving.push(Leaving { slots, release, stage: Stage::Awaiting { deadline } });
    }

    /// Takes on what came, as far as there is room, and hands it to the pool.
    fn take_on(&mut self) {
        let now = Instant::now();
        let Plan { order, no_key, room, .. } = &self.plan;
        let mut unfit: Vec<(Flight, Failure)> = Vec::new();
        let batch = &mut self.batch;
        for held in self.slots.iter_mut().flatten() {
            let each = |taking| match taking {
                Taking::In(lane, flight) => batch.push((lane, flight)),
                Taking::Unordered(flight) => {
                    self.free_lanes += 1;
                    batch.push((Lane::Free { number: self.free_lanes }, flight));
                }
                Taking::Unfit(flight, why) => unfit.push((flight, why)),
            };
            self.counts.repeated += held.take_on((order, *no_key, *room), now, each);
            if held.has_buffered() && held.paused.is_none() {
                held.paused = Some(now);
                self.source.pause(&held.assignment.partition);
            } else if held.may_go_on(*room, now) {
                held.paused = None;
                self.source.resume(&held.assignment.partition);
            }
        }
        if !batch.is_empty() {
            // The pool has room for all that the partitions have, and is open while this runs.
            self.pool
                .send_many(batch.drain(..))
                .expect("only the end of this thread closes the pool");
        }
        for (flight, why) in unfit {
            self.shared.unfit(flight, why);
        }
    }

    fn commit_what_is_due(&mut self) {
        let now = Instant::now();
        if self.source.commits_together() {
            return self.commit_together(now);
        }
        let Plan { commit_every, commit_after, .. } = self.plan;
        let mut commits = Vec::new();
        // Those that are wanted back as well: until what runs has ended, another failure would repeat what is done.
        for held in self.slots.iter_mut().flatten() {
            let due = held.commit_due_at(commit_every, commit_after);
            if due.is_some_and(|due| due <= now)
                && let Some(progress) = held.begin_commit(now)
            {
                commits.push(Commit { partition: held.assignment.partition.clone(), progress });
            }
        }
        if !commits.is_empty() {
            self.source.commit(commits);
        }
    }

    /// Commits the progress of all partitions with what was made of their records: all that is in the
    /// transaction, and nothing that is not, is done by what is committed with it. If that cannot be so, it is
    /// given up.
    fn commit_together(&mut self, now: Instant) {
        if self.next_cut().is_none_or(|due| now < due) {
            return;
        }
        if !self.source.cut() {
            self.cut_after = now + CUT_AGAIN_AFTER;
            return;
        }
        // Those whose output is in it have reported before.
        self.read_reports();
        if self.tainted {
            self.aborting = true;
            return self.source.abort();
        }
        let held = self.slots.iter_mut().flatten();
        let commits = held.filter_map(|held| {
            let partition = held.assignment.partition.clone();
            held.begin_commit(now).map(|progress| Commit { partition, progress })
        });
        let commits = commits.collect();
        self.source.commit(commits);
    }

    /// When progress is stored next, if nothing happens before. What waits for the answer to another commit has
    /// no such time, for the answer is an event.
    fn next_commit(&self) -> Option<Instant> {
        if self.source.commits_together() {
            return self.next_cut();
        }
        self.held().filter_map(|held| self.commit_due_at(held)).min()
    }

    /// The same where all of it is stored together.
    fn next_cut(&self) -> Option<Instant> {
        if self.aborting || self.held().any(Held::is_saving) {
            return None;
        }
        if self.tainted {
            return Some(self.cut_after);
        }
        let last = self.leaving.iter().filter(|leaving| leaving.waits_for_source());
        let last = last.flat_map(|leaving| self.of(leaving)).filter_map(Held::savable_at);
        let due = self.held().filter_map(|held| self.commit_due_at(held)).chain(last).min()?;
        Some(due.max(self.cut_after))
    }

    fn commit_due_at(&self, held: &Held) -> Option<Instant> {
        held.commit_due_at(self.plan.commit_every, self.plan.commit_after)
    }

    /// Ends when nothing more can come or end.
    fn end_if_nothing_is_left(&mut self) {
        let room = self.plan.room;
        let is_left =
            self.held().next().is_none() || self.held().any(|held| !held.is_at_its_end(room));
        if self.ending.is_none() && !is_left {
            self.stop(Why::Exhausted, self.plan.stop_within);
        }
    }

    /// Brings what is being given up a step further.
    fn advance_leaving(&mut self) {
        for mut leaving in std::mem::take(&mut self.leaving) {
            if !self.has_left(&mut leaving) {
                self.leaving.push(leaving);
            }
        }
    }

    fn has_left(&mut self, leaving: &mut Leaving) -> bool {
        let now = Instant::now();
        if let Stage::Awaiting { deadline } = leaving.stage {
            if self.awaited_until(leaving, deadline).is_some_and(|until| now < until) {
                return false;
            }
            self.fence(&leaving.slots);
            leaving.stage = Stage::Committing { deadline: self.last_commit_until(now) };
        }
        let Stage::Committing { deadline } = leaving.stage else { return true };
        if !self.is_saved(&leaving.slots, now) && now < deadline && !self.source_is_dead {
            return false;
        }
        for slot in &leaving.slots {
            self.let_go(*slot);
        }
        if !leaving.release.is_empty() {
            self.source.release(&leaving.release);
        }
        true
    }

    /// Until when the last commit of a partition is awaited. If all is to end, some of the time for that is left for
    /// leaving.
    fn last_commit_until(&self, now: Instant) -> Instant {
        let longest = now + LONGEST_LAST_COMMIT;
        let Some(by) = self.stop_by else { return longest };
        let before = by.checked_sub(HURRIED_CLOSE).unwrap_or(now);
        before.max(now + HURRIED_LAST_COMMIT).min(longest)
    }

    /// What is left of these partitions.
    fn of<'a>(&'a self, leaving: &'a Leaving) -> impl Iterator<Item = &'a Held> {
        leaving.slots.iter().filter_map(|slot| self.slots[*slot].as_ref())
    }

    /// Until when what runs of these is awaited; none if nothing does.
    fn awaited_until(&self, leaving: &Leaving, deadline: Instant) -> Option<Instant> {
        let runs = self.of(leaving).any(|held| held.assignment.running() > 0);
        runs.then(|| self.stop_by.map_or(deadline, |by| by.min(deadline)))
    }

    /// When these get a step further, if nothing happens before.
    fn next_step(&self, leaving: &Leaving, now: Instant) -> Instant {
        match leaving.stage {
            Stage::Awaiting { deadline } => self.awaited_until(leaving, deadline).unwrap_or(now),
            Stage::Committing { .. } if self.of(leaving).all(Held::has_nothing_to_save) => now,
            // The cut has its own time.
            Stage::Committing { deadline } if self.source.commits_together() => deadline,
            Stage::Committing { deadline } => {
                self.of(leaving).filter_map(Held::savable_at).fold(deadline, Instant::min)
            }
        }
    }

    /// From now on nothing of these counts.
    fn fence(&mut self, slots: &[usize]) {
        // Those who ended have reported before.
        self.read_reports();
        let now = Instant::now();
        for slot in slots {
            // One that is wanted back while all stops is among those who leave twice.
            let Some(held) = self.slots[*slot].as_ref().filter(|held| !held.assignment.is_fenced())
            else {
                continue;
            };
            held.assignment.fence();
            let running = held.assignment.running();
            self.shared.timer.purge(held.assignment.epoch);
            self.shared.burials.look_again();
            if self.ending.is_some() {
                self.abandoned += running;
            } else {
                self.given_up.retain(|assignment| assignment.running() > 0);
                self.given_up.push(held.assignment.clone());
            }
            let partition = held.assignment.partition.clone();
            if self.ending.is_some() {
                let stopped = held.stopped(now);
                let partition = partition.clone();
                let stopped =
                    stopped.map(|record| Stopped { partition: partition.clone(), record });
                self.stopped.extend(stopped);
            }
            self.notice(&Notice::GivenUp { partition, running });
        }
    }

    /// Whether their last progress is stored; sees to it that it becomes so.
    fn is_saved(&mut self, slots: &[usize], now: Instant) -> bool {
        let together = self.source.commits_together();
        let mut commits = Vec::new();
        let mut saved = true;
        for slot in slots {
            let Some(held) = self.slots[*slot].as_mut() else { continue };
            if !together && let Some(progress) = held.begin_commit(now) {
                commits.push(Commit { partition: held.assignment.partition.clone(), progress });
            }
            saved &= held.has_nothing_to_save();
        }
        if !commits.is_empty() {
            self.source.commit(commits);
        }
        saved
    }

    fn let_go(&mut self, slot: usize) {
        let held = self.slots[slot].take();
        self.tainted |= held.as_ref().is_some_and(Held::is_unsaved);
        // Its turns go with it: who is behind them finds the gate closed.
        drop(held);
    }

    /// Waits for the source, for the ends of attempts, or for both.
    fn wait(&mut self) {
        let now = Instant::now();
        let timeout = self.next_due(now).saturating_duration_since(now).min(LONGEST_POLL);
        if !self.waits_for_ends() {
            self.poll(timeout);
        } else if self.waits_for_source() {
            self.wait_for_both(timeout);
        } else if now.duration_since(self.polled_at) >= MOST_BETWEEN_POLLS {
            self.poll(Duration::ZERO);
        } else {
            self.shared.mailbox.wait(&mut self.reports, timeout.min(MOST_BETWEEN_POLLS));
            self.handle_reports();
        }
    }

    fn wait_for_both(&mut self, timeout: Duration) {
        if !self.shared.mailbox.has_waker() {
            return self.poll(timeout.min(SHORT_POLL));
        }
        let news = self.shared.mailbox.arm_or_take(&mut self.reports);
        self.poll(if news { Duration::ZERO } else { timeout });
        self.handle_reports();
    }

    /// Whether the end of an attempt makes room that is wanted, makes a commit due, or is the last one.
    fn waits_for_ends(&self) -> bool {
        let wanted = |held: &Held| {
            let waits = held.has_buffered() || held.paused.is_some() || held.exhausted;
            !held.closing && (waits || held.can_be_due(self.plan.commit_after))
        };
        self.leaving.iter().any(Leaving::is_awaiting) || self.held().any(wanted)
    }

    /// Whether the source has something to say that matters. One that is dead has not, and would not wait.
    fn waits_for_source(&self) -> bool {
        let takes = |held: &Held| {
            let more = held.paused.is_none() && !held.exhausted && !held.closing;
            // What came of a commit is an event, and the next one waits for it.
            more || held.is_saving()
        };
        let wanted = self.leaving.iter().any(Leaving::waits_for_source)
            || self.held().next().is_none()
            || self.held().any(takes);
        wanted && !self.source_is_dead
    }

    /// When there is something to do even if nothing happens. If that is now, the next round does it: what waits
    /// for an answer, or for the end of a pause, is not due, or the rounds would follow one another in vain.
    fn next_due(&self, now: Instant) -> Instant {
        let steps = self.leaving.iter().map(|leaving| self.next_step(leaving, now));
        steps.chain(self.next_commit()).min().unwrap_or(now + LONGEST_POLL)
    }

    fn poll(&mut self, timeout: Duration) {
        let most = if self.ending.is_some() { 0 } else { RECORDS_A_POLL };
        let polled = self.source.poll(timeout, most, &mut self.events);
        self.polled_at = Instant::now();
        if let Err(error) = polled {
            self.source_failed(error);
        }
    }

    /// What can still be stored is stored.
    fn source_failed(&mut self, error: SourceError) {
        if self.ending.is_none() {
            self.stop(Why::Source(error), self.plan.stop_within);
        } else {
            self.source_is_dead = true;
        }
    }

    fn handle_events(&mut self) {
        let mut events = std::mem::take(&mut self.events);
        let moves = |event: &Event| {
            matches!(event, Event::Assigned(_) | Event::Revoked(_) | Event::Lost(_))
        };
        self.counts.rebalances += u64::from(events.iter().any(moves));
        for event in events.drain(..) {
            match event {
                Event::Assigned(assigned) => self.assigned(&assigned),
                Event::Records { partition, records } => {
                    self.with(&partition, |held| held.came(records));
                }
                Event::Reached { partition, position } => {
                    self.with(&partition, |held| held.reached(position));
                }
                Event::Missed { positions, .. } => self.counts.missed += positions,
                Event::Exhausted(partition) => {
                    self.with(&partition, |held| held.exhausted = true);
                }
                Event::Committed { partition, result } => self.committed(&partition, result),
                Event::Revoked(partitions) => self.revoked(partitions),
                Event::Lost(partitions) => self.lost(&partitions),
                Event::Aborted => {
                    self.tainted = false;
                    self.aborting = false;
                }
                Event::Notice(text) => self.notice(&Notice::Source(text)),
            }
        }
        self.events = events;
    }

    /// Does something with a partition, if it is ours.
    fn with(&mut self, partition: &Partition, act: impl FnOnce(&mut Held)) {
        let slot = self.slot_of.get(partition).copied();
        if let Some(held) = slot.and_then(|slot| self.slots[slot].as_mut()) {
            act(held);
        }
    }

    fn assigned(&mut self, assigned: &Assigned) {
        if self.ending.is_some() {
            return;
        }
        let partition = &assigned.partition;
        let slot = *self.slot_of.entry(partition.clone()).or_insert_with(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        if self.slots[slot].is_some() {
            // It was never said to be lost, but what is to be done is what was said last.
            self.lost(std::slice::from_ref(partition));
        }
        self.epoch += 1;
        let assignment = Assignment::new(partition.clone(), slot, self.epoch);
        self.slots[slot] = Some(Held::new(assigned, assignment, Instant::now()));
        self.notice(&Notice::Assigned(partition.clone()));
    }

    fn committed(&mut self, partition: &Partition, result: Result<(), CommitError>) {
        match &result {
            Ok(()) => self.counts.commits += 1,
            Err(_) => self.counts.failed_commits += 1,
        }
        self.with(partition, |held| {
            held.committed(&result);
        });
        if let Err(error) = result {
            self.notice(&Notice::NotCommitted { partition: partition.clone(), error });
        }
    }

    fn revoked(&mut self, partitions: Vec<Partition>) {
        let slots = partitions.iter().filter_map(|partition| self.slot_of.get(partition).copied());
        // Those that are leaving already are awaited for this as well: only then are they released.
        let slots: Vec<_> = slots.filter(|slot| self.slots[*slot].is_some()).collect();
        self.begin_leaving(slots, Instant::now() + self.plan.stop_within, partitions);
    }

    fn lost(&mut self, partitions: &[Partition]) {
        let slots = partitions.iter().filter_map(|partition| self.slot_of.get(partition).copied());
        let slots: Vec<_> = slots.filter(|slot| self.slots[*slot].is_some()).collect();
        self.fence(&slots);
        for leaving in &mut self.leaving {
            leaving.forget(&slots, partitions);
        }
        for slot in slots {
            self.let_go(slot);
        }
    }

    fn survey(&self) -> Survey {
        let now = Instant::now();
        let surveyed = self.held().map(|held| {
            held.survey(self.plan.room, self.source.end(&held.assignment.partition), now)
        });
        Survey {
            partitions: surveyed.collect(),
            counts: self.counts,
            stopping: self.ending.is_some(),
            ready: self.source.is_ready(),
            unreachable: self
                .source
                .unreachable_since()
                .map(|since| now.saturating_duration_since(since)),
            times: self.shared.times.snapshot(),
        }
    }
}

fn slot_of(held: &Held) -> usize {
    held.assignment.slot
}

impl From<&Then> for AfterFailure {
    fn from(then: &Then) -> Self {
        match then {
            Then::Retry(_) => AfterFailure::Retry,
            Then::Skip => AfterFailure::Skip,
            Then::DeadLetter => AfterFailure::DeadLetter,
            Then::NotBuried(why) => AfterFailure::DeadLetterRefused(why.clone()),
            Then::StopKey(_) => AfterFailure::StopKey,
            Then::StopAll(_) => AfterFailure::Stop,
        }
    }
}
