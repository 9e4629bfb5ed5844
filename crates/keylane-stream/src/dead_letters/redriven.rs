//! Names of the letters that have been handled again, in a file of JSON lines: a letter counts as
//! done when its line is on the disk.

use std::collections::HashSet;
use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::thread;
use std::time::Duration;

use keylane_storage::files;

use super::letter_line::{LetterName, object};
use super::torn_lines::remove_incomplete;

/// Maximum number of attempts at the lock: half a second in all.
const LOCK_ATTEMPTS: u32 = 50;

/// Pause between two attempts at the lock.
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// Names of the letters that are done. The file is locked for this process.
#[derive(Debug)]
pub(super) struct RedrivenLetters {
    file: File,
    done: HashSet<LetterName>,
}

impl RedrivenLetters {
    /// Opens or creates the file, and reads it. Removes an incomplete last line, which a process
    /// that was killed has left.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        files::settle(path)?;
        let mut file = files::open(path)?;
        lock(&file)?;
        files::sync_folder(path)?;
        remove_incomplete(&mut file)?;
        let mut text = Vec::new();
        file.seek(SeekFrom::Start(0))?;
        file.read_to_end(&mut text)?;
        let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let named = lines.enumerate().map(|(index, line)| {
            let name = object(line).and_then(|fields| LetterName::of(&fields));
            name.map_err(|error| {
                let why = format!("its line {} names no letter: {error}", index + 1);
                io::Error::new(io::ErrorKind::InvalidData, why)
            })
        });
        let done = named.collect::<io::Result<_>>()?;
        Ok(RedrivenLetters { file, done })
    }

    pub(super) fn has(&self, name: &LetterName) -> bool {
        self.done.contains(name)
    }

    /// Stores that letters are done. On success they are on the disk.
    pub(super) fn add(&mut self, names: Vec<LetterName>) -> io::Result<()> {
        if names.is_empty() {
            return Ok(());
        }
        let lines: String = names.iter().map(|name| format!("{}\n", name.as_json())).collect();
        let end = self.file.seek(SeekFrom::End(0))?;
        let written = self.file.write_all(lines.as_bytes()).and_then(|()| self.file.sync_data());
        if let Err(error) = written {
            // The names are written again. Without this some could be there twice, which has no
            // effect.
            let _ = self.file.set_len(end);
            return Err(error);
        }
        self.done.extend(names);
        Ok(())
    }
}

fn lock(file: &File) -> io::Result<()> {
    for _ in 0..LOCK_ATTEMPTS {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            // A forked child of a killed process holds its lock until it executes its program.
            Err(TryLockError::WouldBlock) => thread::sleep(LOCK_RETRY_INTERVAL),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Err(io::Error::new(
        io::ErrorKind::ResourceBusy,
        "another process handles these letters; wait for its end",
    ))
}
