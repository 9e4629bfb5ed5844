//! `--results`: a folder for each record, with the output of its last attempt. Names are numbers, so
//! that they are safe whatever the record and its key contain.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::process::CapturedOutput;

/// Folder with the results of a run.
#[derive(Debug)]
pub(crate) struct ResultsFolder(PathBuf);

/// Name of the file that is written last.
const REPORT: &str = "result.json";

impl ResultsFolder {
    /// Creates the folder, so that an error is reported before any command starts.
    pub(crate) fn create(path: &Path) -> anyhow::Result<Self> {
        fs::create_dir_all(path).with_context(|| {
            format!("--results: cannot create the folder {}; name another", path.display())
        })?;
        Ok(ResultsFolder(path.to_owned()))
    }

    /// Writes the files of a record. The report comes last: where it is, the others are whole.
    ///
    /// # Errors
    /// If a file cannot be written, with the remedy.
    pub(super) fn save(
        &self,
        number: u64,
        printed: &mut CapturedOutput,
        report: &[u8],
    ) -> anyhow::Result<()> {
        let folder = self.0.join(number.to_string());
        write(&folder, number, printed, report).with_context(|| {
            format!(
                "cannot write results to {}; make room on its disk, or leave out --results",
                folder.display()
            )
        })
    }
}

fn write(
    folder: &Path,
    number: u64,
    printed: &mut CapturedOutput,
    report: &[u8],
) -> io::Result<()> {
    if let Err(error) = fs::create_dir(folder) {
        if error.kind() != io::ErrorKind::AlreadyExists {
            return Err(error);
        }
        // Of an earlier attempt or run.
        match fs::remove_file(folder.join(REPORT)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    printed.stdout.write_to(&mut File::create(folder.join("stdout"))?)?;
    printed.stderr.write_to(&mut File::create(folder.join("stderr"))?)?;
    fs::write(folder.join("seq"), number.to_string())?;
    fs::write(folder.join(REPORT), report)
}
