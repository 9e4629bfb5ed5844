//! Name of a node, which stays the same as long as its folder does.
//!
//! The file is locked while the node runs. So a node that is started again after it was killed knows that the owner of its own name is gone, and
//! need not wait for the end of that one's heartbeats.

use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use keylane_storage::{checksum, files};

use super::nodes::Nonce;

/// Length of the file: the name, and a checksum.
const FILE_BYTES: u64 = 20;

/// File of a node that runs.
#[derive(Debug)]
pub(super) struct NodeFile {
    /// Locked as long as this lives.
    file: File,
    pub(super) name: Nonce,
}

impl NodeFile {
    /// Opens the file of the node whose files begin with `path`, or creates it with the name `new`.
    ///
    /// # Errors
    /// If another process has it, with [`io::ErrorKind::WouldBlock`], or it cannot be opened or written.
    pub(super) fn open(path: &Path, new: Nonce) -> io::Result<Self> {
        let path = files::beside(path, "-id");
        let mut file = files::open(&path)?;
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => io::ErrorKind::WouldBlock.into(),
            TryLockError::Error(error) => error,
        })?;
        let mut bytes = Vec::new();
        (&mut file).take(FILE_BYTES + 1).read_to_end(&mut bytes)?;
        let known = checksum::unseal(&bytes, &[]).and_then(|name| name.try_into().ok());
        let name = match known {
            Some(name) => name,
            None => {
                write(&mut file, new)?;
                files::sync_folder(&path)?;
                new
            }
        };
        Ok(NodeFile { file, name })
    }
}

impl Drop for NodeFile {
    fn drop(&mut self) {
        // A child process that is being started may have the file for a moment longer.
        let _ = self.file.unlock();
    }
}

fn write(file: &mut File, name: Nonce) -> io::Result<()> {
    let mut bytes = name.to_vec();
    checksum::seal(&mut bytes, &[]);
    file.seek(SeekFrom::Start(0))?;
    file.set_len(0)?;
    file.write_all(&bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_keeps_its_name_and_one_process_at_a_time_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("node");
        let first = NodeFile::open(&path, [1; 16]).unwrap();
        assert_eq!(first.name, [1; 16]);
        let second = NodeFile::open(&path, [2; 16]).unwrap_err();
        assert_eq!(second.kind(), io::ErrorKind::WouldBlock);
        drop(first);
        assert_eq!(NodeFile::open(&path, [3; 16]).unwrap().name, [1; 16]);
        std::fs::write(files::beside(&path, "-id"), "no name").unwrap();
        assert_eq!(NodeFile::open(&path, [4; 16]).unwrap().name, [4; 16]);
        assert_eq!(NodeFile::open(&path, [5; 16]).unwrap().name, [4; 16]);
    }
}
