//! Table format (CSV by RFC 4180, or tab-separated without quotes): every row has as many fields as
//! the first, and an open quote is an error.

use std::io::Read;

use csv::{ByteRecord, ErrorKind, Reader, ReaderBuilder};

use super::error::RecordFlaw;
use super::line_reader::READ_AHEAD;
use super::record::InputRecord;
use super::recording_reader::RecordingReader;
use super::row_scanner::RowScanner;
use super::table_dialect::TableDialect;

/// Parses a row that stands alone, with `width` fields if that is known, into `record`.
///
/// # Errors
/// If the bytes are not exactly one such row.
pub(crate) fn parse_row(
    raw: &[u8],
    dialect: TableDialect,
    width: Option<usize>,
    record: &mut InputRecord,
) -> Result<(), RecordFlaw> {
    // The parser reads through a buffer of this size, which it allocates for each row.
    let mut rows = TableRecords::with(raw, dialect, raw.len().clamp(64, READ_AHEAD), true);
    if !rows.next(record)? {
        return Err(RecordFlaw::NoRow);
    }
    let (found, expected) = (record.row.len(), width.unwrap_or(record.row.len()));
    if found != expected {
        return Err(RecordFlaw::Ragged { expected: expected as u64, found: found as u64 });
    }
    match rows.next(&mut InputRecord::default()) {
        Ok(false) => Ok(()),
        _ => Err(RecordFlaw::SeveralRows),
    }
}

/// A table of which the first row has been read already, so that its width is
/// known before the first record is used.
#[derive(Debug)]
pub(super) struct TableRecords<R> {
    rows: Reader<RecordingReader<R>>,
    quoted: bool,
    /// Lines that ended before the part of the input not yet taken.
    lines: u64,
    /// Whether the first bytes of the input were taken.
    is_begun: bool,
    /// The first row, where it is a record and not a header.
    first: Option<InputRecord>,
}

impl<R: Read> TableRecords<R> {
    pub(super) fn new(input: R, dialect: TableDialect) -> Self {
        Self::with(input, dialect, READ_AHEAD, false)
    }

    /// Returns a table whose rows differ in width.
    #[cfg(test)]
    pub(super) fn flexible(input: R, dialect: TableDialect) -> Self {
        Self::with(input, dialect, READ_AHEAD, true)
    }

    fn with(input: R, dialect: TableDialect, buffer: usize, flexible: bool) -> Self {
        let (separator, quoted) = dialect.syntax();
        let rows = ReaderBuilder::new()
            .has_headers(false)
            .flexible(flexible)
            .delimiter(separator)
            .quoting(quoted)
            .buffer_capacity(buffer)
            .from_reader(RecordingReader::new(input));
        Self { rows, quoted, lines: 0, is_begun: false, first: None }
    }

    /// Reads the header; the line it is on comes with an error.
    pub(super) fn header(&mut self) -> Result<ByteRecord, (u64, RecordFlaw)> {
        let mut record = InputRecord::default();
        match self.next(&mut record) {
            Ok(true) => Ok(record.row),
            Ok(false) => Err((1, RecordFlaw::NoHeader)),
            Err(flaw) => Err((record.line, flaw)),
        }
    }

    /// Number of fields of the rows; none if there are no rows.
    pub(super) fn width(&mut self) -> Result<Option<usize>, (u64, RecordFlaw)> {
        let mut record = InputRecord::default();
        match self.next(&mut record) {
            Ok(true) => {
                let width = record.row.len();
                self.first = Some(record);
                Ok(Some(width))
            }
            Ok(false) => Ok(None),
            Err(flaw) => Err((record.line, flaw)),
        }
    }

    pub(super) fn next(&mut self, record: &mut InputRecord) -> Result<bool, RecordFlaw> {
        if let Some(first) = self.first.take() {
            *record = InputRecord { number: record.number, ..first };
            return Ok(true);
        }
        let outcome = self.rows.read_byte_record(&mut record.row);
        self.take_raw(record);
        if !outcome.map_err(|error| self.flaw(error))? {
            return Ok(false);
        }
        if self.quoted && ends_inside_quotes(&record.raw) {
            return Err(RecordFlaw::OpenQuote);
        }
        Ok(true)
    }

    /// Takes the bytes of the row that was just parsed. The parser leaves the
    /// second half of a CR LF and blank lines to the row after them.
    fn take_raw(&mut self, record: &mut InputRecord) {
        let end = self.rows.position().byte();
        let bytes = self.rows.get_mut().take_until(end);
        // A byte order mark can stand before blank lines.
        let bytes = match std::mem::replace(&mut self.is_begun, true) {
            true => bytes,
            false => bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes),
        };
        let blank = bytes.iter().take_while(|byte| is_line_end(byte)).count();
        let (before, raw) = bytes.split_at(blank);
        self.lines += newlines(before);
        record.line = self.lines + 1;
        self.lines += newlines(raw);
        let raw = raw.strip_suffix(b"\n").unwrap_or(raw);
        let raw = raw.strip_suffix(b"\r").unwrap_or(raw);
        record.raw.clear();
        record.raw.extend_from_slice(raw);
    }

    fn flaw(&self, error: csv::Error) -> RecordFlaw {
        if self.rows.get_ref().overrun() {
            return RecordFlaw::TooLong;
        }
        match error.into_kind() {
            ErrorKind::UnequalLengths { expected_len, len, .. } => {
                RecordFlaw::Ragged { expected: expected_len, found: len }
            }
            ErrorKind::Io(error) => RecordFlaw::Read(error),
            other => unreachable!("reading raw rows fails in no other way: {other:?}"),
        }
    }
}

fn is_line_end(byte: &u8) -> bool {
    matches!(byte, b'\r' | b'\n')
}

fn newlines(bytes: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', bytes).count() as u64
}

/// Whether a quoted field is still open at the end of the row. The parser closes it silently.
fn ends_inside_quotes(row: &[u8]) -> bool {
    if memchr::memchr(b'"', row).is_none() {
        return false;
    }
    let mut scanner = RowScanner::of_row(TableDialect::Csv);
    scanner.find_end(row);
    scanner.is_quote_open()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &str) -> Vec<(u64, String, Vec<String>)> {
        let mut table = TableRecords::new(text.as_bytes(), TableDialect::Csv);
        let mut record = InputRecord::default();
        let mut seen = Vec::new();
        while table.next(&mut record).unwrap() {
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            let fields = record.row.iter().map(text).collect();
            seen.push((record.line, text(&record.raw), fields));
        }
        seen
    }

    fn row(line: u64, raw: &str, fields: [&str; 2]) -> (u64, String, Vec<String>) {
        (line, raw.into(), fields.map(String::from).into())
    }

    #[test]
    fn a_mark_before_blank_lines_is_no_part_of_a_row() {
        assert_eq!(rows("\u{feff}\n\na,b\n"), [row(3, "a,b", ["a", "b"])]);
    }

    #[test]
    fn the_whole_row_comes_with_its_fields_and_its_line() {
        let text = "\u{feff}a,b\r\n\r\n\"x\ny\",\"say \"\"hi\"\"\"\r\nlast,5\" nail";
        let expected = [
            row(1, "a,b", ["a", "b"]),
            row(3, "\"x\ny\",\"say \"\"hi\"\"\"", ["x\ny", "say \"hi\""]),
            row(5, "last,5\" nail", ["last", "5\" nail"]),
        ];
        assert_eq!(rows(text), expected);
    }

    #[test]
    fn an_open_quote_is_found_with_and_without_a_last_line_end() {
        for text in ["a,b\n1,\"2", "a,b\n1,\"2\n", "a,b\n1,\"2\"\"\n3,4\n"] {
            let mut table = TableRecords::new(text.as_bytes(), TableDialect::Csv);
            let mut record = InputRecord::default();
            assert!(table.next(&mut record).unwrap());
            assert!(matches!(table.next(&mut record), Err(RecordFlaw::OpenQuote)), "{text:?}");
            assert_eq!(record.line, 2);
        }
    }

    #[test]
    fn an_open_quote_does_not_swallow_an_endless_input() {
        let mut table =
            TableRecords::new((&b"a,\""[..]).chain(std::io::repeat(b'x')), TableDialect::Csv);
        assert!(matches!(table.next(&mut InputRecord::default()), Err(RecordFlaw::TooLong)));
    }

    #[test]
    fn a_row_of_another_width_is_refused_with_its_line() {
        let mut table = TableRecords::new(&b"a,b\n1,2\n1,2,3\n"[..], TableDialect::Csv);
        let mut record = InputRecord::default();
        assert_eq!(table.width().unwrap(), Some(2));
        assert!(table.next(&mut record).unwrap() && table.next(&mut record).unwrap());
        let flaw = table.next(&mut record).unwrap_err();
        assert!(matches!(flaw, RecordFlaw::Ragged { expected: 2, found: 3 }));
        assert_eq!(record.line, 3);
    }

    #[test]
    fn a_single_row_is_one_row_of_the_width() {
        let parsed = |raw: &str, width| {
            let mut record = InputRecord::default();
            parse_row(raw.as_bytes(), TableDialect::Csv, width, &mut record)
                .map(|()| record.row.len())
        };
        assert!(matches!(parsed("a,\"b\nc\"", Some(2)), Ok(2)));
        assert!(matches!(parsed("a,b,c", None), Ok(3)));
        let ragged = parsed("a,b", Some(3));
        assert!(matches!(ragged, Err(RecordFlaw::Ragged { expected: 3, found: 2 })));
        assert!(matches!(parsed("a,\"b", Some(2)), Err(RecordFlaw::OpenQuote)));
        assert!(matches!(parsed("", Some(2)), Err(RecordFlaw::NoRow)));
        for several in ["a,b\nc,d", "a,b\rc", "a,b\n\"c"] {
            assert!(matches!(parsed(several, None), Err(RecordFlaw::SeveralRows)), "{several:?}");
        }
    }

    #[test]
    fn tabs_know_no_quotes() {
        let mut table = TableRecords::new(&b"\"a\tb\"\n"[..], TableDialect::Tsv);
        let mut record = InputRecord::default();
        assert!(table.next(&mut record).unwrap());
        assert_eq!(&record.row, &ByteRecord::from(vec!["\"a", "b\""]));
    }
}
