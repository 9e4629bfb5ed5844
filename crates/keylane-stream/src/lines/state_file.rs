use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::Position;
use crate::tracker::{ForeignMapPolicy, MapPolicy, Progress, UnreadableMapPolicy, decode};

/// The version of the state's text that this writes and reads.
const VERSION: u64 = 1;

/// Attempts at a lock that is taken, half a second in all.
const LOCK_ATTEMPTS: u32 = 50;

/// Pause between two attempts.
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// How far a file was consumed: beside the progress, which bytes it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileState {
    pub(super) progress: Progress,
    /// Where the first line begins that is not done.
    pub(super) offset: u64,
    /// Up to where the file has been looked at, which is behind the last line that is done.
    pub(super) end: CheckedOffset,
}

/// A place in a file, and what all before it looked like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CheckedOffset {
    pub(super) offset: u64,
    /// CRC32C.
    pub(super) crc: u32,
}

/// The file that keeps it.
#[derive(Debug)]
pub(super) struct StateFile {
    path: PathBuf,
    /// Locked as long as this is there.
    _lock: File,
}

impl StateFile {
    /// Takes the file, so that nobody else consumes with it.
    pub(super) fn take(path: &Path) -> io::Result<Self> {
        Self::take_with(path, || thread::sleep(LOCK_RETRY_INTERVAL))
    }

    /// The same with a pause between two attempts.
    fn take_with(path: &Path, mut pause: impl FnMut()) -> io::Result<Self> {
        let lock = private().append(true).open(beside(path, "-lock"))?;
        for _ in 0..LOCK_ATTEMPTS {
            match lock.try_lock() {
                Ok(()) => return Ok(StateFile { path: path.to_owned(), _lock: lock }),
                // A child that a killed process had forked has its lock until it gets to its program.
                Err(fs::TryLockError::WouldBlock) => pause(),
                Err(fs::TryLockError::Error(error)) => return Err(error),
            }
        }
        Err(io::Error::new(io::ErrorKind::ResourceBusy, "another process consumes with it"))
    }

    /// What is in it, if it is there.
    pub(super) fn load(&self) -> io::Result<Option<FileState>> {
        let text = match fs::read(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text?,
        };
        let state = serde_json::from_slice(&text).ok().as_ref().and_then(FileState::from_json);
        state.map(Some).ok_or_else(|| {
            let why = "it is no state of lines that this version can read, or is damaged";
            io::Error::new(io::ErrorKind::InvalidData, why)
        })
    }

    /// Replaces it: whoever reads it finds the old one or the new one, whatever happens.
    pub(super) fn save(&self, state: &FileState) -> io::Result<()> {
        let new = beside(&self.path, "-new");
        let mut file = private().write(true).truncate(true).open(&new)?;
        file.write_all(state.as_json().to_string().as_bytes())?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        fs::rename(&new, &self.path)?;
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }
}

/// How files are made that only their owner may read: they say what was consumed.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.create(true).mode(0o600);
    options
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

impl FileState {
    fn as_json(&self) -> Value {
        json!({
            "keylane": "lines",
            "version": VERSION,
            "lines_done": self.progress.watermark().get(),
            "offset": self.offset,
            "end_offset": self.end.offset,
            "end_crc32c": self.end.crc,
            "map": self.progress.encode(&self.stream()),
        })
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
        };
        let policy = MapPolicy {
            parallel_consumer: ForeignMapPolicy::Distrust,
            unreadable: UnreadableMapPolicy::Refuse,
        };
        let map = json.get("map")?.as_str().filter(|map| !map.is_empty())?;
        state.progress = decode(watermark, map, &state.stream(), policy).ok()?.into_progress();
        (state.offset <= state.end.offset).then_some(state)
    }

    /// What the map is about, so that its checksum covers the other fields as well.
    fn stream(&self) -> Vec<u8> {
        let CheckedOffset { offset, crc } = self.end;
        format!("lines {} {offset} {crc}", self.offset).into_bytes()
    }
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
        // As a child of a killed process has it until it gets to its program.
        let mut held = Some(held);
        StateFile::take_with(&path, || held = None).unwrap();
    }
}
