//! High-water mark of acknowledged writes, which detects a damaged write-ahead log.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::checksum;
use crate::files::{beside, open};

/// High-water mark: one past the last acknowledged number. It is written after each commit and
/// never synced, so it costs almost nothing, and survives a crash of the process but not of the
/// machine.
///
/// It is never ahead of the disk. So a file that ends before its mark has lost acknowledged writes.
/// SQLite does not notice that: a damaged log looks to it like a shorter one.
///
/// The file `-mark` has a magic number (4 bytes), the store's id (16), the mark (8), and the CRC32C
/// of these (4); numbers are little-endian.
#[derive(Debug)]
pub struct HighWaterMark {
    file: File,
    magic: [u8; 4],
    id: [u8; 16],
    path: PathBuf,
}

/// Error of opening a mark.
#[derive(Debug)]
pub enum HighWaterMarkError {
    /// The mark is damaged, or belongs to another store.
    Damaged(PathBuf),
    /// The file could not be opened or read.
    Io {
        /// Failed action.
        doing: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
}

const MARK_BYTES: usize = 32;

impl HighWaterMark {
    /// Opens or creates the mark of a store, and returns its value, if it has one.
    ///
    /// # Errors
    /// If the mark is damaged or cannot be read.
    pub fn open(
        store: &Path,
        magic: [u8; 4],
        id: [u8; 16],
    ) -> Result<(HighWaterMark, Option<u64>), HighWaterMarkError> {
        let path = beside(store, "-mark");
        let io = |doing| {
            let path = path.clone();
            move |source| HighWaterMarkError::Io { doing, path, source }
        };
        let mut file = open(&path).map_err(io("open the mark"))?;
        let mut bytes = Vec::new();
        let max = MARK_BYTES as u64 + 1;
        (&mut file).take(max).read_to_end(&mut bytes).map_err(io("read the mark"))?;
        // After a power failure the file may be empty or zeros.
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok((HighWaterMark { file, magic, id, path }, None));
        }
        match parse(&bytes, magic, id) {
            Some(number) => Ok((HighWaterMark { file, magic, id, path }, Some(number))),
            None => Err(HighWaterMarkError::Damaged(path)),
        }
    }

    /// Returns the path of a store's mark and its value, if it has one. Creates no file.
    ///
    /// # Errors
    /// If the mark is damaged or cannot be read.
    pub fn look(
        store: &Path,
        magic: [u8; 4],
        id: [u8; 16],
    ) -> Result<(PathBuf, Option<u64>), HighWaterMarkError> {
        let path = beside(store, "-mark");
        match std::fs::exists(&path) {
            Ok(false) => Ok((path, None)),
            // An error of `exists` is reported by `open`.
            _ => Self::open(store, magic, id).map(|(_, number)| (path, number)),
        }
    }

    /// Returns the path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the mark.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn set(&mut self, acknowledged: u64) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(MARK_BYTES);
        bytes.extend(self.magic);
        bytes.extend(self.id);
        bytes.extend(acknowledged.to_le_bytes());
        checksum::seal(&mut bytes, &[]);
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(&bytes)
    }
}

fn parse(bytes: &[u8], magic: [u8; 4], id: [u8; 16]) -> Option<u64> {
    let bytes: &[u8; MARK_BYTES] = bytes.try_into().ok()?;
    let rest = checksum::unseal(bytes, &[])?.strip_prefix(&magic)?.strip_prefix(&id)?;
    Some(u64::from_le_bytes(rest.try_into().ok()?))
}
