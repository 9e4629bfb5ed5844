//! One calibration: measures, prints each row, concludes, and writes the files.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;
use keylane_allocate::Machine;
use signal_hook::consts::SIGPIPE;

use super::advice::advise;
use super::curve::{ScalingCurve, sizes};
use super::measure::measure;
use super::other_processes::{CpuUsageMeter, warning};
use super::workload::Workload;
use super::{CalibrateArgs, csv, plot, table};
use crate::exit::ExitOutcome;

pub(crate) fn run(args: &CalibrateArgs) -> anyhow::Result<ExitOutcome> {
    let machine = Machine::here();
    let most = args.max_workers.unwrap_or(2 * machine.logical);
    let sizes = sizes(machine.physical, machine.logical, most);
    // Files that cannot be written are found out now, and not when all has been measured.
    for path in [&args.csv, &args.svg].into_iter().flatten() {
        File::options().append(true).create(true).open(path).with_context(|| cannot_write(path))?;
    }
    let mut curves = Vec::new();
    let mut table =
        LiveTable { reader_is_gone: false, has_files: args.csv.is_some() || args.svg.is_some() };
    for workload in Workload::all(args)? {
        let meter = CpuUsageMeter::start();
        let Some(curve) = climb(&workload, &sizes, args, &machine, &mut table)? else {
            return Ok(ExitOutcome::Signalled { signal: SIGPIPE });
        };
        let others = meter.others();
        if let Some(warning) = others.and_then(|others| warning(others, machine.logical)) {
            table.say(&warning)?;
        }
        let advice = advise(&curve, args.latency);
        table.say(&format!("recommended: {advice}\n"))?;
        curves.push((curve, advice.workers));
    }
    table.say(&format!("default on this machine: {machine}"))?;
    if let Some(path) = &args.csv {
        let curves: Vec<_> = curves.iter().map(|(curve, _)| curve.clone()).collect();
        write(path, &csv::write(&curves)?)?;
    }
    if let Some(path) = &args.svg {
        write(path, plot::draw(&curves).as_bytes())?;
    }
    Ok(ExitOutcome::Finished { failed: 0 })
}

/// Measures one workload at each size and prints each row at once. None if the reader of the output
/// has closed it.
fn climb(
    workload: &Workload,
    sizes: &[usize],
    args: &CalibrateArgs,
    machine: &Machine,
    table: &mut LiveTable,
) -> anyhow::Result<Option<ScalingCurve>> {
    let mut curve = ScalingCurve { workload: workload.name(), points: Vec::new() };
    table.say(&format!("{}, {:?} for each line", curve.workload, args.seconds))?;
    table.say(&table::header())?;
    for &workers in sizes {
        if table.has_no_recipient() {
            return Ok(None);
        }
        let plural = if workers == 1 { "" } else { "s" };
        let doing = || format!("measuring {} with {workers} worker{plural}", curve.workload);
        let point = measure(workload, workers, args.seconds).with_context(doing)?;
        curve.points.push(point);
        // Throughput beyond the number of logical CPUs is unlikely, so that is the longest bar.
        table.say(&table::row(&curve, &point, machine.logical as f64))?;
    }
    Ok(Some(curve))
}

/// Where the table goes.
struct LiveTable {
    /// Whether the reader has closed the output, which is no error.
    reader_is_gone: bool,
    has_files: bool,
}

impl LiveTable {
    fn say(&mut self, line: &str) -> anyhow::Result<()> {
        let mut stdout = io::stdout().lock();
        match writeln!(stdout, "{line}").and_then(|()| stdout.flush()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => self.reader_is_gone = true,
            written => written.context("cannot write the table")?,
        }
        Ok(())
    }

    fn has_no_recipient(&self) -> bool {
        self.reader_is_gone && !self.has_files
    }
}

fn write(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    fs::write(path, content).with_context(|| cannot_write(path))
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write {}", path.display())
}
