//! Sinks for the output of records: the tag of each, and the record as an object of JSON.

use std::sync::Arc;

use serde::Serialize;

use crate::input::InputRecord;
use crate::record_output::{RecordSink, RunOutput};
use crate::run_stats::RecordLocation;
use crate::template::{NoField, Template};

use super::log::{KeyFields, LoggedKeys};
use crate::record_keys::RecordKeys;

/// Makes the sinks of records, in the order of the input.
#[derive(Debug)]
pub(super) struct RecordSinks {
    pub(super) output: Arc<RunOutput>,
    pub(super) tag: Option<Template>,
    /// Several records of a key may run at once.
    pub(super) has_limit: bool,
}

/// A record in a line of JSON.
#[derive(Debug, Serialize)]
struct SinkHead<'r> {
    place: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u64>,
    #[serde(flatten)]
    keys: KeyFields<'r>,
}

impl RecordSinks {
    /// Returns the sink of the next record, and the error if its tag cannot be made.
    pub(super) fn sink(
        &self,
        record: &InputRecord,
        place: &RecordLocation,
        keys: &RecordKeys,
    ) -> (RecordSink, Result<(), NoField>) {
        let tag = self.tag.as_ref().map(|template| {
            let mut tag = Vec::new();
            template.render(record, keys.first.bytes(), &mut tag).map(|()| tag)
        });
        let (tag, rendered) = match tag.transpose() {
            Ok(tag) => (tag, Ok(())),
            Err(unfit) => (None, Err(unfit)),
        };
        let head = if self.output.needs_head() { self.head(place, keys) } else { Vec::new() };
        (self.output.record(place.number, tag, head), rendered)
    }

    /// Returns an object without its end.
    fn head(&self, place: &RecordLocation, keys: &RecordKeys) -> Vec<u8> {
        let file = place.file.as_deref();
        let head = SinkHead {
            place: place.number,
            file,
            line: file.map(|_| place.line),
            keys: LoggedKeys::All(keys).fields(self.has_limit),
        };
        let mut head = serde_json::to_vec(&head).expect("a head has members with names");
        head.pop();
        head
    }
}
