//! Dead letters in a file of JSON lines.

use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keylane_storage::files;
use serde_json::{Map, Value, json};

use super::{DeadLetter, DeadLetterError, DeadLetters, millis};

/// Dead letters as lines of JSON in a file that is synced before they are acknowledged.
///
/// | field | content |
/// |---|---|
/// | `stream`, `partition`, `position` | origin of the record |
/// | `written`, `failed_at` | milliseconds since 1970 |
/// | `attempts`, `failure` | number of attempts, and cause of the last failure |
/// | `key`, `payload`, and `value` in each of `headers` | text; if it is not UTF-8, it is in `key_base64`, `payload_base64` or `value_base64` instead. The payload of a tombstone is null, and so is a header without a value |
///
/// Several consumers may write to one file, also from several processes: each locks it for a
/// moment.
#[derive(Debug)]
pub struct FileDeadLetters {
    file: File,
    /// Whether letters that a power failure has torn are removed.
    is_repaired: bool,
}

/// Maximum size of letters that are synced together, in bytes, unless one alone is larger. A power
/// failure tears no others.
const MAX_UNSYNCED: u64 = 1024 * 1024;

impl FileDeadLetters {
    /// Opens or creates the file. The next write removes an incomplete line of a process that died,
    /// and lines of the last MiB that are not JSON, because a power failure has torn them: letters
    /// that were never acknowledged.
    ///
    /// # Errors
    /// If the file cannot be opened or created.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        let file = files::open(path)?;
        files::sync_folder(path)?;
        Ok(FileDeadLetters { file, is_repaired: false })
    }

    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        lock(&self.file)?;
        let repaired = if self.is_repaired { Ok(()) } else { remove_torn(&mut self.file) };
        self.is_repaired = repaired.is_ok();
        let appended = repaired.and_then(|()| append(&mut self.file, lines));
        self.file.unlock().and(appended)
    }
}

/// Waits for the lock of the file. Fails after a while, because a stopped process may hold it;
/// refused letters are written again.
fn lock(file: &File) -> io::Result<()> {
    const PATIENCE: Duration = Duration::from_secs(2);
    let begin = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if begin.elapsed() < PATIENCE => {
                thread::sleep(Duration::from_millis(2));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Appends after the last whole line: an incomplete line was never acknowledged.
fn append(file: &mut File, lines: &[u8]) -> io::Result<()> {
    let length = file.metadata()?.len();
    let end = end_of_lines(file, length)?;
    file.set_len(end)?;
    file.seek(SeekFrom::Start(end))?;
    let written = file.write_all(lines).and_then(|()| file.sync_data());
    if written.is_err() {
        // The letters are written again. If this fails as well, some may be in the file twice.
        let _ = file.set_len(end);
    }
    written
}

/// Removes lines that are not JSON from the part of the file that an interrupted write can have
/// torn. Its sectors reach the disk in any order, and a missing one reads as zeros.
fn remove_torn(file: &mut File) -> io::Result<()> {
    let length = file.metadata()?.len();
    let begin = end_of_lines(file, length.saturating_sub(MAX_UNSYNCED))?;
    let mut found = Vec::new();
    file.seek(SeekFrom::Start(begin))?;
    Read::by_ref(file).take(length - begin).read_to_end(&mut found)?;
    let lines = found.split_inclusive(|byte| *byte == b'\n');
    let is_whole = |line: &&[u8]| serde_json::from_slice::<Value>(line).is_ok();
    let whole = lines.filter(is_whole).collect::<Vec<_>>().concat();
    let equal = found.iter().zip(&whole).take_while(|(found, whole)| found == whole).count();
    if equal == found.len() {
        return Ok(());
    }
    file.set_len(begin + equal as u64)?;
    file.seek(SeekFrom::Start(begin + equal as u64))?;
    // The next append syncs the file.
    file.write_all(&whole[equal..])
}

impl DeadLetters for FileDeadLetters {
    fn write(&mut self, letters: &[DeadLetter]) -> Result<(), DeadLetterError> {
        let mut lines = Vec::new();
        for letter in letters {
            let mut line = serde_json::to_vec(&as_json(letter)).map_err(DeadLetterError::new)?;
            line.push(b'\n');
            if !lines.is_empty() && (lines.len() + line.len()) as u64 > MAX_UNSYNCED {
                self.append(&lines).map_err(DeadLetterError::new)?;
                lines.clear();
            }
            lines.append(&mut line);
        }
        self.append(&lines).map_err(DeadLetterError::new)
    }
}

/// Returns the position after the last line end before `end`.
fn end_of_lines(file: &mut File, mut end: u64) -> io::Result<u64> {
    const STEP: u64 = 64 * 1024;
    let mut buffer = Vec::new();
    while end > 0 {
        let begin = end.saturating_sub(STEP);
        file.seek(SeekFrom::Start(begin))?;
        buffer.clear();
        Read::by_ref(file).take(end - begin).read_to_end(&mut buffer)?;
        if let Some(at) = buffer.iter().rposition(|byte| *byte == b'\n') {
            return Ok(begin + at as u64 + 1);
        }
        end = begin;
    }
    Ok(0)
}

fn as_json(letter: &DeadLetter) -> Value {
    let mut fields = Map::new();
    let mut put = |name: &str, value: Value| fields.insert(name.to_owned(), value);
    put("stream", letter.partition.stream().into());
    put("partition", letter.partition.number().into());
    put("position", letter.position.get().into());
    put("written", millis(letter.written).into());
    put("failed_at", millis(letter.failed_at).into());
    put("attempts", letter.attempts.into());
    put("failure", letter.failure.as_str().into());
    let headers = letter.record.headers.iter().map(|(name, value)| {
        let mut header = Map::from_iter([("name".to_owned(), json!(name))]);
        put_bytes(&mut header, "value", value.as_deref());
        Value::Object(header)
    });
    put("headers", headers.collect());
    if let Some(key) = &letter.record.key {
        put_bytes(&mut fields, "key", Some(key));
    }
    put_bytes(&mut fields, "payload", letter.record.payload.as_deref());
    Value::Object(fields)
}

fn put_bytes(fields: &mut Map<String, Value>, name: &str, bytes: Option<&[u8]>) {
    let Some(bytes) = bytes else {
        fields.insert(name.to_owned(), Value::Null);
        return;
    };
    match std::str::from_utf8(bytes) {
        Ok(text) => fields.insert(name.to_owned(), text.into()),
        Err(_) => fields.insert(format!("{name}_base64"), STANDARD.encode(bytes).into()),
    };
}
