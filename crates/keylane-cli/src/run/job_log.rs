//! `--joblog`: a line per record in the format of GNU parallel, which its users and other programs
//! read.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::Context;

use crate::process::{EndedAttempt, RecordEnd};
use crate::shell_words;

use super::log::cut_torn_line;

/// Names of the columns.
const HEADER: &[u8] =
    b"Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\tCommand\n";

/// File of the job log.
#[derive(Debug)]
pub(super) struct JobLog {
    path: PathBuf,
    file: Mutex<File>,
}

impl JobLog {
    /// Opens the file. It is written anew, as by GNU parallel, unless the run continues an earlier
    /// one.
    pub(super) fn open(path: &Path, continues: bool) -> anyhow::Result<Self> {
        let open = || -> io::Result<File> {
            // It contains records.
            let mut file = File::options().append(true).create(true).mode(0o600).open(path)?;
            if file.metadata()?.is_file() {
                match continues {
                    true => cut_torn_line(&File::open(path)?, &file)?,
                    false => file.set_len(0)?,
                }
            }
            if file.metadata()?.len() == 0 {
                file.write_all(HEADER)?;
            }
            Ok(file)
        };
        let file =
            open().with_context(|| format!("cannot write the job log to {}", path.display()))?;
        Ok(JobLog { path: path.to_owned(), file: Mutex::new(file) })
    }

    /// Writes the line of a record whose last attempt has ended.
    ///
    /// # Errors
    /// If the file cannot be written, with the remedy.
    pub(super) fn write(
        &self,
        place: u64,
        argv: &[Vec<u8>],
        ended: &EndedAttempt,
    ) -> anyhow::Result<()> {
        let line = line(place, argv, ended);
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(&line).with_context(|| {
            format!(
                "cannot write the job log {}; make room on its disk, or leave out --joblog",
                self.path.display()
            )
        })
    }
}

/// Columns of a record. The host is `:`, this machine; nothing is sent to it.
fn line(place: u64, argv: &[Vec<u8>], ended: &EndedAttempt) -> Vec<u8> {
    let (start, end) = (ended.times.start_us, ended.times.end_us);
    let seconds = |micros: i64| micros as f64 / 1e6;
    // A command that could not be started has no exit status.
    let (exit, signal) = match &ended.end {
        RecordEnd::Exited(status) => (status.code().unwrap_or(0), status.signal().unwrap_or(0)),
        RecordEnd::Answered | RecordEnd::Failed(_) => (-1, 0),
    };
    let (start, runtime, received) = (seconds(start), seconds(end - start), ended.received);
    let mut line =
        format!("{place}\t:\t{start:.3}\t{runtime:10.3}\t0\t{received}\t{exit}\t{signal}\t")
            .into_bytes();
    let start_of_command = line.len();
    shell_words::append(argv, &mut line);
    // A line end in a word is a NUL byte, so that the record stays one line.
    line[start_of_command..].iter_mut().filter(|byte| **byte == b'\n').for_each(|byte| *byte = 0);
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use std::process::ExitStatus;

    use super::*;
    use crate::process::AttemptTimes;

    #[test]
    fn a_line_has_the_columns_of_gnu_parallel() {
        let of = |status: i32| EndedAttempt {
            end: RecordEnd::Exited(ExitStatus::from_raw(status)),
            times: AttemptTimes { start_us: 1_376_577_364_974_400, end_us: 1_376_577_364_982_000 },
            received: 10,
            result: Ok(()),
            is_interrupted: false,
        };
        let words =
            |words: &[&str]| -> Vec<Vec<u8>> { words.iter().map(|&word| word.into()).collect() };
        let text = |line: Vec<u8>| String::from_utf8(line).unwrap();
        assert_eq!(
            text(line(1, &words(&["ls", "foo"]), &of(0))),
            "1\t:\t1376577364.974\t     0.008\t0\t10\t0\t0\tls foo\n"
        );
        let quoted = line(2, &words(&["sh", "-c", "a; 'b'", "", "x\ny"]), &of(15));
        assert_eq!(
            text(quoted),
            "2\t:\t1376577364.974\t     0.008\t0\t10\t0\t15\tsh -c 'a; '\"'\"'b'\"'\" '' 'x\0y'\n"
        );
    }
}
