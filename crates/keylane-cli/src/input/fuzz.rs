//! Fuzz targets: records of all formats, and values in them. The tests run them on the files in `corpus/` and on
//! mutations of these.

use csv::ByteRecord;
use serde_json::Value;

use super::error::RecordFlaw;
use super::field::FieldSelector;
use super::json_values::JsonPath;
use super::lines::LineRecords;
use super::ndjson::NdjsonRecords;
use super::record::InputRecord;
use super::table::TableRecords;
use super::table_dialect::TableDialect;
use super::value::FieldValue;

/// Reads all records up to the end or the first flaw.
fn all(
    mut next: impl FnMut(&mut InputRecord) -> Result<bool, RecordFlaw>,
) -> (Vec<InputRecord>, Option<RecordFlaw>) {
    let mut records = Vec::new();
    loop {
        let mut record = InputRecord::default();
        match next(&mut record) {
            Ok(true) => records.push(record),
            Ok(false) => return (records, None),
            Err(flaw) => return (records, Some(flaw)),
        }
    }
}

fn without_mark(input: &[u8]) -> &[u8] {
    input.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(input)
}

/// Lines are what the line ends separate.
fn lines(input: &[u8]) {
    let mut reader = LineRecords::new(input, b'\n');
    let (records, flaw) = all(|record| reader.next(record));
    assert!(flaw.is_none(), "{flaw:?}");
    let mut expected: Vec<&[u8]> = without_mark(input).split(|byte| *byte == b'\n').collect();
    expected.pop_if(|last| last.is_empty());
    // A mark and a line end alone are an empty line.
    assert!(records.iter().map(|record| &*record.raw).eq(expected));
}

/// Each record is JSON, and a member has the value that a plain JSON reader finds.
fn ndjson(input: &[u8]) {
    let mut reader = NdjsonRecords::new(input);
    let (records, flaw) = all(|record| reader.next(record));
    assert!(flaw.is_none_or(|flaw| !flaw.to_string().is_empty()));
    let selectors = ["k", "a"].map(|name| FieldSelector::Path(JsonPath::member(name)));
    for record in &records {
        for (name, selector) in ["k", "a"].iter().zip(&selectors) {
            let value = selector.of(record);
            // Numbers that no plain reader takes keep their text.
            let Ok(plain) = serde_json::from_slice::<Value>(&record.raw) else { continue };
            match plain.get(name) {
                None => assert_eq!(value, FieldValue::Missing),
                Some(Value::Null) => assert_eq!(value, FieldValue::Null),
                Some(Value::String(text)) => {
                    assert_eq!(value, FieldValue::Text(text.as_bytes().into()));
                }
                Some(other) => {
                    let FieldValue::Text(text) = value else { panic!("{value:?} of {other}") };
                    assert_eq!(serde_json::from_slice::<Value>(&text).as_ref().ok(), Some(other));
                }
            }
        }
    }
}

/// All rows have the same width, and rows that are written again are read as the same rows.
fn csv(input: &[u8]) {
    let mut reader = TableRecords::new(input, TableDialect::Csv);
    let (records, flaw) = all(|record| reader.next(record));
    assert!(flaw.is_none_or(|flaw| !flaw.to_string().is_empty()));
    assert!(records.iter().all(|record| record.row.len() == records[0].row.len()));
    let mut writer = csv::Writer::from_writer(Vec::new());
    records.iter().for_each(|record| writer.write_byte_record(&record.row).unwrap());
    let written = writer.into_inner().unwrap();
    // A mark that is a part of the first value would be taken for one of the file.
    let first = records.first().and_then(|record| record.row.get(0)).unwrap_or_default();
    if !first.starts_with(b"\xEF\xBB\xBF") {
        let mut reader = TableRecords::new(&*written, TableDialect::Csv);
        let (again, flaw) = all(|record| reader.next(record));
        assert!(flaw.is_none(), "{flaw:?}");
        assert!(rows(&again).eq(rows(&records)), "rows that were written again");
    }
    // A command gets the text of a row, which is the row.
    for record in &records {
        let mut reader = TableRecords::new(&*record.raw, TableDialect::Csv);
        let (alone, _) = all(|record| reader.next(record));
        assert!(record.raw.starts_with(b"\xEF\xBB\xBF") || rows(&alone).eq([&record.row]));
    }
}

fn rows(records: &[InputRecord]) -> impl Iterator<Item = &ByteRecord> {
    records.iter().map(|record| &record.row)
}

/// Rows of fields between tabs.
fn tsv(input: &[u8]) {
    let mut reader = TableRecords::new(input, TableDialect::Tsv);
    let (records, _) = all(|record| reader.next(record));
    for record in &records {
        assert!(record.row.iter().eq(record.raw.split(|byte| *byte == b'\t')), "{record:?}");
        assert_eq!(record.row.len(), records[0].row.len());
    }
}

/// A path has the steps that its text names.
fn json_path(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let Some(path) = JsonPath::parse(text) else { return };
    let plain = text.strip_prefix('.').filter(|rest| !rest.contains(['"', '.']));
    if let Some(name) = plain {
        assert_eq!(path, JsonPath::member(name));
    }
}

fn run(name: &str, target: impl Fn(&[u8])) {
    keylane_testkit::fuzz::run(format!("{}/corpus/{name}", env!("CARGO_MANIFEST_DIR")), target);
}

#[test]
fn records_that_are_lines() {
    run("records", lines);
}

#[test]
fn records_that_are_json() {
    run("ndjson", ndjson);
}

#[test]
fn records_with_commas() {
    run("records", csv);
}

#[test]
fn records_with_tabs() {
    run("records", tsv);
}

#[test]
fn paths_in_json() {
    run("json_path", json_path);
}
