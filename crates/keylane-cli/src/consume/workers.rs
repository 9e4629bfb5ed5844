//! Persistent worker processes of a consumer, with a line per record.

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use keylane_stream::consumer::{Ack, Attempt, Outbox};

use super::environment::Environment;
use super::handle::{NotHandled, line_of};
use super::keys::Keys;
use super::outputs::Outputs;
use super::settings::PayloadAs;
use crate::key::Key;
use crate::output::{NotWritten, Output};
use crate::process::Children;
use crate::worker::{self, Crew, Employer, Pending};

/// The children, and the threads that look after them.
#[derive(Debug)]
pub(super) struct Workers {
    crew: Arc<Crew<Records>>,
    attendants: Vec<JoinHandle<()>>,
}

impl Workers {
    /// Starts the workers. A worker that does not answer a record within `timeout` is ended.
    pub(super) fn start(
        words: &[String],
        jobs: usize,
        timeout: Option<Duration>,
        environment: &Environment,
        records: Records,
        children: Arc<Children>,
    ) -> anyhow::Result<Self> {
        let words: Vec<_> = words.iter().map(Into::into).collect();
        let mut command = worker::command(&words)?;
        environment.give(&mut command);
        let crew = Crew::new(jobs, command, children, records);
        let crew = Arc::new(crew.answer_within(timeout));
        let attendants = crew.hire(jobs)?;
        Ok(Workers { crew, attendants })
    }

    /// Handler that gives a record to a worker. It waits until a worker has capacity.
    pub(super) fn handler(
        &self,
        keys: Arc<Keys>,
        payload: PayloadAs,
    ) -> impl Fn(Attempt, Ack) + Send + Sync + 'static {
        let crew = Arc::clone(&self.crew);
        move |attempt, ack| match line_of(&attempt, &keys, payload) {
            // The answer that is owed holds the key's turn.
            Ok(line) => crew.dispatch(Ticket { attempt, ack }, &Key::Serial, &line, None),
            Err(error) => ack.failed(error),
        }
    }

    /// Check that reports workers that withhold answers, and ends late ones.
    pub(super) fn watch(&self) -> impl Fn() + 'static {
        let crew = Arc::clone(&self.crew);
        move || crew.look_after(false, || 0, Instant::now())
    }

    /// Lets the children go, after the consumer, and waits for their ends.
    pub(super) fn dismiss(self) {
        self.crew.dismiss();
        for attendant in self.attendants {
            attendant.join().expect("an attendant does not panic");
        }
    }

    /// Abandons the records of the workers; their results no longer count.
    pub(super) fn abandon(&self) {
        self.crew.employer.stopping.store(true, Relaxed);
        self.crew.stop();
    }
}

/// A consumer as an employer: an answer is the end of a record, and the end of a child a failed attempt.
#[derive(Debug)]
pub(super) struct Records {
    /// Where answers go, unless they are printed.
    results: Option<(Outbox, Outputs)>,
    output: Arc<Output>,
    /// True once no answer counts any more.
    stopping: AtomicBool,
}

/// A record that a child has or is to have.
#[derive(Debug)]
pub(super) struct Ticket {
    attempt: Attempt,
    ack: Ack,
}

impl Records {
    pub(super) fn new(results: Option<(Outbox, Outputs)>, output: Arc<Output>) -> Self {
        Records { results, output, stopping: AtomicBool::new(false) }
    }
}

impl Employer for Records {
    type Ticket = Ticket;

    fn is_stopping(&self) -> bool {
        self.stopping.load(Relaxed)
    }

    fn not_run(&self, ticket: Ticket) {
        drop(ticket);
    }

    fn started(&self) {}

    fn answered(&self, lines: &[u8], records: &mut Vec<Pending<Ticket>>) {
        let tickets = records.drain(..).map(|record| record.ticket);
        let Some((outbox, outputs)) = &self.results else {
            return match self.output.write(lines) {
                Ok(()) => tickets.for_each(|ticket| ticket.ack.done()),
                Err(NotWritten) => {
                    tickets.for_each(|ticket| ticket.ack.failed(NotHandled::from(NotWritten)))
                }
            };
        };
        for (line, Ticket { attempt, ack }) in lines.split_inclusive(|b| *b == b'\n').zip(tickets) {
            outbox.send(outputs.of(&attempt, line.to_vec()), ack);
        }
    }

    fn lost(&self, records: &mut Vec<Pending<Ticket>>, end: &dyn Display) {
        for record in records.drain(..) {
            record.ticket.ack.failed(NotHandled::WorkerEnded(end.to_string()));
        }
    }

    fn withdrawn(&self, records: &mut Vec<Pending<Ticket>>) {
        for record in records.drain(..) {
            record.ticket.ack.failed(NotHandled::NoWorker);
        }
    }

    /// The retry policy decides about the end: the worker's records have failed.
    fn is_over(&self, error: anyhow::Error) -> bool {
        if !self.is_stopping() {
            self.output.say(format_args!("{error:#}"));
        }
        self.is_stopping()
    }

    fn name(&self, ticket: &Ticket) -> String {
        format!("the record at {}", ticket.attempt.position())
    }

    fn say(&self, message: &dyn Display) {
        self.output.say(message);
    }
}
