use std::ffi::OsString;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// While it lives, nobody else opens the file. The system lets go of it when the process ends, however
/// it does.
#[derive(Debug)]
pub struct Lock {
    /// Held for its lock alone.
    _file: File,
}

/// Why a file was not locked.
#[derive(Debug)]
pub enum LockError {
    /// It is open already, here or in another process, whose number is given if it is known.
    InUse(Option<u32>),
    /// A file could not be opened or written.
    Io {
        /// What was tried.
        doing: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

impl Lock {
    /// Takes the lock of the file, which is a file beside it: `-lock`.
    ///
    /// # Errors
    /// If somebody has it, or it cannot be opened.
    pub fn take(path: &Path) -> Result<Lock, LockError> {
        let io = |doing| move |source| LockError::Io { doing, source };
        let mut file = open(&beside(path, "-lock")).map_err(io("open the lock file"))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut by = String::new();
                // Only for the message: the owner may be about to write its number.
                let by = file.read_to_string(&mut by).ok().and_then(|_| by.trim().parse().ok());
                return Err(LockError::InUse(by));
            }
            Err(TryLockError::Error(error)) => return Err(io("take the lock")(error)),
        }
        let number = format!("{}\n", std::process::id());
        file.set_len(0)
            .and_then(|()| file.write_all(number.as_bytes()))
            .map_err(io("take the lock"))?;
        Ok(Lock { _file: file })
    }
}

/// The path of a file beside another.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

pub(super) fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
}
