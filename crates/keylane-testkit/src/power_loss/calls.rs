//! The C library's functions for files: each executes the call and records it.
//!
//! The functions make the system calls directly, because the C library's functions are replaced by
//! them. The recordings are locked during a call on a recorded file, so that the recorded order is
//! the order of the calls.

use std::ffi::{CStr, OsStr};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use libc::{
    AT_FDCWD, SYS_fsync, SYS_ftruncate, SYS_linkat, SYS_openat, SYS_pwrite64, SYS_renameat,
    SYS_unlinkat, SYS_write, c_char, c_int, c_uint, c_void, off64_t, size_t, ssize_t,
};

use super::disk::Change;
use super::recording::{Identity, Log, Target, find, find_name, is_running, logs};

/// Defines the C library's functions for files in this test program. To be called once, at the top
/// of the program.
#[macro_export]
macro_rules! intercept_file_calls {
    () => {
        mod intercepted_file_calls {
            use $crate::power_loss::calls;
            use $crate::power_loss::calls::types::*;

            $crate::intercept_file_calls! { @define
                open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int = open;
                open64(path: *const c_char, flags: c_int, mode: c_uint) -> c_int = open;
                write(file: c_int, bytes: *const c_void, length: size_t) -> ssize_t = write;
                pwrite(file: c_int, bytes: *const c_void, length: size_t, at: off64_t) -> ssize_t
                    = pwrite;
                pwrite64(file: c_int, bytes: *const c_void, length: size_t, at: off64_t) -> ssize_t
                    = pwrite;
                ftruncate(file: c_int, length: off64_t) -> c_int = ftruncate;
                ftruncate64(file: c_int, length: off64_t) -> c_int = ftruncate;
                fsync(file: c_int) -> c_int = fsync;
                fdatasync(file: c_int) -> c_int = fsync;
                rename(from: *const c_char, to: *const c_char) -> c_int = rename;
                link(from: *const c_char, to: *const c_char) -> c_int = link;
                linkat(a: c_int, from: *const c_char, b: c_int, to: *const c_char, flags: c_int)
                    -> c_int = linkat;
                unlink(path: *const c_char) -> c_int = unlink;
            }
        }
    };
    (@define $($name:ident($($argument:ident: $type:ty),*) -> $result:ty = $call:ident;)*) => {
        $(
            // SAFETY: the function has the name, the arguments, the result and the behaviour of
            // the C library's function, which nothing else in this program defines.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name($($argument: $type),*) -> $result {
                // SAFETY: the caller upholds the conditions of the C library's function.
                unsafe { calls::$call($($argument),*) }
            }
        )*
    };
}

/// C types in the signatures.
pub mod types {
    pub use libc::{c_char, c_int, c_uint, c_void, off64_t, size_t, ssize_t};
}

/// Runs `call`. If the file is recorded, `record` gets its recording and the result, both under the
/// lock.
fn on_file<T>(
    file: c_int,
    call: impl FnOnce() -> T,
    record: impl FnOnce(&mut Log, Target, &mut T),
) -> T {
    // The lock is not held during calls on other files, which can wait for other threads.
    if is_running()
        && let Some(identity) = identity(file)
    {
        let mut logs = logs();
        if let Some((log, target)) = find(&mut logs, identity) {
            let mut result = call();
            record(log, target, &mut result);
            return result;
        }
    }
    call()
}

/// Runs `call`, and `record` if it succeeds and the path is in a recorded folder.
///
/// # Safety
/// `path` must be a string of C.
unsafe fn on_name(
    path: *const c_char,
    call: impl FnOnce() -> c_int,
    record: impl FnOnce(&mut Log, &str),
) -> c_int {
    if is_running() {
        // SAFETY: the caller passes a string of C.
        let path = unsafe { as_path(&path) };
        let mut logs = logs();
        if let Some((log, name)) = find_name(&mut logs, path) {
            let result = call();
            if result == 0 {
                record(log, name);
            }
            return result;
        }
    }
    call()
}

/// # Safety
/// `path` must be a string of C, which lives as long as the reference to it.
unsafe fn as_path(path: &*const c_char) -> &Path {
    // SAFETY: the caller passes a string of C.
    let bytes = unsafe { CStr::from_ptr(*path) }.to_bytes();
    Path::new(OsStr::from_bytes(bytes))
}

/// Returns device and inode of an open file.
fn identity(file: c_int) -> Option<Identity> {
    let mut found = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: `fstat` writes into the structure, and fails for a file that is not open.
    let result = unsafe { libc::fstat(file, found.as_mut_ptr()) };
    // SAFETY: `fstat` has filled the structure, because it succeeded.
    (result == 0).then(|| unsafe { found.assume_init() }).map(|found| (found.st_dev, found.st_ino))
}

/// Opens a file.
///
/// # Safety
/// As for the C library's `open64`.
pub unsafe fn open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    let flags = flags | libc::O_LARGEFILE;
    // SAFETY: the caller upholds the conditions of `open64`, which makes this system call.
    let call = || unsafe { libc::syscall(SYS_openat, AT_FDCWD, path, flags, mode) } as c_int;
    if !is_running() || flags & (libc::O_CREAT | libc::O_TRUNC) == 0 {
        return call();
    }
    // SAFETY: the caller passes a string of C.
    let path = unsafe { as_path(&path) };
    let mut logs = logs();
    let Some((log, name)) = find_name(&mut logs, path) else {
        drop(logs);
        return call();
    };
    let opened = call();
    if opened >= 0 {
        match log.file(name) {
            None => log.created(name, identity(opened).expect("an open file")),
            Some(file) if flags & libc::O_TRUNC != 0 => {
                log.changed(file, Change::Truncate { length: 0 });
            }
            Some(_) => {}
        }
    }
    opened
}

/// Writes at the position of a file.
///
/// # Safety
/// As for the C library's `write`.
pub unsafe fn write(file: c_int, bytes: *const c_void, length: size_t) -> ssize_t {
    // SAFETY: the caller upholds the conditions of `write`, which makes this system call.
    let call = || unsafe { libc::syscall(SYS_write, file, bytes, length) } as ssize_t;
    on_file(file, call, |log, target, written| {
        // SAFETY: the function only reads the position of an open file.
        let end = unsafe { libc::lseek64(file, 0, libc::SEEK_CUR) };
        // SAFETY: the caller passes `length` bytes, and the system has written some of them.
        unsafe { wrote(log, target, bytes, *written, end - *written as off64_t) };
    })
}

/// Writes at a position.
///
/// # Safety
/// As for the C library's `pwrite64`.
pub unsafe fn pwrite(file: c_int, bytes: *const c_void, length: size_t, at: off64_t) -> ssize_t {
    // SAFETY: the caller upholds the conditions of `pwrite64`, which makes this system call.
    let call = || unsafe { libc::syscall(SYS_pwrite64, file, bytes, length, at) } as ssize_t;
    on_file(file, call, |log, target, written| {
        // SAFETY: the caller passes `length` bytes, and the system has written some of them.
        unsafe { wrote(log, target, bytes, *written, at) };
    })
}

/// # Safety
/// `bytes` must have as many bytes as were written.
unsafe fn wrote(
    log: &mut Log,
    target: Target,
    bytes: *const c_void,
    written: ssize_t,
    at: off64_t,
) {
    if let (Target::File(file), Ok(length @ 1..)) = (target, usize::try_from(written)) {
        // SAFETY: the caller passes that many bytes.
        let bytes = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), length) }.to_vec();
        log.changed(file, Change::Write { at: at as usize, bytes });
    }
}

/// Changes the length of a file.
///
/// # Safety
/// As for the C library's `ftruncate64`.
pub unsafe fn ftruncate(file: c_int, length: off64_t) -> c_int {
    // SAFETY: the caller upholds the conditions of `ftruncate64`, which makes this system call.
    let call = || unsafe { libc::syscall(SYS_ftruncate, file, length) } as c_int;
    on_file(file, call, |log, target, result| {
        if let (Target::File(file), 0) = (target, *result) {
            log.changed(file, Change::Truncate { length: length as usize });
        }
    })
}

/// Syncs a file or a folder. Also stands for `fdatasync`, which syncs what the recordings have.
///
/// # Safety
/// As for the C library's `fsync`.
pub unsafe fn fsync(file: c_int) -> c_int {
    // SAFETY: the caller upholds the conditions of `fsync`, which makes this system call.
    let call = || unsafe { libc::syscall(SYS_fsync, file) } as c_int;
    on_file(file, call, |log, target, result| {
        if *result == 0 && log.synced(target) {
            // SAFETY: the C library has one `errno` for each thread.
            unsafe { *libc::__errno_location() = libc::EIO };
            *result = -1;
        }
    })
}

/// Renames a file within a folder.
///
/// # Safety
/// As for the C library's `rename`.
pub unsafe fn rename(from: *const c_char, to: *const c_char) -> c_int {
    // SAFETY: the caller passes a string of C.
    let target = unsafe { as_path(&to) };
    // SAFETY: the caller upholds the conditions of `rename`, which makes this system call.
    let call = || unsafe { libc::syscall(SYS_renameat, AT_FDCWD, from, AT_FDCWD, to) } as c_int;
    let record = |log: &mut Log, from: &str| log.renamed(from, name_of(target));
    // SAFETY: the caller passes a string of C.
    unsafe { on_name(from, call, record) }
}

/// Gives a file a further name in its folder.
///
/// # Safety
/// As for the C library's `link`.
pub unsafe fn link(from: *const c_char, to: *const c_char) -> c_int {
    // SAFETY: the caller upholds the conditions of `link`.
    unsafe { linkat(AT_FDCWD, from, AT_FDCWD, to, 0) }
}

/// Gives a file a further name in its folder.
///
/// # Safety
/// As for the C library's `linkat`.
pub unsafe fn linkat(
    from_folder: c_int,
    from: *const c_char,
    to_folder: c_int,
    to: *const c_char,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller passes a string of C.
    let target = unsafe { as_path(&to) };
    let (a, b) = (from_folder, to_folder);
    // SAFETY: the caller upholds the conditions of `linkat`, which makes this system call.
    let call = || unsafe { libc::syscall(SYS_linkat, a, from, b, to, flags) } as c_int;
    let record = |log: &mut Log, from: &str| log.linked(from, name_of(target));
    // SAFETY: the caller passes a string of C.
    unsafe { on_name(from, call, record) }
}

/// Removes a name.
///
/// # Safety
/// As for the C library's `unlink`.
pub unsafe fn unlink(path: *const c_char) -> c_int {
    // SAFETY: the caller upholds the conditions of `unlink`, which makes this system call.
    let call = || unsafe { libc::syscall(SYS_unlinkat, AT_FDCWD, path, 0) } as c_int;
    // SAFETY: the caller passes a string of C.
    unsafe { on_name(path, call, Log::removed) }
}

fn name_of(path: &Path) -> &str {
    path.file_name().and_then(OsStr::to_str).expect("a name in UTF-8")
}
