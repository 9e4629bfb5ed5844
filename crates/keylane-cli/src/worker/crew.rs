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
            table: Mutex::new(Table { slots, waiting: 0, over: false, hinted: false }),
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
    pub(crate) fn dispatch(&self, place: Place, key: &Key, line: &[u8], turn: Turn) {
        let mut table = self.lock();
        let index = loop {
            if self.ledger.is_stopping() {
                return self.ledger.not_run(1);
            }
            if let Some(index) = table.least_busy(line.len()) {
                break index;
            }
            table.waiting += 1;
            table = self.room.wait(table).expect("no holder of the lock panics");
            table.waiting -= 1;
        };
        self.ledger.started();
        let slot = &mut table.slots[index];
        slot.enter(line, Pending { place, key: key.clone(), length: line.len(), _turn: turn });
        if matches!(slot.phase, Phase::Empty) {
            self.wanted.notify_all();
        }
        self.write_due(index, table);
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
    }

    /// Lets all children go: their input ends, and no other is started.
    pub(crate) fn dismiss(&self) {
        let mut table = self.lock();
        table.over = true;
        table.slots.iter_mut().for_each(close_input);
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
        let entered: usize = self.lock().slots.iter().map(Slot::load).sum();
        let nothing_else = input_ended && entered == unfinished();
        let mut table = self.lock();
        let mut silent = None;
        for slot in &mut table.slots {
            let is_silent = slot.sent() > 0 && slot.silent_for(now) >= SILENCE;
            if is_silent {
                silent = slot.oldest_sent().map(|record| record.place.clone());
            }
            if nothing_else || (input_ended && is_silent) {
                close_input(slot);
            }
        }
        let silent = silent.filter(|_| !table.hinted);
        table.hinted |= silent.is_some();
        drop(table);
        if let Some(Place { number, line }) = silent {
            self.ledger.output.say(format_args!(
                "note: a worker has not answered record {number} (line {line}) for {} s; if it keeps \
                 its output back, run it unbuffered (sed -u, python -u, grep --line-buffered)",
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
    fn least_busy(&self, length: usize) -> Option<usize> {
        let open = self.slots.iter().enumerate().filter(|(_, slot)| slot.has_room(length));
        open.min_by_key(|(_, slot)| slot.load()).map(|(index, _)| index)
    }
}

/// Ends the child's input, unless lines for it are still to be written.
fn close_input(slot: &mut Slot) {
    if matches!(slot.phase, Phase::Live(_)) && slot.load() == slot.sent() {
        slot.phase = Phase::Leaving;
    }
}
