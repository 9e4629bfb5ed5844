//! Output in the order of the input, in bounded memory.
//!
//! Each record has a *turn*, in the order in which the reader asks for them. A turn ends when its record
//! has ended in any way, because the record owns it ([`OutputTurn`] is dropped with it). A thread writes
//! the outputs of the first turn when that has ended, and goes on with the next. Of the first turn it
//! also writes *live* lines, while their command runs: a command adds lines, then notifies the writer if
//! it waits and the turn is the first.
//!
//! Bounds: the reader waits while `window` turns are unwritten, so a slow record or a slow reader of
//! standard output holds up the rest, and its output is finite. Of the outputs that wait, at most
//! [`MAX_MEMORY`] bytes are in memory and [`MAX_FILES`] in files of their own; the others are in shared
//! files ([`SpillFiles`]).
//!
//! No deadlock: the reader waits only for the first turn. Its record is in the pool, and waits there for
//! earlier records at most, all of which have ended. No thread waits for the writer but the reader, and
//! the end of the run.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use crate::process::CapturedOutput;
use crate::run_stats::RunStats;

use super::spill::{FILE_LENGTH, SpillFiles, SpilledOutput};

/// Maximum number of bytes of waiting output in memory.
const MAX_MEMORY: usize = 64 << 20;

/// Maximum number of waiting outputs in files of their own.
const MAX_FILES: usize = 64;

/// Number of outputs that are taken at a time.
const BATCH: usize = 256;

/// Small outputs are written together up to this length.
const PIECE: usize = 64 << 10;

/// Output in the order of the turns.
#[derive(Debug)]
pub(super) struct OrderedOutput {
    stats: Arc<RunStats>,
    state: Mutex<OrderState>,
    /// Notifies the writer: the first turn has ended, or no other begins.
    ended: Condvar,
    /// Notifies the reader: there is room for a turn.
    room: Condvar,
    window: usize,
    spill: SpillFiles,
    writer: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct OrderState {
    /// Number of the first turn that was not taken.
    first: u64,
    turns: VecDeque<TurnState>,
    /// Bytes in memory and number of files of all held outputs.
    memory: usize,
    files: usize,
    /// The writer waits, and has to be notified.
    is_idle: bool,
    /// No other turn begins, and those that have not ended will not.
    is_over: bool,
}

#[derive(Debug, Default)]
struct TurnState {
    outputs: Vec<HeldOutput>,
    /// Answer of a worker, which comes after `outputs`.
    answer: Option<Box<[u8]>>,
    /// Lines of a running attempt, which come after `outputs`.
    live: Option<LiveLines>,
    has_ended: bool,
}

/// Whole lines of an attempt that runs. Locked after the state, or alone: the command's thread may write
/// them to a file of their own meanwhile, for which no other thread waits.
type LiveLines = Arc<Mutex<CapturedOutput>>;

/// Output of an attempt that waits.
#[derive(Debug)]
enum HeldOutput {
    Captured(CapturedOutput),
    Spilled(SpilledOutput),
    Answer(Box<[u8]>),
    /// Lines of the first turn, which count for no bound.
    Live(CapturedOutput),
}

/// Turn of a record. Its drop ends the turn.
#[derive(Debug)]
pub(super) struct OutputTurn {
    order: Arc<OrderedOutput>,
    number: u64,
    live: Option<LiveLines>,
    has_ended: bool,
}

impl OrderedOutput {
    /// Starts the writer. At most `window` turns are unwritten.
    pub(super) fn start(stats: &Arc<RunStats>, window: usize) -> io::Result<Arc<Self>> {
        let order = Arc::new(OrderedOutput {
            stats: Arc::clone(stats),
            state: Mutex::default(),
            ended: Condvar::new(),
            room: Condvar::new(),
            window,
            spill: SpillFiles::new(FILE_LENGTH),
            writer: Mutex::new(None),
        });
        let of_writer = Arc::clone(&order);
        let writer = thread::Builder::new()
            .name("keylane-output".into())
            .spawn(move || of_writer.write_all())?;
        *order.writer.lock().unwrap_or_else(PoisonError::into_inner) = Some(writer);
        Ok(order)
    }

    /// Whether there is room for another turn.
    pub(super) fn has_room(&self) -> bool {
        self.lock().turns.len() < self.window
    }

    /// Waits until there is room for another turn.
    pub(super) fn wait_for_room(&self) {
        let mut state = self.lock();
        while state.turns.len() >= self.window && !state.is_over {
            state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Begins the next turn, with live lines or with whole outputs.
    pub(super) fn turn(self: &Arc<Self>, has_lines: bool) -> OutputTurn {
        let live = has_lines.then(LiveLines::default);
        let mut state = self.lock();
        state.turns.push_back(TurnState { live: live.clone(), ..TurnState::default() });
        let number = state.first + state.turns.len() as u64 - 1;
        drop(state);
        OutputTurn { order: Arc::clone(self), number, live, has_ended: false }
    }

    /// Ends turns with the answers of a worker, which are whole lines. Locks once for all, as the rate
    /// of fast workers needs.
    ///
    /// # Errors
    /// If they do not fit into memory and a temporary file cannot be written.
    pub(super) fn answered<'l>(
        &self,
        answers: impl Iterator<Item = (OutputTurn, &'l [u8])>,
    ) -> io::Result<()> {
        let answers: Vec<(OutputTurn, Box<[u8]>)> =
            answers.map(|(turn, line)| (turn, line.into())).collect();
        let memory: usize = answers.iter().map(|(_, line)| line.len()).sum();
        let mut state = self.lock();
        if state.memory + memory > MAX_MEMORY {
            drop(state);
            return answers.into_iter().try_for_each(|(turn, line)| {
                let mut printed = CapturedOutput::default();
                printed.stdout.write_all(&line)?;
                turn.add(printed)
            });
        }
        state.memory += memory;
        for (mut turn, line) in answers {
            turn.has_ended = true;
            if let Some(held) = state.turn(turn.number) {
                held.answer = Some(line);
                held.has_ended = true;
            }
        }
        if state.turns.front().is_some_and(|first| first.has_ended) {
            self.notify(&mut state);
        }
        Ok(())
    }

    /// Writes what is left, in order, and returns when all is written.
    pub(super) fn finish(&self) {
        self.lock().is_over = true;
        self.ended.notify_one();
        self.room.notify_all();
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(writer) = writer {
            writer.join().expect("the writer does not panic");
        }
    }

    fn write_all(&self) {
        let mut batch = Vec::new();
        let mut text = Vec::new();
        while self.take(&mut batch) {
            let (mut memory, mut files) = (0, 0);
            for mut held in batch.drain(..) {
                match &held {
                    HeldOutput::Captured(printed) => {
                        memory += printed.memory();
                        files += printed.files();
                    }
                    HeldOutput::Answer(line) => memory += line.len(),
                    HeldOutput::Spilled(_) | HeldOutput::Live(_) => {}
                }
                self.write(&mut held, &mut text);
            }
            self.write_text(&mut text);
            let mut state = self.lock();
            state.memory -= memory;
            state.files -= files;
        }
    }

    /// Takes the outputs of the first turns. Returns false when there is none and none follows.
    fn take(&self, batch: &mut Vec<HeldOutput>) -> bool {
        let mut state = self.lock();
        loop {
            let first = state.first;
            let is_over = state.is_over;
            while batch.len() < BATCH
                && let Some(turn) = state.turns.front_mut()
            {
                let has_ended = turn.has_ended || is_over;
                turn.take(has_ended, batch);
                if !has_ended {
                    break;
                }
                state.turns.pop_front();
                state.first += 1;
            }
            if state.first > first {
                self.room.notify_one();
            }
            if !batch.is_empty() {
                return true;
            }
            if state.is_over {
                return false;
            }
            state.is_idle = true;
            state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.is_idle = false;
        }
    }

    /// Writes an output, or appends it to the text if it is small. A write error ends the run, which
    /// reports it.
    fn write(&self, held: &mut HeldOutput, text: &mut Vec<u8>) {
        let small = match held {
            HeldOutput::Answer(line) => Some(&**line),
            HeldOutput::Captured(printed) | HeldOutput::Live(printed)
                if printed.stderr.is_empty() =>
            {
                printed.stdout.in_memory()
            }
            HeldOutput::Captured(_) | HeldOutput::Live(_) | HeldOutput::Spilled(_) => None,
        };
        if let Some(small) = small {
            text.extend_from_slice(small);
            if text.len() > PIECE {
                self.write_text(text);
            }
            return;
        }
        self.write_text(text);
        let output = &self.stats.output;
        let _ = match held {
            HeldOutput::Answer(_) => unreachable!("an answer is in memory"),
            HeldOutput::Captured(CapturedOutput { stdout, stderr })
            | HeldOutput::Live(CapturedOutput { stdout, stderr }) => {
                output.write_both(|out| stdout.write_to(out), |err| stderr.write_to(err))
            }
            HeldOutput::Spilled(spilled) => {
                output.write_both(|out| spilled.write_stdout(out), |err| spilled.write_stderr(err))
            }
        };
    }

    fn write_text(&self, text: &mut Vec<u8>) {
        if !text.is_empty() {
            let _ = self.stats.output.write(text);
            text.clear();
        }
    }

    /// Notifies the writer if it waits.
    fn notify(&self, state: &mut OrderState) {
        if std::mem::take(&mut state.is_idle) {
            self.ended.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, OrderState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OrderState {
    /// Returns a turn. After the end of the run there is none: what is left of it is dropped.
    fn turn(&mut self, number: u64) -> Option<&mut TurnState> {
        let index = number.checked_sub(self.first)?;
        self.turns.get_mut(index as usize)
    }
}

impl TurnState {
    /// Takes what can be written of the first turn.
    fn take(&mut self, has_ended: bool, batch: &mut Vec<HeldOutput>) {
        let Some(live) = &self.live else {
            if has_ended {
                batch.append(&mut self.outputs);
                batch.extend(self.answer.take().map(HeldOutput::Answer));
            }
            return;
        };
        batch.append(&mut self.outputs);
        // A command that adds lines now notifies afterwards.
        let lines = live.try_lock().map(|mut lines| std::mem::take(&mut *lines));
        let lines = lines.ok().filter(|lines| !lines.is_empty());
        batch.extend(lines.map(HeldOutput::Live));
    }
}

impl OutputTurn {
    /// Adds an output to the turn.
    ///
    /// # Errors
    /// If it does not fit into memory and a temporary file cannot be written.
    pub(super) fn add(&self, printed: CapturedOutput) -> io::Result<()> {
        if printed.is_empty() {
            return Ok(());
        }
        let (memory, files) = (printed.memory(), printed.files());
        let mut state = self.order.lock();
        let fits = state.memory + memory <= MAX_MEMORY && state.files + files <= MAX_FILES;
        if fits {
            state.memory += memory;
            state.files += files;
            self.hold(&mut state, HeldOutput::Captured(printed));
            return Ok(());
        }
        drop(state);
        let spilled = HeldOutput::Spilled(self.order.spill.store(printed)?);
        self.hold(&mut self.order.lock(), spilled);
        Ok(())
    }

    /// Adds whole lines of a running attempt.
    ///
    /// # Errors
    /// If they do not fit into memory and a temporary file cannot be written.
    pub(super) fn add_lines(
        &self,
        add: impl FnOnce(&mut CapturedOutput) -> io::Result<()>,
    ) -> io::Result<()> {
        let Some(live) = &self.live else { return Ok(()) };
        add(&mut live.lock().unwrap_or_else(PoisonError::into_inner))?;
        self.notify(&mut self.order.lock());
        Ok(())
    }

    /// Ends the lines of an attempt: those that have to wait do so as any other output.
    pub(super) fn end_lines(&self) -> io::Result<()> {
        let Some(live) = &self.live else { return Ok(()) };
        if self.order.lock().first == self.number {
            return Ok(());
        }
        let lines = std::mem::take(&mut *live.lock().unwrap_or_else(PoisonError::into_inner));
        self.add(lines)
    }

    /// Notifies the writer if it waits for this turn.
    fn notify(&self, state: &mut OrderState) {
        if state.first == self.number {
            self.order.notify(state);
        }
    }

    fn hold(&self, state: &mut OrderState, held: HeldOutput) {
        // Of a record that the reader refuses after the end of the run, there is none.
        if let Some(turn) = state.turn(self.number) {
            turn.outputs.push(held);
            if turn.live.is_some() {
                self.notify(state);
            }
        }
    }
}

impl Drop for OutputTurn {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        let mut state = self.order.lock();
        if let Some(turn) = state.turn(self.number) {
            turn.has_ended = true;
            self.notify(&mut state);
        }
    }
}
