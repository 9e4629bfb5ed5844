//! Source of records: opens a file, reads it by its format, and resolves the names of fields.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context;
use csv::ByteRecord;

use super::decompressed::DecompressedReader;
use super::error::{InputError, RecordFlaw};
use super::field::FieldSelector;
use super::json_values;
use super::lines::LineRecords;
use super::ndjson::NdjsonRecords;
use super::record::InputRecord;
use super::table::TableRecords;
use super::table_dialect::TableDialect;
use crate::standard_streams::stdin;

/// How the bytes are cut into records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InputFormat {
    Lines,
    /// Records of any bytes that end with NUL.
    NulSeparated,
    Csv,
    Tsv,
    Ndjson,
}

impl InputFormat {
    /// Returns how fields are separated, if records are rows of a table.
    pub(crate) fn dialect(self) -> Option<TableDialect> {
        match self {
            InputFormat::Csv => Some(TableDialect::Csv),
            InputFormat::Tsv => Some(TableDialect::Tsv),
            InputFormat::Lines | InputFormat::NulSeparated | InputFormat::Ndjson => None,
        }
    }
}

/// Format of a table whose first row is read for the layout of all rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TableHead {
    pub(crate) dialect: TableDialect,
    pub(crate) has_header: bool,
}

impl TableHead {
    /// Returns the layout of the rows of `input`. An error has the line.
    pub(crate) fn layout(self, input: impl Read) -> Result<FieldLayout, (u64, RecordFlaw)> {
        self.layout_of(&mut TableRecords::new(input, self.dialect))
    }

    fn layout_of<R: Read>(
        self,
        table: &mut TableRecords<R>,
    ) -> Result<FieldLayout, (u64, RecordFlaw)> {
        match self.has_header {
            true => table.header().map(FieldLayout::Named),
            false => table.width().map(FieldLayout::Numbered),
        }
    }
}

/// An opened file or pipe.
#[derive(Debug)]
pub(crate) struct InputFile {
    name: String,
    file: File,
    read: Arc<AtomicU64>,
}

impl InputFile {
    /// Opens `path`, or standard input for none and for `-`.
    pub(crate) fn open(path: Option<&Path>) -> anyhow::Result<Self> {
        Self::open_metered(path, Arc::default())
    }

    /// Opens a file whose bytes add to `read`.
    pub(super) fn open_metered(path: Option<&Path>, read: Arc<AtomicU64>) -> anyhow::Result<Self> {
        let (name, file) = match path {
            Some(path) if path != Path::new("-") => {
                let file = File::open(path).with_context(|| {
                    format!(
                        "cannot open {}; check the name, or give - for standard input",
                        path.display()
                    )
                })?;
                (path.display().to_string(), file)
            }
            _ => ("standard input".to_owned(), File::from(stdin()?.as_fd().try_clone_to_owned()?)),
        };
        let kind = file.metadata()?;
        anyhow::ensure!(!kind.is_dir(), "cannot read {name}: it is a folder; name a file in it");
        Ok(Self { name, file, read })
    }

    /// The length in bytes, where it is known beforehand.
    pub(super) fn length(&self) -> Option<u64> {
        self.file.metadata().ok().filter(|kind| kind.is_file()).map(|kind| kind.len())
    }
}

impl Read for InputFile {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(into)?;
        self.read.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

/// Records in the order of the input.
#[derive(Debug)]
pub(crate) struct InputSource {
    name: String,
    records: RecordReader,
    layout: FieldLayout,
}

#[derive(Debug)]
enum RecordReader {
    Lines(LineRecords<DecompressedReader<InputFile>>),
    Table(Box<TableRecords<DecompressedReader<InputFile>>>),
    Ndjson(NdjsonRecords<DecompressedReader<InputFile>>),
}

impl InputSource {
    /// Begins to read; a table's first row is read here, so that wrong column
    /// names are found before any command starts.
    pub(crate) fn new(
        origin: InputFile,
        format: InputFormat,
        header: bool,
    ) -> Result<Self, InputError> {
        let name = origin.name.clone();
        let origin = DecompressedReader::new(origin);
        let (records, layout) = match format {
            InputFormat::Lines => {
                (RecordReader::Lines(LineRecords::new(origin, b'\n')), FieldLayout::Lines)
            }
            InputFormat::NulSeparated => {
                (RecordReader::Lines(LineRecords::new(origin, b'\0')), FieldLayout::Lines)
            }
            InputFormat::Ndjson => {
                (RecordReader::Ndjson(NdjsonRecords::new(origin)), FieldLayout::Ndjson)
            }
            InputFormat::Csv | InputFormat::Tsv => {
                let dialect = format.dialect().expect("a table has a dialect");
                let mut table = Box::new(TableRecords::new(origin, dialect));
                let layout = TableHead { dialect, has_header: header }.layout_of(&mut table);
                let located = |(line, what)| InputError { file: name.clone(), line, what };
                (RecordReader::Table(table), layout.map_err(located)?)
            }
        };
        Ok(Self { name, records, layout })
    }

    pub(crate) fn layout(&self) -> &FieldLayout {
        &self.layout
    }

    /// Name of the input in errors.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Reads the next record; false at the end.
    pub(crate) fn next(&mut self, record: &mut InputRecord) -> Result<bool, InputError> {
        let more = match &mut self.records {
            RecordReader::Lines(lines) => lines.next(record),
            RecordReader::Table(table) => table.next(record),
            RecordReader::Ndjson(values) => values.next(record),
        };
        let more = more.map_err(|what| self.located(record.line, what))?;
        record.number += u64::from(more);
        Ok(more)
    }

    fn located(&self, line: u64, what: RecordFlaw) -> InputError {
        InputError { file: self.name.clone(), line, what }
    }
}

/// Which fields the records have, as far as it is known before reading them.
#[derive(Debug, Clone)]
pub(crate) enum FieldLayout {
    Lines,
    /// A table with a header.
    Named(ByteRecord),
    /// A table without; its width, if it has a row.
    Numbered(Option<usize>),
    Ndjson,
}

impl FieldLayout {
    /// Resolves a field's name given by a user: a column's name before its number, a member of the
    /// JSON object, or a word's number.
    pub(crate) fn field(&self, name: &str) -> anyhow::Result<FieldSelector> {
        match self {
            Self::Lines => number(name).map(FieldSelector::Word).with_context(|| {
                several(name).or_else(|| zero(name)).unwrap_or_else(|| {
                    format!(
                        "lines have numbered fields, counted from 1, and \
                         `{name}` is no number; give a number, or --csv --header or --ndjson if the \
                         input has names"
                    )
                })
            }),
            Self::Ndjson => Ok(FieldSelector::Path(json_values::JsonPath::member(name))),
            Self::Named(header) => named(header, name),
            Self::Numbered(width) => numbered(*width, name),
        }
    }

    /// Finds the value at a path like `.a.b`.
    pub(crate) fn path(&self, path: &str) -> anyhow::Result<FieldSelector> {
        self.json_path(path).map(FieldSelector::Path)
    }

    /// Parses a path like `.a.b`.
    pub(crate) fn json_path(&self, path: &str) -> anyhow::Result<json_values::JsonPath> {
        anyhow::ensure!(
            matches!(self, Self::Ndjson),
            "the path `{path}` needs --ndjson; name a column, or write a template like {{1}}"
        );
        json_values::JsonPath::parse(path).with_context(|| {
            format!(
                "`{path}` is no path; write .name or .outer.inner, with quotes around a name \
                 that contains a dot"
            )
        })
    }
}

/// The remedy for names that are separated by commas, as other programs have them: `{1}/{2}` for `1,2`.
fn several(name: &str) -> Option<String> {
    let names: Vec<_> = name.split(',').collect();
    let are_names = names.len() > 1 && names.iter().all(|name| !name.is_empty());
    let template = names.iter().map(|name| format!("{{{name}}}")).collect::<Vec<_>>().join("/");
    are_names.then(|| {
        format!(
            "`{name}` is no field; for a key of several fields write a template, as in '{template}'"
        )
    })
}

/// The remedy for a field 0.
fn zero(name: &str) -> Option<String> {
    let is_zero = name.parse::<usize>() == Ok(0);
    is_zero.then(|| {
        format!("fields are counted from 1, and there is no field {name}; write 1 for the first")
    })
}

fn number(name: &str) -> Option<usize> {
    name.parse::<usize>().ok()?.checked_sub(1)
}

fn named(header: &ByteRecord, name: &str) -> anyhow::Result<FieldSelector> {
    let mut same = header.iter().enumerate().filter(|(_, column)| *column == name.as_bytes());
    match (same.next(), same.next()) {
        (Some((index, _)), None) => Ok(FieldSelector::Column(index)),
        (Some((first, _)), Some((second, _))) => anyhow::bail!(
            "columns {} and {} are both called `{name}`; give the number instead",
            first + 1,
            second + 1
        ),
        (None, _) => number(name)
            .filter(|index| *index < header.len())
            .map(FieldSelector::Column)
            .with_context(|| {
                let names: Vec<_> = header.iter().map(String::from_utf8_lossy).collect();
                several(name).unwrap_or_else(|| {
                    format!("there is no column `{name}`; the columns are {}", names.join(", "))
                })
            }),
    }
}

fn numbered(width: Option<usize>, name: &str) -> anyhow::Result<FieldSelector> {
    let index = number(name).with_context(|| {
        several(name).or_else(|| zero(name)).unwrap_or_else(|| {
            format!(
                "`{name}` is no column number; give --header if the first line has the names, or \
                 count columns from 1"
            )
        })
    })?;
    if let Some(width) = width {
        anyhow::ensure!(index < width, "there is no column {name}; the rows have {width}");
    }
    Ok(FieldSelector::Column(index))
}
