//! Dead letters in a file of JSON lines.

use std::fmt;
use std::fs::{File, TryLockError};
use std::io::{self, Seek, SeekFrom, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keylane_storage::files;
use serde_json::{Map, Value, json};

use super::torn_lines::{RemovedLine, remove_incomplete, remove_torn};
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
pub struct FileDeadLetters {
    file: File,
    /// Whether letters that a power failure has torn are removed.
    is_repaired: bool,
    on_removed: Option<Box<RemovalHook>>,
}

/// Callback for removed lines.
type RemovalHook = dyn Fn(&RemovedLine) + Send;

/// Maximum size of letters that are synced together, in bytes, unless one alone is larger. A power
/// failure tears no others.
const MAX_UNSYNCED: u64 = 1024 * 1024;

impl FileDeadLetters {
    /// Opens or creates the file. The next write removes an incomplete last line, and lines of the
    /// last MiB in which a power failure has left whole sectors as zeros: letters that were never
    /// acknowledged. All other lines stay, whatever they contain.
    ///
    /// # Errors
    /// If the file cannot be opened or created.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        let file = files::open(path)?;
        files::sync_folder(path)?;
        Ok(FileDeadLetters { file, is_repaired: false, on_removed: None })
    }

    /// Sets a callback for lines that a write removes. It is called on the thread of the write.
    #[must_use]
    pub fn on_removed(mut self, hook: impl Fn(&RemovedLine) + Send + 'static) -> Self {
        self.on_removed = Some(Box::new(hook));
        self
    }

    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        lock(&self.file)?;
        let mut removed = Vec::new();
        let appended = self.repair(&mut removed).and_then(|()| append(&mut self.file, lines));
        let unlocked = self.file.unlock();
        if let Some(hook) = &self.on_removed {
            // A panic in the user's callback must not repeat the write.
            let _ = catch_unwind(AssertUnwindSafe(|| removed.iter().for_each(hook)));
        }
        unlocked.and(appended)
    }

    /// Removes incomplete lines: a process that died can have left the last one at any time.
    fn repair(&mut self, removed: &mut Vec<RemovedLine>) -> io::Result<()> {
        if !self.is_repaired {
            removed.extend(remove_torn(&mut self.file, MAX_UNSYNCED)?);
        }
        removed.extend(remove_incomplete(&mut self.file)?);
        if !self.is_repaired || !removed.is_empty() {
            // Otherwise a power failure during the append could leave bytes of a removed line in a new one, or only the beginning of
            // a line that a killed process has written and not synced.
            self.file.sync_all()?;
        }
        self.is_repaired = true;
        Ok(())
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

/// Appends lines to a file that ends with a line end.
fn append(file: &mut File, lines: &[u8]) -> io::Result<()> {
    let end = file.seek(SeekFrom::End(0))?;
    let written = file.write_all(lines).and_then(|()| file.sync_data());
    if written.is_err() {
        // The letters are written again. If this fails as well, some may be in the file twice.
        let _ = file.set_len(end);
    }
    written
}

impl fmt::Debug for FileDeadLetters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileDeadLetters").field("file", &self.file).finish_non_exhaustive()
    }
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
