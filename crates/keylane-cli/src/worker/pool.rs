//! Pool of workers: gives records to slots, writes lines to children, and checks that they answer.

use std::io::{self, Write};
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::process::ChildProcesses;

use super::affinity::KeyAffinity;
use super::observer::RecordObserver;
use super::placement::WorkerKeys;
use super::slot::{ChildPhase, WorkerSlot};
use super::slot_table::SlotTable;
use super::worker_record::{NewRecord, PendingRecord};

/// Children in a row that may end without an answer before the command is
/// held to be wrong: one crash can be bad luck, three are not.
const MAX_FRUITLESS: u32 = 3;

/// Time without an answer after which a child may be withholding answers.
const SILENCE: Duration = Duration::from_secs(5);

/// All slots and their shared state.
#[derive(Debug)]
pub(crate) struct WorkerPool<E: RecordObserver> {
    pub(super) table: Mutex<SlotTable<E::Ticket>>,
    /// Notifies dispatchers: a slot may have capacity, or starts have stopped.
    pub(super) room: Condvar,
    /// Notifies slot_threads: an empty slot has a record, or the run is over.
    pub(super) wanted: Condvar,
    pub(crate) children: Arc<ChildProcesses>,
    pub(crate) observer: E,
    /// Timeout of a child's oldest line; then the child is ended.
    answer_within: Option<Duration>,
    /// Children of a slot in a row that may end without an answer before the command is held to be
    /// wrong.
    pub(super) max_fruitless: u32,
    /// The command to start; locked because building a process changes it.
    pub(super) command: Mutex<Command>,
}

impl<E: RecordObserver> WorkerPool<E> {
    pub(crate) fn new(
        jobs: usize,
        placement: WorkerKeys,
        command: Command,
        children: Arc<ChildProcesses>,
        observer: E,
    ) -> Self {
        let now = Instant::now();
        let slots = (0..jobs).map(|_| WorkerSlot::new(now)).collect();
        Self {
            table: Mutex::new(SlotTable {
                slots,
                placement,
                affinity: KeyAffinity::default(),
                follows: true,
                waiting: 0,
                over: false,
                hinted: false,
                lost_states: 0,
            }),
            room: Condvar::new(),
            wanted: Condvar::new(),
            children,
            observer,
            answer_within: None,
            max_fruitless: MAX_FRUITLESS,
            command: Mutex::new(command),
        }
    }

    /// Sets the timeout of an answer, which [`check_health`](Self::check_health) enforces.
    pub(crate) fn answer_within(mut self, time: Option<Duration>) -> Self {
        self.answer_within = time;
        self
    }

    /// Tolerates the ends of children by records with that many attempts each; 0 is without a limit.
    pub(crate) fn attempts(mut self, attempts: u32) -> Self {
        self.max_fruitless = match attempts {
            0 => u32::MAX,
            attempts => MAX_FRUITLESS.saturating_mul(attempts),
        };
        self
    }

    /// Keeps the turn of each record until its answer, so that observers of turns see the duration
    /// of records. A hot key then takes a round trip per record.
    pub(crate) fn keep_turns(self) -> Self {
        self.lock().follows = false;
        self
    }

    /// Starts the slot_threads.
    pub(crate) fn spawn(self: &Arc<Self>, jobs: usize) -> anyhow::Result<Vec<JoinHandle<()>>> {
        let spawn = |index| {
            let pool = Arc::clone(self);
            Ok(thread::Builder::new()
                .name(format!("keylane-slot-{index}"))
                .spawn(move || pool.run_slot(index))?)
        };
        (0..jobs).map(spawn).collect()
    }

    /// Gives a record to the slot of its key. Without such a slot, to the least busy one; waits
    /// while none has capacity.
    pub(crate) fn dispatch(self: &Arc<Self>, record: NewRecord<'_, E::Ticket>) {
        let mut table = self.lock();
        let index = loop {
            if self.observer.is_stopping() || self.observer.is_cancelled(&record.ticket) {
                drop(table);
                return self.observer.not_run(record.ticket);
            }
            if let Some(index) = table.place_for(&record) {
                break index;
            }
            table.waiting += 1;
            table = self.room.wait(table).expect("no holder of the lock panics");
            table.waiting -= 1;
        };
        self.observer.started();
        let given_back = table.enter(index, record);
        if matches!(table.slots[index].phase, ChildPhase::Empty) {
            self.wanted.notify_all();
        }
        self.write_without_blocking(index, table);
        drop(given_back);
    }

    /// Writes due lines; in a thread of its own if that may block.
    pub(super) fn write_without_blocking(
        self: &Arc<Self>,
        index: usize,
        table: MutexGuard<'_, SlotTable<E::Ticket>>,
    ) {
        if !table.slots[index].may_block() {
            return self.write_due(index, table);
        }
        drop(table);
        let pool = Arc::clone(self);
        thread::spawn(move || pool.write_due(index, pool.lock()));
    }

    /// Writes the slot's outbox to its child for as long as that is due.
    pub(super) fn write_due<'c>(
        &'c self,
        index: usize,
        mut table: MutexGuard<'c, SlotTable<E::Ticket>>,
    ) {
        while let Some((pipe, lines)) = table.slots[index].begin_write(Instant::now()) {
            drop(table);
            // So that the child gets all of these lines or none, even if this process is killed.
            let written = if keylane_process::widen_pipe(&*pipe, lines.len()) {
                // A child that has closed its input is about to end; its slot thread
                // sees that and reports the records it had.
                let _ = (&*pipe).write_all(&lines);
                Ok(())
            } else {
                keylane_process::feed(&*pipe, &lines)
            };
            drop(pipe);
            if let Err(error) = written {
                let group = self.lock().slots[index].group;
                self.end_unfed(group, &error);
            }
            table = self.lock();
            table.slots[index].end_write(lines);
        }
        if table.over {
            table.slots[index].close_input();
        }
    }

    /// Kills a child that may have got a part of a line. Its records have failed.
    fn end_unfed(&self, group: Option<Pid>, error: &io::Error) {
        self.observer.print(&format_args!(
            "a worker is ended, because its input could not be written as a whole: {error}"
        ));
        group.inspect(|group| self.children.signal(*group, Signal::KILL));
    }

    /// Unblocks the keys of completed records.
    pub(super) fn release(&self, records: &mut Vec<PendingRecord<E::Ticket>>) {
        if records.iter().any(|record| record.is_pinned) {
            let mut table = self.lock();
            for record in records.iter().filter(|record| record.is_pinned) {
                table.affinity.unpin(&record.key);
            }
        }
        records.clear();
    }

    /// Abandons records that no child has received.
    pub(crate) fn stop(&self) {
        let mut withdrawn = Vec::new();
        let mut table = self.lock();
        for slot in &mut table.slots {
            slot.withdraw(&mut withdrawn);
        }
        drop(table);
        self.room.notify_all();
        self.observer.withdrawn(&mut withdrawn);
        self.release(&mut withdrawn);
    }

    /// Ends the child that has a record, with this signal to its group, or abandons the record if no
    /// child has received it. Records that the child has not received go to another one.
    #[cfg(feature = "consume")]
    pub(crate) fn cancel(&self, is_it: impl Fn(&E::Ticket) -> bool, signal: Signal) {
        let mut withdrawn = Vec::new();
        let mut table = self.lock();
        let groups = table.slots.iter_mut().filter_map(|slot| slot.cancel(&is_it, &mut withdrawn));
        groups.for_each(|group| self.children.signal(group, signal));
        drop(table);
        // A dispatcher may wait with the record.
        self.room.notify_all();
        self.observer.withdrawn(&mut withdrawn);
        self.release(&mut withdrawn);
    }

    /// Reports the number of children whose state of keys was lost, at the end.
    pub(crate) fn report_lost_states(&self) {
        let count = self.lock().lost_states;
        if count > 0 {
            let workers = if count == 1 { "worker" } else { "workers" };
            self.observer.print(&format_args!("state of keys lost: {count} {workers} ended early"));
        }
    }

    /// Lets all children go: their input ends, and no other is started.
    pub(crate) fn close(&self) {
        let mut table = self.lock();
        table.over = true;
        table.slots.iter_mut().for_each(WorkerSlot::close_input);
        drop(table);
        self.wanted.notify_all();
    }

    /// Checks children that do not answer. Once the whole input was read and `unfinished` records
    /// are left, a child whose input ends must answer its records: at once if no further record can
    /// come, else after a while.
    pub(crate) fn check_health(
        &self,
        input_ended: bool,
        unfinished: impl FnOnce() -> usize,
        now: Instant,
    ) {
        let entered: usize = self.lock().slots.iter().map(WorkerSlot::turns_held).sum();
        let nothing_else = input_ended && entered == unfinished();
        let mut table = self.lock();
        let placement = table.placement;
        let mut silent = None;
        let mut overdue = Vec::new();
        for slot in &mut table.slots {
            if self
                .answer_within
                .is_some_and(|time| slot.sent() > 0 && slot.silent_for(now) >= time)
            {
                let name = slot.oldest_sent().map(|record| self.observer.name(&record.ticket));
                overdue.extend(slot.group.zip(name));
            }
            let is_silent = slot.sent() > 0 && slot.silent_for(now) >= SILENCE;
            if is_silent {
                silent = slot.oldest_sent().map(|record| self.observer.name(&record.ticket));
            }
            // A child that is slow, and not silent, must keep the state of its keys.
            if input_ended && is_silent && placement == WorkerKeys::Any {
                slot.leave();
            } else if nothing_else {
                slot.close_input();
            }
        }
        let silent = silent.filter(|_| !table.hinted);
        table.hinted |= silent.is_some();
        drop(table);
        for (group, record) in overdue {
            self.observer
                .print(&format_args!("a worker has not answered {record} in time; it is ended"));
            self.children.signal(group, Signal::KILL);
        }
        if let Some(record) = silent {
            self.observer.print(&format_args!(
                "note: a worker has not answered {record} for {} s; if it \
                 keeps its input or output back, run it unbuffered (sed -u, python -u, grep \
                 --line-buffered, mawk -W interactive); --worker-timeout ends one that \
                 does not answer",
                SILENCE.as_secs()
            ));
        }
    }

    /// Reports an error that makes the workers useless. Returns whether the run ends.
    pub(super) fn on_fatal(&self, error: anyhow::Error) -> bool {
        let over = self.observer.on_fatal(error);
        self.room.notify_all();
        over
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, SlotTable<E::Ticket>> {
        self.table.lock().expect("no holder of the lock panics")
    }
}
