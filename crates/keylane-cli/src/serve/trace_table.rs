//! `[traces]`: the collector to which the spans of jobs and attempts are sent.

use std::path::PathBuf;

use anyhow::{Context, bail};
use keylane_service::TraceSettings;
use serde::Deserialize;

/// Largest header file, in bytes.
const MAX_FILE_BYTES: u64 = 64 * 1024;

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct TraceTable {
    endpoint: Option<String>,
    sample_ratio: Option<f64>,
    service_name: Option<String>,
    pub(super) header_file: Option<PathBuf>,
}

impl TraceTable {
    /// Settings of spans, if there is a collector.
    ///
    /// # Errors
    /// If a value is invalid, or the file cannot be read.
    pub(super) fn settings(&self) -> anyhow::Result<Option<TraceSettings>> {
        let TraceTable { endpoint, sample_ratio, service_name, header_file } = self;
        let Some(endpoint) = endpoint else {
            if *self != TraceTable::default() {
                bail!("traces: the other settings need `endpoint`, such as http://127.0.0.1:4318");
            }
            return Ok(None);
        };
        let mut settings = TraceSettings::new(endpoint).context("traces: `endpoint`")?;
        if let Some(ratio) = sample_ratio {
            settings = settings.ratio(*ratio).context("traces: `sample_ratio`")?;
        }
        if let Some(name) = service_name {
            settings = settings.service_name(name);
        }
        if let Some(path) = header_file {
            let in_file = || format!("traces: `header_file` {}", path.display());
            let size = std::fs::metadata(path).with_context(in_file)?.len();
            if size > MAX_FILE_BYTES {
                bail!("{}: it has {size} bytes, and {MAX_FILE_BYTES} are the most", in_file());
            }
            let text = std::fs::read_to_string(path).with_context(in_file)?;
            settings = settings.headers(&text).with_context(in_file)?;
        }
        Ok(Some(settings))
    }
}

#[cfg(test)]
mod tests {
    use super::TraceTable;

    fn settings(table: &str) -> Result<bool, String> {
        let table: TraceTable = toml::from_str(table).unwrap();
        let settings = table.settings().map_err(|error| format!("{error:#}"))?;
        Ok(settings.is_some())
    }

    #[test]
    fn the_table_is_checked_and_errors_name_the_setting() {
        assert_eq!(settings(""), Ok(false));
        assert_eq!(settings("endpoint = \"http://127.0.0.1:4318\"\nsample_ratio = 0.1"), Ok(true));
        for (table, part) in [
            ("sample_ratio = 0.5", "need `endpoint`"),
            ("endpoint = \"127.0.0.1:4317\"", "traces: `endpoint`: `127.0.0.1:4317` is no address"),
            ("endpoint = \"http://c\"\nsample_ratio = 2.0", "traces: `sample_ratio`: the ratio"),
            ("endpoint = \"http://c\"\nheader_file = \"/no/such\"", "`header_file` /no/such"),
        ] {
            let error = settings(table).unwrap_err();
            assert!(error.contains(part), "{table}: {error}");
        }
    }
}
