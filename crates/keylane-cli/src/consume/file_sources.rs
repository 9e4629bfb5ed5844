//! Files and pipes as sources, of lines or of the rows of a table.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::Context;
use keylane_stream::lines::{FileSource, PipeSource};
use keylane_stream::source::Source;

use super::format_settings::PlannedFormat;
use super::table_rows::{self, RowFraming};
use crate::input::{FieldLayout, UncompressedReader};
use crate::standard_streams;

/// Name of standard input in messages and metrics.
const STDIN: &str = "standard input";

/// Opens a file that continues after the progress in its state file.
pub(super) fn file(
    path: &Path,
    state: &Path,
    format: PlannedFormat,
) -> anyhow::Result<(FileSource, FieldLayout)> {
    let cannot = || format!("cannot read {}", path.display());
    let file = File::open(path).with_context(cannot)?;
    // A compressed file is refused: its progress would be no place in it.
    let mut plain = UncompressedReader::new(file);
    plain.read(&mut []).with_context(cannot)?;
    let Some(dialect) = format.format.dialect() else {
        return Ok((FileSource::open(path, state)?, format.layout()));
    };
    let name = path.display().to_string();
    let layout = table_rows::layout_of(&name, plain, dialect, format.has_header)?;
    let framing = RowFraming::new(dialect, format.has_header);
    Ok((FileSource::open_framed(path, state, framing)?, layout))
}

/// Reads standard input.
pub(super) fn pipe(format: PlannedFormat) -> anyhow::Result<(Box<dyn Source>, FieldLayout)> {
    let input = UncompressedReader::new(standard_streams::stdin()?);
    let Some(dialect) = format.format.dialect() else {
        return Ok((Box::new(PipeSource::new(STDIN, input)?), format.layout()));
    };
    let (layout, input) = table_rows::layout_of_pipe(STDIN, input, dialect, format.has_header)?;
    let framing = RowFraming::new(dialect, format.has_header);
    Ok((Box::new(PipeSource::framed(STDIN, input, framing)?), layout))
}
