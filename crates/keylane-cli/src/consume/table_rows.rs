//! Tables as sources: rows of a file or a pipe as records, and the columns that their first row tells.

use std::io::{self, BufRead, BufReader, Cursor, Read};

use keylane_stream::lines::RecordFraming;

use crate::input::{FieldLayout, InputError, RecordFlaw, RowScanner, TableDialect, TableHead};

/// Framing of rows.
#[derive(Debug)]
pub(super) struct RowFraming {
    scanner: RowScanner,
    format: &'static str,
    has_header: bool,
}

impl RowFraming {
    pub(super) fn new(dialect: TableDialect, has_header: bool) -> Self {
        let format = match (dialect, has_header) {
            (TableDialect::Csv, false) => "csv",
            (TableDialect::Csv, true) => "csv with a header",
            (TableDialect::Tsv, false) => "tsv",
            (TableDialect::Tsv, true) => "tsv with a header",
        };
        RowFraming { scanner: RowScanner::new(dialect), format, has_header }
    }
}

impl RecordFraming for RowFraming {
    fn format(&self) -> &str {
        self.format
    }

    fn find_end(&mut self, bytes: &[u8]) -> Option<usize> {
        self.scanner.find_end(bytes)
    }

    fn content(&self, mut record: Vec<u8>) -> Option<Vec<u8>> {
        // The second half of a CR LF and blank lines stand before the row.
        let blank = record.iter().take_while(|byte| is_line_end(byte)).count();
        record.drain(..blank);
        record.pop_if(|last| is_line_end(last));
        Some(record).filter(|record| !record.is_empty())
    }

    fn is_end(&self, last: u8) -> bool {
        is_line_end(&last)
    }

    fn has_header(&self) -> bool {
        self.has_header
    }
}

fn is_line_end(byte: &u8) -> bool {
    matches!(byte, b'\r' | b'\n')
}

/// Reads the first row of a table, and returns the layout of its rows. `name` is the name of the input in errors.
pub(super) fn layout_of(
    name: &str,
    input: impl Read,
    dialect: TableDialect,
    has_header: bool,
) -> Result<FieldLayout, InputError> {
    let located = |(line, what)| InputError { file: name.to_owned(), line, what };
    TableHead { dialect, has_header }.layout(input).map_err(located)
}

/// Reads the first row of a pipe. Returns its layout, and an input that begins with that row again.
pub(super) fn layout_of_pipe(
    name: &str,
    input: impl Read,
    dialect: TableDialect,
    has_header: bool,
) -> Result<(FieldLayout, impl Read), InputError> {
    let mut input = BufReader::new(input);
    let failed =
        |error| InputError { file: name.to_owned(), line: 1, what: RecordFlaw::Read(error) };
    let first = first_row(&mut input, dialect).map_err(failed)?;
    let layout = layout_of(name, &first[..], dialect, has_header)?;
    Ok((layout, Cursor::new(first).chain(input)))
}

fn first_row(input: &mut impl BufRead, dialect: TableDialect) -> io::Result<Vec<u8>> {
    let mut scanner = RowScanner::new(dialect);
    let mut row = Vec::new();
    loop {
        let bytes = match input.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            bytes => bytes?,
        };
        let end = scanner.find_end(bytes);
        let (taken, is_end) = (end.unwrap_or(bytes.len()), end.is_some() || bytes.is_empty());
        row.extend_from_slice(&bytes[..taken]);
        input.consume(taken);
        // A longer row is an error for the parser.
        if is_end || row.len() > keylane_stream::lines::MAX_LINE_BYTES {
            return Ok(row);
        }
    }
}
