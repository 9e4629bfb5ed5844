//! Assembly of a consumer from its settings, and its shutdown.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use indicatif::ProgressBar;
use keylane_stream::consumer::{
    self, Attempt, AttemptFailure, Consumer, ConsumerBuilder, ConsumerEvent, ConsumerHandle,
    Outbox, ShutdownReport, StartError, StopReason,
};
use keylane_stream::dead_letters::{
    DeadLetterSource, DeadLetters, FileDeadLetters, JournalDeadLetters,
};
use keylane_stream::journal::JournalSource;
use keylane_stream::sink::{JournalSink, Sink};
use keylane_stream::source::Source;
use tokio::runtime::{Handle, Runtime};

use super::control_endpoints::ControlAccess;
use super::forced_end::ForcedEnd;
use super::handlers::{CommandHandler, HttpHandler, NotHandled, classify, unless_forced};
use super::journals::OpenJournals;
use super::keys::KeyExtractor;
use super::log::{LogLevel, ThrottledLog};
use super::output_records::OutputRecordBuilder;
use super::payloads::PayloadFormat;
use super::settings::{ConsumeSettings, NoKey, RecordOrder};
use super::source_settings::keep_for_source;
use super::status::HealthThresholds;
use super::validated::{self, ConsumePlan, HandlerPlan};
use super::worker_processes::{ConsumerObserver, WorkerProcesses};
use super::{batches, config, file_sources, kafka, status_endpoints};
use crate::exit::ExitOutcome;
use crate::features;
use crate::input::FieldLayout;
use crate::output::StandardOutput;
use crate::process::{self, ChildProcesses};
use crate::run::{CoordinatorEvent, StopCause};
use crate::signals;
use crate::worker::DISPATCHERS;

/// Maximum number of failures of one type, and of other events of one type, that are logged in a
/// burst.
const FAILURES_AT_ONCE: u32 = 20;
const NOTICES_AT_ONCE: u32 = 3;

/// Interval of checks for which there is no event.
const TICK: Duration = Duration::from_secs(1);

/// Handles the records of a topic, a journal, a file or a pipe, in parallel across keys and in
/// order within one; stores its progress and resumes there.
#[derive(Debug, Args)]
#[command(after_long_help = format!("{AFTER_HELP}\n\n{}", kafka::note()), mut_args(features::marked))]
pub(crate) struct ConsumeArgs {
    /// TOML file with these settings; options of the command line take precedence.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    #[command(flatten)]
    settings: ConsumeSettings,
}

const AFTER_HELP: &str = "\
Exit code: 0; 1 to 100 for that many records that were skipped, dead-lettered or have stopped \
their key; 101 for more; 255 if it could not go on; 128 and the signal's number if a signal ended it.

Commands see the key in KEYLANE_KEY, and KEYLANE_STREAM, KEYLANE_PARTITION, KEYLANE_PARTITION_NUMBER, KEYLANE_POSITION, \
KEYLANE_WRITTEN, KEYLANE_HEADERS, KEYLANE_TOMBSTONE and KEYLANE_ATTEMPT. \
Interrupt once to let what runs finish, twice to end it.";

/// Runs `keylane consume`.
pub(crate) fn run(args: ConsumeArgs) -> anyhow::Result<ExitOutcome> {
    let mut settings = args.settings;
    if let Some(path) = &args.config {
        let mut file = config::load(path)?;
        if let Some(source) = &settings.source {
            keep_for_source(&mut file, source);
        }
        settings = settings.or(file);
    }
    let plan = ConsumePlan::new(settings)?;
    let (sender, events) = mpsc::channel();
    let output = Arc::new(StandardOutput::new(ProgressBar::hidden(), sender.clone())?);
    let log = Arc::new(ThrottledLog::new(Arc::clone(&output)));
    let mut journals = OpenJournals::default();
    let Endpoints { source, layout, sink } = ends(&plan, &mut journals)?;
    let payloads = Arc::new(PayloadFormat::new(plan.format.format, layout));
    let keys = Arc::new(KeyExtractor::new(&plan.keys, payloads)?);
    let builder = builder(source, &plan, &keys, &mut journals, &log)?;
    let results = sink.map(|sink| (sink, OutputRecordBuilder::new(keys.clone())));
    let runtime = runtime(&plan)?;
    // After the source, whose lock ensures that no other process consumes with this progress.
    // Before the signal handlers, so that a signal ends the wait for an earlier process's commands.
    let children = children(&plan)?;
    // Before the first record is handled: its output may make a user send a signal at once.
    signals::watch(sender.clone())?;
    let parts = HandlerParts { keys, output, children: children.clone(), results };
    let (consumer, workers) = parts.start(&plan, builder, runtime.as_ref())?;
    if let (Some(address), Some(runtime)) = (&plan.listen, &runtime) {
        let handle = consumer.handle();
        let stalled = plan.stall_timeout;
        let uncommitted = stalled.saturating_add(plan.commit_interval);
        let patience = HealthThresholds { stalled, uncommitted };
        let access = ControlAccess { token: plan.listen_token, log: Arc::clone(&log) };
        let at = status_endpoints::listen(runtime.handle(), address, handle, patience, access)?;
        log.say(LogLevel::Info, format_args!("listening at http://{at}"));
    }
    let handle = consumer.handle();
    let watch = workers.as_ref().map(WorkerProcesses::watch);
    let (done, ended) = mpsc::channel();
    let left = children.clone();
    let forced = Arc::new(ForcedEnd::new(children.clone()));
    let ending_workers = Arc::clone(&forced);
    thread::Builder::new().name("keylane-waiter".into()).spawn(move || {
        let ended = consumer.wait();
        ending_workers.consumer_ended();
        leave(&ended, workers, left.as_deref());
        let _ = done.send(ended);
        let _ = sender.send(CoordinatorEvent::Drained);
    })?;
    let look = || watch.iter().for_each(|watch| watch());
    let stopped =
        follow(&events, &handle, (children.as_deref(), &forced), plan.shutdown_timeout, &log, look);
    let ended = ended.recv().context("the consumer has panicked")?;
    report(&ended, &log);
    children.inspect(|children| children.dismiss());
    if let Some(runtime) = runtime {
        runtime.shutdown_background();
    }
    Ok(ending(&ended, stopped))
}

/// Parts of which the handler of records is made.
struct HandlerParts {
    keys: Arc<KeyExtractor>,
    output: Arc<StandardOutput>,
    /// Absent for a handler without processes.
    children: Option<Arc<ChildProcesses>>,
    results: ResultSink,
}

impl HandlerParts {
    /// Starts the consumer with the planned handler, and returns the processes of workers.
    fn start(
        self,
        plan: &ConsumePlan,
        builder: ConsumerBuilder,
        runtime: Option<&Runtime>,
    ) -> anyhow::Result<(Consumer, Option<WorkerProcesses>)> {
        let HandlerParts { keys, output, children, results } = self;
        let environment = plan.environment.clone();
        let processes = || children.expect("commands and workers have a registry");
        let runtime = || runtime.expect("requests have a runtime").handle().clone();
        let threads = |builder: ConsumerBuilder| builder.threads(plan.jobs);
        let consumer = match &plan.handler {
            HandlerPlan::Command { words, timeout } => {
                let new = match plan.batch {
                    Some(_) => CommandHandler::for_batches,
                    None => CommandHandler::new,
                };
                let (payload, children) = (plan.payload, processes());
                let commands = new(words, payload, keys, environment, output, children)?;
                let commands = commands.with_timeout(*timeout);
                match plan.batch {
                    Some(batch) => batches::start_commands(threads(builder), batch, commands)?,
                    None => start_commands(threads(builder), commands, results)?,
                }
            }
            HandlerPlan::Worker { words, timeout, placement } => {
                let start =
                    |(sink, outputs)| Ok::<_, std::io::Error>((Outbox::start(sink)?, outputs));
                let records = ConsumerObserver::new(results.map(start).transpose()?, output);
                let workers = WorkerProcesses::start(
                    words,
                    (plan.jobs, *placement),
                    *timeout,
                    &environment,
                    records,
                    processes(),
                )?;
                let handler = workers.handler(keys, plan.payload, plan.no_key);
                let consumer = builder.threads(DISPATCHERS).start_with_acks(handler)?;
                return Ok((consumer, Some(workers)));
            }
            HandlerPlan::Http { url, timeout } => {
                let posts = HttpHandler::new(url, *timeout, keys, plan.payload)?;
                match plan.batch {
                    Some(batch) => batches::start_posts(threads(builder), batch, posts, runtime())?,
                    None => start_posts(builder, posts, results, runtime(), plan.jobs)?,
                }
            }
        };
        Ok((consumer, None))
    }
}

/// Registry of the processes that handle records, if there are any. Ends those that an earlier
/// process with the same progress has left. A group member has no local progress, so only its guard
/// ends its processes.
fn children(plan: &ConsumePlan) -> anyhow::Result<Option<Arc<ChildProcesses>>> {
    if matches!(plan.handler, HandlerPlan::Http { .. }) {
        return Ok(None);
    }
    let registry = match &plan.source {
        validated::PlannedSource::Journal { path, .. } => process::guarded_beside(path)?,
        validated::PlannedSource::File { state, .. } => process::guarded_beside(state)?,
        validated::PlannedSource::Kafka(member) => {
            process::guarded_with_grace(member.grace_after_kill())?
        }
        validated::PlannedSource::Letters { state, .. } => process::guarded_beside(state)?,
        validated::PlannedSource::Stdin => process::guarded()?,
    };
    Ok(Some(Arc::new(ChildProcesses::new(registry)?)))
}

/// Sink for results, and their conversion.
type ResultSink = Option<(Box<dyn Sink>, OutputRecordBuilder)>;

fn start_commands(
    builder: ConsumerBuilder,
    commands: CommandHandler,
    results: ResultSink,
) -> Result<Consumer, StartError> {
    let Some((sink, outputs)) = results else {
        return builder.start(move |attempt: &Attempt| commands.handle(attempt));
    };
    builder.start_producing(sink, move |attempt: &Attempt| {
        commands.ask(attempt).map(|answer| outputs.of(attempt, answer))
    })
}

fn start_posts(
    builder: ConsumerBuilder,
    posts: HttpHandler,
    results: ResultSink,
    runtime: Handle,
    jobs: usize,
) -> Result<Consumer, StartError> {
    let posts = Arc::new(posts);
    let Some((sink, outputs)) = results else {
        return builder.start_async(runtime, jobs, move |attempt| {
            let posts = Arc::clone(&posts);
            async move { unless_forced(&attempt, posts.ask(&attempt)).await.map(drop) }
        });
    };
    let outputs = Arc::new(outputs);
    builder.start_async_producing(runtime, jobs, sink, move |attempt| {
        let (posts, outputs) = (Arc::clone(&posts), Arc::clone(&outputs));
        async move {
            let answer = unless_forced(&attempt, posts.ask(&attempt)).await;
            answer.map(|answer| outputs.of(&attempt, answer))
        }
    })
}

fn builder(
    source: Box<dyn Source>,
    plan: &ConsumePlan,
    keys: &Arc<KeyExtractor>,
    journals: &mut OpenJournals,
    log: &Arc<ThrottledLog>,
) -> anyhow::Result<ConsumerBuilder> {
    let tell = Arc::clone(log);
    let mut builder = Consumer::builder(source)
        .unkeyed(match plan.no_key {
            NoKey::Serial => consumer::UnkeyedPolicy::OneByOne,
            NoKey::Unordered => consumer::UnkeyedPolicy::Unordered,
            NoKey::Reject => consumer::UnkeyedPolicy::Reject,
        })
        .commit(plan.commit_interval, plan.commit_batch_size)
        .max_in_flight(plan.max_in_flight, plan.max_in_flight_bytes)
        .shutdown_timeout(plan.shutdown_timeout)
        .retry(plan.policy.clone(), classify)
        .on_event(move |notice| match notice {
            // With one partition that is no news.
            ConsumerEvent::Assigned(_) | ConsumerEvent::Released { running: 0, .. } => {}
            notice @ ConsumerEvent::Failed { .. } => {
                tell.say_seldom(LogLevel::Warn, FAILURES_AT_ONCE, notice)
            }
            notice @ (ConsumerEvent::Paused(_)
            | ConsumerEvent::Resumed(_)
            | ConsumerEvent::Retried { .. }) => {
                tell.say_seldom(LogLevel::Info, FAILURES_AT_ONCE, notice)
            }
            notice => tell.say_seldom(LogLevel::Warn, NOTICES_AT_ONCE, notice),
        });
    builder = match plan.order {
        RecordOrder::Key if plan.keys.has_several() => {
            let keys = Arc::clone(keys);
            builder.by_keys(move |record| keys.claims_of(record))
        }
        RecordOrder::Key if !plan.keys.key.is_empty() => {
            let keys = Arc::clone(keys);
            builder.by(move |record| keys.key_of(record))
        }
        RecordOrder::Key => builder.by_key(),
        RecordOrder::Partition => builder.by_partition(),
        RecordOrder::None => builder.unordered(),
    };
    builder = plan.pace.apply(builder);
    if let Some(place) = &plan.dead_letters {
        builder = builder.dead_letters(dead_letters(place, journals, log)?);
    }
    Ok(builder)
}

/// Source of records, with the fields that their payloads have.
fn source(
    plan: &ConsumePlan,
    journals: &mut OpenJournals,
) -> anyhow::Result<(Box<dyn Source>, FieldLayout)> {
    let source: Box<dyn Source> = match &plan.source {
        validated::PlannedSource::Kafka(member) => kafka::source(member)?,
        validated::PlannedSource::Journal { path, group, to_the_end } => {
            let source = JournalSource::new(journals.source(path)?, group.as_str());
            Box::new(if *to_the_end { source.to_the_end() } else { source })
        }
        validated::PlannedSource::File { path, state, follow } => {
            let (source, layout) = file_sources::file(path, state, plan.format)?;
            return Ok((Box::new(if *follow { source.follow() } else { source }), layout));
        }
        validated::PlannedSource::Letters { path, state } => {
            Box::new(DeadLetterSource::open(path, state)?)
        }
        validated::PlannedSource::Stdin => return file_sources::pipe(plan.format),
    };
    Ok((source, plan.format.layout()))
}

/// Source of the records, with the fields of their payloads, and sink for their results if they are kept.
struct Endpoints {
    source: Box<dyn Source>,
    layout: FieldLayout,
    sink: Option<Box<dyn Sink>>,
}

fn ends(plan: &ConsumePlan, journals: &mut OpenJournals) -> anyhow::Result<Endpoints> {
    if let (
        validated::PlannedSource::Kafka(member),
        Some(validated::OutputTarget::ExactlyOnce { topic }),
    ) = (&plan.source, &plan.output)
    {
        let (source, sink) = kafka::exactly_once(member, topic)?;
        return Ok(Endpoints { source, layout: plan.format.layout(), sink: Some(sink) });
    }
    let (source, layout) = source(plan, journals)?;
    let sink: Option<Box<dyn Sink>> = match &plan.output {
        Some(validated::OutputTarget::Journal(path)) => {
            Some(Box::new(JournalSink::new(journals.target(path)?)))
        }
        Some(validated::OutputTarget::Kafka { address, client }) => {
            Some(kafka::output(address, client)?)
        }
        Some(validated::OutputTarget::ExactlyOnce { .. }) => unreachable!("its source is a topic"),
        None => None,
    };
    Ok(Endpoints { source, layout, sink })
}

fn dead_letters(
    place: &validated::DeadLetters,
    journals: &mut OpenJournals,
    log: &Arc<ThrottledLog>,
) -> anyhow::Result<Box<dyn DeadLetters>> {
    Ok(match place {
        validated::DeadLetters::File(path) => {
            let letters = FileDeadLetters::open(path);
            let cannot = || format!("cannot write dead letters to {}", path.display());
            let (log, name) = (Arc::clone(log), path.display().to_string());
            Box::new(letters.with_context(cannot)?.on_removed(move |line| {
                log.say(LogLevel::Warn, format_args!("{name}: {line}"));
            }))
        }
        validated::DeadLetters::Journal(path) => {
            Box::new(JournalDeadLetters::new(journals.target(path)?))
        }
        validated::DeadLetters::Kafka { address, client } => kafka::dead_letters(address, client)?,
    })
}

/// Tokio runtime, if requests or the endpoint need one.
fn runtime(plan: &ConsumePlan) -> anyhow::Result<Option<Runtime>> {
    let wanted = plan.listen.is_some() || matches!(plan.handler, HandlerPlan::Http { .. });
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.enable_all().thread_name("keylane-io").worker_threads(2);
    Ok(wanted.then(|| builder.build()).transpose()?)
}

/// Ends processes that outlive the consumer. Abandoned attempts are ended only now, when their end
/// cannot be mistaken for a failed attempt.
fn leave(
    ended: &ShutdownReport,
    workers: Option<WorkerProcesses>,
    children: Option<&ChildProcesses>,
) {
    match workers {
        Some(workers) if ended.abandoned > 0 => workers.abandon(),
        Some(workers) => workers.close(),
        None => {}
    }
    if ended.abandoned > 0 {
        children.inspect(|children| children.terminate());
    }
}

/// Waits for the end, and hurries it on demand. How that ends it if something asked for it: the first counts.
fn follow(
    events: &Receiver<CoordinatorEvent>,
    handle: &ConsumerHandle,
    (children, forced): (Option<&ChildProcesses>, &ForcedEnd),
    shutdown_timeout: Duration,
    log: &ThrottledLog,
    look: impl Fn(),
) -> Option<ExitOutcome> {
    let mut asked = 0;
    let mut stopped = None;
    loop {
        let cause = match events.recv_timeout(TICK) {
            Ok(CoordinatorEvent::Stop(cause)) => cause,
            Ok(_) | Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                look();
                continue;
            }
        };
        asked += 1;
        let ending = match cause {
            StopCause::Signal(signal) => ExitOutcome::Signalled { signal },
            StopCause::OutputClosed => {
                ExitOutcome::Signalled { signal: signal_hook::consts::SIGPIPE }
            }
            StopCause::RecordFailed => unreachable!("a consumer stops its records by itself"),
            StopCause::Error(error) => {
                log.say(LogLevel::Error, format_args!("{error:#}"));
                ExitOutcome::Error
            }
        };
        stopped.get_or_insert(ending);
        match asked {
            1 => {
                handle.stop(shutdown_timeout);
                log.say(
                    LogLevel::Info,
                    "stopping; what runs may finish, interrupt again to end it",
                );
            }
            2 => {
                log.say(LogLevel::Info, "ending what runs");
                // SIGTERM now, and SIGKILL after the grace time.
                handle.cancel(keylane_process::GRACE);
                forced.force();
            }
            _ => _ = children.inspect(|children| children.kill()),
        }
    }
    stopped
}

fn report(ended: &ShutdownReport, log: &ThrottledLog) {
    for stopped in &ended.stopped {
        let record = &stopped.record;
        let why = record.failure.as_deref().unwrap_or("it failed");
        log.say(
            LogLevel::Warn,
            format_args!(
                "{} at {} was not handled, and the later records of its key wait: {why}",
                stopped.partition, record.position
            ),
        );
    }
    for partition in &ended.uncommitted {
        log.say(
            LogLevel::Error,
            format_args!(
                "the last progress of {partition} was not stored; its records since the last stored \
                 progress are handled again"
            ),
        );
    }
    let counts = &ended.counts;
    let replaced = match counts.replaced {
        0 => String::new(),
        replaced => format!(", {replaced} replaced by later ones"),
    };
    let missed = match counts.missed {
        0 => String::new(),
        missed => format!(", {missed} removed before they were read"),
    };
    let level = match ended.reason {
        StopReason::Failed { .. } | StopReason::Source(_) | StopReason::NotAlone(_) => {
            LogLevel::Error
        }
        _ => LogLevel::Info,
    };
    log.say(
        level,
        format_args!(
            "ended because {}: {} handled, {} failed attempts, {} skipped, {} dead-lettered, {} given up{replaced}{missed}",
            ended.reason,
            counts.handled,
            counts.failed_attempts,
            counts.skipped,
            counts.dead_lettered,
            counts.cancelled + ended.abandoned as u64
        ),
    );
}

fn ending(ended: &ShutdownReport, stopped: Option<ExitOutcome>) -> ExitOutcome {
    let counts = &ended.counts;
    match (&ended.reason, stopped) {
        // The failure is the lost output.
        (StopReason::Failed { failure, .. }, Some(stopped)) if is_not_written(failure) => stopped,
        (StopReason::Failed { .. } | StopReason::Source(_) | StopReason::NotAlone(_), _) => {
            ExitOutcome::Error
        }
        (_, Some(stopped)) => stopped,
        _ if !ended.uncommitted.is_empty() => ExitOutcome::Error,
        _ => ExitOutcome::Finished {
            failed: counts.skipped + counts.dead_lettered + ended.stopped.len() as u64,
        },
    }
}

fn is_not_written(failure: &AttemptFailure) -> bool {
    matches!(failure.downcast_ref(), Some(NotHandled::NotWritten(_)))
}
