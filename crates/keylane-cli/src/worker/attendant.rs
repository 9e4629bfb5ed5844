//! Attendant threads: start a slot's child, read its answers, and account for its records when it
//! ends.

use std::fmt;
use std::io;
use std::process::{Child, ChildStdout, ExitStatus};
use std::sync::Arc;
use std::time::Instant;

use anyhow::anyhow;
use rustix::process::Pid;

use crate::process::{describe, why_not_started};

use super::answers::Answers;
use super::crew::Crew;
use super::employer::Employer;
use super::slot::{Pending, Phase};

/// Children in a row that may end without an answer before the command is
/// held to be wrong: one crash can be bad luck, three are not.
const MAX_FRUITLESS: u32 = 3;

/// Protocol of a worker, for error messages.
const RULE: &str = "a worker must answer each line on its input with exactly one line";

impl<E: Employer> Crew<E> {
    /// Runs one slot until the run is over.
    pub(super) fn attend(self: &Arc<Self>, index: usize) {
        while self.wait_for_record(index) {
            match self.start(index) {
                Ok(mut child) => {
                    let flaw = self.read_answers(index, &mut child).err();
                    self.bury(index, child, flaw);
                }
                Err(error) => {
                    self.forfeit(index);
                    if self.is_over(error) {
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
            table.slots[index].phase = Phase::Starting;
        }
        wanted
    }

    fn start(self: &Arc<Self>, index: usize) -> anyhow::Result<Child> {
        let mut command = self.command.lock().expect("no holder of the lock panics");
        let mut child = self
            .children
            .spawn(&mut command)
            .map_err(|error| anyhow!("cannot start the worker: {}", why_not_started(&error)))?;
        drop(command);
        let stdin = child.stdin.take().expect("a worker's input is a pipe");
        let mut table = self.lock();
        let slot = &mut table.slots[index];
        slot.pipe = sure_to_fit(&stdin);
        slot.group = Some(Pid::from_child(&child));
        slot.phase = Phase::Live(Arc::new(stdin));
        drop(table);
        self.write_without_blocking(index, self.lock());
        Ok(child)
    }

    /// Handles answers until the child's output ends; an error is a breach of
    /// "one line for each line".
    fn read_answers(self: &Arc<Self>, index: usize, child: &mut Child) -> anyhow::Result<()> {
        let mut answers = Answers::new(child.stdout.take().expect("a worker's output is a pipe"));
        let mut answered = Vec::new();
        while self.children.wait_readable::<ChildStdout>(answers.source())? {
            let Some((text, lines)) = answers.read()? else { break };
            if lines > 0 {
                self.take_answers(index, text, lines, &mut answered)?;
            }
        }
        Ok(())
    }

    /// Writes the answers before their keys go on, so that a key's answers are
    /// in order even if its next record goes to another child.
    fn take_answers(
        self: &Arc<Self>,
        index: usize,
        text: &[u8],
        lines: usize,
        answered: &mut Vec<Pending<E::Ticket>>,
    ) -> anyhow::Result<()> {
        let mut table = self.lock();
        if !table.slots[index].answered(lines, Instant::now(), answered) {
            return Err(breach(text));
        }
        let wake = table.waiting > 0;
        drop(table);
        if wake {
            self.room.notify_all();
        }
        self.write_without_blocking(index, self.lock());
        self.employer.answered(text, answered);
        self.release(answered);
        Ok(())
    }

    /// Accounts for a child whose output has ended.
    fn bury(&self, index: usize, mut child: Child, flaw: Option<anyhow::Error>) {
        let dismissed = std::mem::replace(&mut self.lock().slots[index].phase, Phase::Leaving);
        if flaw.is_some() {
            self.children.end(&child);
        }
        let end = End {
            dismissed: matches!(dismissed, Phase::Leaving),
            status: self.children.reap(&mut child),
            flaw,
        };
        let mut lost = Vec::new();
        let mut table = self.lock();
        let fruitless = table.slots[index].bury(&mut lost);
        drop(table);
        let count = lost.len();
        self.employer.lost(&mut lost, &end);
        if let Some(error) = end.verdict(count, fruitless)
            && self.is_over(error)
        {
            self.forfeit(index);
        }
        self.release(&mut lost);
        self.room.notify_all();
    }

    /// Gives up the records that were waiting for the slot's next child.
    fn forfeit(&self, index: usize) {
        let mut withdrawn = Vec::new();
        let mut table = self.lock();
        table.slots[index].phase = Phase::Empty;
        table.slots[index].withdraw(&mut withdrawn);
        drop(table);
        self.employer.withdrawn(&mut withdrawn);
        self.release(&mut withdrawn);
    }
}

/// How a child ended.
struct End {
    /// True if its input had been closed, so that it was to answer and leave.
    dismissed: bool,
    status: io::Result<ExitStatus>,
    /// Violation of the protocol by the child.
    flaw: Option<anyhow::Error>,
}

impl End {
    /// The error that ends the run, if the child's end is more than the failure
    /// of the `lost` records that it had not answered.
    fn verdict(self, lost: usize, fruitless: u32) -> Option<anyhow::Error> {
        let succeeded = self.status.as_ref().is_ok_and(ExitStatus::success);
        let ended = self.to_string();
        if let Some(flaw) = self.flaw {
            Some(flaw)
        } else if self.dismissed && succeeded && lost > 0 {
            Some(anyhow!("a worker left {lost} of its lines unanswered; {RULE}"))
        } else if fruitless >= MAX_FRUITLESS {
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

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.status {
            Ok(status) => f.write_str(&describe(*status)),
            Err(error) => write!(f, "{error}"),
        }
    }
}

/// Bytes that fit into the pipe even though a batch may waste part of a page.
fn sure_to_fit(pipe: &std::process::ChildStdin) -> usize {
    rustix::pipe::fcntl_getpipe_size(pipe).map_or(4 << 10, |size| size / 4 * 3)
}

fn breach(text: &[u8]) -> anyhow::Error {
    let last = text.trim_ascii_end().rsplit(|byte| *byte == b'\n').next().unwrap_or(text);
    let shown = String::from_utf8_lossy(&last[..last.len().min(80)]);
    anyhow!(
        "a worker printed more lines than it was given (the last is `{shown}`), so no answer can \
         be trusted to be its record's; it must answer each line on its input with exactly one line"
    )
}
