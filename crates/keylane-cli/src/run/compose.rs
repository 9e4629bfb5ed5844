//! Assembly of a run from its parts.

use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::cli::RunArgs;
use crate::exit::Ending;
use crate::input::{Format, Origin, Source};
use crate::key::KeyRule;
use crate::ledger::Ledger;
use crate::output::Output;
use crate::process::{self, Children, Processes};
use crate::progress::Progress;
use crate::signals;
use crate::worker::{self, Crew};

use super::books::Books;
use super::engine::Engine;
use super::event::Event;
use super::plan::Plan;
use super::reader::Reader;
use super::supervisor::Supervisor;
use super::trace::TraceFile;

/// Runs the command for every record.
pub(crate) fn run(args: RunArgs) -> anyhow::Result<Ending> {
    anyhow::ensure!(
        !args.header || matches!(args.format(), Format::Csv | Format::Tsv),
        "--header is for tables; give --csv or --tsv as well"
    );
    let (sender, events) = mpsc::channel();
    let origin = Origin::open(args.file.as_deref())?;
    let (length, meter) = (origin.length(), origin.meter());
    let format = args.format();
    let source = Source::new(origin, format, args.header)?;
    let nulls = args.null.iter().cloned().map(OsStringExt::into_vec).collect();
    let key_rule = KeyRule::new(&args.key, nulls, args.no_key, source.layout())?;
    let jobs = args.jobs.count();
    let plan = if args.worker {
        Plan::line(args.worker_line.as_ref(), source.layout())?
    } else {
        Plan::command(&args.command, source.layout())?
    };

    let trace = args.trace.as_deref().map(TraceFile::create).transpose()?;

    // Not before: until here a signal ends the program as it ends any other,
    // even while the first line is waited for.
    signals::watch(sender.clone())?;
    let progress = Progress::new(args.progress, length, meter);
    let output = Output::new(progress.bar(), sender.clone())?;
    let ledger = Arc::new(Ledger::new(output));
    let engine = if args.worker {
        workers(&args, jobs, &ledger, &sender)?
    } else {
        processes(&plan, &ledger, &sender)?
    };
    let pool = Arc::new(engine.pool(jobs, args.buffer.get())?);
    if let Some(trace) = &trace {
        trace.record(&pool, engine.threads(jobs));
    }
    let shown = progress.show(&ledger, &pool);

    // With one job, no other order than the input's is faster.
    let is_sequential = jobs == 1;
    let reader = Reader { source, key_rule, plan, ledger: Arc::clone(&ledger), is_sequential };
    start_reading(reader, &pool, &sender)?;
    let engine = Arc::new(engine);
    let ending = Supervisor::new(pool.clone(), Arc::clone(&engine), sender).follow(&events);
    engine.children().dismiss();
    shown.finish(&ledger, ending);
    if let Some(trace) = trace {
        trace.write(&pool)?;
    }
    Ok(ending)
}

fn processes(plan: &Plan, ledger: &Arc<Ledger>, events: &Sender<Event>) -> anyhow::Result<Engine> {
    let program =
        plan.program().map(|name| process::resolve(OsStr::from_bytes(name))).transpose()?;
    Ok(Engine::Processes(Arc::new(Processes {
        children: Children::new(process::guarded()?)?,
        ledger: Arc::clone(ledger),
        events: events.clone(),
        program,
    })))
}

fn workers(
    args: &RunArgs,
    jobs: usize,
    ledger: &Arc<Ledger>,
    events: &Sender<Event>,
) -> anyhow::Result<Engine> {
    let books = Books { ledger: Arc::clone(ledger), events: events.clone() };
    let children = Arc::new(Children::new(process::guarded()?)?);
    let crew = Crew::new(jobs, worker::command(&args.command)?, children, books);
    let crew = crew.answer_within(args.worker_timeout.map(|span| span.0));
    // The trace is of turns.
    let crew = Arc::new(if args.trace.is_some() { crew.keep_turns() } else { crew });
    let attendants = crew.hire(jobs)?;
    Ok(Engine::Workers(crew, Mutex::new(attendants)))
}

/// The thread is never joined: it may be waiting for a record that comes only
/// after the run was asked to end, or never.
fn start_reading(
    reader: Reader,
    pool: &Arc<super::Pool>,
    events: &Sender<Event>,
) -> anyhow::Result<()> {
    let (pool, events) = (Arc::clone(pool), events.clone());
    thread::Builder::new().name("keylane-reader".into()).spawn(move || {
        let outcome = reader.read_all(&pool);
        let _ = events.send(Event::InputEnded(outcome));
    })?;
    Ok(())
}
