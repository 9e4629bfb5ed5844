//! Repeats runs as child processes, interleaved so that what drifts on the machine hits all peers
//! alike, and sums them up as markdown on stdout. Progress goes to stderr.

mod cell;
mod child;
pub(crate) mod machine;
mod markdown;
pub(crate) mod spec;

use std::fs::File;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use crate::Result;
use crate::args::Args;
use crate::record::Record;
use cell::Cell;
use child::Runner;
use spec::Spec;

/// The results, peer by peer and column by column.
struct Results {
    spec: Spec,
    /// `cells[column][peer]`, in the order of the spec.
    cells: Vec<Vec<Cell>>,
}

pub(crate) fn run(workload: &str, mut args: Args) -> Result<ExitCode> {
    let rounds: usize = args.take("rounds", 5)?;
    let quiet_wait = Duration::from_secs_f64(args.take("quiet-wait", 10.0)?);
    let raw = args.take("raw", String::new())?;
    let spec = Spec::new(workload, &mut args)?;
    args.finish()?;
    let mut raw = match raw.as_str() {
        "" => None,
        path => Some(File::options().create(true).append(true).open(path)?),
    };
    let runner = Runner::new(quiet_wait)?;
    let results = Results::collect(spec, rounds, |spec, column, peer| {
        let record = runner.run(&spec.command(column, peer));
        if let (Some(raw), Ok(record)) = (&mut raw, &record) {
            writeln!(raw, "{}", serde_json::to_string(record)?)?;
        }
        record
    });
    print!("{}", markdown::render(&results, rounds));
    let right = results.cells.iter().flatten().all(Cell::is_right);
    Ok(if right { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Results {
    /// Runs column after column; in a column round after round; in a round each peer once, each
    /// round starting with the next peer.
    fn collect(
        spec: Spec,
        rounds: usize,
        mut run: impl FnMut(&Spec, usize, usize) -> Result<Record>,
    ) -> Results {
        let peers = spec.peers.len();
        let mut cells: Vec<Vec<Cell>> = spec
            .columns
            .iter()
            .map(|_| spec.peers.iter().map(|_| Cell::default()).collect())
            .collect();
        for (column, cells) in cells.iter_mut().enumerate() {
            for round in 0..rounds {
                eprintln!(
                    "{} {}: round {} of {rounds}",
                    spec.workload,
                    spec.columns[column].title,
                    round + 1
                );
                for turn in 0..peers {
                    let peer = (turn + round) % peers;
                    if !spec.is_possible(column, peer) {
                        continue;
                    }
                    match run(&spec, column, peer) {
                        Ok(record) => cells[peer].add(record),
                        Err(error) => {
                            eprintln!("{}: {error}", spec.peers[peer]);
                            cells[peer].fail(error.to_string());
                        }
                    }
                }
            }
        }
        Results { spec, cells }
    }
}
