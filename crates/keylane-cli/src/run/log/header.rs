//! First line that a run writes to a log: format version, number of the run, and the options that
//! decide the records and their keys.

use std::collections::BTreeMap;

use anyhow::{bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::super::args::RunArgs;
use crate::input::FieldLayout;

/// Version of the format. Version 1 had no header and no hashes.
pub(super) const FORMAT: u32 = 2;

/// Options that decide the records and their keys, by name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(in crate::run) struct RecordOptions(BTreeMap<String, Value>);

/// Header line.
#[derive(Debug, Serialize)]
pub(super) struct LogHeader<'a> {
    pub(super) keylane_log: u32,
    /// Number of the run in the log, counted from one.
    pub(super) run: u32,
    /// Files of the input, for people.
    pub(super) input: &'a [String],
    pub(super) options: &'a RecordOptions,
}

impl RecordOptions {
    /// Returns the options of a run whose records have this layout.
    pub(in crate::run) fn new(args: &RunArgs, layout: &FieldLayout) -> Self {
        let nulls: Vec<_> =
            args.keys.null_value.iter().map(|null| null.to_string_lossy()).collect();
        let mut options = BTreeMap::from([
            ("input format".to_owned(), json!(format!("{:?}", args.input.format()).to_lowercase())),
            ("--header".to_owned(), json!(args.input.header())),
            ("--key".to_owned(), json!(args.keys.key)),
            ("--shared-key".to_owned(), json!(args.keys.shared_key)),
            ("--barrier".to_owned(), json!(args.keys.barrier)),
            ("--no-key".to_owned(), json!(format!("{:?}", args.keys.no_key).to_lowercase())),
            ("--null-value".to_owned(), json!(nulls)),
        ]);
        if let FieldLayout::Named(header) = layout {
            let columns: Vec<_> = header.iter().map(String::from_utf8_lossy).collect();
            options.insert("columns".to_owned(), json!(columns));
        }
        RecordOptions(options)
    }

    /// Refuses options under which the records of the log would be others, or have other keys.
    pub(super) fn ensure_same_as(&self, logged: &Self) -> anyhow::Result<()> {
        let names = self.0.keys().chain(logged.0.keys());
        for name in names {
            let (of_run, of_log) = (self.0.get(name), logged.0.get(name));
            if of_run != of_log {
                let text =
                    |value: Option<&Value>| value.map_or("none".to_owned(), Value::to_string);
                bail!(
                    "it was written with other options: {name} was {}, and now is {}; give the options of the first \
                     run, or give another --log file",
                    text(of_log),
                    text(of_run)
                );
            }
        }
        Ok(())
    }
}

/// Refuses a log of another format.
pub(super) fn ensure_format(version: u32) -> anyhow::Result<()> {
    ensure!(
        version == FORMAT,
        "its format has version {version}, and this keylane reads version {FORMAT}; continue it with the keylane that \
         wrote it, or give another --log file"
    );
    Ok(())
}
