//! Search for the program, once and before the first record, so that a mistyped name is one error
//! and not one per record.

use std::env;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The path of `program`, found as a shell finds it.
pub(crate) fn resolve(program: &OsStr) -> anyhow::Result<PathBuf> {
    let name = Path::new(program);
    if program.as_bytes().contains(&b'/') {
        anyhow::ensure!(name.is_file(), "there is no program {}; check its path", name.display());
        anyhow::ensure!(
            is_executable(name),
            "{} is not executable; use chmod +x, or run it with its interpreter",
            name.display()
        );
        return Ok(name.to_owned());
    }
    let folders = env::var_os("PATH").unwrap_or_default();
    let found =
        env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| is_executable(path));
    found.ok_or_else(|| {
        anyhow::anyhow!(
            "there is no program `{}` in PATH; check the name (shell words need sh -c)",
            name.display()
        )
    })
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_as_a_shell_finds_them() {
        assert!(resolve(OsStr::new("sh")).unwrap().is_absolute());
        assert_eq!(resolve(OsStr::new("/bin/sh")).unwrap(), Path::new("/bin/sh"));
        for wrong in ["no-such-program-here", "./no-such-program", "/etc/passwd", ""] {
            assert!(resolve(OsStr::new(wrong)).is_err(), "{wrong}");
        }
    }
}
