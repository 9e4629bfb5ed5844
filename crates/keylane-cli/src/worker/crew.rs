//! The table of slots, and the dispatchers' part: choosing a slot for a record.

use std::io::Write;
use std::process::Command;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::key::Key;
use crate::ledger::{Ledger, Place};
use crate::process::Children;
use crate::run::{Cause, Event, Turn};

use super::homes::Homes;
use super::slot::{Pending, Phase, Slot};

/// A child that answers nothing for so long may be keeping its answers back.
const SILENCE: Duration = Duration::from_secs(5);

/// All slots and what they share.
#[derive(Debug)]
pub(crate) struct Crew {
    pub(super) table: Mutex<Table>,
    /// Told to dispatchers: a slot may have room, or nothing may start.
    pub(super) room: Condvar,
    /// Told to attendants: an empty slot has a record, or the run is over.
    pub(super) wanted: Condvar,
    pub(crate) children: Children,
    pub(crate) ledger: Arc<Ledger>,
    pub(super) events: Sender<Event>,
    /// The command to start; locked because building a process changes it.
    pub(super) command: Mutex<Command>,
}

#[derive(Debug)]
pub(super) struct Table {
    pub(super) slots: Vec<Slot>,
    pub(super) homes: Homes,
    /// Dispatchers that wait for room.
    pub(super) waiting: usize,
    /// True once no record will come any more.
    pub(super) over: bool,
    /// True once the user was told about a silent child.
    hinted: bool,
}

impl Crew {
    pub(crate) fn new(
        jobs: usize,
        command: Command,
        children: Children,
        ledger: Arc<Ledger>,
        events: Sender<Event>,
    ) -> Self {
        let now = Instant::now();
        let slots = (0..jobs).map(|_| Slot::new(now)).collect();
        Self {
            table: Mutex::new(Table {
                slots,
                homes: Homes::default(),
                waiting: 0,
                over: false,
                hinted: false,
            }),
            room: Condvar::new(),
            wanted: Condvar::new(),
            children,
            ledger,
            events,
            command: Mutex::new(command),
        }
    }

    /// Starts the attendants.
    pub(crate) fn hire(self: &Arc<Self>, jobs: usize) -> anyhow::Result<Vec<JoinHandle<()>>> {
        let hire = |index| {
            let crew = Arc::clone(self);
            Ok(thread::Builder::new()
                .name(format!("keylane-slot-{index}"))
                .spawn(move || crew.attend(index))?)
        };
        (0..jobs).map(hire).collect()
    }

    /// Gives a record to the least busy slot; waits while none has room.
    pub(crate) fn dispatch(self: &Arc<Self>, place: Place, key: &Key, line: &[u8], turn: Turn) {
        let mut table = self.lock();
        let index = loop {
            if self.ledger.is_stopping() {
                return self.ledger.not_run(1);
            }
            if let Some(index) = table.place_for(key, line.len()) {
                break index;
            }
            table.waiting += 1;
            table = self.room.wait(table).expect("no holder of the lock panics");
            table.waiting -= 1;
        };
        self.ledger.started();
        let given_back = table.enter(index, place, key, line, turn);
        if matches!(table.slots[index].phase, Phase::Empty) {
            self.wanted.notify_all();
        }
        self.write_without_blocking(index, table);
        drop(given_back);
    }

    /// Writes what is due; from a thread of its own if that may block.
    pub(super) fn write_without_blocking(
        self: &Arc<Self>,
        index: usize,
        table: MutexGuard<'_, Table>,
    ) {
        if !table.slots[index].may_block() {
            return self.write_due(index, table);
        }
        drop(table);
        let crew = Arc::clone(self);
        thread::spawn(move || crew.write_due(index, crew.lock()));
    }

    /// Writes the slot's outbox to its child for as long as that is due.
    pub(super) fn write_due<'c>(&'c self, index: usize, mut table: MutexGuard<'c, Table>) {
        while let Some((pipe, lines)) = table.slots[index].begin_write(Instant::now()) {
            drop(table);
            // A child that has closed its input is about to end; its attendant
            // sees that and reports the records it had.
            let _ = (&*pipe).write_all(&lines);
            drop(pipe);
            table = self.lock();
            table.slots[index].end_write(lines);
        }
        if table.over {
            table.slots[index].close_input();
        }
    }

    /// Lets keys go on whose records have been dealt with.
    pub(super) fn release(&self, records: &mut Vec<Pending>) {
        if records.iter().any(Pending::is_at_home) {
            let mut table = self.lock();
            for record in records.iter().filter(|record| record.is_at_home()) {
                table.homes.moved_out(&record.key);
            }
        }
        records.clear();
    }

    /// Gives up what no child has seen yet.
    pub(crate) fn stop(&self) {
        let mut withdrawn = Vec::new();
        let mut table = self.lock();
        for slot in &mut table.slots {
            slot.withdraw(&mut withdrawn);
        }
        drop(table);
        self.room.notify_all();
        self.ledger.withdrawn(withdrawn.len() as u64);
        self.release(&mut withdrawn);
    }

    /// Lets all children go: their input ends, and no other is started.
    pub(crate) fn dismiss(&self) {
        let mut table = self.lock();
        table.over = true;
        table.slots.iter_mut().for_each(Slot::close_input);
        drop(table);
        self.wanted.notify_all();
    }

    /// Looks after children that do not answer. Once all of the input was read
    /// and `unfinished` records are left, a child whose input ends must answer
    /// what it has: at once if no record is left for it, else after a while.
    pub(crate) fn look_after(
        &self,
        input_ended: bool,
        unfinished: impl FnOnce() -> usize,
        now: Instant,
    ) {
        let entered: usize = self.lock().slots.iter().map(Slot::turns_held).sum();
        let nothing_else = input_ended && entered == unfinished();
        let mut table = self.lock();
        let mut silent = None;
        for slot in &mut table.slots {
            let is_silent = slot.sent() > 0 && slot.silent_for(now) >= SILENCE;
            if is_silent {
                silent = slot.oldest_sent().map(|record| record.place.clone());
            }
            if input_ended && is_silent {
                slot.leave();
            } else if nothing_else {
                slot.close_input();
            }
        }
        let silent = silent.filter(|_| !table.hinted);
        table.hinted |= silent.is_some();
        drop(table);
        if let Some(Place { number, line }) = silent {
            self.ledger.output.say(format_args!(
                "note: a worker has not answered record {number} (line {line}) for {} s; if it \
                 keeps its output back, run it unbuffered (sed -u, python -u, grep \
                 --line-buffered)",
                SILENCE.as_secs()
            ));
        }
    }

    /// Ends the run because of its workers.
    pub(super) fn fail(&self, error: anyhow::Error) {
        self.ledger.stop();
        // The supervisor may have ended the run already.
        let _ = self.events.send(Event::Stop(Cause::Error(error)));
        self.room.notify_all();
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().expect("no holder of the lock panics")
    }
}

impl Table {
    /// The slot for a record: where its key is at home, else the least busy.
    fn place_for(&self, key: &Key, length: usize) -> Option<usize> {
        // The window does not keep a key from its home. It can exceed it by one
        // record, because then the turn is held.
        self.homes.of(key).or_else(|| self.least_busy(length))
    }

    fn least_busy(&self, length: usize) -> Option<usize> {
        let open = self.slots.iter().enumerate().filter(|(_, slot)| slot.has_room(length));
        open.min_by_key(|(_, slot)| slot.load()).map(|(index, _)| index)
    }

    /// Enters a record; gives the turn back if the key can go on at once.
    fn enter(
        &mut self,
        index: usize,
        place: Place,
        key: &Key,
        line: &[u8],
        turn: Turn,
    ) -> Option<Turn> {
        let slot = &mut self.slots[index];
        let follow = slot.is_quick() && slot.has_room(line.len());
        let (held, given_back) = if follow { (None, Some(turn)) } else { (Some(turn), None) };
        slot.enter(line, Pending { place, key: key.clone(), length: line.len(), turn: held });
        if follow {
            self.homes.moved_in(key, index);
        }
        given_back
    }
}
