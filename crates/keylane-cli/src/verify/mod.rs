//! `keylane verify`: reads a history of tasks, and reports whether the order of each key was kept.
//!
//! The check knows nothing of the engine that ran the tasks. It compares times, places and fences
//! only, so the history of another program can be checked too.

mod check;
mod history;
mod report;

use std::io::{self, BufRead};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;

use self::history::History;
use crate::exit::ExitOutcome;
use crate::standard_streams::stdin;

/// Checks whether a history kept the order of each key.
#[derive(Debug, Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct VerifyArgs {
    /// Files with a line of JSON for each run of a task; standard input if absent or -.
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Maximum number of violations that are printed. All are counted.
    #[arg(long, value_name = "N", default_value_t = 20)]
    max_shown: usize,
}

const AFTER_HELP: &str = "\
A line: {\"key\":\"a\",\"place\":7,\"start_us\":1000,\"end_us\":2000}. Also read: keys, shared_keys, source, attempt, \
fence; start and end, or started_at and ended_at as RFC 3339; number instead of place. `keylane run --log FILE` writes such lines, \
and `keylane results JOB` prints them.

Exit code: 0 if the order was kept; 1 to 100 for that many violations; 101 for more; 255 for wrong usage or input.";

/// Runs `keylane verify`.
pub(crate) fn run(args: &VerifyArgs) -> anyhow::Result<ExitOutcome> {
    let mut history = History::default();
    let stdin = [PathBuf::from("-")];
    let files = if args.files.is_empty() { &stdin } else { &args.files[..] };
    for file in files {
        read(file, &mut history)?;
    }
    anyhow::ensure!(
        history.lines > 0,
        "the history is empty; give a file with a line of JSON for each run of a task"
    );
    let verdict = check::check(history.runs());
    report::print(&history, &verdict, args.max_shown)?;
    Ok(ExitOutcome::Finished { failed: verdict.violations.len() as u64 })
}

fn read(path: &Path, history: &mut History) -> anyhow::Result<()> {
    if path == Path::new("-") {
        return history.read("standard input", stdin()?.lock());
    }
    let name = path.display().to_string();
    let file = std::fs::File::open(path).with_context(|| format!("cannot read {name}"))?;
    history.read(&name, io::BufReader::new(file))
}

impl History {
    /// Reads the lines of one file.
    fn read(&mut self, name: &str, mut input: impl BufRead) -> anyhow::Result<()> {
        let file = self.add_file(name);
        let mut line = Vec::new();
        for number in 1_u32.. {
            line.clear();
            let length = input.read_until(b'\n', &mut line);
            if length.with_context(|| format!("cannot read {name}"))? == 0 {
                break;
            }
            if line.trim_ascii().is_empty() {
                continue;
            }
            self.add_line(file, number, &line).with_context(|| format!("{name}, line {number}"))?;
        }
        Ok(())
    }
}
