use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::lock::{beside, open};

/// How much was acknowledged, as far as the system knows: written after each commit and never synced,
/// so it costs next to nothing, survives the process and not the machine.
///
/// It is never ahead of what is on the disk. So when a file ends before it, something that was
/// acknowledged is gone, which SQLite does not notice: to it, a damaged log is one that ends early.
///
/// In the file `-mark`: what it is (4 bytes), the store's id (16), one past the last number acknowledged
/// (8), CRC32C of all that (4); numbers with the least byte first.
#[derive(Debug)]
pub struct HighWaterMark {
    file: File,
    magic: [u8; 4],
    id: [u8; 16],
    path: PathBuf,
}

/// Why a mark could not be opened.
#[derive(Debug)]
pub enum HighWaterMarkError {
    /// It is not this store's, or damaged.
    Damaged(PathBuf),
    /// It could not be opened or read.
    Io {
        /// What was tried.
        doing: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

const MARK_BYTES: usize = 32;

impl HighWaterMark {
    /// Opens the mark of a store, and what it says, if it says anything.
    ///
    /// # Errors
    /// If it is damaged, or cannot be read.
    pub fn open(
        store: &Path,
        magic: [u8; 4],
        id: [u8; 16],
    ) -> Result<(HighWaterMark, Option<u64>), HighWaterMarkError> {
        let io = |doing| move |source| HighWaterMarkError::Io { doing, source };
        let path = beside(store, "-mark");
        let mut file = open(&path).map_err(io("open the mark"))?;
        let mut bytes = Vec::new();
        let most = MARK_BYTES as u64 + 1;
        (&mut file).take(most).read_to_end(&mut bytes).map_err(io("read the mark"))?;
        // A machine that failed may have left a file without its content.
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok((HighWaterMark { file, magic, id, path }, None));
        }
        match parse(&bytes, magic, id) {
            Some(number) => Ok((HighWaterMark { file, magic, id, path }, Some(number))),
            None => Err(HighWaterMarkError::Damaged(path)),
        }
    }

    /// What the mark of a store says, if it says anything, and where it is. Makes no file.
    ///
    /// # Errors
    /// If it is damaged, or cannot be read.
    pub fn look(
        store: &Path,
        magic: [u8; 4],
        id: [u8; 16],
    ) -> Result<(PathBuf, Option<u64>), HighWaterMarkError> {
        let path = beside(store, "-mark");
        match std::fs::exists(&path) {
            Ok(false) => Ok((path, None)),
            // What stands in the way is found by opening it.
            _ => Self::open(store, magic, id).map(|(_, number)| (path, number)),
        }
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Says how much is acknowledged.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn set(&mut self, acknowledged: u64) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(MARK_BYTES);
        bytes.extend(self.magic);
        bytes.extend(self.id);
        bytes.extend(acknowledged.to_le_bytes());
        bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(&bytes)
    }
}

fn parse(bytes: &[u8], magic: [u8; 4], id: [u8; 16]) -> Option<u64> {
    let bytes: &[u8; MARK_BYTES] = bytes.try_into().ok()?;
    let (body, crc) = bytes.split_last_chunk::<4>()?;
    if u32::from_le_bytes(*crc) != crc32c::crc32c(body) {
        return None;
    }
    let rest = body.strip_prefix(&magic)?.strip_prefix(&id)?;
    Some(u64::from_le_bytes(rest.try_into().ok()?))
}
