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
    self, Attempt, Builder, Consumer, ConsumerEvent, ConsumerHandle, Failure, Outbox,
    ShutdownReport, StartError, StopReason,
};
use keylane_stream::dead_letters::{DeadLetters, FileDeadLetters, JournalDeadLetters};
use keylane_stream::journal::JournalSource;
use keylane_stream::lines::{FileSource, PipeSource};
use keylane_stream::sink::{JournalSink, Sink};
use keylane_stream::source::Source;
use tokio::runtime::{Handle, Runtime};

use super::handle::{Commands, NotHandled, Posts, classify};
use super::journals::Journals;
use super::keys::Keys;
use super::log::{Level, Log};
use super::outputs::Outputs;
use super::plan::{self, Handler, Plan};
use super::settings::{NoKey, Order, Settings};
use super::view::Patience;
use super::workers::{Records, Workers};
use super::{batches, config, endpoint, kafka};
use crate::exit::Ending;
use crate::input::Layout;
use crate::output::Output;
use crate::process::{self, Children};
use crate::run::{Cause, Event};
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
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct ConsumeArgs {
    /// TOML file with these settings; options of the command line take precedence.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    #[command(flatten)]
    settings: Settings,
}

const AFTER_HELP: &str = "\
Exit code: 0; 1 to 100 for that many records that were skipped, dead-lettered or have stopped \
their key; 101 for more; 255 if it could not go on; 128 and the signal's number if a signal ended it.

Commands see the key in KEYLANE_KEY, and KEYLANE_STREAM, KEYLANE_PARTITION, KEYLANE_PARTITION_NUMBER, KEYLANE_POSITION, \
KEYLANE_WRITTEN, KEYLANE_HEADERS, KEYLANE_TOMBSTONE and KEYLANE_ATTEMPT. \
Interrupt once to let what runs finish, twice to end it.";

/// Runs `keylane consume`.
pub(crate) fn run(args: ConsumeArgs) -> anyhow::Result<Ending> {
    let settings = match &args.config {
        Some(path) => args.settings.or(config::load(path)?),
        None => args.settings,
    };
    let plan = Plan::new(settings)?;
    let (sender, events) = mpsc::channel();
    let output = Arc::new(Output::new(ProgressBar::hidden(), sender.clone())?);
    let layout = if plan.ndjson { Layout::Ndjson } else { Layout::Lines };
    let keys = Arc::new(Keys::new(plan.key.as_deref(), &layout)?);
    let log = Arc::new(Log::new(Arc::clone(&output)));
    let mut journals = Journals::default();
    let (source, sink) = ends(&plan, &mut journals)?;
    let builder = builder(source, &plan, &keys, &mut journals, &log)?;
    let results = sink.map(|sink| (sink, Outputs::new(keys.clone())));
    let runtime = runtime(&plan)?;
    // After the source, whose lock ensures that no other process consumes with this progress.
    // Before the signal handlers, so that a signal ends the wait for an earlier process's commands.
    let children = children(&plan)?;
    let environment = plan.environment.clone();
    // Before the first record is handled: its output may make a user send a signal at once.
    signals::watch(sender.clone())?;
    let mut workers = None;
    let processes = || Arc::clone(children.as_ref().expect("they are there for this"));
    let consumer = match &plan.handler {
        Handler::Command(words) if let Some(batch) = plan.batch => {
            let output = Arc::clone(&output);
            let commands = Commands::for_batches(
                words,
                &layout,
                plan.payload,
                keys,
                environment,
                output,
                processes(),
            )?;
            batches::start_commands(builder.threads(plan.jobs), batch, commands)?
        }
        Handler::Command(words) => {
            let output = Arc::clone(&output);
            let commands = Commands::new(
                words,
                &layout,
                plan.payload,
                keys,
                environment,
                output,
                processes(),
            )?;
            start_commands(builder.threads(plan.jobs), commands, results)?
        }
        Handler::Worker { words, timeout } => {
            let start = |(sink, outputs)| Ok::<_, std::io::Error>((Outbox::start(sink)?, outputs));
            let records = Records::new(results.map(start).transpose()?, Arc::clone(&output));
            let started =
                Workers::start(words, plan.jobs, *timeout, &environment, records, processes())?;
            let handler = workers.insert(started).handler(keys, plan.payload);
            builder.threads(DISPATCHERS).start_with_acks(handler)?
        }
        Handler::Http { url, timeout } => {
            let posts = Posts::new(url, *timeout, keys, plan.ndjson, plan.payload)?;
            let runtime = runtime.as_ref().expect("it is there for this").handle().clone();
            match plan.batch {
                Some(batch) => {
                    batches::start_posts(builder.threads(plan.jobs), batch, posts, runtime)?
                }
                None => start_posts(builder, posts, results, runtime, plan.jobs)?,
            }
        }
    };
    if let (Some(address), Some(runtime)) = (&plan.listen, &runtime) {
        let handle = consumer.handle();
        let stalled = plan.stalled_after;
        let uncommitted = stalled.saturating_add(plan.commit_every);
        let patience = Patience { stalled, uncommitted };
        let at = endpoint::listen(runtime.handle(), address, handle, patience)?;
        log.say(Level::Info, format_args!("listening at http://{at}"));
    }
    let handle = consumer.handle();
    let watch = workers.as_ref().map(Workers::watch);
    let (done, ended) = mpsc::channel();
    let left = children.clone();
    thread::Builder::new().name("keylane-waiter".into()).spawn(move || {
        let ended = consumer.wait();
        leave(&ended, workers, left.as_deref());
        let _ = done.send(ended);
        let _ = sender.send(Event::Drained);
    })?;
    let look = || watch.iter().for_each(|watch| watch());
    let stopped = follow(&events, &handle, children.as_deref(), plan.stop_within, &log, look);
    let ended = ended.recv().context("the consumer has panicked")?;
    report(&ended, &log);
    children.inspect(|children| children.dismiss());
    if let Some(runtime) = runtime {
        runtime.shutdown_background();
    }
    Ok(ending(&ended, stopped))
}

/// Registry of the processes that handle records, if there are any. Ends those that an earlier
/// process with the same progress has left. A group member has no local progress, so only its guard
/// ends its processes.
fn children(plan: &Plan) -> anyhow::Result<Option<Arc<Children>>> {
    if matches!(plan.handler, Handler::Http { .. }) {
        return Ok(None);
    }
    let registry = match &plan.source {
        plan::Source::Journal { path, .. } => process::guarded_beside(path)?,
        plan::Source::File { state, .. } => process::guarded_beside(state)?,
        plan::Source::Kafka(_) | plan::Source::Stdin => process::guarded()?,
    };
    Ok(Some(Arc::new(Children::new(registry)?)))
}

/// Sink for results, and their conversion.
type Results = Option<(Box<dyn Sink>, Outputs)>;

fn start_commands(
    builder: Builder,
    commands: Commands,
    results: Results,
) -> Result<Consumer, StartError> {
    let Some((sink, outputs)) = results else {
        return builder.start(move |attempt: &Attempt| commands.handle(attempt));
    };
    builder.start_producing(sink, move |attempt: &Attempt| {
        commands.ask(attempt).map(|answer| outputs.of(attempt, answer))
    })
}

fn start_posts(
    builder: Builder,
    posts: Posts,
    results: Results,
    runtime: Handle,
    jobs: usize,
) -> Result<Consumer, StartError> {
    let posts = Arc::new(posts);
    let Some((sink, outputs)) = results else {
        return builder.start_async(runtime, jobs, move |attempt| {
            let posts = Arc::clone(&posts);
            async move { posts.ask(&attempt).await.map(drop) }
        });
    };
    let outputs = Arc::new(outputs);
    builder.start_async_producing(runtime, jobs, sink, move |attempt| {
        let (posts, outputs) = (Arc::clone(&posts), Arc::clone(&outputs));
        async move { posts.ask(&attempt).await.map(|answer| outputs.of(&attempt, answer)) }
    })
}

fn builder(
    source: Box<dyn Source>,
    plan: &Plan,
    keys: &Arc<Keys>,
    journals: &mut Journals,
    log: &Arc<Log>,
) -> anyhow::Result<Builder> {
    let tell = Arc::clone(log);
    let mut builder = Consumer::builder(source)
        .unkeyed(match plan.no_key {
            NoKey::Serial => consumer::UnkeyedPolicy::OneByOne,
            NoKey::Unordered => consumer::UnkeyedPolicy::Unordered,
            NoKey::Reject => consumer::UnkeyedPolicy::Reject,
        })
        .commit(plan.commit_every, plan.commit_after)
        .max_in_flight(plan.most_records, plan.most_bytes)
        .shutdown_timeout(plan.stop_within)
        .retry(plan.policy.clone(), classify)
        .on_event(move |notice| match notice {
            // With one partition that is no news.
            ConsumerEvent::Assigned(_) | ConsumerEvent::Released { running: 0, .. } => {}
            notice @ ConsumerEvent::Failed { .. } => {
                tell.say_seldom(Level::Warn, FAILURES_AT_ONCE, notice)
            }
            notice => tell.say_seldom(Level::Warn, NOTICES_AT_ONCE, notice),
        });
    builder = match plan.order {
        Order::Key if plan.key.is_some() => {
            let keys = Arc::clone(keys);
            builder.by(move |record| keys.key_of(record))
        }
        Order::Key => builder.by_key(),
        Order::Partition => builder.by_partition(),
        Order::None => builder.unordered(),
    };
    if let Some(place) = &plan.dead_letters {
        builder = builder.dead_letters(dead_letters(place, journals)?);
    }
    Ok(builder)
}

fn source(plan: &Plan, journals: &mut Journals) -> anyhow::Result<Box<dyn Source>> {
    Ok(match &plan.source {
        plan::Source::Kafka(member) => kafka::source(member)?,
        plan::Source::Journal { path, group, to_the_end } => {
            let source = JournalSource::new(journals.source(path)?, group.as_str());
            Box::new(if *to_the_end { source.to_the_end() } else { source })
        }
        plan::Source::File { path, state, follow } => {
            let source = FileSource::open(path, state)?;
            Box::new(if *follow { source.follow() } else { source })
        }
        plan::Source::Stdin => Box::new(PipeSource::new("standard input", std::io::stdin())?),
    })
}

/// Source of the records, and sink for their results if they are kept.
type Ends = (Box<dyn Source>, Option<Box<dyn Sink>>);

fn ends(plan: &Plan, journals: &mut Journals) -> anyhow::Result<Ends> {
    if let (plan::Source::Kafka(member), Some(plan::Output::ExactlyOnce { topic })) =
        (&plan.source, &plan.output)
    {
        let (source, sink) = kafka::exactly_once(member, topic)?;
        return Ok((source, Some(sink)));
    }
    let source = source(plan, journals)?;
    let sink: Option<Box<dyn Sink>> = match &plan.output {
        Some(plan::Output::Journal(path)) => {
            Some(Box::new(JournalSink::new(journals.target(path)?)))
        }
        Some(plan::Output::Kafka { address, client }) => Some(kafka::output(address, client)?),
        Some(plan::Output::ExactlyOnce { .. }) => unreachable!("its source is a topic"),
        None => None,
    };
    Ok((source, sink))
}

fn dead_letters(
    place: &plan::DeadLetters,
    journals: &mut Journals,
) -> anyhow::Result<Box<dyn DeadLetters>> {
    Ok(match place {
        plan::DeadLetters::File(path) => {
            let letters = FileDeadLetters::open(path);
            let cannot = || format!("cannot write dead letters to {}", path.display());
            Box::new(letters.with_context(cannot)?)
        }
        plan::DeadLetters::Journal(path) => {
            Box::new(JournalDeadLetters::new(journals.target(path)?))
        }
        plan::DeadLetters::Kafka { address, client } => kafka::dead_letters(address, client)?,
    })
}

/// Tokio runtime, if requests or the endpoint need one.
fn runtime(plan: &Plan) -> anyhow::Result<Option<Runtime>> {
    let wanted = plan.listen.is_some() || matches!(plan.handler, Handler::Http { .. });
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.enable_all().thread_name("keylane-io").worker_threads(2);
    Ok(wanted.then(|| builder.build()).transpose()?)
}

/// Ends processes that outlive the consumer. Abandoned attempts are ended only now, when their end
/// cannot be mistaken for a failed attempt.
fn leave(ended: &ShutdownReport, workers: Option<Workers>, children: Option<&Children>) {
    match workers {
        Some(workers) if ended.abandoned > 0 => workers.abandon(),
        Some(workers) => workers.dismiss(),
        None => {}
    }
    if ended.abandoned > 0 {
        children.inspect(|children| children.terminate());
    }
}

/// Waits for the end, and hurries it on demand. How that ends it if something asked for it: the first counts.
fn follow(
    events: &Receiver<Event>,
    handle: &ConsumerHandle,
    children: Option<&Children>,
    stop_within: Duration,
    log: &Log,
    look: impl Fn(),
) -> Option<Ending> {
    let mut asked = 0;
    let mut stopped = None;
    loop {
        let cause = match events.recv_timeout(TICK) {
            Ok(Event::Stop(cause)) => cause,
            Ok(_) | Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                look();
                continue;
            }
        };
        asked += 1;
        let ending = match cause {
            Cause::Signal(signal) => Ending::Signalled { signal },
            Cause::OutputClosed => Ending::Signalled { signal: signal_hook::consts::SIGPIPE },
            Cause::Error(error) => {
                log.say(Level::Error, format_args!("{error:#}"));
                Ending::Error
            }
        };
        stopped.get_or_insert(ending);
        match asked {
            1 => {
                handle.stop(stop_within);
                log.say(Level::Info, "stopping; what runs may finish, interrupt again to end it");
            }
            2 => {
                log.say(Level::Info, "ending what runs");
                handle.stop(Duration::ZERO);
            }
            _ => _ = children.inspect(|children| children.kill()),
        }
    }
    stopped
}

fn report(ended: &ShutdownReport, log: &Log) {
    for stopped in &ended.stopped {
        let record = &stopped.record;
        let why = record.failure.as_deref().unwrap_or("it failed");
        log.say(
            Level::Warn,
            format_args!(
                "{} at {} is not done, nor is what is behind it: {why}",
                stopped.partition, record.position
            ),
        );
    }
    let counts = &ended.counts;
    let missed = match counts.missed {
        0 => String::new(),
        missed => format!(", {missed} removed before they were read"),
    };
    let level = match ended.reason {
        StopReason::Failed { .. } | StopReason::Source(_) => Level::Error,
        _ => Level::Info,
    };
    log.say(
        level,
        format_args!(
            "ended because {}: {} handled, {} attempts failed, {} skipped, {} dead-lettered, {} given up{missed}",
            ended.reason,
            counts.handled,
            counts.failed_attempts,
            counts.skipped,
            counts.dead_lettered,
            ended.abandoned
        ),
    );
}

fn ending(ended: &ShutdownReport, stopped: Option<Ending>) -> Ending {
    let counts = &ended.counts;
    match (&ended.reason, stopped) {
        // The failure is the lost output.
        (StopReason::Failed { failure, .. }, Some(stopped)) if is_not_written(failure) => stopped,
        (StopReason::Failed { .. } | StopReason::Source(_), _) => Ending::Error,
        (_, Some(stopped)) => stopped,
        _ => Ending::Finished {
            failed: counts.skipped + counts.dead_lettered + ended.stopped.len() as u64,
        },
    }
}

fn is_not_written(failure: &Failure) -> bool {
    matches!(failure.downcast_ref(), Some(NotHandled::NotWritten(_)))
}
