//! Dead letters of a file as a source: each letter is handled again, in the order of its key, until it is stored
//! as done.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use keylane_storage::ThreadNotify;

use super::letter_line::{LetterLine, LetterName};
use super::redriven::RedrivenLetters;
use crate::source::{
    CommitError, Partition, PartitionAssignment, ProgressCommit, Source, SourceError, SourceEvent,
};
use crate::tracker::{OffsetMapLimit, Progress};
use crate::{DeliveredRecord, Position};

/// Maximum size of the lines of a poll, in bytes. The last one may exceed it.
const MAX_POLL_BYTES: usize = 4 * 1024 * 1024;

/// Dead letters of a file that [`FileDeadLetters`](super::FileDeadLetters) has written, as records
/// of the partitions that they came from.
///
/// - Each letter has the partition, the position, the key, the headers and the payload of its
///   record, so a consumer handles the letters of a key in the order of their records, and effects
///   can be recognized by partition and position.
/// - Letters that are handled are named in a state file: a later process handles only the others. A
///   record that fails again later and gets another letter is handled again.
/// - A person may change payloads, keys and headers, and remove lines, while no process reads the
///   file. `stream`, `partition`, `position` and `failed_at` name the letter.
/// - If a record has several letters, the last one counts.
/// - The source ends after the letters that the file had when it was opened.
///
/// # Examples
/// ```
/// use keylane_stream::consumer::{Attempt, AttemptFailure, Consumer};
/// use keylane_stream::dead_letters::DeadLetterSource;
///
/// let folder = tempfile::tempdir()?;
/// let (path, state) = (folder.path().join("dead.ndjson"), folder.path().join("dead.state"));
/// let letter = r#"{"stream":"orders","partition":3,"position":17,"key":"ann","payload":"1 book"}"#;
/// std::fs::write(&path, format!("{letter}\n"))?;
///
/// let handle = |letter: &Attempt| {
///     println!("{} at {}: {:?}", letter.partition(), letter.position(), letter.payload());
///     Ok::<_, AttemptFailure>(())
/// };
/// let redrive = || -> Result<_, Box<dyn std::error::Error>> {
///     let letters = DeadLetterSource::open(&path, &state)?;
///     Ok(Consumer::builder(letters).start(handle)?.wait().counts.handled)
/// };
/// assert_eq!((redrive()?, redrive()?), (1, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct DeadLetterSource {
    path: PathBuf,
    input: BufReader<File>,
    redriven: RedrivenLetters,
    partitions: Vec<LetterPartition>,
    is_assigned: bool,
    /// Answers to commits.
    answers: VecDeque<SourceEvent>,
    wakeup: Arc<ThreadNotify>,
}

/// Letters of a partition.
#[derive(Debug)]
struct LetterPartition {
    partition: Partition,
    /// Letters that are not done, by position. A letter that is stored as done is removed.
    open: BTreeMap<Position, LetterPlace>,
    progress: Progress,
    /// One past the last letter.
    end: Position,
    /// Next position to deliver.
    next: Position,
    is_paused: bool,
    is_ended: bool,
}

/// Place of a letter in the file.
#[derive(Clone, Copy, Debug)]
struct LetterPlace {
    offset: u64,
    failed_at: u64,
}

impl DeadLetterSource {
    /// Opens the file of letters at `path`, and the state at `state`, which is created if necessary
    /// and locked for this process.
    ///
    /// # Errors
    /// If a file cannot be read, a line is not a dead letter, or another process uses the state.
    pub fn open(path: impl AsRef<Path>, state: impl AsRef<Path>) -> Result<Self, SourceError> {
        let (path, state) = (path.as_ref(), state.as_ref());
        let cannot = |what: &str, path: &Path| format!("cannot {what} {}", path.display());
        let read = |error| SourceError::because(cannot("read the dead letters in", path), error);
        let mut input = BufReader::with_capacity(256 * 1024, File::open(path).map_err(read)?);
        let redriven = RedrivenLetters::open(state)
            .map_err(|error| SourceError::because(cannot("use the state", state), error))?;
        let mut partitions = index(&mut input, &redriven).map_err(read)?;
        if partitions.is_empty() {
            // A consumer without partitions would wait for some.
            let name = Partition::new(path.display().to_string(), 0);
            partitions.push(LetterPartition::new(name, BTreeMap::new(), &redriven));
        }
        Ok(DeadLetterSource {
            path: path.to_owned(),
            input,
            redriven,
            partitions,
            is_assigned: false,
            answers: VecDeque::new(),
            wakeup: Arc::default(),
        })
    }

    fn collect(&mut self, max: usize, events: &mut Vec<SourceEvent>) -> io::Result<()> {
        events.extend(self.answers.drain(..));
        if !std::mem::replace(&mut self.is_assigned, true) {
            events.extend(self.partitions.iter().map(LetterPartition::assigned));
        }
        let (mut records_left, mut bytes_left) = (max, MAX_POLL_BYTES);
        for letters in &mut self.partitions {
            if records_left == 0 || bytes_left == 0 || letters.is_paused || letters.is_ended {
                continue;
            }
            let mut records = Vec::new();
            while records_left > 0 && bytes_left > 0 {
                let Some((line, delivered)) = letters.read_next(&mut self.input)? else { break };
                records_left -= 1;
                bytes_left = bytes_left.saturating_sub(line);
                records.push(delivered);
            }
            letters.report(records, events);
        }
        // The next poll begins with another partition.
        self.partitions.rotate_left(1);
        Ok(())
    }

    fn store(&mut self, partition: &Partition, progress: &Progress) -> io::Result<()> {
        let letters = self.partitions.iter_mut().find(|letters| letters.partition == *partition);
        let Some(letters) = letters else { return Ok(()) };
        let open = letters.open.range(..letters.next);
        let done = open.filter(|(position, _)| progress.is_done(**position));
        let done: Vec<LetterName> = done.map(|it| letters.name(*it.0, *it.1)).collect();
        let positions: Vec<_> = done.iter().map(|name| name.position).collect();
        self.redriven.add(done)?;
        for position in positions {
            letters.open.remove(&position);
        }
        Ok(())
    }
}

/// Reads the file, and returns its letters by partition.
fn index(
    input: &mut BufReader<File>,
    redriven: &RedrivenLetters,
) -> io::Result<Vec<LetterPartition>> {
    let mut found: BTreeMap<Partition, BTreeMap<Position, LetterPlace>> = BTreeMap::new();
    let (mut offset, mut number, mut line) = (0, 0_u64, Vec::new());
    loop {
        line.clear();
        let length = input.read_until(b'\n', &mut line)?;
        if length == 0 {
            break;
        }
        number += 1;
        if !line.trim_ascii().is_empty() {
            let letter = LetterLine::parse(&line).map_err(|why| {
                let why = format!(
                    "line {number} is not a dead letter: {why}; correct the line, or remove it"
                );
                io::Error::new(io::ErrorKind::InvalidData, why)
            })?;
            let LetterName { partition, position, failed_at } = letter.name;
            let place = LetterPlace { offset, failed_at };
            found.entry(partition).or_default().insert(position, place);
        }
        offset += length as u64;
    }
    let partitions = found.into_iter();
    Ok(partitions.map(|(name, letters)| LetterPartition::new(name, letters, redriven)).collect())
}

impl LetterPartition {
    fn new(
        partition: Partition,
        mut open: BTreeMap<Position, LetterPlace>,
        redriven: &RedrivenLetters,
    ) -> Self {
        let end = open.keys().next_back().map_or(Position::ZERO, |last| last.next());
        open.retain(|position, place| {
            let partition = partition.clone();
            let (position, failed_at) = (*position, place.failed_at);
            !redriven.has(&LetterName { partition, position, failed_at })
        });
        let first = open.keys().next().copied();
        let progress = match first {
            Some(first) => Progress::with_map(first, end, open.keys().copied().collect()),
            None => Progress::up_to(end),
        };
        let next = first.unwrap_or(end);
        LetterPartition { partition, open, progress, end, next, is_paused: false, is_ended: false }
    }

    fn name(&self, position: Position, place: LetterPlace) -> LetterName {
        let partition = self.partition.clone();
        LetterName { partition, position, failed_at: place.failed_at }
    }

    fn assigned(&self) -> SourceEvent {
        SourceEvent::Assigned(PartitionAssignment {
            partition: self.partition.clone(),
            progress: self.progress.clone(),
            limit: OffsetMapLimit::JOURNAL,
        })
    }

    /// Reads the next letter, with the length of its line.
    fn read_next(
        &mut self,
        input: &mut BufReader<File>,
    ) -> io::Result<Option<(usize, DeliveredRecord)>> {
        let Some((position, place)) = self.open.range(self.next..).next() else { return Ok(None) };
        let (position, place) = (*position, *place);
        let mut line = Vec::new();
        input.seek(SeekFrom::Start(place.offset))?;
        input.by_ref().read_until(b'\n', &mut line)?;
        let letter = LetterLine::parse(&line).ok();
        let letter = letter.filter(|letter| letter.name == self.name(position, place));
        let letter = letter.ok_or_else(|| {
            let why = "it has changed while it is read; start again";
            io::Error::new(io::ErrorKind::InvalidData, why)
        })?;
        self.next = position.next();
        let LetterLine { written, record, .. } = letter;
        Ok(Some((line.len(), DeliveredRecord { position, written, record })))
    }

    /// Reports records, and the end behind the last one.
    fn report(&mut self, records: Vec<DeliveredRecord>, events: &mut Vec<SourceEvent>) {
        let partition = &self.partition;
        if !records.is_empty() {
            events.push(SourceEvent::Records { partition: partition.clone(), records });
        }
        if self.open.range(self.next..).next().is_none() {
            self.is_ended = true;
            let (partition, position) = (partition.clone(), self.end);
            events.push(SourceEvent::Reached { partition, position });
            events.push(SourceEvent::Exhausted(self.partition.clone()));
        }
    }
}

impl Source for DeadLetterSource {
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
            let what = format!("cannot read the dead letters in {}", self.path.display());
            SourceError::because(what, error)
        })
    }

    fn commit(&mut self, commits: Vec<ProgressCommit>) {
        for ProgressCommit { partition, progress } in commits {
            let stored = self.store(&partition, &progress);
            let result = stored.map_err(|error| CommitError::Later(error.to_string()));
            self.answers.push_back(SourceEvent::Committed { partition, result });
        }
    }

    fn pause(&mut self, partition: &Partition) {
        self.set_paused(partition, true);
    }

    fn resume(&mut self, partition: &Partition) {
        self.set_paused(partition, false);
    }

    fn release(&mut self, _: &[Partition]) {}

    fn close(&mut self, _: Duration) -> Result<(), SourceError> {
        Ok(())
    }

    fn waker(&self) -> Option<Waker> {
        Some(Waker::from(self.wakeup.clone()))
    }

    fn end(&self, partition: &Partition) -> Option<Position> {
        self.partitions.iter().find(|it| it.partition == *partition).map(|letters| letters.end)
    }
}

impl DeadLetterSource {
    fn set_paused(&mut self, partition: &Partition, is_paused: bool) {
        let letters = self.partitions.iter_mut().find(|it| it.partition == *partition);
        letters.into_iter().for_each(|letters| letters.is_paused = is_paused);
    }
}
