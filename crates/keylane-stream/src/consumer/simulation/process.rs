//! A simulated process with a consumer: the coordinator, its timer and its dead-letter writer are
//! the product's, each advanced step by step.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::super::attempt::{Ack, Attempt};
use super::super::cancellation::{CancelHook, Cancellation};
use super::super::coordinator::{Coordinator, CoordinatorConfig, NextWait};
use super::super::dead_letter_queue::{DeadLetterQueue, DeadLetterRequest};
use super::super::dead_letter_writer::RefusedLetters;
use super::super::event::{AfterFailure, ConsumerEvent};
use super::super::failure::AttemptFailure;
use super::super::failure_policy::FailurePolicy;
use super::super::handler::{HandlerAdapter, SyncHandler, WithAck};
use super::super::in_flight::InFlight;
use super::super::key_guard::LaneTurn;
use super::super::mailbox::Mailbox;
use super::super::ordering::LaneId;
use super::super::outside::Outside;
use super::super::record_lanes::RecordLanes;
use super::super::shared::ConsumerShared;
use super::super::worker_event::{StopCancellation, WorkerEvent};
use super::super::{ShutdownReport, StopReason};
use super::broker::Broker;
use super::history::{AttemptEnd, Event, Place};
use super::lanes::SimulatedLanes;
use super::letters::SimulatedLetters;
use super::operator::Commands;
use super::settings::{Behaviour, Settings};
use super::source::SimulatedSource;
use super::stage::Stage;
use super::world::{SimulatedClock, World};
use crate::source::Source;
use keylane_testkit::Random;

/// Maximum number of consecutive steps without a wait. More are an endless loop.
const MAX_STEPS_WITHOUT_WAIT: u32 = 1000;

pub(super) struct Process {
    pub(super) member: usize,
    world: Arc<World>,
    random: Random,
    coordinator: Option<Coordinator>,
    shared: Arc<ConsumerShared>,
    /// Commands of the operator.
    commands: Commands,
    lanes: Arc<SimulatedLanes>,
    handler: Handler,
    /// Broker with the transaction for output, if there are transactions.
    transactions: Option<Arc<Mutex<Broker>>>,
    /// Running attempts.
    runs: Vec<Run>,
    letters: SimulatedLetters,
    refused: RefusedLetters,
    /// Requests that the dead-letter writer has taken.
    taken: Vec<DeadLetterRequest>,
    wake: Arc<AtomicBool>,
    wait: Option<NextWait>,
    steps_without_wait: u32,
    /// Times of the next steps.
    due: [Option<u64>; STEPS.len()],
    /// The process does not run before this time.
    frozen_until: u64,
}

/// Parts of a process that take steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Coordinator,
    /// A worker begins a record.
    Worker,
    /// A running attempt ends.
    Answer,
    Timer,
    Letters,
}

const STEPS: [Step; 5] =
    [Step::Coordinator, Step::Worker, Step::Answer, Step::Timer, Step::Letters];

/// Attempts that a handler has received and not begun.
type Received = Arc<Mutex<Vec<(Attempt, Ack)>>>;

enum Handler {
    /// Handlers that answer later.
    Later { call: Call, received: Received, behaviour: Arc<Mutex<Behaviour>>, cancels: bool },
    /// Handlers that answer when they return.
    Sync(Call),
}

/// Call of an adapter of the product.
type Call = Box<dyn Fn(&Arc<ConsumerShared>, &LaneId, InFlight, &mut dyn LaneTurn)>;

fn call(adapter: impl HandlerAdapter) -> Call {
    Box::new(move |shared, lane, in_flight, turn| {
        adapter.handle_record(shared, lane, in_flight, turn)
    })
}

/// A running attempt.
struct Run {
    place: Place,
    attempt: u32,
    ack: Ack,
    ends_at: u64,
    end: AttemptEnd,
    /// Cancellation of the attempt, if its handler can be cancelled.
    cancel: Option<CancelledRun>,
}

/// Registration of an attempt for its cancellation.
struct CancelledRun {
    /// Dropped when the attempt has ended.
    _hook: CancelHook,
    /// Stages that the hook was called with since the last step.
    stages: Arc<Mutex<Vec<Cancellation>>>,
}

impl CancelledRun {
    fn new(attempt: &Attempt) -> Self {
        let stages = Arc::new(Mutex::new(Vec::new()));
        let calls = stages.clone();
        let hook = attempt.on_cancel(move |stage| calls.lock().unwrap().push(stage));
        CancelledRun { _hook: hook, stages }
    }
}

fn place_of(attempt: &Attempt) -> Place {
    Place { partition: attempt.partition().number(), position: attempt.position().get() }
}

impl Handler {
    fn new(stage: &Stage, member: usize) -> Self {
        let (world, behaviour) = (stage.world.clone(), stage.behaviour.clone());
        if !stage.settings.is_sync {
            let received = Received::default();
            let receives = received.clone();
            let adapter = WithAck(move |attempt: Attempt, ack: Ack| {
                receives.lock().unwrap().push((attempt, ack));
            });
            let cancels = stage.settings.is_cancellable;
            return Handler::Later { call: call(adapter), received, behaviour, cancels };
        }
        Handler::Sync(call(SyncHandler(move |attempt: &Attempt| {
            let (place, attempt) = (place_of(attempt), attempt.number());
            world.record(Event::Started { member, place, attempt });
            let (_, end) = behaviour.lock().unwrap().next(place);
            world.record(Event::Ended { member, place, attempt, end });
            match end {
                AttemptEnd::Succeeded => Ok(()),
                _ => Err(AttemptFailure::from("refused")),
            }
        })))
    }
}

/// Returns the callback for events of a consumer.
fn on_event(world: Arc<World>, member: usize) -> impl Fn(&ConsumerEvent) + Send {
    move |event| {
        if let ConsumerEvent::Failed { partition, position, then: AfterFailure::Skip, .. } = event {
            let place = Place { partition: partition.number(), position: position.get() };
            world.record(Event::Skipped { member, place });
        }
    }
}

impl Process {
    /// Starts a process, which joins the group.
    pub(super) fn start(stage: &Stage, member: usize, mut random: Random) -> Self {
        let world = stage.world.clone();
        world.record(Event::Opened { member });
        let wake = stage.broker.lock().unwrap().join();
        let is_transactional = stage.settings.is_transactional;
        let source = SimulatedSource {
            broker: stage.broker.clone(),
            member,
            wake: wake.clone(),
            is_transactional,
        };
        let shared = Arc::new(ConsumerShared {
            mailbox: Mailbox::new(source.waker()),
            policy: FailurePolicy::new(stage.settings.policy(), |_| ()),
            timer: Default::default(),
            dead_letters: DeadLetterQueue::default(),
            times: Default::default(),
            outside: Outside::new(SimulatedClock(world.clone()), random.number()),
        });
        let (order, unkeyed) = stage.settings.order();
        let config = CoordinatorConfig {
            order,
            has_limits: stage.settings.limit_per_key > 1,
            unkeyed,
            limits: stage.settings.limits(),
            commit_every: stage.settings.commit_every,
            commit_after: stage.settings.commit_after,
            shutdown_timeout: stage.settings.shutdown_timeout,
            cancel_grace: stage.settings.cancel_grace,
            on_event: Some(Box::new(on_event(world.clone(), member))),
        };
        let lanes = Arc::new(SimulatedLanes::new(world.clone(), member, &stage.settings));
        let coordinator = Coordinator::new(Box::new(source), lanes.clone(), shared.clone(), config);
        let letters = SimulatedLetters::new(stage, member, Random::new(random.number()));
        let handler = Handler::new(stage, member);
        Process {
            member,
            due: [Some(world.now()), None, None, None, None],
            world,
            random,
            coordinator: Some(coordinator),
            shared,
            commands: Commands::default(),
            lanes,
            handler,
            transactions: is_transactional.then(|| stage.broker.clone()),
            runs: Vec::new(),
            letters,
            refused: RefusedLetters::default(),
            taken: Vec::new(),
            wake,
            wait: None,
            steps_without_wait: 0,
            frozen_until: 0,
        }
    }

    /// Returns the time of the next step, and which it is.
    pub(super) fn next(&self) -> Option<(u64, Step)> {
        let due = STEPS.iter().zip(self.due).filter_map(|(step, at)| Some((at?, *step)));
        let (at, step) = due.min_by_key(|(at, _)| *at)?;
        Some((at.max(self.frozen_until), step))
    }

    /// Takes a step. Returns the report of a consumer that has ended.
    pub(super) fn step(&mut self, step: Step) -> Option<ShutdownReport> {
        self.due[step as usize] = None;
        match step {
            Step::Coordinator => {
                let ended = self.coordinate();
                self.commands.confirm(&self.world, self.member);
                self.cancel_runs();
                return ended;
            }
            Step::Worker => self.begin_record(),
            Step::Answer => self.answer(),
            Step::Timer => {
                let due = self.shared.timer.take_due(self.shared.outside.now());
                due.into_iter().for_each(|in_flight| self.lanes.retry(in_flight));
            }
            Step::Letters => {
                let came = std::mem::take(&mut self.taken);
                self.shared.write_due(came, &mut self.refused, &mut self.letters);
            }
        }
        None
    }

    fn coordinate(&mut self) -> Option<ShutdownReport> {
        let coordinator = self.coordinator.as_mut()?;
        if let Some(wait) = self.wait.take() {
            coordinator.end_wait(wait, Duration::ZERO);
        }
        if !coordinator.advance_all() {
            return self.coordinator.take().map(Coordinator::finish);
        }
        let wait = coordinator.next_wait();
        let news = coordinator.begin_wait(wait);
        let timeout = if news { 0 } else { u64::try_from(wait.timeout.as_micros()).unwrap() };
        self.steps_without_wait = if timeout == 0 { self.steps_without_wait + 1 } else { 0 };
        assert!(self.steps_without_wait < MAX_STEPS_WITHOUT_WAIT, "the coordinator spins");
        self.wait = Some(wait);
        self.due[Step::Coordinator as usize] = Some(self.world.now() + timeout + 1);
        None
    }

    /// Lets a worker call the handler with the next record of some lane.
    fn begin_record(&mut self) {
        let Some((in_flight, mut turn)) = self.lanes.take(&mut self.random) else { return };
        let (Handler::Later { call, .. } | Handler::Sync(call)) = &self.handler;
        // The handlers here know no lanes.
        call(&self.shared, &LaneId::Single { number: 0 }, in_flight, &mut turn);
        drop(turn);
        let Handler::Later { received, behaviour, cancels, .. } = &self.handler else { return };
        for (attempt, ack) in received.lock().unwrap().drain(..) {
            let cancel = cancels.then(|| CancelledRun::new(&attempt));
            let (member, place, attempt) = (self.member, place_of(&attempt), attempt.number());
            self.world.record(Event::Started { member, place, attempt });
            let (micros, end) = behaviour.lock().unwrap().next(place);
            let ends_at = self.world.now() + micros;
            self.runs.push(Run { place, attempt, ack, ends_at, end, cancel });
        }
    }

    /// Lets the running attempts learn of their cancellation.
    fn cancel_runs(&mut self) {
        let Handler::Later { behaviour, .. } = &self.handler else { return };
        let now = self.world.now();
        for run in &mut self.runs {
            let Some(cancel) = &run.cancel else { continue };
            for stage in std::mem::take(&mut *cancel.stages.lock().unwrap()) {
                let (member, place) = (self.member, run.place);
                let is_forced = stage == Cancellation::Forced;
                self.world.record(Event::Cancelled { member, place, is_forced });
                if let Some(after) = behaviour.lock().unwrap().cancelled(place, stage)
                    && now + after < run.ends_at
                {
                    run.ends_at = now + after;
                    run.end = AttemptEnd::Cancelled;
                }
                // Its own failure does not count either.
                if run.end != AttemptEnd::Succeeded {
                    run.end = AttemptEnd::Cancelled;
                }
            }
        }
    }

    /// Lets the attempt end whose time has come.
    fn answer(&mut self) {
        let now = self.world.now();
        let Some(at) = self.runs.iter().position(|run| run.ends_at <= now) else { return };
        let mut run = self.runs.swap_remove(at);
        if run.end == AttemptEnd::Succeeded && !self.put_output(&mut run) {
            return self.runs.push(run);
        }
        let Run { place, attempt, ack, end, cancel, .. } = run;
        self.world.record(Event::Ended { member: self.member, place, attempt, end });
        match end {
            AttemptEnd::Succeeded if self.transactions.is_some() => ack.produced(),
            AttemptEnd::Withdrawn => ack.withdraw(),
            AttemptEnd::Succeeded => ack.done(),
            AttemptEnd::Failed | AttemptEnd::Cancelled => ack.failed("refused"),
            AttemptEnd::Panicked => ack.answer(Err(AttemptFailure::Panicked("oh".into()))),
            AttemptEnd::Dropped => drop(ack),
        }
        drop(cancel);
    }

    /// Writes the output of an attempt into the transaction, if there are transactions. Returns
    /// `false` if the output has to wait for an open one.
    fn put_output(&self, run: &mut Run) -> bool {
        let Some(broker) = &self.transactions else { return true };
        if !run.ack.is_current() {
            run.end = AttemptEnd::Withdrawn;
            return true;
        }
        run.ends_at = self.world.now() + 2_000;
        broker.lock().unwrap().put_output(self.member, run.place)
    }

    /// Decides when the next steps come, after any change.
    pub(super) fn schedule(&mut self) {
        let now = self.world.now();
        let soon = |random: &mut Random, within: u64| Some(now + random.within(0..within));
        if self.wake.swap(false, Relaxed) {
            let at = soon(&mut self.random, 2_000);
            let due = &mut self.due[Step::Coordinator as usize];
            *due = (*due).min(at).or(at);
        }
        let ready = self.lanes.next_at().map(|at| at.max(now));
        let worker = &mut self.due[Step::Worker as usize];
        *worker = ready.map(|at| {
            let is_in_time = |due: &u64| (at..at + 3_000).contains(due);
            worker.filter(is_in_time).unwrap_or_else(|| at + self.random.within(0..3_000))
        });
        self.due[Step::Answer as usize] = self.runs.iter().map(|run| run.ends_at).min();
        let timer = self.shared.timer.next_at().map(|at| self.world.micros_of(at).max(now));
        self.due[Step::Timer as usize] = timer;
        if self.due[Step::Letters as usize].is_none() && self.take_letters() {
            self.due[Step::Letters as usize] = soon(&mut self.random, 30_000);
        }
        if self.due[Step::Letters as usize].is_none() {
            let retry = self.refused.due.map(|due| self.world.micros_of(due).max(now));
            self.due[Step::Letters as usize] = retry;
        }
    }

    /// Lets the dead-letter writer take requests. Returns whether it has something to do.
    fn take_letters(&mut self) -> bool {
        let now = self.shared.outside.now();
        let left = self.refused.due.map(|due| due.saturating_duration_since(now));
        let came = self.shared.dead_letters.try_next(left);
        let is_due = came.is_some();
        self.taken.extend(came.into_iter().flatten());
        is_due
    }

    /// Stops the consumer orderly.
    pub(super) fn stop(&self, within: Duration) {
        let ms = u64::try_from(within.as_millis()).unwrap();
        self.world.record(Event::Stopping { member: self.member, ms });
        let cancellation = StopCancellation::BeforeDeadline;
        self.shared.mailbox.push_and_wake(WorkerEvent::Stop { within, cancellation });
    }

    /// Sends a random command of the operator.
    pub(super) fn operate(&mut self, random: &mut Random, settings: &Settings) {
        self.commands.send(&self.shared, random, settings);
    }

    pub(super) fn freeze(&mut self, until: u64) {
        self.frozen_until = until;
    }

    pub(super) fn is_frozen(&self) -> bool {
        self.frozen_until > self.world.now()
    }
}

/// Ends the process: nothing that it has not done yet is done.
impl Drop for Process {
    fn drop(&mut self) {
        self.shared.mailbox.close();
        self.shared.timer.stop();
        self.shared.dead_letters.stop();
        self.lanes.stop();
    }
}

/// Returns the name of a reason.
pub(super) fn reason(report: &ShutdownReport) -> &'static str {
    match report.reason {
        StopReason::Asked => "asked",
        StopReason::Exhausted => "exhausted",
        StopReason::Failed { .. } => "failed",
        StopReason::Source(_) => "source",
        StopReason::NotAlone(_) => "not alone",
    }
}
