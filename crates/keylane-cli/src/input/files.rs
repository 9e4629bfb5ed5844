//! Several inputs, read one after the other: numbers of records count over all of them, lines in each.
//! All have the same fields, which is checked when a file begins.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use anyhow::ensure;

use super::error::{InputError, RecordFlaw};
use super::record::InputRecord;
use super::source::{FieldLayout, InputFile, InputFormat, InputSource};

/// Records of all inputs of a run.
#[derive(Debug)]
pub(crate) struct InputFiles {
    current: InputSource,
    /// The files behind the current one, the last one first.
    rest: Vec<PathBuf>,
    format: InputFormat,
    header: bool,
    /// Fields of the records, by the first file with a row.
    layout: FieldLayout,
    /// The first file with a row.
    first: String,
    /// Name of the current file, if there are several.
    file: Option<Arc<str>>,
    /// Length of all files, if it is known.
    length: Option<u64>,
    read: Arc<AtomicU64>,
}

impl InputFiles {
    /// Opens the first file, or standard input if there is none, and looks whether all others can be
    /// opened. They are opened in their turn, because there may be more than this process may have open.
    pub(crate) fn open(
        paths: &[PathBuf],
        format: InputFormat,
        header: bool,
    ) -> anyhow::Result<Self> {
        let streams = paths.iter().filter(|path| is_stdin(path)).count();
        ensure!(streams < 2, "- is given twice; standard input can be read once");
        for path in paths.iter().skip(1) {
            check(path)?;
        }
        let read = Arc::default();
        let origin =
            InputFile::open_metered(paths.first().map(PathBuf::as_path), Arc::clone(&read))?;
        let lengths = paths.iter().skip(1).map(|path| length(path));
        let length = lengths.fold(origin.length(), |sum, length| Some(sum? + length?));
        let current = InputSource::new(origin, format, header)?;
        let layout = current.layout().clone();
        let first = current.name().to_owned();
        let file = (paths.len() > 1).then(|| Arc::from(current.name()));
        let rest = paths.iter().skip(1).rev().cloned().collect();
        Ok(InputFiles { current, rest, format, header, layout, first, file, length, read })
    }

    pub(crate) fn layout(&self) -> &FieldLayout {
        &self.layout
    }

    /// Name of the current file in errors.
    pub(crate) fn name(&self) -> &str {
        self.current.name()
    }

    /// Name of the current file, if there are several.
    pub(crate) fn file(&self) -> Option<&Arc<str>> {
        self.file.as_ref()
    }

    /// Length of all files in bytes, where it is known beforehand.
    pub(crate) fn length(&self) -> Option<u64> {
        self.length
    }

    /// Counter of the bytes read so far.
    pub(crate) fn meter(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.read)
    }

    /// Reads the next record; false at the end of the last file.
    pub(crate) fn next(&mut self, record: &mut InputRecord) -> anyhow::Result<bool> {
        while !self.current.next(record)? {
            let Some(path) = self.rest.pop() else { return Ok(false) };
            let origin = InputFile::open_metered(Some(&path), Arc::clone(&self.read))?;
            self.current = InputSource::new(origin, self.format, self.header)?;
            self.file = Some(Arc::from(self.current.name()));
            self.check_fields()?;
        }
        Ok(true)
    }

    /// Refuses a file with other columns than the first, by which all names of fields were resolved.
    fn check_fields(&mut self) -> Result<(), InputError> {
        let first = self.first.clone();
        let what = match (&self.layout, self.current.layout()) {
            (FieldLayout::Named(expected), FieldLayout::Named(found)) if expected != found => {
                let text = |header: &csv::ByteRecord| {
                    let names: Vec<_> = header.iter().map(String::from_utf8_lossy).collect();
                    names.join(", ")
                };
                RecordFlaw::OtherHeader { first, expected: text(expected), found: text(found) }
            }
            (FieldLayout::Numbered(None), FieldLayout::Numbered(Some(_))) => {
                self.layout = self.current.layout().clone();
                self.first = self.current.name().to_owned();
                return Ok(());
            }
            (FieldLayout::Numbered(Some(expected)), FieldLayout::Numbered(Some(found)))
                if expected != found =>
            {
                RecordFlaw::OtherWidth { first, expected: *expected, found: *found }
            }
            _ => return Ok(()),
        };
        Err(InputError { file: self.current.name().to_owned(), line: 1, what })
    }
}

fn is_stdin(path: &Path) -> bool {
    path == Path::new("-")
}

/// Refuses a file that cannot be opened. A pipe is not opened, because its writer would see the end of
/// its reader.
fn check(path: &Path) -> anyhow::Result<()> {
    if is_stdin(path) {
        return Ok(());
    }
    match fs::metadata(path) {
        Ok(kind) if !kind.is_file() && !kind.is_dir() => Ok(()),
        _ => InputFile::open(Some(path)).map(drop),
    }
}

fn length(path: &Path) -> Option<u64> {
    let kind = fs::metadata(path).ok().filter(|kind| !is_stdin(path) && kind.is_file());
    kind.map(|kind| kind.len())
}
