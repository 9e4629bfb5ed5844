//! Execution of a record: the arguments of a command, or a line for a worker.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use crate::input::{FieldLayout, InputRecord};
use crate::template::{NoField, Template};

use super::record_task::RecordBody;

/// How the work for each record is made.
#[derive(Debug)]
pub(super) enum RecordTemplate {
    /// Arguments of the command.
    Command(Vec<Template>),
    /// The line to send to a worker.
    Line(Template),
}

/// Why one record cannot be run, while others can.
#[derive(Debug, thiserror::Error)]
pub(super) enum RecordError {
    #[error(transparent)]
    NoField(#[from] NoField),
    #[error(
        "its line for the worker would contain a line end; choose fields without one with \
         --worker-line, or run it without --worker"
    )]
    LineEnd,
}

impl RecordTemplate {
    /// Templates of the arguments; the record is appended if none of them uses a part of it.
    pub(super) fn command(words: &[OsString], layout: &FieldLayout) -> anyhow::Result<Self> {
        let parse = |word: &OsString| Template::parse(word.as_bytes(), layout);
        let mut words: Vec<_> = words.iter().map(parse).collect::<Result<_, _>>()?;
        if !words.iter().any(Template::has_placeholder) {
            words.push(Template::whole());
        }
        Ok(Self::Command(words))
    }

    /// Template of a worker's line; the whole record by default.
    pub(super) fn line(template: Option<&OsString>, layout: &FieldLayout) -> anyhow::Result<Self> {
        let template = match template {
            Some(text) => Template::parse(text.as_bytes(), layout)?,
            None => Template::whole(),
        };
        Ok(Self::Line(template))
    }

    /// Program of the command, if it is equal for all records.
    pub(super) fn program(&self) -> Option<&[u8]> {
        match self {
            Self::Command(words) => words.first()?.constant(),
            Self::Line(_) => None,
        }
    }

    pub(super) fn body(&self, record: &InputRecord, key: &[u8]) -> Result<RecordBody, RecordError> {
        match self {
            Self::Command(words) => {
                let rendered = |word: &Template| {
                    let mut text = Vec::new();
                    word.render(record, key, &mut text).map(|()| text)
                };
                Ok(RecordBody::Argv(words.iter().map(rendered).collect::<Result<_, _>>()?))
            }
            Self::Line(template) => {
                let mut line = Vec::with_capacity(record.raw.len() + 1);
                template.render(record, key, &mut line)?;
                if memchr::memchr(b'\n', &line).is_some() {
                    return Err(RecordError::LineEnd);
                }
                line.push(b'\n');
                Ok(RecordBody::Line(line))
            }
        }
    }
}
