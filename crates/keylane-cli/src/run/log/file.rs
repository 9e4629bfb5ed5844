//! File of the log: opened for a new run or to continue an earlier one, locked, and appended to by
//! whole lines.

use std::fs::{File, TryLockError};
use std::io::{BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, bail, ensure};

use super::cut_torn_line;
use super::header::{FORMAT, LogHeader, RecordOptions};
use super::line::LoggedAttempt;
use super::prior::PriorRecords;
use super::prior_pages::PriorState;

/// Attempts to lock the log. A command that a killed run was starting holds the lock until it has
/// started: microseconds, or seconds on a machine with much load.
const LOCK_ATTEMPTS: u32 = 500;

/// Pause between two attempts to lock the log.
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// Log of the run.
#[derive(Debug)]
pub(in crate::run) struct LogFile {
    path: PathBuf,
    file: Mutex<AppendedFile>,
    /// Several records of a key may run at once.
    has_limit: bool,
    /// Number of this run in the log.
    run: u32,
    prior: Arc<PriorRecords>,
}

#[derive(Debug)]
struct AppendedFile {
    file: File,
    /// A write has failed, so that the last line may be torn.
    is_broken: bool,
}

/// Opens the file and locks it, so that an error is reported before any command starts. Returns what
/// earlier runs wrote, if `continues` names the option that continues them. Writes nothing.
pub(in crate::run) fn open(
    path: &Path,
    continues: Option<&str>,
    options: &RecordOptions,
) -> anyhow::Result<(File, PriorRecords)> {
    let name = path.display();
    let cannot_write = || format!("cannot write the log to {name}");
    // It contains keys.
    let file = File::options().append(true).create(true).mode(0o600).open(path);
    let file = file.with_context(cannot_write)?;
    let kind = file.metadata().with_context(cannot_write)?;
    if !kind.is_file() {
        ensure!(
            continues.is_none(),
            "--log {name}: it is no regular file, so that no run can continue from it; give a regular file"
        );
        return Ok((file, PriorRecords::default()));
    }
    lock(&file, path)?;
    let Some(continues) = continues else {
        ensure!(
            file.metadata().with_context(cannot_write)?.len() == 0,
            "--log {name}: the file has the log of an earlier run; add --resume to continue that run, or give another \
             file"
        );
        return Ok((file, PriorRecords::default()));
    };
    let input = File::open(path).with_context(|| format!("cannot read the log {name}"))?;
    let prior = PriorRecords::read(BufReader::new(input))
        .and_then(|prior| prior.ensure_same_options(options).map(|()| prior))
        .with_context(|| format!("cannot continue from the log {name}"))?;
    ensure!(
        prior.runs() > 0 || continues != "--retry-failed",
        "--retry-failed: the log {name} is empty, so that there is no failed record to run again; give the log of an \
         earlier run"
    );
    Ok((file, prior))
}

fn lock(file: &File, path: &Path) -> anyhow::Result<()> {
    for attempt in 1.. {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            // Some file systems have no locks, and need none to be written.
            Err(TryLockError::Error(_)) => return Ok(()),
            Err(TryLockError::WouldBlock) if attempt < LOCK_ATTEMPTS => sleep(LOCK_PAUSE),
            Err(TryLockError::WouldBlock) => break,
        }
    }
    bail!(
        "--log {}: another run writes to this file; wait for its end, or give another file",
        path.display()
    )
}

impl LogFile {
    /// Starts the part of this run: cuts a torn last line, and writes the header.
    pub(in crate::run) fn start(
        path: &Path,
        (file, prior): (File, Arc<PriorRecords>),
        has_limit: bool,
        input: &[String],
        options: &RecordOptions,
    ) -> anyhow::Result<Self> {
        if file.metadata().is_ok_and(|kind| kind.is_file()) {
            let cut = cut_torn_line(&File::open(path)?, &file);
            cut.with_context(|| format!("cannot cut the last line of the log {}", path.display()))?;
        }
        let run = prior.runs() + 1;
        let header = LogHeader { keylane_log: FORMAT, run, input, options };
        let mut text = serde_json::to_vec(&header)?;
        text.push(b'\n');
        let file = Mutex::new(AppendedFile { file, is_broken: false });
        let log = LogFile { path: path.to_owned(), file, has_limit, run, prior };
        log.write(&text)?;
        Ok(log)
    }

    /// Appends the line of an attempt.
    pub(in crate::run) fn line(
        &self,
        text: &mut Vec<u8>,
        attempt: &LoggedAttempt<'_>,
        now_us: i64,
    ) {
        let had_failed =
            matches!(self.prior.get(attempt.place.number), Some((_, PriorState::Failed)));
        attempt.write(text, self.has_limit, now_us, had_failed.then_some(self.run));
    }

    /// Writes whole lines.
    ///
    /// # Errors
    /// If the file cannot be written, with the remedy.
    pub(in crate::run) fn write(&self, text: &[u8]) -> anyhow::Result<()> {
        // The lock costs little: the kernel lets one thread at a time append to a file, too. It keeps
        // a line from following one that a full disk has torn.
        let mut appended = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let written = match appended.is_broken {
            true => Err(std::io::Error::other("an earlier line was not written")),
            false => appended.file.write_all(text),
        };
        appended.is_broken |= written.is_err();
        written.with_context(|| {
            format!(
                "cannot write the log {}; make room on its disk, or leave out --log",
                self.path.display()
            )
        })
    }
}
