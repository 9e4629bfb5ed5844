//! Runs a simulation, and shows what came out of it.

use std::fs::{self, File};
use std::io::{self, Write};

use anyhow::Context;

use super::jobs::{self, Job};
use super::mix::Mix;
use super::schedule::Schedule;
use super::{SimulateArgs, compare, gantt, time};
use crate::exit::Ending;

/// More beginnings, jobs or workers than this nobody reads; the figures say it all then.
const MOST_LISTED: usize = 200;
const MOST_WORKERS_DRAWN: usize = 64;

pub(crate) fn run(args: &SimulateArgs) -> anyhow::Result<Ending> {
    let jobs = jobs(args)?;
    let schedules = compare::schedules(&jobs, args);
    if let Some(path) = &args.svg {
        let drawing = gantt::svg(&schedules, &jobs, args.workers);
        fs::write(path, drawing).with_context(|| format!("cannot write {}", path.display()))?;
    }
    match io::stdout().lock().write_all(report(&jobs, &schedules, args.workers).as_bytes()) {
        // Who reads only the beginning is content with it.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(Ending::Finished { failed: 0 }),
    }
}

fn jobs(args: &SimulateArgs) -> anyhow::Result<Vec<Job>> {
    if let Some(jobs) = args.random {
        return Ok(Mix { jobs, load: args.load, workers: args.workers, seed: args.seed }.jobs());
    }
    let path = args.file.as_ref().expect("clap wants a file if there is no --random");
    if path.as_os_str() == "-" {
        return jobs::read(io::stdin().lock()).context("standard input");
    }
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    jobs::read(file).with_context(|| path.display().to_string())
}

fn report(jobs: &[Job], schedules: &[Schedule], workers: usize) -> String {
    let mut parts = Vec::new();
    let rules = &schedules[0];
    if rules.bars.len() <= MOST_LISTED {
        parts.push(beginnings(rules, jobs));
    }
    if jobs.len() <= MOST_LISTED && workers <= MOST_WORKERS_DRAWN {
        let end = gantt::last_end(schedules);
        for schedule in schedules {
            parts.push(format!("{}\n{}", schedule.policy, gantt::draw(schedule, workers, end)));
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

/// What began when, a line for each moment, as the four rules have it.
fn beginnings(schedule: &Schedule, jobs: &[Job]) -> String {
    let mut lines = vec!["what begins when, on which worker, and by which rule:".to_owned()];
    for moment in schedule.bars.chunk_by(|one, next| one.start == next.start) {
        let begun = moment.iter().map(|bar| {
            let rule = bar.rule.map_or(String::new(), |rule| format!(" {rule:?}").to_lowercase());
            format!("{}:{}{} ({})", bar.worker + 1, jobs[bar.job].name, bar.subtask, rule.trim())
        });
        let begun: Vec<_> = begun.collect();
        lines.push(format!("{:>8}  {}", time::show(moment[0].start), begun.join("  ")));
    }
    lines.join("\n")
}

fn legend(jobs: &[Job]) -> String {
    let named = jobs.iter().enumerate();
    let named: Vec<_> =
        named.map(|(job, what)| format!("{} {}", gantt::letter(job), what.name)).collect();
    named.join(", ")
}
