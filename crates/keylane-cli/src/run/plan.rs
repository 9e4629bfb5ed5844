//! `--plan`: how far an input can run in parallel. Reads it in bounded memory and runs nothing.

mod chains;
mod report;

use std::time::Duration;

use anyhow::Context;
use keylane::Rate;

use crate::exit::ExitOutcome;
use crate::input::{InputFiles, InputRecord};
use crate::key_counts::KeyCounts;
use crate::standard_streams::print as print_text;

use self::chains::Chains;
use self::report::PlanContext;
use super::args::RunArgs;
use super::record_template::RecordTemplate;
use crate::record_keys::KeyRules;

/// Reads the input and prints the plan. If the input cannot be read further, the plan is of the records before.
pub(super) fn print(
    args: &RunArgs,
    mut source: InputFiles,
    mut keys: KeyRules,
) -> anyhow::Result<ExitOutcome> {
    if !args.command.is_empty() && !args.worker.worker {
        // Names of fields that the records do not have are errors of a run, too.
        RecordTemplate::command(&args.command, source.layout())?;
    }
    let jobs = args.jobs.count() as u64;
    let mut chains = Chains::new(jobs, args.keys.limit_per_key);
    let read = read(args, &mut source, &mut keys, &mut chains);
    let (figures, counts) = chains.finish();
    let context = PlanContext {
        jobs,
        duration: args.preview.plan_duration.map(|time| time.0),
        rate_time: rate_time(args, figures.records, &counts),
        is_sample: matches!(read, Ok(false)),
        is_latest: args.keys.latest,
    };
    let text = report::text(&figures, &counts, &context);
    let ending = print_text(text.as_bytes())?;
    read.map(|_| ending)
}

/// Adds the records to the chains. Returns whether the input has ended; a sample may end before.
fn read(
    args: &RunArgs,
    source: &mut InputFiles,
    keys: &mut KeyRules,
    chains: &mut Chains,
) -> anyhow::Result<bool> {
    let mut record = InputRecord::default();
    let max = args.preview.plan_sample.map_or(u64::MAX, u64::from);
    let mut count = 0;
    while source.next(&mut record)? {
        if count == max {
            return Ok(false);
        }
        count += 1;
        let at = || format!("{}:{}", source.name(), record.line);
        chains.add(&keys.keys_of(&record).with_context(at)?);
    }
    Ok(true)
}

/// The least time by `--rate`, and by `--rate-per-key` of the hottest key.
fn rate_time<S>(args: &RunArgs, records: u64, counts: &KeyCounts<S>) -> Duration {
    let time = |rate: Rate, records: u64| {
        rate.interval().saturating_mul(u32::try_from(records.saturating_sub(1)).unwrap_or(u32::MAX))
    };
    let all = args.pace.rate.map_or(Duration::ZERO, |rate| time(rate.0, records));
    let hottest = counts.hottest(1).first().map_or(0, |(_, count)| count.records);
    let per_key = args.pace.rate_per_key.map_or(Duration::ZERO, |rate| time(rate.0, hottest));
    all.max(per_key)
}
