//! Lines of a file as a source, with the progress in a state file.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufReader, Read as _, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, SystemTime};

use keylane_storage::ThreadNotify;

use super::framing::{LineFraming, RecordFraming, without_mark};
use super::record_reader::{RecordRead, read_record};
use super::state_file::{CheckedOffset, FileState, StateFile};
use crate::source::{
    CommitError, PartitionAssignment, ProgressCommit, Source, SourceError, SourceEvent,
};
use crate::tracker::{OffsetMapLimit, Progress};
use crate::{DeliveredRecord, Partition, Position, Record};

/// Lines of a file. The progress is kept in a state file, so that a later process continues there.
///
/// - The file may grow, but its consumed part must not change: a later process verifies it with a
///   checksum (CRC32C), and refuses another file, or a changed one.
/// - The last line counts without a line end, too, unless the source [follows](Self::follow) the
///   file.
///
/// # Examples
/// ```
/// use keylane_stream::consumer::{Attempt, Consumer, AttemptFailure};
/// use keylane_stream::lines::FileSource;
///
/// let folder = tempfile::tempdir()?;
/// let (path, state) = (folder.path().join("orders.txt"), folder.path().join("orders.state"));
/// std::fs::write(&path, "ann 1\nbob 2\n")?;
///
/// let handle = |_: &Attempt| Ok::<_, AttemptFailure>(());
/// let first_word = |line: &keylane_stream::Record| {
///     Some(line.payload().split(|byte| *byte == b' ').next()?.to_vec())
/// };
/// let lines = FileSource::open(&path, &state)?;
/// let ended = Consumer::builder(lines).by(first_word).start(handle)?.wait();
/// assert_eq!(ended.counts.handled, 2);
///
/// std::fs::write(&path, "ann 1\nbob 2\nann 3\n")?;
/// let lines = FileSource::open(&path, &state)?;
/// let ended = Consumer::builder(lines).by(first_word).start(handle)?.wait();
/// assert_eq!(ended.counts.handled, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct FileSource {
    path: PathBuf,
    partition: Partition,
    state_file: StateFile,
    input: BufReader<File>,
    /// Progress so far, until it is reported.
    progress: Option<Progress>,
    next: Position,
    /// Beginning of the next line.
    read: CheckedOffset,
    /// Ends of the delivered lines, from the one at `ends_from` on.
    ends: VecDeque<CheckedOffset>,
    ends_from: Position,
    /// Beginning of the line at `ends_from`.
    ends_begin: CheckedOffset,
    /// End of the last line that an earlier process has completed.
    resumed_end: CheckedOffset,
    /// Incomplete last record of a file that is followed.
    partial: Vec<u8>,
    framing: Box<dyn RecordFraming>,
    follows: bool,
    paused: bool,
    ended: bool,
    wakeup: Arc<ThreadNotify>,
    answers: VecDeque<SourceEvent>,
}

impl FileSource {
    /// Opens the file at `path`, and continues after the progress in the state file at `state`. The
    /// state file is created if necessary; a lock file beside it excludes other processes.
    ///
    /// # Errors
    /// If a file cannot be read, another process uses the state, or the file is not the one of the
    /// state.
    pub fn open(path: impl AsRef<Path>, state: impl AsRef<Path>) -> Result<Self, SourceError> {
        Self::open_framed(path, state, LineFraming)
    }

    /// Opens the file as [`open`](Self::open) does, with records that `framing` finds in it.
    ///
    /// # Errors
    /// As for [`open`](Self::open), and if the progress is that of another format.
    pub fn open_framed(
        path: impl AsRef<Path>,
        state: impl AsRef<Path>,
        framing: impl RecordFraming + 'static,
    ) -> Result<Self, SourceError> {
        let (path, state) = (path.as_ref(), state.as_ref());
        let cannot = |what: &str, path: &Path| format!("cannot {what} {}", path.display());
        let state_file = StateFile::take(state)
            .map_err(|error| SourceError::because(cannot("use the state", state), error))?;
        let known = state_file
            .load()
            .map_err(|error| SourceError::because(cannot("use the state", state), error))?;
        let file =
            File::open(path).map_err(|error| SourceError::because(cannot("read", path), error))?;
        let mut input = BufReader::with_capacity(256 * 1024, file);
        let begin = match &known {
            Some(known) => resume_at(&mut input, known, &framing),
            None => Ok(CheckedOffset::default()),
        };
        let begin = begin.map_err(|error| {
            let what = format!(
                "cannot continue {}; to begin anew, remove {}",
                path.display(),
                state.display()
            );
            SourceError::because(what, error)
        })?;
        let resumed_end = known.as_ref().map_or(begin, |known| known.end);
        let progress = known.map_or(Progress::up_to(Position::ZERO), |known| known.progress);
        let next = progress.watermark();
        Ok(FileSource {
            path: path.to_owned(),
            partition: Partition::new(path.display().to_string(), 0),
            state_file,
            input,
            progress: Some(progress),
            next,
            read: begin,
            ends: VecDeque::new(),
            ends_from: next,
            ends_begin: begin,
            resumed_end,
            partial: Vec::new(),
            framing: Box::new(framing),
            follows: false,
            paused: false,
            ended: false,
            wakeup: Arc::default(),
            answers: VecDeque::new(),
        })
    }

    /// Waits at the end of the file for more lines, instead of ending there.
    #[must_use]
    pub fn follow(mut self) -> Self {
        self.follows = true;
        self
    }

    fn collect(&mut self, max: usize, events: &mut Vec<SourceEvent>) -> io::Result<()> {
        events.extend(self.answers.drain(..));
        let partition = self.partition.clone();
        if let Some(progress) = self.progress.take() {
            let limit = OffsetMapLimit::JOURNAL;
            events.push(SourceEvent::Assigned(PartitionAssignment {
                partition: partition.clone(),
                progress,
                limit,
            }));
        }
        if self.paused || self.ended || max == 0 {
            return Ok(());
        }
        let mut records = Vec::new();
        let result = self.read_records(max, &mut records);
        if !records.is_empty() {
            events.push(SourceEvent::Records { partition: partition.clone(), records });
        }
        if self.ended {
            events.push(SourceEvent::Exhausted(partition));
        }
        result
    }

    fn read_records(&mut self, max: usize, records: &mut Vec<DeliveredRecord>) -> io::Result<()> {
        while records.len() < max && !self.ended {
            match read_record(&mut self.input, &mut *self.framing, &mut self.partial)? {
                RecordRead::Whole => {}
                RecordRead::Part | RecordRead::End if self.follows => break,
                RecordRead::Part => self.ended = true,
                RecordRead::End => self.ended = true,
            }
            let bytes = std::mem::take(&mut self.partial);
            if bytes.is_empty() {
                break;
            }
            let is_first = self.read.offset == 0;
            let end = self.read.after(&bytes);
            let bytes = if is_first { without_mark(bytes) } else { bytes };
            let Some(content) = self.framing.content(bytes) else { continue };
            self.read = end;
            if is_first && self.framing.has_header() {
                self.ends_begin = end;
                continue;
            }
            self.ends.push_back(end);
            let position = self.next;
            self.next = position.next();
            let record = Record::without_key(content);
            records.push(DeliveredRecord { position, written: SystemTime::now(), record });
        }
        Ok(())
    }

    /// Returns the beginning of a line that was delivered, or is next. A later line can only be the
    /// end of an earlier process's progress.
    fn begin_of(&self, line: Position) -> CheckedOffset {
        if line > self.next {
            return self.resumed_end;
        }
        match line.get() - self.ends_from.get() {
            0 => self.ends_begin,
            after => self.ends[after as usize - 1],
        }
    }

    fn store(&mut self, progress: Progress) -> io::Result<()> {
        let (begin, end) = (self.begin_of(progress.watermark()), self.begin_of(progress.end()));
        let passed = progress.watermark().min(self.next);
        let format = self.framing.format().to_owned();
        self.state_file.save(&FileState { progress, offset: begin.offset, end, format })?;
        self.ends_begin = self.begin_of(passed);
        self.ends.drain(..(passed.get() - self.ends_from.get()) as usize);
        self.ends_from = passed;
        Ok(())
    }
}

/// Verifies that the consumed part of the file is unchanged, and seeks to the first incomplete
/// line. Returns its beginning.
fn resume_at(
    input: &mut BufReader<File>,
    known: &FileState,
    framing: &dyn RecordFraming,
) -> io::Result<CheckedOffset> {
    let refused = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why);
    if known.format != framing.format() {
        let (before, now) = (&known.format, framing.format());
        return Err(refused(&format!("it was consumed as {before}, and is {now} now")));
    }
    let mut begin = CheckedOffset::default();
    let mut checked = CheckedOffset::default();
    let mut last = None;
    let mut buffer = vec![0; 256 * 1024];
    while checked.offset < known.end.offset {
        // Stops at the first incomplete line to know the checksum there.
        let until = if checked.offset < known.offset { known.offset } else { known.end.offset };
        let max = buffer.len().min(usize::try_from(until - checked.offset).unwrap_or(usize::MAX));
        let read = input.read(&mut buffer[..max])?;
        if read == 0 {
            return Err(refused("it is shorter than when it was consumed"));
        }
        checked = checked.after(&buffer[..read]);
        last = Some(buffer[read - 1]);
        if checked.offset == known.offset {
            begin = checked;
        }
    }
    if checked != known.end {
        return Err(refused("it is not what it was when it was consumed"));
    }
    let has_more = input.read(&mut buffer[..1])? > 0;
    if has_more && last.is_some_and(|last| !framing.is_end(last)) {
        return Err(refused("its last line was consumed, and has become longer"));
    }
    input.seek(SeekFrom::Start(begin.offset))?;
    Ok(begin)
}

impl CheckedOffset {
    /// Returns the offset after these bytes.
    fn after(self, bytes: &[u8]) -> Self {
        CheckedOffset {
            offset: self.offset + bytes.len() as u64,
            crc: crc32c::crc32c_append(self.crc, bytes),
        }
    }
}

impl Source for FileSource {
    fn poll(
        &mut self,
        timeout: Duration,
        max_records: usize,
        events: &mut Vec<SourceEvent>,
    ) -> Result<(), SourceError> {
        let mut result = self.collect(max_records, events);
        if events.is_empty() && result.is_ok() {
            self.wakeup.wait(timeout);
            result = self.collect(max_records, events);
        }
        result.map_err(|error| {
            SourceError::because(format!("cannot read {}", self.path.display()), error)
        })
    }

    fn commit(&mut self, commits: Vec<ProgressCommit>) {
        for ProgressCommit { partition, progress } in commits {
            let stored = self.store(progress);
            let result = stored.map_err(|error| CommitError::Later(error.to_string()));
            self.answers.push_back(SourceEvent::Committed { partition, result });
        }
    }

    fn pause(&mut self, _: &Partition) {
        self.paused = true;
    }

    fn resume(&mut self, _: &Partition) {
        self.paused = false;
    }

    fn release(&mut self, _: &[Partition]) {}

    fn close(&mut self, _: Duration) -> Result<(), SourceError> {
        Ok(())
    }

    fn waker(&self) -> Option<Waker> {
        Some(Waker::from(self.wakeup.clone()))
    }
}
