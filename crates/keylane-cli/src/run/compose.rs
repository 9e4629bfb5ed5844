//! Assembly of a run from its parts.

use std::ffi::OsStr;
use std::num::NonZeroU16;
use std::os::unix::ffi::OsStrExt;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::exit::ExitOutcome;
use crate::input::FieldLayout;
use crate::output::StandardOutput;
use crate::process::{self, ChildProcesses, RecordProcessRunner, SlotNumbers};
use crate::progress::ProgressDisplay;
use crate::record_keys::KeyRules;
use crate::record_output::RunOutput;
use crate::run_stats::RunStats;
use crate::signals;
use crate::worker::{self, WorkerPool};

use super::args::RunArgs;
use super::batch_pace::RecordPace;
use super::batch_queue::BatchQueue;
use super::batch_submitter::BatchSubmitter;
use super::command_task::CommandRunner;
use super::coordinator::RunCoordinator;
use super::coordinator_event::CoordinatorEvent;
use super::dead_letters::RunDeadLetters;
use super::dry_run;
use super::executor::{PoolSettings, RecordExecutor};
use super::failures::FailureRules;
use super::log::RecordOptions;
use super::logs::{self, RunLogs};
use super::plan;
use super::reader::{InputReader, RunOrder};
use super::record_bound::RecordBound;
use super::record_pool::RecordPool;
use super::record_sinks::RecordSinks;
use super::record_template::RecordTemplate;
use super::resume::{self, RecordChoice};
use super::trace::TraceFile;
use super::worker_events::RunObserver;
use super::worker_retries::WorkerRetries;
use super::worker_retry_thread;

/// Runs the command for every record.
pub(crate) fn run(args: RunArgs) -> anyhow::Result<ExitOutcome> {
    args.check()?;
    resume::ensure_can_continue(&args)?;
    let (sender, events) = mpsc::channel();
    let source = args.input.open(&args.files)?;
    let (length, meter) = (source.length(), source.meter());
    let keys = KeyRules::new(args.keys.selection(), source.layout())?;
    if args.preview.plan {
        return plan::print(&args, source, keys);
    }
    let jobs = args.jobs.count();
    let plan = template(&args, source.layout())?;
    if args.preview.dry_run {
        return dry_run::print(&args, source, keys, &plan);
    }

    let tag = args.output.tag(source.layout(), args.batch.is_on())?;
    let results = args.output.results()?;
    let trace = args.trace.as_deref().map(TraceFile::create).transpose()?;
    let opened = logs::open(&args, RecordOptions::new(&args, source.layout()))?;
    let choice = RecordChoice::new(&args, &opened.prior);
    choice.iter().try_for_each(|choice| resume::check_input(choice, &args))?;
    let logs = Arc::new(RunLogs::start(&args, opened)?);
    let letters = args.failures.dead_letters.as_deref();
    let letters = letters.map(|place| RunDeadLetters::open(place, source.name())).transpose()?;

    // Not before: until here a signal ends the program as it ends any other,
    // even while the first line is waited for.
    signals::watch(sender.clone())?;
    let progress = ProgressDisplay::new(args.progress, length, meter);
    let output = StandardOutput::new(progress.bar(), sender.clone())?;
    let stats = Arc::new(RunStats::new(output));
    let output = args.output.start(&stats, results, args.input.buffer.get(), logs.clock)?;
    let failures = FailureRules::new(&args.failures, letters, sender.clone());
    // Of several keys, a message names the first; the log has them all.
    let has_details = args.keys.has_claims() && logs.has_log() || !failures.is_simple();
    let engine = if args.worker.worker {
        workers(&args, jobs, &output, &stats, &sender, &logs, failures)?
    } else {
        commands(&args, &plan, &output, &stats, &sender, &logs, failures)?
    };
    let pool = Arc::new(pool(&args, &engine, jobs)?);
    if let Some(trace) = &trace {
        trace.record(&pool, engine.threads(jobs));
    }
    let shown = progress.show(&stats, &pool, records_per_key(&args));

    let order = RunOrder {
        // With one job, no other order than the input's is faster. Only a waiting record of the
        // same key can be replaced, so that needs lanes.
        is_sequential: jobs == 1 && !args.keys.latest,
        is_latest: args.keys.latest,
        limit_per_key: args.keys.limit_per_key,
    };
    if let (Some(choice), Some(log)) = (&choice, &args.logs.log) {
        stats.output.say(choice.summary(log));
    }
    let (commands, workers) = (engine.commands(), engine.workers());
    let batches = BatchSubmitter::start(&pool, commands.as_ref(), &plan)?;
    let pace = batches.as_ref().and(args.pace.rate).map(|rate| RecordPace::new(rate.0));
    let reader = InputReader {
        source,
        keys,
        plan,
        stats: Arc::clone(&stats),
        order,
        sinks: RecordSinks { output, tag, has_limit: args.keys.limit_per_key.is_some() },
        commands,
        workers,
        has_details,
        logs,
        choice,
        batches,
        pace,
    };
    start_reading(reader, &pool, &sender)?;
    let engine = Arc::new(engine);
    let ending = RunCoordinator::new(pool.clone(), Arc::clone(&engine), sender).follow(&events);
    engine.children().dismiss();
    shown.finish(&stats, ending, resume::remedy(&args));
    engine.report();
    if let Some(trace) = trace {
        trace.write(&pool)?;
    }
    Ok(ending)
}

fn template(args: &RunArgs, layout: &FieldLayout) -> anyhow::Result<RecordTemplate> {
    if args.worker.worker {
        RecordTemplate::line(args.worker.worker_line.as_ref(), layout)
    } else if args.batch.is_on() {
        RecordTemplate::batch(&args.command, layout)
    } else {
        RecordTemplate::command(&args.command, layout)
    }
}

/// Maximum number of records of a key that run at the same time.
fn records_per_key(args: &RunArgs) -> u16 {
    let limit = args.keys.limit_per_key.map_or(1, NonZeroU16::get);
    let batch = args.batch.max_records();
    batch.map_or(limit, |batch| u16::try_from(batch.get()).unwrap_or(u16::MAX))
}

/// Builds the pool. With batches, `--rate` counts records, which the reader paces, and `--delay`
/// commands.
fn pool(args: &RunArgs, engine: &RecordExecutor, jobs: usize) -> anyhow::Result<RecordPool> {
    let (pace, buffer) = (&args.pace, args.input.buffer.get());
    let batches = args.batch.batches();
    let rate = if batches.is_some() { pace.rate_of_delay() } else { pace.rate_of_all() };
    let pool = engine.pool(PoolSettings {
        jobs,
        has_claims: args.keys.has_claims() && jobs > 1,
        buffer,
        rate,
        rate_per_key: pace.rate_per_key.map(|rate| rate.0),
    })?;
    Ok(match (batches, pool) {
        (Some(batches), RecordPool::Tasks(pool)) => {
            let queue = Arc::new(BatchQueue::new(batches));
            RecordPool::Batches { pool, queue, bound: RecordBound::new(buffer) }
        }
        (_, pool) => pool,
    })
}

fn commands(
    args: &RunArgs,
    plan: &RecordTemplate,
    output: &Arc<RunOutput>,
    stats: &Arc<RunStats>,
    events: &Sender<CoordinatorEvent>,
    logs: &Arc<RunLogs>,
    failures: FailureRules,
) -> anyhow::Result<RecordExecutor> {
    let program =
        plan.program().map(|name| process::resolve(OsStr::from_bytes(name))).transpose()?;
    let processes = RecordProcessRunner {
        children: ChildProcesses::new(process::guarded()?)?,
        stats: Arc::clone(stats),
        events: events.clone(),
        program,
        timeout: args.failures.timeout.map(|time| time.0),
        clock: logs.clock,
    };
    let (slots, names_slot) = (SlotNumbers::default(), plan.names_slot());
    let (output, logs) = (Arc::clone(output), Arc::clone(logs));
    let runner = CommandRunner { processes, failures, output, slots, names_slot, logs };
    Ok(RecordExecutor::Processes(Arc::new(runner)))
}

fn workers(
    args: &RunArgs,
    jobs: usize,
    output: &Arc<RunOutput>,
    stats: &Arc<RunStats>,
    events: &Sender<CoordinatorEvent>,
    logs: &Arc<RunLogs>,
    failures: FailureRules,
) -> anyhow::Result<RecordExecutor> {
    // Trace and log show one record of a key after the other.
    let is_shown = args.trace.is_some() || logs.has_log();
    let waits = args.keys.has_claims() || args.keys.latest || failures.hold_keys();
    let keeps_turns = is_shown || waits;
    let has_attempts = failures.retry().is_some();
    let (retries, retried) = WorkerRetries::new();
    let children = Arc::new(ChildProcesses::new(process::guarded()?)?);
    let observer = RunObserver {
        stats: Arc::clone(stats),
        events: events.clone(),
        logs: Arc::clone(logs),
        output: Arc::clone(output),
        answer_path: output.answer_path(args.output.has_tag()),
        failures,
        retries,
        children: Arc::clone(&children),
    };
    let (placement, command) = (args.worker.placement.worker_keys, worker::command(&args.command)?);
    let workers = WorkerPool::new(jobs, placement, command, children, observer);
    let workers = workers.answer_within(args.worker.worker_timeout.map(|span| span.0));
    let workers = workers.attempts(args.failures.attempts);
    let workers = if keeps_turns { workers.keep_turns() } else { workers };
    let workers = Arc::new(workers);
    let mut threads = workers.spawn(jobs)?;
    if has_attempts {
        threads.push(worker_retry_thread::start(retried, &workers)?);
    }
    Ok(RecordExecutor::Workers(workers, Mutex::new(threads)))
}

/// The thread is never joined: it may be waiting for a record that comes only
/// after the run was asked to end, or never.
fn start_reading(
    reader: InputReader,
    pool: &Arc<RecordPool>,
    events: &Sender<CoordinatorEvent>,
) -> anyhow::Result<()> {
    let (pool, events) = (Arc::clone(pool), events.clone());
    thread::Builder::new().name("keylane-reader".into()).spawn(move || {
        let outcome = reader.read_all(&pool);
        let _ = events.send(CoordinatorEvent::InputEnded(outcome));
    })?;
    Ok(())
}
