//! Row scanner: finds where a row of a table ends, by the rules of the parser, without its fields.

use super::line_reader::BOM;
use super::table_dialect::TableDialect;

/// Scans the bytes of a table, row after row.
#[derive(Debug, Clone)]
pub(crate) struct RowScanner {
    separator: u8,
    quoted: bool,
    state: ScanState,
}

/// State behind the last byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScanState {
    /// At the beginning of the input, behind this number of bytes of a byte order mark.
    Mark(usize),
    /// Before a row, where line ends are blank lines or the second half of a CR LF.
    Blank,
    /// At the beginning of a field.
    Field,
    Plain,
    Quoted,
    AfterQuote,
}

impl RowScanner {
    /// Returns a scanner of an input.
    pub(crate) fn new(dialect: TableDialect) -> Self {
        let (separator, quoted) = dialect.syntax();
        RowScanner { separator, quoted, state: ScanState::Mark(0) }
    }

    /// Returns a scanner of a single row.
    pub(super) fn of_row(dialect: TableDialect) -> Self {
        RowScanner { state: ScanState::Field, ..Self::new(dialect) }
    }

    /// Returns the number of bytes up to the end of the row, with the byte that ends it, if that is among
    /// `bytes`. The next call begins another row then.
    pub(crate) fn find_end(&mut self, bytes: &[u8]) -> Option<usize> {
        for (index, byte) in bytes.iter().enumerate() {
            let is_end = matches!(byte, b'\r' | b'\n');
            self.state = match self.state {
                ScanState::Mark(count) if *byte == BOM[count] => match count {
                    2 => ScanState::Blank,
                    _ => ScanState::Mark(count + 1),
                },
                ScanState::Mark(0) | ScanState::Blank if is_end => ScanState::Blank,
                ScanState::Quoted if *byte == b'"' => ScanState::AfterQuote,
                ScanState::Quoted => ScanState::Quoted,
                _ if is_end => {
                    self.state = ScanState::Blank;
                    return Some(index + 1);
                }
                ScanState::Mark(1..) | ScanState::Plain if *byte != self.separator => {
                    ScanState::Plain
                }
                _ if *byte == self.separator => ScanState::Field,
                _ if *byte == b'"' && self.quoted => ScanState::Quoted,
                _ => ScanState::Plain,
            };
        }
        None
    }

    /// Returns whether a quoted field is open behind the last byte.
    pub(super) fn is_quote_open(&self) -> bool {
        self.state == ScanState::Quoted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::InputRecord;
    use crate::input::table::TableRecords;

    /// Rows by the scanner, in pieces of `piece` bytes, without line ends around them.
    fn scanned(text: &[u8], dialect: TableDialect, piece: usize) -> Vec<Vec<u8>> {
        let mut scanner = RowScanner::new(dialect);
        let (mut rows, mut row) = (Vec::new(), Vec::new());
        for mut piece in text.chunks(piece) {
            while let Some(end) = scanner.find_end(piece) {
                row.extend_from_slice(&piece[..end]);
                rows.push(std::mem::take(&mut row));
                piece = &piece[end..];
            }
            row.extend_from_slice(piece);
        }
        rows.push(row);
        let trimmed = rows.iter().enumerate().map(|(index, row)| {
            let row = if index == 0 { row.strip_prefix(BOM).unwrap_or(row) } else { row };
            let blank = row.iter().take_while(|byte| b"\r\n".contains(byte)).count();
            let row = &row[blank..];
            row.strip_suffix(b"\n").or(row.strip_suffix(b"\r")).unwrap_or(row).to_vec()
        });
        trimmed.filter(|row| !row.is_empty()).collect()
    }

    #[test]
    fn the_scanner_and_the_parser_find_the_same_rows() {
        let texts = [
            "a,b\n1,2\n",
            "\u{feff}a,b\r\n\r\n\"x\ny\",\"say \"\"hi\"\"\"\r\nlast,5\" nail",
            "\u{feff}\n\n\"a\nb\",c\rd,e\n\n\n",
            "\"a\"b\n\"c\n\"\"\n\",d\n",
            "a\t\"b\nc\td\r\n",
            "\n\r\n",
            "",
            ",\n,\n\"\"\n",
        ];
        for (text, dialect) in
            texts.iter().flat_map(|text| [(text, TableDialect::Csv), (text, TableDialect::Tsv)])
        {
            let mut table = TableRecords::flexible(text.as_bytes(), dialect);
            let mut record = InputRecord::default();
            let mut parsed = Vec::new();
            while table.next(&mut record).unwrap() {
                parsed.push(record.raw.clone());
            }
            for piece in [1, 2, 3, 7, 1000] {
                assert_eq!(
                    scanned(text.as_bytes(), dialect, piece),
                    parsed,
                    "{text:?} {dialect:?}"
                );
            }
        }
    }
}
