//! Input of a child, complete before its start.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::AsFd;

/// Returns an unnamed file with these bytes, for use as a child's standard input.
///
/// A pipe ends when the writer dies, and its reader cannot tell that end from the end of the input.
/// The file is complete before the start: the child gets the whole input, or is not started. On
/// Linux it is in memory and sealed, so that the child cannot change it.
///
/// # Errors
///
/// Returns an error if there is no space for it, or no descriptor.
pub fn whole_input(bytes: &[u8]) -> io::Result<File> {
    let mut file = unnamed()?;
    file.write_all(bytes)?;
    file.rewind()?;
    seal(&file)?;
    Ok(file)
}

/// Enlarges a pipe to this number of bytes, if the system allows it, and returns whether it has that
/// size: one write of them into the empty pipe then does not block, and a writer that is killed has
/// written all of it or none. On Linux the maximum is mostly 1 MiB; elsewhere the pipe is unchanged.
/// [`feed`](crate::feed) writes what does not fit.
pub fn widen_pipe(pipe: impl AsFd, bytes: usize) -> bool {
    #[cfg(target_os = "linux")]
    {
        // The last page of earlier data may be in use.
        let wanted = bytes + rustix::param::page_size();
        // Most lines are short, and cost no call.
        wanted <= DEFAULT_PIPE
            || rustix::pipe::fcntl_getpipe_size(&pipe).is_ok_and(|size| size >= wanted)
            || rustix::pipe::fcntl_setpipe_size(&pipe, wanted).is_ok()
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = pipe;
        bytes <= DEFAULT_PIPE
    }
}

/// Bytes of a pipe as it is made. One is smaller only where a user has too many, which can enlarge none either.
#[cfg(target_os = "linux")]
const DEFAULT_PIPE: usize = 64 << 10;

/// Bytes of a pipe as macOS and FreeBSD make it.
#[cfg(not(target_os = "linux"))]
const DEFAULT_PIPE: usize = 16 << 10;

#[cfg(target_os = "linux")]
fn unnamed() -> io::Result<File> {
    use rustix::fs::{MemfdFlags, memfd_create};
    use rustix::io::Errno;

    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match memfd_create("keylane-input", flags | MemfdFlags::NOEXEC_SEAL) {
        // Before Linux 6.3.
        Err(Errno::INVAL) => match memfd_create("keylane-input", flags) {
            Err(Errno::NOSYS) => tempfile::tempfile(),
            made => Ok(made?.into()),
        },
        Err(Errno::NOSYS | Errno::PERM | Errno::ACCESS) => tempfile::tempfile(),
        made => Ok(made?.into()),
    }
}

#[cfg(target_os = "linux")]
fn seal(file: &File) -> io::Result<()> {
    use rustix::fs::{SealFlags, fcntl_add_seals};
    use rustix::io::Errno;

    let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
    match fcntl_add_seals(file, seals) {
        // A temporary file has no seals.
        Err(Errno::INVAL | Errno::PERM) => Ok(()),
        sealed => Ok(sealed?),
    }
}

#[cfg(not(target_os = "linux"))]
fn unnamed() -> io::Result<File> {
    tempfile::tempfile()
}

#[cfg(not(target_os = "linux"))]
fn seal(_file: &File) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn a_line_is_written_into_a_widened_pipe_at_once() {
        use rustix::fs::{OFlags, fcntl_setfl};
        let (_reader, mut writer) = io::pipe().unwrap();
        fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
        assert!(widen_pipe(&writer, 900_000));
        assert_eq!(writer.write(&vec![b'x'; 900_000]).unwrap(), 900_000);
    }

    #[test]
    fn a_child_reads_all_of_it_and_cannot_change_it() {
        let bytes = "0123456789".repeat(100_000);
        let read = |words: &[&str]| {
            let mut command = Command::new(words[0]);
            command.args(&words[1..]).stdin(whole_input(bytes.as_bytes()).unwrap());
            command.stderr(Stdio::null()).output().unwrap()
        };
        assert_eq!(read(&["cat"]).stdout, bytes.as_bytes());
        // Opened again, too, as `cat /dev/stdin` does.
        assert_eq!(read(&["cat", "/dev/stdin"]).stdout, bytes.as_bytes());
        if cfg!(target_os = "linux") {
            assert!(!read(&["sh", "-c", "echo more >&0"]).status.success());
        }
        assert_eq!(whole_input(b"").unwrap().metadata().unwrap().len(), 0);
    }
}
