use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::{BuryError, DeadLetters, Letter, millis};

/// Dead letters as lines of JSON in a file, which is synced before they are acknowledged.
///
/// | field | what it is |
/// |---|---|
/// | `stream`, `partition`, `position` | where the record was |
/// | `written`, `failed_at` | milliseconds since 1970 |
/// | `attempts`, `failure` | how often it was tried, and what the last attempt failed of |
/// | `key`, `payload`, and `value` in each of `headers` | text; if it is not UTF-8, it is in `key_base64`, `payload_base64` or `value_base64` instead |
#[derive(Debug)]
pub struct FileLetters {
    file: File,
    /// Where the last letter ends that was acknowledged.
    end: u64,
}

impl FileLetters {
    /// Goes on with a file, or makes it. What a dying process has left of a line is cut off.
    ///
    /// # Errors
    /// If it cannot be opened, read or written.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        let mut options = OpenOptions::new();
        let mut file = options.read(true).write(true).create(true).truncate(false).open(path)?;
        let end = end_of_lines(&mut file)?;
        file.set_len(end)?;
        Ok(FileLetters { file, end })
    }

    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        // A write that failed may have left something.
        self.file.set_len(self.end)?;
        self.file.seek(SeekFrom::Start(self.end))?;
        self.file.write_all(lines)?;
        self.file.sync_data()?;
        self.end += lines.len() as u64;
        Ok(())
    }
}

impl DeadLetters for FileLetters {
    fn bury(&mut self, letters: &[Letter]) -> Result<(), BuryError> {
        let mut lines = Vec::new();
        for letter in letters {
            serde_json::to_writer(&mut lines, &as_json(letter)).map_err(BuryError::new)?;
            lines.push(b'\n');
        }
        self.append(&lines).map_err(BuryError::new)
    }
}

/// One past the last line end.
fn end_of_lines(file: &mut File) -> io::Result<u64> {
    const STEP: u64 = 64 * 1024;
    let mut end = file.metadata()?.len();
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

fn as_json(letter: &Letter) -> Value {
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
        put_bytes(&mut header, "value", value);
        Value::Object(header)
    });
    put("headers", headers.collect());
    if let Some(key) = &letter.record.key {
        put_bytes(&mut fields, "key", key);
    }
    put_bytes(&mut fields, "payload", &letter.record.payload);
    Value::Object(fields)
}

fn put_bytes(fields: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => fields.insert(name.to_owned(), text.into()),
        Err(_) => fields.insert(format!("{name}_base64"), STANDARD.encode(bytes).into()),
    };
}
