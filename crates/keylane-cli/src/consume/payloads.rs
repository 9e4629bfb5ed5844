//! Payloads: decides whether the payload of a record can be handled, and shows it to keys and templates.

use keylane_stream::Record;

use crate::input::{self, FieldLayout, InputFormat, InputRecord, TableDialect};

/// Format of payloads, with what is known of their fields.
#[derive(Debug)]
pub(super) struct PayloadFormat {
    format: InputFormat,
    layout: FieldLayout,
}

/// A payload that is not of the format that the settings name.
#[derive(Debug, thiserror::Error)]
#[error("its payload is {}{flaw}", if *.is_table { "no row of the table: " } else { "" })]
pub(super) struct UnfitPayload {
    is_table: bool,
    flaw: String,
}

impl PayloadFormat {
    pub(super) fn new(format: InputFormat, layout: FieldLayout) -> Self {
        PayloadFormat { format, layout }
    }

    pub(super) fn layout(&self) -> &FieldLayout {
        &self.layout
    }

    /// Whether a record can be handled. A tombstone has no payload that could be unfit.
    pub(super) fn check(&self, record: &Record) -> Result<(), UnfitPayload> {
        let Some(payload) = &record.payload else { return Ok(()) };
        let (is_table, checked) = match self.dialect() {
            Some(dialect) => (true, self.parse(payload, dialect, &mut InputRecord::default())),
            None if self.format == InputFormat::Ndjson => (false, input::check_json(payload)),
            None => return Ok(()),
        };
        checked.map_err(|flaw| UnfitPayload { is_table, flaw: flaw.to_string() })
    }

    /// The record as templates see it. A payload that is not of the format has no fields.
    pub(super) fn as_input(&self, record: &Record, number: u64) -> InputRecord {
        let payload = record.payload();
        let mut seen = InputRecord::default();
        if let Some(dialect) = self.dialect() {
            let parsed = self.parse(payload, dialect, &mut seen);
            if parsed.is_err() {
                seen.row.clear();
            }
        }
        InputRecord { number, line: number, raw: payload.to_vec(), row: seen.row }
    }

    /// Media type of a payload, and of several as lines.
    pub(super) fn media_types(&self) -> (&'static str, &'static str) {
        match self.format {
            InputFormat::Lines | InputFormat::NulSeparated => {
                ("application/octet-stream", "application/octet-stream")
            }
            InputFormat::Ndjson => ("application/json", "application/x-ndjson"),
            InputFormat::Csv => ("text/csv", "text/csv"),
            InputFormat::Tsv => ("text/tab-separated-values", "text/tab-separated-values"),
        }
    }

    fn dialect(&self) -> Option<TableDialect> {
        self.format.dialect()
    }

    fn parse(
        &self,
        payload: &[u8],
        dialect: TableDialect,
        into: &mut InputRecord,
    ) -> Result<(), input::RecordFlaw> {
        let width = match &self.layout {
            FieldLayout::Named(header) => Some(header.len()),
            FieldLayout::Numbered(width) => *width,
            FieldLayout::Lines | FieldLayout::Ndjson => None,
        };
        input::parse_row(payload, dialect, width, into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_that_is_no_row_is_unfit_and_has_no_fields() {
        let payloads = PayloadFormat::new(InputFormat::Csv, FieldLayout::Numbered(Some(2)));
        let fits = Record::without_key("a,\"b,c\"");
        payloads.check(&fits).unwrap();
        let seen = payloads.as_input(&fits, 7);
        assert_eq!((seen.number, &seen.row[1]), (7, &b"b,c"[..]));
        for (payload, why) in [
            ("a", "no row of the table: the record has 1 fields"),
            ("a,\"b", "begins in this record and never ends"),
            ("", "no row of the table: it is empty"),
            ("a,b\nc,d", "more than one row"),
        ] {
            let unfit = Record::without_key(payload);
            let said = payloads.check(&unfit).unwrap_err().to_string();
            assert!(said.contains(why), "{said}");
            assert_eq!(payloads.as_input(&unfit, 1).row.len(), 0, "{payload}");
        }
        payloads.check(&Record::tombstone("k")).unwrap();
    }
}
