//! One calibration from beginning to end: measures, shows as it goes, concludes, writes the files.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;
use keylane::allocate::Machine;

use super::advice::advise;
use super::curve::{Curve, sizes};
use super::measure::measure;
use super::workload::Workload;
use super::{CalibrateArgs, csv, plot, table};
use crate::exit::Ending;

pub(crate) fn run(args: &CalibrateArgs) -> anyhow::Result<Ending> {
    let machine = Machine::here();
    let most = args.max.unwrap_or(2 * machine.logical);
    let sizes = sizes(machine.physical, machine.logical, most);
    // Files that cannot be written are found out now, and not when all has been measured.
    for path in [&args.csv, &args.svg].into_iter().flatten() {
        File::options().append(true).create(true).open(path).with_context(|| cannot_write(path))?;
    }
    let mut curves = Vec::new();
    for workload in Workload::all(args)? {
        let curve = climb(&workload, &sizes, args, &machine)?;
        let advice = advise(&curve, args.latency);
        say(&format!("recommended: {advice}\n"))?;
        curves.push((curve, advice.workers));
    }
    say(&format!("default on this machine: {machine}"))?;
    if let Some(path) = &args.csv {
        let curves: Vec<_> = curves.iter().map(|(curve, _)| curve.clone()).collect();
        write(path, &csv::write(&curves)?)?;
    }
    if let Some(path) = &args.svg {
        write(path, plot::draw(&curves).as_bytes())?;
    }
    Ok(Ending::Finished { failed: 0 })
}

/// Measures one workload at each size. The rows appear as they are known, so that nobody has to wonder
/// whether anything happens.
fn climb(
    workload: &Workload,
    sizes: &[usize],
    args: &CalibrateArgs,
    machine: &Machine,
) -> anyhow::Result<Curve> {
    let mut curve = Curve { workload: workload.name(), points: Vec::new() };
    say(&format!("{}, {:?} for each line", curve.workload, args.seconds))?;
    say(&table::header())?;
    for &workers in sizes {
        let point = measure(workload, workers, args.seconds)
            .with_context(|| format!("measuring {} with {workers} workers", curve.workload))?;
        curve.points.push(point);
        // Nothing is faster than all logical CPUs, so their bar is the longest that is likely.
        say(&table::row(&curve, &point, machine.logical as f64))?;
    }
    Ok(curve)
}

fn say(line: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{line}").and_then(|()| stdout.flush()).context("cannot write the table")
}

fn write(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    fs::write(path, content).with_context(|| cannot_write(path))
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write {}", path.display())
}
