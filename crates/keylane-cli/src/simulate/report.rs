//! Run of a simulation, and its report.

use std::fs::{self, File};
use std::io::{self, Read, Write};

use anyhow::Context;

use super::jobs::{self, SimulatedJob};
use super::random_jobs::JobMix;
use super::recorded::{self, RecordedTrace};
use super::schedule::SimulatedSchedule;
use super::{SimulateArgs, compare, gantt, time};
use crate::exit::ExitOutcome;
use crate::standard_streams::stdin;

/// Maximum number of starts, jobs or workers that are listed: beyond it only figures are printed.
const MAX_LISTED: usize = 200;
const MAX_WORKERS_DRAWN: usize = 64;

pub(crate) fn run(args: &SimulateArgs) -> anyhow::Result<ExitOutcome> {
    let SimulationInput { jobs, workers, recorded } = input(args)?;
    let mut schedules: Vec<_> = recorded.into_iter().collect();
    schedules.extend(compare::schedules(&jobs, workers, args));
    // A recording may have had more of them than are simulated.
    let used = schedules.iter().flat_map(|schedule| &schedule.bars).map(|bar| bar.worker + 1);
    let rows = used.max().unwrap_or(0).max(workers);
    if let Some(path) = &args.svg {
        let drawing = gantt::svg(&schedules, &jobs, rows);
        fs::write(path, drawing).with_context(|| format!("cannot write {}", path.display()))?;
    }
    match io::stdout().lock().write_all(report(&jobs, &schedules, rows, workers).as_bytes()) {
        // A reader that closes the output early is no error.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(ExitOutcome::Finished { failed: 0 }),
    }
}

/// Input of a simulation.
struct SimulationInput {
    jobs: Vec<SimulatedJob>,
    workers: usize,
    /// Recorded schedule, if there is one.
    recorded: Option<SimulatedSchedule>,
}

const DEFAULT_WORKERS: usize = 4;

fn input(args: &SimulateArgs) -> anyhow::Result<SimulationInput> {
    let workers = args.workers.unwrap_or(DEFAULT_WORKERS);
    if let Some(jobs) = args.random {
        let jobs = JobMix { jobs, load: args.load, workers, seed: args.seed }.jobs();
        return Ok(SimulationInput { jobs, workers, recorded: None });
    }
    let path = args.file.as_ref().expect("clap wants a file if there is no --random");
    if path.as_os_str() == "-" {
        return read(stdin()?.lock(), args.workers).context("standard input");
    }
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    read(file, args.workers).with_context(|| path.display().to_string())
}

/// Reads a record if it begins like one, else CSV.
fn read(mut from: impl Read, workers: Option<usize>) -> anyhow::Result<SimulationInput> {
    let mut head = Vec::new();
    from.by_ref().take(recorded::MARK.len() as u64).read_to_end(&mut head)?;
    let is_record = head == recorded::MARK.as_bytes();
    let mut from = head.as_slice().chain(from);
    if !is_record {
        let jobs = jobs::read(from)?;
        return Ok(SimulationInput {
            jobs,
            workers: workers.unwrap_or(DEFAULT_WORKERS),
            recorded: None,
        });
    }
    let mut text = String::new();
    from.read_to_string(&mut text)?;
    let RecordedTrace { jobs, schedule, workers: had } = recorded::read(&text)?;
    Ok(SimulationInput { jobs, workers: workers.unwrap_or(had), recorded: Some(schedule) })
}

fn report(
    jobs: &[SimulatedJob],
    schedules: &[SimulatedSchedule],
    rows: usize,
    workers: usize,
) -> String {
    let mut parts = Vec::new();
    let rules = &schedules[0];
    if rules.bars.len() <= MAX_LISTED {
        parts.push(beginnings(rules, jobs));
    }
    if jobs.len() <= MAX_LISTED && rows <= MAX_WORKERS_DRAWN {
        let end = gantt::last_end(schedules);
        for schedule in schedules {
            parts.push(format!("{}\n{}", schedule.policy, gantt::draw(schedule, rows, end)));
        }
        parts.push(legend(jobs));
        parts.push(format!("time from arrival to end:\n{}", compare::latencies(jobs, schedules)));
    }
    parts.push(compare::figures(jobs, schedules, workers));
    parts.push(
        "slowdown: how many times as long a job took as with all workers to itself".to_owned(),
    );
    parts.join("\n\n") + "\n"
}

/// Starts in order of time, a line for each moment: from the record, or under the four rules.
fn beginnings(schedule: &SimulatedSchedule, jobs: &[SimulatedJob]) -> String {
    let mut lines = vec!["what begins when, on which worker, and by which rule:".to_owned()];
    for moment in schedule.bars.chunk_by(|one, next| one.start == next.start) {
        let begun = moment.iter().map(|bar| {
            let rule = bar.rule.map_or(String::new(), |rule| format!(" {rule:?}").to_lowercase());
            let name = &jobs[bar.job].name;
            let dot = if name.ends_with(|c: char| c.is_ascii_digit()) { "." } else { "" };
            format!("{}:{name}{dot}{} ({})", bar.worker + 1, bar.subtask, rule.trim())
        });
        let begun: Vec<_> = begun.collect();
        lines.push(format!("{:>8}  {}", time::show(moment[0].start), begun.join("  ")));
    }
    lines.join("\n")
}

fn legend(jobs: &[SimulatedJob]) -> String {
    let named = jobs.iter().enumerate();
    let named: Vec<_> =
        named.map(|(job, what)| format!("{} {}", gantt::letter(job), what.name)).collect();
    named.join(", ")
}
