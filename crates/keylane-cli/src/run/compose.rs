//! Assembly of a run from its parts.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::cli::RunArgs;
use crate::exit::ExitOutcome;
use crate::input::{InputFile, InputFormat, InputSource};
use crate::key::KeyRule;
use crate::output::StandardOutput;
use crate::process::{self, ChildProcesses, RecordProcessRunner};
use crate::progress::ProgressDisplay;
use crate::run_stats::RunStats;
use crate::signals;
use crate::worker::{self, WorkerPool};

use super::coordinator::RunCoordinator;
use super::coordinator_event::CoordinatorEvent;
use super::executor::RecordExecutor;
use super::log::RecordLog;
use super::reader::InputReader;
use super::record_template::RecordTemplate;
use super::trace::TraceFile;
use super::worker_events::RunObserver;

/// Runs the command for every record.
pub(crate) fn run(args: RunArgs) -> anyhow::Result<ExitOutcome> {
    anyhow::ensure!(
        !args.header || matches!(args.format(), InputFormat::Csv | InputFormat::Tsv),
        "--header is for tables; give --csv or --tsv as well"
    );
    refuse_separators(&args.command)?;
    let (sender, events) = mpsc::channel();
    let origin = InputFile::open(args.file.as_deref())?;
    let (length, meter) = (origin.length(), origin.meter());
    let format = args.format();
    let source = InputSource::new(origin, format, args.header)?;
    let nulls = args.null_value.iter().cloned().map(OsStringExt::into_vec).collect();
    let key_rule = KeyRule::new(&args.key, nulls, args.no_key, source.layout())?;
    let jobs = args.jobs.count();
    let plan = if args.worker {
        RecordTemplate::line(args.worker_line.as_ref(), source.layout())?
    } else {
        RecordTemplate::command(&args.command, source.layout())?
    };

    let trace = args.trace.as_deref().map(TraceFile::create).transpose()?;
    let log = args.log.as_deref().map(RecordLog::create).transpose()?.map(Arc::new);

    // Not before: until here a signal ends the program as it ends any other,
    // even while the first line is waited for.
    signals::watch(sender.clone())?;
    let progress = ProgressDisplay::new(args.progress, length, meter);
    let output = StandardOutput::new(progress.bar(), sender.clone())?;
    let stats = Arc::new(RunStats::new(output));
    let engine = if args.worker {
        workers(&args, jobs, &stats, &sender, log)?
    } else {
        processes(&plan, &stats, &sender, log)?
    };
    let pool = Arc::new(engine.pool(jobs, args.buffer.get())?);
    if let Some(trace) = &trace {
        trace.record(&pool, engine.threads(jobs));
    }
    let shown = progress.show(&stats, &pool);

    // With one job, no other order than the input's is faster.
    let is_sequential = jobs == 1;
    let reader = InputReader { source, key_rule, plan, stats: Arc::clone(&stats), is_sequential };
    start_reading(reader, &pool, &sender)?;
    let engine = Arc::new(engine);
    let ending = RunCoordinator::new(pool.clone(), Arc::clone(&engine), sender).follow(&events);
    engine.children().dismiss();
    shown.finish(&stats, ending);
    if let Some(trace) = trace {
        trace.write(&pool)?;
    }
    Ok(ending)
}

/// Refuses the words that separate arguments from the command in GNU parallel: nothing would run for them.
fn refuse_separators(command: &[OsString]) -> anyhow::Result<()> {
    let separator = command
        .iter()
        .find(|word| [":::", "::::", ":::+", "::::+"].map(OsStr::new).contains(&word.as_os_str()));
    let Some(separator) = separator else { return Ok(()) };
    anyhow::bail!(
        "`{}` has no meaning here, for records come from a file or a pipe: write them a line each, as in \
         `printf '%s\\n' a b | keylane run ...`",
        separator.display()
    )
}

fn processes(
    plan: &RecordTemplate,
    stats: &Arc<RunStats>,
    events: &Sender<CoordinatorEvent>,
    log: Option<Arc<RecordLog>>,
) -> anyhow::Result<RecordExecutor> {
    let program =
        plan.program().map(|name| process::resolve(OsStr::from_bytes(name))).transpose()?;
    Ok(RecordExecutor::Processes(Arc::new(RecordProcessRunner {
        children: ChildProcesses::new(process::guarded()?)?,
        stats: Arc::clone(stats),
        events: events.clone(),
        program,
        log,
    })))
}

fn workers(
    args: &RunArgs,
    jobs: usize,
    stats: &Arc<RunStats>,
    events: &Sender<CoordinatorEvent>,
    log: Option<Arc<RecordLog>>,
) -> anyhow::Result<RecordExecutor> {
    // Trace and log show one record of a key after the other.
    let keeps_turns = args.trace.is_some() || log.is_some();
    let observer = RunObserver { stats: Arc::clone(stats), events: events.clone(), log };
    let children = Arc::new(ChildProcesses::new(process::guarded()?)?);
    let workers = WorkerPool::new(jobs, worker::command(&args.command)?, children, observer);
    let workers = workers.answer_within(args.worker_timeout.map(|span| span.0));
    let workers = if keeps_turns { workers.keep_turns() } else { workers };
    let workers = Arc::new(workers);
    let slot_threads = workers.spawn(jobs)?;
    Ok(RecordExecutor::Workers(workers, Mutex::new(slot_threads)))
}

/// The thread is never joined: it may be waiting for a record that comes only
/// after the run was asked to end, or never.
fn start_reading(
    reader: InputReader,
    pool: &Arc<super::RecordPool>,
    events: &Sender<CoordinatorEvent>,
) -> anyhow::Result<()> {
    let (pool, events) = (Arc::clone(pool), events.clone());
    thread::Builder::new().name("keylane-reader".into()).spawn(move || {
        let outcome = reader.read_all(&pool);
        let _ = events.send(CoordinatorEvent::InputEnded(outcome));
    })?;
    Ok(())
}
