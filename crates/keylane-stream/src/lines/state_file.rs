//! State file of a file source: progress, and a checksum of the consumed part.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use keylane_storage::files;
use serde_json::{Value, json};

use crate::Position;
use crate::tracker::{ForeignMapPolicy, OffsetMapPolicy, Progress, UnreadableMapPolicy, decode};

/// Version of the state file's format.
const VERSION: u64 = 1;

/// Maximum number of attempts at the lock: half a second in all.
const LOCK_ATTEMPTS: u32 = 50;

/// Pause between two attempts at the lock.
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// Progress of a file, and the part of the file that it covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileState {
    pub(super) progress: Progress,
    /// Offset of the first incomplete line.
    pub(super) offset: u64,
    /// End of the verified part, after the last completed line.
    pub(super) end: CheckedOffset,
    /// Format of the records.
    pub(super) format: String,
}

/// Format of a state file that names none.
const LINES: &str = "lines";

/// An offset in a file, and the checksum of the bytes before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CheckedOffset {
    pub(super) offset: u64,
    /// CRC32C of all bytes before the offset.
    pub(super) crc: u32,
}

/// The state file, locked for this process.
#[derive(Debug)]
pub(super) struct StateFile {
    path: PathBuf,
    /// Holds the lock while it is open.
    _lock: File,
}

impl StateFile {
    /// Locks the state file for this process.
    pub(super) fn take(path: &Path) -> io::Result<Self> {
        Self::take_with(path, || thread::sleep(LOCK_RETRY_INTERVAL))
    }

    /// Locks the state file, with a pause between attempts.
    fn take_with(path: &Path, mut pause: impl FnMut()) -> io::Result<Self> {
        let lock = files::open(&files::beside(path, "-lock"))?;
        for _ in 0..LOCK_ATTEMPTS {
            match lock.try_lock() {
                Ok(()) => return Ok(StateFile { path: path.to_owned(), _lock: lock }),
                // A forked child of a killed process holds its lock until it executes its program.
                Err(fs::TryLockError::WouldBlock) => pause(),
                Err(fs::TryLockError::Error(error)) => return Err(error),
            }
        }
        Err(io::Error::new(
            io::ErrorKind::ResourceBusy,
            "another process uses it; stop that process, or use another state file",
        ))
    }

    /// Reads the state, if the file exists.
    pub(super) fn load(&self) -> io::Result<Option<FileState>> {
        let text = match fs::read(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text?,
        };
        let state = serde_json::from_slice(&text).ok().as_ref().and_then(FileState::from_json);
        state.map(Some).ok_or_else(|| {
            let why = "it is damaged, or not a state file that this version can read";
            io::Error::new(io::ErrorKind::InvalidData, why)
        })
    }

    /// Replaces the state atomically: readers find the old one or the new one, also after a crash.
    pub(super) fn save(&self, state: &FileState) -> io::Result<()> {
        let mut text = state.as_json().to_string();
        text.push('\n');
        files::replace(&self.path, text.as_bytes())
    }
}

impl FileState {
    fn as_json(&self) -> Value {
        let mut json = json!({
            "keylane": "lines",
            "version": VERSION,
            "lines_done": self.progress.watermark().get(),
            "offset": self.offset,
            "end_offset": self.end.offset,
            "end_crc32c": self.end.crc,
            "map": self.progress.encode(&self.stream()),
        });
        // Files of lines are as earlier versions wrote them.
        if self.format != LINES {
            json["format"] = self.format.as_str().into();
        }
        json
    }

    fn from_json(json: &Value) -> Option<Self> {
        let number = |name: &str| json.get(name)?.as_u64();
        if json.get("keylane")? != "lines" || number("version")? != VERSION {
            return None;
        }
        let watermark = Position::checked(i64::try_from(number("lines_done")?).ok()?)?;
        let crc = u32::try_from(number("end_crc32c")?).ok()?;
        let mut state = FileState {
            progress: Progress::up_to(watermark),
            offset: number("offset")?,
            end: CheckedOffset { offset: number("end_offset")?, crc },
            format: json.get("format").map_or(Some(LINES), Value::as_str)?.to_owned(),
        };
        let policy = OffsetMapPolicy {
            parallel_consumer: ForeignMapPolicy::Distrust,
            unreadable: UnreadableMapPolicy::Refuse,
        };
        let map = json.get("map")?.as_str().filter(|map| !map.is_empty())?;
        state.progress = decode(watermark, map, &state.stream(), policy).ok()?.into_progress();
        (state.offset <= state.end.offset).then_some(state)
    }

    /// Identity of the map, so that its checksum covers the other fields.
    fn stream(&self) -> Vec<u8> {
        let CheckedOffset { offset, crc } = self.end;
        format!("{} {} {offset} {crc}", self.format, self.offset).into_bytes()
    }
}

/// Fuzz target: the content of a state file. A state that is read is the same when it is written again.
#[cfg(any(test, fuzzing))]
pub fn fuzz_state(input: &[u8]) {
    let Some(state) = serde_json::from_slice(input).ok().as_ref().and_then(FileState::from_json)
    else {
        return;
    };
    let text = state.as_json().to_string();
    let again = serde_json::from_str(&text).ok().as_ref().and_then(FileState::from_json);
    assert_eq!(again, Some(state));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_is_let_go_at_once_is_waited_for_and_another_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let held = StateFile::take(&path).unwrap();
        let mut pauses = 0;
        let refused = StateFile::take_with(&path, || pauses += 1).unwrap_err();
        assert_eq!((refused.kind(), pauses), (io::ErrorKind::ResourceBusy, LOCK_ATTEMPTS));
        // Like the forked child of a killed process, which holds the lock for a moment.
        let mut held = Some(held);
        StateFile::take_with(&path, || held = None).unwrap();
    }
}
