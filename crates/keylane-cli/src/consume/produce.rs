//! `keylane produce`: appends the records of a file or a pipe to a journal or a topic.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Args;
use keylane_stream::Record;
use keylane_stream::journal::{Journal, PendingAppend};

use super::kafka::{self, PendingSends};
use crate::exit::ExitOutcome;
use crate::features;
use crate::format_args::FormatArgs;
use crate::input::{InputFile, InputSource};
use crate::key::{KeyRule, NoKey};

/// Maximum number of records in flight.
const ON_THEIR_WAY: usize = 1024;

/// Appends records to a journal or a topic; on success they are on the disk, or acknowledged by the
/// brokers.
#[derive(Debug, Args)]
#[command(after_long_help = kafka::note(), mut_args(features::marked))]
pub(crate) struct ProduceArgs {
    /// Destination: journal:PATH, which is created if it does not exist, or
    /// kafka://HOST:PORT/TOPIC.
    #[arg(value_name = "TO")]
    to: String,

    /// Ordering key, as in keylane run: a .json.path, a /regex/, a {template}, a field. Without it
    /// the records have no key.
    #[arg(long, value_name = "KEY")]
    key: Option<String>,

    /// A value that means "no key"; can be given several times.
    #[arg(long, value_name = "VALUE")]
    null_value: Vec<OsString>,

    #[command(flatten)]
    format: FormatArgs,

    /// A setting of the Kafka client, by librdkafka's name; can be given several
    /// times.
    #[arg(short = 'X', long, value_name = "NAME=VALUE")]
    client: Vec<String>,

    /// Input file; standard input if absent or -.
    file: Option<PathBuf>,
}

/// Runs `keylane produce`.
pub(crate) fn run(args: ProduceArgs) -> anyhow::Result<ExitOutcome> {
    args.format.check()?;
    let (format, header) = (args.format.format(), args.format.header);
    let mut source = InputSource::new(InputFile::open(args.file.as_deref())?, format, header)?;
    let nulls: Vec<_> = args.null_value.into_iter().map(OsStringExt::into_vec).collect();
    let rule = |text: &str| KeyRule::new(text, nulls, NoKey::Unordered, source.layout());
    let mut rule = args.key.as_deref().map(rule).transpose()?;
    // Records sent before an error are written.
    let (produced, settled, count) = match args.to.split_once(':') {
        Some(("journal", path)) if !path.is_empty() => {
            let journal = Journal::open(path)?;
            let mut appends =
                AppendQueue { journal, pending: VecDeque::new(), appended: 0, settled: 0 };
            let append = |record| appends.append(record);
            let produced = append_all(&mut source, rule.as_mut(), append);
            (produced, appends.settle(0), appends.appended)
        }
        Some(("kafka", _)) => {
            let mut sends = PendingSends::new(&args.to, &args.client)?;
            let append = |record| sends.append(&record);
            let produced = append_all(&mut source, rule.as_mut(), append);
            (produced, sends.settle(), sends.written)
        }
        _ => bail!(
            "`{}` is no place for records; write journal:PATH or kafka://HOST:PORT/TOPIC",
            args.to
        ),
    };
    let place = args.to.strip_prefix("journal:").unwrap_or(&args.to);
    eprintln!("keylane: {count} records are in {place}");
    produced.and(settled).map(|()| ExitOutcome::Finished { failed: 0 })
}

fn append_all(
    source: &mut InputSource,
    mut rule: Option<&mut KeyRule>,
    mut append: impl FnMut(Record) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut read = crate::input::InputRecord::default();
    while source.next(&mut read)? {
        let key = match &mut rule {
            Some(rule) => rule.key_of(&read).expect("records without a key are allowed"),
            None => crate::key::RecordKey::Serial,
        };
        append(match key.bytes() {
            [] => Record::without_key(&read.raw[..]),
            key => Record::new(key, &read.raw[..]),
        })?;
    }
    Ok(())
}

/// Records on their way to the disk, which share its syncs.
struct AppendQueue {
    journal: Journal,
    pending: VecDeque<PendingAppend>,
    /// Number of records written.
    appended: u64,
    /// Number of records written or refused.
    settled: u64,
}

impl AppendQueue {
    fn append(&mut self, record: Record) -> anyhow::Result<()> {
        self.pending.push_back(self.journal.append_later(&[record])?);
        if self.pending.len() >= ON_THEIR_WAY {
            // Half of them, so that the next sync has company.
            self.settle(ON_THEIR_WAY / 2)?;
        }
        Ok(())
    }

    /// Waits until at most `left` records are in flight. After a refusal it waits for all, because
    /// later ones may still be written; the error names the first that is not.
    fn settle(&mut self, left: usize) -> anyhow::Result<()> {
        let mut settled = Ok(());
        while self.pending.len() > if settled.is_ok() { left } else { 0 } {
            let Some(pending) = self.pending.pop_front() else { break };
            self.settled += 1;
            match pending.wait() {
                Ok(_) => self.appended += 1,
                Err(error) if settled.is_ok() => {
                    let number = self.settled;
                    let refused = || format!("record {number} of the input was not written");
                    settled = Err(error).with_context(refused);
                }
                Err(_) => {}
            }
        }
        settled
    }
}
