//! Settings of the format of payloads, with their combinations.

use super::settings::ConsumeSettings;
use crate::input::{FieldLayout, InputFormat};

/// Planned format of payloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PlannedFormat {
    pub(super) format: InputFormat,
    pub(super) has_header: bool,
}

impl PlannedFormat {
    /// Returns the fields of records without a first row that could tell more.
    pub(super) fn layout(self) -> FieldLayout {
        match self.format {
            InputFormat::Lines | InputFormat::NulSeparated => FieldLayout::Lines,
            InputFormat::Ndjson => FieldLayout::Ndjson,
            InputFormat::Csv | InputFormat::Tsv => FieldLayout::Numbered(None),
        }
    }

    /// Returns the format. An error has the name of the setting.
    pub(super) fn new(settings: &ConsumeSettings) -> Result<Self, (&'static str, &'static str)> {
        let given = [
            ("csv", settings.csv, InputFormat::Csv),
            ("tsv", settings.tsv, InputFormat::Tsv),
            ("ndjson", settings.ndjson, InputFormat::Ndjson),
        ];
        let mut given = given.into_iter().filter(|(_, is_set, _)| *is_set == Some(true));
        let format = given.next().map_or(InputFormat::Lines, |(_, _, format)| format);
        if let Some((name, ..)) = given.next() {
            return Err((name, "--csv, --tsv and --ndjson exclude each other; keep one of them"));
        }
        let has_header = settings.header == Some(true);
        if has_header && format.dialect().is_none() {
            return Err(("header", "--header is for tables; add --csv or --tsv"));
        }
        Ok(PlannedFormat { format, has_header })
    }
}
