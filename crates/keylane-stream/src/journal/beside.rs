//! The two small files beside a journal: the lock, which keeps others out, and the mark, which says
//! how much was acknowledged.

use std::ffi::OsString;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::error::{Damage, OpenError};
use crate::Position;

/// The path of a file beside the journal.
fn beside(journal: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(journal);
    name.push(suffix);
    name.into()
}

fn io(doing: &'static str) -> impl FnOnce(io::Error) -> OpenError {
    move |source| OpenError::Io { doing, source }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
}

/// While it lives, nobody else opens the journal. The system lets go of it when the process ends,
/// however it does.
#[derive(Debug)]
pub(super) struct Lock {
    /// Held for its lock alone.
    _file: File,
}

impl Lock {
    pub(super) fn take(journal: &Path) -> Result<Lock, OpenError> {
        let mut file = open(&beside(journal, "-lock")).map_err(io("open the lock file"))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut by = String::new();
                // Only for the message: the owner may be about to write its number.
                let by = file.read_to_string(&mut by).ok().and_then(|_| by.trim().parse().ok());
                return Err(OpenError::InUse { path: journal.to_owned(), by });
            }
            Err(TryLockError::Error(error)) => return Err(io("lock the journal")(error)),
        }
        let number = format!("{}\n", std::process::id());
        file.set_len(0)
            .and_then(|()| file.write_all(number.as_bytes()))
            .map_err(io("lock the journal"))?;
        Ok(Lock { _file: file })
    }
}

/// How far records were acknowledged, as far as the system knows: written after each commit and never
/// synced, so it costs next to nothing, survives the process and not the machine.
///
/// It is never ahead of what is on the disk. So when a journal ends before it, records that were
/// acknowledged are gone, which SQLite does not notice: to it, a damaged log is one that ends early.
///
/// `KLM1`, the journal's id (16 bytes), one past the last acknowledged position (8), CRC32C of all that
/// (4); numbers with the least byte first.
#[derive(Debug)]
pub(super) struct Mark {
    file: File,
    id: [u8; 16],
    pub(super) path: PathBuf,
}

const MARK_BYTES: usize = 32;

impl Mark {
    /// Opens the mark, and what it says, if it says anything.
    pub(super) fn open(
        journal: &Path,
        id: [u8; 16],
    ) -> Result<(Mark, Option<Position>), OpenError> {
        let path = beside(journal, "-mark");
        let mut file = open(&path).map_err(io("open the mark"))?;
        let mut bytes = Vec::new();
        let most = MARK_BYTES as u64 + 1;
        (&mut file).take(most).read_to_end(&mut bytes).map_err(io("read the mark"))?;
        // A machine that failed may have left a file without its content.
        let blank = bytes.iter().all(|byte| *byte == 0);
        let said = if blank { None } else { Some(parse(&bytes, id)) };
        match said {
            Some(None) => Err(OpenError::Damaged(Damage::Mark { path })),
            Some(Some(position)) => Ok((Mark { file, id, path }, Some(position))),
            None => Ok((Mark { file, id, path }, None)),
        }
    }

    pub(super) fn set(&mut self, acknowledged: Position) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(MARK_BYTES);
        bytes.extend(b"KLM1");
        bytes.extend(self.id);
        bytes.extend(acknowledged.get().to_le_bytes());
        bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(&bytes)
    }
}

fn parse(bytes: &[u8], id: [u8; 16]) -> Option<Position> {
    let bytes: &[u8; MARK_BYTES] = bytes.try_into().ok()?;
    let (body, crc) = bytes.split_last_chunk::<4>()?;
    if u32::from_le_bytes(*crc) != crc32c::crc32c(body) {
        return None;
    }
    let rest = body.strip_prefix(b"KLM1")?.strip_prefix(&id)?;
    let number = i64::from_le_bytes(rest.try_into().ok()?);
    Position::checked(number)
}

/// Makes sure that a file that was created is found again after the machine has failed.
pub(super) fn sync_folder(journal: &Path) -> Result<(), OpenError> {
    let folder = journal.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = File::open(folder.unwrap_or(Path::new("."))).map_err(io("open the folder"))?;
    folder.sync_all().map_err(io("sync the folder"))
}
