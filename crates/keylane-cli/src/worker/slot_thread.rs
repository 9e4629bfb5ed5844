//! Attendant threads: start a slot's child, read its answers, and account for its records when it
//! ends.

use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::process::{Child, ExitStatus};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use anyhow::anyhow;
use rustix::process::Pid;

use crate::process::{describe, why_not_started};

use super::observer::RecordObserver;
use super::pool::WorkerPool;
use super::response_lines::ResponseLines;
use super::slot::{ChildEnd, ChildPhase};
use super::stderr::{StderrReader, is_readable};
use super::worker_record::PendingRecord;

/// Protocol of a worker, for error messages.
const RULE: &str = "a worker must answer each line on its input with exactly one line";

impl<E: RecordObserver> WorkerPool<E> {
    /// Runs one slot until the run is over.
    pub(super) fn run_slot(self: &Arc<Self>, index: usize) {
        while self.wait_for_record(index) {
            match self.start(index) {
                Ok(mut child) => {
                    let mut stderr = StderrReader::new(child.stderr.take());
                    let flaw = self.read_answers(index, &mut child, &mut stderr).err();
                    self.child_ended(index, child, stderr, flaw);
                }
                Err(error) => {
                    self.abandon_pending(index);
                    if self.on_fatal(error) {
                        return;
                    }
                }
            }
        }
    }

    /// True when the empty slot has a record, false when the run is over.
    fn wait_for_record(&self, index: usize) -> bool {
        let mut table = self.lock();
        while table.slots[index].load() == 0 && !table.over {
            table = self.wanted.wait(table).expect("no holder of the lock panics");
        }
        let wanted = table.slots[index].load() > 0;
        if wanted {
            table.slots[index].phase = ChildPhase::Starting;
        }
        wanted
    }

    fn start(self: &Arc<Self>, index: usize) -> anyhow::Result<Child> {
        let mut command = self.command.lock().expect("no holder of the lock panics");
        command.env("KEYLANE_SLOT", (index + 1).to_string());
        let mut child = self
            .children
            .spawn(&mut command)
            .map_err(|error| anyhow!("cannot start the worker: {}", why_not_started(&error)))?;
        drop(command);
        let stdin = child.stdin.take().expect("a worker's input is a pipe");
        let mut table = self.lock();
        let slot = &mut table.slots[index];
        slot.pipe = pipe_budget(&stdin);
        slot.group = Some(Pid::from_child(&child));
        slot.phase = ChildPhase::Live(Arc::new(stdin));
        drop(table);
        self.write_without_blocking(index, self.lock());
        Ok(child)
    }

    /// Handles answers until the child's output ends; an error is a protocol_error of
    /// "one line for each line".
    fn read_answers(
        self: &Arc<Self>,
        index: usize,
        child: &mut Child,
        stderr: &mut StderrReader,
    ) -> anyhow::Result<()> {
        let mut answers =
            ResponseLines::new(child.stdout.take().expect("a worker's output is a pipe"));
        let mut answered = Vec::new();
        loop {
            let streams = [Some(answers.source().as_fd()), stderr.pipe().map(AsFd::as_fd)];
            if !self.children.wait_readable(streams)? {
                return Ok(());
            }
            let has_stderr = stderr.pipe().is_some();
            let said = self.hear(stderr);
            // Looked at after the text was read: without an answer now, the text is of none of the later records.
            let (text, lines) = if has_stderr && !is_readable(answers.source()) {
                (&[][..], 0)
            } else {
                match answers.read()? {
                    Some(read) => read,
                    None => {
                        self.lock().slots[index].said.push(&said);
                        return Ok(());
                    }
                }
            };
            if lines > 0 {
                self.take_answers(index, text, lines, &said, stderr, &mut answered)?;
            } else if !said.is_empty() {
                self.lock().slots[index].said.push(&said);
            }
        }
    }

    /// Reads what the child has written to standard error so far, and passes it on.
    fn hear(&self, stderr: &mut StderrReader) -> Vec<u8> {
        let said = stderr.read_available().to_vec();
        if !said.is_empty() {
            self.observer.print_stderr(&said);
        }
        said
    }

    /// Writes the answers before their keys go on, so that a key's answers are
    /// in order even if its next record goes to another child.
    fn take_answers(
        self: &Arc<Self>,
        index: usize,
        text: &[u8],
        lines: usize,
        said: &[u8],
        stderr: &mut StderrReader,
        answered: &mut Vec<PendingRecord<E::Ticket>>,
    ) -> anyhow::Result<()> {
        let mut table = self.lock();
        let slot = &mut table.slots[index];
        // The child gets no other record before the lock is released.
        let is_idle = slot.sent() == lines;
        let rest = if is_idle { stderr.read_available().to_vec() } else { Vec::new() };
        let is_right = slot.answered(lines, Instant::now(), answered);
        if !is_idle {
            slot.said.push(said);
        }
        if !is_right {
            return Err(protocol_error(text));
        }
        let wake = table.waiting > 0;
        let turns = table.admit_backlog(index);
        drop(table);
        if !rest.is_empty() {
            self.observer.print_stderr(&rest);
        }
        if wake {
            self.room.notify_all();
        }
        self.write_without_blocking(index, self.lock());
        drop(turns);
        self.observer.answered(text, answered);
        self.release(answered);
        Ok(())
    }

    /// Accounts for a child whose output has ended.
    fn child_ended(
        &self,
        index: usize,
        mut child: Child,
        stderr: StderrReader,
        flaw: Option<anyhow::Error>,
    ) {
        let dismissed = std::mem::replace(&mut self.lock().slots[index].phase, ChildPhase::Leaving);
        if flaw.is_some() {
            self.children.end(&child);
        }
        let end = WorkerExit {
            dismissed: matches!(dismissed, ChildPhase::Leaving),
            status: self.reap(index, &mut child, stderr),
            flaw,
        };
        let mut lost = Vec::new();
        let is_stopping = self.observer.is_stopping();
        let mut table = self.lock();
        let cause = table.slots[index].child_ended(&mut lost);
        let said = table.slots[index].said.take();
        let is_dismissed = end.dismissed && cause != ChildEnd::Cancelled || is_stopping;
        let has_lost_state = table.count_lost_state(index, is_dismissed);
        let slots = table.slots.len();
        drop(table);
        if has_lost_state {
            let number = index + 1;
            self.observer.print(&format_args!(
                "worker {number} of {slots} has ended ({end}); its state of its keys is lost"
            ));
        }
        let count = lost.len();
        match cause {
            ChildEnd::Cancelled => self.observer.ended(&mut lost),
            ChildEnd::ByItself { fruitless } => {
                self.observer.lost(&mut lost, &end, &said);
                let is_useless = fruitless >= self.max_fruitless;
                if let Some(error) = end.verdict(count, is_useless.then_some(fruitless))
                    && self.on_fatal(error)
                {
                    self.abandon_pending(index);
                }
            }
        }
        self.release(&mut lost);
        // After the records before them are accounted for.
        let turns = self.lock().admit_backlog(index);
        drop(turns);
        self.room.notify_all();
    }

    /// Waits until the child has ended. Until then its standard error is read, without which it could not end.
    fn reap(
        &self,
        index: usize,
        child: &mut Child,
        mut stderr: StderrReader,
    ) -> io::Result<ExitStatus> {
        // Without a pipe to stop the reader by, the child's standard error is closed.
        let Some((stop, stopped)) = stderr.pipe().and_then(|_| io::pipe().ok()) else {
            drop(stderr);
            return self.children.reap(child);
        };
        thread::scope(|scope| {
            scope.spawn(move || {
                stderr.read_until(&stop, |said| {
                    self.observer.print_stderr(said);
                    self.lock().slots[index].said.push(said);
                });
            });
            let status = self.children.reap(child);
            drop(stopped);
            status
        })
    }

    /// Gives up the records that were waiting for the slot's next child.
    fn abandon_pending(&self, index: usize) {
        let mut withdrawn = Vec::new();
        let mut table = self.lock();
        table.slots[index].phase = ChildPhase::Empty;
        table.slots[index].withdraw(&mut withdrawn);
        drop(table);
        self.observer.withdrawn(&mut withdrawn);
        self.release(&mut withdrawn);
    }
}

/// How a child ended.
struct WorkerExit {
    /// True if its input had been closed, so that it was to answer and leave.
    dismissed: bool,
    status: io::Result<ExitStatus>,
    /// Violation of the protocol by the child.
    flaw: Option<anyhow::Error>,
}

impl WorkerExit {
    /// The error that ends the run, if the child's end is more than the failure
    /// of the `lost` records that it had not answered.
    fn verdict(self, lost: usize, fruitless: Option<u32>) -> Option<anyhow::Error> {
        let succeeded = self.status.as_ref().is_ok_and(ExitStatus::success);
        let ended = self.to_string();
        if let Some(flaw) = self.flaw {
            Some(flaw)
        } else if self.dismissed && succeeded && lost > 0 {
            Some(anyhow!("a worker left {lost} of its lines unanswered; {RULE}"))
        } else if let Some(fruitless) = fruitless {
            Some(anyhow!(
                "the worker ended {fruitless} times in a row without an answer ({ended}); {RULE}"
            ))
        } else if lost == 0 && !succeeded {
            Some(anyhow!(
                "a worker failed after its last answer ({ended}); check what it leaves behind"
            ))
        } else {
            None
        }
    }
}

impl fmt::Display for WorkerExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.status {
            Ok(status) => f.write_str(&describe(*status)),
            Err(error) => write!(f, "{error}"),
        }
    }
}

/// Bytes that fit into the pipe even though a batch may waste part of a page.
fn pipe_budget(pipe: &std::process::ChildStdin) -> usize {
    rustix::pipe::fcntl_getpipe_size(pipe).map_or(4 << 10, |size| size / 4 * 3)
}

fn protocol_error(text: &[u8]) -> anyhow::Error {
    let last = text.trim_ascii_end().rsplit(|byte| *byte == b'\n').next().unwrap_or(text);
    let shown = String::from_utf8_lossy(&last[..last.len().min(80)]);
    anyhow!(
        "a worker printed more lines than it was given (the last is `{shown}`), so no answer can \
         be trusted to be its record's; it must answer each line on its input with exactly one line"
    )
}
