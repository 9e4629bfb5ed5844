//! Files that survive a power failure: each is created or replaced as a whole, and is on the disk,
//! with its name, before the function returns.
//!
//! A new name survives a power failure only after a sync of its folder, and a file's content only
//! after a sync of the file. All files are readable by their owner only, because payloads are
//! confidential.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Mode of all files created here.
const OWNER_ONLY_MODE: u32 = 0o600;

/// Suffix of a file that is not complete.
const PART: &str = "-part";

/// Returns the path of a file beside another.
#[must_use]
pub fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// Opens a file to read and write it; creates it if it does not exist. A new name survives a power
/// failure only after [`sync_folder`].
///
/// # Errors
/// If the file cannot be opened or created.
pub fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(OWNER_ONLY_MODE).open(path)
}

/// Returns the canonical path of a file that may not exist yet, so that each file has one lock
/// under all of its names.
///
/// # Errors
/// If the folder does not exist.
pub fn resolved(path: &Path) -> io::Result<PathBuf> {
    match path.canonicalize() {
        Ok(path) => Ok(path),
        // The file does not exist yet.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let path = std::path::absolute(path)?;
            let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
                return Err(error);
            };
            Ok(folder.canonicalize()?.join(name))
        }
        Err(error) => Err(error),
    }
}

/// Syncs the folder of a file, so that a new file survives a power failure.
///
/// # Errors
/// If the folder cannot be opened or synced.
pub fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// Makes the content of a file durable as the kernel shows it; does nothing for a missing file.
///
/// An earlier process can have been killed between a write and its sync, or its sync can have
/// failed. After a failed sync the kernel considers the pages clean, and another sync would write
/// nothing. So the content is written again.
///
/// # Errors
/// If an operation fails.
pub fn settle(path: &Path) -> io::Result<()> {
    const STEP: usize = 1024 * 1024;
    let file = match OpenOptions::new().read(true).write(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        file => file?,
    };
    let mut buffer = vec![0; STEP];
    let mut at = 0;
    loop {
        let length = file.read_at(&mut buffer, at)?;
        if length == 0 {
            break;
        }
        file.write_all_at(&buffer[..length], at)?;
        at += length as u64;
    }
    if at > 0 { file.sync_all() } else { Ok(()) }
}

/// Replaces the content of a file, or creates it. Readers find the old content or the new one, also
/// after a power failure; the new one if this function returned.
///
/// # Errors
/// If an operation fails. The file has the old content or the new one then.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let new = beside(path, "-new");
    let mut options = OpenOptions::new();
    let mut file =
        options.write(true).create(true).truncate(true).mode(OWNER_ONLY_MODE).open(&new)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    sync_folder(path)
}

/// New file that gets its name when its content is complete and on the disk. Until then its content
/// is in a file with the suffix `-part`, which a drop removes.
#[derive(Debug)]
pub struct NewFile {
    path: PathBuf,
    part: PathBuf,
    file: File,
}

/// Error of a new file.
#[derive(Debug)]
pub enum NewFileError {
    /// A file with this path exists already.
    Exists(PathBuf),
    /// An operation failed.
    Io {
        /// Failed action.
        doing: &'static str,
        /// Cause.
        source: io::Error,
    },
}

fn failed(doing: &'static str) -> impl Fn(io::Error) -> NewFileError {
    move |source| NewFileError::Io { doing, source }
}

impl NewFile {
    /// Creates the `-part` of a file that does not exist. The `-part` of an earlier process is
    /// replaced.
    ///
    /// # Errors
    /// If a file has the name already, or the part cannot be created.
    pub fn create(path: &Path) -> Result<NewFile, NewFileError> {
        let path = resolved(path).map_err(failed("find the folder of the new file"))?;
        if fs::symlink_metadata(&path).is_ok() {
            return Err(NewFileError::Exists(path));
        }
        let part = NewFile::part_of(&path);
        let _ = fs::remove_file(&part);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(OWNER_ONLY_MODE);
        let file = options.open(&part).map_err(failed("create the new file"))?;
        Ok(NewFile { path, part, file })
    }

    /// Returns the path of the part of a new file with this path.
    #[must_use]
    pub fn part_of(path: &Path) -> PathBuf {
        beside(path, PART)
    }

    /// Returns the path of the part, where other code may write the content.
    #[must_use]
    pub fn part(&self) -> &Path {
        &self.part
    }

    /// Returns the part, opened to write.
    pub fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Leaves the content without a name: it is in the returned file, and vanishes when that is closed.
    ///
    /// # Errors
    /// If the part cannot be removed.
    pub fn into_unnamed(self) -> Result<File, NewFileError> {
        fs::remove_file(&self.part).map_err(failed("remove the name of the new file"))?;
        self.file.try_clone().map_err(failed("keep the new file open"))
    }

    /// Syncs the content and gives the file its name. On return both are on the disk.
    ///
    /// # Errors
    /// If an operation fails, or a file with the name was created meanwhile.
    pub fn publish(self) -> Result<(), NewFileError> {
        self.file.sync_all().map_err(failed("sync the new file"))?;
        // Unlike a rename, a link never replaces a file created meanwhile.
        match fs::hard_link(&self.part, &self.path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(NewFileError::Exists(self.path.clone()));
            }
            // Fallback for file systems without hard links.
            Err(_) => {
                fs::rename(&self.part, &self.path).map_err(failed("name the new file"))?;
            }
        }
        sync_folder(&self.path).map_err(failed("sync the folder of the new file"))
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.part);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole_and_for_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        replace(&path, b"a long first content").unwrap();
        replace(&path, b"second").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"second");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, OWNER_ONLY_MODE);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_settled_file_keeps_its_content_and_a_missing_one_stays_missing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        settle(&path).unwrap();
        assert!(!path.exists());
        let content: Vec<u8> = (0..2_500_000_u32).map(|number| number as u8).collect();
        fs::write(&path, &content).unwrap();
        settle(&path).unwrap();
        assert!(fs::read(&path).unwrap() == content);
    }

    #[test]
    fn a_new_file_has_no_name_before_it_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        drop(NewFile::create(&path).unwrap());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        let mut new = NewFile::create(&path).unwrap();
        new.file().write_all(b"content").unwrap();
        assert!(!path.exists());
        new.publish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"content");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, OWNER_ONLY_MODE);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_without_a_name_keeps_its_content_while_it_is_open() {
        let folder = tempfile::tempdir().unwrap();
        let mut new = NewFile::create(&folder.path().join("file")).unwrap();
        new.file().write_all(b"content").unwrap();
        let file = new.into_unnamed().unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        let mut content = [0; 7];
        file.read_exact_at(&mut content, 0).unwrap();
        assert_eq!(&content, b"content");
    }

    #[test]
    fn a_new_file_replaces_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let new = NewFile::create(&path).unwrap();
        fs::write(&path, b"other").unwrap();
        assert!(matches!(NewFile::create(&path), Err(NewFileError::Exists(_))));
        assert!(matches!(new.publish(), Err(NewFileError::Exists(_))));
        assert_eq!(fs::read(&path).unwrap(), b"other");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
