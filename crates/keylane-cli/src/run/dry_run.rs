//! `--dry-run`: the commands of a run, in the order of the input, without running them. The errors are those of a run.

use std::ffi::OsStr;
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;

use anyhow::Context;

use crate::exit::ExitOutcome;
use crate::input::{InputFiles, InputRecord};
use crate::key::RecordKey;
use crate::message;
use crate::process;
use crate::run_stats::RecordLocation;
use crate::shell_words;
use crate::worker;

use super::args::RunArgs;
use super::batch_preview::BatchPreview;
use super::record_task::RecordBody;
use super::record_template::{RecordTemplate, with_slot};
use crate::record_keys::KeyRules;

/// Prints the command of each record, or its line for a worker. Records that could not run are named and counted.
pub(super) fn print(
    args: &RunArgs,
    mut source: InputFiles,
    mut keys: KeyRules,
    plan: &RecordTemplate,
) -> anyhow::Result<ExitOutcome> {
    if args.worker.worker {
        worker::command(&args.command)?;
    } else if let Some(program) = plan.program() {
        process::resolve(OsStr::from_bytes(program))?;
    }
    let mut stdout = BufWriter::new(io::stdout().lock());
    let batches = args.batch.preview();
    let mut batches = batches.map(|batches| BatchPreview::new(batches, args.input.buffer.get()));
    let printed = print_all(&mut source, &mut keys, plan, &mut batches, &mut stdout);
    let mut rest = Vec::new();
    batches.iter_mut().for_each(|batches| batches.append_all(plan, &mut rest));
    let flushed = stdout.write_all(&rest).and_then(|()| stdout.flush());
    match (printed, flushed) {
        (Err(PreviewStop::Input(error)), _) => Err(error),
        (Ok(failed), Ok(())) => Ok(ExitOutcome::Finished { failed }),
        (Err(PreviewStop::Output(error)), _) | (_, Err(error)) => match error.kind() {
            io::ErrorKind::BrokenPipe => {
                Ok(ExitOutcome::Signalled { signal: signal_hook::consts::SIGPIPE })
            }
            _ => Err(error).context("cannot write to standard output"),
        },
    }
}

/// Why the input was not read to its end.
#[derive(Debug)]
enum PreviewStop {
    Input(anyhow::Error),
    Output(io::Error),
}

/// Returns the number of records that could not run.
fn print_all(
    source: &mut InputFiles,
    keys: &mut KeyRules,
    plan: &RecordTemplate,
    batches: &mut Option<BatchPreview>,
    out: &mut impl Write,
) -> Result<u64, PreviewStop> {
    let mut record = InputRecord::default();
    let (mut failed, mut line) = (0, Vec::new());
    while source.next(&mut record).map_err(PreviewStop::Input)? {
        let at = || format!("{}:{}", source.name(), record.line);
        let keys = keys.keys_of(&record).with_context(at).map_err(PreviewStop::Input)?;
        line.clear();
        match append(&record, &keys.first, plan, batches, &mut line) {
            None => out.write_all(&line).map_err(PreviewStop::Output)?,
            Some(why) => {
                failed += 1;
                // So that the message stands behind the commands of the records before.
                out.flush().map_err(PreviewStop::Output)?;
                let file = source.file().cloned();
                let place =
                    RecordLocation { number: record.number, line: record.line, file, hash: 0 };
                let number = place.number;
                message::say(format_args!("record {number} ({place}, {}): {why}", keys.first));
            }
        }
    }
    Ok(failed)
}

/// Appends the command of a record, those of the batches that start with it, or its line. Returns why
/// it could not run.
fn append(
    record: &InputRecord,
    key: &RecordKey,
    plan: &RecordTemplate,
    batches: &mut Option<BatchPreview>,
    text: &mut Vec<u8>,
) -> Option<String> {
    match plan.body(record, key.bytes()) {
        Ok(RecordBody::Argv(words)) => {
            // The slot of a command is known only when it starts.
            let words = if plan.names_slot() { with_slot(&words, 1) } else { words };
            shell_words::append(&words, text);
            text.push(b'\n');
            let has_nul = words.iter().any(|word| word.contains(&0));
            has_nul.then(|| "it has a NUL byte, which no argument can contain".to_owned())
        }
        Ok(RecordBody::Line(line)) => {
            text.extend(line);
            None
        }
        Ok(RecordBody::BatchLine(line)) => {
            let batches = batches.as_mut().expect("lines of batches have batches");
            batches.add(key, line, plan, text);
            None
        }
        Err(unfit) => Some(unfit.to_string()),
    }
}
