//! Folder of tables: one for each process that has no file of its own beside which a table could
//! be.
//!
//! A process makes a table under a name that is never used again, and locks it. Each process that
//! starts takes the free locks, ends the processes that those tables list, and removes the tables.
//! A locked table belongs to a running process, or to the guard of one that has ended: the start
//! waits for the latter.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::process::{Pid, geteuid};

use crate::leftovers::{MessageSink, RegistryOpenError, end_leftovers, lock};
use crate::{scan, table};

/// How the names of tables begin.
const TABLE_NAME: &str = "children-";

/// Makes the folder if it is not there. Whether it is a folder that this user alone can change.
pub(crate) fn prepare(folder: &Path) -> io::Result<bool> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    // A link may have been put there by another user, so it is not followed.
    let found = fs::symlink_metadata(folder)?;
    Ok(found.is_dir() && found.uid() == geteuid().as_raw() && found.mode() & 0o077 == 0)
}

/// Ends the processes in the tables of ended processes, and removes these tables.
pub(crate) fn end_abandoned(folder: &Path, tell: &MessageSink) -> Result<(), RegistryOpenError> {
    let io = |doing| {
        move |source| RegistryOpenError::Io { doing, path: Some(folder.to_owned()), source }
    };
    for entry in fs::read_dir(folder).map_err(io("list"))? {
        let entry = entry.map_err(io("list"))?;
        if entry.file_name().to_string_lossy().starts_with(TABLE_NAME) {
            end_one(&entry.path(), tell)?;
        }
    }
    Ok(())
}

fn end_one(path: &Path, tell: &MessageSink) -> Result<(), RegistryOpenError> {
    let io =
        |doing| move |source| RegistryOpenError::Io { doing, path: Some(path.to_owned()), source };
    let file = match OpenOptions::new().read(true).write(true).open(path) {
        // The process has ended in good order meanwhile.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        opened => opened.map_err(io("open"))?,
    };
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::Error(error)) => return Err(io("lock")(error)),
        Err(TryLockError::WouldBlock) if parent_may_run(&file) => return Ok(()),
        Err(TryLockError::WouldBlock) => lock(&file, tell).map_err(io("lock"))?,
    }
    if !is_out_of_reach(&file) {
        end_leftovers(&file, tell).map_err(|error| error.of(path))?;
        // The lock is still held, and the name is never used again.
        fs::remove_file(path).or_else(ignore_missing).map_err(io("remove"))?;
    }
    Ok(())
}

/// Whether the parent of a table that is locked may be running. One that is being made, or that this version cannot
/// read, has a parent that runs.
fn parent_may_run(file: &File) -> bool {
    let Ok(Some((header, _))) = table::read(file) else { return true };
    let is_here = scan::here().is_ok_and(|here| here == header.machine);
    let parent = Pid::from_raw(header.process.cast_signed());
    !is_here || parent.is_some_and(scan::runs)
}

/// Whether the processes of the table are in another namespace of numbers, where a later start can end them.
fn is_out_of_reach(file: &File) -> bool {
    let (Ok(Some((header, _))), Ok(here)) = (table::read(file), scan::here()) else { return false };
    header.machine.boot == here.boot && header.machine.pid_namespace != here.pid_namespace
}

/// Makes a table of this process, and locks it.
pub(crate) fn new_table(folder: &Path) -> io::Result<(File, PathBuf)> {
    loop {
        let made =
            tempfile::Builder::new().prefix(TABLE_NAME).rand_bytes(16).tempfile_in(folder)?;
        let (file, path) = made.keep().map_err(|error| error.error)?;
        file.lock()?;
        // A start that saw it before it was locked has removed it as empty.
        if file.metadata()?.nlink() > 0 {
            return Ok((file, path));
        }
    }
}

fn ignore_missing(error: io::Error) -> io::Result<()> {
    if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) }
}
